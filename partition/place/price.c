/*
 * Owns the price of one arrangement in stages. One idea: layers are divided after the hosts are
 * known, by dynamic programming over the slowest stage, so a search moves hosts only. Refuses
 * arrangements whose stages fit no division of the layers.
 */
#include "partition/place/inner.h"

#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void place_work_close(place_work **work)
{
    place_work *w = *work;
    if (!w)
        return;
    place_scratch_close(&w->s);
    void *const blocks[] = {w->prefix,    w->elements,      w->best, w->edges,
                            w->divisions, w->table_seconds, w};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        atom_free(blocks[i]);
    *work = NULL;
}

static double median_boundary(const place_problem *p)
{
    uint64_t sorted[PLACE_LAYERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 1; i < p->n_layers; i++, n++) {
        uint32_t at = n;
        for (; at > 0 && sorted[at - 1] > p->layers[i].boundary_bytes; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = p->layers[i].boundary_bytes;
    }
    return n ? (double)sorted[n / 2] : 0;
}

atom_status place_work_open(const place_problem *p, place_work **out)
{
    size_t points = p->n_layers + 1u;
    place_work *w = atom_alloc(1, sizeof *w);
    atom_status st = ATOM_OK;
    if (!w)
        return atom_fail_memory("a placement", sizeof *w);
    w->p = p;
    w->prefix = atom_alloc(p->n_kinds * points, sizeof *w->prefix);
    w->elements = atom_alloc(points, sizeof *w->elements);
    w->best = atom_alloc((PLACE_STAGES_MAX + 1) * points, sizeof *w->best);
    w->edges = atom_alloc((size_t)PLACE_STAGES_MAX * PLACE_STAGES_MAX, sizeof *w->edges);
    w->divisions = atom_alloc(PLACE_DIVISIONS, sizeof *w->divisions);
    w->table_seconds = atom_alloc(PLACE_STAGE_TABLES * points * points, sizeof(double));
    if (!w->prefix || !w->elements || !w->best || !w->edges || !w->divisions || !w->table_seconds)
        ATOM_TRY_CLEAN(atom_fail_memory("a placement", PLACE_DIVISIONS * sizeof(place_division)));
    ATOM_TRY_CLEAN(place_scratch_open(&w->s));
    place_types_find(p, &w->types);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        w->elements[i + 1] = w->elements[i] + p->layers[i].elements;
        for (uint32_t k = 0; k < p->n_kinds; k++)
            w->prefix[k * points + i + 1] =
                w->prefix[k * points + i] + p->kinds[k].layer_seconds[i];
    }
    w->inner_bytes = median_boundary(p);
    *out = w;
    w = NULL;
cleanup:
    place_work_close(&w);
    return st;
}

/* --- a stage of layers [a, b) on a host of one kind -------------------------------------------- */

static uint32_t per_pipeline(const place_problem *p, uint32_t n_groups)
{
    return (p->micro_batches + n_groups - 1) / n_groups;
}

static double elements_of(const place_work *w, uint32_t a, uint32_t b)
{
    return (double)(w->elements[b] - w->elements[a]);
}

static bool too_large(const place_problem *p, const place_kind *k, double elements)
{
    return elements * (p->state_bytes + 2 * p->wire_bytes) > (double)k->host_bytes;
}

static bool on_disk(const place_work *w, const place_kind *k, uint32_t a, uint32_t b)
{
    return too_large(w->p, k, elements_of(w, a, b));
}

/* Layers of n elements, of which the widest has `widest`. */
static bool holds(const place_problem *p, const place_kind *k, double n, double widest)
{
    double wire = 2 * p->wire_bytes;
    if (k->device_bytes && widest * wire > (double)k->device_bytes)
        return false;
    return !too_large(p, k, n) ||
           (k->disk_bytes_per_second > 0 && n * wire <= (double)k->host_bytes &&
            n * p->state_bytes <= (double)k->disk_bytes);
}

bool place_holds(const place_problem *p, uint32_t kind, uint32_t first, uint32_t last)
{
    double n = 0, widest = 0;
    for (uint32_t i = first; i < last; i++) {
        n += (double)p->layers[i].elements;
        widest = fmax(widest, (double)p->layers[i].elements);
    }
    return holds(p, &p->kinds[kind], n, widest);
}

