/*
 * The floats of gradients mode (anchor.h, docs/design/pool.md#what-a-member-holds): in one fragment
 *
 *   weights | m | v | sum | before, with delayed updates | words of the batch (batch.h)
 *
 * In memory a version is made in place. On disk it is made in the file `next`, beside the one that is,
 * piece by piece; the bits are the same. Thread: the member's where nothing else is said. Internal to
 * atom/pool.
 */
#ifndef ATOM_POOL_SUMS_H
#define ATOM_POOL_SUMS_H

#include "atom/pool/anchor_inner.h"
#include "atom/pool/step.h"

typedef enum pool_sums_part {
    POOL_SUMS_WEIGHTS,
    POOL_SUMS_M,
    POOL_SUMS_V,
    POOL_SUMS_SUM,
    POOL_SUMS_BEFORE, /* the weights before the newest step, where the gradients of the batch are taken */
    POOL_SUMS_WORDS
} pool_sums_part;

/* That part, in memory or else in the open file fd of the fragment. */
pool_floats pool_sums_at(const pool_anchor *p, bool delayed, int fd, pool_sums_part part);
/* Floats of a room for the pieces that a version on disk is made in, `wanted` or more. */
uint64_t pool_sums_room(const pool_update *u, uint64_t wanted);
/* With delayed updates, of step 0, in memory or in fd: the weights before are the first ones. */
ATOM_MUST atom_status pool_sums_begin(const pool_anchor *p, int fd);
/* Weights and moments, or the weights before alone, from memory or from fd to where the trainer has its
 * own: one part after the other, as its disk wants them (swap_disk_renew). The trainer's thread. */
ATOM_MUST atom_status pool_sums_put(const pool_anchor *p, bool delayed, int fd, bool before,
                                    const file_vector state[3]);

/* What is made of the version whose parts came (p->sent). */
typedef struct pool_sums_next {
    const pool_update *u;
    bool whole, steps; /* the sum grows; and becomes the gradient of a step */
    float share, one;  /* of what came in the sum; of the sum in that gradient */
    uint64_t step;     /* its number, from 1 */
    void *space;       /* pool_step_space */
    double norm, rate; /* out, of a step */
} pool_sums_next;
/*
 * All floats of the next version but the words. On disk: in p->next, which is new.
 * Errors  as pool_step_make
 */
ATOM_MUST atom_status pool_sums_make(pool_anchor *p, pool_sums_next *next);

#endif
