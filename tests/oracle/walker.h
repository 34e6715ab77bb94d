/*
 * An independent executor for tests: runs a graph node by node from its definition, with plain
 * buffers for every tensor and gradient, and knows nothing of plans, lowering, tapes or devices.
 * What it computes is what training means (docs/design/engine.md#layer-major-order,
 * #the-same-bits); the swap runtime must give the same bits.
 *
 * Ownership: the graph, tables and pool are borrowed. Thread: one at a time.
 */
#ifndef TESTS_ORACLE_WALKER_H
#define TESTS_ORACLE_WALKER_H

#include "atom/graph/graph.h"
#include "kernels/kernels.h"

typedef struct walker {
    const graph *g;
    const krn_table *table;
    const krn_host_table *host;
    atom_threads *threads;
    uint32_t C;
    void **tensor, **d_tensor; /* by tensor id; d_tensor NULL where there is no gradient */
    void **late;               /* [C]: gradient of the late node's output, per micro-batch */
    float *grad;               /* f32[extent], summed over the micro-batches */
    float *master;             /* f32[extent] */
    void *m, *v;               /* f32[extent], or what the updates keep in that room */
    void *wire, *wire_grad;    /* act[extent] */
    double *sums;
    void *workspace;
    uint64_t workspace_bytes;
} walker;

/* All vectors are zero. */
ATOM_MUST atom_status walker_open(const graph *g, const krn_table *table,
                                  const krn_host_table *host, atom_threads *threads, uint32_t C,
                                  walker **out);
void walker_close(walker **w);

/* Rounds master to the wire copy, after the caller has filled master. */
void walker_sync_wire(walker *w);
/* One forward with step->train = 0; afterwards any tensor may be read with walker_read. */
void walker_forward(walker *w, const krn_step *step, const int32_t *tokens, const int32_t *targets);
/* The act tensor `id` as f32; out holds its elements. */
void walker_read(const walker *w, int32_t id, float *out);
/*
 * Gradients of one step into w->grad: for each micro-batch forward and backward, late nodes at the
 * end. tokens, targets (and step->starts, where it is there) i32[C][B*T]; losses f32[C][B*T].
 */
void walker_gradients(walker *w, const krn_step *step, int32_t *tokens, int32_t *targets,
                      float *losses);
/*
 * Rounds the gradients, takes their norm, clips if max_grad_norm > 0 and updates: `update` and `muon`
 * with the run's decay, applied where the parameter decays; muon (NULL with GRAPH_ADAMW) where the
 * parameter is one of matrices. Returns the norm before clipping.
 */
double walker_update(walker *w, const krn_adamw_step *update, const krn_muon_step *muon,
                     float max_grad_norm);

/* Learning rate and betas of one AdamW step; scale 1. */
krn_adamw_step walker_adamw_step(uint32_t step, double lr, double beta1, double beta2, double eps,
                                 double decay);

#endif
