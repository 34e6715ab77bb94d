/*
 * Owns the table of ranges: what does not change while one model is searched again and again, and
 * what is kept from one search for the next. One idea: a model has far more ranges than a search
 * looks at twice, so facts of a range are worked out once. Refuses to choose.
 */
#include "partition/search.h"

#include "atom/base/mem.h"

/* Ranges that start at point i, into `out`, or only counted without it: there may be hundreds of
 * thousands, so no more memory is taken than they need. */
static uint32_t fill_row(const part_table *t, uint32_t i, part_range *out)
{
    const part_model *m = t->m;
    part_range r = part_range_begin(m, m->points[i]);
    uint32_t n = 0;
    for (uint32_t j = i + 1; j < m->n_points; j++, n++) {
        while (r.last < m->points[j])
            part_range_extend(m, &r);
        if (part_alone_bytes(&r) > t->capacity_bytes)
            break;
        if (!out)
            continue;
        part_range_finish(m, &r);
        out[n] = r;
    }
    return n;
}

atom_status part_table_open(const part_model *m, uint64_t capacity_bytes, part_table **out)
{
    atom_status st = ATOM_OK;
    part_table *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("the table of ranges", sizeof *t);
    t->m = m;
    t->capacity_bytes = capacity_bytes;
    t->row = atom_alloc((size_t)m->n_points + 1, sizeof *t->row);
    if (!t->row)
        ATOM_TRY_CLEAN(atom_fail_memory("the table of ranges", m->n_points * sizeof *t->row));
    for (uint32_t i = 0; i < m->n_points; i++)
        t->row[i + 1] = t->row[i] + fill_row(t, i, NULL);
    t->n_ranges = t->row[m->n_points];
    t->ranges = atom_alloc(t->n_ranges ? t->n_ranges : 1, sizeof *t->ranges);
    if (!t->ranges)
        ATOM_TRY_CLEAN(atom_fail_memory("the table of ranges", t->n_ranges * sizeof *t->ranges));
    for (uint32_t i = 0; i < m->n_points; i++)
        (void)fill_row(t, i, t->ranges + t->row[i]);
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
    atom_free((*table)->stamps);
    atom_free((*table)->before);
    atom_free((*table)->compute);
    atom_free((*table)->work);
    for (uint32_t i = 0; i < PART_KNOWN_MAX; i++)
        atom_free((*table)->known[i].ends);
    atom_free(*table);
    *table = NULL;
}

/* --- times --- */

atom_status part_table_time(part_table *t, const part_setting *setting)
{
    const part_setting *had = &t->timed; /* whatever the price of cuts */
    if (t->stamp && had->micro_batches == setting->micro_batches && had->keep == setting->keep &&
        had->boundaries == setting->boundaries && had->clip == setting->clip)
        return ATOM_OK;
    if (!t->times)
        t->times = atom_alloc(t->n_ranges, sizeof *t->times);
    if (!t->stamps)
        t->stamps = atom_alloc(t->n_ranges, sizeof *t->stamps);
    if (!t->before)
        t->before = atom_alloc(t->m->n_points, sizeof *t->before);
    if (!t->compute)
        t->compute = atom_alloc(t->m->n_points, sizeof *t->compute);
    if (!t->times || !t->stamps || !t->before || !t->compute)
        return atom_fail_memory("the partition search", t->n_ranges * sizeof *t->times);
    t->timed = *setting;
    t->stamp++;
    part_bounds_fill(t, setting);
    return ATOM_OK;
}
