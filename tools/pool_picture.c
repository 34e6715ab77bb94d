/*
 * Owns the SVG of a planned pool. One idea: a column is a stage, or a region where everybody holds
 * the whole model, so both ways are drawn by the same walk over hosts. Refuses nothing that was
 * planned; names need no escaping, since pool_file takes letters, digits and .-_ only.
 */
#include "tools/pool_picture.h"

#include <stdlib.h>
#include <string.h>

enum { BOX_WIDE = 230, BOX_HIGH = 40, GAP = 8, APART = 100, LEFT = 40, ARC = 26, HEAD = 70 };
enum { LABELS_MAX = 16 }; /* links with words; all of them have a title */

typedef struct panel {
    FILE *f;
    const plan_pool *p;
    const place_candidate *c;
    uint32_t n_columns; /* those that take no part: the last one */
    uint32_t column[PLACE_HOSTS_MAX], row[PLACE_HOSTS_MAX];
    uint32_t rows[PLACE_STAGES_MAX + 1 + PLACE_HOSTS_MAX];
    uint32_t first[PLACE_STAGES_MAX + 1 + PLACE_HOSTS_MAX]; /* a host of each column */
    uint32_t top, height;
} panel;

static const char *region_of(const panel *a, uint32_t host)
{
    const char *name = a->p->file->entries[a->p->net->entry[host]].region;
    return name ? name : "";
}

/* The column of a host that takes part. */
static uint32_t place_of(panel *a, uint32_t host)
{
    if (a->c->mode == PLACE_STAGES)
        return a->c->stage[host];
    for (uint32_t k = 0; k < a->n_columns; k++)
        if (strcmp(region_of(a, a->first[k]), region_of(a, host)) == 0)
            return k;
    a->first[a->n_columns] = host;
    return a->n_columns++;
}

static void arrange(panel *a)
{
    bool idle = false;
    uint32_t deepest = 1;
    a->n_columns = a->c->mode == PLACE_STAGES ? a->c->n_stages : 0;
    for (uint32_t h = 0; h < a->p->net->n; h++) {
        if (a->c->stage[h] == PLACE_UNUSED) {
            idle = true;
            continue;
        }
        uint32_t k = a->column[h] = place_of(a, h);
        a->first[k] = h;
        a->row[h] = a->c->mode == PLACE_STAGES ? a->c->pipeline[h] : a->rows[k];
        a->rows[k]++;
    }
    for (uint32_t h = 0; h < a->p->net->n; h++)
        if (a->c->stage[h] == PLACE_UNUSED) {
            a->column[h] = a->n_columns;
            a->row[h] = a->rows[a->n_columns]++;
        }
    a->n_columns += idle;
    for (uint32_t k = 0; k < a->n_columns; k++)
        deepest = a->rows[k] > deepest ? a->rows[k] : deepest;
    a->height = HEAD + ARC * a->n_columns + deepest * (BOX_HIGH + GAP) + 20;
}

static uint32_t left_of(uint32_t column)
{
    return LEFT + column * (BOX_WIDE + APART);
}

static uint32_t first_row(const panel *a)
{
    return a->top + HEAD + ARC * a->n_columns;
}

static uint32_t top_of(const panel *a, uint32_t host)
{
    return first_row(a) + a->row[host] * (BOX_HIGH + GAP);
}

static bool binds(const panel *a, uint32_t host)
{
    return host == a->c->binds || (a->c->bound == PLACE_BOUND_BOUNDARY && host == a->c->binds_to);
}

