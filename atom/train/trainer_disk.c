/*
 * Owns what a run does about an optimizer's state that lives on disk: where the store is, what
 * describes each of its generations, and whether a run goes on from it or from a checkpoint. One
 * idea: the store is a checkpoint that is renewed with every step; the newer of the two wins.
 * Refuses to trust a generation that nobody described.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *trainer_store_dir(const trainer *t)
{
    return t->config->store_dir ? t->config->store_dir : t->config->output_dir;
}

atom_status trainer_store_path(const trainer *t, char **path)
{
    *path = atom_path_join(trainer_store_dir(t), "optimizer.store");
    return *path ? ATOM_OK : atom_fail_memory("a path", 256);
}

/* Whose store lies in a store_dir that is not output_dir: the whole path of that run's output_dir. */
static const char OWNER[] = "optimizer.run";

/* May the store there be ours? What another run left behind is all that it can go on from. */
static atom_status check_owner(const trainer *t, const char *owner, const char *us)
{
    char *path = NULL, *them = NULL;
    uint64_t bytes;
    atom_status st;
    ATOM_TRY_CLEAN(trainer_store_path(t, &path));
    if (!atom_path_exists(path) || !atom_path_exists(owner))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(owner, PATH_MAX, &them, &bytes));
    if (strcmp(them, us) != 0 && atom_path_is_dir(them))
        st = atom_fail(ATOM_E_USAGE,
                       "store_dir %s holds the state of another run (%s), which needs it to "
                       "continue; name another store_dir, or remove %s if that run is over",
                       trainer_store_dir(t), them, path);
cleanup:
    atom_free(path);
    atom_free(them);
    return st;
}

atom_status trainer_store_claim(const trainer *t)
{
    char us[PATH_MAX], place[PATH_MAX], *owner = NULL;
    atom_status st;
    if (!realpath(t->config->output_dir, us) || !realpath(trainer_store_dir(t), place))
        return atom_fail_errno(errno, "%s", trainer_store_dir(t));
    if (strcmp(us, place) == 0)
        return ATOM_OK; /* output_dir's own rules say what is in the way */
    owner = atom_path_join(place, OWNER);
    if (!owner)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(check_owner(t, owner, us));
    st = atom_file_write(owner, us, strlen(us));
cleanup:
    atom_free(owner);
    return st;
}

static void remove_file(const trainer *t)
{
    char *path = NULL;
    if (trainer_store_path(t, &path) == ATOM_OK)
        (void)unlink(path);
    atom_free(path);
}

void trainer_store_replace(const trainer *t)
{
    char us[PATH_MAX], *owner = atom_path_join(trainer_store_dir(t), OWNER);
    if (owner && realpath(t->config->output_dir, us) && check_owner(t, owner, us) == ATOM_OK)
        remove_file(t);
    atom_free(owner);
}

static bool resumes_automatically(const trainer *t)
{
    const char *resume = t->config->resume_from_checkpoint;
    return resume && strcmp(resume, "auto") == 0;
}

bool trainer_disk_left(const trainer *t)
{
    char *path = NULL;
    bool left = !resumes_automatically(t) && trainer_store_path(t, &path) == ATOM_OK &&
                atom_path_exists(path);
    atom_free(path);
    return left;
}

/* The newest step of a generation that was described, whether it is there or not. */
static int64_t newest_described(const trainer *t)
{
    int64_t newest = 0;
    for (uint32_t i = 0; i < SWAP_GENERATIONS; i++) {
        train_state s;
        if (train_disk_state_find(trainer_store_dir(t), i, &s) == ATOM_OK && s.step > newest)
            newest = s.step;
    }
    return newest;
}

/* A generation was described, but the store knows of no step: its file was removed. */
static void note_missing(const trainer *t, int64_t saved)
{
    if (!t->engine->disk || !resumes_automatically(t) ||
        !swap_disk_about(t->engine->disk).store.made)
        return;
    int64_t newest = newest_described(t);
    if (newest > saved)
        trainer_note(t,
                     "the optimizer's state of about step %" PRId64 " is lost because "
                     "%s/optimizer.store was removed; continuing from step %" PRId64,
                     newest, trainer_store_dir(t), saved);
}

