/*
 * atom train: opens a trainer, shows what it reports, sums up. One idea: the trainer knows how to
 * train and this file knows how to tell. Refuses decisions: every key goes to the trainer as it is.
 */
#include "tools/progress.h"
#include "tools/show.h"

#include <math.h>
#include <string.h>

typedef struct show_state {
    const train_config *config;
    const trainer *t; /* NULL while it opens */
    double started_seconds;
    int64_t first_step;
    double average_tokens_per_second; /* bias-corrected moving average */
    double weight;
} show_state;

static void note(void *ctx, const char *text)
{
    const show_state *s = ctx;
    cli_progress_end();
    if (!s->config->quiet)
        atom_log(ATOM_LOG_INFO, "%s", text);
}

static void progress(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    const show_state *s = ctx;
    if (!s->config->quiet)
        cli_progress(NULL, what, done, total);
}

static bool stop(void *ctx)
{
    (void)ctx;
    return cli_signal() != 0;
}

static void clock_text(double seconds, char *out, size_t bytes)
{
    long s = seconds > 0 && seconds < 1e9 ? lround(seconds) : 0;
    if (s >= 3600)
        snprintf(out, bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, bytes, "%02ld:%02ld", s / 60, s % 60);
}

/* "####....  " */
static void bar_text(double share, char out[24])
{
    int full = (int)(share * 20 + 0.5);
    for (int i = 0; i < 20; i++)
        out[i] = i < full ? '#' : '.';
    out[20] = 0;
}

static void step_text(const show_state *s, const train_report *r, char *out, size_t bytes)
{
    char mfu[32] = "", left[32];
    const part_plan *plan = s->t ? trainer_plan(s->t) : NULL;
    double spent = atom_clock_seconds() - s->started_seconds;
    double each = spent / (double)(r->step - s->first_step + 1);
    clock_text(each * (double)(r->max_steps - r->step), left, sizeof left);
    if (r->mfu > 0)
        snprintf(mfu, sizeof mfu, "  mfu %.1f %%", 100 * r->mfu);
    snprintf(
        out, bytes,
        "step %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %s tok/s%s  device %s  host %s  eta %s",
        (long long)r->step, (long long)r->max_steps, r->loss, r->grad_norm, r->learning_rate,
        cli_count(s->average_tokens_per_second), mfu, cli_size(plan ? plan->device_peak_bytes : 0),
        cli_size(atom_vm_peak_bytes()), left);
}

static void report(void *ctx, const train_report *r)
{
    show_state *s = ctx;
    char line[400], bar[24], text[512];
    if (s->config->quiet)
        return;
    if (r->validation) {
        cli_progress_end();
        atom_log(ATOM_LOG_INFO, "step %lld/%lld  validation loss %.4f", (long long)r->step,
                 (long long)r->max_steps, r->loss);
        return;
    }
    if (!s->first_step)
        s->first_step = r->step;
    s->weight = 0.9 * s->weight + 0.1;
    s->average_tokens_per_second +=
        0.1 / s->weight * (r->tokens_per_second - s->average_tokens_per_second);
    step_text(s, r, line, sizeof line);
    bool last = r->step == r->max_steps;
    if (cli_progress_live()) {
        bar_text((double)r->step / (double)r->max_steps, bar);
        snprintf(text, sizeof text, "[%s] %s", bar, line);
        cli_progress_draw(text, last);
    } else if (r->step == s->first_step || last || r->step % s->config->logging_steps == 0) {
        atom_log(ATOM_LOG_INFO, "%s", line);
    }
}

static json_t *streams_json(const double *seconds, const uint64_t *bytes)
{
    static const char *const names[DEV_STREAM_N] = {"compute", "h2d", "d2h", "host"};
    json_t *object = json_object();
    for (int i = 0; i < DEV_STREAM_N; i++)
        json_object_set_new(object, names[i],
                            seconds ? cli_real(seconds[i]) : json_integer((json_int_t)bytes[i]));
    return object;
}

