/*
 * Owns a run from configuration to last checkpoint. One idea: between two steps everything that
 * matters is (weights, moments, step, data position); whatever happens, the newest checkpoint is
 * such a state. Refuses to keep anything else across a restart.
 */
#include "atom/train/trainer.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/tokenizer.h"
#include "atom/train/checkpoint.h"
#include "atom/train/engine.h"
#include "atom/train/init.h"
#include "atom/train/metrics.h"
#include "atom/train/schedule.h"
#include "swap/stall.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trainer {
    const train_config *config;
    train_hooks hooks;
    train_workbench *bench;
    part_profile *profile;
    part_plan *plan;
    train_engine *engine;
    text_shards *train, *val;
    text_sampler sampler;
    train_metrics *metrics;
    swap_trace *trace;
    train_schedule schedule;
    train_state state;
    int64_t end_token;
    uint32_t vocab; /* of the data's tokenizer; 0: unknown */
    int64_t first_step;
    double trace_seconds; /* where the next step goes in the trace */
    double *step_seconds; /* of this run, for the median */
    size_t steps_n, steps_room;
    train_summary summary;
};

static void note(const trainer *t, const char *fmt, ...) ATOM_PRINTF(2, 3);
static void note(const trainer *t, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (!t->hooks.note)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->hooks.note(t->hooks.ctx, text);
}

/* --- opening
 * -------------------------------------------------------------------------------------- */

/* *vocab is 0 and *end is -1 when the data has no tokenizer. */
static atom_status read_tokenizer(const char *data, uint32_t *vocab, int64_t *end)
{
    text_tokenizer *tokenizer = NULL;
    char *path = atom_path_join(data, "tokenizer.json");
    atom_status st = ATOM_OK;
    *vocab = 0;
    *end = -1;
    if (path && atom_path_exists(path)) {
        st = text_tokenizer_load(path, &tokenizer);
        if (st == ATOM_OK) {
            *vocab = text_tokenizer_vocab(tokenizer);
            *end = (int64_t)text_tokenizer_end(tokenizer);
        }
    }
    text_tokenizer_close(&tokenizer);
    atom_free(path);
    return st;
}

/* Vocabularies are padded so that the head's matrices have friendly sizes. */
static int64_t padded_vocab(uint32_t vocab)
{
    return vocab ? ((int64_t)vocab + 63) / 64 * 64 : 0;
}

atom_status train_vocab_size(const char *data, int64_t *vocab_size)
{
    uint32_t vocab = 0;
    int64_t end = -1;
    atom_status st = read_tokenizer(data, &vocab, &end);
    if (st == ATOM_OK)
        *vocab_size = padded_vocab(vocab);
    return st;
}

static atom_status open_model(trainer *t)
{
    const train_config *c = t->config;
    train_bench_config bench = {.model = c->model,
                                .micro_batch = c->micro_batch_size,
                                .sequence = c->sequence_len,
                                .dtype = c->dtype,
                                .device = c->device,
                                .dropout = c->dropout,
                                .vocab_size = padded_vocab(t->vocab),
                                .threads = c->threads,
                                .link_bandwidth = c->link_bandwidth};
    atom_status st = train_workbench_open(&bench, &t->bench);
    if (st == ATOM_OK && t->vocab && t->bench->model.config.vocab_size < (int64_t)t->vocab)
        return atom_fail(ATOM_E_USAGE,
                         "the tokenizer of %s has %u tokens, the model only %lld; prepare the data "
                         "with the model's tokenizer, or raise vocab_size in its config.json",
                         c->data, t->vocab, (long long)t->bench->model.config.vocab_size);
    return st;
}

static atom_status open_data(trainer *t)
{
    const train_config *c = t->config;
    uint32_t vocab = (uint32_t)t->bench->model.config.vocab_size;
    uint32_t T = (uint32_t)t->bench->g->sequence;
    atom_status st;
    ATOM_TRY(text_shards_open(c->data, TEXT_TRAIN, vocab, &t->train));
    ATOM_TRY(text_sampler_make(t->train, T, (uint64_t)c->seed, &t->sampler));
    if (c->eval_steps > 0) {
        if (!text_shards_exist(c->data, TEXT_VAL)) {
            note(t, "%s has no validation split; eval_steps is ignored", c->data);
            return ATOM_OK;
        }
        ATOM_TRY(text_shards_open(c->data, TEXT_VAL, vocab, &t->val));
        if (text_shards_windows(t->val, T) == 0) {
            note(t,
                 "the validation split is shorter than one window of %u tokens; eval_steps is "
                 "ignored",
                 T);
            text_shards_close(&t->val);
        }
    }
fail:
    return st;
}

