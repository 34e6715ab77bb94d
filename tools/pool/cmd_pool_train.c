/*
 * Owns a member's run: it brings up trainer, seam and membership in the right order, tells the pool
 * how far it is and people what the pool is doing, and ends both. One idea: the trainer never waits
 * for the pool; what the pool wants is asked between two steps. Refuses to train a model that is
 * not the pool's.
 */
#include "tools/pool/cmd_pool_train.h"
#include "tools/pool/notify.h"

#include "gossip/member/votes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double SHOW_SECONDS = 10, GOODBYE_SECONDS = 15;

char *pool_run_path(const pool_run *r, const char *name)
{
    return atom_format("%s/pool%s%s", r->dir, *name ? "/" : "", name);
}

void pool_run_note(pool_run *r, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (r->quiet)
        return;
    cli_progress_end();
    if (r->progress.file)
        train_progress_note(&r->progress, "%s", text);
    else
        atom_log(ATOM_LOG_INFO, "%s", text);
}

bool pool_run_watch(void *context, const gsp_pool_progress *p)
{
    pool_run *r = context;
    char text[400];
    double percent = p->bytes ? 100 * (double)p->bytes_done / (double)p->bytes : 0;
    if (p->bytes)
        snprintf(text, sizeof text, "%s: %.0f %% of %s%s%s", p->text, percent, cli_size(p->bytes),
                 p->left_s > 0 ? ", done in about " : "",
                 p->left_s > 0 ? cli_seconds(p->left_s) : "");
    else
        snprintf(text, sizeof text, "%s", p->text);
    if (!r->quiet)
        cli_progress_draw(text, false);
    if (p->bytes && !cli_progress_live() &&
        atom_clock_seconds() - r->shown_seconds > SHOW_SECONDS) {
        r->shown_seconds = atom_clock_seconds();
        pool_run_note(r, "pool: %s", text);
    }
    return cli_signal() == 0;
}

/* ---- what the trainer asks for ---- */

static void on_note(void *ctx, const char *text)
{
    pool_run_note(ctx, "%s", text);
}

static void on_progress(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    const pool_run *r = ctx;
    if (!r->quiet)
        cli_progress(NULL, what, done, total);
}

/* One line about the pool every ten seconds. */
static void show_pool(pool_run *r)
{
    double at = atom_clock_seconds();
    if (r->quiet || at - r->shown_seconds < SHOW_SECONDS)
        return;
    pool_anchor_status s;
    r->shown_seconds = at;
    gsp_pool_read_status(r->life, r->status);
    pool_anchor_read_status(r->pool, false, &s);
    if (r->pace_seconds == 0) {
        r->pace_seconds = at;
        r->pace_step = s.pool_step;
    }
    double left = s.pool_step > r->pace_step
                      ? (double)(s.max_steps - s.pool_step) * (at - r->pace_seconds) /
                            (double)(s.pool_step - r->pace_step)
                      : 0;
    /* "member of 2, version 11" says nothing new; what it waits for does. */
    const char *text = r->status->text;
    bool usual = strncmp(text, "member of ", 10) == 0;
    uint32_t members = r->status->member.n_roster;
    pool_run_note(r, "pool: %u member%s, version %llu, step %llu of %llu%s%s%s%s%s", members,
                  members == 1 ? "" : "s", (unsigned long long)s.applied,
                  (unsigned long long)s.pool_step, (unsigned long long)s.max_steps,
                  left > 0 ? " (" : "", left > 0 ? cli_duration(left) : "",
                  left > 0 ? " to go)" : "", usual || !*text ? "" : "; ", usual ? "" : text);
}

/* S is that of the mean member: each counts a sample as one n-th. */
static void tell_pool(pool_run *r, int64_t tokens_seen)
{
    gsp_pool_read_status(r->life, r->status);
    uint32_t n = r->status->member.n_roster ? r->status->member.n_roster : 1;
    r->scaled += (double)r->settings.batch / n;
    gsp_pool_report(r->life, (uint64_t)r->scaled, (uint64_t)tokens_seen - r->tokens_first);
}

