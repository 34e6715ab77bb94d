/*
 * Owns where a run begins: which checkpoint it goes on from, if any. One idea: a directory holds one run,
 * so a checkpoint is continued where it lies, from its newest step, or in a directory of its own. Refuses
 * to mix two, and to begin anew beside what it does not know.
 */
#include "atom/train/trainer_inner.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool is_none(const char *resume)
{
    return !resume || strcmp(resume, "none") == 0;
}

static bool is_auto(const char *resume)
{
    return resume && strcmp(resume, "auto") == 0;
}

bool trainer_resumes_newest(const train_config *c)
{
    return is_auto(c->resume_from_checkpoint);
}

bool trainer_replaces_run(const train_config *c)
{
    return c->overwrite && !c->dry_run && is_none(c->resume_from_checkpoint);
}

/* Is `path` dir itself, or does it lie in it? False where one of them is not there. */
static bool lies_in(const char *path, const char *dir)
{
    char inner[PATH_MAX], outer[PATH_MAX];
    if (!path || !realpath(path, inner) || !realpath(dir, outer))
        return false;
    size_t n = strlen(outer);
    return strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == 0);
}

/* With --overwrite the old run goes, so nothing of it can be what the new one begins with. */
static atom_status check_replaced(const train_config *c)
{
    const struct {
        const char *option, *path;
    } used[] = {{"model", c->model},
                {"adapter", c->adapter},
                {"plan", c->plan},
                {"profile", c->profile},
                {"data", c->data}};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (lies_in(used[i].path, c->output_dir))
            return atom_fail(ATOM_E_USAGE,
                             "%s: %s is in output_dir %s, which --overwrite would empty; choose "
                             "another output_dir",
                             used[i].option, used[i].path, c->output_dir);
    return ATOM_OK;
}

/* Checkpoints of another program, where there is nothing of ours: one of the same step would take the
 * place of theirs. In the directory of a run they were ours, and it would begin anew without a word. */
static atom_status check_foreign(const train_config *c, bool run)
{
    atom_status st = ATOM_OK;
    char *theirs = train_checkpoint_foreign(c->output_dir);
    if (theirs && run)
        st = atom_fail(ATOM_E_FORMAT,
                       "%s/%s has no atom_state.json, so the run cannot continue from it; copy the "
                       "checkpoint again if it was copied, or replace the run with --overwrite",
                       c->output_dir, theirs);
    else if (theirs)
        st = atom_fail(ATOM_E_USAGE,
                       "output_dir %s contains %s, which was not made by atom (it has no "
                       "atom_state.json) but would be replaced by a checkpoint of the same step; "
                       "choose another output_dir",
                       c->output_dir, theirs);
    atom_free(theirs);
    return st;
}

/* checkpoint-040 is none of the names that a save gives, so auto would go on from an older one, or begin anew. */
static atom_status check_padded(const train_config *c)
{
    char *name = is_auto(c->resume_from_checkpoint) ? train_checkpoint_padded(c->output_dir) : NULL;
    if (!name)
        return ATOM_OK;
    const char *digits = strchr(name, '-') + 1;
    atom_status st =
        atom_fail(ATOM_E_USAGE,
                  "output_dir %s contains %s, but atom calls it checkpoint-%s, so auto would "
                  "not go on from it; rename it, or move it away",
                  c->output_dir, name, digits + strspn(digits, "0"));
    atom_free(name);
    return st;
}

/* What began with step `first` from a checkpoint elsewhere, and was killed before it had one of its own,
 * begins there again; auto would begin at step 1. */
static atom_status check_branch(const train_config *c, int64_t first, bool *again)
{
    char *path = atom_path_join(c->resume_from_checkpoint, "atom_state.json");
    train_state from = {0};
    *again = path && atom_path_exists(path) && train_state_read(path, &from) == ATOM_OK &&
             from.step + 1 == first;
    atom_free(path);
    if (!is_auto(c->resume_from_checkpoint))
        return ATOM_OK;
    ATOM_TRY(check_foreign(c, true)); /* there is one, without its state */
    return atom_fail(ATOM_E_USAGE,
                     "output_dir %s has no checkpoint yet, and its run began with step %" PRId64
                     " from one elsewhere; name that one again with --resume-from-checkpoint",
                     c->output_dir, first);
}

static atom_status check_unused(const trainer *t)
{
    const train_config *c = t->config;
    atom_status st;
    char *newest = NULL, *disk = NULL, *metrics = atom_path_join(c->output_dir, "metrics.jsonl");
    ATOM_TRY_CLEAN(check_padded(c));
    ATOM_TRY_CLEAN(trainer_store_path(t, &disk));
    ATOM_TRY_CLEAN(train_checkpoint_newest(c->output_dir, &newest));
    bool again = false, run = metrics && atom_path_exists(metrics);
    const int64_t first = run ? train_metrics_first(metrics) : 0;
    if (!newest && first > 1 && !is_none(c->resume_from_checkpoint) && !t->hooks.seam &&
        !atom_path_exists(disk))
        ATOM_TRY_CLEAN(check_branch(c, first, &again));
    if (!newest && !again && (!run || is_auto(c->resume_from_checkpoint))) {
        st = check_foreign(c, run);
        goto cleanup;
    }
    if (again || is_auto(c->resume_from_checkpoint))
        goto cleanup; /* it goes on */
    if (is_none(c->resume_from_checkpoint))
        st = atom_fail(ATOM_E_USAGE,
                       "output_dir %s already holds a run; continue it with "
                       "--resume-from-checkpoint auto, replace it with --overwrite, or choose "
                       "another output_dir",
                       c->output_dir);
    else
        st = atom_fail(ATOM_E_USAGE,
                       "output_dir %s already holds another run than that of %s, and their "
                       "checkpoints would get mixed up; choose another output_dir",
                       c->output_dir, c->resume_from_checkpoint);
cleanup:
    atom_free(newest);
    atom_free(metrics);
    atom_free(disk);
    return st;
}