static atom_status open_plan(trainer *t)
{
    const train_config *c = t->config;
    uint32_t C = (uint32_t)c->gradient_accumulation_steps;
    bool cached = false;
    atom_status st;
    ATOM_TRY(train_profile_get(t->bench, c->profile, t->hooks.progress, t->hooks.ctx, &t->profile,
                               &cached));
    if (cached)
        note(t, "profile: from the cache");
    if (c->plan) {
        ATOM_TRY(part_plan_read(c->plan, &t->plan));
        ATOM_TRY(part_plan_check(t->plan, t->bench->g));
        if (t->plan->micro_batches != C)
            return atom_fail(
                ATOM_E_USAGE,
                "%s is a plan for %u micro-batches per step, gradient_accumulation_steps "
                "is %u; plan again, or use %u",
                c->plan, t->plan->micro_batches, C, t->plan->micro_batches);
        if (t->plan->clip != (c->max_grad_norm > 0))
            return atom_fail(ATOM_E_USAGE,
                             "%s was made %s clipping; plan again, or change max_grad_norm",
                             c->plan, t->plan->clip ? "with" : "without");
        if (c->device_memory)
            t->plan->device_budget_bytes = c->device_memory;
        return ATOM_OK;
    }
    train_plan_request request = {.device_memory = c->device_memory,
                                  .host_memory = c->host_memory,
                                  .micro_batches = C,
                                  .clip = c->max_grad_norm > 0,
                                  .recompute = c->recompute == TRAIN_RECOMPUTE_NEVER    ? 0
                                               : c->recompute == TRAIN_RECOMPUTE_ALWAYS ? 1
                                                                                        : -1};
    ATOM_TRY(train_plan_search(t->bench->g, t->profile, t->bench->table, &request, &t->plan, NULL));
fail:
    return st;
}

static atom_status open_engine(trainer *t)
{
    const train_config *c = t->config;
    train_engine_config config = {.bench = t->bench,
                                  .plan = t->plan,
                                  .profile = t->profile,
                                  .execute = c->execute,
                                  .adam_beta1 = c->adam_beta1,
                                  .adam_beta2 = c->adam_beta2,
                                  .adam_epsilon = c->adam_epsilon,
                                  .weight_decay = c->weight_decay,
                                  .max_grad_norm = c->max_grad_norm,
                                  .seed = (uint64_t)c->seed};
    atom_status st = train_engine_open(&config, &t->engine);
    if (st == ATOM_OK && t->engine->why[0])
        note(t, "execute: interpreted (%s)", t->engine->why);
    return st;
}

static train_checkpoint checkpoint_of(trainer *t)
{
    return (train_checkpoint){.g = t->bench->g,
                              .config = &t->bench->model.config,
                              .source = t->bench->model.source,
                              .data = t->config->data,
                              .end_token = t->end_token,
                              .master = train_engine_master(t->engine),
                              .m = train_engine_m(t->engine),
                              .v = train_engine_v(t->engine),
                              .state = t->state};
}

/* Which checkpoint to go on from; NULL: none. Refuses a used output_dir otherwise. */
static atom_status find_resume(const trainer *t, char **path)
{
    const train_config *c = t->config;
    const char *resume = c->resume_from_checkpoint;
    char *metrics = atom_path_join(c->output_dir, "metrics.jsonl");
    atom_status st = ATOM_OK;
    *path = NULL;
    bool none = !resume || strcmp(resume, "none") == 0;
    if (resume && strcmp(resume, "auto") == 0) {
        st = train_checkpoint_newest(c->output_dir, path);
    } else if (!none) {
        *path = atom_strdup(resume);
        st = *path ? ATOM_OK : atom_fail_memory("a path", 256);
    } else if (!c->overwrite) {
        char *newest = NULL;
        st = train_checkpoint_newest(c->output_dir, &newest);
        if (st == ATOM_OK && (newest || (metrics && atom_path_exists(metrics))))
            st = atom_fail(ATOM_E_USAGE,
                           "output_dir %s already holds a run; go on with --resume-from-checkpoint "
                           "auto, replace it with --overwrite, or choose another output_dir",
                           c->output_dir);
        atom_free(newest);
    }
    atom_free(metrics);
    return st;
}

