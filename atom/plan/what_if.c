/*
 * Owns the question what one change would buy. One idea: a change is priced by planning again with
 * it and nothing else changed, so its figures mean what a plan's figures mean. Refuses to estimate:
 * what cannot be planned is not listed.
 */
#include "atom/plan/what_if.h"

#include <stdio.h>
#include <string.h>

typedef struct asking {
    const graph *g;
    const part_profile *profile;
    const plan_request *asked;
    plan_request same; /* what was asked, with the plan's number of micro-batches */
    const part_plan *plan;
    plan_what_if *out;
} asking;

plan_outcome plan_outcome_of(const part_plan *plan)
{
    return (plan_outcome){.fits = true,
                          .disk = plan->disk,
                          .micro_batches = plan->micro_batches,
                          .step_seconds = plan->predicted_step_seconds,
                          .ahead_seconds = plan->predicted_ahead_seconds,
                          .tokens_per_second = part_plan_tokens_per_second(plan),
                          .bound = plan->bound,
                          .device_bytes = plan->device_peak_bytes,
                          .host_bytes = plan->host_peak_bytes};
}

ATOM_MUST static atom_status try_one(const graph *g, const part_profile *profile,
                                     const plan_request *request, plan_outcome *outcome)
{
    part_plan *plan = NULL;
    atom_status st = plan_search(g, profile, NULL, request, &plan, NULL);
    *outcome = (plan_outcome){0};
    if (st == ATOM_OK)
        *outcome = plan_outcome_of(plan);
    part_plan_close(&plan);
    return st == ATOM_E_RESOURCE ? ATOM_OK : st;
}

static void add(asking *a, plan_outcome outcome, const char *change, const char *option)
{
    snprintf(outcome.change, sizeof outcome.change, "%s", change);
    snprintf(outcome.option, sizeof outcome.option, "%s", option);
    a->out->changes[a->out->n++] = outcome;
}

/* Of a change that takes nothing away: the search may find a slower plan with more memory, but the one
 * there is still fits. */
static void add_more(asking *a, plan_outcome outcome, const char *change, const char *option)
{
    plan_outcome now = {0};
    if (a->plan)
        now = plan_outcome_of(a->plan);
    bool slower = outcome.tokens_per_second < now.tokens_per_second;
    add(a, slower ? now : outcome, change, option);
}

/* The recommended number; where that is what the plan has, twice as many. */
ATOM_MUST static atom_status micro_batches(asking *a)
{
    const part_plan *plan = a->plan;
    plan_request request = a->same;
    plan_outcome outcome;
    char change[64], option[64];
    if (!plan || plan->most_tokens_per_second <= 0 || plan->micro_batches > UINT32_MAX / 2)
        return ATOM_OK;
    request.micro_batches = plan->recommended_micro_batches;
    if (request.micro_batches == plan->micro_batches || !request.micro_batches)
        request.micro_batches = 2 * plan->micro_batches;
    ATOM_TRY(try_one(a->g, a->profile, &request, &outcome));
    snprintf(change, sizeof change, "%u micro-batches instead of %u", request.micro_batches,
             plan->micro_batches);
    snprintf(option, sizeof option, "--gradient-accumulation-steps %u", request.micro_batches);
    add(a, outcome, change, option);
    return ATOM_OK;
}

/* The same model, its optimizer or what that keeps changed, on the same device, which is a described one. */
ATOM_MUST static atom_status otherwise(asking *a, atom_dtype moments, graph_optimizer optimizer,
                                       const char *change, const char *option)
{
    graph *g = NULL;
    part_profile *profile = NULL;
    part_device device = a->profile->device;
    plan_outcome outcome;
    atom_status st = ATOM_OK;
    if (moments != a->g->moments)
        device.adamw_params_per_second = 0; /* that of others follows from the host's memory */
    ATOM_TRY_CLEAN(part_profile_graph(a->profile, &g));
    graph_set_moments(g, moments);
    graph_set_optimizer(g, optimizer);
    if (optimizer == GRAPH_MUON && graph_matrix_elements(g) == 0)
        goto cleanup; /* AdamW would train all of it */
    ATOM_TRY_CLEAN(part_profile_model(g, &device, &profile));
    ATOM_TRY_CLEAN(try_one(g, profile, &a->same, &outcome));
    add(a, outcome, change, option);
cleanup:
    part_profile_close(&profile);
    graph_close(&g);
    return st;
}

ATOM_MUST static atom_status narrow_moments(asking *a)
{
    if (a->g->moments != ATOM_F32 || !a->profile->device.modelled)
        return ATOM_OK;
    return otherwise(a, ATOM_BF16, a->g->optimizer, "bf16 moments", "--moments-dtype bf16");
}

ATOM_MUST static atom_status other_optimizer(asking *a)
{
    const bool muon = a->g->optimizer == GRAPH_MUON;
    if (!a->profile->device.modelled)
        return ATOM_OK;
    return otherwise(a, a->g->moments, muon ? GRAPH_ADAMW : GRAPH_MUON,
                     muon ? "adamw instead of muon" : "muon instead of adamw",
                     muon ? "--optimizer adamw" : "--optimizer muon");
}

