/*
 * Owns the table of ranges: what does not change while one model is searched again and again, and
 * what is kept from one search for the next. One idea: a model has far more ranges than a search
 * looks at twice, so facts of a range are worked out once. Refuses to choose.
 */
#include "partition/search.h"

#include "atom/base/mem.h"

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