static void check_resumed(const trainer *t)
{
    const train_state *s = &t->state;
    const graph *g = t->bench->g;
    if (s->seed != (uint64_t)t->config->seed)
        note(t, "resume: the seed changed; the order of the data and dropout are new from here");
    if (s->data_hash != text_shards_hash(t->train))
        note(t, "resume: the data set changed since the checkpoint");
    if (s->micro_batch != g->micro_batch || s->sequence != g->sequence ||
        s->micro_batches != t->plan->micro_batches)
        note(t, "resume: the batch shape changed; the bits will differ from an uninterrupted run");
}

static atom_status load_weights(trainer *t)
{
    char *resume = NULL;
    float *master = train_engine_master(t->engine);
    atom_status st;
    ATOM_TRY(find_resume(t, &resume));
    if (resume) {
        train_checkpoint c = checkpoint_of(t);
        ATOM_TRY(train_checkpoint_load(resume, &c));
        t->state = c.state;
        check_resumed(t);
        note(t, "resumed from %s (step %" PRId64 ")", resume, t->state.step);
    } else if (t->bench->model.has_weights) {
        ATOM_TRY(file_weights_read(t->bench->model.dir, t->bench->g, master));
    } else {
        train_init_weights(t->bench->g, (uint64_t)t->config->seed, master);
    }
    train_engine_sync(t->engine);
    if (t->state.step >= t->config->max_steps)
        st = atom_fail(ATOM_E_USAGE,
                       "the checkpoint is at step %" PRId64 " and max_steps is %" PRId64
                       "; raise max_steps to train on",
                       t->state.step, t->config->max_steps);
fail:
    atom_free(resume);
    return st;
}

static atom_status open_outputs(trainer *t)
{
    atom_status st;
    char *path = atom_path_join(t->config->output_dir, "metrics.jsonl");
    if (!path)
        return atom_fail_memory("a path", 256);
    ATOM_TRY(atom_dir_make(t->config->output_dir));
    ATOM_TRY(train_metrics_open(path, t->state.step, &t->metrics));
    if (t->config->trace)
        ATOM_TRY(swap_trace_open(t->config->trace, &t->trace));
fail:
    atom_free(path);
    return st;
}

static atom_status remove_old_run(const train_config *c)
{
    atom_status st = ATOM_OK;
    char *path = NULL;
    const char *resume = c->resume_from_checkpoint;
    if (!c->overwrite || (resume && strcmp(resume, "none") != 0))
        return ATOM_OK;
    for (;;) {
        ATOM_TRY(train_checkpoint_newest(c->output_dir, &path));
        if (!path)
            return ATOM_OK;
        ATOM_TRY(atom_dir_remove(path));
        atom_free(path);
        path = NULL;
    }
fail:
    atom_free(path);
    return st;
}

static atom_status check_config(const train_config *c)
{
    if (!c->data)
        return atom_fail(ATOM_E_USAGE,
                         "data is missing; name a directory made by `atom data prepare`");
    if (!c->output_dir)
        return atom_fail(ATOM_E_USAGE,
                         "output_dir is missing; name a directory for the checkpoints");
    return train_config_check(c);
}

atom_status trainer_open(const train_config *config, const train_hooks *hooks, trainer **out)
{
    atom_status st;
    char *ignored = NULL;
    trainer *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("the trainer", sizeof *t);
    t->config = config;
    if (hooks)
        t->hooks = *hooks;
    t->state.loss = (double)NAN;
    ATOM_TRY(check_config(config));
    ATOM_TRY(find_resume(t, &ignored)); /* refuse before the expensive part */
    ATOM_TRY(read_tokenizer(config->data, &t->vocab, &t->end_token));
    ATOM_TRY(open_model(t));
    ATOM_TRY(open_data(t));
    ATOM_TRY(open_plan(t));
    ATOM_TRY(open_engine(t));
    ATOM_TRY(load_weights(t));
    if (!config->dry_run) {
        ATOM_TRY(remove_old_run(config));
        ATOM_TRY(open_outputs(t));
    }
    t->schedule = train_schedule_make(config);
    t->first_step = t->state.step + 1;
    atom_free(ignored);
    *out = t;
    return ATOM_OK;
fail:
    atom_free(ignored);
    trainer_close(&t);
    return st;
}