/* Seconds for a micro-batch, weights that do not stay on the device loaded beside m of them. */
static double computes(const place_work *w, uint32_t kind, uint32_t a, uint32_t b, uint32_t m)
{
    const place_kind *k = &w->p->kinds[kind];
    const double *prefix = &w->prefix[kind * (w->p->n_layers + 1u)];
    double bytes = elements_of(w, a, b) * w->p->wire_bytes, own = prefix[b] - prefix[a];
    if (k->load_bytes_per_second <= 0 || 2 * bytes <= (double)k->device_bytes)
        return own;
    return fmax(own, 3 * bytes / k->load_bytes_per_second / m);
}

static double updates(const place_work *w, uint32_t kind, uint32_t a, uint32_t b)
{
    const place_kind *k = &w->p->kinds[kind];
    double n = elements_of(w, a, b), seconds = n / k->update_elements_per_second;
    return on_disk(w, k, a, b) ? fmax(seconds, n * w->p->state_bytes / k->disk_bytes_per_second)
                               : seconds;
}

/* The kinds of a stage's hosts, a bit each. */
static uint64_t kinds_of(const place_problem *p, const place_layout *l, uint32_t s)
{
    uint64_t kinds = 0;
    for (uint32_t g = 0; g < l->n_groups; g++)
        kinds |= (uint64_t)1 << p->hosts[l->host[s * l->n_groups + g]].kind;
    return kinds;
}

/* The slowest of those kinds; infinite where one of them cannot hold the layers, of which the widest
 * has `widest` elements. Never less for more layers behind. */
static double stage_computes(const place_work *w, uint64_t kinds, uint32_t m, uint32_t a,
                             uint32_t b, double widest)
{
    double slowest = 0, n = elements_of(w, a, b);
    for (uint32_t kind = 0; kind < w->p->n_kinds; kind++) {
        if (!(kinds >> kind & 1))
            continue;
        if (!holds(w->p, &w->p->kinds[kind], n, widest))
            return INFINITY;
        slowest = fmax(slowest, computes(w, kind, a, b, m));
    }
    return slowest;
}

static void fill_table(const place_work *w, place_stage_table *t)
{
    const uint32_t n = w->p->n_layers;
    for (uint32_t a = 0; a < n; a++) {
        double *row = &t->seconds[a * (n + 1u)], widest = 0;
        for (uint32_t b = a + 1; b <= n; b++) {
            widest = fmax(widest, (double)w->p->layers[b - 1].elements);
            row[b] = stage_computes(w, t->kinds, t->m, a, b, widest);
        }
    }
}

/* The table of these kinds: a search asks for the same few all the time. */
static const double *stage_seconds(place_work *w, uint64_t kinds, uint32_t m)
{
    const size_t i = (kinds * 0x9e3779b97f4a7c15u ^ m) % PLACE_STAGE_TABLES;
    const size_t points = w->p->n_layers + 1u;
    place_stage_table *t = &w->tables[i];
    if (t->kinds == kinds && t->m == m)
        return t->seconds;
    *t = (place_stage_table){kinds, m, w->table_seconds + i * points * points};
    fill_table(w, t);
    return t->seconds;
}

/* The slowest stage when stages s and later divide layers a and later, of which best[] knows what
 * follows s. A stage that alone takes longer than the best ends the loop. seconds: of stage s. */
static double best_from(const place_work *w, const double *seconds, uint32_t s, uint32_t stages,
                        uint32_t a)
{
    uint32_t n = w->p->n_layers, points = n + 1, last = n - (stages - 1 - s);
    const double *own = &seconds[a * points], *after = &w->best[(s + 1) * points];
    double best = INFINITY;
    for (uint32_t b = a + 1; b <= last && own[b] < best; b++) {
        double slower = own[b] > after[b] ? own[b] : after[b];
        best = slower < best ? slower : best;
    }
    return best;
}

/* Divides the layers so that the slowest stage is as quick as possible; of equals the first stage is
 * as short as possible, then the second, and so on. */
static void divide(place_work *w, place_division *d)
{
    uint32_t n = w->p->n_layers, stages = d->stages, points = n + 1;
    uint32_t m = per_pipeline(w->p, d->groups);
    for (uint32_t a = 0; a <= n; a++)
        w->best[stages * points + a] = a == n ? 0 : INFINITY;
    for (uint32_t s = stages; s-- > 0;) {
        const double *seconds = stage_seconds(w, d->kinds[s], m);
        for (uint32_t a = 0; a <= n; a++)
            w->best[s * points + a] =
                a >= s && a + stages - s <= n ? best_from(w, seconds, s, stages, a) : INFINITY;
    }
    d->fits = isfinite(w->best[0]);
    d->first[0] = 0;
    for (uint32_t s = 0; s < stages && d->fits; s++) {
        uint32_t a = d->first[s], b = a + 1;
        const double *seconds = stage_seconds(w, d->kinds[s], m);
        while (w->best[(s + 1) * points + b] > w->best[0] || seconds[a * points + b] > w->best[0])
            b++;
        d->first[s + 1] = b;
    }
}

