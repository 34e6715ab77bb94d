/*
 * Owns the names of checkpoints in an output_dir: which are there, whole or not, and which go. One idea:
 * only names that a save gives count, and only what has a state is whole. Refuses to delete anything
 * else.
 */
#include "atom/train/checkpoint_names.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/train/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char PREFIX[] = "checkpoint-", TEMPORARY[] = ".tmp";

/* Step of "checkpoint-STEP", or -1. Only the name that a save gives counts: checkpoint-08 is a copy
 * that somebody made, and is neither continued nor deleted. */
static int64_t step_of(const char *name)
{
    enum { DIGITS_MAX = 18 }; /* more might not fit an int64_t */
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return -1;
    const char *digits = name + sizeof PREFIX - 1;
    size_t n = strspn(digits, "0123456789");
    bool written_so = n && n <= DIGITS_MAX && !digits[n] && (digits[0] != '0' || n == 1);
    return written_so ? strtoll(digits, NULL, 10) : -1;
}

/* Step of "checkpoint-STEP.tmp", or -1. */
static int64_t unfinished_step(const char *entry)
{
    char name[64];
    size_t n = strlen(entry), end = sizeof TEMPORARY - 1;
    if (n <= end || n >= sizeof name || strcmp(entry + n - end, TEMPORARY) != 0)
        return -1;
    snprintf(name, sizeof name, "%.*s", (int)(n - end), entry);
    return step_of(name);
}

int64_t train_checkpoint_step(const char *path)
{
    char whole[PATH_MAX]; /* "." and a / at the end say no name */
    const char *slash = realpath(path, whole) ? strrchr(whole, '/') : NULL;
    return slash ? step_of(slash + 1) : -1;
}

char *train_checkpoint_path(const char *output_dir, int64_t step, bool unfinished)
{
    return atom_format("%s/%s%" PRId64 "%s", output_dir, PREFIX, step, unfinished ? TEMPORARY : "");
}

static bool is_whole(const char *dir, const char *name)
{
    char *path = atom_format("%s/%s/atom_state.json", dir, name);
    bool whole = path && atom_path_exists(path);
    atom_free(path);
    return whole;
}

/* The whole checkpoints of dir: how many there are, the newest, and the oldest that is newer than
 * `after`; -1 for either where there is none. */
typedef struct steps {
    uint32_t n;
    int64_t oldest, newest;
} steps;

static steps find_steps(const char *dir, int64_t after)
{
    steps found = {.oldest = -1, .newest = -1};
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        int64_t step = step_of(entry->d_name);
        if (step < 0 || !is_whole(dir, entry->d_name))
            continue;
        found.n++;
        if (step > found.newest)
            found.newest = step;
        if (step > after && (found.oldest < 0 || step < found.oldest))
            found.oldest = step;
    }
    if (d)
        closedir(d);
    return found;
}

atom_status train_checkpoint_newest(const char *output_dir, char **path)
{
    int64_t step = find_steps(output_dir, -1).newest;
    *path = NULL;
    if (step < 0)
        return ATOM_OK;
    *path = train_checkpoint_path(output_dir, step, false);
    return *path ? ATOM_OK : atom_fail_memory("a path", 256);
}

char *train_checkpoint_foreign(const char *output_dir)
{
    char *found = NULL;
    DIR *d = opendir(output_dir);
    for (struct dirent *entry; d && !found && (entry = readdir(d));)
        if (step_of(entry->d_name) >= 0 && !is_whole(output_dir, entry->d_name))
            found = atom_strdup(entry->d_name);
    if (d)
        closedir(d);
    return found;
}

char *train_checkpoint_padded(const char *output_dir)
{
    int64_t newest = find_steps(output_dir, -1).newest;
    char *found = NULL;
    DIR *d = opendir(output_dir);
    for (struct dirent *entry; d && !found && (entry = readdir(d));) {
        const char *digits = entry->d_name + sizeof PREFIX - 1;
        char name[64];
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 || digits[0] != '0')
            continue;
        snprintf(name, sizeof name, "%s%s", PREFIX, digits + strspn(digits, "0"));
        if (step_of(name) > newest && step_of(entry->d_name) < 0 &&
            is_whole(output_dir, entry->d_name))
            found = atom_strdup(entry->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

/* Neither a directory nor gone. */
static bool is_in_the_way(DIR *d, const char *name, bool *link)
{
    struct stat info;
    if (fstatat(dirfd(d), name, &info, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(info.st_mode))
        return false;
    *link = S_ISLNK(info.st_mode);
    return true;
}

char *train_checkpoint_blocked(const char *output_dir, int64_t after, int64_t last, bool *link)
{
    char *found = NULL;
    DIR *d = opendir(output_dir);
    for (struct dirent *entry; d && !found && (entry = readdir(d));) {
        int64_t whole = step_of(entry->d_name), unfinished = unfinished_step(entry->d_name);
        int64_t step = whole > unfinished ? whole : unfinished;
        if (step > after && step <= last && is_in_the_way(d, entry->d_name, link))
            found = atom_strdup(entry->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

uint32_t train_checkpoint_count(const char *output_dir)
{
    return find_steps(output_dir, -1).n;
}

/* Under the name of an unfinished one, so that what is left of it by a process that is killed is neither
 * taken for a checkpoint nor kept. Whatever cannot be removed has its name again. */
static atom_status remove_old(const char *output_dir, int64_t step)
{
    char *path = train_checkpoint_path(output_dir, step, false);
    char *going = train_checkpoint_path(output_dir, step, true);
    struct stat info;
    atom_status st;
    if (!path || !going)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    bool renamed = lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && rename(path, going) == 0;
    st = renamed ? atom_dir_sync(output_dir) : ATOM_OK;
    if (st == ATOM_OK)
        st = atom_dir_remove(renamed ? going : path);
    if (st != ATOM_OK && renamed)
        (void)rename(going, path);
cleanup:
    atom_free(path);
    atom_free(going);
    return st;
}

/* The new one is safe by now, so that an old one stays (a link, or not ours to delete) is no reason to
 * end a run. */
void train_checkpoints_limit(const char *output_dir, int64_t limit, int64_t saved)
{
    steps there = find_steps(output_dir, -1);
    for (int64_t left = there.n; limit > 0 && left > limit && there.oldest >= 0; left--) {
        int64_t step = there.oldest;
        if (step == saved)
            return;
        if (remove_old(output_dir, step) != ATOM_OK)
            atom_log(ATOM_LOG_WARN, "an old checkpoint (save_total_limit %" PRId64 ") stays: %s",
                     limit, atom_fail_message());
        there = find_steps(output_dir, step);
    }
}

/* A "checkpoint-STEP.tmp", half written or half removed by a process that was killed; NULL: there is none. */
static char *find_unfinished(const char *output_dir)
{
    char *found = NULL;
    DIR *d = opendir(output_dir);
    for (struct dirent *entry; d && !found && (entry = readdir(d));) {
        if (unfinished_step(entry->d_name) >= 0)
            found = atom_path_join(output_dir, entry->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

void train_checkpoints_tidy(const char *output_dir)
{
    bool gone = true;
    for (char *path; gone && (path = find_unfinished(output_dir)); atom_free(path)) {
        gone = atom_dir_remove(path) == ATOM_OK;
        if (!gone)
            atom_log(ATOM_LOG_WARN, "what is left of a checkpoint stays: %s", atom_fail_message());
    }
}