/* In memory now, but a run on disk got further than its checkpoints. */
static void note_unused(const trainer *t, int64_t saved)
{
    int64_t newest = newest_described(t);
    if (!t->engine->disk && resumes_automatically(t) && newest > saved)
        trainer_note(t,
                     "%s/optimizer.store contains a state of about step %" PRId64 ", which is "
                     "not used; --optimizer-state disk would continue from it",
                     trainer_store_dir(t), newest);
}

bool trainer_disk_resume(trainer *t, const char *checkpoint)
{
    train_state stored, saved = {0};
    char *path = checkpoint ? atom_path_join(checkpoint, "atom_state.json") : NULL;
    swap_disk_facts facts = {0};
    if (t->engine->disk)
        facts = swap_disk_about(t->engine->disk);
    uint64_t committed = facts.step;
    /* Shared: what was put there is worth nothing without those who made it. */
    bool newer = committed > 0 && resumes_automatically(t) && !trainer_is_shared(t);
    if (path && train_state_read(path, &saved) == ATOM_OK)
        newer = newer && (int64_t)committed > saved.step;
    atom_free(path);
    if (!newer) {
        note_missing(t, saved.step);
        note_unused(t, saved.step);
        return false;
    }
    if (train_disk_state_read(trainer_store_dir(t), facts.generation, (int64_t)committed,
                              &stored) != ATOM_OK) {
        trainer_note(t, "the optimizer's state on disk is not used: %s", atom_fail_message());
        return false;
    }
    t->state = stored;
    return true;
}

/* Beside the store, until there is a checkpoint that says it: its layout alone does not tell the norms'
 * epsilon, windows, or what adapters are scaled by. */
static char *model_path(const trainer *t)
{
    return atom_path_join(trainer_store_dir(t), "optimizer.model");
}

static void remove_model(const trainer *t)
{
    char *dir = model_path(t);
    if (dir && atom_path_is_dir(dir) && atom_dir_remove(dir) != ATOM_OK)
        trainer_note(t, "%s", atom_fail_message());
    atom_free(dir);
}

char *trainer_disk_model(const trainer *t)
{
    char *dir = model_path(t);
    if (dir && atom_path_is_dir(dir))
        return dir;
    atom_free(dir);
    return NULL;
}

atom_status trainer_disk_describe(const trainer *t)
{
    const plan_workbench *b = t->bench;
    char *dir = NULL;
    atom_status st;
    const file_ends ends = {t->vocab.start, t->vocab.end};
    if (!t->engine->disk || t->hooks.seam)
        return ATOM_OK;
    if (!t->from_disk)
        remove_model(t); /* of a run that was replaced */
    dir = model_path(t);
    if (!dir)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(atom_dir_make(dir));
    ATOM_TRY_CLEAN(b->base ? file_lora_write_config(dir, &b->lora, b->base)
                           : file_config_write(dir, &b->model.config, b->model.source, &ends));
cleanup:
    atom_free(dir);
    return st;
}

atom_status trainer_before_commit(void *ctx, uint32_t step, int64_t targets)
{
    trainer *t = ctx;
    train_state s = t->state;
    trainer_fill_state(t, &s);
    if (s.step + 1 == (int64_t)step) { /* without clipping a step updates as it runs */
        s.step++;
        s.samples += t->bench->g->micro_batch * t->plan->micro_batches;
        s.tokens_seen += targets;
        s.loss = (double)NAN;
    }
    return train_disk_state_write(trainer_store_dir(t), swap_disk_about(t->engine->disk).next, &s);
}

bool trainer_disk_lost(trainer *t)
{
    if (!t->engine->disk || t->store_lost || !swap_disk_about(t->engine->disk).store.lost)
        return false;
    t->store_lost = true;
    trainer_note(
        t,
        "%s/optimizer.store was removed or replaced while it was in use; this run goes on and "
        "saves a checkpoint now, because only that can be resumed from",
        trainer_store_dir(t));
    return true;
}