static json_t *summary_json(const train_config *c, const train_summary *s)
{
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, "
        "s:s?,"
        " s:s, s:s?, s:b, s:o, s:o}",
        "steps", (json_int_t)s->steps, "first_step", (json_int_t)s->first_step, "first_loss",
        cli_real(s->first_loss), "final_loss", cli_real(s->final_loss), "validation_loss",
        cli_real(s->validation_loss), "predicted_step_seconds", cli_real(s->predicted_step_seconds),
        "median_step_seconds", cli_real(s->median_step_seconds), "tokens_per_second",
        cli_real(s->tokens_per_second), "seconds", cli_real(s->seconds), "device_peak_bytes",
        (json_int_t)s->device_peak_bytes, "device_budget_bytes", (json_int_t)s->device_budget_bytes,
        "host_peak_bytes", (json_int_t)s->host_peak_bytes, "host_plan_bytes",
        (json_int_t)s->host_plan_bytes, "model_state_bytes", (json_int_t)s->model_state_bytes,
        "param_bytes", (json_int_t)s->param_bytes, "largest_visit_bytes",
        (json_int_t)s->largest_visit_bytes, "sub_models", (int)s->sub_models, "execute", s->execute,
        "output_dir", c->output_dir, "checkpoint", s->checkpoint, "interrupted",
        (int)s->interrupted, "busy_seconds", streams_json(s->busy_seconds, NULL), "bytes_copied",
        streams_json(NULL, s->bytes_copied));
}

static void summary_print(const train_summary *s)
{
    char clock[32];
    clock_text(s->seconds, clock, sizeof clock);
    if (s->steps >= s->first_step && s->first_step > 0)
        cli_print("trained steps %lld to %lld in %s: loss %.4f to %.4f\n", (long long)s->first_step,
                  (long long)s->steps, clock, s->first_loss, s->final_loss);
    if (isfinite(s->validation_loss))
        cli_print("validation loss %.4f\n", s->validation_loss);
    if (s->median_step_seconds > 0)
        cli_print("%s tokens/s, median step %s (predicted %s), %s code\n",
                  cli_count(s->tokens_per_second), cli_seconds(s->median_step_seconds),
                  cli_seconds(s->predicted_step_seconds), s->execute ? s->execute : "no");
    if (s->sub_models > 1)
        cli_print("%u sub-models, at most %s of %s of parameters on the device at once\n",
                  s->sub_models, cli_size(s->largest_visit_bytes), cli_size(s->param_bytes));
    cli_print("device memory %s, host memory %s\n", cli_size(s->device_peak_bytes),
              cli_size(s->host_peak_bytes));
    if (s->checkpoint)
        cli_print("saved %s\n", s->checkpoint);
}

static atom_status print_config(const train_config *config, const opt_parsed *parsed)
{
    char *text = NULL;
    atom_status st = config->json ? opt_print_json(&train_command, config, &text)
                                  : opt_print(&train_command, config, parsed, true, &text);
    if (st == ATOM_OK)
        st = cli_put_text(text, NULL);
    atom_free(text);
    return st;
}

static atom_status dry_run(const train_config *config, const trainer *t)
{
    char *text = NULL;
    if (!config->json) {
        show_plan(trainer_plan(t), NULL);
        show_memory(trainer_lowered(t), trainer_plan(t));
        return ATOM_OK;
    }
    atom_status st = part_plan_json(trainer_plan(t), &text);
    if (st == ATOM_OK)
        st = cli_put_text(text, NULL);
    atom_free(text);
    return st;
}

static atom_status train_it(const train_config *config, show_state *state, trainer *t)
{
    train_summary summary = {
        .first_loss = NAN, .final_loss = NAN, .validation_loss = NAN, .median_step_seconds = NAN};
    state->t = t;
    state->started_seconds = atom_clock_seconds();
    cli_signals_catch();
    atom_status st = trainer_run(t, &summary);
    cli_progress_end();
    if (st != ATOM_OK && st != ATOM_E_INTERRUPTED && st != ATOM_E_DIVERGED)
        return st;
    if (config->json) {
        atom_status printed = cli_print_json(summary_json(config, &summary));
        st = st == ATOM_OK ? printed : st;
    } else if (!config->quiet) {
        summary_print(&summary);
    }
    if (st == ATOM_E_INTERRUPTED)
        atom_log(ATOM_LOG_INFO,
                 "stopped by a signal after step %lld; go on with "
                 "--resume-from-checkpoint auto",
                 (long long)summary.steps);
    return st;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const train_config *config = values;
    show_state state = {.config = config};
    const train_hooks hooks = {
        .report = report, .progress = progress, .note = note, .stop = stop, .ctx = &state};
    trainer *t = NULL;
    atom_status st = train_config_check(config);
    if (st != ATOM_OK)
        return st;
    if (config->print_config)
        return print_config(config, parsed);
    st = trainer_open(config, &hooks, &t);
    cli_progress_end();
    if (st == ATOM_OK)
        st = config->dry_run ? dry_run(config, t) : train_it(config, &state, t);
    trainer_close(&t);
    return st;
}

const cli_command cli_train = {&train_command, run};
