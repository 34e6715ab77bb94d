/*
 * Owns one step of a run: its batch, its numbers in metrics, events and trace. One idea: what a step
 * reads depends on its place in the order of the data alone. Refuses to decide whether another one
 * comes.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/mem.h"
#include "swap/stall.h"

#include <inttypes.h>
#include <stdio.h>

atom_status trainer_load(trainer *t, uint32_t i, uint64_t first)
{
    uint32_t B = (uint32_t)t->bench->g->micro_batch;
    int32_t *tokens, *targets;
    train_engine_batch(t->engine, i, &tokens, &targets);
    ATOM_TRY(text_sampler_read(&t->sampler, first, B, tokens, targets));
    if (t->apart)
        text_sampler_starts(&t->sampler, first, B, (uint32_t)t->vocab.start, tokens,
                            train_engine_starts(t->engine, i));
    return ATOM_OK;
}

static atom_status load_batch(trainer *t)
{
    uint64_t B = (uint64_t)t->bench->g->micro_batch;
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; st == ATOM_OK && i < t->plan->micro_batches; i++)
        st = trainer_load(t, i, (uint64_t)t->state.samples + i * B);
    return st;
}

static double peak_flops(const trainer *t)
{
    const part_device *d = &t->profile->device;
    double one = t->bench->g->dtype == ATOM_BF16 ? d->peak_flops_bf16 : d->peak_flops_fp32;
    return d->unified ? one : one * t->plan->devices;
}

static void add_events(trainer *t, int64_t step, const train_scalar *scalars, uint32_t n)
{
    if (t->events)
        trainer_logged(t, &t->events_log, "TensorBoard's event file",
                       train_events_add(t->events, step, scalars, n));
}

void trainer_log_eval(trainer *t, const train_eval_metrics *m)
{
    trainer_logged(t, &t->metrics_log, "metrics.jsonl", train_metrics_eval(t->metrics, m));
    add_events(t, m->step, &(train_scalar){"eval/loss", m->loss}, 1);
}

static void log_metrics(trainer *t, const train_step_metrics *m)
{
    const train_scalar scalars[] = {
        {"train/loss", m->loss},
        {"train/grad_norm", m->grad_norm},
        {"train/learning_rate", m->learning_rate},
        {"train/tokens_per_second", m->seconds > 0 ? (double)m->step_tokens / m->seconds : 0},
        {"train/tokens", (double)m->tokens},
        {"train/mfu", m->mfu},
    };
    uint32_t n = sizeof scalars / sizeof scalars[0] - (m->mfu < 0); /* last where it is known */
    trainer_logged(t, &t->metrics_log, "metrics.jsonl", train_metrics_step(t->metrics, m));
    add_events(t, m->step, scalars, n);
}

/* A token that is not learned takes as much work as another. Of a step that others make, too, only those
 * that are learned are known here. */
static double tokens_worked(const trainer *t, const train_step_result *r)
{
    const graph *g = t->bench->g;
    return trainer_is_shared(t)
               ? (double)r->targets
               : (double)(g->micro_batch * g->sequence) * (double)t->plan->micro_batches;
}

void trainer_log_step(trainer *t, const train_step_result *r, double rate)
{
    double tokens_per_second = r->seconds > 0 ? (double)r->targets / r->seconds : 0;
    double worked_per_second = r->seconds > 0 ? tokens_worked(t, r) / r->seconds : 0;
    double flops = train_flops_per_token(&t->bench->model.config, t->bench->g->sequence);
    if (t->bench->base) /* no products for weights' gradients: two of three */
        flops *= 2.0 / 3.0;
    double mfu = train_mfu(flops, worked_per_second, peak_flops(t));
    train_step_metrics m = {.step = t->state.step,
                            .loss = r->loss,
                            .grad_norm = r->grad_norm,
                            .learning_rate = rate,
                            .seconds = r->seconds,
                            .step_tokens = (uint64_t)r->targets,
                            .tokens = (uint64_t)t->state.tokens_seen,
                            .mfu = mfu,
                            .device_bytes = t->engine->devices[0]->peak_bytes,
                            .host_bytes = train_engine_host_bytes(t->engine)};
    train_report report = {.step = t->state.step,
                           .max_steps = t->config->max_steps,
                           .loss = r->loss,
                           .grad_norm = r->grad_norm,
                           .learning_rate = rate,
                           .seconds = r->seconds,
                           .tokens_per_second = tokens_per_second,
                           .mfu = mfu > 0 ? mfu : 0,
                           .tokens_seen = t->state.tokens_seen};
    log_metrics(t, &m);
    if (t->hooks.report)
        t->hooks.report(t->hooks.ctx, &report);
}