/* What was made after the checkpoint would be taken for newer than what is made now. */
static atom_status check_newest(const train_config *c, const char *path)
{
    train_state ours, theirs;
    char *newest = NULL, *a = NULL, *b = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(train_checkpoint_newest(c->output_dir, &newest));
    if (!newest)
        goto cleanup;
    a = atom_path_join(path, "atom_state.json");
    b = atom_path_join(newest, "atom_state.json");
    if (!a || !b)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!atom_path_exists(a))
        goto cleanup; /* loading says what is wrong with it */
    ATOM_TRY_CLEAN(train_state_read(a, &ours));
    ATOM_TRY_CLEAN(train_state_read(b, &theirs));
    if (theirs.step > ours.step)
        st = atom_fail(ATOM_E_USAGE,
                       "output_dir %s holds later checkpoints than %s, up to step %" PRId64 "; "
                       "continue in another output_dir, or move the later ones away first",
                       c->output_dir, path, theirs.step);
cleanup:
    atom_free(newest);
    atom_free(a);
    atom_free(b);
    return st;
}

/* Does this directory hold a membership of a pool? */
static bool holds_pool(const char *dir)
{
    char *keys = atom_path_join(dir, "keys"), *manifest = atom_path_join(dir, "manifest.json");
    bool both = keys && manifest && atom_path_exists(keys) && atom_path_exists(manifest);
    atom_free(keys);
    atom_free(manifest);
    return both;
}

/* Somebody who trains alone in a pool's directory would mix up its checkpoints with those that the
 * member comes back to, and --overwrite would remove them. */
static atom_status check_no_pool(const train_config *c)
{
    char *pool = atom_path_join(c->output_dir, "pool");
    bool beside = pool && holds_pool(pool), inside = holds_pool(c->output_dir);
    atom_free(pool);
    if (!beside && !inside)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "output_dir %s belongs to a member of a pool, which 'atom pool join -o DIR' "
                     "brings back; to train alone, name another output_dir, and one of the "
                     "member's checkpoints with --resume-from-checkpoint or --model",
                     c->output_dir);
}

/* Where a checkpoint belongs there is something that it cannot replace, which would show only when it is
 * saved: after hours, or at the end. path: NULL where the run begins. */
static atom_status check_blocked(const trainer *t, const char *path)
{
    const train_config *c = t->config;
    char *state = path ? atom_path_join(path, "atom_state.json") : NULL;
    train_state from = {0};
    bool link = false;
    bool known =
        !path || (state && atom_path_exists(state) && train_state_read(state, &from) == ATOM_OK);
    atom_free(state);
    if (!known || t->hooks.save_nothing)
        return ATOM_OK; /* loading says what is wrong with it */
    char *name = train_checkpoint_blocked(c->output_dir, from.step,
                                          t->hooks.seam ? INT64_MAX : c->max_steps, &link);
    if (!name)
        return ATOM_OK;
    atom_status st = atom_fail(
        ATOM_E_USAGE,
        "output_dir %s: %s is %s, so no checkpoint could be saved under this name (a run that is "
        "interrupted saves one after any step); move it away, or choose another output_dir",
        c->output_dir, name, link ? "a link" : "not a directory");
    atom_free(name);
    return st;
}

static atom_status find_start(const trainer *t, char **path)
{
    const train_config *c = t->config;
    const char *resume = c->resume_from_checkpoint;
    *path = NULL;
    if (!t->hooks.seam && !c->dry_run)
        ATOM_TRY(check_no_pool(c));
    if (is_auto(resume)) {
        ATOM_TRY(check_unused(t));
        return train_checkpoint_newest(c->output_dir, path);
    }
    if (is_none(resume))
        return c->overwrite ? check_replaced(c) : check_unused(t);
    if (c->init == TRAIN_INIT_RANDOM)
        return atom_fail(ATOM_E_USAGE,
                         "init: random would have no effect, because the run continues with the "
                         "weights of %s; leave out either init or resume_from_checkpoint",
                         resume);
    if (!atom_path_is_dir(resume))
        return atom_fail(ATOM_E_USAGE,
                         "resume_from_checkpoint: there is no directory %s; name a checkpoint, or "
                         "auto for the newest in output_dir",
                         resume);
    if (!c->dry_run)
        ATOM_TRY(lies_in(resume, c->output_dir) ? check_newest(c, resume) : check_unused(t));
    *path = atom_strdup(resume);
    return *path ? ATOM_OK : atom_fail_memory("a path", 256);
}

atom_status trainer_start_find(const trainer *t, char **path)
{
    ATOM_TRY(find_start(t, path));
    atom_status st = check_blocked(t, *path);
    if (st != ATOM_OK) {
        atom_free(*path);
        *path = NULL;
    }
    return st;
}
