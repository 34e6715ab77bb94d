/*
 * First weights of a model that was not loaded from a file.
 */
#ifndef ATOM_TRAIN_INIT_H
#define ATOM_TRAIN_INIT_H

#include "atom/base/threads.h"
#include "atom/graph/graph.h"

/*
 * Fills elements [first, first + n) of the canonical vector (padding becomes 0) as each parameter's
 * `init` says. Normal numbers come from the counter-based generator keyed by (seed, step 0,
 * parameter index), so the weights depend on nothing else, not even on the number of threads.
 */
void train_init_range(const graph *g, uint64_t seed, uint64_t first, uint64_t n,
                      atom_threads *threads, float *out);
/* The same for all of it, on this thread. */
void train_init_weights(const graph *g, uint64_t seed, float *master);

#endif
