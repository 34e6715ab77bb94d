/*
 * Owns where a run's profile and plan come from: a plan the user names, what this host measured
 * before, fresh work, or a plan of another host of the same kind. One idea: this host's own
 * measurement judges them all. Refuses, in a pool, plans that
 * keep the state on the device, or on disk where it has to be in memory.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "atom/plan/device.h"
#include "atom/plan/share.h"

#include <stdio.h>
#include <string.h>

enum { PLANS_MAX = 8 }; /* of others, that are looked at; each may have 64 KiB */

/* What is free now, less a margin and what the CPU device takes of it. */
static uint64_t free_host_bytes(const trainer *t)
{
    uint64_t available = plan_host_bytes();
    uint64_t margin = available / 16;
    uint64_t each = t->bench->card < 0 ? t->config->device_memory : 0;
    uint64_t device = each * (uint64_t)t->config->devices;
    return available > margin + device ? available - margin - device : 0;
}

/* May a seam keep on disk what it can? */
static bool may_spare(const trainer *t)
{
    return trainer_seam_host_bytes(t, true) > 0 &&
           t->config->optimizer_state != PLAN_STATE_IN_MEMORY;
}

/* Leaves to a plan what the seam does not take of `all` host memory. */
static atom_status leave_seam(trainer *t, uint64_t all, bool on_disk, plan_request *request)
{
    uint64_t taken = trainer_seam_host_bytes(t, on_disk);
    char takes[24], has[24];
    const char *help = trainer_is_shared(t) ? "a pool with codec: int8 needs less"
                       : on_disk || may_spare(t)
                           ? "a pool with more fragments needs less"
                           : "--optimizer-state auto keeps most of it on disk";
    if (taken && taken >= all)
        return atom_fail(
            ATOM_E_RESOURCE,
            "host memory: in addition to training, this host needs %s for the pool, but there "
            "are only %s; give it more memory, or use a smaller model; %s",
            atom_size_text(taken, takes), atom_size_text(all, has), help);
    t->seam_on_disk = on_disk;
    request->host_memory = all - taken;
    return ATOM_OK;
}

/* No plan fits what a seam leaves: what it takes comes on top of what the message says. */
static atom_status search(trainer *t, const plan_request *request)
{
    uint64_t taken = trainer_seam_host_bytes(t, t->seam_on_disk);
    char takes[24], why[768];
    atom_status st = plan_search(t->bench->g, t->profile, t->bench->table, request, &t->plan, NULL);
    if (st != ATOM_E_RESOURCE || !taken)
        return st;
    snprintf(why, sizeof why, "%s", atom_fail_message());
    return atom_fail(st, "%s; in addition this host needs %s for the pool", why,
                     atom_size_text(taken, takes));
}

/* The directory itself, or the nearest one above it that is there: on the disk where it would be made. */
static void climb(char *path)
{
    while (!atom_path_exists(path)) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            strcpy(path, ".");
            return; /* as near as it comes, also where nobody may look at it */
        }
        if (slash == path && !slash[1])
            return;
        slash[slash == path] = 0;
    }
}

/* Of a dry run nothing is left, no directory either. */
static atom_status measure_disk(trainer *t, const char *dir)
{
    const train_config *c = t->config;
    char *path = atom_strdup(*dir ? dir : ".");
    atom_status st;
    if (!path)
        return atom_fail_memory("a path", 256);
    if (c->dry_run)
        climb(path);
    ATOM_TRY_CLEAN(atom_dir_make(path));
    st = plan_disk_measure(path, (store_kind)c->store, t->bench->g, &t->profile->device);
cleanup:
    atom_free(path);
    return st;
}

/* With the optimizer's state on disk, whose rates are measured first. */
static atom_status search_on_disk(trainer *t, const char *dir, plan_request *request)
{
    const train_config *c = t->config;
    ATOM_TRY(measure_disk(t, dir));
    request->disk = 1;
    request->host_hold = plan_host_hold(c->host_memory ? request->host_memory : 0,
                                        request->host_memory, c->optimizer_state);
    if (trainer_is_shared(t))
        request->host_hold = 0; /* no block is updated here */
    return search(t, request);
}

/* In memory where that is possible; else what a seam holds goes to disk, which costs little, because a
 * step needs little of it; else the optimizer's state, too. */