/* The division for an arrangement, made once for each sequence of kinds. */
static const place_division *division(place_work *w, const place_layout *l)
{
    uint64_t kinds[PLACE_STAGES_MAX], key = l->n_stages;
    for (uint32_t s = 0; s < l->n_stages; s++) {
        kinds[s] = kinds_of(w->p, l, s);
        key = (key ^ kinds[s]) * 0x9e3779b97f4a7c15u;
        key ^= key >> 29;
    }
    place_division *d = &w->divisions[key % PLACE_DIVISIONS];
    if (d->stages == l->n_stages && d->groups == l->n_groups &&
        memcmp(d->kinds, kinds, l->n_stages * sizeof *kinds) == 0)
        return d;
    d->stages = l->n_stages;
    d->groups = l->n_groups;
    memcpy(d->kinds, kinds, l->n_stages * sizeof *kinds);
    divide(w, d);
    return d;
}

void place_work_price(place_work *w, const place_layout *l, place_cost *out)
{
    const place_problem *p = w->p;
    uint32_t m = per_pipeline(p, l->n_groups), d = l->n_groups;
    double fill = 0, slowest = 0, slot = 0;
    memset(out, 0, sizeof *out);
    out->step = out->communication = INFINITY;
    const place_division *cut = division(w, l);
    out->fits = cut->fits;
    if (!out->fits)
        return;
    memcpy(out->first_layer, cut->first, (l->n_stages + 1) * sizeof *cut->first);
    for (uint32_t s = 0; s < l->n_stages; s++) {
        uint32_t a = out->first_layer[s], b = out->first_layer[s + 1];
        const uint16_t *hosts = &l->host[s * d];
        double own = stage_seconds(w, cut->kinds[s], m)[a * (p->n_layers + 1u) + b], edge = 0;
        fill += own;
        slowest = fmax(slowest, own);
        if (s + 1 < l->n_stages)
            edge = place_match(p, &w->types, hosts, hosts + d, d,
                               (double)p->layers[b].boundary_bytes, &w->s);
        out->pipeline += edge;
        slot = fmax(slot, fmax(own, edge));
        out->groups =
            fmax(out->groups, place_sync_seconds(p, &w->types, hosts, d,
                                                 elements_of(w, a, b) * p->sync_bytes, NULL));
        for (uint32_t g = 0; g < d; g++)
            out->optimizer = fmax(out->optimizer, updates(w, p->hosts[hosts[g]].kind, a, b));
    }
    out->compute = m * slowest;
    out->bubble = fill - slowest;
    out->link = out->pipeline + (m - 1) * (slot - slowest) + out->groups;
    out->communication = out->groups + out->pipeline;
    out->step = out->compute + out->bubble + out->link + out->optimizer;
}

/* --- for people -------------------------------------------------------------------------------- */

/* Who is behind the largest part of the step. */
static void blame(const place_work *w, const place_layout *l, const place_cost *c,
                  place_candidate *out)
{
    double compute = -1, edge = -1, sync = -1, update = -1, boundary = c->link - c->groups;
    uint32_t d = l->n_groups, who[4] = {0}, other = PLACE_UNUSED, slow;
    for (uint32_t s = 0; s < l->n_stages; s++)
        for (uint32_t g = 0; g < d; g++) {
            uint32_t a = c->first_layer[s], b = c->first_layer[s + 1], h = l->host[s * d + g];
            uint32_t kind = w->p->hosts[h].kind;
            double own = computes(w, kind, a, b, per_pipeline(w->p, d));
            double end = updates(w, kind, a, b);
            double all = g ? -1
                           : place_sync_seconds(w->p, &w->types, &l->host[s * d], d,
                                                elements_of(w, a, b) * w->p->sync_bytes, &slow);
            double pair = s + 1 == l->n_stages
                              ? -1
                              : place_pair_seconds(w->p, h, l->host[(s + 1) * d + g],
                                                   (double)w->p->layers[b].boundary_bytes);
            if (own > compute)
                who[0] = h;
            if (all > sync)
                who[1] = slow;
            if (pair > edge) {
                who[2] = h;
                other = l->host[(s + 1) * d + g];
            }
            if (end > update)
                who[3] = h;
            compute = fmax(compute, own);
            sync = fmax(sync, all);
            edge = fmax(edge, pair);
            update = fmax(update, end);
        }
    const double parts[PLACE_BOUNDS] = {c->compute, c->groups, boundary, c->optimizer, c->bubble};
    for (int i = 1; i < PLACE_BOUNDS; i++)
        if (parts[i] > parts[out->bound])
            out->bound = (place_bound)i;
    out->binds = out->bound == PLACE_BOUND_BUBBLE ? PLACE_UNUSED : who[out->bound];
    out->binds_to = out->bound == PLACE_BOUND_BOUNDARY ? other : PLACE_UNUSED;
}