void trainer_close(trainer **t_ref)
{
    trainer *t = *t_ref;
    if (!t)
        return;
    if (t->trace && swap_trace_close(&t->trace) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    train_metrics_close(&t->metrics);
    train_engine_close(&t->engine);
    part_plan_close(&t->plan);
    part_profile_close(&t->profile);
    text_shards_close(&t->train);
    text_shards_close(&t->val);
    train_workbench_close(&t->bench);
    atom_free(t->step_seconds);
    atom_free(t->summary.checkpoint);
    atom_free(t);
    *t_ref = NULL;
}

/* --- steps
 * ---------------------------------------------------------------------------------------- */

static atom_status load_batch(trainer *t)
{
    uint32_t B = (uint32_t)t->bench->g->micro_batch;
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; st == ATOM_OK && i < t->plan->micro_batches; i++) {
        int32_t *tokens, *targets;
        train_engine_batch(t->engine, i, &tokens, &targets);
        st = text_sampler_read(&t->sampler, (uint64_t)t->state.samples + (uint64_t)i * B, B, tokens,
                               targets);
    }
    return st;
}

static double peak_flops(const trainer *t)
{
    const part_device *d = &t->profile->device;
    return t->bench->g->dtype == ATOM_BF16 ? d->peak_flops_bf16 : d->peak_flops_fp32;
}

static atom_status log_step(trainer *t, const train_step_result *r, double rate)
{
    double tokens_per_second = r->seconds > 0 ? (double)r->targets / r->seconds : 0;
    double flops = train_flops_per_token(&t->bench->model.config, t->bench->g->sequence);
    double mfu = train_mfu(flops, tokens_per_second, peak_flops(t));
    train_step_metrics m = {.step = t->state.step,
                            .loss = r->loss,
                            .grad_norm = r->grad_norm,
                            .learning_rate = rate,
                            .seconds = r->seconds,
                            .step_tokens = (uint64_t)r->targets,
                            .tokens = (uint64_t)t->state.tokens_seen,
                            .mfu = mfu,
                            .device_bytes = t->engine->device->peak_bytes,
                            .host_bytes = t->engine->low->host_bytes};
    train_report report = {.step = t->state.step,
                           .max_steps = t->config->max_steps,
                           .loss = r->loss,
                           .grad_norm = r->grad_norm,
                           .learning_rate = rate,
                           .seconds = r->seconds,
                           .tokens_per_second = tokens_per_second,
                           .mfu = mfu > 0 ? mfu : 0,
                           .tokens_seen = t->state.tokens_seen};
    atom_status st = train_metrics_step(t->metrics, &m);
    if (st == ATOM_OK && t->hooks.report)
        t->hooks.report(t->hooks.ctx, &report);
    return st;
}

static atom_status note_spans(trainer *t, const train_step_result *r)
{
    uint32_t n;
    const swap_span *spans = swap_exec_spans(t->engine->exec, &n);
    swap_stalls stalls = swap_stalls_of(r->tape, spans);
    for (int s = 0; s < DEV_STREAM_N; s++)
        t->summary.waited_seconds[s] += stalls.waited_seconds[s];
    if (!t->trace)
        return ATOM_OK;
    atom_status st =
        swap_trace_add(t->trace, r->tape, spans, (uint32_t)t->state.step, t->trace_seconds);
    t->trace_seconds += r->seconds;
    return st;
}

static atom_status remember_seconds(trainer *t, double seconds)
{
    atom_status st =
        atom_grow((void **)&t->step_seconds, t->steps_n, &t->steps_room, sizeof(double));
    if (st == ATOM_OK)
        t->step_seconds[t->steps_n++] = seconds;
    return st;
}

static atom_status one_step(trainer *t)
{
    int64_t step = t->state.step + 1;
    double rate = train_schedule_rate(&t->schedule, step);
    train_step_result r = {0};
    atom_status st;
    ATOM_TRY(load_batch(t));
    ATOM_TRY(train_engine_step(t->engine, (uint32_t)step, rate, &r));
    t->state.step = step;
    t->state.samples += t->bench->g->micro_batch * t->plan->micro_batches;
    t->state.tokens_seen += r.targets;
    t->state.loss = r.loss;
    if (step == t->first_step)
        t->summary.first_loss = r.loss;
    t->summary.final_loss = r.loss;
    ATOM_TRY(remember_seconds(t, r.seconds));
    ATOM_TRY(note_spans(t, &r));
    ATOM_TRY(log_step(t, &r, rate));
fail:
    return st;
}

