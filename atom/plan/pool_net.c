/*
 * Owns what is between the hosts of a described pool. One idea: whatever a file says becomes two
 * matrices, and, where lines have classes, what each host's own line does. Refuses classes and
 * regions that nobody described; whether a rate makes sense is partition/place's to say.
 */
#include "atom/plan/pool_net.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATRIX_BYTES_MAX = 16 << 20 };
static const double MBIT = 1e6 / 8, MS = 1e-3;

/* docs/guide/plan.md#classes-of-lines has the sources. */
static const struct {
    double down_mbit, up_mbit, delay_ms;
} classes[] = {
    {1000, 1000, 2}, {50, 10, 25}, {940, 940, 0.1}, {9400, 9400, 0.05}, {10000, 10000, 0.5}};
const char *const plan_pool_classes[] = {"fibre", "mobile", "lan", "lan-10g", "datacenter", NULL};
static const double HOME_DELAY_MS = 8;

typedef struct line {
    double up, down, delay;
} line;

void plan_pool_net_close(plan_pool_net **net)
{
    plan_pool_net *n = *net;
    if (!n)
        return;
    void *const blocks[] = {n->entry, n->name, n->delay, n->rate, n->up, n->down, n};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        atom_free(blocks[i]);
    *net = NULL;
}

/* "home-100-20" */
static bool home_line(const char *name, plan_pool_line *out)
{
    char *end = NULL;
    if (strncmp(name, "home-", 5) != 0 || !isdigit((unsigned char)name[5]))
        return false;
    out->down_mbit = strtod(name + 5, &end);
    if (*end != '-' || !isdigit((unsigned char)end[1]))
        return false;
    out->up_mbit = strtod(end + 1, &end);
    out->delay_ms = HOME_DELAY_MS;
    return *end == 0 && out->down_mbit > 0 && out->down_mbit <= 1e7 && out->up_mbit > 0 &&
           out->up_mbit <= 1e7;
}

static atom_status unknown_class(const plan_pool_file *f, const plan_pool_entry *e)
{
    const char *names[PLACE_HOSTS_MAX + 8];
    size_t n = 0;
    for (uint32_t i = 0; i < f->n_lines; i++)
        names[n++] = f->lines[i].name;
    for (uint32_t i = 0; plan_pool_classes[i]; i++)
        names[n++] = plan_pool_classes[i];
    const char *near = atom_did_you_mean(e->link, names, n);
    return atom_fail(ATOM_E_USAGE,
                     "%s:%u: no link is called '%.64s'%s%s%s; use home-DOWN-UP (in Mbit/s, such "
                     "as home-100-20), fibre, mobile, lan, lan-10g, datacenter, or one that you "
                     "describe under 'links'",
                     f->path, e->line, e->link, near ? " (did you mean '" : "", near ? near : "",
                     near ? "'?)" : "");
}

static atom_status line_of(const plan_pool_file *f, const plan_pool_entry *e,
                           const plan_pool_change *change, line *out)
{
    plan_pool_line found = {0};
    bool known = false;
    for (uint32_t i = 0; i < f->n_lines && !known; i++)
        if ((known = strcmp(f->lines[i].name, e->link) == 0))
            found = f->lines[i];
    for (uint32_t i = 0; plan_pool_classes[i] && !known; i++)
        if ((known = strcmp(plan_pool_classes[i], e->link) == 0))
            found = (plan_pool_line){.down_mbit = classes[i].down_mbit,
                                     .up_mbit = classes[i].up_mbit,
                                     .delay_ms = classes[i].delay_ms};
    if (!known && !home_line(e->link, &found))
        return unknown_class(f, e);
    double times = !change->link || strcmp(change->link, e->link) == 0 ? change->faster : 1;
    *out =
        (line){found.up_mbit * MBIT * times, found.down_mbit * MBIT * times, found.delay_ms * MS};
    return ATOM_OK;
}

static const char *region_of(const plan_pool_entry *e)
{
    return e->region ? e->region : "";
}

