/*
 * Plans on their way between a trainer and its pool: what the trainer calls a device class is the
 * key of a note (gossip/pool/pool.h).
 *
 * Ownership: the caller's object, zero at first; pool_plans_free frees what it holds. Thread: the
 * run's.
 */
#ifndef ATOM_POOL_PLANS_H
#define ATOM_POOL_PLANS_H

#include "atom/pool/hooks.h"

typedef struct pool_plans {
    const pool_hooks *hooks;   /* borrowed */
    gsp_pool *life;            /* borrowed; NULL: there is nobody to ask yet */
    char *device_class, *text; /* that was made here, to be offered; or NULL */
} pool_plans;

/* What trainer_open asks; valid as long as *plans. */
train_plans pool_plans_hooks(pool_plans *plans);
/* Leaves in the pool what was made here. */
void pool_plans_offer(pool_plans *plans, gsp_pool *life);
void pool_plans_free(pool_plans *plans);

#endif
