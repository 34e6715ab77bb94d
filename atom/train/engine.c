/*
 * Owns one running plan. One idea: a step is a tape plus the numbers that change between steps; the
 * engine knows which tape comes next because it knows whether an update is pending. Refuses to know
 * about files, schedules or people.
 */
#include "atom/train/engine.h"

#include "atom/plan/device.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/hash.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "atom/plan/source.h"
#include "atom/train/init.h"
#include "codegen/build.h"
#include "kernels/cuda_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static atom_status open_code(train_engine *e)
{
    gen_module *module = NULL;
    e->execute = "interpreted";
    if (e->c.execute == TRAIN_EXECUTE_INTERPRETED)
        return ATOM_OK;
    atom_status st = gen_build(e->low->program, NULL, &module);
    if (st == ATOM_OK) {
        e->module = module;
        e->execute = "generated";
        return ATOM_OK;
    }
    if (e->c.execute == TRAIN_EXECUTE_GENERATED)
        return st;
    snprintf(e->why, sizeof e->why, "%s", atom_fail_message());
    return ATOM_OK;
}

static atom_status open_device(train_engine *e)
{
    return plan_device_open(e->c.bench, e->c.plan->device_budget_bytes, &e->device);
}

uint64_t train_engine_host_bytes(const train_engine *e)
{
    return e->low->host_bytes + e->files.most;
}

uint64_t train_engine_host_peak(const train_engine *e)
{
    return e->device->host_peak_bytes + e->files.peak;
}

/* Spare memory is what others leave: it shrinks where they need all. */
static void choose_spare(train_engine *e)
{
    uint64_t available = atom_host_available_bytes() + dev_cuda_kept_bytes();
    uint64_t need = train_engine_host_bytes(e) + (e->c.bench->card < 0 ? e->low->device_bytes : 0);
    uint64_t left = available > need ? available - need : 0;
    bool none = e->c.plan->disk || !e->low->layout.trained;
    e->spare_bytes = none ? 0 : e->c.spare_bytes;
    if (available && e->spare_bytes > left / 2)
        e->spare_bytes = left / 2;
}

static atom_status check_host_memory(const train_engine *e)
{
    uint64_t budget = e->c.plan->host_budget_bytes;
    uint64_t available = atom_host_available_bytes() + dev_cuda_kept_bytes();
    uint64_t host = train_engine_host_bytes(e), need = host;
    if (e->c.bench->card < 0) /* the CPU device is host memory */
        need += e->low->device_bytes;
    char a[24], b[24];
    if (budget && host > budget)
        return atom_fail(ATOM_E_RESOURCE,
                         "host memory: this run needs %s, host_memory allows %s; raise it or use a "
                         "smaller model",
                         atom_size_text(host, a), atom_size_text(budget, b));
    if (available && need > available)
        return atom_fail(
            ATOM_E_RESOURCE,
            "host memory: this run needs %s, %s are available (%llu bytes missing); use "
            "a smaller model, micro_batch_size or sequence_len",
            atom_size_text(need, a), atom_size_text(available, b),
            (unsigned long long)(need - available));
    return ATOM_OK;
}

/* What a state on disk belongs to: the parameters, how they are cut into blocks, and what moments
 * are in. */
static uint64_t state_hash(const train_engine *e, atom_dtype moments)
{
    const graph *g = e->c.bench->g;
    const swap_blocks *b = &e->low->layout.blocks;
    const uint64_t cut[2] = {b->extent, b->each};
    uint64_t hash = atom_hash(ATOM_HASH_SEED, cut, sizeof cut);
    if (moments != ATOM_F32)
        hash = atom_hash(hash, &moments, sizeof moments);
    for (uint32_t p = 0; p < g->n_params; p++) {
        hash = atom_hash(hash, g->params[p].name, strlen(g->params[p].name) + 1);
        hash = atom_hash(hash, &g->params[p].elements, sizeof g->params[p].elements);
    }
    return hash;
}

