/*
 * Owns a run from its first step to its last checkpoint. One idea: between two steps everything
 * that matters is (weights, moments, step, data position); whatever happens, the newest checkpoint
 * is such a state. Refuses to keep anything else across a restart.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void eval_starts(const trainer *t, uint64_t first, uint32_t n, const int32_t *tokens,
                        int32_t *starts)
{
    const graph *g = t->bench->g;
    int64_t used = (int64_t)n * g->sequence, all = g->micro_batch * g->sequence;
    text_windows_starts(t->val, (uint32_t)g->sequence, first, n, (uint32_t)t->vocab.start, tokens,
                        starts);
    memset(starts + used, 0, (size_t)(all - used) * sizeof *starts);
}

/* One pass over as many micro-batches as a step has, or as there are; the last one is padded with
 * windows whose targets are masked. */
static atom_status eval_batch(trainer *t, uint64_t first, uint64_t windows, double *sum,
                              int64_t *count)
{
    const graph *g = t->bench->g;
    uint32_t B = (uint32_t)g->micro_batch;
    int64_t targets_n;
    uint32_t i = 0;
    for (uint64_t at = first; i < t->plan->micro_batches && at < windows; i++, at += B) {
        int32_t *tokens, *targets;
        uint32_t n = windows - at < B ? (uint32_t)(windows - at) : B;
        train_engine_batch(t->engine, i, &tokens, &targets);
        ATOM_TRY(text_windows_read(t->val, (uint32_t)g->sequence, at, n, tokens, targets));
        for (int64_t e = (int64_t)n * g->sequence; e < g->micro_batch * g->sequence; e++) {
            tokens[e] = 0;
            targets[e] = -1;
        }
        if (t->apart)
            eval_starts(t, at, n, tokens, train_engine_starts(t->engine, i));
    }
    ATOM_TRY(train_engine_eval(t->engine, i));
    *sum += train_engine_loss(t->engine, 0, i, &targets_n);
    *count += targets_n;
    return ATOM_OK;
}

static atom_status evaluate(trainer *t)
{
    uint64_t windows = text_shards_windows(t->val, (uint32_t)t->bench->g->sequence);
    uint64_t per_batch = (uint64_t)t->bench->g->micro_batch * t->plan->micro_batches;
    uint64_t limit = t->config->eval_batches > 0
                         ? (uint64_t)(t->config->eval_batches * t->bench->g->micro_batch)
                         : windows;
    double begin = atom_clock_seconds(), sum = 0;
    int64_t count = 0;
    if (limit < windows)
        windows = limit;
    for (uint64_t first = 0; first < windows; first += per_batch)
        ATOM_TRY(eval_batch(t, first, windows, &sum, &count));
    double loss = count ? sum / (double)count : (double)NAN;
    train_eval_metrics m = {t->state.step, loss, (uint64_t)count, atom_clock_seconds() - begin};
    train_report report = {.step = t->state.step,
                           .max_steps = t->config->max_steps,
                           .loss = loss,
                           .seconds = m.seconds,
                           .tokens_seen = t->state.tokens_seen,
                           .validation = true};
    t->summary.validation_loss = loss;
    trainer_log_eval(t, &m);
    if (t->hooks.report)
        t->hooks.report(t->hooks.ctx, &report);
    return ATOM_OK;
}

/* Beside a state on disk that shares the file system, a checkpoint must not take the last byte: the run
 * needs some with every step. */
static bool has_room_beside(trainer *t)
{
    static const uint64_t BESIDE_BYTES = 4u << 20;
    uint64_t need, left;
    char why[256];
    if (!t->engine->disk || (!trainer_lacks_room(t, &need, &left) && left - need >= BESIDE_BYTES))
        return true;
    snprintf(why, sizeof why, "checkpoint of step %" PRId64 " was not begun", t->state.step);
    trainer_save_failed(t, why);
    return false;
}

/* Nothing comes after it, so it is written here and now. asked: somebody asked the run to end. */
static atom_status save_last(trainer *t, bool asked)
{
    char *path = NULL, *marks = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(trainer_snapshot_finish(t));
    ATOM_TRY_CLEAN(train_engine_drain(t->engine));
    train_checkpoint c = trainer_checkpoint(t);
    c.pool = marks = trainer_seam_marks(t);
    st = train_checkpoint_save(t->config->output_dir, &c, t->config->save_total_limit, &path);
    if (trainer_may_go_on(st) && !t->hooks.seam) /* which waits while it writes */
        st = trainer_save_persist(t, &c, st, asked, &path);
    ATOM_TRY_CLEAN(st);
    atom_free(t->summary.checkpoint);
    t->summary.checkpoint = path;
    trainer_note(t, "saved %s", path);
cleanup:
    atom_free(marks);
    return st;
}

