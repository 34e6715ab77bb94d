/*
 * Owns the appearance of a data set in its directory. One idea: everything is written and synced in
 * a directory beside the old data, and only then moved, with a name that readers refuse while the
 * moving lasts. Refuses a directory that already holds a data set.
 */
#include "atom/text/staging.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char STAGING[] = ".atom-staging";
static const char MOVING[] = ".atom-moving";
static const char COUNTS[] = "dataset.json";

static atom_status join(const char *dir, const char *name, char **out)
{
    *out = atom_path_join(dir, name);
    return *out ? ATOM_OK : atom_fail_memory("a path", strlen(dir) + 32);
}

atom_status text_staging_check(const char *dir)
{
    char *moving = NULL;
    atom_status st = join(dir, MOVING, &moving);
    if (st == ATOM_OK && atom_path_exists(moving))
        st = atom_fail(ATOM_E_FORMAT,
                       "%s: 'atom data prepare' was interrupted here; run it again with --force",
                       dir);
    atom_free(moving);
    return st;
}

static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    bool shard = (strncmp(name, "train_", 6) == 0 || strncmp(name, "val_", 4) == 0) && n > 5 &&
                 (strcmp(name + n - 4, ".bin") == 0 || strcmp(name + n - 5, ".mask") == 0 ||
                  (n > 7 && strcmp(name + n - 7, ".begins") == 0));
    return shard || strcmp(name, COUNTS) == 0 || strcmp(name, "tokenizer.json") == 0 ||
           strcmp(name, "chat_template.jinja") == 0;
}

/* Does something with every data set file in `from`, dataset.json last. */
static atom_status each_file(const char *from,
                             atom_status (*act)(const text_staging *s, const char *name),
                             const text_staging *s)
{
    atom_status st = ATOM_OK;
    bool counts = false;
    DIR *list = opendir(from);
    if (!list)
        return atom_fail_errno(errno, "cannot open directory %s", from);
    for (struct dirent *entry; st == ATOM_OK && (entry = readdir(list));) {
        if (strcmp(entry->d_name, COUNTS) == 0)
            counts = true;
        else if (is_ours(entry->d_name))
            st = act(s, entry->d_name);
    }
    closedir(list);
    return st == ATOM_OK && counts ? act(s, COUNTS) : st;
}

static atom_status refuse(const text_staging *s, const char *name)
{
    return atom_fail(
        ATOM_E_USAGE,
        "%s already contains a data set (%s); give another output directory, or --force to "
        "replace it",
        s->dir, name);
}

static atom_status remove_old(const text_staging *s, const char *name)
{
    char *path = NULL;
    atom_status st = join(s->dir, name, &path);
    if (st == ATOM_OK && unlink(path) < 0)
        st = atom_fail_errno(errno, "cannot remove %s", path);
    atom_free(path);
    return st;
}

static atom_status move_up(const text_staging *s, const char *name)
{
    char *from = NULL, *to = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(join(s->moving, name, &from));
    ATOM_TRY_CLEAN(join(s->dir, name, &to));
    if (rename(from, to) < 0)
        st = atom_fail_errno(errno, "cannot rename %s", from);
cleanup:
    atom_free(from);
    atom_free(to);
    return st;
}

static atom_status lock(text_staging *s)
{
    int64_t pid;
    ATOM_TRY(atom_dir_lock(s->dir, &s->lock_fd, &pid));
    if (s->lock_fd < 0 && pid)
        return atom_fail(ATOM_E_USAGE,
                         "%s: another 'atom data prepare' is writing here, process %" PRId64,
                         s->dir, pid);
    if (s->lock_fd < 0)
        return atom_fail(ATOM_E_USAGE, "%s: another 'atom data prepare' is writing here", s->dir);
    return ATOM_OK;
}

atom_status text_staging_init(const char *dir, bool force, text_staging *out)
{
    text_staging s = {.lock_fd = -1, .force = force};
    atom_status st = ATOM_OK;
    s.dir = atom_strdup(dir);
    if (!s.dir)
        return atom_fail_memory("a path", strlen(dir));
    ATOM_TRY_CLEAN(join(dir, MOVING, &s.moving));
    s.made = !atom_path_exists(dir);
    ATOM_TRY_CLEAN(atom_dir_make(dir));
    ATOM_TRY_CLEAN(lock(&s));
    if (!force) {
        ATOM_TRY_CLEAN(text_staging_check(dir));
        ATOM_TRY_CLEAN(each_file(dir, refuse, &s));
    }
    char *path = NULL;
    ATOM_TRY_CLEAN(join(dir, STAGING, &path));
    st = atom_dir_remove(path);
    if (st == ATOM_OK)
        st = atom_dir_make(path);
    s.path = path; /* only now: fini removes what is there */
    ATOM_TRY_CLEAN(st);
    *out = s;
    return ATOM_OK;
cleanup:
    text_staging_fini(&s);
    return st;
}

atom_status text_staging_commit(text_staging *s)
{
    ATOM_TRY(atom_dir_sync(s->path));
    ATOM_TRY(atom_dir_remove(s->moving));
    if (rename(s->path, s->moving) < 0) {
        return atom_fail_errno(errno, "cannot rename %s", s->path);
    }
    ATOM_TRY(atom_dir_sync(s->dir));
    ATOM_TRY(each_file(s->dir, s->force ? remove_old : refuse, s));
    ATOM_TRY(each_file(s->moving, move_up, s));
    ATOM_TRY(atom_dir_sync(s->dir));
    ATOM_TRY(atom_dir_remove(s->moving));
    return atom_dir_sync(s->dir);
}

void text_staging_fini(text_staging *s)
{
    if (s->path && atom_path_exists(s->path) && atom_dir_remove(s->path) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    if (s->made)
        (void)rmdir(s->dir); /* only an empty one goes */
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    atom_free(s->dir);
    atom_free(s->path);
    atom_free(s->moving);
    *s = (text_staging){.lock_fd = -1};
}
