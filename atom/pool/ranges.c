/*
 * Owns the list of parts that came. One idea: a part begins where no other begins, so its first
 * float names it. Refuses nothing: a part that comes twice is there once.
 */
#include "atom/pool/ranges.h"

#include "gossip/sum/mix.h"

uint64_t pool_part_stride(const gsp_proposal *c, uint64_t n)
{
    return gsp_part_stride(n, c->n_parts ? c->n_parts : 1);
}

void pool_ranges_set(pool_ranges *r, uint64_t first, uint64_t n, bool in)
{
    uint32_t k = 0;
    while (k < r->n && r->range[k].first != first)
        k++;
    if (in && k == r->n && k < GSP_PARTS_MAX)
        r->range[r->n++] = (pool_range){first, n};
    if (!in && k < r->n)
        r->range[k] = r->range[--r->n];
}

bool pool_ranges_at(const pool_ranges *r, uint64_t at, uint64_t n, uint64_t *end)
{
    *end = n;
    for (uint32_t k = 0; k < r->n; k++) {
        uint64_t first = r->range[k].first, last = first + r->range[k].n;
        if (first <= at && at < last) {
            *end = last;
            return true;
        }
        if (first > at && first < *end)
            *end = first;
    }
    return false;
}

uint64_t pool_ranges_floats(const pool_ranges *r)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < r->n; k++)
        n += r->range[k].n;
    return n;
}
