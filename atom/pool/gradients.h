/*
 * Gradients mode of a pool's seam (anchor.h): the sum that members make together and the step that
 * comes of it. Behind the fragment's m lie v, the sum, and the batch's words (batch.h). Internal to
 * atom/pool.
 */
#ifndef ATOM_POOL_GRADIENTS_H
#define ATOM_POOL_GRADIENTS_H

#include "atom/pool/anchor.h"

ATOM_MUST atom_status pool_gradients_open(pool_anchor *p);
void pool_gradients_close(pool_anchor *p);
/* Floats behind the n of the anchor. */
uint64_t pool_gradients_outer(const pool_anchor *p, uint64_t n);
/* What the state of step 0 has there. */
ATOM_MUST atom_status pool_gradients_begin(pool_anchor *p);
/* The state was replaced: reads the batch from it. ATOM_E_FORMAT where that is of another run. */
ATOM_MUST atom_status pool_gradients_read(pool_anchor *p);
uint64_t pool_gradients_samples(const pool_anchor *p);
/* Where the outer momentum is once parameters are averaged: where the sum was. */
float *pool_gradients_momentum(const pool_anchor *p);
bool pool_gradients_delayed(const pool_anchor *p);
/* The lock is held. The trainer makes steps of its own; and from now on it does: its weights and moments
 * are those of a checkpoint that did. */
bool pool_gradients_own(const pool_anchor *p);
void pool_gradients_own_again(pool_anchor *p);
/* The lock is held. The run is at its end, and the trainer has its weights. */
bool pool_gradients_over(const pool_anchor *p);
/* All member's thread. */
uint64_t pool_gradients_ready(void *context, uint64_t version);
/* How many samples member i of the n of its roster brings to `version` (gsp_work.lease). */
uint64_t pool_gradients_lease(void *context, uint64_t version, uint32_t n, uint32_t i);
gsp_freeze pool_gradients_freeze(pool_anchor *p, uint64_t version, const float **x,
                                 uint64_t *tokens, uint64_t *samples);
ATOM_MUST atom_status pool_gradients_part(pool_anchor *p, uint64_t first, const float *x,
                                          uint64_t n);
ATOM_MUST atom_status pool_gradients_apply(pool_anchor *p, const gsp_proposal *c);
/* While the state is replaced nobody takes it. */
void pool_gradients_hold(pool_anchor *p, bool hold);
/* gsp_work.counted: whoever is in a version that counted, the newest. */
uint32_t pool_gradients_counted(void *context, const gsp_certificate *certificate);
void pool_gradients_seam(const pool_anchor *p, train_seam *seam);

#endif
