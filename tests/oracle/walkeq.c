/*
 * The swap runtime, fully resident, against the walker: losses, norms, weights and moments must be
 * equal to the bit, for random models, backends and dtypes. The walker shares nothing with
 * lowering, tapes and executor, so this is where their meaning comes from.
 *
 *   walkeq [--first S] [--seeds N]      a failure prints the seed that repeats it
 */
#include "atom/base/mem.h"
#include "atom/train/init.h"
#include "tests/lib/random_lora.h"
#include "tests/lib/random_model.h"
#include "tests/lib/random_pointwise.h"
#include "tests/oracle/walker.h"
#include "tests/swap/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

typedef struct trial {
    uint64_t seed;
    graph *g;
    uint32_t C;
    float max_grad_norm;
    bool apart;
    const krn_table *table;
    const krn_host_table *host;
} trial;

static atom_status open_trial(uint64_t seed, trial *t)
{
    random_gpt2 r = random_model_make(seed);
    graph *plain = NULL;
    atom_dtype dtype = random_gpt2_draw(seed, 60, 0, 1) ? ATOM_BF16 : ATOM_F32;
    bool cpu = random_gpt2_draw(seed, 61, 0, 1), fused = random_gpt2_draw(seed, 62, 0, 3) != 0;
    *t = (trial){.seed = seed,
                 .C = (uint32_t)random_gpt2_draw(seed, 63, 1, 4),
                 .max_grad_norm = random_gpt2_draw(seed, 64, 0, 2) ? 0.5f : 0,
                 .apart = random_gpt2_draw(seed, 66, 0, 1),
                 .table = cpu ? krn_cpu_table(dtype) : krn_ref_table(dtype),
                 .host = cpu ? krn_cpu_host_table() : krn_ref_host_table()};
    atom_status st;
    ATOM_TRY_CLEAN(graph_model_build(&r.config, dtype, r.B, r.T, &plain));
    if (random_gpt2_draw(seed, 70, 0, 2) == 0)
        ATOM_TRY_CLEAN(random_pointwise(seed, &plain));
    if (random_gpt2_draw(seed, 65, 0, 2) == 0)
        ATOM_TRY_CLEAN(random_lora(seed, true, &plain));
    graph_set_moments(plain, random_gpt2_draw(seed, 67, 0, 1) ? ATOM_BF16 : ATOM_F32);
    graph_set_optimizer(plain, random_gpt2_draw(seed, 69, 0, 1) ? GRAPH_ADAMW : GRAPH_MUON);
    if (!fused) {
        t->g = plain;
        return ATOM_OK;
    }
    ATOM_TRY_CLEAN(graph_fuse(plain, &t->g));
cleanup:
    graph_close(&plain);
    return st;
}

/* The batches of tests/swap/harness.c. Returns the number of targets. */
static uint32_t fill_batch(const trial *t, uint32_t step, int32_t *tokens, int32_t *targets)
{
    uint64_t n = (uint64_t)(t->g->micro_batch * t->g->sequence);
    uint64_t V = (uint64_t)t->g->params[0].dims[0];
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->C; i++) {
        atom_rng_key key = {.seed = t->seed, .step = step, .micro_batch = i, .node = 99991};
        for (uint64_t e = 0; e < n; e++) {
            uint32_t word = atom_rng_u32(key, n + e);
            tokens[i * n + e] = (int32_t)(atom_rng_u32(key, e) % V);
            targets[i * n + e] = word % 11 == 0 ? -1 : (int32_t)((word >> 4) % V);
            count += targets[i * n + e] >= 0;
        }
    }
    return count;
}

/* bf16[n] as f32[n] in the same place. */
static float *widen(void *x, uint64_t n)
{
    for (uint64_t i = n; i-- > 0;) {
        atom_bf16 half;
        memcpy(&half, (char *)x + i * sizeof half, sizeof half);
        float wide = atom_bf16_to_f32(half);
        memcpy((char *)x + i * sizeof wide, &wide, sizeof wide);
    }
    return x;
}

