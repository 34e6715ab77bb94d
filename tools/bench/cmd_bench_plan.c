/*
 * atom bench plan: how long planning takes, over a grid of models, devices, dtypes, micro-batches and
 * budgets. One idea: a planner is only as quick as its slowest row, so the slowest one is named as
 * the command that repeats it. Refuses wall time: what counts is the time of the one core that plans,
 * which a busy machine stretches less.
 */
#include "tools/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS_EACH = 4, HOST_TIB = 4 };

static const uint32_t micro_batches[] = {0, 1, 4, 16, 64};         /* 0: auto */
static const uint32_t budgets[] = {0, 2, 4, 6, 8, 11, 16, 24, 48}; /* GiB; 0: all of the device */

enum {
    N_MICRO_BATCHES = sizeof micro_batches / sizeof *micro_batches,
    N_BUDGETS = sizeof budgets / sizeof *budgets
};

typedef struct plan_row {
    const char *model, *device;
    atom_dtype dtype;
    uint32_t micro_batches, gib;
} plan_row;

typedef struct plan_rows {
    const bench_values *v;
    uint32_t n, fit;
    double *seconds; /* of every row; owned */
    size_t room;
    uint64_t most_states;
    plan_row slowest;
    double slowest_seconds;
} plan_rows;

static double core_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static atom_status search(const plan_row *row, const graph *g, const part_profile *profile,
                          uint64_t *states)
{
    gen_judge judge = {.g = g, .profile = profile};
    part_plan *plan = NULL;
    part_search_stats stats = {0};
    const part_request request = {
        .device_budget_bytes = (uint64_t)row->gib << 30,
        .host_budget_bytes = (uint64_t)HOST_TIB << 40,
        .host_hold_bytes = (uint64_t)HOST_TIB << 40,
        .micro_batches = row->micro_batches,
        .clip = true,
        .ahead = true,
        .recompute = -1,
        .disk = -1,
        .evaluate = gen_judge_plan,
        .weigh = gen_weigh_plan,
        .evaluate_ctx = &judge,
    };
    atom_status st = part_search(g, profile, &request, &plan, &stats);
    *states = stats.states;
    part_plan_close(&plan);
    return st;
}

static atom_status time_row(plan_rows *all, const plan_row *row)
{
    graph *g = NULL;
    part_profile *profile = NULL;
    part_device device;
    uint64_t states = 0;
    const file_lora_keys none = {.r = -1, .alpha = -1};
    atom_status st = ATOM_OK;
    ATOM_TRY(part_device_spec(row->device, &device));
    if (row->dtype == ATOM_BF16 && device.flops_bf16 <= 0)
        return ATOM_OK; /* it computes in fp32 only */
    double begin = core_seconds();
    ATOM_TRY_CLEAN(cli_graph(row->model, row->dtype, all->v->micro_batch_size, -1, &none, &g));
    ATOM_TRY_CLEAN(part_profile_model(g, &device, &profile));
    st = search(row, g, profile, &states);
    if (st == ATOM_OK)
        all->fit++;
    else if (st == ATOM_E_RESOURCE)
        st = ATOM_OK; /* a refusal is planned, too */
    double took = core_seconds() - begin;
    if (took > all->slowest_seconds) {
        all->slowest_seconds = took;
        all->slowest = *row;
    }
    if (states > all->most_states)
        all->most_states = states;
    ATOM_TRY_CLEAN(atom_grow(&all->seconds, all->n, &all->room, sizeof *all->seconds));
    all->seconds[all->n++] = took;
cleanup:
    part_profile_close(&profile);
    graph_close(&g);
    return st;
}