static atom_status search_plan(trainer *t, plan_request *request)
{
    const train_config *c = t->config;
    const char *dir = trainer_stays_in_memory(t) ? NULL : trainer_store_dir(t);
    bool disk = c->optimizer_state == PLAN_STATE_ON_DISK, spare = may_spare(t);
    uint64_t all = c->host_memory ? c->host_memory : free_host_bytes(t);
    atom_status st = ATOM_E_RESOURCE;
    for (int on_disk = 0; on_disk <= (int)spare && !disk && st == ATOM_E_RESOURCE; on_disk++) {
        st = leave_seam(t, all, on_disk, request);
        st = st == ATOM_OK ? search(t, request) : st;
    }
    if (st != ATOM_E_RESOURCE || c->optimizer_state == PLAN_STATE_IN_MEMORY || !dir)
        return st;
    ATOM_TRY(leave_seam(t, all, spare, request));
    return search_on_disk(t, dir, request);
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
                         "%s is a plan for %u micro-batches per step, but "
                         "gradient_accumulation_steps is %u; make a new plan, or use %u",
                         c->plan, t->plan->micro_batches, C, t->plan->micro_batches);
    if (t->plan->devices != (uint32_t)c->devices)
        return atom_fail(ATOM_E_USAGE,
                         "%s is a plan for %u device%s, but devices is %lld; make a new plan, or "
                         "use %u",
                         c->plan, t->plan->devices, t->plan->devices == 1 ? "" : "s",
                         (long long)c->devices, t->plan->devices);
    if (t->plan->clip != clips(t))
        return atom_fail(ATOM_E_USAGE,
                         "%s was made %s clipping; make a new plan, or change max_grad_norm",
                         c->plan, t->plan->clip ? "with" : "without");
    if (t->hooks.seam && t->plan->update_on_device)
        return atom_fail(
            ATOM_E_USAGE,
            "%s keeps the optimizer's state on the device, but in a pool it stays on the host; "
            "make a new plan",
            c->plan);
    if (trainer_stays_in_memory(t) && t->plan->disk)
        return atom_fail(ATOM_E_USAGE,
                         "%s keeps the optimizer's state on disk, but in a pool with dense_steps "
                         "it stays in host memory; make a new plan",
                         c->plan);
    char needs[24], has[24];
    if (c->device_memory && t->plan->device_peak_bytes > c->device_memory)
        return atom_fail(ATOM_E_USAGE,
                         "%s needs %s (%llu bytes) of device memory, but device_memory allows only "
                         "%s; make a new plan with this --device-memory, or raise it",
                         c->plan, atom_size_text(t->plan->device_peak_bytes, needs),
                         (unsigned long long)t->plan->device_peak_bytes,
                         atom_size_text(c->device_memory, has));
    if (c->device_memory)
        t->plan->device_budget_bytes = c->device_memory;
    t->seam_on_disk = t->plan->disk && may_spare(t);
    t->plan_origin = "file";
    return ATOM_OK;
}

/* ---- plans of others ---- */

/* What others have for hosts like this one, as it came. */
typedef struct found_plans {
    uint32_t n;
    struct {
        char *who, *text; /* the text is no string */
        size_t bytes;
    } plan[PLANS_MAX];
} found_plans;

/* Theirs in place of this host's own, where a step is quicker with it by what was measured here. */
static bool compare(trainer *t, const char *who, part_plan *theirs)
{
    double with = part_plan_seconds(theirs), own = part_plan_seconds(t->plan);
    if (with < own) {
        trainer_note(t,
                     "plan: from the pool (%s, %u sub-models); measured here, a step takes %.3g "
                     "s with it, %.3g s with this host's own plan",
                     who, theirs->n_sub_models, with, own);
        part_plan_close(&t->plan);
        t->plan = theirs;
        t->plan_origin = "pool";
        return true;
    }
    bool alike = with == own;
    if (alike)
        trainer_note(t,
                     "plan: this host's own; the one from %s is just as fast here: %.3g s a step",
                     who, own);
    else
        trainer_note(t,
                     "plan: the one from %s is not used: measured here, a step takes %.3g s with "
                     "it, %.3g s with this host's own plan",
                     who, with, own);
    part_plan_close(&theirs);
    return alike;
}

/* Keeps what there is; this host's own of last time is enough, nobody is waited for then. */
static bool look(void *ctx, const char *who, const char *text, size_t bytes)
{
    found_plans *found = ctx;
    if (found->n == PLANS_MAX)
        return true;
    char *name = atom_strdup(who[0] ? who : "last time"), *copy = atom_strndup(text, bytes);
    if (!name || !copy) { /* nobody needs it */
        atom_free(name);
        atom_free(copy);
        return true;
    }
    found->plan[found->n].who = name;
    found->plan[found->n].text = copy;
    found->plan[found->n++].bytes = bytes;
    return !who[0];
}

static void free_found(found_plans *found)
{
    for (uint32_t i = 0; i < found->n; i++) {
        atom_free(found->plan[i].who);
        atom_free(found->plan[i].text);
    }
}