/* As harness_do, into the same kind of result; vectors are borrowed from the walker. */
static atom_status walk(const trial *t, walker *w, harness_result *out)
{
    uint64_t n = (uint64_t)(t->g->micro_batch * t->g->sequence) * t->C;
    int32_t *batch = atom_alloc(2 * n, sizeof *batch);
    out->losses = atom_alloc(STEPS * n, sizeof(float));
    int32_t *starts = t->apart ? harness_starts(t->g, t->seed, t->C) : NULL;
    if (!batch || !out->losses || (t->apart && !starts)) {
        atom_free(batch);
        atom_free(starts);
        return atom_fail_memory("a batch", n * 4);
    }
    train_init_weights(t->g, t->seed, w->master);
    walker_sync_wire(w);
    for (uint32_t s = 1; s <= STEPS; s++) {
        uint32_t targets = fill_batch(t, s, batch, batch + n);
        krn_step step = {.seed = t->seed,
                         .step = s,
                         .loss_scale = 1.0f / (float)targets,
                         .train = 1,
                         .starts = starts};
        krn_adamw_step update =
            walker_adamw_step(s, (double)1e-2f, 0.9, 0.95, (double)1e-8f, (double)0.1f);
        update.moments = t->g->moments;
        update.rng = (atom_rng_key){.seed = t->seed, .step = s, .node = KRN_RNG_MOMENTS};
        walker_gradients(w, &step, batch, batch + n, out->losses + (s - 1) * n);
        krn_muon_step muon = {.momentum = 0.95f,
                              .lr = 1e-2,
                              .decay = 0.1,
                              .moments = update.moments,
                              .rng = update.rng};
        double norm = walker_update(w, &update, &muon, t->max_grad_norm);
        out->norms[s - 1] = norm;
    }
    out->n_losses = STEPS * n;
    out->extent = t->g->param_extent;
    out->master = w->master;
    bool half = t->g->moments == ATOM_BF16;
    out->m = half ? widen(w->m, out->extent) : w->m;
    out->v = half ? widen(w->v, out->extent) : w->v;
    out->wire = w->wire;
    atom_free(batch);
    atom_free(starts);
    return ATOM_OK;
}

/* Half of them have their state on disk: in blocks as small as they can be, through a small ring. */
static void use_disk(const trial *t, part_plan *plan)
{
    plan->disk = random_gpt2_draw(t->seed, 71, 0, 1);
    plan->ring_blocks = plan->disk ? 2 + (uint32_t)t->seed % 5 : 0;
    plan->block_elements = plan->disk ? swap_block_align(t->g->moments) : 0;
}

/* 0: equal */
static int run_trial(uint64_t seed)
{
    trial t = {0};
    part_plan *plan = NULL;
    walker *w = NULL;
    atom_threads *threads = NULL;
    harness_result walked = {0}, ran = {0};
    char text[256] = "";
    const char *wrong = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(open_trial(seed, &t));
    bool clip = t.max_grad_norm > 0;
    ATOM_TRY_CLEAN(harness_resident_plan(t.g, t.C, clip, seed % 2, &plan));
    use_disk(&t, plan);
    harness_run run = {.g = t.g,
                       .plan = plan,
                       .table = t.table,
                       .host = t.host,
                       .threads = 2,
                       .seed = seed,
                       .steps = STEPS,
                       .max_grad_norm = t.max_grad_norm,
                       .apart = t.apart};
    ATOM_TRY_CLEAN(harness_do(&run, &ran));
    ATOM_TRY_CLEAN(atom_threads_open(1, &threads));
    ATOM_TRY_CLEAN(walker_open(t.g, t.table, t.host, threads, t.C, &w));
    ATOM_TRY_CLEAN(walk(&t, w, &walked));
    if (!clip) /* without clipping nobody asks the runtime for the norm */
        memcpy(walked.norms, ran.norms, sizeof ran.norms);
    wrong = harness_compare(t.g, &walked, &ran, text);
cleanup:
    if (st != ATOM_OK || wrong)
        fprintf(stderr, "FAILED --first %llu --seeds 1 (%s, %s, C=%u): %s\n",
                (unsigned long long)seed, t.table ? t.table->backend : "?",
                t.g ? atom_dtype_name(t.g->dtype) : "?", t.C,
                st != ATOM_OK ? atom_fail_message() : text);
    atom_free(walked.losses);
    harness_free(&ran);
    walker_close(&w);
    atom_threads_close(&threads);
    part_plan_close(&plan);
    graph_close(&t.g);
    return st != ATOM_OK || wrong;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, seeds = 24, bad = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--first") == 0)
            first = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtoull(argv[i + 1], NULL, 10);
    }
    for (uint64_t s = first; s < first + seeds; s++)
        bad += (uint64_t)run_trial(s);
    printf("%llu trials, %llu differ\n", (unsigned long long)seeds, (unsigned long long)bad);
    return bad != 0;
}