static atom_status open_disk(train_engine *e)
{
    const swap_host_layout *h = &e->low->layout;
    if (!e->c.plan->disk || !e->c.store)
        return ATOM_OK;
    bool half = h->moments == ATOM_BF16;
    swap_disk_config config = {.path = e->c.store,
                               .kind = e->c.store_kind,
                               .create = true,
                               .run = state_hash(e, h->moments),
                               .relative = state_hash(e, half ? ATOM_F32 : ATOM_BF16),
                               .relation =
                                   half ? "holds this run's state with moments in fp32; resume "
                                          "with --moments-dtype fp32 until a checkpoint is saved, "
                                          "or remove it and go on from the last one"
                                        : "holds this run's state with moments in bf16; resume "
                                          "with --moments-dtype bf16 until a checkpoint is saved, "
                                          "or remove it and go on from the last one",
                               .blocks = h->blocks,
                               .ring = (char *)swap_exec_slab(e->exec) + h->ring,
                               .ring_bytes = h->ring_bytes};
    atom_status st = swap_disk_open(&config, &e->disk);
    if (st == ATOM_OK)
        swap_exec_attach(e->exec, e->disk);
    return st;
}

/* Who reads the state in memory while updates change it. */
static atom_status open_cow(train_engine *e)
{
    const swap_host_layout *h = &e->low->layout;
    const char *slab = swap_exec_slab(e->exec);
    if (e->c.plan->disk || !h->trained)
        return ATOM_OK;
    swap_cow_config config = {.parts = {slab + h->master, slab + h->m, slab + h->v},
                              .moments = h->moments,
                              .extent = h->trained,
                              .spare_bytes = e->spare_bytes};
    atom_status st = swap_cow_open(&config, &e->cow);
    if (st == ATOM_OK)
        swap_exec_keep(e->exec, e->cow);
    return st;
}

static uint64_t starts_n(const train_engine *e)
{
    return (uint64_t)(e->c.bench->g->micro_batch * e->c.bench->g->sequence);
}

static atom_status open_starts(train_engine *e)
{
    uint64_t n = starts_n(e) * e->c.plan->micro_batches;
    if (!(e->c.bench->table->can & KRN_CAN_APART))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "packing: apart is not on %s yet; use packing: across, or another device",
                         e->c.bench->table->backend);
    e->starts = atom_alloc(n, sizeof *e->starts);
    return e->starts ? ATOM_OK : atom_fail_memory("the starts of documents", n * sizeof *e->starts);
}

int32_t *train_engine_starts(train_engine *e, uint32_t i)
{
    return e->starts ? e->starts + i * starts_n(e) : NULL;
}

atom_status train_engine_open(const train_engine_config *config, train_engine **out)
{
    atom_status st;
    train_engine *e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("the engine", sizeof *e);
    e->c = *config;
    e->files.kind = config->store_kind;
    e->files.most = part_window_bytes(config->bench->g);
    e->source = plan_file_source(&e->files);
    e->sink = plan_file_sink(&e->files);
    for (int part = 0; part < SWAP_STATE_N; part++)
        e->parts[part] = (train_part){e, (swap_state)part};
    ATOM_TRY_CLEAN(
        gen_lower(config->bench->g, config->plan, config->profile, config->bench->table, &e->low));
    e->ahead = (train_ahead){.mode = config->update_ahead,
                             .possible = e->low->tapes[SWAP_TAPE_AHEAD] != NULL,
                             .limit = config->max_grad_norm};
    choose_spare(e);
    ATOM_TRY_CLEAN(check_host_memory(e));
    ATOM_TRY_CLEAN(open_device(e));
    ATOM_TRY_CLEAN(open_code(e));
    swap_exec_config exec = gen_exec_config(e->low);
    exec.device = e->device;
    exec.threads = config->bench->threads;
    exec.table = config->bench->table;
    exec.host = config->bench->host;
    exec.on_updates = config->on_updates;
    exec.ctx = config->ctx;
    exec.compiled = e->module ? gen_module_compiled(e->module) : NULL;
    ATOM_TRY_CLEAN(swap_exec_open(&exec, &e->exec));
    ATOM_TRY_CLEAN(open_disk(e));
    ATOM_TRY_CLEAN(open_cow(e));
    if (config->apart)
        ATOM_TRY_CLEAN(open_starts(e));
    *out = e;
    return ATOM_OK;
cleanup:
    train_engine_close(&e);
    return st;
}

