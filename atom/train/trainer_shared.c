/*
 * Owns a run whose steps many make together (train_seam.shared): the trainer computes gradients of
 * the micro-batches it is given, in passes of as many as its plan has, and takes the weights that
 * came of everybody's. One idea: what is computed depends on the sample's place in the order of the
 * run alone, so it does not matter who does it. Refuses to update anything.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/clock.h"

#include <math.h>

enum { PATIENCE = 100 }; /* takes without anything to do, before a stop ends a wait for weights */

/* How many of the lease's micro-batches from `at` on one pass takes: neighbours, because random
 * numbers count from the first. */
static uint32_t run_of(const trainer *t, const train_lease *l, uint32_t at)
{
    uint32_t n = 1;
    while (at + n < l->n && n < t->plan->micro_batches &&
           l->micro_batch[at + n] == l->micro_batch[at] + n)
        n++;
    return n;
}

/* Micro-batches [at, at + n) of the lease; what the plan has beyond them is masked, and not run. */
static atom_status load(trainer *t, const train_lease *l, uint32_t at, uint32_t n)
{
    const graph *g = t->bench->g;
    uint32_t B = (uint32_t)g->micro_batch;
    for (uint32_t i = 0; i < t->plan->micro_batches; i++) {
        int32_t *tokens, *targets;
        train_engine_batch(t->engine, i, &tokens, &targets);
        if (i < n) {
            uint64_t sample = l->first_sample + (uint64_t)l->micro_batch[at + i] * B;
            ATOM_TRY(trainer_load(t, i, sample));
            continue;
        }
        for (int64_t e = 0; e < g->micro_batch * g->sequence; e++) {
            tokens[e] = 0;
            targets[e] = -1;
            if (t->apart)
                train_engine_starts(t->engine, i)[e] = 0;
        }
    }
    return ATOM_OK;
}

static atom_status compute(trainer *t, const train_lease *l)
{
    const train_seam *seam = t->hooks.seam;
    uint64_t tokens = 0;
    for (uint32_t at = 0, n; at < l->n; at += n) {
        train_step_result r = {0};
        n = run_of(t, l, at);
        ATOM_TRY(load(t, l, at, n));
        ATOM_TRY(train_engine_gradient(t->engine, (uint32_t)l->batch + 1, l->micro_batch[at], n,
                                       l->sum, &r));
        trainer_note_spans(t, &r);
        t->share.loss += r.loss * (double)r.targets;
        t->share.targets += r.targets;
        tokens += (uint64_t)r.targets;
        if (!seam->current(seam->ctx, l))
            return ATOM_OK;
    }
    seam->bring(seam->ctx, l, tokens);
    return ATOM_OK;
}

/* The weights are those of another step. Loss and rate of tokens are of what was computed here. */
static atom_status arrive(trainer *t, const train_lease *l)
{
    double now = atom_clock_seconds();
    int64_t before = t->state.step;
    train_step_result r = t->share;
    ATOM_TRY(train_engine_sync(t->engine));
    if (l->behind)
        return ATOM_OK;
    r.loss = r.targets ? r.loss / (double)r.targets : t->summary.final_loss;
    r.grad_norm = l->grad_norm;
    r.seconds = t->share_began > 0 ? now - t->share_began : 0;
    t->share = (train_step_result){0};
    t->share_began = now;
    t->state.step = (int64_t)l->steps;
    t->state.samples = (int64_t)l->samples;
    t->state.tokens_seen = t->state.samples * t->bench->g->sequence; /* by everybody */
    if (t->state.step <= before || isnan(r.loss))
        return ATOM_OK;
    t->state.loss = r.loss;
    trainer_seam_stepped(t);
    trainer_begins(t, before + 1, r.loss);
    if (r.seconds > 0)
        t->tokens_counted += r.targets;
    t->summary.final_loss = r.loss;
    ATOM_TRY(trainer_remember(t, r.seconds));
    /* A state that was fetched whole is the result of steps that were not made here. */
    if (l->rate != 0 || l->grad_norm != 0)
        trainer_log_step(t, &r, l->rate);
    return ATOM_OK;
}

/* Steps of its own have an order of samples of their own, that all do not read the same ones. */
static atom_status follow(trainer *t, uint64_t seed)
{
    if (t->sampler.seed == seed)
        return ATOM_OK;
    train_engine_reseed(t->engine, seed);
    return text_sampler_make(t->train, (uint32_t)t->bench->g->sequence, seed, &t->sampler);
}

bool trainer_stops(trainer *t)
{
    double asked = atom_clock_seconds();
    bool stop = t->hooks.stop && t->hooks.stop(t->hooks.ctx);
    if (t->share_began > 0)
        t->share_began += atom_clock_seconds() - asked;
    return stop;
}

/* The member's leases one after the other, until the newest weights are in place: only these belong to the
 * moments and the step that a checkpoint would have. */
static atom_status turn(trainer *t, const file_vector state[3], const train_reader *reader)
{
    const train_seam *seam = t->hooks.seam;
    train_lease l;
    for (int idle = 0;; idle += l.n == 0) {
        ATOM_TRY(train_engine_drain(t->engine));
        ATOM_TRY(seam->take(seam->ctx, state, reader, &l));
        if (l.moved)
            ATOM_TRY(arrive(t, &l));
        if (l.n > 0)
            ATOM_TRY(compute(t, &l));
        if (!l.behind)
            return ATOM_OK;
        if (idle >= PATIENCE && trainer_stops(t))
            return atom_fail(ATOM_E_INTERRUPTED,
                             "stopped while the pool's weights were changing, so no checkpoint "
                             "was saved now; earlier checkpoints are complete");
    }
}

atom_status trainer_shared_turn(trainer *t, bool *stepped)
{
    const train_seam *seam = t->hooks.seam;
    bool own = seam->own &&
               seam->own(seam->ctx, (uint64_t)t->state.samples, (uint64_t)t->state.tokens_seen);
    ATOM_TRY(follow(t, own ? seam->own_seed : (uint64_t)t->config->seed));
    if (own)
        return trainer_step(t);
    const file_vector state[3] = {train_engine_vector(t->engine, SWAP_STATE_MASTER),
                                  train_engine_vector(t->engine, SWAP_STATE_M),
                                  train_engine_vector(t->engine, SWAP_STATE_V)};
    int64_t before = t->state.step;
    const train_reader reader = trainer_snapshot_reader(t);
    ATOM_TRY(turn(t, state, &reader));
    *stepped = t->state.step != before;
    return ATOM_OK;
}
