/*
 * Owns a member's run: it brings up trainer, anchor and membership in the right order, tells the
 * pool how far it is, and ends all three. One idea: the trainer never waits for the pool; what the
 * pool wants is asked between two steps. Refuses to train a model that is not the pool's.
 */
#include "atom/pool/run_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/votes.h"
#include "gossip/trust/seals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double GOODBYE_SECONDS = 15;

static bool stopped(const pool_run *r)
{
    return r->hooks.stop(r->hooks.ctx);
}

/* ---- life ---- */

atom_status pool_run_begin(const pool_run_config *config, pool_run **out)
{
    char missing[POOL_LIMITS_WHY_BYTES] = "";
    pool_run *r = atom_alloc(1, sizeof *r);
    *out = r;
    if (!r)
        return atom_fail_memory("a run in a pool", sizeof *r);
    r->hooks = pool_hooks_whole(config->hooks);
    r->max_steps = config->max_steps;
    r->dir = atom_strdup(config->dir);
    r->status = atom_alloc(1, sizeof *r->status);
    r->data = (pool_dataset){.hooks = &r->hooks, .run_dir = r->dir};
    r->plans.hooks = &r->hooks;
    if (!r->dir || !r->status)
        return atom_fail_memory("a run in a pool", sizeof *r->status);
    if (config->host) {
        r->disk_max = pool_host_limit(config->host->disk_gb, 1e9);
        r->data.down_bytes_per_s = pool_host_limit(config->host->down_mbit, 1e6 / 8);
        ATOM_TRY(pool_host_limits(config->host, missing, &r->limits));
    }
    if (missing[0])
        pool_note(&r->hooks, "%s", missing);
    return ATOM_OK;
}

