/*
 * Owns where a run's profile and plan come from: a plan the user names, what this host measured
 * before, a plan of another host of the same kind, or fresh work. One idea: the cheapest source
 * that can be proven right comes first. Refuses, in a pool, plans that
 * keep the state anywhere but in memory.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/plan/share.h"
#include "kernels/cuda_load.h"

/* What is free now, less a margin and what the CPU device takes of it. */
static uint64_t free_host_bytes(const trainer *t)
{
    uint64_t available = atom_host_available_bytes() + dev_cuda_kept_bytes();
    uint64_t margin = available / 16;
    uint64_t device = t->bench->card < 0 ? t->config->device_memory : 0;
    return available > margin + device ? available - margin - device : 0;
}

/* The host memory that a plan may take. */
static atom_status find_host_memory(const trainer *t, plan_request *request)
{
    uint64_t taken = trainer_seam_host_bytes(t);
    if (!request->host_memory)
        request->host_memory = free_host_bytes(t);
    if (taken >= request->host_memory && taken)
        return atom_fail(
            ATOM_E_RESOURCE,
            "host memory: the pool's anchor and momentum alone take %llu bytes, only %llu "
            "are free",
            (unsigned long long)taken, (unsigned long long)request->host_memory);
    request->host_memory -= taken;
    return ATOM_OK;
}

/* In memory where that is possible; else with the optimizer's state on disk, whose rates are then
 * measured first. */
static atom_status search_plan(trainer *t, plan_request *request)
{
    const train_config *c = t->config;
    const char *dir = trainer_store_dir(t);
    atom_status st = ATOM_E_RESOURCE;
    if (t->hooks.seam)
        dir = NULL; /* in a pool the state stays in memory */
    if (c->optimizer_state != PLAN_STATE_ON_DISK)
        st = plan_search(t->bench->g, t->profile, t->bench->table, request, &t->plan, NULL);
    if (st != ATOM_E_RESOURCE || c->optimizer_state == PLAN_STATE_IN_MEMORY || !dir)
        return st;
    ATOM_TRY(atom_dir_make(dir));
    ATOM_TRY(plan_disk_measure(dir, (store_kind)c->store, t->bench->g, &t->profile->device));
    request->disk = 1;
    /* a user who sends the state to disk wants the memory for something else */
    request->host_hold = c->host_memory                             ? c->host_memory
                         : c->optimizer_state == PLAN_STATE_ON_DISK ? 0
                                                                    : request->host_memory / 4 * 3;
    return plan_search(t->bench->g, t->profile, t->bench->table, request, &t->plan, NULL);
}

/* Gradients that are brought elsewhere stay where they are until the whole backward is done, as
 * those that wait for their norm. */
static bool clips(const trainer *t)
{
    return t->config->max_grad_norm > 0 || trainer_is_shared(t);
}

static atom_status read_plan(trainer *t)
{
    const train_config *c = t->config;
    uint32_t C = (uint32_t)c->gradient_accumulation_steps;
    ATOM_TRY(part_plan_read(c->plan, &t->plan));
    ATOM_TRY(part_plan_check(t->plan, t->bench->g));
    if (t->plan->micro_batches != C)
        return atom_fail(ATOM_E_USAGE,
                         "%s is a plan for %u micro-batches per step, gradient_accumulation_steps "
                         "is %u; plan again, or use %u",
                         c->plan, t->plan->micro_batches, C, t->plan->micro_batches);
    if (t->plan->clip != clips(t))
        return atom_fail(ATOM_E_USAGE,
                         "%s was made %s clipping; plan again, or change max_grad_norm", c->plan,
                         t->plan->clip ? "with" : "without");
    if (t->hooks.seam && (t->plan->disk || t->plan->update_on_device))
        return atom_fail(ATOM_E_USAGE,
                         "%s keeps the optimizer's state on disk or on the device; in a pool "
                         "it stays in host memory: plan again",
                         c->plan);
    if (c->device_memory)
        t->plan->device_budget_bytes = c->device_memory;
    t->plan_origin = "file";
    return ATOM_OK;
}