static void remove_store(const trainer *t)
{
    char *owner = t->config->store_dir ? atom_path_join(t->config->store_dir, OWNER) : NULL;
    if (owner)
        (void)unlink(owner);
    atom_free(owner);
    remove_model(t);
    remove_file(t);
}

void trainer_disk_refused(const trainer *t)
{
    const swap_disk *disk = t->engine ? t->engine->disk : NULL;
    if (disk && swap_disk_about(disk).store.made)
        remove_store(t);
}

void trainer_disk_done(const trainer *t)
{
    for (int i = 0; i < SWAP_GENERATIONS; i++) {
        char *path = atom_format("%s/optimizer-%d.json", trainer_store_dir(t), i);
        if (path)
            (void)unlink(path);
        atom_free(path);
    }
    remove_model(t);
    if (swap_disk_about(t->engine->disk).store.lost)
        return; /* what has the name now is not ours */
    remove_store(t);
    trainer_note(t, "the state on disk was removed; the last checkpoint holds it");
}

void trainer_disk_ended(const trainer *t)
{
    if (t->engine->disk && resumes_automatically(t) &&
        swap_disk_about(t->engine->disk).step == (uint64_t)t->state.step)
        trainer_disk_done(t);
}

/* Was it the disk only because moments are wide? */
static bool fits_when_narrow(const trainer *t)
{
    const swap_host_layout *h = &t->engine->low->layout;
    uint64_t rest = train_engine_host_bytes(t->engine) - h->ring_bytes + h->trained * 4;
    uint64_t wide = rest + (h->trained + h->seconds) * atom_dtype_bytes(ATOM_F32);
    uint64_t narrow = rest + (h->trained + h->seconds) * atom_dtype_bytes(ATOM_BF16);
    return t->config->optimizer_state == PLAN_STATE_FREE && !t->config->plan &&
           h->moments == ATOM_F32 && narrow <= t->plan->host_budget_bytes &&
           wide > t->plan->host_budget_bytes;
}

void trainer_disk_note(const trainer *t)
{
    if (!t->engine->disk)
        return;
    char each[24], day[24];
    store_facts facts = swap_disk_about(t->engine->disk).store;
    double bytes = (double)swap_blocks_bytes(t->engine->low->layout.blocks);
    double step = part_plan_seconds(t->plan), steps = step > 0 ? 86400 / step : 0;
    trainer_note(t, "optimizer state: on disk in %s, by %s%s; %s written per step, up to %s a day",
                 trainer_store_dir(t), facts.engine,
                 facts.direct ? "" : " (this file system has no direct access: slower)",
                 atom_size_text((uint64_t)bytes, each),
                 atom_size_text((uint64_t)(bytes * steps), day));
    if (fits_when_narrow(t))
        trainer_note(t, "with --moments-dtype bf16 it would fit in memory");
}

atom_status trainer_disk_ahead(trainer *t)
{
    static const double WORTH = 0.98;
    train_ahead *a = &t->engine->ahead;
    double usual = t->plan->predicted_step_seconds, ahead = 0;
    gen_judge judge = {.g = t->bench->g, .profile = t->profile, .table = t->bench->table};
    if (!a->possible || a->mode == TRAIN_AHEAD_NEVER)
        return ATOM_OK;
    if (t->hooks.seam) { /* what comes from outside is for weights that stay */
        a->possible = false;
        return ATOM_OK;
    }
    ATOM_TRY(gen_judge_ahead(&judge, t->plan, &ahead));
    t->summary.predicted_ahead_seconds = ahead;
    if (a->mode == TRAIN_AHEAD_AUTO)
        a->possible = ahead < WORTH * usual;
    if (a->possible)
        trainer_note(t,
                     "updates: ahead of the clip factor while no gradient is clipped, %.3g s "
                     "per step instead of %.3g s",
                     ahead, usual);
    return ATOM_OK;
}
