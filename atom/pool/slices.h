/*
 * Which parts of a fragment are to be written over live weights (`--sync slices`, anchor.h). Knows
 * floats and one certificate. Thread: none of its own; the owner of the fragment locks.
 */
#ifndef ATOM_POOL_SLICES_H
#define ATOM_POOL_SLICES_H

#include "gossip/agree/types.h"

typedef struct pool_slices {
    uint64_t stride; /* floats of a part; 0: nothing is to be written */
    uint32_t over[GSP_PARTS_MAX / 32];
    uint64_t samples; /* of the run, when its weights were copied out */
} pool_slices;

/* The version that `c` says is in the anchor of n floats: notes where it has to be written. mine:
 * bit of this member's contribution in each part's `included`. */
void pool_slices_note(pool_slices *s, const gsp_proposal *c, uint64_t n, uint32_t mine,
                      uint64_t samples);
/* to = anchor + mix (to - anchor) there, for floats [first, first + n) of the fragment, which `to`
 * and `anchor` have alone. Returns the floats that were written. */
uint64_t pool_slices_write(const pool_slices *s, const float *anchor, uint64_t first, uint64_t n,
                           float mix, float *to);

#endif
