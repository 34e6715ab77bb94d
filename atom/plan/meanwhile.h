/*
 * What a step does to the caches between two runs of one node: the other nodes of the model pass through
 * them. A node that is timed again and again on its own finds its weights there, and is up to a sixth
 * faster than in any step. Inner header of atom/plan.
 *
 * Units: bytes. Thread: one caller; the pool's threads take part. Errors: none, since without memory for it nodes are
 * timed one after another as before. Ownership: plan_meanwhile_close gives back the memory.
 */
#ifndef ATOM_PLAN_MEANWHILE_H
#define ATOM_PLAN_MEANWHILE_H

#include "atom/base/threads.h"

#include <stdbool.h>

typedef struct plan_meanwhile {
    atom_threads *threads; /* borrowed */
    uint64_t bytes;        /* of memory; 0: there is none */
    uint64_t warm_bytes;   /* of that, what passes between two micro-batches of a warm sub-model */
    unsigned char *memory;
} plan_meanwhile;

/*
 * pass_bytes: what one micro-batch reads and writes on its way through the model. cache_bytes: all last-level
 * caches; 0: not known. warm_bytes: the most that a micro-batch touches of a sub-model that is warm
 * (part_warm_share). available_bytes: memory that may be taken.
 */
plan_meanwhile plan_meanwhile_open(atom_threads *threads, uint64_t pass_bytes, uint64_t cache_bytes,
                                   uint64_t warm_bytes, uint64_t available_bytes);
void plan_meanwhile_close(plan_meanwhile *m);

/* The rest of a micro-batch passes, through the whole model or through a warm sub-model; then the node before
 * this one leaves `fresh` in the caches (NULL: nothing). */
void plan_meanwhile_pass(const plan_meanwhile *m, bool warm, const void *fresh,
                         uint64_t fresh_bytes);

#endif
