/*
 * The step that members of a pool make of their summed gradient, each for itself and all with the
 * same bits (docs/design/pool.md#agreement). Thread: any, one at a time per vector.
 */
#ifndef ATOM_POOL_STEP_H
#define ATOM_POOL_STEP_H

#include "atom/pool/anchor.h"
#include "atom/pool/fragment.h"

/* Bytes that a step's matrices need beside the vectors; 0: none. */
uint64_t pool_step_space(const pool_update *u);

/* Floats of the largest matrix that is made whole; 0: there is none. */
uint64_t pool_step_matrix_floats(const pool_update *u);

/* What a step changes, n floats each; v but where params have matrices. */
typedef struct pool_step_vectors {
    pool_floats weights, m, v;
} pool_step_vectors;
enum { POOL_STEP_ROOMS = 4 };

/*
 * Step number `step`, from 1, of a mean gradient x[n] whose norm before it is clipped is `norm`. x is
 * used up. What is in `from` becomes that of the next step in `to`, which may be the same place; all of
 * `to` is written, also what lies between parameters. before: gets the weights of `from`, or NULL.
 * room: where one of these is a file, POOL_STEP_ROOMS pieces with room for the largest matrix each.
 * space: pool_step_space(u) bytes, aligned as pages. *rate: the learning rate.
 * Errors  ATOM_E_DIVERGED  norm is not finite; nothing was changed. Those of the disk
 */
ATOM_MUST atom_status pool_step_make(const pool_update *u, uint64_t step, double norm, uint64_t n,
                                     const pool_floats *x, const pool_step_vectors *from,
                                     const pool_step_vectors *to, const pool_floats *before,
                                     pool_room room, void *space, double *rate);

#endif
