/*
 * Owns what a run does about a disk that is too small or fills up: the warning at its start that its
 * checkpoints will not fit, logs that could not be written, checkpoints that failed. One idea: what was
 * computed is worth more than what is written about it, so a run goes on, says what is missing and where,
 * and tries again; only the last checkpoint holds up the end, for a time that it says. Refuses to touch
 * an older checkpoint: it may be the only one.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* The last checkpoint is tried again for so long; where nobody can say whether there is room, so many
 * times. A log that fails again is told at most so often. */
static const double PERSIST_S = 600, TRIES = 20, LOOK_S = 1, TELL_S = 60;

/* Checkpoints that there will be beside those of now: the limit's, and the one that is written
 * before the oldest goes. 0: nobody can say. */
static uint64_t more_checkpoints(const trainer *t)
{
    const train_config *c = t->config;
    uint64_t limit = (uint64_t)c->save_total_limit, saves = 0;
    uint64_t there = train_checkpoint_count(c->output_dir);
    if (!t->hooks.seam && c->max_steps > t->state.step) {
        uint64_t steps = (uint64_t)(c->max_steps - t->state.step), each = (uint64_t)c->save_steps;
        saves = each ? (steps + each - 1) / each : 1;
    }
    if (!limit)
        return saves;
    uint64_t most = limit + 1 > there ? limit + 1 - there : 1;
    return saves && saves < most ? saves : most;
}

void trainer_note_room(trainer *t)
{
    const train_config *c = t->config;
    const train_checkpoint one = trainer_checkpoint(t);
    uint64_t each = train_checkpoint_bytes(&one), n = more_checkpoints(t), left;
    char size[24], have[24], need[24];
    if (t->hooks.save_nothing || !n || !atom_dir_free_bytes(c->output_dir, &left) ||
        left / n >= each)
        return;
    trainer_note(t,
                 "warning: output_dir %s has room for %" PRIu64 " more checkpoints of %s (%s are "
                 "free), but this run writes up to %" PRIu64 ": %s (%" PRIu64 " bytes) are "
                 "missing; free some space, lower --save-total-limit (%" PRId64 "%s) or name "
                 "another --output-dir",
                 c->output_dir, left / each, atom_size_text(each, size), atom_size_text(left, have),
                 n, atom_size_text(n * each - left, need), n * each - left, c->save_total_limit,
                 c->save_total_limit ? "" : ": all are kept");
}

/* ---- logs ---- */

void trainer_logged(trainer *t, trainer_log *log, const char *name, atom_status st)
{
    double now = atom_clock_seconds();
    if (st == ATOM_OK) {
        if (log->told)
            trainer_note(t, "%s is written again; it lacks %" PRIu64 " entries", name, log->lost);
        log->lost = 0;
        log->told = false;
        return;
    }
    log->lost++;
    if (log->told || (log->told_s > 0 && now - log->told_s < TELL_S))
        return;
    log->told = true;
    log->told_s = now;
    trainer_note(t,
                 "warning: %s. Training goes on without it; what is not written now will be "
                 "missing there, and the next entry is tried again",
                 atom_fail_message());
}

/* ---- checkpoints that failed ---- */

bool trainer_may_go_on(atom_status st)
{
    return st == ATOM_E_RESOURCE || st == ATOM_E_RUNTIME;
}

bool trainer_lacks_room(trainer *t, uint64_t *need, uint64_t *left)
{
    const train_checkpoint one = trainer_checkpoint(t);
    *need = train_checkpoint_bytes(&one);
    *need += *need / 64; /* headers and small files */
    *left = UINT64_MAX;
    return atom_dir_free_bytes(t->config->output_dir, left) && *left < *need;
}

/* What there is to go on from. */
static void say_older(const trainer *t, char *text, size_t room)
{
    char *path = NULL;
    atom_status st = train_checkpoint_newest(t->config->output_dir, &path);
    if (st == ATOM_OK && path)
        snprintf(text, room, "%s is whole", path);
    else
        snprintf(text, room, "there is no checkpoint yet");
    atom_free(path);
}

/* How much a checkpoint takes, and what is free. */
static bool say_room(trainer *t, char *text, size_t room)
{
    uint64_t need, left;
    char takes[24], has[24];
    bool lacks = trainer_lacks_room(t, &need, &left);
    if (left == UINT64_MAX)
        snprintf(text, room, "A checkpoint takes %s", atom_size_text(need, takes));
    else
        snprintf(text, room, "A checkpoint takes %s, and %s has %s free",
                 atom_size_text(need, takes), t->config->output_dir, atom_size_text(left, has));
    return lacks;
}

void trainer_save_failed(trainer *t, const char *why)
{
    char sizes[256], older[256];
    t->save_short = say_room(t, sizes, sizeof sizes);
    t->save_looked_s = atom_clock_seconds();
    say_older(t, older, sizeof older);
    trainer_note(t,
                 "warning: %s. %s; %s. Training goes on, and the next one is due %" PRId64
                 " steps later%s",
                 why, sizes, older, t->config->save_steps,
                 t->save_short ? ", or as soon as there is room: free some" : "");
}

bool trainer_save_again(trainer *t)
{
    uint64_t need, left;
    double now = atom_clock_seconds();
    if (!t->save_short || t->snapshot || now - t->save_looked_s < LOOK_S)
        return false;
    t->save_looked_s = now;
    if (trainer_lacks_room(t, &need, &left) || left - need < need / 8)
        return false;
    t->save_short = false;
    return true;
}

/* Until it is worth trying again. False: the time is over, or somebody has had enough. */
static bool wait_for_room(trainer *t, double end_s, double each_s, bool asked)
{
    double tried = atom_clock_seconds(), now = tried;
    uint64_t need, left;
    bool lacked = trainer_lacks_room(t, &need, &left);
    while (now < end_s) {
        nanosleep(&(struct timespec){0, 200000000}, NULL);
        now = atom_clock_seconds();
        if (!asked && t->hooks.stop && t->hooks.stop(t->hooks.ctx))
            return false;
        bool lacks = trainer_lacks_room(t, &need, &left);
        if ((lacked && !lacks) || (!lacks && now - tried >= each_s))
            return true;
        lacked = lacks;
    }
    return false;
}

atom_status trainer_save_persist(trainer *t, const train_checkpoint *c, atom_status st, bool asked,
                                 char **path)
{
    double seconds = t->hooks.save_patience_s > 0 ? t->hooks.save_patience_s : PERSIST_S;
    double end_s = atom_clock_seconds() + seconds;
    char why[512], sizes[256], older[256];
    snprintf(why, sizeof why, "%s", atom_fail_message());
    (void)say_room(t, sizes, sizeof sizes);
    trainer_note(t,
                 "warning: %s. %s. This is the last one, so it is tried again for %.0f s: free "
                 "some space. Ctrl-C ends the wait",
                 why, sizes, seconds);
    while (trainer_may_go_on(st) && wait_for_room(t, end_s, seconds / TRIES, asked)) {
        st = train_checkpoint_save(t->config->output_dir, c, t->config->save_total_limit, path);
        if (st == ATOM_OK)
            return ATOM_OK;
        snprintf(why, sizeof why, "%s", atom_fail_message());
    }
    say_older(t, older, sizeof older);
    return atom_fail(st,
                     "%s. It was the last one, and waiting has not helped. %s%s; once there is "
                     "room, continue with --resume-from-checkpoint auto",
                     why, older, t->engine->disk ? ", and the state on disk has all steps" : "");
}
