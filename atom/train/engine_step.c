/*
 * Owns the steps of a running plan. One idea: a step is a tape plus the numbers that change between
 * steps; which tape comes next follows from whether an update is pending. Refuses to know whose
 * batch it computes.
 */
#include "atom/train/engine.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"

#include <math.h>

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

static krn_muon_step muon_of(const train_engine *e, uint32_t step, double rate)
{
    return (krn_muon_step){.scale = 1,
                           .momentum = (float)e->c.muon_momentum,
                           .lr = rate,
                           .decay = e->c.weight_decay,
                           .moments = e->c.bench->g->moments,
                           .rng = {.seed = e->c.seed, .step = step, .node = KRN_RNG_MOMENTS}};
}

static int64_t count_targets(train_engine *e, uint32_t first, uint32_t past)
{
    const graph *g = e->c.bench->g;
    int64_t n = g->micro_batch * g->sequence, count = 0;
    for (uint32_t i = first; i < past; i++) {
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
    return (const float *)train_engine_slab(e, h->losses + i * h->loss_bytes);
}

static double sum_losses(train_engine *e, uint32_t first, uint32_t past)
{
    const graph *g = e->c.bench->g;
    int64_t n = g->micro_batch * g->sequence;
    double sum = 0;
    for (uint32_t i = first; i < past; i++) {
        const float *losses = train_engine_losses(e, i);
        int32_t *tokens, *targets;
        train_engine_batch(e, i, &tokens, &targets);
        for (int64_t t = 0; t < n; t++)
            sum += targets[t] >= 0 ? (double)losses[t] : 0;
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
    uint32_t update_step = clip ? e->pending_step : step;
    double update_rate = clip ? e->pending_rate : rate;
    return (swap_step){.seed = e->c.seed,
                       .step = step,
                       .update_step = update_step,
                       .loss_scale = targets ? 1.0f / (float)targets : 0.0f,
                       .max_grad_norm = clip ? (float)e->c.max_grad_norm : 0.0f,
                       .starts = e->starts,
                       .starts_n = train_engine_starts_n(e),
                       .update = adamw_of(e, update_step, update_rate),
                       .muon = muon_of(e, update_step, update_rate),
                       .ahead = adamw_of(e, step, rate),
                       .muon_ahead = muon_of(e, step, rate)};
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
    int64_t targets = count_targets(e, 0, e->c.plan->micro_batches);
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
    result->loss = targets ? sum_losses(e, 0, e->c.plan->micro_batches) / (double)targets : 0;
    result->grad_norm = run.grad_norm;
    result->seconds = atom_clock_seconds() - begin;
    result->tape = e->low->tapes[kind];
    result->targets = targets;
    if (!isfinite(result->loss))
        return atom_fail(ATOM_E_DIVERGED, "step %u: the loss is not finite", step);
    return ATOM_OK;
}

/* Where the wire copy was, gradients are now; then it is a copy of the masters again. What lies between
 * parameters is of no gradient: a spill brings there what its buffer happened to hold. */
static atom_status add_gradients(train_engine *e, float *sum)
{
    const void *wire = train_engine_slab(e, e->low->layout.wire);
    bool floats = e->c.bench->g->dtype == ATOM_F32;
    for (uint32_t p = 0; p < e->low->n_params; p++) {
        uint64_t at = e->low->params[p].offset, end = at + e->low->params[p].elements;
        for (; floats && at < end; at++)
            sum[at] += ((const float *)wire)[at];
        for (; at < end; at++)
            sum[at] += atom_bf16_to_f32(((const atom_bf16 *)wire)[at]);
    }
    return train_engine_sync(e);
}

atom_status train_engine_gradient(train_engine *e, uint32_t step, uint32_t first, uint32_t n,
                                  float *sum, train_step_result *result)
{
    swap_result run;
    swap_step args = {.seed = e->c.seed,
                      .step = step,
                      .micro_batch = first,
                      .micro_batches = n,
                      .loss_scale = 1,
                      .starts = e->starts,
                      .starts_n = train_engine_starts_n(e)};
    int64_t targets = count_targets(e, 0, e->c.plan->micro_batches);
    double begin = atom_clock_seconds();
    ATOM_ASSERT(e->c.plan->clip && e->pending_step == 0);
    atom_status st = ATOM_OK;
    ATOM_TRY(swap_exec_run(e->exec, e->low->tapes[SWAP_TAPE_FIRST], &args, &run));
    double loss = sum_losses(e, 0, e->c.plan->micro_batches);
    *result = (train_step_result){.loss = targets ? loss / (double)targets : 0,
                                  .grad_norm = run.grad_norm,
                                  .tape = e->low->tapes[SWAP_TAPE_FIRST],
                                  .targets = targets};
    if (!isfinite(result->loss))
        return atom_fail(ATOM_E_DIVERGED, "step %u: the loss is not finite", step);
    st = add_gradients(e, sum);
    result->seconds = atom_clock_seconds() - begin;
    return st;
}

void train_engine_reseed(train_engine *e, uint64_t seed)
{
    e->c.seed = seed;
}

atom_status train_engine_drain(train_engine *e)
{
    if (e->pending_step == 0)
        return ATOM_OK;
    swap_step args = {.seed = e->c.seed,
                      .step = e->pending_step,
                      .update_step = e->pending_step,
                      .max_grad_norm = (float)e->c.max_grad_norm,
                      .update = adamw_of(e, e->pending_step, e->pending_rate),
                      .muon = muon_of(e, e->pending_step, e->pending_rate)};
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

atom_status train_engine_eval(train_engine *e, uint32_t n)
{
    ATOM_ASSERT(n > 0 && n <= e->c.plan->micro_batches);
    ATOM_TRY(train_engine_drain(e));
    swap_step args = {.seed = e->c.seed,
                      .step = 0,
                      .micro_batches = n,
                      .starts = e->starts,
                      .starts_n = train_engine_starts_n(e)};
    const swap_tape *next = e->in_slots ? e->low->tapes[SWAP_TAPE_EVAL_NEXT] : NULL;
    const swap_tape *tape = next ? next : e->low->tapes[SWAP_TAPE_EVAL];
    e->in_slots = false;
    ATOM_TRY(swap_exec_run(e->exec, tape, &args, NULL));
    e->in_slots = true;
    return ATOM_OK;
}

double train_engine_loss(train_engine *e, uint32_t first, uint32_t past, int64_t *targets)
{
    *targets = count_targets(e, first, past);
    return sum_losses(e, first, past);
}
