/*
 * Owns where a profile comes from: a file the user names, the cache, fresh work. One idea: a cache key
 * says everything that a measurement depends on, so a hit is as good as measuring again, until a run
 * takes another time than the profile promised. Refuses profiles of another graph.
 *
 * Beside the profiles lie the machine's rates by themselves, so that the next graph on it measures
 * only its own nodes.
 */
#include "atom/plan/device.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/plan/bench_sizes.h"
#include "atom/plan/measure.h"
#include "atom/plan/profile_key.h"
#include "kernels/cuda_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A run speaks against its profile when it is this far away, ... */
static const double DOUBT = 0.1;
/* ... took at least so long for so many steps, ... */
static const double DOUBT_SECONDS = 0.02;
enum { DOUBT_STEPS = 10 };
/* ... and it was not measured again so often in a row: what still differs then is the model of the step. */
enum { MEASURED_AGAIN_MAX = 2 };
static const double CHANGED = 0.05; /* less is not worth a word */

/* A card's name, driver and libraries; "" on the CPU. */
static void card_text(const plan_workbench *bench, char *out, size_t room)
{
    dev_cuda_info info;
    out[0] = 0;
    if (bench->card >= 0 && dev_cuda_describe(bench->card, &info) == ATOM_OK)
        snprintf(out, room, "%s, driver %d, runtime %d, BLAS %llu", info.name, info.driver_version,
                 info.runtime_version, (unsigned long long)info.blas_version);
}