static atom_status save(trainer *t, bool last, bool asked)
{
    trainer_logged(t, &t->metrics_log, "metrics.jsonl", train_metrics_sync(t->metrics));
    trainer_fill_state(t, &t->state);
    if (last)
        return save_last(t, asked);
    return has_room_beside(t) ? trainer_snapshot_ask(t) : ATOM_OK;
}

/* Whether one of the steps (before, step] is a multiple of `every`. 0: never. */
static bool crosses(int64_t before, int64_t step, int64_t every)
{
    return every > 0 && step / every > before / every;
}

/* No step: somebody who takes part still gives and takes weights. */
static atom_status stand(trainer *t)
{
    const train_seam *s = t->hooks.seam;
    bool changed = false;
    ATOM_TRY(trainer_snapshot_finish(t)); /* it reads what may change now */
    ATOM_TRY(train_engine_drain(t->engine));
    ATOM_TRY(s->stand(s->ctx, train_engine_vector(t->engine, SWAP_STATE_MASTER), &changed));
    if (changed)
        ATOM_TRY(train_engine_sync(t->engine));
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    return ATOM_OK;
}

/* A step, if there is one to make. Whoever takes part may have ended the run since it was asked last. */
static atom_status turn(trainer *t, bool *stepped, int64_t *evaluated)
{
    *stepped = false;
    if (trainer_seam_stands(t)) {
        *evaluated = -1; /* that was of other weights */
        return stand(t);
    }
    if (trainer_seam_done(t))
        return ATOM_OK;
    *stepped = true;
    return trainer_is_shared(t) ? trainer_shared_turn(t, stepped) : trainer_step(t);
}

/* What was due after the step that the state on disk is of, where the run was killed between the two. */
static atom_status evaluate_again(trainer *t)
{
    int64_t step = t->state.step;
    bool due = trainer_seam_done(t) || crosses(step - 1, step, t->config->eval_steps);
    if (!t->val || !due || train_metrics_validated(t->metrics, step, &t->summary.validation_loss))
        return ATOM_OK;
    return evaluate(t);
}

/* The state on disk is that of the last step, but the run was killed before it was saved. */
static atom_status end_again(trainer *t)
{
    if (t->hooks.save_nothing)
        return ATOM_OK;
    trainer_note(t, "all steps were made before; the last checkpoint is saved now");
    return save(t, true, false);
}

