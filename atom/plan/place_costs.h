/*
 * What partition/place wants to know about a model and about one kind of host: the layers between
 * which stages may be cut, and what each costs there. A whole copy is priced by its own plan, so a
 * host whose device is too small for the model swaps in the prediction as it would in training.
 *
 *   layer       nodes from one cut to the next, where one tensor crosses; each has parameters that count. A
 *               parameter that two layers use (a tied embedding) counts in both, since stages on
 *               two hosts would each hold it
 *   seconds     a micro-batch's forward, its backward and the forward that backward repeats; the
 *               loss runs forward once
 *   whole copy  the step of the plan for this host, split into updates that nothing hides and the
 *               rest, which micro-batches share evenly
 *
 * Units: bytes, elements, seconds. Thread: one caller. Ownership: each _open has its _close.
 * Errors: ATOM_E_USAGE where the model has nothing to cut or to train; ATOM_E_RESOURCE for want of
 * memory to work in. That a host cannot hold the model is no error: it is kind.whole.
 * Source: docs/guide/plan.md#a-group-of-hosts.
 */
#ifndef ATOM_PLAN_PLACE_COSTS_H
#define ATOM_PLAN_PLACE_COSTS_H

#include "atom/plan/workbench.h"
#include "partition/place/place.h"

typedef struct plan_layers {
    uint32_t n;
    place_layer *layers; /* n */
    int32_t *first_node; /* n + 1 */
    bool tied;           /* some parameter counts in two layers */
} plan_layers;

ATOM_MUST atom_status plan_layers_open(const graph *g, plan_layers **out);
void plan_layers_close(plan_layers **layers);

/* What may be used of a host. */
typedef struct plan_host_limits {
    uint64_t device_memory; /* of each device; 0: all of it */
    uint64_t host_memory;   /* 0: what the profile's device says */
    /* Of host_memory, what a whole copy's seam with the pool takes beside training. */
    uint64_t host_beside;
    uint64_t least_beside;  /* the same with what can be on disk there; 0: it cannot */
    uint64_t disk;          /* for the optimizer's state; 0: none */
    uint32_t micro_batches; /* of one host's step; at least 1 */
    uint32_t devices;       /* that share them in a whole copy; 0: 1. A stage is computed by one */
} plan_host_limits;

typedef struct plan_host_costs {
    place_kind kind;       /* its layer_seconds are those below */
    double *layer_seconds; /* n */
} plan_host_costs;

/* name: of the kind, for messages. The profile must be of this graph. */
ATOM_MUST atom_status plan_host_price(const graph *g, const part_profile *profile,
                                      const plan_layers *layers, const plan_host_limits *limits,
                                      const char *name, plan_host_costs *out);
void plan_host_free(plan_host_costs *costs);

#endif
