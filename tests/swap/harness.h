/*
 * Runs a few training steps of a plan on the CPU device and keeps everything that can be compared.
 */
#ifndef TESTS_SWAP_HARNESS_H
#define TESTS_SWAP_HARNESS_H

#include "codegen/lower.h"

typedef struct harness_run {
    const graph *g;
    const part_plan *plan;
    const krn_table *table;
    const krn_host_table *host;
    uint32_t threads;
    bool generated;        /* compile the call lists and run those */
    uint64_t budget_bytes; /* 0: exactly what the plan needs */
    uint64_t seed;
    uint32_t steps; /* 0: an evaluation alone, of the first weights */
    float max_grad_norm;
    store_kind store; /* with a plan that uses the disk */
    bool ahead;       /* some steps guess that they are not clipped, where the plan can */
    bool apart;       /* documents apart: harness_starts */
    bool cuda;        /* on cards from 0 on; table is card 0's */
    uint32_t brought; /* micro-batches from there on have no targets; 0: all have */
    bool passed_over; /* and are not run */
} harness_run;

typedef struct harness_result {
    uint64_t extent;
    float *master, *m, *v; /* canonical vectors after the last step */
    void *wire;
    double norms[16];
    uint32_t right, wrong; /* guesses */
    float *losses;         /* (steps + 1) x C x B*T; the last row is an evaluation */
    uint64_t n_losses;
    uint64_t device_peak_bytes;
} harness_result;

/* Random documents, krn_step.starts of C micro-batches, the same in each step; NULL without memory.
 * Free with atom_free. */
int32_t *harness_starts(const graph *g, uint64_t seed, uint32_t C);

ATOM_MUST atom_status harness_do(const harness_run *run, harness_result *out);
void harness_free(harness_result *result);

/* NULL when equal to the bit, else the name of what differs (message in text). */
const char *harness_compare(const graph *g, const harness_result *a, const harness_result *b,
                            char text[256]);

/* A random legal plan: cuts, keep modes, boundary place, residency; n_cuts at most. */
ATOM_MUST atom_status harness_random_plan(const graph *g, uint64_t seed, uint32_t C, bool clip,
                                          part_plan **out);
ATOM_MUST atom_status harness_resident_plan(const graph *g, uint32_t C, bool clip, bool in_place,
                                            part_plan **out);

#endif