/* Its last status is kept. What ended it meanwhile is logged. */
static void end_membership(pool_run *r)
{
    if (r->life && r->status)
        gsp_pool_read_status(r->life, r->status);
    if (gsp_pool_close(&r->life) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}

void pool_run_close(pool_run **run)
{
    pool_run *r = *run;
    *run = NULL;
    if (!r)
        return;
    pool_limits_close(&r->limits);
    end_membership(r);
    train_products_close(&r->products);
    trainer_close(&r->t);
    pool_anchor_close(&r->anchor);
    train_config_free(&r->config);
    opt_free(&pool_options, &r->settings);
    pool_plans_free(&r->plans);
    pool_dataset_free(&r->data);
    atom_free(r->advice);
    atom_free(r->withheld);
    atom_free(r->status);
    atom_free(r->dir);
    atom_free(r);
}

char *pool_run_path(const pool_run *r, const char *name)
{
    return atom_format("%s/pool%s%s", r->dir, *name ? "/" : "", name);
}

bool pool_run_sums(const pool_run *r)
{
    return pool_settings_sums(&r->settings);
}

uint64_t pool_run_own_seed(const pool_run *r)
{
    uint8_t text[GSP_PUBLIC_BYTES + 8];
    gsp_seals seals = gsp_seals_real(NULL);
    gsp_hash hash;
    uint64_t seed = 0;
    if (gsp_pool_is_founder(r->life))
        return (uint64_t)r->config.seed;
    memcpy(text, gsp_pool_key(r->life), GSP_PUBLIC_BYTES);
    for (int i = 0; i < 8; i++)
        text[GSP_PUBLIC_BYTES + i] = (uint8_t)((uint64_t)r->config.seed >> 8 * i);
    seals.hash(NULL, text, sizeof text, &hash);
    for (int i = 0; i < 8; i++)
        seed |= (uint64_t)hash.byte[i] << 8 * i;
    return seed >> 2;
}

const char *pool_run_ticket(const pool_run *r)
{
    return r->life ? gsp_pool_ticket(r->life) : "";
}

uint16_t pool_run_port(const pool_run *r)
{
    return r->life ? gsp_pool_port(r->life) : 0;
}

const pool_settings *pool_run_settings(const pool_run *r)
{
    return &r->settings;
}

const pool_advice *pool_run_advice(const pool_run *r)
{
    return r->advice;
}

const train_config *pool_run_configuration(const pool_run *r)
{
    return &r->config;
}

const trainer *pool_run_trainer(const pool_run *r)
{
    return r->t;
}

void pool_run_read_status(pool_run *r, bool with_hash, pool_run_status *out)
{
    memset(out, 0, sizeof *out);
    if (r->life)
        gsp_pool_read_status(r->life, &out->pool);
    else
        out->pool = *r->status;
    if (r->anchor)
        pool_anchor_read_status(r->anchor, with_hash, &out->anchor);
}

void pool_run_leave(pool_run *r)
{
    atomic_store(&r->leaving, true);
}

/* ---- what the trainer asks for ---- */

static void on_note(void *ctx, const char *text)
{
    const pool_run *r = ctx;
    r->hooks.note(r->hooks.ctx, text);
}

static void on_progress(void *ctx, const char *what, uint32_t done, uint32_t total)
{
    const pool_run *r = ctx;
    r->hooks.progress(r->hooks.ctx, what, done, total);
}

static void on_report(void *ctx, const train_report *report)
{
    pool_run *r = ctx;
    if (!report->validation) {
        /* S is that of the mean member: each counts a sample as one n-th. */
        gsp_pool_read_status(r->life, r->status);
        uint32_t n = r->status->member.n_roster ? r->status->member.n_roster : 1;
        r->scaled += (double)r->settings.batch / n;
        pool_anchor_alone(r->anchor, r->status->member.lacks_quorum);
        gsp_pool_report(r->life, (uint64_t)r->scaled,
                        (uint64_t)report->tokens_seen - r->tokens_first);
    }
    r->hooks.report(r->hooks.ctx, report);
    if (!report->validation)
        pool_people_look(&r->people, r->status, &r->hooks);
}

/* Whether the pool has yet to begin, and lacks members for it; then `text` says so. */
static bool lacks_peers(pool_run *r, char text[POOL_LIMITS_WHY_BYTES])
{
    pool_anchor_status s;
    if (r->settings.min_peers <= 1)
        return false;
    gsp_pool_read_status(r->life, r->status);
    pool_anchor_read_status(r->anchor, false, &s);
    uint32_t n = r->status->member.n_roster ? r->status->member.n_roster : 1; /* with this one */
    int64_t few = r->settings.min_peers - n;
    if (s.certified_samples > 0 || few <= 0)
        return false;
    snprintf(text, POOL_LIMITS_WHY_BYTES,
             "training begins with %lld members: waiting for %lld more",
             (long long)r->settings.min_peers, (long long)few);
    pool_run_say_unbegun(r);
    r->lacks = true;
    return true;
}

/* What the pool, its user or this host's own limits want now. text: why nothing is computed; "":
 * there is no reason to wait. */
static void ask_wish(pool_run *r, char text[GSP_POOL_WHY_BYTES])
{
    r->wish = gsp_pool_wishes(r->life, r->why, &r->ended);
    if (atomic_load(&r->leaving))
        r->wish = GSP_POOL_STOP;
    text[0] = 0;
    if (r->wish == GSP_POOL_PAUSE)
        snprintf(text, GSP_POOL_WHY_BYTES, "paused; to continue: atom pool resume %s", r->dir);
    else if (r->wish == GSP_POOL_REST)
        snprintf(text, GSP_POOL_WHY_BYTES, "%s", *r->why ? r->why : "resting");
    else if (r->wish == GSP_POOL_GO && pool_run_has_room(r, text) &&
             (!r->limits || pool_limits_now(r->limits, text)) && !lacks_peers(r, text) &&
             !pool_run_ends(r, text))
        text[0] = 0;
}

/* Between two steps: waits as long as there is a reason not to compute. True: save and end. */
static bool on_stop(void *ctx)
{
    pool_run *r = ctx;
    char why[GSP_POOL_WHY_BYTES];
    bool paused = false, stop = false;
    for (;;) {
        r->lacks = false;
        ask_wish(r, why);
        stop = stopped(r);
        if (stop || !why[0])
            break;
        if (!paused) {
            if (!r->starved) /* then it was said */
                pool_note(&r->hooks, "%s", why);
            r->hooks.phase(r->hooks.ctx, POOL_PHASE_RESTING);
            pool_anchor_running(r->anchor, false);
        }
        pool_anchor_awaits(r->anchor, r->lacks ? (uint32_t)r->settings.min_peers : 0);
        if (r->wish == GSP_POOL_GO) /* of a pause and of a month's end the status tells anyway */
            gsp_pool_say_rest(r->life, why);
        paused = true;
        usleep(100000);
    }
    gsp_pool_say_rest(r->life, "");
    paused |= r->starved;
    r->starved = false;
    if (paused && !stop && r->wish != GSP_POOL_STOP)
        r->hooks.phase(r->hooks.ctx, POOL_PHASE_TRAINING);
    if (paused || pool_run_sums(r))
        pool_anchor_running(r->anchor, true);
    return stop || r->wish == GSP_POOL_STOP;
}

/* The plan fits, and says what goes to disk: where there is room, the data may come. */
static atom_status bring_data(void *ctx, const trainer *t)
{
    const pool_run *r = ctx;
    ATOM_TRY(pool_run_check_disk(r, t));
    return r->data.fetch ? pool_dataset_fetch(&r->data, r->life) : ATOM_OK;
}

atom_status pool_run_open_trainer(pool_run *r)
{
    pool_run_seam(r, &r->seam);
    r->plans.life = r->life;
    r->trainer_plans = pool_plans_hooks(&r->plans);
    r->trainer_hooks = (train_hooks){.report = on_report,
                                     .progress = on_progress,
                                     .note = on_note,
                                     .stop = on_stop,
                                     .data = r->genesis ? NULL : bring_data,
                                     .seam = &r->seam,
                                     .plans = &r->trainer_plans,
                                     .ctx = r};
    ATOM_TRY(trainer_open(&r->config, &r->trainer_hooks, &r->t));
    ATOM_TRY(trainer_products_open(r->t, &r->products));
    pool_run_say_tier(r);
    return ATOM_OK;
}

void pool_run_say_mode(const pool_run *r, uint64_t n_floats)
{
    char text[POOL_SAID_BYTES];
    pool_settings_say(&r->settings, text);
    pool_note(&r->hooks, "mode %s: %s", pool_settings_mode(&r->settings), text);
    pool_note(&r->hooks, "%s", pool_settings_trust(&r->settings));
    if (pool_run_sums(r) && r->settings.data == POOL_DATA_OWN)
        pool_note(&r->hooks,
                  "data: own: every member has to bring a copy of the same data, which the pool "
                  "does not send; other data is refused, because all work on the same batches");
    pool_run_say_memory(r, n_floats);
}

/* ---- the start ---- */

/* Adapters are averaged, of one model: everybody has its own copy. */
static atom_status check_base(const pool_run *r)
{
    char base[TRAIN_BASE_BYTES];
    const char *wanted = r->settings.base_hash;
    if (!wanted || strcmp(trainer_base(r->t, base), wanted) == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s is not the model that this pool's adapters are for: its weights have "
                     "the hash %.16s, but the pool needs %.16s. Name an exact copy of the "
                     "creator's model with --model; in another type (bf16 instead of fp32, "
                     "quantized) it does not count as the same. Nothing was fetched",
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

/* With gradients everybody reads the same samples, each its own of them. Files that the manifest names
 * were compared with it by their contents already. */
static atom_status check_data(const pool_run *r)
{
    const trainer_place here = trainer_where(r->t);
    const uint64_t contents = here.data_contents;
    if (!pool_run_sums(r) ||
        (contents && pool_data_hash(here.data_hash, contents) == r->settings.data_hash))
        return ATOM_OK;
    if (pool_data_hash(here.data_hash, 0) != r->settings.data_hash)
        return atom_fail(ATOM_E_USAGE,
                         "%s is not the data that the others train on; in a pool that sums "
                         "gradients all members need the same data, so prepare it from the same "
                         "text with the same options%s",
                         r->config.data,
                         contents ? ""
                                  : "; shards of an older atom do not say what they contain, so "
                                    "prepare such ones again");
    if (!r->genesis && (!r->data.named || r->data.either))
        pool_note(&r->hooks,
                  "%s has files of the same names and lengths as the data of the others; what they "
                  "contain was not compared, because %s",
                  r->config.data,
                  contents ? "the pool was made by an older atom"
                           : "they were made by an older atom or by another program");
    return ATOM_OK;
}

static atom_status open_anchor(pool_run *r, const gsp_manifest *m)
{
    char *directory = pool_run_path(r, "anchor");
    pool_update update;
    if (!directory)
        return atom_fail_memory("a path", 256);
    pool_update_of(r->t,
                   (uint32_t)(pool_settings_together(&r->settings) / r->config.micro_batch_size),
                   &update);
    update.products = r->products;
    update.schedule_batch = (uint64_t)r->settings.batch;
    update.delayed = r->settings.delayed_updates;
    update.robust = m->clips_sums;
    update.returns = m->shares_return;
    update.passes_on = m->passes_on;
    pool_anchor_config c = {.directory = directory,
                            .n_floats = trainer_floats(r->t),
                            .n_fragments = m->n_fragments,
                            .outer_learning_rate = r->settings.outer_learning_rate,
                            .outer_momentum = r->settings.outer_momentum,
                            .mix = r->settings.mix,
                            .batch = (uint64_t)r->settings.batch,
                            .max_samples = (uint64_t)(r->settings.batch * r->settings.steps),
                            .tokens_per_sample = m->tokens_per_sample,
                            .round_samples = (uint64_t)(r->settings.sync_steps * r->settings.batch),
                            .max_steps = r->max_steps,
                            .rewarm_steps = r->settings.rewarm_steps,
                            .update = pool_run_sums(r) ? &update : NULL,
                            .dense_samples = pool_settings_dense(&r->settings),
                            .slices = r->settings.sync == POOL_SYNC_SLICES,
                            .on_disk = trainer_seam_on_disk(r->t)};
    memcpy(c.self.byte, gsp_pool_key(r->life), sizeof c.self.byte);
    atom_status st = pool_anchor_open(&c, &r->anchor);
    if (st == ATOM_OK)
        r->seam = pool_anchor_seam(r->anchor);
    r->seam.own_seed = pool_run_own_seed(r);
    atom_free(directory);
    return st;
}

/* What the member remembers, or the pool's genesis for a founder whose member never ran. */
static atom_status recall(const pool_run *r, const gsp_manifest *m, const char *member,
                          gsp_saved *saved, bool *any)
{
    gsp_votes *votes = NULL;
    if (atom_path_exists(member))
        ATOM_TRY(gsp_votes_open(member, &votes));
    *any = true;
    if (votes && gsp_votes_saved(votes))
        *saved = *gsp_votes_saved(votes);
    else if (gsp_pool_is_founder(r->life))
        gsp_manifest_genesis(m, &saved->genesis);
    else
        *any = false;
    gsp_votes_close(&votes);
    return ATOM_OK;
}

/* The anchor from this host's disk; where that is damaged, the member's memory is forgotten, and
 * the anchor comes from the others. */
static atom_status restore(pool_run *r, const gsp_manifest *m)
{
    char *member = pool_run_path(r, "member");
    bool any = false;
    atom_status st;
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    if (!saved || !member)
        ATOM_TRY_CLEAN(atom_fail_memory("a member's memory", sizeof *saved));
    ATOM_TRY_CLEAN(recall(r, m, member, saved, &any));
    if (any)
        st = pool_anchor_restore(r->anchor, saved);
    if (st == ATOM_E_FORMAT) {
        pool_note(&r->hooks, "%s", atom_fail_message());
        st = gsp_votes_forget(member);
    }
cleanup:
    atom_free(member);
    atom_free(saved);
    return st;
}

/* While a joiner's anchor is missing: has anybody been there of late? */
static atom_status check_patience(const pool_run *r, const char *text, double *heard, bool *said)
{
    static const double SOON_SECONDS = 3;
    double now = atom_clock_seconds(), patience = r->data.patience_s;
    if (r->status->member.n_links > 0)
        *heard = now;
    if (r->came_back && !*said && now - *heard > SOON_SECONDS) {
        *said = true;
        pool_note(
            &r->hooks,
            "this member said goodbye last time, or never had the pool's weights whole, so it "
            "needs those of another member, and none answers yet. If it had some, this "
            "writes them: atom pool export %s -o model",
            r->dir);
    }
    return patience <= 0 || now - *heard <= patience
               ? ATOM_OK
               : atom_fail(ATOM_E_RUNTIME, "nobody of the pool answered in time: %s", text);
}

/* A joiner learns from the pool's certificates that it comes too late. */
static void say_ended(const pool_run *r, bool *said)
{
    uint64_t last = (uint64_t)(r->settings.batch * r->settings.steps);
    if (*said || last == 0 || r->status->member.state_samples < last)
        return;
    *said = true;
    pool_note(&r->hooks,
              "the run of this pool has ended: step %lld of %lld was made. What is left are its "
              "weights. They are fetched from the members that are still there, if these are "
              "enough to vouch for them; a member can also give you the model that it writes with "
              "atom pool export",
              (long long)r->settings.steps, (long long)r->settings.steps);
}

/* A joiner's anchor comes from the others: the pool's thread fetches it. */
static atom_status wait_for_anchor(pool_run *r)
{
    double heard = atom_clock_seconds();
    bool said = false, told = false;
    while (!pool_anchor_ready(r->anchor)) {
        gsp_pool_wish wish = gsp_pool_wishes(r->life, r->why, &r->ended);
        gsp_pool_read_status(r->life, r->status);
        const gsp_pool_progress progress = {.stage = GSP_POOL_RUNNING,
                                            .text = *r->status->text ? r->status->text
                                                                     : "looking for members"};
        bool leaving = atomic_load(&r->leaving);
        if (leaving || stopped(r) || !r->hooks.watch(r->hooks.ctx, &progress))
            return atom_fail(ATOM_E_INTERRUPTED, "stopped before the pool's weights had arrived");
        if (wish == GSP_POOL_STOP)
            return atom_fail(r->ended == ATOM_OK ? ATOM_E_INTERRUPTED : r->ended, "%s", r->why);
        say_ended(r, &told);
        ATOM_TRY(check_patience(r, progress.text, &heard, &said));
        usleep(50000);
    }
    return ATOM_OK;
}

static atom_status start(pool_run *r)
{
    const gsp_manifest *m = gsp_pool_manifest(r->life);
    gsp_pool_part part = {.has_audit = true, .audit_percent = (uint32_t)r->settings.audit_percent};
    trainer_place place = trainer_where(r->t);
    ATOM_TRY(check_base(r));
    ATOM_TRY(check_model(r, m));
    ATOM_TRY(check_data(r));
    pool_plans_offer(&r->plans, r->life);
    ATOM_TRY(open_anchor(r, m));
    ATOM_TRY(pool_run_save_local(r));
    if (r->genesis) {
        ATOM_TRY(pool_anchor_begin(r->anchor, trainer_weights(r->t)));
        pool_run_is_made(r);
    } else
        ATOM_TRY(restore(r, m));
    /* A founder whose anchor is lost fetches it like everybody else. */
    part.holds_genesis = gsp_pool_is_founder(r->life) && pool_anchor_ready(r->anchor);
    pool_anchor_work(r->anchor, &part.work);
    ATOM_TRY(gsp_pool_start(r->life, &part));
    ATOM_TRY(wait_for_anchor(r));
    r->tokens_first = place.tokens;
    ATOM_TRY(pool_anchor_attach(r->anchor, trainer_weights(r->t), place.marks, place.samples,
                                place.tokens));
    return trainer_weights_changed(r->t);
}

/* ---- the end ---- */

/* Off the roster where this was the end for good; a hook's stop is only a pause. */
static void say_goodbye(pool_run *r)
{
    bool asked = r->wish == GSP_POOL_STOP, broken = r->ended != ATOM_OK;
    if (broken || (stopped(r) && !asked))
        return;
    pool_anchor_status s;
    pool_anchor_read_status(r->anchor, false, &s);
    bool last = s.pool_step >= s.max_steps;
    if (last)
        pool_run_wait_for_others(r, GOODBYE_SECONDS);
    if (last && r->settings.sync == POOL_SYNC_GRADIENTS)
        return; /* all that one sum is made of end together: nobody is there to let anybody off */
    if (gsp_pool_leave(r->life, GOODBYE_SECONDS) != ATOM_OK)
        pool_note(&r->hooks, "%s", atom_fail_message());
}

/* Not one step before its hours, or after `pause`. */
static bool rests_at_first(pool_run *r)
{
    char why[GSP_POOL_WHY_BYTES];
    r->wish = gsp_pool_wishes(r->life, r->why, &r->ended);
    return r->wish == GSP_POOL_PAUSE || !pool_run_has_room(r, why) ||
           (r->limits && !pool_limits_now(r->limits, why));
}

/* What ends the membership meanwhile, or then, does not take the place of what ended the run. */
static atom_status end_after(pool_run *r, atom_status st)
{
    char why[512];
    snprintf(why, sizeof why, "%s", atom_fail_message());
    end_membership(r);
    return pool_run_say_return(r, atom_fail(st, "%s", why));
}

atom_status pool_run_train(pool_run *r, train_summary *summary, bool *orderly)
{
    bool unused;
    pool_anchor_status s;
    orderly = orderly ? orderly : &unused;
    *orderly = false;
    *summary = (train_summary){
        .first_step = 1, .first_loss = NAN, .final_loss = NAN, .validation_loss = NAN};
    ATOM_TRY(start(r));
    pool_run_forget_done(r);
    /* A share of a sum may be all of it: nothing is brought before the roster was asked for. */
    pool_anchor_running(r->anchor, !pool_run_sums(r));
    r->hooks.phase(r->hooks.ctx, POOL_PHASE_TRAINING);
    atom_room_wait_by(pool_run_wait_room, r);
    atom_status st = rests_at_first(r) && on_stop(r)
                         ? atom_fail(ATOM_E_INTERRUPTED, "stopped before a step")
                         : trainer_run(r->t, summary);
    atom_room_wait_by(NULL, NULL);
    r->hooks.phase(r->hooks.ctx, POOL_PHASE_LEAVING);
    pool_anchor_running(r->anchor, false);
    if (st != ATOM_OK && st != ATOM_E_INTERRUPTED)
        return end_after(r, st);
    *orderly = true;
    say_goodbye(r);
    end_membership(r); /* from here on the anchor is what is on disk, and what is told of it */
    if (r->ended != ATOM_OK)
        return pool_run_say_return(r, atom_fail(r->ended, "%s", r->why));
    pool_anchor_read_status(r->anchor, false, &s);
    if (s.done)
        pool_run_keep_done(r, &s, summary->checkpoint);
    return r->wish == GSP_POOL_STOP ? ATOM_OK : st; /* it was asked to leave, and did */
}
