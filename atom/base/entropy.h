/*
 * Random bytes that nobody can predict, from the kernel: keys, salts, names. What must be the same
 * in every run comes from rng.h.
 */
#ifndef ATOM_BASE_ENTROPY_H
#define ATOM_BASE_ENTROPY_H

#include "atom/base/status.h"

#include <stddef.h>

/* Fills `bytes` bytes. Thread: any. ATOM_E_RUNTIME if the kernel has none. */
ATOM_MUST atom_status atom_entropy(void *out, size_t bytes);

#endif