/* Row i of a dtype: the lists' lengths have no common divisor, so that every pair is met in turn. */
static plan_row row_at(const char *model, const char *const *devices, atom_dtype dtype, uint32_t i)
{
    uint32_t n_devices = 0;
    while (devices[n_devices])
        n_devices++;
    return (plan_row){.model = model,
                      .device = devices[i / (N_MICRO_BATCHES * N_BUDGETS) % n_devices],
                      .dtype = dtype,
                      .micro_batches = micro_batches[i % N_MICRO_BATCHES],
                      .gib = budgets[i % N_BUDGETS]};
}

static atom_status time_model(plan_rows *all, const char *model, atom_dtype dtype, bool whole,
                              uint32_t *at)
{
    const char *const *devices = part_device_names();
    uint32_t n_devices = 0;
    while (devices[n_devices])
        n_devices++;
    if (!whole) { /* a few, with another device each */
        for (int i = 0; i < ROWS_EACH; i++, ++*at) {
            plan_row row = row_at(model, devices, dtype, *at);
            row.device = devices[*at % n_devices];
            ATOM_TRY(time_row(all, &row));
        }
        return ATOM_OK;
    }
    for (uint32_t i = 0; i < n_devices * N_MICRO_BATCHES * N_BUDGETS; i++) {
        const plan_row row = row_at(model, devices, dtype, i);
        ATOM_TRY(time_row(all, &row));
    }
    return ATOM_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void command_of(const plan_rows *all, char *out, size_t room)
{
    const plan_row *r = &all->slowest;
    char budget[48] = "", count[64] = "";
    if (r->gib)
        snprintf(budget, sizeof budget, " --device-memory %uGiB", r->gib);
    if (r->micro_batches)
        snprintf(count, sizeof count, " --gradient-accumulation-steps %u", r->micro_batches);
    snprintf(out, room,
             "atom plan --model %s --device-spec %s --dtype %s --micro-batch-size %lld%s%s "
             "--host-memory %dTiB",
             r->model, r->device, atom_dtype_name(r->dtype), (long long)all->v->micro_batch_size,
             count, budget, HOST_TIB);
}

static atom_status show(plan_rows *all)
{
    char command[512];
    uint64_t peak = atom_mem_read().peak_bytes;
    qsort(all->seconds, all->n, sizeof *all->seconds, ascending);
    double least = all->seconds[0], median = all->seconds[all->n / 2],
           most = all->seconds[all->n - 1];
    command_of(all, command, sizeof command);
    if (all->v->json)
        return cli_print_json(json_pack(
            "{s:s, s:i, s:i, s:o, s:o, s:o, s:I, s:I, s:s}", "bench", "plan", "rows", (int)all->n,
            "fit", (int)all->fit, "min_seconds", cli_real(least), "median_seconds",
            cli_real(median), "max_seconds", cli_real(most), "most_states",
            (json_int_t)all->most_states, "peak_bytes", (json_int_t)peak, "slowest", command));
    cli_print("%u plans, %u of them fit; time of the core that plans\n", all->n, all->fit);
    cli_print("  least    %s\n  median   %s\n  most     %s\n", cli_seconds(least),
              cli_seconds(median), cli_seconds(most));
    cli_print("  states   %llu at most, %s of memory\n", (unsigned long long)all->most_states,
              cli_size(peak));
    cli_print("the slowest: %s\n", command);
    return ATOM_OK;
}

atom_status bench_plan_run(const bench_values *v, bool model_given)
{
    static const atom_dtype dtypes[] = {ATOM_BF16, ATOM_F32};
    const char *one[] = {v->model, NULL};
    const char *const *models = model_given ? one : graph_preset_names();
    plan_rows all = {.v = v};
    uint32_t at = 0;
    atom_status st = ATOM_OK;
    for (; *models; models++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            if (v->dtype == PLAN_DTYPE_AUTO || plan_dtype_settle(v->dtype, true) == dtypes[d])
                ATOM_TRY_CLEAN(time_model(&all, *models, dtypes[d], model_given, &at));
    st = show(&all);
cleanup:
    atom_free(all.seconds);
    return st;
}