void train_engine_close(train_engine **e_ref)
{
    train_engine *e = *e_ref;
    if (!e)
        return;
    gen_module *module = e->module;
    swap_disk_close(&e->disk);
    swap_cow_close(&e->cow);
    swap_exec_close(&e->exec);
    gen_module_close(&module);
    dev_close(&e->device);
    atom_free(e->starts);
    gen_lowered_close(&e->low);
    atom_free(e);
    *e_ref = NULL;
}

/* --- the state ------------------------------------------------------------------------------- */

static char *slab_at(train_engine *e, uint64_t offset)
{
    return (char *)swap_exec_slab(e->exec) + offset;
}

static atom_status disk_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const train_part *p = ctx;
    return swap_disk_get(p->engine->disk, p->part, first, n, to);
}

static atom_status disk_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const train_part *p = ctx;
    return swap_disk_put(p->engine->disk, p->part, first, n, from);
}

/* Where that element is in memory; *dtype: what is there. */
static char *state_at(const train_part *p, uint64_t element, atom_dtype *dtype)
{
    const swap_host_layout *h = &p->engine->low->layout;
    const uint64_t place[SWAP_STATE_N] = {h->master, h->m, h->v};
    *dtype = swap_state_dtype(p->part, h->moments);
    return slab_at(p->engine, place[p->part] + element * atom_dtype_bytes(*dtype));
}

static atom_status memory_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    atom_dtype dtype;
    const char *from = state_at(ctx, first, &dtype);
    swap_state_read(dtype, from, n, to);
    return ATOM_OK;
}

static atom_status memory_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    atom_dtype dtype;
    char *to = state_at(ctx, first, &dtype);
    swap_state_write(dtype, to, from, n);
    return ATOM_OK;
}

file_vector train_engine_vector(train_engine *e, swap_state part)
{
    train_part *p = &e->parts[part];
    atom_dtype dtype;
    file_vector v = {.ctx = p, .get = disk_get, .put = disk_put};
    if (!e->c.plan->disk) {
        char *at = state_at(p, 0, &dtype);
        v = dtype == ATOM_F32 ? file_vector_memory((float *)(void *)at)
                              : (file_vector){.ctx = p, .get = memory_get, .put = memory_put};
    }
    v.source = &e->source;
    v.sink = &e->sink;
    return v;
}

float *train_engine_masters(train_engine *e)
{
    return e->c.plan->disk ? NULL : (float *)(void *)slab_at(e, e->low->layout.master);
}

/* Where the frozen element is: at the wire copy, the only one there is. */
static char *frozen_at(train_engine *e, uint64_t element)
{
    return slab_at(e, e->low->layout.wire + element * atom_dtype_bytes(e->c.bench->g->dtype));
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static atom_status weights_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    train_engine *e = ctx;
    uint64_t trained = e->low->layout.trained;
    uint64_t some = first < trained ? least(n, trained - first) : 0;
    file_vector master = train_engine_vector(e, SWAP_STATE_MASTER);
    atom_status st = some ? master.get(master.ctx, first, some, to) : ATOM_OK;
    for (uint64_t i = some; i < n && st == ATOM_OK; i++) {
        const char *at = frozen_at(e, first + i);
        to[i] = e->c.bench->g->dtype == ATOM_F32
                    ? *(const float *)(const void *)at
                    : atom_bf16_to_f32(*(const atom_bf16 *)(const void *)at);
    }
    return st;
}

