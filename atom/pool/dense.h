/*
 * The first share of a pool's steps, made with summed gradients before members average what their own
 * steps changed (docs/design/pool.md#dense-steps): what `dense_steps` says, and how many samples that
 * is. Pure. Thread: any. Errors: ATOM_E_USAGE, a sentence that names no key.
 */
#ifndef ATOM_POOL_DENSE_H
#define ATOM_POOL_DENSE_H

#include "atom/base/status.h"

#include <stdint.h>

/* "10%" of `steps`, or a count of them: *out of them, 1 to steps - 1 where steps is known, rounded up. */
ATOM_MUST atom_status pool_dense_read(const char *text, int64_t steps, int64_t *out);
/* Samples of that many steps of `batch` samples in whole steps of `together` samples, at least 1,
 * rounded up. */
uint64_t pool_dense_samples(uint64_t dense_steps, uint64_t batch, uint64_t together);

#endif