static void draw_host(const panel *a, uint32_t h)
{
    const place_candidate *c = a->c;
    const char *link = a->p->file->entries[a->p->net->entry[h]].link;
    bool used = c->stage[h] != PLACE_UNUSED;
    fprintf(
        a->f,
        "<svg class=\"host\" x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\"><rect x=\"2\" y=\"2\" "
        "width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%d\"/>\n",
        left_of(a->column[h]), top_of(a, h), BOX_WIDE, BOX_HIGH, BOX_WIDE - 4, BOX_HIGH - 4,
        used ? "#eef3fa" : "#f4f4f4", binds(a, h) ? "#c0392b" : "#8899aa", binds(a, h) ? 3 : 1);
    if (used)
        fprintf(a->f, "<rect x=\"4\" y=\"%d\" width=\"%.1f\" height=\"4\" fill=\"#4a7ebb\"/>\n",
                BOX_HIGH - 7, (BOX_WIDE - 8) * (c->busy[h] < 1 ? c->busy[h] : 1));
    fprintf(a->f, "<text x=\"8\" y=\"15\" font-weight=\"bold\">%s</text>\n", a->p->hosts[h].name);
    fprintf(a->f, "<text x=\"8\" y=\"29\" fill=\"#555\">%s", link ? link : "");
    if (used)
        fprintf(a->f, "%s%.0f %% busy, %s", link ? ", " : "", 100 * c->busy[h],
                cli_size(c->memory_bytes[h]));
    fprintf(a->f, "</text></svg>\n");
}

static void draw_head(const panel *a, uint32_t k)
{
    const place_candidate *c = a->c;
    uint32_t x = left_of(k), y = first_row(a) - 10, h = a->first[k];
    bool idle = k + 1 == a->n_columns && c->n_used < a->p->net->n;
    fprintf(a->f, "<text x=\"%u\" y=\"%u\" font-size=\"13\">", x, y);
    if (idle)
        fprintf(a->f, "takes no part");
    else if (c->mode == PLACE_STAGES)
        fprintf(a->f, "stage %u: layers %u to %u", k + 1, c->first_layer[k] + 1,
                c->first_layer[k + 1]);
    else
        fprintf(a->f, "%s, whole copies", *region_of(a, h) ? region_of(a, h) : "hosts");
    fprintf(a->f, "</text>\n");
}

/* A boundary between two partners of neighbouring stages. */
static void draw_pair(const panel *a, uint32_t from, uint32_t to, bool label)
{
    const plan_pool_net *net = a->p->net;
    size_t there = (size_t)from * net->n + to;
    uint32_t x = left_of(a->column[from]) + BOX_WIDE, y = top_of(a, from) + BOX_HIGH / 2,
             end_x = left_of(a->column[to]), end_y = top_of(a, to) + BOX_HIGH / 2;
    bool slow = a->c->bound == PLACE_BOUND_BOUNDARY && a->c->binds == from && a->c->binds_to == to;
    fprintf(a->f,
            "<line class=\"link\" x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" stroke=\"%s\" "
            "stroke-width=\"%d\"><title>%s to %s: %.4g Mbit/s, %.4g ms</title></line>\n",
            x, y, end_x, end_y, slow ? "#c0392b" : "#667", slow ? 3 : 1, a->p->hosts[from].name,
            a->p->hosts[to].name, net->rate[there] * 8e-6, net->delay[there] * 1e3);
    if (label)
        fprintf(a->f,
                "<text x=\"%u\" y=\"%u\" text-anchor=\"middle\" font-size=\"10\">%.4g Mbit/s"
                "</text>\n",
                (x + end_x) / 2, (y + end_y) / 2 - 4, net->rate[there] * 8e-6);
}

static void draw_pairs(const panel *a)
{
    const place_candidate *c = a->c;
    for (uint32_t h = 0; h < a->p->net->n; h++)
        for (uint32_t j = 0; j < a->p->net->n && c->stage[h] != PLACE_UNUSED; j++)
            if (c->stage[j] == c->stage[h] + 1 && c->pipeline[j] == c->pipeline[h])
                draw_pair(a, h, j, c->n_used - c->n_groups <= LABELS_MAX);
}

/* Everybody of a region on one line, and an arc with the delay between every two regions. */
static void draw_regions(const panel *a)
{
    const plan_pool_net *net = a->p->net;
    uint32_t n = a->n_columns - (a->c->n_used < net->n);
    for (uint32_t k = 0; k < n; k++)
        fprintf(a->f,
                "<line class=\"link\" x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" stroke=\"#667\"/>\n",
                left_of(k) - 10, first_row(a) - 26, left_of(k) - 10,
                first_row(a) + a->rows[k] * (BOX_HIGH + GAP) - GAP);
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t j = k + 1; j < n; j++) {
            uint32_t from = left_of(k) - 10, to = left_of(j) - 10, y = first_row(a) - 26;
            uint32_t high = y - 2 * ARC * (j - k);
            fprintf(a->f,
                    "<path class=\"link\" d=\"M %u %u Q %u %u %u %u\" fill=\"none\" "
                    "stroke=\"#667\"/>\n<text x=\"%u\" y=\"%u\" text-anchor=\"middle\" "
                    "font-size=\"10\">%.4g ms</text>\n",
                    from, y, (from + to) / 2, high, to, y, (from + to) / 2, (y + high) / 2 - 3,
                    net->delay[(size_t)a->first[k] * net->n + a->first[j]] * 1e3);
        }
}

