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
    const trainer *t;        /* NULL while it opens */
    train_progress progress; /* file NULL: not yet */
} show_state;

static void note(void *ctx, const char *text)
{
    show_state *s = ctx;
    if (s->config->quiet && !cli_is_warning(text))
        return;
    cli_progress_end();
    if (s->progress.file)
        train_progress_note(&s->progress, "%s", text);
    else
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

static void report(void *ctx, const train_report *r)
{
    show_state *s = ctx;
    if (s->config->quiet)
        return;
    if (!s->progress.file) {
        cli_progress_end();
        s->progress =
            train_progress_make(stderr, -1, r->step, r->max_steps, s->config->logging_steps);
    }
    train_progress_report(&s->progress, r, trainer_plan(s->t)->device_peak_bytes);
}

static json_t *streams_json(const double *seconds, const uint64_t *bytes)
{
    static const char *const names[DEV_STREAM_N] = {
        [DEV_COMPUTE] = "compute", [DEV_H2D] = "h2d",   [DEV_D2H] = "d2h",
        [DEV_HOST] = "host",       [DEV_LOAD] = "load", [DEV_STORE] = "store"};
    json_t *object = json_object();
    for (int i = 0; i < DEV_STREAM_N; i++)
        json_object_set_new(object, names[i],
                            seconds ? cli_real(seconds[i]) : json_integer((json_int_t)bytes[i]));
    return object;
}

static json_t *boundaries_json(const plan_boundaries *b)
{
    if (!b->n)
        return json_null();
    return json_pack("{s:s, s:s, s:i, s:I, s:I}", "codec", b->text, "at", b->at, "blocks",
                     (int)b->blocks, "bytes_per_token", (json_int_t)b->token_bytes,
                     "bytes_per_token_bf16", (json_int_t)b->token_bytes_bf16);
}

static void boundaries_print(const plan_boundaries *b)
{
    if (b->n)
        cli_print("boundaries after %s of %u blocks, with %s: %llu bytes per token would have "
                  "been sent in each direction, %llu in bf16 (%.1f times as many)\n",
                  b->at, b->blocks, b->text, (unsigned long long)b->token_bytes,
                  (unsigned long long)b->token_bytes_bf16,
                  (double)b->token_bytes_bf16 / (double)b->token_bytes);
}

static json_t *summary_json(const train_config *c, const train_summary *s)
{
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:i, "
        "s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:s?,"
        " s:s, s:s?, s:b, s:o, s:o, s:o, s:o, s:I}",
        "steps", (json_int_t)s->steps, "first_step", (json_int_t)s->first_step, "first_loss",
        cli_real(s->first_loss), "final_loss", cli_real(s->final_loss), "validation_loss",
        cli_real(s->validation_loss), "predicted_step_seconds", cli_real(s->predicted_step_seconds),
        "median_step_seconds", cli_real(s->median_step_seconds), "tokens_per_second",
        cli_real(s->tokens_per_second), "mean_tokens_per_second",
        cli_real(s->mean_tokens_per_second), "seconds", cli_real(s->seconds), "device_peak_bytes",
        (json_int_t)s->device_peak_bytes, "device_budget_bytes", (json_int_t)s->device_budget_bytes,
        "host_peak_bytes", (json_int_t)s->host_peak_bytes, "host_plan_bytes",
        (json_int_t)s->host_plan_bytes, "model_state_bytes", (json_int_t)s->model_state_bytes,
        "param_bytes", (json_int_t)s->param_bytes, "largest_visit_bytes",
        (json_int_t)s->largest_visit_bytes, "sub_models", (int)s->sub_models,
        "predicted_ahead_seconds",
        s->predicted_ahead_seconds > 0 ? cli_real(s->predicted_ahead_seconds) : json_null(),
        "ahead_steps", (json_int_t)s->ahead_steps, "ahead_wrong", (json_int_t)s->ahead_wrong,
        "save_seconds", cli_real(s->save_seconds), "save_waited_seconds",
        cli_real(s->save_waited_seconds), "save_copied_bytes", (json_int_t)s->save_copied_bytes,
        "spare_bytes", (json_int_t)s->spare_bytes, "spare_peak_bytes",
        (json_int_t)s->spare_peak_bytes, "execute", s->execute, "output_dir", c->output_dir,
        "checkpoint", s->checkpoint, "interrupted", (int)s->interrupted, "busy_seconds",
        streams_json(s->busy_seconds, NULL), "bytes_copied", streams_json(NULL, s->bytes_copied),
        "waited_seconds", streams_json(s->waited_seconds, NULL), "boundaries",
        boundaries_json(&s->boundaries), "process_peak_bytes", (json_int_t)atom_vm_peak_bytes());
}