/* One evaluation batch; what does not fill it is padded with windows whose targets are masked. */
static atom_status eval_batch(trainer *t, uint64_t first, uint64_t windows, double *sum,
                              int64_t *count)
{
    const graph *g = t->bench->g;
    uint32_t B = (uint32_t)g->micro_batch;
    double loss;
    int64_t targets_n;
    atom_status st;
    for (uint32_t i = 0; i < t->plan->micro_batches; i++) {
        int32_t *tokens, *targets;
        uint64_t at = first + (uint64_t)i * B;
        uint64_t left = at < windows ? windows - at : 0;
        uint32_t n = left < B ? (uint32_t)left : B;
        train_engine_batch(t->engine, i, &tokens, &targets);
        if (n)
            ATOM_TRY(text_windows_read(t->val, (uint32_t)g->sequence, at, n, tokens, targets));
        for (int64_t e = (int64_t)n * g->sequence; e < g->micro_batch * g->sequence; e++) {
            tokens[e] = 0;
            targets[e] = -1;
        }
    }
    ATOM_TRY(train_engine_eval(t->engine, &loss, &targets_n));
    *sum += loss;
    *count += targets_n;
fail:
    return st;
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
    atom_status st;
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
    ATOM_TRY(train_metrics_eval(t->metrics, &m));
    if (t->hooks.report)
        t->hooks.report(t->hooks.ctx, &report);
fail:
    return st;
}

static atom_status save(trainer *t)
{
    char *path = NULL;
    const graph *g = t->bench->g;
    atom_status st;
    ATOM_TRY(train_engine_drain(t->engine));
    ATOM_TRY(train_metrics_sync(t->metrics));
    t->state.seed = (uint64_t)t->config->seed;
    t->state.data_hash = text_shards_hash(t->train);
    t->state.micro_batch = g->micro_batch;
    t->state.sequence = g->sequence;
    t->state.micro_batches = t->plan->micro_batches;
    t->state.max_steps = t->config->max_steps;
    train_checkpoint c = checkpoint_of(t);
    ATOM_TRY(train_checkpoint_save(t->config->output_dir, &c, t->config->save_total_limit, &path));
    atom_free(t->summary.checkpoint);
    t->summary.checkpoint = path;
    note(t, "saved %s", path);
fail:
    return st;
}

static atom_status run_steps(trainer *t)
{
    const train_config *c = t->config;
    atom_status st;
    int64_t saved = t->state.step, evaluated = -1;
    while (t->state.step < c->max_steps) {
        ATOM_TRY(one_step(t));
        int64_t step = t->state.step;
        if (t->val && step % c->eval_steps == 0) {
            ATOM_TRY(evaluate(t));
            evaluated = step;
        }
        bool stop = t->hooks.stop && t->hooks.stop(t->hooks.ctx);
        if (stop || step == c->max_steps || (c->save_steps > 0 && step % c->save_steps == 0)) {
            if (step == c->max_steps && t->val && evaluated != step)
                ATOM_TRY(evaluate(t));
            ATOM_TRY(save(t));
            saved = step;
        }
        if (stop && step < c->max_steps) {
            t->summary.interrupted = true;
            return atom_fail(
                ATOM_E_INTERRUPTED,
                "stopped after step %" PRId64 "; go on with --resume-from-checkpoint auto", saved);
        }
    }
    return ATOM_OK;
fail:
    return st;
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
    double tokens = (double)(g->micro_batch * g->sequence * t->plan->micro_batches);
    s->tokens_per_second = s->median_step_seconds > 0 ? tokens / s->median_step_seconds : 0;
    s->device_peak_bytes = t->engine->device->peak_bytes;
    s->device_budget_bytes = t->plan->device_budget_bytes;
    s->host_plan_bytes = t->engine->low->host_bytes;
    s->host_peak_bytes = t->engine->device->host_peak_bytes;
    s->param_bytes = g->param_elements * each;
    s->model_state_bytes = g->param_elements * (2 * each + 12);
    s->largest_visit_bytes = t->engine->low->largest_visit_bytes;
    s->sub_models = t->plan->n_sub_models;
    s->execute = t->engine->execute;
    for (int i = 0; i < DEV_STREAM_N; i++) {
        dev_stats stats = swap_exec_stats(t->engine->exec, (dev_stream_kind)i);
        s->busy_seconds[i] = stats.busy_seconds;
        s->bytes_copied[i] = stats.bytes_copied;
    }
}

atom_status trainer_run(trainer *t, train_summary *summary)
{
    t->summary.first_loss = t->summary.final_loss = t->summary.validation_loss = (double)NAN;
    atom_status st = run_steps(t);
    fill_summary(t);
    *summary = t->summary;
    return st;
}

const part_plan *trainer_plan(const trainer *t)
{
    return t->plan;
}

const gen_lowered *trainer_lowered(const trainer *t)
{
    return t->engine->low;
}

const part_profile *trainer_profile(const trainer *t)
{
    return t->profile;
}
