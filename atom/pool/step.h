/*
 * The step that members of a pool make of their summed gradient, each for itself and all with the
 * same bits (docs/design/pool.md#agreement). Thread: any, one at a time per vector.
 */
#ifndef ATOM_POOL_STEP_H
#define ATOM_POOL_STEP_H

#include "atom/pool/anchor.h"

/* Bytes that a step's matrices need beside the vectors; 0: none. */
uint64_t pool_step_space(const pool_update *u);

/*
 * Step number `step`, from 1. x: the mean gradient of n floats, used up; weights, m, v: n floats,
 * changed, v but where params have matrices. space: pool_step_space(u) bytes, aligned as pages.
 * *grad_norm is that of x before it is clipped, *rate the learning rate.
 * Errors  ATOM_E_DIVERGED  x is not finite; nothing was changed
 */
ATOM_MUST atom_status pool_step_make(const pool_update *u, uint64_t step, uint64_t n, float *x,
                                     float *weights, float *m, float *v, void *space,
                                     double *grad_norm, double *rate);

#endif