/* XDG cache / profiles / PREFIX and KEY.json; the key is that of this machine and of `what`. */
static atom_status cache_path(const plan_workbench *bench, const char *prefix, uint64_t what,
                              char **path)
{
    char *cache = NULL, *dir = NULL, line[256], card[256];
    bool known = plan_cpu_line(line, sizeof line);
    card_text(bench, card, sizeof card);
    const plan_profile_facts facts = {.what = what,
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
    *path = dir ? atom_format("%s/%s%016llx.json", dir, prefix, (unsigned long long)key) : NULL;
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

static atom_status profile_path(const plan_workbench *bench, char **path)
{
    return cache_path(bench, "", graph_hash(bench->g), path);
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
    bool found = profile_path(bench, &path) == ATOM_OK && atom_path_exists(path) &&
                 read_matching(bench, path, out) == ATOM_OK;
    if (found) /* the rates stay; what is free changes from hour to hour */
        (*out)->device.host_bytes = plan_host_bytes();
    atom_free(path);
    return found;
}

/* --- rates ------------------------------------------------------------------------------------ */

static atom_status rates_path(const plan_workbench *bench, char **path)
{
    return cache_path(bench, "rates-", plan_measure_rates_key(bench), path);
}

/* Those that another graph's profile was measured with. */
static bool find_rates(const plan_workbench *bench, part_device *rates)
{
    char *path = NULL;
    bool found = rates_path(bench, &path) == ATOM_OK && atom_path_exists(path) &&
                 part_rates_read(path, rates) == ATOM_OK;
    atom_free(path);
    return found;
}

/* Of the device only what does not depend on the graph. That they are not kept harms nobody. */
static void keep_rates(const plan_workbench *bench, const part_device *device)
{
    part_device rates = *device;
    char *path = NULL;
    rates.flops_fp32 = rates.flops_bf16 = rates.ortho_flops_per_second = 0;
    if (rates_path(bench, &path) != ATOM_OK || part_rates_write(&rates, path) != ATOM_OK)
        atom_log(ATOM_LOG_DEBUG, "the machine's rates were not cached: %s", atom_fail_message());
    atom_free(path);
}

/* --- doubts ----------------------------------------------------------------------------------- */

static bool is_doubted(const part_profile *p)
{
    return p->doubt > 0 && p->measured_again < MEASURED_AGAIN_MAX;
}

static double pass_seconds(const part_profile *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        sum += p->nodes[i].fwd_seconds + p->nodes[i].bwd_seconds;
    return sum;
}

/* Appends "WHAT FACTOR times as fast" where that is worth a word. */
static void add_change(char *text, size_t room, const char *what, double before, double after)
{
    size_t n = strlen(text);
    if (before <= 0 || after <= 0 || fabs(after / before - 1) < CHANGED || n + 1 >= room)
        return;
    snprintf(text + n, room - n, "%s%s %.2f times as fast", n ? ", " : "", what, after / before);
}

static void say_changes(plan_workbench *bench, const part_profile *was, const part_profile *is)
{
    char text[256] = "";
    const part_device *a = &was->device, *b = &is->device;
    add_change(text, sizeof text, "a micro-batch", 1 / pass_seconds(was), 1 / pass_seconds(is));
    add_change(text, sizeof text, "memory", a->host_bytes_per_second, b->host_bytes_per_second);
    add_change(text, sizeof text, "copies to the device", a->h2d_bytes_per_second,
               b->h2d_bytes_per_second);
    add_change(text, sizeof text, "copies to the host", a->d2h_bytes_per_second,
               b->d2h_bytes_per_second);
    add_change(text, sizeof text, "AdamW", a->adamw_params_per_second, b->adamw_params_per_second);
    add_change(text, sizeof text, "Muon", a->muon_flops_per_second, b->muon_flops_per_second);
    snprintf(bench->news, sizeof bench->news,
             "profile: measured again, because a step took %.2f times as long as predicted from "
             "the one before; %s",
             was->doubt, text[0] ? text : "nothing has changed by more than 5 %");
}

bool plan_profile_weigh(const plan_workbench *bench, double predicted_seconds,
                        double median_seconds, uint64_t steps)
{
    part_profile *profile = NULL;
    char *path = NULL;
    bool again = false;
    if (steps < DOUBT_STEPS || median_seconds < DOUBT_SECONDS || predicted_seconds <= 0)
        return false;
    const double ratio = median_seconds / predicted_seconds;
    const bool agrees = fabs(ratio - 1) < DOUBT;
    if (profile_path(bench, &path) == ATOM_OK && atom_path_exists(path) &&
        read_matching(bench, path, &profile) == ATOM_OK) {
        bool changes = agrees ? profile->measured_again > 0 && profile->doubt == 0
                              : profile->measured_again < MEASURED_AGAIN_MAX;
        profile->doubt = agrees ? profile->doubt : ratio;
        profile->measured_again = agrees ? 0 : profile->measured_again;
        again = changes && part_profile_write(profile, path) == ATOM_OK && !agrees;
    }
    part_profile_close(&profile);
    atom_free(path);
    return again;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* doubted: what this takes the place of; NULL: nothing. */
static atom_status measure(plan_workbench *bench, const part_profile *doubted,
                           plan_progress_fn progress, void *ctx, part_profile **out)
{
    part_device rates;
    char *path = NULL;
    bool known = !doubted && find_rates(bench, &rates);
    atom_status st;
    ATOM_TRY_CLEAN(profile_path(bench, &path));
    ATOM_TRY_CLEAN(plan_measure_profile(bench, known ? &rates : NULL, progress, ctx, out));
    if (doubted)
        (*out)->measured_again = doubted->measured_again + 1;
    if (bench->busy[0]) {
        atom_log(ATOM_LOG_WARN, "%s; the profile is used this time but not kept", bench->busy);
        goto cleanup;
    }
    if (doubted)
        say_changes(bench, doubted, *out);
    if (part_profile_write(*out, path) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "the profile was not cached: %s", atom_fail_message());
    keep_rates(bench, &(*out)->device);
cleanup:
    atom_free(path);
    return st;
}

atom_status plan_profile_get(plan_workbench *bench, const char *path, plan_progress_fn progress,
                             void *ctx, part_profile **out, bool *cached)
{
    part_profile *found = NULL;
    bench->news[0] = 0;
    if (cached)
        *cached = false;
    if (path)
        return read_matching(bench, path, out);
    if (plan_profile_cached(bench, &found) && !is_doubted(found)) {
        *out = found;
        if (cached)
            *cached = true;
        return ATOM_OK;
    }
    atom_status st = measure(bench, found, progress, ctx, out);
    part_profile_close(&found);
    return st;
}
