/*
 * Owns the way of plans between a trainer and its pool: what the trainer calls a device class is
 * the key of a note (gossip/pool/pool.h). One idea: a plan that is not there in a few seconds is
 * not worth waiting for. Refuses to look into plans: the trainer checks them.
 */
#include "tools/pool/cmd_pool_train.h"

#include "gossip/trust/seals.h"

#include <string.h>

static const double PATIENCE_SECONDS = 5;

static void key_of(const char *device_class, gsp_hash *key)
{
    gsp_seals seals = gsp_seals_real(NULL);
    seals.hash(NULL, device_class, strlen(device_class), key);
}

static atom_status ask(void *ctx, const char *device_class, train_plan_look look, void *look_ctx)
{
    pool_run *r = ctx;
    gsp_hash key;
    bool found;
    key_of(device_class, &key);
    atom_status st =
        gsp_pool_ask(r->life, &key, PATIENCE_SECONDS, pool_run_watch, r, look, look_ctx, &found);
    cli_progress_end();
    return st;
}

static void offer(void *ctx, const char *device_class, const char *plan)
{
    pool_run *r = ctx;
    atom_free(r->plan_class);
    atom_free(r->plan_text);
    r->plan_class = atom_strdup(device_class);
    r->plan_text = atom_strdup(plan);
}

void pool_run_plans(pool_run *r)
{
    /* Who makes a pool is its first: there is nobody to ask yet. */
    r->plans = (train_plans){.ctx = r, .ask = r->life ? ask : NULL, .offer = offer};
}

void pool_run_offer(pool_run *r)
{
    gsp_hash key;
    if (!r->plan_class || !r->plan_text)
        return;
    key_of(r->plan_class, &key);
    if (gsp_pool_note(r->life, &key, r->plan_text) != ATOM_OK)
        pool_run_note(r, "the plan is not offered to others: %s", atom_fail_message());
}
