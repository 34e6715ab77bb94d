/*
 * Owns where a profile comes from (a file the user names, the cache, fresh work) and the search for
 * a plan. One idea: a cache key says everything that a measurement depends on, so a hit is as good
 * as measuring again. Refuses profiles of another graph.
 */
#include "atom/plan/device.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/plan/profile_key.h"
#include "codegen/lower.h"
#include "kernels/cuda_load.h"

#include <stdio.h>
#include <string.h>

/* A card's name, driver and libraries; "" on the CPU. */
static void card_text(const plan_workbench *bench, char *out, size_t room)
{
    dev_cuda_info info;
    out[0] = 0;
    if (bench->card >= 0 && dev_cuda_describe(bench->card, &info) == ATOM_OK)
        snprintf(out, room, "%s, driver %d, runtime %d, BLAS %llu", info.name, info.driver_version,
                 info.runtime_version, (unsigned long long)info.blas_version);
}

/* XDG cache / profiles / KEY.json */
static atom_status cache_path(const plan_workbench *bench, char **path)
{
    char *cache = NULL, *dir = NULL, line[256], card[256];
    bool known = plan_cpu_line(line, sizeof line);
    card_text(bench, card, sizeof card);
    const plan_profile_facts facts = {.graph = graph_hash(bench->g),
                                      .cpu = known ? line : "?",
                                      .threads = atom_threads_count(bench->threads),
                                      .backend = bench->table->backend,
                                      .isa = bench->table->isa,
                                      .products = krn_cpu_library_version(),
                                      .card = card,
                                      .link_bandwidth = bench->config.link_bandwidth};
    uint64_t key = plan_profile_key(&facts);
    atom_status st;
    ATOM_TRY_CLEAN(atom_cache_dir(&cache));
    dir = atom_path_join(cache, "profiles");
    *path = dir ? atom_format("%s/%016llx.json", dir, (unsigned long long)key) : NULL;
    st = *path ? atom_dir_make(dir) : atom_fail_memory("a path", 256);
    if (st != ATOM_OK) {
        atom_free(*path);
        *path = NULL;
    }
cleanup:
    atom_free(cache);
    atom_free(dir);
    return st;
}

static atom_status read_matching(const plan_workbench *bench, const char *path, part_profile **out)
{
    part_profile *profile = NULL;
    ATOM_TRY(part_profile_read(path, &profile));
    atom_status st = part_profile_matches(profile, bench->g);
    if (st == ATOM_OK)
        *out = profile;
    else
        part_profile_close(&profile);
    return st;
}

bool plan_profile_cached(const plan_workbench *bench, part_profile **out)
{
    char *path = NULL;
    bool found = cache_path(bench, &path) == ATOM_OK && atom_path_exists(path) &&
                 read_matching(bench, path, out) == ATOM_OK;
    if (found) /* the rates stay; what is free changes from hour to hour */
        (*out)->device.host_bytes = plan_host_bytes();
    atom_free(path);
    return found;
}

atom_status plan_profile_get(plan_workbench *bench, const char *path, plan_progress_fn progress,
                             void *ctx, part_profile **out, bool *cached)
{
    char *cache = NULL;
    atom_status st;
    if (cached)
        *cached = false;
    if (path)
        return read_matching(bench, path, out);
    if (plan_profile_cached(bench, out)) {
        if (cached)
            *cached = true;
        return ATOM_OK;
    }
    ATOM_TRY_CLEAN(cache_path(bench, &cache));
    ATOM_TRY_CLEAN(plan_profile_measure(bench, progress, ctx, out));
    if (bench->busy[0])
        atom_log(ATOM_LOG_WARN, "%s; the profile is used this time but not kept", bench->busy);
    else if (part_profile_write(*out, cache) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "the profile was not cached: %s", atom_fail_message());
    st = ATOM_OK;
cleanup:
    atom_free(cache);
    return st;
}

/* What several devices cannot do. */
static atom_status check_devices(const part_profile *profile, const plan_request *request)
{
    const uint32_t n = request->devices, C = request->micro_batches;
    if (n > PART_DEVICES_MAX)
        return atom_fail(ATOM_E_USAGE, "devices: at most %d can train together, not %u",
                         PART_DEVICES_MAX, n);
    if (n > 1 && C > 0 && C < n)
        return atom_fail(ATOM_E_USAGE,
                         "devices: %u devices share the micro-batches of a step, but there %s "
                         "only %u; raise gradient_accumulation_steps to %u or more",
                         n, C == 1 ? "is" : "are", C, n);
    if (n > 1 && profile->device.unified && !request->device_memory)
        return atom_fail(ATOM_E_USAGE,
                         "devices: without device_memory the CPU uses the weights in place and "
                         "is one device; set device_memory, or leave devices out");
    return ATOM_OK;
}

