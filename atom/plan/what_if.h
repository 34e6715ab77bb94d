/*
 * What one change would gain: the same model is planned again with another number of micro-batches,
 * narrower moments, the other optimizer, more memory or a faster disk, one change at a time.
 *
 * Units: bytes, seconds, tokens per second. Thread: one caller. Errors: ATOM_E_RESOURCE for want of
 * memory to search in; a change that does not fit is an outcome. Ownership: nothing to free.
 */
#ifndef ATOM_PLAN_WHAT_IF_H
#define ATOM_PLAN_WHAT_IF_H

#include "atom/plan/workbench.h"

/* What planning said. Where it does not fit, the figures are zero. */
typedef struct plan_outcome {
    char change[64]; /* "58 micro-batches instead of 29" */
    char option[64]; /* what to type for it; "" where no option does it */
    bool fits;
    bool disk; /* the optimizer's state is on disk */
    uint32_t micro_batches;
    double step_seconds;      /* predicted_step_seconds of the plan */
    double ahead_seconds;     /* and predicted_ahead_seconds; 0: unknown, or they cannot */
    double tokens_per_second; /* part_plan_tokens_per_second(): by the shorter of the two, as plans are
                                 chosen and micro-batches recommended */
    part_bound bound;
    uint64_t device_bytes, host_bytes; /* peaks */
} plan_outcome;

enum { PLAN_CHANGES_MAX = 8 };

typedef struct plan_what_if {
    uint32_t n;
    plan_outcome changes[PLAN_CHANGES_MAX];
} plan_what_if;

/* The outcome that a plan is; change and option are empty. */
plan_outcome plan_outcome_of(const part_plan *plan);

/*
 * Plans each change that could help. plan: what `asked` gave; NULL: it was refused. Every change
 * keeps the plan's number of micro-batches, except the change of that number. More memory or a faster
 * disk is never an outcome slower than the plan, which is still possible then. Narrower moments and
 * the other optimizer are priced on described devices only: measured rates are those of the optimizer and the
 * moments they were measured with.
 */
ATOM_MUST atom_status plan_what_if_price(const graph *g, const part_profile *profile,
                                         const plan_request *asked, const part_plan *plan,
                                         plan_what_if *out);

#endif
