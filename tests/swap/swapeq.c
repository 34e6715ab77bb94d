/*
 * Swapping never changes the maths, and neither do several devices, nor that nothing is trained: random
 * models, plans, C, threads, budgets, backends and execution modes against the resident run on one
 * device, compared bit for bit.
 *
 *   swapeq [--first S] [--seeds N] [--device cpu|cuda]
 *
 * A failure prints the seed that repeats it. cuda: on card 0, and for several devices on those behind
 * it, if there are; exit 77 where there is none.
 */
#include "tests/swap/harness.h"

#include "atom/base/mem.h"
#include "kernels/cuda_load.h"
#include "tests/lib/random_codec.h"
#include "tests/lib/random_lora.h"
#include "tests/lib/random_model.h"
#include "tests/lib/random_pointwise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trial {
    uint64_t seed;
    graph *g;
    uint32_t C, threads;
    bool clip, cpu, generated, cuda;
    const krn_table *table;
    const krn_host_table *host;
} trial;

/* The card's kernels, if it has the dtype; fp32 else. */
static atom_status choose_card(trial *t, atom_dtype *dtype)
{
    t->cuda = true;
    t->host = krn_cpu_host_table();
    if (krn_cuda_table(0, *dtype, &t->table) == ATOM_OK)
        return ATOM_OK;
    *dtype = ATOM_F32;
    return krn_cuda_table(0, *dtype, &t->table);
}

static atom_status open_trial(uint64_t seed, bool cuda, trial *t)
{
    graph *plain = NULL;
    random_gpt2 r = random_model_make(seed);
    memset(t, 0, sizeof *t);
    t->seed = seed;
    t->C = (uint32_t)random_gpt2_draw(seed, 50, 1, 4);
    t->threads = (uint32_t)random_gpt2_draw(seed, 51, 1, 3);
    t->clip = random_gpt2_draw(seed, 52, 0, 3) != 0;
    t->cpu = random_gpt2_draw(seed, 53, 0, 1);
    t->generated = random_gpt2_draw(seed, 54, 0, 3) == 0;
    bool fused = random_gpt2_draw(seed, 55, 0, 7) != 0;
    atom_dtype dtype = random_gpt2_draw(seed, 56, 0, 1) ? ATOM_BF16 : ATOM_F32;
    t->table = t->cpu ? krn_cpu_table(dtype) : krn_ref_table(dtype);
    t->host = t->cpu ? krn_cpu_host_table() : krn_ref_host_table();
    atom_status st;
    if (cuda)
        ATOM_TRY_CLEAN(choose_card(t, &dtype));
    ATOM_TRY_CLEAN(graph_model_build(&r.config, dtype, r.B, r.T, &plain));
    if (!cuda && random_gpt2_draw(seed, 70, 0, 2) == 0)
        ATOM_TRY_CLEAN(random_pointwise(seed, &plain));
    if (random_gpt2_draw(seed, 57, 0, 2) == 0)
        ATOM_TRY_CLEAN(random_lora(seed, !cuda, &plain));
    if (fused) {
        ATOM_TRY_CLEAN(graph_fuse(plain, &t->g));
    } else {
        t->g = plain;
        plain = NULL;
    }
    graph_set_moments(t->g, random_gpt2_draw(seed, 59, 0, 1) ? ATOM_BF16 : ATOM_F32);
    graph_set_optimizer(t->g, random_gpt2_draw(seed, 68, 0, 2) ? GRAPH_ADAMW : GRAPH_MUON);
    if (!cuda && random_gpt2_draw(seed, 160, 0, 1))
        ATOM_TRY_CLEAN(random_codec(seed, &t->g));
cleanup:
    graph_close(&plain);
    return st;
}

/* Of the ways to the disk that this machine has, each in its turn. */
static store_kind store_of(uint64_t seed)
{
    store_kind kind = (store_kind)(STORE_URING + seed % (STORE_KIND_N - STORE_URING));
    return store_probe(kind) == ATOM_OK ? kind : STORE_THREADS;
}

static atom_status run_plan(const trial *t, const part_plan *plan, bool swapped,
                            harness_result *out)
{
    harness_run run = {.g = t->g,
                       .plan = plan,
                       .table = t->table,
                       .host = t->host,
                       .threads = swapped ? t->threads : 1,
                       .generated = swapped && t->generated,
                       .seed = t->seed,
                       .steps = 3,
                       .max_grad_norm = t->clip ? 0.5f : 0,
                       .store = store_of(t->seed),
                       .apart = t->seed % 4 == 1,
                       .cuda = t->cuda};
    return harness_do(&run, out);
}

typedef struct totals {
    uint64_t short_ones, sub_models, shared, disks, muons, muon_disks, orthos, right, wrong;
} totals;

/* The state on disk, and guesses that gradients are not clipped: longer, and with a limit that is
 * mostly one of the norms that the run has. */
