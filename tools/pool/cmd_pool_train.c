/*
 * Owns what a person sees of a member's run. One idea: the library says what happens, this file how
 * it looks: lines beside a step's progress, one about the pool every ten seconds, a summary at the
 * end. Refuses decisions.
 */
#include "tools/pool/cmd_pool_train.h"
#include "tools/pool/cmd_pool_ask.h"
#include "tools/pool/notify.h"

#include <math.h>
#include <string.h>

static const double SHOW_SECONDS = 10, WAIT_SECONDS = 60;

static void note(void *ctx, const char *text)
{
    pool_show *s = ctx;
    if (s->quiet && !cli_is_warning(text))
        return;
    cli_progress_end();
    if (s->progress.file)
        train_progress_note(&s->progress, "%s", text);
    else
        atom_log(ATOM_LOG_INFO, "%s", text);
}

static bool is_time(pool_show *s, double pause)
{
    double at = atom_clock_seconds();
    if (at - s->shown_seconds < pause)
        return false;
    s->shown_seconds = at;
    return true;
}

/* A line that is redrawn on a terminal; elsewhere one every ten seconds, of what takes long, and of
 * what waits for others one at once and one a minute. */
static bool watch(void *ctx, const gsp_pool_progress *p)
{
    pool_show *s = ctx;
    char text[400], line[420];
    double percent = p->bytes ? 100 * (double)p->bytes_done / (double)p->bytes : 0;
    if (p->bytes)
        snprintf(text, sizeof text, "%s: %.0f %% of %s%s%s", p->text, percent, cli_size(p->bytes),
                 p->left_s > 0 ? ", done in about " : "",
                 p->left_s > 0 ? cli_seconds(p->left_s) : "");
    else
        snprintf(text, sizeof text, "%s", p->text);
    if (!s->quiet)
        cli_progress_draw(text, false);
    bool long_way = p->bytes || p->stage == GSP_POOL_RUNNING;
    bool waits = p->stage == GSP_POOL_SEEKING || p->stage == GSP_POOL_ASKING;
    if ((long_way || waits) && !cli_progress_live() &&
        is_time(s, long_way ? SHOW_SECONDS : WAIT_SECONDS)) {
        snprintf(line, sizeof line, "pool: %s", text);
        note(s, line);
    }
    return cli_signal() == 0;
}

static void progress(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    const pool_show *s = ctx;
    if (!s->quiet)
        cli_progress(NULL, what, done, total);
}

static bool stop(void *ctx)
{
    (void)ctx;
    return cli_signal() != 0;
}

static void phase(void *ctx, pool_phase now)
{
    (void)ctx;
    cli_progress_end();
    notify_manager(now == POOL_PHASE_TRAINING  ? "READY=1\nSTATUS=training"
                   : now == POOL_PHASE_RESTING ? "READY=1\nSTATUS=resting"
                                               : "STOPPING=1\nSTATUS=saying goodbye");
}

/* One line about the pool every ten seconds. */
static void show_pool(pool_show *s)
{
    char line[600];
    if (!is_time(s, SHOW_SECONDS))
        return;
    pool_run_read_status(s->run, false, s->status);
    const pool_anchor_status *a = &s->status->anchor;
    if (s->pace_seconds == 0) {
        s->pace_seconds = s->shown_seconds;
        s->pace_step = a->pool_step;
    }
    double left = a->pool_step > s->pace_step ? (double)(a->max_steps - a->pool_step) *
                                                    (s->shown_seconds - s->pace_seconds) /
                                                    (double)(a->pool_step - s->pace_step)
                                              : 0;
    /* "member of 2, version 11" says nothing new; what it waits for does. */
    const char *text = s->status->pool.text;
    bool usual = !*text || (strncmp(text, "member of ", 10) == 0 && !strpbrk(text, ":;"));
    uint32_t members = s->status->pool.member.n_roster;
    snprintf(line, sizeof line, "pool: %u member%s, version %llu, step %llu of %llu%s%s%s%s%s",
             members, members == 1 ? "" : "s", (unsigned long long)a->applied,
             (unsigned long long)a->pool_step, (unsigned long long)a->max_steps,
             left > 0 ? " (" : "", left > 0 ? cli_duration(left) : "", left > 0 ? " to go)" : "",
             usual ? "" : "; ", usual ? "" : text);
    note(s, line);
}

static void report(void *ctx, const train_report *r)
{
    pool_show *s = ctx;
    if (s->quiet)
        return;
    if (!s->progress.file) {
        cli_progress_end();
        /* Where this member's steps end depends on the others: show_pool reckons. */
        int64_t last = s->max_steps > 0 ? r->step - 1 + s->max_steps : 0;
        s->progress = train_progress_make(stderr, -1, r->step, last,
                                          pool_run_configuration(s->run)->logging_steps);
    }
    train_progress_report(&s->progress, r,
                          trainer_plan(pool_run_trainer(s->run))->device_peak_bytes);
    if (!r->validation)
        show_pool(s);
}