static atom_status weights_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    train_engine *e = ctx;
    uint64_t trained = e->low->layout.trained;
    uint64_t some = first < trained ? least(n, trained - first) : 0;
    file_vector master = train_engine_vector(e, SWAP_STATE_MASTER);
    krn_ctx cx = {.threads = e->c.bench->threads};
    atom_status st = some ? master.put(master.ctx, first, some, from) : ATOM_OK;
    if (st == ATOM_OK && some < n)
        e->c.bench->host->round[e->c.bench->g->dtype](&cx, frozen_at(e, first + some), from + some,
                                                      n - some);
    return st;
}

file_vector train_engine_weights(train_engine *e)
{
    return (file_vector){.ctx = e, .get = weights_get, .put = weights_put, .source = &e->source};
}

atom_status train_engine_replace(train_engine *e)
{
    return e->disk ? swap_disk_forget(e->disk) : ATOM_OK;
}

/* Calls `visit` for one band of the canonical vector after another. */
typedef atom_status (*band_fn)(train_engine *e, uint64_t first, uint64_t n, float *band);
static atom_status each_band(train_engine *e, uint64_t extent, band_fn visit)
{
    enum { BAND = 1 << 18 };
    atom_status st = ATOM_OK;
    float *band = atom_alloc(BAND, sizeof *band);
    if (!band)
        return atom_fail_memory("a band of weights", BAND * sizeof *band);
    for (uint64_t at = 0; at < extent && st == ATOM_OK; at += BAND)
        st = visit(e, at, extent - at < BAND ? extent - at : BAND, band);
    atom_free(band);
    return st;
}

static atom_status init_band(train_engine *e, uint64_t first, uint64_t n, float *band)
{
    file_vector v = train_engine_weights(e);
    train_init_range(e->c.bench->g, e->init_seed, first, n, e->c.bench->threads, band);
    return v.put(v.ctx, first, n, band);
}

static atom_status clear_band(train_engine *e, uint64_t first, uint64_t n, float *band)
{
    atom_status st = ATOM_OK;
    memset(band, 0, n * sizeof *band);
    for (int part = SWAP_STATE_M; part < SWAP_STATE_N && st == ATOM_OK; part++) {
        file_vector v = train_engine_vector(e, (swap_state)part);
        st = v.put(v.ctx, first, n, band);
    }
    return st;
}

atom_status train_engine_init(train_engine *e, uint64_t seed)
{
    e->init_seed = seed;
    atom_status st = each_band(e, e->low->layout.extent, init_band);
    return st == ATOM_OK ? each_band(e, e->low->layout.trained, clear_band) : st;
}

static atom_status sync_band(train_engine *e, uint64_t first, uint64_t n, float *band)
{
    const graph *g = e->c.bench->g;
    krn_ctx cx = {.threads = e->c.bench->threads};
    file_vector v = train_engine_vector(e, SWAP_STATE_MASTER);
    atom_status st = v.get(v.ctx, first, n, band);
    if (st == ATOM_OK)
        e->c.bench->host->round[g->dtype](
            &cx, slab_at(e, e->low->layout.wire + first * atom_dtype_bytes(g->dtype)), band, n);
    return st;
}

atom_status train_engine_sync(train_engine *e)
{
    atom_status st = e->disk ? swap_disk_flush(e->disk) : ATOM_OK;
    return st == ATOM_OK ? each_band(e, e->low->layout.trained, sync_band) : st;
}

void train_engine_batch(train_engine *e, uint32_t i, int32_t **tokens, int32_t **targets)
{
    const swap_host_layout *h = &e->low->layout;
    *tokens = (int32_t *)slab_at(e, h->tokens + i * h->micro_batch_bytes);
    *targets = *tokens + h->micro_batch_bytes / 8;
}

static krn_adamw_step adamw_of(const train_engine *e, uint32_t step, double rate)
{
    double b1 = e->c.adam_beta1, b2 = e->c.adam_beta2;
    return (krn_adamw_step){.scale = 1,
                            .beta1 = (float)b1,
                            .one_minus_beta1 = (float)(1 - b1),
                            .beta2 = (float)b2,
                            .one_minus_beta2 = (float)(1 - b2),
                            .inv_bias1 = (float)(1 / (1 - pow(b1, step))),
                            .inv_sqrt_bias2 = (float)(1 / sqrt(1 - pow(b2, step))),
                            .eps = (float)e->c.adam_epsilon,
                            .lr = (float)rate,
                            .decay = (float)e->c.weight_decay,
                            .moments = e->c.bench->g->moments,
                            .rng = {.seed = e->c.seed, .step = step, .node = KRN_RNG_MOMENTS}};
}