static atom_status run_ahead(const trial *t, const part_plan *resident, const part_plan *plan,
                             const double norms[16], totals *sum, char text[256],
                             const char **wrong)
{
    harness_result a = {0}, b = {0};
    int64_t pick = random_gpt2_draw(t->seed, 58, 0, 5);
    double limit = pick == 0 ? 1e9 : norms[pick % 3] * (pick > 3 ? 1.01 : 1);
    harness_run run = {.g = t->g,
                       .plan = resident,
                       .table = t->table,
                       .host = t->host,
                       .threads = 1,
                       .seed = t->seed,
                       .steps = 6,
                       .max_grad_norm = (float)limit,
                       .store = store_of(t->seed)};
    atom_status st;
    ATOM_TRY_CLEAN(harness_do(&run, &a));
    run.plan = plan;
    run.threads = t->threads;
    run.ahead = true;
    ATOM_TRY_CLEAN(harness_do(&run, &b));
    *wrong = harness_compare(t->g, &a, &b, text);
    sum->right += b.right;
    sum->wrong += b.wrong;
cleanup:
    harness_free(&a);
    harness_free(&b);
    return st;
}

/* Both plans on two to four devices. */
static atom_status run_devices(const trial *t, part_plan *plan, part_plan *single,
                               const harness_result *want, totals *sum, char text[256],
                               const char **wrong)
{
    part_plan *const plans[] = {plan, single};
    uint32_t devices = 2 + (uint32_t)(t->seed % 3);
    devices = devices < t->C ? devices : t->C;
    for (int p = 0; p < 2 && devices > 1 && !*wrong; p++) {
        harness_result got = {0};
        plans[p]->devices = devices;
        atom_status st = run_plan(t, plans[p], true, &got);
        plans[p]->devices = 1;
        ATOM_TRY(st);
        *wrong = harness_compare(t->g, want, &got, text);
        sum->shared++;
        harness_free(&got);
    }
    return ATOM_OK;
}

/* Some micro-batches without targets, as of a member that brings fewer: to run them or not is all the
 * same. */
static atom_status run_short(const trial *t, const part_plan *resident, part_plan *plan,
                             totals *sum, char text[256], const char **wrong)
{
    harness_result a = {0}, b = {0};
    harness_run run = {.g = t->g,
                       .plan = resident,
                       .table = t->table,
                       .host = t->host,
                       .threads = 1,
                       .seed = t->seed,
                       .steps = 2,
                       .max_grad_norm = t->clip ? 0.5f : 0,
                       .store = store_of(t->seed),
                       .apart = t->seed % 4 == 1,
                       .cuda = t->cuda};
    atom_status st;
    run.brought = 1 + (uint32_t)(t->seed / 4) % (t->C - 1);
    ATOM_TRY_CLEAN(harness_do(&run, &a));
    run.plan = plan;
    run.threads = t->threads;
    run.generated = t->generated;
    run.passed_over = true;
    plan->devices = 1 + (uint32_t)(t->seed % 3) % t->C;
    st = harness_do(&run, &b);
    plan->devices = 1;
    if (st == ATOM_OK)
        *wrong = harness_compare(t->g, &a, &b, text);
    sum->short_ones++;
cleanup:
    harness_free(&a);
    harness_free(&b);
    return st;
}

/* An evaluation alone (graph_set_forward), through another random plan and by several devices, against
 * that of a trainer. */
static atom_status run_forward(const trial *t, const part_plan *resident, char text[256],
                               const char **wrong)
{
    trial forward = {0};
    part_plan *plan = NULL;
    harness_result a = {0}, b = {0};
    atom_status st;
    ATOM_TRY_CLEAN(open_trial(t->seed, t->cuda, &forward));
    graph_set_forward(forward.g);
    ATOM_TRY_CLEAN(harness_random_plan(forward.g, t->seed + 1, t->C, t->clip, &plan));
    plan->disk = plan->over_boundaries = false;
    plan->devices = 1 + (uint32_t)(t->seed % 3) % t->C;
    harness_run run = {.g = t->g,
                       .plan = resident,
                       .table = t->table,
                       .host = t->host,
                       .threads = 1,
                       .seed = t->seed,
                       .apart = t->seed % 4 == 1,
                       .cuda = t->cuda};
    ATOM_TRY_CLEAN(harness_do(&run, &a));
    run.g = forward.g;
    run.plan = plan;
    run.threads = t->threads;
    run.generated = t->generated;
    ATOM_TRY_CLEAN(harness_do(&run, &b));
    if (a.n_losses != b.n_losses || memcmp(a.losses, b.losses, a.n_losses * sizeof *a.losses) != 0)
        *wrong = strcpy(text, "the losses of an evaluation alone differ from a trainer's");
cleanup:
    harness_free(&a);
    harness_free(&b);
    part_plan_close(&plan);
    graph_close(&forward.g);
    return st;
}