static void on_report(void *ctx, const train_report *report)
{
    pool_run *r = ctx;
    if (!report->validation)
        tell_pool(r, report->tokens_seen);
    if (r->quiet)
        return;
    if (!r->progress.file) {
        cli_progress_end();
        /* Where this member's steps end depends on the others: show_pool reckons. */
        int64_t last = r->max_steps > 0 ? report->step - 1 + r->max_steps : 0;
        r->progress = train_progress_make(stderr, -1, report->step, last, r->config.logging_steps);
    }
    if (report->validation) {
        r->progress.val_loss = report->loss;
        train_progress_note(&r->progress, "step %lld val loss %.4f", (long long)report->step,
                            report->loss);
        return;
    }
    const train_step_metrics m = {
        .step = report->step,
        .loss = report->loss,
        .grad_norm = report->grad_norm,
        .learning_rate = report->learning_rate,
        .seconds = report->seconds,
        .step_tokens = (uint64_t)llround(report->tokens_per_second * report->seconds),
        .tokens = (uint64_t)report->tokens_seen,
        .mfu = report->mfu > 0 ? report->mfu : -1,
        .device_bytes = trainer_plan(r->t)->device_peak_bytes,
        .host_bytes = atom_vm_peak_bytes(),
    };
    train_progress_step(&r->progress, &m);
    pool_run_people(r);
    show_pool(r);
}

/* Whether the pool has yet to begin, and lacks members for it; then `text` says so. */
static bool lacks_peers(pool_run *r, char text[POOL_LIMITS_WHY_BYTES])
{
    pool_anchor_status s;
    if (r->settings.min_peers <= 1)
        return false;
    gsp_pool_read_status(r->life, r->status);
    pool_anchor_read_status(r->pool, false, &s);
    int64_t few = r->settings.min_peers - r->status->member.n_roster;
    if (s.certified_samples > 0 || few <= 0)
        return false;
    snprintf(text, POOL_LIMITS_WHY_BYTES,
             "training begins with %lld members: waiting for %lld more",
             (long long)r->settings.min_peers, (long long)few);
    return true;
}

/* Between two steps: signals, what the control socket or the pool's end want, and the box's own
 * limits. */
static bool on_stop(void *ctx)
{
    pool_run *r = ctx;
    char limit[POOL_LIMITS_WHY_BYTES];
    bool paused = false;
    for (;;) {
        r->wish = gsp_pool_wishes(r->life, r->why, &r->ended);
        bool limited = r->wish == GSP_POOL_GO &&
                       ((r->limits && !pool_limits_now(r->limits, limit)) || lacks_peers(r, limit));
        if (cli_signal() || (r->wish != GSP_POOL_PAUSE && r->wish != GSP_POOL_REST && !limited))
            break;
        if (!paused) {
            if (limited || r->wish == GSP_POOL_REST)
                pool_run_note(r, "%s", limited ? limit : r->why);
            else
                pool_run_note(r, "paused; atom pool resume %s goes on", r->dir);
            pool_anchor_running(r->pool, false);
        }
        paused = true;
        usleep(100000);
    }
    if (paused || pool_run_sums(r))
        pool_anchor_running(r->pool, true);
    return cli_signal() || r->wish == GSP_POOL_STOP;
}

bool pool_run_sums(const pool_run *r)
{
    return r->settings.sync == POOL_SYNC_GRADIENTS;
}

/* The plan fits: now the data may come. */
static atom_status bring_data(void *ctx)
{
    pool_run *r = ctx;
    cli_progress_end();
    atom_status st = r->fetch_data
                         ? gsp_pool_data_fetch(r->life, r->data_dir, r->patience, pool_run_watch, r)
                         : ATOM_OK;
    cli_progress_end();
    return st;
}

