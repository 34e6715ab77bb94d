/*
 * Owns which plans of other hosts this one may use. One idea: nothing that a plan says of memory or
 * time is believed; it is laid out and simulated here, by the very code that would run it, with what
 * this host measured. Refuses plans that are for something else or take too much.
 */
#include "atom/plan/share.h"

#include "atom/plan/device.h"

#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "codegen/lower.h"
#include "kernels/bench.h"
#include "partition/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASS_VERSION = 1, LINK_ROUNDS = 3 };
static const uint64_t LINK_BYTES = 64u << 20;
static const double LINK_UNIT = 12.3e9;

/* "throttled N", "class N", "none", "unknown". */
static void link_class(const plan_workbench *bench, char *out, size_t bytes)
{
    dev *d = NULL;
    dev_copy_bench copies = {0};
    if (bench->config.link_bandwidth) {
        snprintf(out, bytes, "throttled %llu", (unsigned long long)bench->config.link_bandwidth);
        return;
    }
    snprintf(out, bytes, bench->card < 0 ? "none" : "unknown");
    if (bench->card < 0 || plan_device_open(bench, 0, 0, &d) != ATOM_OK)
        return;
    if (dev_bench_copy(d, bench->threads, LINK_BYTES, LINK_ROUNDS, &copies) == ATOM_OK &&
        copies.h2d.bytes_per_second > 0)
        snprintf(out, bytes, "class %.0f", round(log2(copies.h2d.bytes_per_second / LINK_UNIT)));
    dev_close(&d);
}

static uint32_t devices_of(const plan_request *request)
{
    return request->devices > 1 ? request->devices : 1;
}

atom_status plan_class(const plan_workbench *bench, const plan_request *request, char **text)
{
    char model[128], link[64], several[32] = "";
    plan_device_model(bench, model, sizeof model);
    link_class(bench, link, sizeof link);
    if (devices_of(request) > 1)
        snprintf(several, sizeof several, "devices %u\n", devices_of(request));
    *text = atom_format("atom-plan-class %d\n"
                        "graph %016llx %s\n"
                        "micro-batches %u; clip %d; recompute %d\n"
                        "device %s\n"
                        "isa %s\n"
                        "threads %u\n"
                        "device memory %llu\n"
                        "link %s\n"
                        "%s",
                        CLASS_VERSION, (unsigned long long)graph_hash(bench->g),
                        atom_dtype_name(bench->g->dtype), request->micro_batches, request->clip,
                        request->recompute, model, bench->table->isa,
                        bench->card < 0 ? atom_threads_count(bench->threads) : 0,
                        (unsigned long long)request->device_memory, link, several);
    return *text ? ATOM_OK : atom_fail_memory("a device class", 512);
}

/* What must be as this run wants it; the rest of a plan is its maker's choice. */
static atom_status check_request(const plan_workbench *bench, const plan_request *request,
                                 const part_plan *plan)
{
    bool in_place = bench->card < 0 && request->device_memory == 0;
    if (plan->micro_batches != request->micro_batches)
        return atom_fail(ATOM_E_USAGE, "it is for %u micro-batches per step, not %u",
                         plan->micro_batches, request->micro_batches);
    if (plan->devices != devices_of(request))
        return atom_fail(ATOM_E_USAGE, "it is for %u device%s, not for %u", plan->devices,
                         plan->devices == 1 ? "" : "s", devices_of(request));
    if (plan->clip != request->clip)
        return atom_fail(ATOM_E_USAGE, "it was made %s clipping", plan->clip ? "with" : "without");
    if (plan->disk || plan->update_on_device)
        return atom_fail(ATOM_E_USAGE, "it keeps the optimizer's state on disk or on the device, "
                                       "and such a plan is for one machine only");
    if (plan->in_place != in_place)
        return atom_fail(ATOM_E_USAGE, "it %s weights in place, but this device %s",
                         plan->in_place ? "uses" : "does not use", in_place ? "does" : "does not");
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        part_keep keep = plan->sub_models[k].keep;
        bool last = k + 1 == plan->n_sub_models;
        if (!last &&
            ((request->recompute == 1 && keep != PART_RECOMPUTE) ||
             (request->recompute == 0 && (keep == PART_RECOMPUTE || keep == PART_KEEP_SOME))))
            return atom_fail(ATOM_E_USAGE,
                             "its sub-model %u keeps or recomputes activations although "
                             "`recompute` says otherwise",
                             k);
    }
    return ATOM_OK;
}

static atom_status check_room(const char *which, uint64_t need, uint64_t room)
{
    char a[24], b[24];
    if (!room || need <= room)
        return ATOM_OK;
    return atom_fail(ATOM_E_RESOURCE, "it needs %s of %s memory, but this host allows %s",
                     atom_size_text(need, a), which, atom_size_text(room, b));
}

/* Simulates the plan with this host's times, and writes those over what it says. */
static atom_status time_it(const plan_workbench *bench, const plan_request *request,
                           const part_profile *profile, part_plan *plan)
{
    gen_judge judge = {.g = bench->g, .profile = profile, .table = bench->table};
    part_verdict v = {0};
    ATOM_TRY(gen_judge_plan(&judge, plan, &v));
    plan->simulated = v.step_seconds > 0;
    if (!request->ahead)
        plan->predicted_ahead_seconds = 0;
    if (!plan->simulated)
        return ATOM_OK; /* too long to run: what the plan says stays */
    plan->predicted_step_seconds = v.step_seconds;
    plan->predicted_ahead_seconds = request->ahead ? v.ahead_seconds : 0;
    plan->predicted_compute_seconds = v.compute_seconds;
    plan->bound = v.bound;
    return ATOM_OK;
}

/* Lays the plan out and writes what it takes here over what it says. */
static atom_status weigh(const plan_workbench *bench, const plan_request *request,
                         const part_profile *profile, part_plan *plan)
{
    gen_lowered *low = NULL;
    uint64_t device = request->device_memory ? request->device_memory : plan_device_bytes(bench);
    atom_status st;
    ATOM_TRY_CLEAN(gen_lower(bench->g, plan, profile, bench->table, &low));
    plan->device_peak_bytes = low->device_bytes;
    plan->host_peak_bytes = low->host_bytes + part_window_bytes(bench->g);
    plan->device_budget_bytes = request->device_memory;
    plan->host_budget_bytes = request->host_memory;
    ATOM_TRY_CLEAN(check_room("device", plan->device_peak_bytes, device));
    ATOM_TRY_CLEAN(check_room("host", plan->host_peak_bytes, request->host_memory));
    snprintf(plan->device, sizeof plan->device, "%s", profile->device.name);
cleanup:
    gen_lowered_close(&low);
    return st;
}

atom_status plan_accept(const plan_workbench *bench, const plan_request *request,
                        const part_profile *profile, const char *text, size_t bytes,
                        part_plan **plan)
{
    part_plan *theirs = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(part_plan_parse("the plan", text, bytes, &theirs));
    ATOM_TRY_CLEAN(part_plan_check(theirs, bench->g));
    ATOM_TRY_CLEAN(check_request(bench, request, theirs));
    ATOM_TRY_CLEAN(weigh(bench, request, profile, theirs));
    ATOM_TRY_CLEAN(time_it(bench, request, profile, theirs));
    *plan = theirs;
    return ATOM_OK;
cleanup:
    part_plan_close(&theirs);
    return st;
}