/* ---- plans of others ---- */

typedef struct seeking {
    trainer *t;
    const plan_request *request;
} seeking;

static bool look(void *ctx, const char *who, const char *text, size_t bytes)
{
    seeking *s = ctx;
    trainer *t = s->t;
    if (plan_accept(t->bench, s->request, text, bytes, &t->profile, &t->plan) != ATOM_OK) {
        trainer_note(t, "plan: that of %s is not used: %s", who[0] ? who : "last time",
                     atom_fail_message());
        return false;
    }
    t->plan_origin = "pool";
    trainer_note(t,
                 "plan: from the pool (%s, %u sub-models), for the same model on the same kind of "
                 "device; it was checked and takes %llu MiB of device memory here: nothing was "
                 "profiled",
                 who[0] ? who : "as last time", t->plan->n_sub_models,
                 (unsigned long long)((t->plan->device_peak_bytes + (1 << 20) - 1) >> 20));
    return true;
}

static atom_status ask_pool(trainer *t, const plan_request *request, const char *device_class)
{
    const train_plans *plans = t->hooks.plans;
    seeking s = {t, request};
    if (!plans->ask)
        return ATOM_OK;
    ATOM_TRY(plans->ask(plans->ctx, device_class, look, &s));
    if (!t->plan)
        trainer_note(t, "plan: nobody in the pool has one for this model on a device like this; "
                        "profiling");
    return ATOM_OK;
}

static void offer(trainer *t, const char *device_class)
{
    char *text = NULL;
    if (!t->hooks.plans->offer)
        return;
    if (part_plan_json(t->plan, &text) == ATOM_OK)
        t->hooks.plans->offer(t->hooks.plans->ctx, device_class, text);
    atom_free(text);
}

/* Finds the profile too; from others only where none of this host's own is there. */
static atom_status find_plan(trainer *t, plan_request *request)
{
    const train_config *c = t->config;
    const train_plans *plans = t->hooks.plans;
    char *device_class = NULL;
    bool cached = !c->profile && plan_profile_cached(t->bench, &t->profile);
    atom_status st;
    ATOM_TRY_CLEAN(find_host_memory(t, request));
    if (plans)
        ATOM_TRY_CLEAN(plan_class(t->bench, request, &device_class));
    if (plans && !cached && !c->profile)
        ATOM_TRY_CLEAN(ask_pool(t, request, device_class));
    if (t->plan) {
        offer(t, device_class); /* passed on, and here the next time */
        goto cleanup;
    }
    if (cached)
        trainer_note(t, "profile: from the cache");
    else
        ATOM_TRY_CLEAN(plan_profile_get(t->bench, c->profile, t->hooks.progress, t->hooks.ctx,
                                        &t->profile, NULL));
    ATOM_TRY_CLEAN(search_plan(t, request));
    t->plan_origin = c->profile ? "file" : cached ? "cache" : "measured";
    if (plans)
        offer(t, device_class);
cleanup:
    atom_free(device_class);
    return st;
}

atom_status trainer_open_plan(trainer *t)
{
    const train_config *c = t->config;
    bool cached = false;
    plan_request request = {.device_memory = c->device_memory,
                            .host_memory = c->host_memory,
                            .micro_batches = (uint32_t)c->gradient_accumulation_steps,
                            .clip = clips(t),
                            .ahead = c->update_ahead != TRAIN_AHEAD_NEVER,
                            .update_on_device = t->bench->card >= 0 &&
                                                c->updates == PLAN_UPDATES_FREE &&
                                                !t->hooks.seam, /* a pool needs the masters here */
                            .recompute = c->recompute};
    if (!c->plan)
        return find_plan(t, &request);
    ATOM_TRY(plan_profile_get(t->bench, c->profile, t->hooks.progress, t->hooks.ctx, &t->profile,
                              &cached));
    if (cached)
        trainer_note(t, "profile: from the cache");
    return read_plan(t);
}
