/*
 * How a described group of hosts would train a model: each way to train together, priced by
 * partition/place from each host's own plan, and what one change would gain.
 *
 * atom trains in the first two ways; stages are a prediction, and never recommended. Each way takes
 * host memory of its own beside training (the pool's anchor), which the caller says.
 *
 * Units: bytes, seconds, tokens per second. Thread: one caller. Ownership: _open has its _close; it
 * borrows graph and file. Errors: ATOM_E_USAGE for what the file says, ATOM_E_RESOURCE where a host
 * cannot hold any part of the model, or for want of memory.
 * Source: docs/guide/plan.md#a-group-of-hosts.
 */
#ifndef ATOM_PLAN_POOL_PLAN_H
#define ATOM_PLAN_POOL_PLAN_H

#include "atom/plan/place_costs.h"
#include "atom/plan/pool_net.h"

enum { PLAN_POOL_CHANGES_MAX = 10, PLAN_POOL_WORDS = 120 };

typedef struct plan_pool_outcome {
    char change[PLAN_POOL_WORDS]; /* "one more host like box" */
    bool possible;
    double tokens_per_second;
} plan_pool_outcome;

/* Whole copies take other memory of a host in each of these. The first two are place_mode's. */
typedef enum plan_pool_copies {
    PLAN_POOL_GRADIENTS,
    PLAN_POOL_PARAMETERS,
    PLAN_POOL_DELAYED, /* gradients, with delayed updates */
    PLAN_POOL_COPIES
} plan_pool_copies;

typedef struct plan_pool_request {
    const graph *g;
    const plan_pool_file *file;
    /* host memory of a whole copy beside training; the least: as in place_costs.h */
    uint64_t beside[PLAN_POOL_COPIES], least_beside[PLAN_POOL_COPIES];
    uint64_t seed; /* of the search for stages */
} plan_pool_request;

typedef struct plan_pool {
    const graph *g;
    const plan_pool_file *file;
    plan_layers *layers;
    plan_pool_net *net;
    place_problem problem;                    /* with the kinds of averaged weights */
    place_host *hosts;                        /* n */
    uint32_t kind[PLACE_HOSTS_MAX];           /* by entry of the file */
    plan_host_costs *costs[PLAN_POOL_COPIES]; /* n_kinds each */
    place_kind *kinds[PLAN_POOL_COPIES];      /* the same, as place wants them */
    place_candidate way[PLACE_MODES];
    place_candidate delayed; /* way[PLACE_GRADIENTS] with delayed updates */
    int32_t recommended;     /* place_mode; -1: atom cannot train it here */
    uint32_t n_changes;
    int32_t changes_of; /* the way that the changes are priced for; -1: none is possible */
    plan_pool_outcome changes[PLAN_POOL_CHANGES_MAX];
} plan_pool;

/* Do all devices that the file names compute in bf16 natively? Where one is a profile, its dtype
 * counts. */
ATOM_MUST atom_status plan_pool_native_bf16(const plan_pool_file *file, bool *out);

ATOM_MUST atom_status plan_pool_open(const plan_pool_request *request, plan_pool **out);
void plan_pool_close(plan_pool **plan);

#endif