pool_hooks pool_show_hooks(pool_show *show)
{
    return (pool_hooks){.ctx = show,
                        .note = note,
                        .progress = progress,
                        .report = report,
                        .watch = watch,
                        .stop = stop,
                        .phase = phase};
}

/* ---- the end ---- */

static json_t *summary_json(const pool_show *show, const train_summary *s)
{
    const pool_anchor_status *p = &show->status->anchor;
    const gsp_node_status *m = &show->status->pool.member;
    char hex[2 * GSP_HASH_BYTES + 1];
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:s, s:s?, s:b, s:b, s:I, s:s, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, s:o, s:o, s:s}",
        "steps", (json_int_t)s->steps, "first_step", (json_int_t)s->first_step, "first_loss",
        cli_real(s->first_loss), "final_loss", cli_real(s->final_loss), "tokens_per_second",
        cli_real(s->tokens_per_second), "output_dir", show->dir, "checkpoint", s->checkpoint,
        "interrupted", (int)s->interrupted, "done", (int)p->done, "version", (json_int_t)p->applied,
        "anchor", atom_hex(p->anchor.byte, GSP_HASH_BYTES, hex), "included",
        (json_int_t)p->included, "merged", (json_int_t)p->merged, "pool_step",
        (json_int_t)p->pool_step, "certified_step", (json_int_t)p->certified_step, "pool_steps",
        (json_int_t)p->max_steps, "certified_samples", (json_int_t)p->certified_samples, "lacking",
        (json_int_t)p->lacking, "alone_from",
        m->alone ? json_integer((json_int_t)m->alone_from) : json_null(), "seam_seconds",
        cli_real(p->seam_seconds), "plan", trainer_plan_origin(pool_run_trainer(show->run)));
}

/* welcome: nothing but its user or the run's end ended the membership, so it may come back. */
static atom_status sum_up(const pool_show *show, const train_summary *s, bool welcome)
{
    const pool_anchor_status *p = &show->status->anchor;
    pool_run_read_status(show->run, show->json, show->status);
    if (show->json)
        return cli_print_json(summary_json(show, s));
    if (show->quiet)
        return ATOM_OK;
    if (s->steps < s->first_step || isnan(s->first_loss)) /* all steps were others' */
        cli_print("%s\n", p->done ? "there was nothing left to train" : "trained no step");
    else
        cli_print("trained steps %lld to %lld: loss %.4f to %.4f, %s tokens/s\n",
                  (long long)s->first_step, (long long)s->steps, s->first_loss, s->final_loss,
                  cli_count(s->tokens_per_second));
    cli_print("the pool is at version %llu, step %llu of %llu; %llu contributions of this run "
              "are in it\n",
              (unsigned long long)p->applied, (unsigned long long)p->certified_step,
              (unsigned long long)p->max_steps, (unsigned long long)p->included);
    int64_t each = pool_run_settings(show->run)->batch;
    if (each > 0 && p->own_samples >= (uint64_t)each)
        cli_print("the last %llu step%s of this member %s in no version of the pool%s\n",
                  (unsigned long long)(p->own_samples / (uint64_t)each),
                  p->own_samples / (uint64_t)each == 1 ? "" : "s",
                  p->own_samples / (uint64_t)each == 1 ? "is" : "are",
                  s->checkpoint ? ", but in its checkpoint" : "");
    else if (p->lacking > 0 && p->done)
        cli_print("%u of %lld parts of the pool's model lack the last steps of this member%s\n",
                  p->lacking, (long long)pool_run_settings(show->run)->fragments,
                  s->checkpoint ? ", but they are in its checkpoint" : "");
    if (s->checkpoint)
        cli_print("saved %s\n", s->checkpoint);
    const gsp_node_status *m = &show->status->pool.member;
    if (m->alone)
        cli_print(POOL_ALONE "\n", (unsigned long long)m->alone_from);
    if (p->done && m->alone)
        cli_print(
            "all steps are made; to get the model that this member has: atom pool export %s -o "
            "model\n",
            show->dir);
    else if (p->done)
        cli_print("the pool is done; to get its model: atom pool export %s -o model\n", show->dir);
    else if (welcome)
        cli_print("back to the pool: atom pool join -o %s\n", show->dir);
    if (s->checkpoint)
        cli_print("or continue alone: atom train --model %s --data %s -o alone\n", s->checkpoint,
                  pool_run_configuration(show->run)->data);
    return ATOM_OK;
}

atom_status pool_show_train(pool_show *show)
{
    train_summary summary;
    bool orderly;
    show->status = atom_alloc(1, sizeof *show->status);
    if (!show->status)
        return atom_fail_memory("a status", sizeof *show->status);
    show->shown_seconds = atom_clock_seconds();
    atom_status st = pool_run_train(show->run, &summary, &orderly);
    cli_progress_end();
    train_progress_end(&show->progress);
    show->progress.file = NULL;
    if (!orderly)
        return st;
    atom_status told = sum_up(show, &summary, st == ATOM_OK || st == ATOM_E_INTERRUPTED);
    return st == ATOM_OK ? told : st;
}

void pool_show_close(pool_show *show)
{
    cli_progress_end();
    pool_run_close(&show->run);
    atom_free(show->status);
}
