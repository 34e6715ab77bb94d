/*
 * Parts of a round over one fragment: how long they are, and which of them came, so which floats the
 * version being made changes. Thread: one.
 */
#ifndef ATOM_POOL_RANGES_H
#define ATOM_POOL_RANGES_H

#include "gossip/agree/types.h"

typedef struct pool_range {
    uint64_t first, n;
} pool_range;

typedef struct pool_ranges {
    pool_range range[GSP_PARTS_MAX];
    uint32_t n;
} pool_ranges;

/* Floats of a part of a round over n floats: the last ones may be shorter, or empty. */
uint64_t pool_part_stride(const gsp_proposal *c, uint64_t n);

/* [first, first + n) came, or is taken back. */
void pool_ranges_set(pool_ranges *r, uint64_t first, uint64_t n, bool in);
/* Whether float `at` of n is in one that came; *end: how far that holds. */
bool pool_ranges_at(const pool_ranges *r, uint64_t at, uint64_t n, uint64_t *end);
/* Floats in all. */
uint64_t pool_ranges_floats(const pool_ranges *r);

#endif
