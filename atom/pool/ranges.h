/*
 * Which floats of a fragment the version being made changes: the parts of its round that came.
 * Thread: one.
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

/* [first, first + n) came, or is taken back. */
void pool_ranges_set(pool_ranges *r, uint64_t first, uint64_t n, bool in);
/* Floats in all. */
uint64_t pool_ranges_floats(const pool_ranges *r);

#endif