static void summary_print(const train_summary *s)
{
    if (s->steps >= s->first_step && s->first_step > 0)
        cli_print("trained steps %lld to %lld in %s: loss %.4f to %.4f\n", (long long)s->first_step,
                  (long long)s->steps, cli_seconds(s->seconds), s->first_loss, s->final_loss);
    if (isfinite(s->validation_loss))
        cli_print("validation loss %.4f\n", s->validation_loss);
    boundaries_print(&s->boundaries);
    if (s->median_step_seconds > 0)
        cli_print("%s tokens/s (%s in the median step of %s; predicted %s), %s code\n",
                  cli_count(s->mean_tokens_per_second), cli_count(s->tokens_per_second),
                  cli_seconds(s->median_step_seconds), cli_seconds(s->predicted_step_seconds),
                  s->execute ? s->execute : "no");
    if (s->ahead_steps + s->ahead_wrong > 0)
        cli_print(
            "weights were updated before the gradient's norm was known in %lld steps (predicted "
            "%s each); %lld more steps were then clipped and ran twice\n",
            (long long)s->ahead_steps, cli_seconds(s->predicted_ahead_seconds),
            (long long)s->ahead_wrong);
    if (s->seconds > 0) {
        double link = s->waited_seconds[DEV_H2D] + s->waited_seconds[DEV_D2H];
        double host = s->waited_seconds[DEV_HOST], other = s->waited_seconds[DEV_COMPUTE];
        double disk = s->waited_seconds[DEV_LOAD] + s->waited_seconds[DEV_STORE];
        cli_print("compute busy %.1f %%; waited %.1f %% for the link, %.1f %% for the optimizer",
                  100 * (1 - (link + host + disk + other) / s->seconds), 100 * link / s->seconds,
                  100 * host / s->seconds);
        if (s->busy_seconds[DEV_LOAD] > 0)
            cli_print(", %.1f %% for the disk", 100 * disk / s->seconds);
        cli_print("\n");
    }
    if (s->sub_models > 1)
        cli_print("%u sub-models, at most %s of %s of parameters on the device at once\n",
                  s->sub_models, cli_size(s->largest_visit_bytes), cli_size(s->param_bytes));
    cli_print("device memory %s, host memory %s (the whole process: %s)\n",
              cli_size(s->device_peak_bytes), cli_size(s->host_peak_bytes),
              cli_size(atom_vm_peak_bytes()));
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
    cli_signals_catch();
    atom_status st = trainer_run(t, &summary);
    train_progress_end(&state->progress);
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
                 "stopped by a signal after step %lld; continue with --resume-from-checkpoint "
                 "auto",
                 (long long)summary.steps);
    return st;
}

/* Another number of micro-batches would be notably faster: for the user to choose, since it changes
 * what is learned in a step. */
static void say_faster(const train_config *config, const part_plan *plan)
{
    if (config->dry_run || config->quiet || !part_plan_wants_more(plan))
        return;
    atom_log(ATOM_LOG_INFO,
             "--gradient-accumulation-steps %u would train at about %s tokens/s instead of %s, "
             "because more micro-batches share each load and update",
             plan->recommended_micro_batches, cli_count(plan->recommended_tokens_per_second),
             cli_count(part_plan_tokens_per_second(plan)));
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    train_config *config = values;
    show_state state = {.config = config};
    const train_hooks hooks = {
        .report = report, .progress = progress, .note = note, .stop = stop, .ctx = &state};
    trainer *t = NULL;
    opt_parsed settled = *parsed;
    atom_status st = ATOM_OK;
    ATOM_TRY(train_config_settle(config, &settled));
    if (config->print_config)
        return print_config(config, &settled);
    ATOM_TRY(train_epochs_resolve(config));
    if (config->num_train_epochs > 0 && !config->quiet)
        atom_log(ATOM_LOG_INFO, "num_train_epochs %g: %lld step%s; max_steps is ignored",
                 config->num_train_epochs, (long long)config->max_steps,
                 config->max_steps == 1 ? "" : "s");
    st = trainer_open(config, &hooks, &t);
    cli_progress_end();
    if (st == ATOM_OK)
        say_faster(config, trainer_plan(t));
    if (st == ATOM_OK)
        st = config->dry_run ? dry_run(config, t) : train_it(config, &state, t);
    trainer_close(&t);
    return st;
}

const cli_command cli_train = {&train_command, run};