static int64_t count_targets(train_engine *e)
{
    const graph *g = e->c.bench->g;
    int64_t n = g->micro_batch * g->sequence, count = 0;
    for (uint32_t i = 0; i < e->c.plan->micro_batches; i++) {
        int32_t *tokens, *targets;
        train_engine_batch(e, i, &tokens, &targets);
        for (int64_t t = 0; t < n; t++)
            count += targets[t] >= 0;
    }
    return count;
}

const float *train_engine_losses(train_engine *e, uint32_t i)
{
    const swap_host_layout *h = &e->low->layout;
    return (const float *)slab_at(e, h->losses + i * h->loss_bytes);
}

static double sum_losses(train_engine *e)
{
    const graph *g = e->c.bench->g;
    int64_t n = g->micro_batch * g->sequence;
    double sum = 0;
    for (uint32_t i = 0; i < e->c.plan->micro_batches; i++) {
        const float *losses = train_engine_losses(e, i);
        for (int64_t t = 0; t < n; t++)
            sum += (double)losses[t];
    }
    return sum;
}

/* In front of a tape that runs the updates of `step` (0: none). */
static atom_status before_updates(const train_engine *e, uint32_t step, int64_t targets)
{
    if (!e->disk || step == 0 || !e->c.before_commit)
        return ATOM_OK;
    return e->c.before_commit(e->c.ctx, step, targets);
}

/* What the tape of a step is told. */
static swap_step step_args(const train_engine *e, uint32_t step, double rate, int64_t targets)
{
    bool clip = e->c.plan->clip;
    return (swap_step){.seed = e->c.seed,
                       .step = step,
                       .update_step = clip ? e->pending_step : step,
                       .loss_scale = targets ? 1.0f / (float)targets : 0.0f,
                       .max_grad_norm = clip ? (float)e->c.max_grad_norm : 0.0f,
                       .starts = e->starts,
                       .starts_n = starts_n(e),
                       .update = clip ? adamw_of(e, e->pending_step, e->pending_rate)
                                      : adamw_of(e, step, rate),
                       .ahead = adamw_of(e, step, rate)};
}

static swap_tape_kind tape_of(const train_engine *e, bool guess)
{
    if (guess)
        return e->rest ? SWAP_TAPE_AGAIN : SWAP_TAPE_AHEAD;
    return e->c.plan->clip && e->pending_step ? SWAP_TAPE_TRAIN : SWAP_TAPE_FIRST;
}

/* What was updated ahead is not committed and stays so; the wire copy is of the masters again, and
 * the same batch makes the same gradients, which wait for the factor that is known now. */
static atom_status step_again(train_engine *e, swap_step *args, swap_result *run)
{
    e->pending_step = args->update_step = 0;
    e->rest = false;
    ATOM_TRY(train_engine_sync(e));
    return swap_exec_run(e->exec, e->low->tapes[SWAP_TAPE_FIRST], args, run);
}

