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
        atom_log(ATOM_LOG_WARN, "%s; the profile is used now and not kept", bench->busy);
    else if (part_profile_write(*out, cache) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "the profile was not cached: %s", atom_fail_message());
    st = ATOM_OK;
cleanup:
    atom_free(cache);
    return st;
}

atom_status plan_search(const graph *g, const part_profile *profile, const krn_table *table,
                        const plan_request *request, part_plan **out, part_search_stats *stats)
{
    gen_judge judge = {.g = g, .profile = profile, .table = table};
    part_search_stats ignored;
    part_request search = {.device_budget_bytes = request->device_memory,
                           .host_budget_bytes = request->host_memory,
                           .host_hold_bytes = request->host_hold,
                           .micro_batches = request->micro_batches,
                           .no_advice = request->no_advice,
                           .clip = request->clip,
                           .update_on_device = request->update_on_device,
                           .recompute = request->recompute,
                           .disk = request->disk,
                           .ahead = request->ahead,
                           .evaluate = gen_judge_plan,
                           .weigh = gen_weigh_plan,
                           .evaluate_ctx = &judge};
    return part_search(g, profile, &search, out, stats ? stats : &ignored);
}