atom_status pool_run_open_trainer(pool_run *r)
{
    /* As if the vector were long: short ones have fewer fragments, and little to hold. */
    static const uint64_t LONG = 1ull << 32;
    r->seam.host_bytes_per_float =
        (double)pool_anchor_host_bytes(LONG, (uint32_t)r->settings.fragments,
                                       (pool_sync)r->settings.sync) /
        (double)LONG;
    r->seam.shared = pool_run_sums(r);
    r->hooks = (train_hooks){.report = on_report,
                             .progress = on_progress,
                             .note = on_note,
                             .stop = on_stop,
                             .data = r->fetch_data ? bring_data : NULL,
                             .seam = &r->seam,
                             .plans = &r->plans,
                             .ctx = r};
    pool_run_plans(r);
    r->status = atom_alloc(1, sizeof *r->status);
    if (!r->status)
        return atom_fail_memory("a status", sizeof *r->status);
    atom_status st = trainer_open(&r->config, &r->hooks, &r->t);
    cli_progress_end();
    return st;
}

void pool_run_say_mode(pool_run *r, uint64_t n_floats)
{
    char text[POOL_SAID_BYTES];
    pool_sync sync = (pool_sync)r->settings.sync;
    pool_settings_say(&r->settings, text);
    uint64_t host = pool_anchor_host_bytes(n_floats, (uint32_t)r->settings.fragments, sync);
    uint64_t state = pool_anchor_state_bytes(n_floats, sync);
    pool_run_note(r, "mode %s: %s", pool_settings_mode(&r->settings), text);
    pool_run_note(
        r, "the pool takes %s of this host's memory beside the trainer; who joins fetches %s",
        cli_size(host), cli_size(state));
}

/* Files below dir as they lie on the disk; what cannot be read counts as nothing. */
static uint64_t bytes_below(const char *dir, int depth)
{
    uint64_t bytes = 0;
    DIR *d = depth > 0 ? opendir(dir) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        struct stat s;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(d), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        char *below = S_ISDIR(s.st_mode) ? atom_path_join(dir, entry->d_name) : NULL;
        bytes += below ? bytes_below(below, depth - 1) : (uint64_t)s.st_blocks * 512;
        atom_free(below);
    }
    if (d)
        closedir(d);
    return bytes;
}

atom_status pool_run_check_disk(const pool_run *r, uint64_t n_floats, uint32_t n_fragments)
{
    uint64_t room;
    uint64_t checkpoints =
        (uint64_t)(r->config.save_total_limit > 0 ? r->config.save_total_limit : 1) + 1;
    uint64_t each = atom_state_bytes((atom_dtype)r->config.moments_dtype); /* as a checkpoint */
    uint64_t need = pool_anchor_disk_bytes(n_floats, n_fragments, (pool_sync)r->settings.sync) +
                    checkpoints * n_floats * each + (r->fetch_data ? r->data.bytes : 0);
    ATOM_TRY(atom_dir_make(r->dir));
    if (!atom_dir_free_bytes(r->dir, &room))
        return atom_fail_errno(errno, "cannot ask for the free space of %s", r->dir);
    uint64_t here = bytes_below(r->dir, 4); /* who comes back has most of it already */
    if (room + here >= need)
        return ATOM_OK;
    return atom_fail(
        ATOM_E_RESOURCE,
        "%s: anchor, what is being fetched%s, and checkpoints of this pool take %s; %s "
        "are free, %s more would do. Nothing was fetched. Name another directory with "
        "-o",
        r->dir, r->fetch_data ? ", the data set" : "", cli_size(need), cli_size(room),
        cli_size(need - room - here));
}

/* ---- configuration ---- */

/* Layers of text and words into one set of values. */
static atom_status add_text(pool_run *r, const char *path, const char *text, opt_parsed *parsed)
{
    return opt_read_text(&train_command, path, text, strlen(text), &r->config, parsed);
}

