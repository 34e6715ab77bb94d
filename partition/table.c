/*
 * Owns the table of ranges: what does not change while one model is searched again and again, and
 * what is kept from one search for the next. One idea: a model has far more ranges than a search
 * looks at twice, so facts of a range are worked out once. Refuses to choose.
 */
#include "partition/search.h"

#include "atom/base/mem.h"

#include <string.h>

static atom_status fill_row(const part_model *m, part_table *t, uint32_t i, size_t *room)
{
    part_range r = part_range_begin(m, m->points[i]);
    for (uint32_t j = i + 1; j < m->n_points; j++) {
        while (r.last < m->points[j])
            part_range_extend(m, &r);
        if (part_alone_bytes(&r) > t->capacity_bytes)
            break;
        ATOM_TRY(atom_grow(&t->ranges, t->n_ranges, room, sizeof *t->ranges));
        part_range_finish(m, &r);
        t->ranges[t->n_ranges++] = r;
    }
    return ATOM_OK;
}

atom_status part_table_open(const part_model *m, uint64_t capacity_bytes, part_table **out)
{
    atom_status st = ATOM_OK;
    size_t room = 0;
    part_table *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("the table of ranges", sizeof *t);
    t->m = m;
    t->capacity_bytes = capacity_bytes;
    t->row = atom_alloc((size_t)m->n_points + 1, sizeof *t->row);
    if (!t->row)
        ATOM_TRY_CLEAN(atom_fail_memory("the table of ranges", m->n_points * sizeof *t->row));
    for (uint32_t i = 0; i < m->n_points; i++) {
        t->row[i] = t->n_ranges;
        ATOM_TRY_CLEAN(fill_row(m, t, i, &room));
    }
    t->row[m->n_points] = t->n_ranges;
    *out = t;
    return ATOM_OK;
cleanup:
    part_table_close(&t);
    return st;
}

void part_table_close(part_table **table)
{
    if (!*table)
        return;
    atom_free((*table)->row);
    atom_free((*table)->ranges);
    atom_free((*table)->times);
    atom_free((*table)->before);
    atom_free((*table)->compute);
    atom_free((*table)->work);
    for (uint32_t i = 0; i < PART_KNOWN_MAX; i++)
        atom_free((*table)->known[i].ends);
    atom_free(*table);
    *table = NULL;
}

/* --- times --- */

/* What all ranges in front of a point take together, each thing for itself. */
typedef struct sums {
    int64_t fwd, bwd, muon;
    uint64_t own_bytes, elements;
} sums;

static int64_t to_ps(double amount, double per_second)
{
    return amount > 0 ? (int64_t)(amount / per_second * 1e12) : 0;
}

/* What a partition takes at least before it reaches the point, however it is cut: forward no less
 * than computing, loading or updating, and backward no less than computing or spilling. Every range
 * rounds its copies by less than a picosecond, and there are no more ranges than points. */
static int64_t least_before(const part_model *m, const part_setting *setting, const sums *s)
{
    const part_device *d = &m->profile->device;
    int64_t load = to_ps((double)s->own_bytes, d->h2d_bytes_per_second);
    int64_t spill = to_ps((double)s->own_bytes, d->d2h_both_bytes_per_second);
    int64_t update = to_ps((double)s->elements, d->adamw_params_per_second) + s->muon;
    int64_t forward = load > s->fwd ? load : s->fwd, backward = spill > s->bwd ? spill : s->bwd;
    int64_t *where = setting->clip ? &forward : &backward;
    *where = update > *where ? update : *where;
    int64_t least = forward + backward - 4 * (int64_t)m->n_points;
    return least > 0 ? least : 0;
}

static void fill_before(part_table *t, const part_setting *setting)
{
    sums s = {0};
    for (uint32_t i = 0; i < t->m->n_points; i++) {
        t->before[i] = least_before(t->m, setting, &s);
        t->compute[i] = s.fwd + s.bwd;
        if (t->row[i] == t->row[i + 1])
            continue;                                /* no partition passes here */
        const part_range *r = &t->ranges[t->row[i]]; /* up to the next point */
        const part_times *times = &t->times[t->row[i]];
        s.fwd += times->fwd;
        s.bwd += times->bwd;
        s.muon += r->muon_ps;
        s.own_bytes += r->own_bytes;
        s.elements += r->own_elements - r->muon_elements;
    }
}

atom_status part_table_time(part_table *t, const part_setting *setting)
{
    const part_setting *had = &t->timed;
    if (t->times && had->micro_batches == setting->micro_batches && had->keep == setting->keep &&
        had->boundaries == setting->boundaries && had->clip == setting->clip)
        return ATOM_OK;
    if (!t->times)
        t->times = atom_alloc(t->n_ranges, sizeof *t->times);
    if (!t->before)
        t->before = atom_alloc(t->m->n_points, sizeof *t->before);
    if (!t->compute)
        t->compute = atom_alloc(t->m->n_points, sizeof *t->compute);
    if (!t->times || !t->before || !t->compute)
        return atom_fail_memory("the partition search", t->n_ranges * sizeof *t->times);
    for (uint32_t i = 0; i < t->n_ranges; i++)
        t->times[i] = part_range_times(t->m, setting, &t->ranges[i]);
    fill_before(t, setting);
    t->timed = *setting;
    return ATOM_OK;
}

/* --- partitions that were found --- */

atom_status part_table_know(part_table *t, const part_cuts *cuts)
{
    part_known *known = &t->known[t->n_known % PART_KNOWN_MAX];
    int32_t *ends = atom_alloc(cuts->n, sizeof *ends);
    if (!ends)
        return atom_fail_memory("a partition", cuts->n * sizeof *ends);
    memcpy(ends, cuts->ends, cuts->n * sizeof *ends);
    atom_free(known->ends);
    *known = (part_known){.ends = ends, .n = cuts->n};
    t->n_known++;
    return ATOM_OK;
}