/* A size in the unit that it is a whole number of: what a person would type. */
static void whole_size(uint64_t bytes, const char *space, char *out, size_t room)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"GiB", 1 << 30}, {"GB", 1000000000}, {"MiB", 1 << 20},
                 {"MB", 1000000},  {"KiB", 1 << 10},   {"", 1}};
    size_t i = 0;
    while (bytes % units[i].bytes)
        i++;
    snprintf(out, room, "%llu%s%s", (unsigned long long)(bytes / units[i].bytes),
             units[i].name[0] ? space : "", units[i].name);
}

/* Twice the host's memory; more, up to eight times, where only that fits, or saves the disk. */
ATOM_MUST static atom_status more_host_memory(asking *a)
{
    const bool lacks = !a->plan || a->plan->disk;
    const uint64_t has =
        a->asked->host_memory ? a->asked->host_memory : a->profile->device.host_bytes;
    plan_request request = a->same;
    plan_outcome outcome;
    char size[32], change[64], option[64];
    uint64_t times = 2;
    if (!has || has > (uint64_t)1 << 56 || a->asked->disk == 1 || (!lacks && a->plan->in_place))
        return ATOM_OK;
    if (a->plan && a->plan->disk)
        request.disk = 0; /* what memory is for: on disk it fits already */
    for (;; times *= 2) {
        request.host_memory = times * has;
        request.host_hold = request.host_hold ? request.host_memory : 0;
        ATOM_TRY(try_one(a->g, a->profile, &request, &outcome));
        if (!lacks || outcome.fits || times == 8)
            break;
    }
    whole_size(times * has, " ", size, sizeof size);
    snprintf(change, sizeof change, "%s%s of host memory", size, strchr(size, ' ') ? "" : " bytes");
    whole_size(times * has, "", size, sizeof size);
    snprintf(option, sizeof option, "--host-memory %s", size);
    add_more(a, outcome, change, option);
    return ATOM_OK;
}

/* The other place for the optimizer's state, where one was asked for. */
ATOM_MUST static atom_status other_place(asking *a)
{
    plan_request request = a->same;
    plan_outcome outcome;
    bool to_disk = !a->plan && a->asked->disk == 0;
    if (!to_disk && a->asked->disk != 1)
        return ATOM_OK;
    request.disk = to_disk;
    ATOM_TRY(try_one(a->g, a->profile, &request, &outcome));
    add(a, outcome, to_disk ? "the optimizer's state on disk" : "the optimizer's state in memory",
        to_disk ? "--optimizer-state disk" : "--optimizer-state memory");
    return ATOM_OK;
}

ATOM_MUST static atom_status faster_disk(asking *a)
{
    part_profile profile = *a->profile; /* all but the disk is the same object's */
    part_disk disk = part_device_disk(&profile.device);
    plan_outcome outcome;
    if (!a->plan || !a->plan->disk)
        return ATOM_OK;
    profile.device.disk_read_bytes_per_second = 2 * disk.read;
    profile.device.disk_write_bytes_per_second = 2 * disk.write;
    profile.device.disk_read_both_bytes_per_second = 2 * disk.read_both;
    profile.device.disk_write_both_bytes_per_second = 2 * disk.write_both;
    profile.device.disk_sync_seconds = disk.sync_seconds;
    ATOM_TRY(try_one(a->g, &profile, &a->same, &outcome));
    add_more(a, outcome, "a disk of twice the speed", "");
    return ATOM_OK;
}

/* All of the device, where only a part of it was to be used. */
ATOM_MUST static atom_status whole_device(asking *a)
{
    plan_request request = a->same;
    plan_outcome outcome;
    if (!a->asked->device_memory || a->profile->device.device_bytes <= a->asked->device_memory)
        return ATOM_OK;
    request.device_memory = 0;
    ATOM_TRY(try_one(a->g, a->profile, &request, &outcome));
    add_more(a, outcome, "all of the device's memory", "--device-memory auto");
    return ATOM_OK;
}

atom_status plan_what_if_price(const graph *g, const part_profile *profile,
                               const plan_request *asked, const part_plan *plan, plan_what_if *out)
{
    plan_what_if found = {0};
    asking a = {g, profile, asked, *asked, plan, &found};
    if (plan)
        a.same.micro_batches = plan->micro_batches;
    a.same.no_advice = a.same.no_needs = true;
    ATOM_TRY(micro_batches(&a));
    ATOM_TRY(narrow_moments(&a));
    ATOM_TRY(other_optimizer(&a));
    ATOM_TRY(more_host_memory(&a));
    ATOM_TRY(other_place(&a));
    ATOM_TRY(faster_disk(&a));
    ATOM_TRY(whole_device(&a));
    *out = found;
    return ATOM_OK;
}