/* Puts the partner of host g of one stage at g of the next. */
static void align(place_work *w, place_layout *l, const uint32_t *first)
{
    uint16_t moved[PLACE_HOSTS_MAX];
    uint32_t d = l->n_groups;
    for (uint32_t s = 0; s + 1 < l->n_stages; s++) {
        uint16_t *here = &l->host[s * d], *next = here + d;
        (void)place_match(w->p, &w->types, here, next, d,
                          (double)w->p->layers[first[s + 1]].boundary_bytes, &w->s);
        place_match_pairs(&w->types, here, next, d, &w->s);
        for (uint32_t g = 0; g < d; g++)
            moved[g] = next[w->s.column_of[g]];
        memcpy(next, moved, d * sizeof *next);
    }
}

void place_work_describe(place_work *w, const place_layout *layout, place_candidate *out)
{
    place_layout l = *layout;
    place_cost c;
    uint32_t d = l.n_groups, m = per_pipeline(w->p, d);
    memset(out, 0, sizeof *out);
    memset(out->stage, 0xff, sizeof out->stage);
    memset(out->pipeline, 0xff, sizeof out->pipeline);
    out->mode = PLACE_STAGES;
    out->n_stages = l.n_stages;
    out->n_groups = d;
    out->n_used = l.n_stages * d;
    out->sync_steps = 1;
    place_work_price(w, &l, &c);
    out->possible = c.fits;
    if (!c.fits) {
        snprintf(out->why, sizeof out->why,
                 "%u stages of %u hosts: no division of the layers fits their memory", l.n_stages,
                 d);
        return;
    }
    align(w, &l, c.first_layer);
    memcpy(out->first_layer, c.first_layer, sizeof out->first_layer);
    out->step_seconds = c.step;
    out->tokens_per_second = w->p->micro_batches * w->p->micro_tokens / c.step;
    out->compute_seconds = c.compute;
    out->link_seconds = c.link;
    out->optimizer_seconds = c.optimizer;
    out->bubble_seconds = c.bubble;
    out->sync_seconds = c.groups;
    out->communication_seconds = c.communication;
    for (uint32_t i = 0; i < out->n_used; i++) {
        uint32_t h = l.host[i], s = i / d, kind = w->p->hosts[h].kind;
        uint32_t a = c.first_layer[s], b = c.first_layer[s + 1];
        bool disk = on_disk(w, &w->p->kinds[kind], a, b);
        out->stage[h] = (uint16_t)s;
        out->pipeline[h] = (uint16_t)(i % d);
        out->busy[h] = (m * computes(w, kind, a, b, m) + updates(w, kind, a, b)) / c.step;
        out->memory_bytes[h] = (uint64_t)(elements_of(w, a, b) *
                                          (2 * w->p->wire_bytes + (disk ? 0 : w->p->state_bytes)));
    }
    blame(w, &l, &c, out);
}

atom_status place_price(const place_problem *p, const place_layout *layout, place_candidate *out)
{
    place_work *w = NULL;
    ATOM_TRY(place_check(p));
    if (layout->n_stages > PLACE_STAGES_MAX || layout->n_stages > p->n_layers)
        return atom_fail(ATOM_E_USAGE, "%u stages are more than %u layers can make",
                         layout->n_stages, p->n_layers);
    ATOM_TRY(place_work_open(p, &w));
    place_work_describe(w, layout, out);
    place_work_close(&w);
    return ATOM_OK;
}
