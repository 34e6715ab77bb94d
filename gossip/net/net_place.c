/*
 * Owns the directory of an endpoint's local sockets where nobody named one. Its one idea: whoever
 * uses such a directory holds a lock on it (flock), which ends with the process however that ends,
 * so the next endpoint can remove what killed ones left. It refuses to touch a directory that is
 * in use, that has another name or that belongs to another user.
 */
#include "gossip/net/net_inner.h"

#include "atom/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BASE_BYTES_MAX = 48 /* a longer TMPDIR leaves no room for the path of a socket */ };
static const char NAME[] = "atom-net-XXXXXX";

static bool has_our_name(const char *name)
{
    return strlen(name) == sizeof NAME - 1 && strncmp(name, NAME, strlen("atom-net-")) == 0;
}

/* The directory, open and locked; -1: not ours, or somebody uses it. */
static int take(int base, const char *name)
{
    struct stat s;
    int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 &&
        (fstat(fd, &s) != 0 || s.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Removes the sockets in it and nothing else, so anything else keeps the directory. */
static void remove_sockets(int fd)
{
    int own = dup(fd); /* closedir closes it */
    DIR *list = own < 0 ? NULL : fdopendir(own);
    if (!list) {
        if (own >= 0)
            close(own);
        return;
    }
    for (const struct dirent *at; (at = readdir(list)) != NULL;) {
        struct stat s;
        if (fstatat(fd, at->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(s.st_mode))
            (void)unlinkat(fd, at->d_name, 0);
    }
    closedir(list);
}

/* What killed processes left under base. */
static void sweep(const char *base)
{
    DIR *list = opendir(base);
    if (!list)
        return;
    for (const struct dirent *at; (at = readdir(list)) != NULL;) {
        int fd = has_our_name(at->d_name) ? take(dirfd(list), at->d_name) : -1;
        if (fd < 0)
            continue;
        remove_sockets(fd);
        (void)unlinkat(dirfd(list), at->d_name, AT_REMOVEDIR);
        close(fd);
    }
    closedir(list);
}

/* Another endpoint may have swept a new directory away before it was locked. */
static bool still_there(int fd, const char *path)
{
    struct stat open, named;
    return fstat(fd, &open) == 0 && stat(path, &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev;
}

static atom_status make_locked(const char *base, char **path, int *lock)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        char *made = atom_format("%s/%s", base, NAME);
        if (!made)
            return atom_fail_memory("a path", strlen(base));
        if (!mkdtemp(made)) {
            atom_status st = atom_fail_errno(errno, "%s", made);
            atom_free(made);
            return st;
        }
        int fd = open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* Where there are no locks, nobody can take it away either. */
        while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR)
            continue;
        if (fd >= 0 && still_there(fd, made)) {
            *path = made;
            *lock = fd;
            return ATOM_OK;
        }
        bool gone = fd >= 0 || errno == ENOENT;
        atom_status st = gone ? ATOM_OK : atom_fail_errno(errno, "%s", made);
        if (fd >= 0)
            close(fd);
        else if (!gone)
            (void)rmdir(made);
        atom_free(made);
        ATOM_TRY(st);
    }
    return atom_fail(ATOM_E_RUNTIME, "%s: somebody removes each directory that is made there",
                     base);
}

atom_status net_place_make(char **path, int *lock)
{
    const char *base = getenv("TMPDIR");
    if (!base || !*base || strlen(base) > BASE_BYTES_MAX)
        base = "/tmp";
    sweep(base);
    return make_locked(base, path, lock);
}

void net_place_remove(const char *path, int lock)
{
    (void)rmdir(path);
    close(lock);
}