static atom_status add_words(pool_run *r, char *const *words, int n, opt_parsed *parsed)
{
    atom_status st = ATOM_OK;
    for (int i = 0; st == ATOM_OK && i + 1 < n; i += 2) {
        int32_t row = opt_find(&train_command, words[i]);
        if (row < 0)
            return atom_fail(ATOM_E_USAGE, "there is no option %s", words[i]);
        st = opt_set(&train_command, (uint32_t)row, words[i + 1], &r->config);
        if (st != ATOM_OK)
            st = atom_fail(st, "%s: %s", words[i], atom_fail_message());
        parsed->origin[row] = OPT_FROM_COMMAND_LINE;
    }
    return st;
}

atom_status pool_run_configure(pool_run *r, const char *run_path, const char *run_text,
                               char *const *words, int n_words, bool with_local)
{
    opt_parsed parsed;
    char *local = with_local ? atom_format("%s/local.yml", r->dir) : NULL, *own = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(opt_defaults(&train_command, &r->config, &parsed));
    if (run_text)
        ATOM_TRY_CLEAN(add_text(r, run_path, run_text, &parsed));
    if (local && atom_path_exists(local)) {
        uint64_t bytes;
        ATOM_TRY_CLEAN(atom_file_read(local, 1 << 20, &own, &bytes));
        ATOM_TRY_CLEAN(add_text(r, local, own, &parsed));
    }
    ATOM_TRY_CLEAN(add_words(r, words, n_words, &parsed));
    atom_free(r->config.output_dir);
    r->config.output_dir = atom_strdup(r->dir);
    if (!r->config.output_dir)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(train_config_settle(&r->config, &parsed));
    if (!r->config.data && r->has_data && r->data_dir &&
        !(r->config.data = atom_strdup(r->data_dir)))
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!r->config.data)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "data is missing; name a directory made by `atom data "
                                 "prepare` with --data"));
    ATOM_TRY_CLEAN(train_epochs_resolve(&r->config));
cleanup:
    atom_free(local);
    atom_free(own);
    return st;
}

/* What was chosen for this host alone, so that it comes back with it. */
static atom_status save_local(const pool_run *r)
{
    char *path = atom_format("%s/local.yml", r->dir), *text = NULL;
    train_config c = r->config;
    if (r->data_dir && strcmp(c.data, r->data_dir) == 0)
        c.data = NULL; /* where it is looked for anyway, whatever DIR is called then */
    atom_status st = path ? pool_run_text(&c, true, &text) : atom_fail_memory("a path", 256);
    if (st == ATOM_OK)
        st = atom_file_write(path, text, strlen(text));
    atom_free(text);
    atom_free(path);
    return st;
}

/* ---- anchor and start ---- */

/* Adapters are averaged, of one model: everybody has its own copy. */
static atom_status check_base(const pool_run *r)
{
    char base[TRAIN_BASE_BYTES];
    const char *wanted = r->settings.base_hash;
    if (!wanted || strcmp(trainer_base(r->t, base), wanted) == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s is not the model that this pool's adapters are for: its weights have the "
                     "hash %.16s, the pool's %.16s. Name a copy of the creator's with --model; one "
                     "of another type (bf16 for fp32, quantized) is another model. Nothing was "
                     "fetched",
                     r->config.model, base, wanted);
}

static atom_status check_model(const pool_run *r, const gsp_manifest *m)
{
    uint64_t n = trainer_floats(r->t), first;
    bool same = m->n_fragments == pool_fragments(n, m->n_fragments);
    for (uint32_t f = 0; same && f < m->n_fragments; f++)
        same = m->n_floats[f] == pool_fragment_range(n, m->n_fragments, f, &first);
    return same ? ATOM_OK
                : atom_fail(ATOM_E_FORMAT, "the pool's config.json describes another model than "
                                           "its manifest; ask its owner");
}