atom_status train_engine_step(train_engine *e, uint32_t step, double learning_rate,
                              train_step_result *result)
{
    bool clip = e->c.plan->clip, guess = train_ahead_next(&e->ahead);
    int64_t targets = count_targets(e);
    swap_result run;
    double begin = atom_clock_seconds();
    if (e->pending_step && e->rest != guess)
        ATOM_TRY(train_engine_drain(e));
    swap_step args = step_args(e, step, learning_rate, targets);
    swap_tape_kind kind = tape_of(e, guess);
    ATOM_TRY(before_updates(e, args.update_step, clip ? 0 : targets));
    ATOM_TRY(swap_exec_run(e->exec, e->low->tapes[kind], &args, &run));
    bool right = guess && run.scale == 1.0f;
    if (guess && !right) {
        kind = SWAP_TAPE_FIRST;
        ATOM_TRY(step_again(e, &args, &run));
    }
    train_ahead_saw(&e->ahead, run.grad_norm, guess, run.scale != 1.0f);
    e->rest = right;
    e->pending_step = clip ? step : 0;
    e->pending_rate = learning_rate;
    result->loss = targets ? sum_losses(e) / (double)targets : 0;
    result->grad_norm = run.grad_norm;
    result->seconds = atom_clock_seconds() - begin;
    result->tape = e->low->tapes[kind];
    result->targets = targets;
    if (!isfinite(result->loss))
        return atom_fail(
            ATOM_E_DIVERGED,
            "step %u: the loss is not finite; resume from the last checkpoint with a lower "
            "learning_rate or more warmup_steps",
            step);
    return ATOM_OK;
}

/* Where the wire copy was, gradients are now; then it is a copy of the masters again. */
static atom_status add_gradients(train_engine *e, float *sum)
{
    const swap_host_layout *h = &e->low->layout;
    const void *wire = slab_at(e, h->wire);
    if (e->c.bench->g->dtype == ATOM_F32)
        for (uint64_t i = 0; i < h->trained; i++)
            sum[i] += ((const float *)wire)[i];
    else
        for (uint64_t i = 0; i < h->trained; i++)
            sum[i] += atom_bf16_to_f32(((const atom_bf16 *)wire)[i]);
    return train_engine_sync(e);
}

atom_status train_engine_gradient(train_engine *e, uint32_t step, uint32_t first, float *sum,
                                  train_step_result *result)
{
    swap_result run;
    swap_step args = {.seed = e->c.seed,
                      .step = step,
                      .micro_batch = first,
                      .loss_scale = 1,
                      .starts = e->starts,
                      .starts_n = starts_n(e)};
    int64_t targets = count_targets(e);
    double begin = atom_clock_seconds();
    ATOM_ASSERT(e->c.plan->clip && e->pending_step == 0 && !e->c.plan->disk);
    atom_status st = ATOM_OK;
    ATOM_TRY(swap_exec_run(e->exec, e->low->tapes[SWAP_TAPE_FIRST], &args, &run));
    *result = (train_step_result){.loss = targets ? sum_losses(e) / (double)targets : 0,
                                  .grad_norm = run.grad_norm,
                                  .tape = e->low->tapes[SWAP_TAPE_FIRST],
                                  .targets = targets};
    if (!isfinite(result->loss))
        return atom_fail(ATOM_E_DIVERGED, "step %u: the loss is not finite", step);
    st = add_gradients(e, sum);
    result->seconds = atom_clock_seconds() - begin;
    return st;
}

atom_status train_engine_drain(train_engine *e)
{
    if (e->pending_step == 0)
        return ATOM_OK;
    swap_step args = {.seed = e->c.seed,
                      .step = e->pending_step,
                      .update_step = e->pending_step,
                      .max_grad_norm = (float)e->c.max_grad_norm,
                      .update = adamw_of(e, e->pending_step, e->pending_rate)};
    atom_status st = before_updates(e, e->pending_step, 0);
    swap_tape_kind kind = e->rest ? SWAP_TAPE_REST : SWAP_TAPE_DRAIN;
    if (st == ATOM_OK)
        st = swap_exec_run(e->exec, e->low->tapes[kind], &args, NULL);
    if (st == ATOM_OK) {
        e->pending_step = 0;
        e->rest = false;
    }
    return st;
}

atom_status train_engine_eval(train_engine *e, double *loss_sum, int64_t *targets)
{
    ATOM_TRY(train_engine_drain(e));
    swap_step args = {.seed = e->c.seed, .step = 0, .starts = e->starts, .starts_n = starts_n(e)};
    ATOM_TRY(swap_exec_run(e->exec, e->low->tapes[SWAP_TAPE_EVAL], &args, NULL));
    *targets = count_targets(e);
    *loss_sum = sum_losses(e);
    return ATOM_OK;
}