static atom_status run_steps(trainer *t)
{
    const train_config *c = t->config;
    int64_t saved = t->state.step, evaluated = -1;
    bool done = trainer_seam_done(t);
    if (t->from_disk && !t->hooks.seam)
        ATOM_TRY(evaluate_again(t));
    if (done && !t->hooks.seam)
        return end_again(t);
    while (!done) {
        bool stepped;
        int64_t before = t->state.step; /* a member that catches up makes several at once */
        ATOM_TRY(turn(t, &stepped, &evaluated));
        ATOM_TRY(trainer_snapshot_poll(t));
        int64_t step = t->state.step;
        done = trainer_seam_done(t);
        if (stepped && t->val && crosses(before, step, c->eval_steps)) {
            ATOM_TRY(evaluate(t));
            evaluated = step;
        }
        bool stop = trainer_stops(t);
        bool lost = trainer_disk_lost(t);
        bool due = stepped && (crosses(before, step, c->save_steps) || trainer_save_again(t));
        if (stop || lost || done || due) {
            if (done && t->val && evaluated != step)
                ATOM_TRY(evaluate(t));
            if (!t->hooks.save_nothing)
                ATOM_TRY(save(t, stop || done, stop && !done));
            saved = step;
        }
        if (stop && !done) {
            t->summary.interrupted = true;
            return atom_fail(ATOM_E_INTERRUPTED,
                             "stopped after step %" PRId64
                             "; continue with --resume-from-checkpoint auto",
                             saved);
        }
    }
    return ATOM_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_seconds(trainer *t)
{
    /* the first step of a run also touches memory and creates primitives */
    size_t skip = t->steps_n > 2 ? 1 : 0, n = t->steps_n - skip;
    if (n == 0)
        return 0;
    qsort(t->step_seconds + skip, n, sizeof(double), by_value);
    return t->step_seconds[skip + n / 2];
}

/* Busy times: where each device has such a stream, the mean. */
static void add_stats(const trainer *t, dev_stream_kind stream, train_summary *s)
{
    uint32_t n = dev_stream_is_own(stream) ? t->engine->n_devices : 1;
    for (uint32_t d = 0; d < n; d++) {
        dev_stats stats = swap_exec_stats(t->engine->exec, d, stream);
        s->busy_seconds[stream] += stats.busy_seconds / n;
        s->bytes_copied[stream] += stats.bytes_copied;
    }
}

static void fill_summary(trainer *t)
{
    train_summary *s = &t->summary;
    const graph *g = t->bench->g;
    uint64_t each = atom_dtype_bytes(g->dtype);
    s->first_step = t->first_step;
    s->steps = t->state.step;
    s->seconds = 0;
    for (size_t i = 0; i < t->steps_n; i++)
        s->seconds += t->step_seconds[i];
    s->median_step_seconds = median_seconds(t);
    s->predicted_step_seconds = t->plan->predicted_step_seconds;
    s->ahead_steps = (int64_t)t->engine->ahead.right;
    s->ahead_wrong = (int64_t)t->engine->ahead.wrong;
    double tokens = (double)(g->micro_batch * g->sequence * t->plan->micro_batches);
    bool shared = t->hooks.seam && t->hooks.seam->shared; /* a step has tokens of others, too */
    double all = shared ? (double)t->tokens_counted : tokens * (double)t->steps_n;
    s->mean_tokens_per_second = s->seconds > 0 ? all / s->seconds : 0;
    s->tokens_per_second = shared                       ? s->mean_tokens_per_second
                           : s->median_step_seconds > 0 ? tokens / s->median_step_seconds
                                                        : 0;
    s->device_peak_bytes = t->engine->devices[0]->peak_bytes;
    s->device_budget_bytes = t->plan->device_budget_bytes;
    s->host_plan_bytes = train_engine_host_bytes(t->engine);
    s->host_peak_bytes = train_engine_host_peak(t->engine);
    s->spare_bytes = t->engine->spare_bytes;
    s->spare_peak_bytes = t->engine->spare_peak;
    s->param_bytes = g->param_elements * each;
    s->model_state_bytes = g->param_elements * each +
                           g->trained_elements * (each + atom_state_bytes(g->moments)) -
                           graph_matrix_elements(g) * atom_dtype_bytes(g->moments);
    /* slots also hold room between parameters, and what two sub-models use is in both */
    s->largest_visit_bytes = t->engine->low->largest_visit_bytes;
    if (s->largest_visit_bytes > s->param_bytes)
        s->largest_visit_bytes = s->param_bytes;
    s->sub_models = t->plan->n_sub_models;
    s->execute = t->engine->execute;
    s->boundaries = t->bench->boundaries;
    s->devices = t->engine->n_devices;
    for (int i = 0; i < DEV_STREAM_N; i++)
        add_stats(t, (dev_stream_kind)i, s);
}

/* The steps of a run with others wait for these, those on disk for the disk, and a profile or plan from a
 * file may be of another machine: none of that is the cached profile's fault. */
static void weigh_profile(trainer *t)
{
    const train_config *c = t->config;
    const train_summary *s = &t->summary;
    if (c->profile || c->plan || t->hooks.seam || t->engine->disk ||
        !plan_profile_weigh(t->bench, s->predicted_step_seconds, s->median_step_seconds,
                            t->steps_n))
        return;
    trainer_note(t,
                 "note: the median step took %.3g s, and %.3g s were predicted; the next command "
                 "that needs the profile measures this machine again",
                 s->median_step_seconds, s->predicted_step_seconds);
}

atom_status trainer_run(trainer *t, train_summary *summary)
{
    t->summary.first_loss = t->summary.final_loss = t->summary.validation_loss = (double)NAN;
    atom_status st = run_steps(t);
    if (st == ATOM_OK && t->engine->disk)
        trainer_disk_done(t);
    fill_summary(t);
    weigh_profile(t);
    *summary = t->summary;
    return st;
}