/* With gradients everybody reads the same samples, each its own of them. */
static atom_status check_data(const pool_run *r)
{
    int64_t hash = pool_data_hash(trainer_where(r->t).data_hash);
    if (!pool_run_sums(r) || hash == r->settings.data_hash)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s is not what the others train on; in a pool that sums gradients everybody "
                     "has the same data: prepare it from the same text with the same options",
                     r->config.data);
}

static atom_status open_seam(pool_run *r, const gsp_manifest *m)
{
    char *anchor = pool_run_path(r, "anchor");
    pool_update update;
    pool_update_of(r->t, (uint32_t)(r->settings.batch / r->config.micro_batch_size), &update);
    pool_anchor_config c = {.directory = anchor,
                            .n_floats = trainer_floats(r->t),
                            .n_fragments = m->n_fragments,
                            .outer_learning_rate = r->settings.outer_learning_rate,
                            .outer_momentum = r->settings.outer_momentum,
                            .mix = r->settings.mix,
                            .batch = (uint64_t)r->settings.batch,
                            .max_samples = (uint64_t)(r->settings.batch * r->settings.steps),
                            .tokens_per_sample = m->tokens_per_sample,
                            .max_steps = r->max_steps,
                            .rewarm_steps = r->settings.rewarm_steps,
                            .update = pool_run_sums(r) ? &update : NULL,
                            .slices = r->settings.sync == POOL_SYNC_SLICES};
    memcpy(c.self.byte, gsp_pool_key(r->life), sizeof c.self.byte);
    atom_status st = anchor ? pool_anchor_open(&c, &r->pool) : atom_fail_memory("a path", 256);
    if (st == ATOM_OK)
        r->seam = pool_anchor_seam(r->pool);
    atom_free(anchor);
    return st;
}

/* What the member remembers, or the pool's genesis for a founder whose member never ran. */
static atom_status recall(pool_run *r, const gsp_manifest *m, gsp_saved *saved, bool *any)
{
    gsp_votes *votes = NULL;
    char *member = pool_run_path(r, "member");
    atom_status st = member ? ATOM_OK : atom_fail_memory("a path", 256);
    *any = false;
    if (st == ATOM_OK && atom_path_exists(member))
        st = gsp_votes_open(member, &votes);
    if (st == ATOM_OK && votes && gsp_votes_saved(votes)) {
        *saved = *gsp_votes_saved(votes);
        *any = true;
    } else if (st == ATOM_OK && gsp_pool_is_founder(r->life)) {
        gsp_manifest_genesis(m, &saved->genesis);
        *any = true;
    }
    gsp_votes_close(&votes);
    atom_free(member);
    return st;
}

static atom_status restore(pool_run *r, const gsp_manifest *m)
{
    char *member = NULL;
    bool any = false;
    atom_status st;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    if (!saved)
        return atom_fail_memory("a member's memory", sizeof *saved);
    ATOM_TRY_CLEAN(recall(r, m, saved, &any));
    if (!any)
        goto cleanup;
    st = pool_anchor_restore(r->pool, saved);
    if (st == ATOM_E_FORMAT) {
        pool_run_note(r, "%s", atom_fail_message());
        member = pool_run_path(r, "member");
        st = member ? gsp_votes_forget(member) : atom_fail_memory("a path", 256);
    }
cleanup:
    atom_free(member);
    atom_free(saved);
    return st;
}