/* Once this host has a profile and a plan of its own: is one of the others' quicker? */
static void judge(trainer *t, const plan_request *request, const found_plans *found)
{
    bool done = false;
    if (!found->n && t->hooks.plans->ask)
        trainer_note(t, "plan: this host's own; no member of the pool has one for this model on "
                        "such a device");
    for (uint32_t i = 0; i < found->n && !done; i++) {
        part_plan *theirs = NULL;
        if (plan_accept(t->bench, request, t->profile, found->plan[i].text, found->plan[i].bytes,
                        &theirs) == ATOM_OK)
            done = compare(t, found->plan[i].who, theirs);
        else
            trainer_note(t, "plan: the one from %s is not used: %s", found->plan[i].who,
                         atom_fail_message());
    }
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

/* A file that the user names may come from anywhere: the result is the same, the times are not. */
static void note_device(const trainer *t, const char *what, const char *device)
{
    char name[64];
    plan_device_name(t->bench, name, sizeof name);
    if (device[0] && strcmp(device, name) != 0)
        trainer_note(
            t,
            "note: the %s is for '%s', but this is '%s': the run may be slower than it could "
            "be, and what is predicted for it may be wrong",
            what, device, name);
}

/* What Muon's products of steps that are made outside take of the card; those of the trainer's own are
 * in its plan. 0: the host makes them. */
static uint64_t products_bytes(const trainer *t)
{
    bool card = t->bench->card >= 0 && t->config->updates == PLAN_UPDATES_FREE;
    return card && trainer_is_shared(t) ? train_products_bytes(t->bench->g) : 0;
}

/* Leaves them room. A card that is small for the model has better use for it. */
static atom_status search_beside_products(trainer *t, plan_request *request)
{
    enum { PART = 4 };
    const uint64_t asked = request->device_memory, taken = products_bytes(t);
    const uint64_t all = asked ? asked : t->profile->device.device_bytes;
    char text[24];
    atom_status st = ATOM_E_RESOURCE;
    if (taken > 0 && taken <= all / PART) {
        request->device_memory = all - taken;
        st = search_plan(t, request);
    }
    t->products_bytes = st == ATOM_OK ? taken : 0;
    if (st == ATOM_E_RESOURCE) {
        request->device_memory = asked;
        st = search_plan(t, request);
    }
    if (st == ATOM_OK && taken)
        trainer_note(t, "muon: the %s makes the matrix products of the pool's steps%s %s%s",
                     t->products_bytes ? "device" : "host",
                     t->products_bytes ? ", in" : ", since the device would need",
                     atom_size_text(taken, text), t->products_bytes ? "" : " for them");
    return st;
}

static void note_profile(const trainer *t, bool cached)
{
    if (cached)
        trainer_note(t, "profile: from the cache");
    if (t->bench->news[0])
        trainer_note(t, "%s", t->bench->news);
}

/* Finds the profile too. Others are asked before this host measures, which may take a minute in
 * which it answers nobody; what they have is judged afterwards. */
static atom_status find_plan(trainer *t, plan_request *request)
{
    const train_config *c = t->config;
    const train_plans *plans = t->hooks.plans;
    found_plans found = {0};
    char *device_class = NULL;
    bool cached = false;
    atom_status st;
    if (plans)
        ATOM_TRY_CLEAN(plan_class(t->bench, request, &device_class));
    if (plans && plans->ask)
        ATOM_TRY_CLEAN(plans->ask(plans->ctx, device_class, look, &found));
    ATOM_TRY_CLEAN(plan_profile_get(t->bench, c->profile, t->hooks.progress, t->hooks.ctx,
                                    &t->profile, &cached));
    note_profile(t, cached);
    if (c->profile)
        note_device(t, "profile", t->profile->device.name);
    request->device_memory = plan_device_limit(t->bench, request->devices, request->device_memory,
                                               t->profile->device.device_bytes, "training");
    ATOM_TRY_CLEAN(search_beside_products(t, request));
    t->plan_origin = c->profile ? "file" : cached ? "cache" : "measured";
    if (plans) {
        judge(t, request, &found);
        offer(t, device_class); /* to others, and here the next time */
    }
cleanup:
    free_found(&found);
    atom_free(device_class);
    return st;
}

atom_status trainer_open_plan(trainer *t)
{
    const train_config *c = t->config;
    bool cached = false;
    plan_request request = {
        .devices = (uint32_t)c->devices,
        .device_memory = c->device_memory,
        .host_memory = c->host_memory,
        .micro_batches = (uint32_t)c->gradient_accumulation_steps,
        .clip = clips(t),
        .ahead = c->update_ahead != TRAIN_AHEAD_NEVER && !t->hooks.seam,
        .update_on_device = t->bench->card >= 0 && c->updates == PLAN_UPDATES_FREE &&
                            c->optimizer != GRAPH_MUON &&
                            !t->hooks.seam, /* a pool needs the masters here */
        .ortho_on_device = t->bench->card >= 0 && c->updates == PLAN_UPDATES_FREE &&
                           c->update_ahead != TRAIN_AHEAD_ALWAYS && /* which that rules out */
                           /* shared steps are made elsewhere, but for those behind dense ones */
                           (!trainer_is_shared(t) || trainer_stays_in_memory(t)),
        .recompute = c->recompute};
    if (!c->plan)
        return find_plan(t, &request);
    ATOM_TRY(plan_profile_get(t->bench, c->profile, t->hooks.progress, t->hooks.ctx, &t->profile,
                              &cached));
    note_profile(t, cached);
    ATOM_TRY(read_plan(t));
    if (products_bytes(t))
        trainer_note(t,
                     "muon: the host makes the matrix products of the pool's steps, since %s "
                     "leaves them no room on the device",
                     c->plan);
    note_device(t, "plan", t->plan->device);
    return ATOM_OK;
}