/* Where the step of all devices was too long to be run: each device begins backward one visit after
 * the one before it. */
static double late_seconds(const part_profile *profile, const part_plan *share, uint32_t devices)
{
    const part_sub_model *last = &share->sub_models[share->n_sub_models - 1];
    double turn = 0;
    for (int32_t i = last->first_node; i < last->last_node; i++)
        turn += profile->nodes[i].fwd_seconds + profile->nodes[i].bwd_seconds;
    return share->simulated ? 0 : turn * share->micro_batches * (devices - 1);
}

/* The plan for a share becomes that of all devices. */
static void widen(const gen_judge *judge, part_plan *plan)
{
    double late = late_seconds(judge->profile, plan, judge->devices);
    *plan = gen_judge_whole(judge, plan);
    plan->predicted_step_seconds += late;
    plan->predicted_ahead_seconds += plan->predicted_ahead_seconds > 0 ? late : 0;
    plan->recommended_micro_batches *= judge->devices;
    plan->recommended_tokens_per_second = plan->most_tokens_per_second = 0;
}

/*
 * For several devices smaller sub-models may be better than those that one alone likes best, since
 * all devices but the first wait for a visit: plans that use a half, a quarter and an eighth of the
 * memory are judged, too.
 */
static atom_status search_devices(const gen_judge *judge, const part_request *request,
                                  part_plan **out, part_search_stats *stats)
{
    enum { HALVES = 3 };
    const uint64_t asked = request->device_budget_bytes;
    const uint64_t all = asked ? asked : judge->profile->device.device_bytes;
    part_request some = *request;
    ATOM_TRY(part_search(judge->g, judge->profile, request, out, stats));
    widen(judge, *out);
    if (!some.micro_batches)
        some.micro_batches = (*out)->micro_batches / judge->devices;
    some.no_advice = true;
    for (int i = 1; i <= HALVES && all >> i; i++) {
        part_plan *other = NULL;
        part_search_stats more = {0};
        some.device_budget_bytes = all >> i;
        atom_status st = part_search(judge->g, judge->profile, &some, &other, &more);
        stats->states += more.states;
        stats->evaluated += more.evaluated;
        stats->seconds += more.seconds;
        if (st == ATOM_E_RESOURCE)
            break; /* nor will less be enough */
        if (st != ATOM_OK)
            part_plan_close(out);
        ATOM_TRY(st);
        widen(judge, other);
        other->device_budget_bytes = asked;
        other->recommended_micro_batches = (*out)->recommended_micro_batches;
        if (part_plan_seconds(other) < part_plan_seconds(*out)) {
            part_plan *worse = *out;
            *out = other;
            other = worse;
        }
        part_plan_close(&other);
    }
    return ATOM_OK;
}

atom_status plan_search(const graph *g, const part_profile *profile, const krn_table *table,
                        const plan_request *request, part_plan **out, part_search_stats *stats)
{
    const uint32_t C = request->micro_batches, n = request->devices > 1 ? request->devices : 1;
    gen_judge judge = {
        .g = g, .profile = profile, .table = table, .devices = n, .micro_batches = C};
    part_search_stats ignored = {0};
    part_request search = {.device_budget_bytes = request->device_memory,
                           .host_budget_bytes = request->host_memory,
                           .host_hold_bytes = request->host_hold,
                           .micro_batches = C / n + (C % n != 0),
                           .no_advice = request->no_advice,
                           .clip = request->clip,
                           .update_on_device = request->update_on_device && n == 1,
                           .ortho_on_device = request->ortho_on_device && (!table || table->ortho),
                           .recompute = request->recompute,
                           .disk = request->disk,
                           .ahead = request->ahead,
                           .evaluate = gen_judge_plan,
                           .weigh = gen_weigh_plan,
                           .evaluate_ctx = &judge};
    stats = stats ? stats : &ignored;
    ATOM_TRY(check_devices(profile, request));
    if (n > 1)
        return search_devices(&judge, &search, out, stats);
    return part_search(g, profile, &search, out, stats);
}