/* A joiner's anchor comes from the others: the pool's thread fetches it. */
static atom_status wait_for_anchor(pool_run *r)
{
    while (!pool_anchor_ready(r->pool)) {
        gsp_pool_wish wish = gsp_pool_wishes(r->life, r->why, &r->ended);
        if (cli_signal())
            return atom_fail(ATOM_E_INTERRUPTED, "stopped before the pool's weights were here");
        if (wish == GSP_POOL_STOP)
            return atom_fail(r->ended == ATOM_OK ? ATOM_E_INTERRUPTED : r->ended, "%s", r->why);
        gsp_pool_read_status(r->life, r->status);
        if (!r->quiet)
            cli_progress_draw(r->status->text, false);
        if (!r->quiet && atom_clock_seconds() - r->shown_seconds > SHOW_SECONDS &&
            !cli_progress_live()) {
            r->shown_seconds = atom_clock_seconds();
            pool_run_note(r, "pool: %s",
                          *r->status->text ? r->status->text : "looking for members");
        }
        usleep(50000);
    }
    cli_progress_end();
    return ATOM_OK;
}

static atom_status start(pool_run *r, bool genesis)
{
    const gsp_manifest *m = gsp_pool_manifest(r->life);
    gsp_pool_part part = {0};
    trainer_place place = trainer_where(r->t);
    ATOM_TRY(check_base(r));
    ATOM_TRY(check_model(r, m));
    ATOM_TRY(check_data(r));
    pool_run_offer(r);
    ATOM_TRY(open_seam(r, m));
    ATOM_TRY(save_local(r));
    if (genesis)
        ATOM_TRY(pool_anchor_begin(r->pool, trainer_weights(r->t)));
    else
        ATOM_TRY(restore(r, m));
    /* A founder whose anchor is lost fetches it like everybody else. */
    part.holds_genesis = gsp_pool_is_founder(r->life) && pool_anchor_ready(r->pool);
    part.has_audit = true;
    part.audit_percent = (uint32_t)r->settings.audit_percent;
    pool_anchor_work(r->pool, &part.work);
    ATOM_TRY(gsp_pool_start(r->life, &part));
    ATOM_TRY(wait_for_anchor(r));
    r->samples_first = place.samples;
    r->tokens_first = place.tokens;
    ATOM_TRY(pool_anchor_attach(r->pool, trainer_weights(r->t), place.marks, place.samples,
                                place.tokens));
    return trainer_weights_changed(r->t);
}

/* ---- the end ---- */

static json_t *summary_json(const pool_run *r, const train_summary *s)
{
    pool_anchor_status p;
    char hex[2 * GSP_HASH_BYTES + 1];
    pool_anchor_read_status(r->pool, true, &p);
    for (int i = 0; i < GSP_HASH_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", p.anchor.byte[i]);
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:s, s:s?, s:b, s:I, s:s, s:I, s:I, s:I, s:I, s:I, "
                     "s:o, s:s}",
                     "steps", (json_int_t)s->steps, "first_step", (json_int_t)s->first_step,
                     "first_loss", cli_real(s->first_loss), "final_loss", cli_real(s->final_loss),
                     "tokens_per_second", cli_real(s->tokens_per_second), "output_dir", r->dir,
                     "checkpoint", s->checkpoint, "interrupted", (int)s->interrupted, "version",
                     (json_int_t)p.applied, "anchor", hex, "included", (json_int_t)p.included,
                     "merged", (json_int_t)p.merged, "pool_step", (json_int_t)p.pool_step,
                     "pool_steps", (json_int_t)p.max_steps, "certified_samples",
                     (json_int_t)p.certified_samples, "seam_seconds", cli_real(p.seam_seconds),
                     "plan", trainer_plan_origin(r->t));
}

static atom_status sum_up(const pool_run *r, const train_summary *s)
{
    pool_anchor_status p;
    if (r->json)
        return cli_print_json(summary_json(r, s));
    if (r->quiet)
        return ATOM_OK;
    pool_anchor_read_status(r->pool, false, &p);
    cli_print("trained steps %lld to %lld: loss %.4f to %.4f, %s tokens/s\n",
              (long long)s->first_step, (long long)s->steps, s->first_loss, s->final_loss,
              cli_count(s->tokens_per_second));
    cli_print("the pool stands at version %llu, step %llu of %llu; %llu of our contributions are "
              "in it\n",
              (unsigned long long)p.applied, (unsigned long long)p.pool_step,
              (unsigned long long)p.max_steps, (unsigned long long)p.included);
    if (s->checkpoint)
        cli_print("saved %s\n", s->checkpoint);
    if (p.pool_step >= p.max_steps && p.max_steps > 0)
        cli_print("the pool is done; its model: atom pool export %s -o model\n", r->dir);
    else
        cli_print("back to the pool: atom pool join -o %s\n", r->dir);
    if (s->checkpoint)
        cli_print("or on alone: atom train --model %s --data %s -o alone\n", s->checkpoint,
                  r->config.data);
    return ATOM_OK;
}