static void draw(const panel *a)
{
    const place_candidate *c = a->c;
    const char *who = c->binds == PLACE_UNUSED ? "" : a->p->hosts[c->binds].name;
    fprintf(a->f, "<text x=\"%d\" y=\"%u\" font-size=\"16\">", LEFT, a->top + 26);
    if (c->mode == PLACE_STAGES)
        fprintf(a->f, "%u stages x %u: a prediction, atom cannot train in stages yet", c->n_stages,
                c->n_groups);
    else if (c->mode == PLACE_GRADIENTS)
        fprintf(a->f, "whole copies, gradients summed");
    else
        fprintf(a->f, "whole copies, weights averaged every %u steps", c->sync_steps);
    fprintf(a->f,
            "</text>\n<text x=\"%d\" y=\"%u\" fill=\"#555\">%s tokens/s, %s a step, bound by "
            "%s%s%s</text>\n",
            LEFT, a->top + 44, cli_count(c->tokens_per_second), cli_seconds(c->step_seconds),
            place_bound_names[c->bound], *who ? " of " : "", who);
    if (c->mode == PLACE_STAGES)
        draw_pairs(a);
    else
        draw_regions(a);
    for (uint32_t k = 0; k < a->n_columns; k++)
        draw_head(a, k);
    for (uint32_t h = 0; h < a->p->net->n; h++)
        draw_host(a, h);
}

/* --- the file --- */

static const char SAYS[] = "hosts of a pool, drawn by atom";

atom_status pool_picture_check(const char *path)
{
    return atom_file_check_place(path, SAYS, "a picture of a pool");
}

static void draw_all(FILE *f, const plan_pool *p, panel *panels, uint32_t n)
{
    uint32_t wide = 640, high = 0;
    for (uint32_t i = 0; i < n; i++) {
        arrange(&panels[i]);
        panels[i].top = high;
        high += panels[i].height;
        wide = left_of(panels[i].n_columns) > wide ? left_of(panels[i].n_columns) : wide;
    }
    fprintf(f,
            "<!-- %s -->\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
            "viewBox=\"0 0 %u %u\" font-family=\"sans-serif\" font-size=\"11\">\n"
            "<title>%s on %u hosts</title>\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n",
            SAYS, wide, high, wide, high, p->g->name, p->net->n);
    for (uint32_t i = 0; i < n; i++) {
        panels[i].f = f;
        draw(&panels[i]);
    }
    fprintf(f, "</svg>\n");
}

atom_status pool_picture_write(const plan_pool *p, const char *path)
{
    panel *panels = atom_alloc(2, sizeof *panels);
    char *text = NULL;
    size_t bytes = 0;
    uint32_t n = 0;
    FILE *f = panels ? open_memstream(&text, &bytes) : NULL;
    atom_status st = ATOM_OK;
    if (!f)
        ATOM_TRY_CLEAN(atom_fail_memory("a picture", 2 * sizeof *panels));
    if (p->recommended >= 0)
        panels[n++] = (panel){.p = p, .c = &p->way[p->recommended]};
    if (p->way[PLACE_STAGES].possible)
        panels[n++] = (panel){.p = p, .c = &p->way[PLACE_STAGES]};
    draw_all(f, p, panels, n);
    bool whole = fflush(f) == 0 && !ferror(f);
    fclose(f);
    if (!whole)
        ATOM_TRY_CLEAN(atom_fail_memory("a picture", bytes));
    ATOM_TRY_CLEAN(atom_file_write(path, text, bytes));
cleanup:
    free(text);
    atom_free(panels);
    return st;
}
