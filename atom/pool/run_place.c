/*
 * Owns what DIR holds before a member's run is in it, and after a try that failed. One idea: a
 * directory with somebody's run is never taken for an empty one, and what a try made goes when the
 * try does. Refuses to remove what was there before.
 */
#include "atom/pool/run_inner.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/train/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

atom_status pool_run_check_unused(const pool_run *r)
{
    char *metrics = atom_path_join(r->dir, "metrics.jsonl"), *newest = NULL;
    atom_status st;
    if (!metrics)
        return atom_fail_memory("a path", 256);
    ATOM_TRY_CLEAN(train_checkpoint_newest(r->dir, &newest));
    if (newest || atom_path_exists(metrics))
        st = atom_fail(ATOM_E_USAGE,
                       "%s already holds a run that does not belong to a pool, %s; nothing in it "
                       "was changed. Name an empty directory with -o",
                       r->dir, newest ? newest : metrics);
cleanup:
    atom_free(newest);
    atom_free(metrics);
    return st;
}

static char *making_path(const pool_run *r)
{
    return atom_path_join(r->dir, "genesis/making");
}

atom_status pool_run_is_making(const pool_run *r)
{
    char *path = making_path(r);
    atom_status st =
        path ? atom_file_write(path, "1\n", 2) : atom_fail_memory("a path", strlen(r->dir));
    atom_free(path);
    return st;
}

void pool_run_is_made(const pool_run *r)
{
    char *path = making_path(r);
    if (path && unlink(path) != 0)
        atom_log(ATOM_LOG_WARN, "%s could not be removed, so this pool seems unfinished", path);
    atom_free(path);
}

atom_status pool_run_check_made(const pool_run *r)
{
    char *path = making_path(r);
    bool made = path && !atom_path_exists(path);
    atom_free(path);
    return made ? ATOM_OK
                : atom_fail(ATOM_E_USAGE,
                            "%s: making this pool was interrupted before its first weights were on "
                            "disk, so there is nothing to come back to, and nobody has joined it. "
                            "Remove this directory, or create the pool in another one",
                            r->dir);
}

/* What opening a trainer and making a pool leave in DIR. */
static const char *const makes[POOL_RUN_MAKES] = {"host.yml", "genesis", "pool", "metrics.jsonl"};

static bool is_there(const char *dir, const char *name)
{
    char *path = atom_path_join(dir, name);
    bool there = !path || atom_path_exists(path); /* unknown: as if it were */
    atom_free(path);
    return there;
}

void pool_run_look_before(const pool_run *r, pool_run_before *before)
{
    before->dir = atom_path_exists(r->dir);
    for (int i = 0; i < POOL_RUN_MAKES; i++)
        before->had[i] = is_there(r->dir, makes[i]);
}

atom_status pool_run_undo(pool_run *r, const pool_run_before *before, atom_status st)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", atom_fail_message());
    if (!r->t) /* DIR is not ours: perhaps another run is writing there */
        return st;
    (void)gsp_pool_close(&r->life);
    for (int i = 0; i < POOL_RUN_MAKES; i++) {
        char *path = before->had[i] ? NULL : atom_path_join(r->dir, makes[i]);
        if (path && atom_path_exists(path) && unlink(path) != 0 && atom_dir_remove(path) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
        atom_free(path);
    }
    if (!before->dir)
        (void)rmdir(r->dir);
    return atom_fail(st, "%s", why);
}