/* All that one sum is made of end together: nobody is there to let anybody off the roster. Whoever
 * lacks the last version gets it first. */
static void wait_for_the_last(pool_run *r)
{
    double end = atom_clock_seconds() + GOODBYE_SECONDS;
    bool behind = true;
    while (behind && atom_clock_seconds() < end && !cli_signal()) {
        usleep(50000);
        gsp_pool_read_status(r->life, r->status);
        behind = false;
        for (uint32_t i = 0; i < r->status->n_peers; i++) {
            const gsp_pool_peer *p = &r->status->peer[i];
            behind |= p->up && p->on_roster && p->applied < r->status->member.applied;
        }
    }
}

/* Off the roster where this was the end for good; a signal is only a pause. */
static void say_goodbye(pool_run *r)
{
    bool asked = r->wish == GSP_POOL_STOP, broken = r->ended != ATOM_OK;
    if (broken || (cli_signal() && !asked))
        return;
    pool_anchor_status s;
    pool_anchor_read_status(r->pool, false, &s);
    if (pool_run_sums(r) && s.pool_step >= s.max_steps)
        wait_for_the_last(r);
    else if (gsp_pool_leave(r->life, GOODBYE_SECONDS) != ATOM_OK)
        pool_run_note(r, "%s", atom_fail_message());
}

atom_status pool_run_train(pool_run *r, bool genesis)
{
    train_summary summary = {.first_loss = NAN, .final_loss = NAN, .validation_loss = NAN};
    atom_status st = ATOM_OK;
    ATOM_TRY(start(r, genesis));
    r->shown_seconds = atom_clock_seconds();
    /* A share of a sum may be all of it: nothing is brought before it was asked who is there. */
    pool_anchor_running(r->pool, !pool_run_sums(r));
    notify_manager("READY=1\nSTATUS=training");
    st = trainer_run(r->t, &summary);
    notify_manager("STOPPING=1\nSTATUS=saying goodbye");
    pool_anchor_running(r->pool, false);
    train_progress_end(&r->progress);
    r->progress.file = NULL;
    if (st != ATOM_OK && st != ATOM_E_INTERRUPTED)
        return st;
    say_goodbye(r);
    atom_status told = sum_up(r, &summary);
    if (r->ended != ATOM_OK)
        st = atom_fail(r->ended, "%s", r->why);
    else if (st == ATOM_E_INTERRUPTED && r->wish == GSP_POOL_STOP)
        st = told; /* it was asked to leave, and did */
    else
        st = st == ATOM_OK ? told : st;
    return st;
}

atom_status pool_run_limit(pool_run *r, const pool_host *host)
{
    char missing[POOL_LIMITS_WHY_BYTES];
    atom_status st = pool_host_limits(host, missing, &r->limits);
    if (st == ATOM_OK && missing[0])
        pool_run_note(r, "%s", missing);
    return st;
}

void pool_run_close(pool_run *r)
{
    pool_limits_close(&r->limits);
    if (gsp_pool_close(&r->life) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    trainer_close(&r->t);
    pool_anchor_close(&r->pool);
    train_config_free(&r->config);
    opt_free(&pool_options, &r->settings);
    atom_free(r->plan_class);
    atom_free(r->plan_text);
    atom_free(r->status);
    atom_free(r->data_dir);
}
