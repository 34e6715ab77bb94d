/*
 * Owns partitions that were found. One idea: one plan asks for dozens of searches of the same ranges,
 * and cuts that were best for another setting are mostly good for this one, so what takes longer than
 * they do need not be looked at. Refuses to search.
 */
#include "partition/search.h"

#include "atom/base/mem.h"

#include <string.h>

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

/* The range from point i to where the cut is; NULL: none that fits the table. */
static const part_range *range_to(const part_table *t, uint32_t i, int32_t end)
{
    uint32_t low = t->row[i], high = t->row[i + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->ranges[middle].last < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->row[i + 1] && t->ranges[low].last == end ? &t->ranges[low] : NULL;
}

/* What the partition takes under this setting; INT64_MAX: the predicate says no. */
static int64_t time_of(part_table *t, const part_setting *s, part_goal goal, uint64_t room_bytes,
                       const part_known *known)
{
    const part_range *cur = range_to(t, 0, known->ends[0]);
    int64_t total = 0;
    uint32_t point = 0;
    for (uint32_t k = 1; k < known->n && cur; k++) {
        point += (uint32_t)(cur - &t->ranges[t->row[point]]) + 1;
        const part_range *next = range_to(t, point, known->ends[k]);
        const bool last = k + 1 == known->n;
        if (!next || part_alone_bytes(cur) > room_bytes || part_alone_bytes(next) > room_bytes ||
            part_pair_bytes(s, cur, next, last) > room_bytes)
            return INT64_MAX;
        const part_times *a = part_times_at(t, (uint32_t)(cur - t->ranges));
        const part_times *b = part_times_at(t, (uint32_t)(next - t->ranges));
        if (goal == PART_GOAL_HIDDEN && !part_pair_hides(a, b, last))
            return INT64_MAX;
        total += part_pair_ps(s, a, b, k == 1, last) +
                 s->cut_price * (int64_t)(next->x_bytes / 1024) + (last ? part_turn_ps(b) : 0);
        cur = next;
    }
    return cur ? total : INT64_MAX;
}

int64_t part_known_least(part_table *t, const part_setting *s, part_goal goal, uint64_t room_bytes)
{
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < t->n_known && i < PART_KNOWN_MAX; i++) {
        int64_t time = time_of(t, s, goal, room_bytes, &t->known[i]);
        least = time < least ? time : least;
    }
    return least;
}