static atom_status check_regions(const plan_pool_file *f)
{
    const char *names[PLACE_HOSTS_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < f->n_entries; i++)
        if (f->entries[i].region)
            names[n++] = f->entries[i].region;
    for (uint32_t i = 0; i < f->n_regions; i++) {
        const plan_pool_between *b = &f->regions[i];
        if (b->between.n != 2)
            return atom_fail(ATOM_E_USAGE, "%s:%u: 'between' must name two regions: [eu, us]",
                             f->path, b->line);
        for (int k = 0; k < 2; k++) {
            const char *word = b->between.items[k], *near = NULL;
            bool known = false;
            for (size_t j = 0; j < n; j++)
                known = known || strcmp(names[j], word) == 0;
            if (known)
                continue;
            near = atom_did_you_mean(word, names, n);
            return atom_fail(ATOM_E_USAGE, "%s:%u: no host is in the region '%.64s'%s%s%s", f->path,
                             b->line, word, near ? " (did you mean '" : "", near ? near : "",
                             near ? "'?)" : "");
        }
        for (uint32_t j = 0; j < i; j++) {
            char *const *x = b->between.items, *const *y = f->regions[j].between.items;
            if ((strcmp(x[0], y[0]) == 0 && strcmp(x[1], y[1]) == 0) ||
                (strcmp(x[0], y[1]) == 0 && strcmp(x[1], y[0]) == 0))
                return atom_fail(ATOM_E_USAGE,
                                 "%s:%u: line %u already says how far these "
                                 "regions are apart",
                                 f->path, b->line, f->regions[j].line);
        }
    }
    return ATOM_OK;
}

/* One way between two regions; within one it is 0 unless the file says otherwise. */
static atom_status region_delay(const plan_pool_file *f, const plan_pool_entry *a,
                                const plan_pool_entry *b, double *out)
{
    const char *x = region_of(a), *y = region_of(b);
    for (uint32_t i = 0; i < f->n_regions; i++) {
        char *const *names = f->regions[i].between.items;
        if ((strcmp(names[0], x) == 0 && strcmp(names[1], y) == 0) ||
            (strcmp(names[0], y) == 0 && strcmp(names[1], x) == 0)) {
            *out = f->regions[i].delay_ms * MS;
            return ATOM_OK;
        }
    }
    *out = 0;
    if (strcmp(x, y) == 0)
        return ATOM_OK;
    if (!*x || !*y)
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: this host has no 'region', but others have one; "
                         "give it one",
                         f->path, *x ? b->line : a->line);
    return atom_fail(ATOM_E_USAGE,
                     "%s: the delay between '%s' and '%s' is missing; add to 'regions': - "
                     "{between: [%s, %s], delay_ms: 40}",
                     f->path, x, y, x, y);
}

static atom_status by_classes(const plan_pool_file *f, const plan_pool_change *change,
                              plan_pool_net *net)
{
    line lines[PLACE_HOSTS_MAX];
    net->up = atom_alloc(net->n, sizeof *net->up);
    net->down = atom_alloc(net->n, sizeof *net->down);
    if (!net->up || !net->down)
        return atom_fail_memory("a network", net->n * sizeof *net->up);
    ATOM_TRY(check_regions(f));
    for (uint32_t i = 0; i < f->n_entries; i++)
        ATOM_TRY(line_of(f, &f->entries[i], change, &lines[i]));
    for (uint32_t i = 0; i < net->n; i++) {
        const line *a = &lines[net->entry[i]];
        net->up[i] = a->up;
        net->down[i] = a->down;
        for (uint32_t j = 0; j < net->n; j++) {
            const line *b = &lines[net->entry[j]];
            double far = 0;
            if (i != j)
                ATOM_TRY(
                    region_delay(f, &f->entries[net->entry[i]], &f->entries[net->entry[j]], &far));
            net->delay[i * net->n + j] = a->delay + b->delay + far;
            net->rate[i * net->n + j] = a->up < b->down ? a->up : b->down;
        }
    }
    return ATOM_OK;
}

/* --- matrices --- */

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t' || *s == '\r')
        s++;
    return s;
}

