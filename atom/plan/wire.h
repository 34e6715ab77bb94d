/*
 * The wire copy of all parameters as a canonical vector: what is put is rounded to its type, what is got
 * is widened. So weights are read from files into the only copy of them that is kept.
 *
 *   plan_wire w = {g, host, threads, at};        at: g->param_extent elements of g's type
 *   file_weights_read_to(dir, g, plan_wire_vector(&w));
 *
 * Ownership: all is borrowed, and *w must outlive the vector. Thread: one at a time, with the helpers
 * of `threads`. Errors: none of its own.
 */
#ifndef ATOM_PLAN_WIRE_H
#define ATOM_PLAN_WIRE_H

#include "atom/base/threads.h"
#include "atom/file/vector.h"
#include "atom/graph/graph.h"
#include "kernels/kernels.h"

typedef struct plan_wire {
    const graph *g;
    const krn_host_table *host;
    atom_threads *threads;
    void *at;
} plan_wire;

file_vector plan_wire_vector(plan_wire *w);

#endif