/* 0: equal */
static int run_trial(uint64_t seed, bool cuda, totals *sum)
{
    trial t;
    part_plan *plan = NULL, *resident = NULL, *single = NULL;
    harness_result a = {0}, b = {0}, c = {0}, d = {0};
    char text[256];
    const char *wrong = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(open_trial(seed, cuda, &t));
    ATOM_TRY_CLEAN(harness_resident_plan(t.g, t.C, t.clip, !cuda, &resident));
    ATOM_TRY_CLEAN(harness_resident_plan(t.g, t.C, t.clip, false, &single));
    ATOM_TRY_CLEAN(harness_random_plan(t.g, seed, t.C, t.clip, &plan));
    bool products = t.g->optimizer == GRAPH_MUON && t.clip && t.table->ortho;
    plan->ortho_on_device = products && seed % 4;
    single->ortho_on_device = products;
    sum->orthos += plan->ortho_on_device && graph_matrix_elements(t.g) > 0;
    sum->disks += plan->disk;
    sum->muon_disks += plan->disk && graph_matrix_elements(t.g) > 0;
    for (uint32_t p = 0; p < t.g->n_params; p++)
        sum->muons += graph_matrices(t.g, (int32_t)p, (int64_t[GRAPH_MATRICES_MAX]){0}) > 0;
    sum->sub_models += plan->n_sub_models;
    ATOM_TRY_CLEAN(run_plan(&t, resident, false, &a));
    ATOM_TRY_CLEAN(run_plan(&t, plan, true, &b));
    wrong = harness_compare(t.g, &a, &b, text);
    if (!wrong) {
        ATOM_TRY_CLEAN(run_plan(&t, single, true, &c));
        wrong = harness_compare(t.g, &a, &c, text);
    }
    if (!wrong)
        ATOM_TRY_CLEAN(run_forward(&t, resident, text, &wrong));
    if (!wrong)
        ATOM_TRY_CLEAN(run_devices(&t, plan, single, &a, sum, text, &wrong));
    if (!wrong && t.C > 1)
        ATOM_TRY_CLEAN(run_short(&t, resident, plan, sum, text, &wrong));
    if (!wrong && t.clip && plan->disk && !cuda) {
        plan->devices = 1 + (uint32_t)(seed / 2) % (t.C < 3 ? t.C : 3);
        plan->block_elements = swap_block_align(t.g->moments); /* many, of which few are held */
        plan->ring_blocks = 2 + (uint32_t)seed % 6;
        ATOM_TRY_CLEAN(run_ahead(&t, resident, plan, a.norms, sum, text, &wrong));
    }
    if (!wrong && t.clip &&
        t.g->optimizer == GRAPH_ADAMW) { /* master, m and v on the device, and AdamW */
        single->update_on_device = true;
        ATOM_TRY_CLEAN(run_plan(&t, single, true, &d));
        wrong = harness_compare(t.g, &a, &d, text);
    }
cleanup:
    if (st != ATOM_OK || wrong)
        fprintf(stderr, "FAILED --first %llu --seeds 1 (%s, %s, %s, C=%u, %u sub-models): %s\n",
                (unsigned long long)seed, t.g ? t.g->name : "?",
                t.cuda  ? "cuda"
                : t.cpu ? "cpu"
                        : "ref",
                t.g ? atom_dtype_name(t.g->dtype) : "?", t.C, plan ? plan->n_sub_models : 0,
                st != ATOM_OK ? atom_fail_message() : text);
    harness_free(&a);
    harness_free(&b);
    harness_free(&c);
    harness_free(&d);
    part_plan_close(&plan);
    part_plan_close(&resident);
    part_plan_close(&single);
    graph_close(&t.g);
    return st != ATOM_OK || wrong;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, seeds = 24, bad = 0;
    totals sum = {0};
    bool cuda = false;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--first") == 0)
            first = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--device") == 0)
            cuda = strcmp(argv[i + 1], "cuda") == 0;
    }
    dev_cuda_info card;
    if (cuda && dev_cuda_describe(0, &card) != ATOM_OK) {
        printf("skipped: %s\n", atom_fail_message());
        return 77;
    }
    for (uint64_t s = first; s < first + seeds; s++)
        bad += (uint64_t)run_trial(s, cuda, &sum);
    printf("%llu trials, %llu short, %llu sub-models, %llu runs on several devices, %llu on disk, "
           "%llu of them "
           "with Muon, %llu parameters by "
           "Muon, %llu plans with its products on the device, %llu guesses right, %llu wrong, %llu "
           "differ\n",
           (unsigned long long)seeds, (unsigned long long)sum.short_ones,
           (unsigned long long)sum.sub_models, (unsigned long long)sum.shared,
           (unsigned long long)sum.disks, (unsigned long long)sum.muon_disks,
           (unsigned long long)sum.muons, (unsigned long long)sum.orthos,
           (unsigned long long)sum.right, (unsigned long long)sum.wrong, (unsigned long long)bad);
    bool idle = seeds >= 24 && !cuda &&
                (sum.shared < seeds || sum.right < seeds / 4 || sum.wrong < seeds / 8 ||
                 sum.muon_disks < seeds / 12 || sum.orthos < seeds / 24);
    if (idle)
        fprintf(stderr,
                "FAILED: too few guesses, or too little of Muon on disk or with its products on "
                "the device, to prove anything\n");
    return bad != 0 || idle;
}