/* A trace that could not be written ends there. */
static void end_trace(trainer *t)
{
    trainer_note(t, "warning: %s. Training goes on, and nothing more is traced",
                 atom_fail_message());
    atom_status st = swap_trace_close(&t->trace);
    (void)st; /* it was said */
}

void trainer_note_spans(trainer *t, const train_step_result *r)
{
    uint32_t n;
    const swap_span *spans = swap_exec_spans(t->engine->exec, &n);
    swap_stalls stalls = swap_stalls_of(r->tape, spans);
    for (int s = 0; s < DEV_STREAM_N; s++)
        t->summary.waited_seconds[s] += stalls.waited_seconds[s];
    swap_host_time host = swap_exec_host_time(t->engine->exec);
    t->summary.issue_seconds += host.issue_seconds;
    t->summary.launch_seconds += host.launch_seconds;
    if (!t->trace)
        return;
    atom_status st =
        swap_trace_add(t->trace, r->tape, spans, host, (uint32_t)t->state.step, t->trace_seconds);
    t->trace_seconds += r->seconds;
    if (st != ATOM_OK)
        end_trace(t);
}

void trainer_begins(trainer *t, int64_t step, double loss)
{
    if (!isnan(t->summary.first_loss))
        return;
    if (t->steps_n == 0)
        t->first_step = step;
    t->summary.first_loss = loss;
}

atom_status trainer_remember(trainer *t, double seconds)
{
    ATOM_TRY(atom_grow(&t->step_seconds, t->steps_n, &t->steps_room, sizeof(double)));
    t->step_seconds[t->steps_n++] = seconds;
    return ATOM_OK;
}

/* What to do about a loss that is not finite: of what weights it is, or whether there is a checkpoint to go
 * back to. */
static atom_status explain(const trainer *t, atom_status st, int64_t step)
{
    char *newest = NULL, what[64];
    if (st != ATOM_E_DIVERGED)
        return st;
    snprintf(what, sizeof what, "step %" PRId64, step);
    if (t->odd.text[0])
        return file_odd_explain(&t->odd, st, what);
    if (train_checkpoint_newest(t->config->output_dir, &newest) == ATOM_OK && newest)
        st = atom_fail(st,
                       "%s: the loss is not finite; resume from the last checkpoint (%s) with a "
                       "lower learning_rate or more warmup_steps",
                       what, newest);
    else
        st = atom_fail(st,
                       "%s: the loss is not finite; start again with a lower learning_rate or "
                       "more warmup_steps",
                       what);
    atom_free(newest);
    return st;
}

/* A step of which no token counts has no loss: 0 would look like the best of all. Checkpoints and the summary
 * have that of the last step with one. */
static void note_unlearned(trainer *t, int64_t step)
{
    if (!t->unlearned)
        trainer_note(t,
                     "note: step %" PRId64 " has no token that counts, so nothing is learned in it "
                     "and its loss is nan, as in all such steps; with a larger "
                     "gradient_accumulation_steps or micro_batch_size there are fewer of them",
                     step);
    t->unlearned = true;
}

atom_status trainer_step(trainer *t)
{
    int64_t step = t->state.step + 1;
    double rate = trainer_seam_rate(t, step);
    train_step_result r = {0};
    ATOM_TRY(load_batch(t));
    ATOM_TRY(explain(t, train_engine_step(t->engine, (uint32_t)step, rate, &r), step));
    t->state.step = step;
    t->state.samples += t->bench->g->micro_batch * t->plan->micro_batches;
    t->state.tokens_seen += r.targets;
    if (r.targets == 0) {
        r.loss = (double)NAN;
        note_unlearned(t, step);
    } else {
        t->state.loss = t->summary.final_loss = r.loss;
    }
    trainer_seam_stepped(t);
    trainer_begins(t, step, r.loss);
    t->tokens_counted += r.targets;
    ATOM_TRY(trainer_remember(t, r.seconds));
    trainer_note_spans(t, &r);
    trainer_log_step(t, &r, rate);
    return ATOM_OK;
}
