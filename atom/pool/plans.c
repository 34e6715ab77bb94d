/*
 * Owns the way of plans between a trainer and its pool. One idea: a plan that is not there in a few
 * seconds is not worth waiting for. Refuses to look into plans: the trainer checks them.
 */
#include "atom/pool/plans.h"

#include "atom/base/mem.h"
#include "gossip/trust/seals.h"

#include <string.h>

static const double PATIENCE_SECONDS = 5;

static gsp_hash key_of(const char *device_class)
{
    gsp_seals seals = gsp_seals_real(NULL);
    gsp_hash key;
    seals.hash(NULL, device_class, strlen(device_class), &key);
    return key;
}

static atom_status ask(void *ctx, const char *device_class, train_plan_look look, void *look_ctx)
{
    const pool_plans *p = ctx;
    gsp_hash key = key_of(device_class);
    bool found;
    return gsp_pool_ask(p->life, &key, PATIENCE_SECONDS, p->hooks->watch, p->hooks->ctx, look,
                        look_ctx, &found);
}

static void offer(void *ctx, const char *device_class, const char *plan)
{
    pool_plans *p = ctx;
    pool_plans_free(p);
    p->device_class = atom_strdup(device_class);
    p->text = atom_strdup(plan);
}

train_plans pool_plans_hooks(pool_plans *plans)
{
    /* The creator of a pool is its first member: there is nobody to ask yet. */
    return (train_plans){.ctx = plans, .ask = plans->life ? ask : NULL, .offer = offer};
}

void pool_plans_offer(pool_plans *plans, gsp_pool *life)
{
    if (!plans->device_class || !plans->text)
        return;
    gsp_hash key = key_of(plans->device_class);
    if (gsp_pool_note(life, &key, plans->text) != ATOM_OK)
        pool_note(plans->hooks, "the plan is not offered to others: %s", atom_fail_message());
}

void pool_plans_free(pool_plans *plans)
{
    atom_free(plans->device_class);
    atom_free(plans->text);
    plans->device_class = plans->text = NULL;
}