static atom_status read_row(const char *path, uint32_t at_line, const char *s, uint32_t row,
                            uint32_t n, double unit, double *out)
{
    for (uint32_t k = 0; k < n; k++) {
        char *end = NULL;
        s = skip_blanks(s);
        double x = strtod(s, &end);
        if (end == s && !(k == row && (*s == ',' || *s == '\n' || !*s)))
            return atom_fail(ATOM_E_USAGE, "%s:%u: cell %u is not a number; a row has %u of them",
                             path, at_line, k + 1, n);
        out[(size_t)row * n + k] = x * unit;
        s = skip_blanks(end);
        if (k + 1 < n && *s != ',')
            return atom_fail(ATOM_E_USAGE,
                             "%s:%u: %u cells; there are %u hosts, in the order of "
                             "the pool's file",
                             path, at_line, k + 1, n);
        s += *s == ',' && k + 1 < n;
    }
    if (*s && *s != '\n')
        return atom_fail(ATOM_E_USAGE, "%s:%u: more than %u cells; there are %u hosts", path,
                         at_line, n, n);
    return ATOM_OK;
}

atom_status plan_pool_matrix_parse(const char *path, const char *text, uint32_t n, double unit,
                                   double *out)
{
    uint32_t row = 0, at_line = 1;
    for (const char *s = text; *s; at_line++) {
        const char *first = skip_blanks(s), *end = strchr(s, '\n');
        if (*first && *first != '\n') {
            if (row == n)
                return atom_fail(ATOM_E_USAGE, "%s:%u: more than %u rows; there are %u hosts", path,
                                 at_line, n, n);
            ATOM_TRY(read_row(path, at_line, s, row++, n, unit, out));
        }
        s = end ? end + 1 : s + strlen(s);
    }
    if (row < n)
        return atom_fail(ATOM_E_USAGE,
                         "%s: %u rows; there are %u hosts, in the order of the "
                         "pool's file",
                         path, row, n);
    return ATOM_OK;
}

static atom_status read_matrix(const char *path, uint32_t n, double unit, double *out)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (!atom_path_exists(path))
        return atom_fail(ATOM_E_USAGE, "there is no file %s with the matrix", path);
    atom_status st = atom_file_read(path, MATRIX_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = strlen(text) == bytes ? plan_pool_matrix_parse(path, text, n, unit, out)
                                   : atom_fail(ATOM_E_USAGE, "%s: a NUL byte; is it CSV?", path);
    atom_free(text);
    return st == ATOM_E_FORMAT ? ATOM_E_USAGE : st;
}

/* --- */

static void name_hosts(const plan_pool_file *f, plan_pool_net *net, int32_t more)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->n_entries; i++) {
        const plan_pool_entry *e = &f->entries[i];
        uint32_t count = (uint32_t)e->count + (more == (int32_t)i);
        for (uint32_t k = 1; k <= count; k++, at++) {
            net->entry[at] = i;
            if (e->count > 1)
                snprintf(net->name[at], PLACE_NAME_BYTES, "%.48s-%u", e->name, k);
            else
                snprintf(net->name[at], PLACE_NAME_BYTES, "%.48s", e->name);
        }
    }
}

atom_status plan_pool_net_open(const plan_pool_file *f, const plan_pool_change *change,
                               plan_pool_net **out)
{
    plan_pool_net *net = atom_alloc(1, sizeof *net);
    atom_status st = ATOM_OK;
    if (!net)
        return atom_fail_memory("a network", sizeof *net);
    net->n = plan_pool_hosts(f) + (change->more >= 0);
    size_t cells = (size_t)net->n * net->n;
    net->entry = atom_alloc(net->n, sizeof *net->entry);
    net->name = atom_alloc(net->n, sizeof *net->name);
    net->delay = atom_alloc(cells, sizeof *net->delay);
    net->rate = atom_alloc(cells, sizeof *net->rate);
    if (!net->entry || !net->name || !net->delay || !net->rate)
        ATOM_TRY_CLEAN(atom_fail_memory("a network", 2 * cells * sizeof(double)));
    name_hosts(f, net, change->more);
    if (f->mbit_csv) {
        ATOM_TRY_CLEAN(read_matrix(f->delays_csv, net->n, MS, net->delay));
        ATOM_TRY_CLEAN(read_matrix(f->mbit_csv, net->n, MBIT * change->faster, net->rate));
    } else {
        ATOM_TRY_CLEAN(by_classes(f, change, net));
    }
    *out = net;
    net = NULL;
cleanup:
    plan_pool_net_close(&net);
    return st;
}
