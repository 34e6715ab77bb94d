/*
 * Owns small files and directories. One idea: what we write appears whole or not at all, by a
 * temporary name, fsync, rename and fsync of the directory. Refuses to follow links when removing.
 */
#include "atom/base/files.h"

#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static const uint64_t PIECE_MAX = 1u << 30; /* in one call */

int atom_fd_read(int fd, uint64_t at, void *out, uint64_t bytes)
{
    char *to = out;
    while (bytes) {
        ssize_t n = pread(fd, to, bytes < PIECE_MAX ? bytes : PIECE_MAX, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return errno = n < 0 ? errno : ENODATA;
        to += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static _Thread_local atom_room_wait *waits;
static _Thread_local void *waits_ctx;

void atom_room_wait_by(atom_room_wait *wait, void *ctx)
{
    waits = wait;
    waits_ctx = ctx;
}

/* A limit on one file's size (EFBIG) does not go away. */
bool atom_room_waited(int error, int fd, uint64_t bytes)
{
    if (!waits || (error != ENOSPC && error != EDQUOT))
        return false;
    bool again = waits(waits_ctx, fd, bytes);
    errno = error; /* which is still what the write failed with */
    return again;
}

int atom_fd_open(const char *path, int flags, unsigned mode)
{
    int fd;
    do
        fd = open(path, flags, mode);
    while (fd < 0 && (errno == EINTR || atom_room_waited(errno, -1, 0)));
    return fd;
}

int atom_fd_write(int fd, uint64_t at, const void *data, uint64_t bytes)
{
    const char *from = data;
    while (bytes) {
        ssize_t n = pwrite(fd, from, bytes < PIECE_MAX ? bytes : PIECE_MAX, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        int error = n < 0 ? errno : ENOSPC;
        if (n <= 0 && atom_room_waited(error, fd, bytes))
            continue;
        if (n <= 0)
            return errno = error;
        from += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static bool no_room(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

atom_status atom_fail_write(int error, const char *path, uint64_t bytes)
{
    char need[24];
    if (!no_room(error))
        return atom_fail_errno(error, "cannot write %s", path);
    return atom_fail(ATOM_E_RESOURCE,
                     "cannot write %s: %s; it needs %s: free some space or choose another "
                     "directory",
                     path, strerror(error), atom_size_text(bytes, need));
}

atom_status atom_fd_room(int fd, const char *path, uint64_t bytes)
{
    int error;
    do
        error = fallocate(fd, 0, 0, (off_t)bytes) < 0 ? errno : 0;
    while (error && atom_room_waited(error, fd, bytes));
    return no_room(error) ? atom_fail_write(error, path, bytes) : ATOM_OK;
}

atom_status atom_file_read(const char *path, uint64_t max_bytes, char **data, uint64_t *bytes)
{
    struct stat info;
    char *block = NULL;
    atom_status st = ATOM_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        st = atom_fail_errno(errno, "cannot open %s", path);
        return st == ATOM_E_RUNTIME ? ATOM_E_FORMAT : st;
    }
    if (fstat(fd, &info) < 0 || S_ISDIR(info.st_mode))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s is not a file", path));
    if ((uint64_t)info.st_size > max_bytes)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s is larger than the %llu bytes allowed here",
                                 path, (unsigned long long)max_bytes));
    block = atom_alloc((size_t)info.st_size + 1, 1);
    if (!block)
        ATOM_TRY_CLEAN(atom_fail_memory(path, (uint64_t)info.st_size));
    uint64_t done = 0;
    while (done < (uint64_t)info.st_size) {
        ssize_t n = read(fd, block + done, (size_t)info.st_size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            ATOM_TRY_CLEAN(atom_fail_errno(errno, "cannot read %s", path));
        if (n == 0)
            break;
        done += (uint64_t)n;
    }
    close(fd);
    block[done] = 0;
    *data = block;
    *bytes = done;
    return ATOM_OK;
cleanup:
    atom_free(block);
    close(fd);
    return st;
}

static int write_whole(int fd, const char *at, uint64_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && (errno == EINTR || atom_room_waited(errno, fd, bytes)))
            continue;
        if (n < 0)
            return errno;
        at += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

/* Does the name still lead to the open file? Whoever held the lock may have renamed it. */
static bool is_named(const char *path, int fd)
{
    struct stat named, opened;
    return stat(path, &named) == 0 && fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino &&
           named.st_dev == opened.st_dev;
}

/* Over a network a lock may wait for a server that never answers, or keep this process itself from opening
 * the file once more. */
static bool is_remote(int fd)
{
    enum { NFS = 0x6969, SMB = 0x517b };
    const uint32_t SMB2 = 0xfe534d42u, CIFS = 0xff534d42u;
    struct statfs s;
    if (fstatfs(fd, &s) != 0)
        return false;
    const uint32_t kind = (uint32_t)s.f_type;
    return kind == NFS || kind == SMB || kind == SMB2 || kind == CIFS;
}

/* Where the file system knows no locks, nobody holds one. */
static bool is_held(int fd)
{
    return !is_remote(fd) && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

atom_status atom_temporary_open(const char *path, uint32_t patience_ms, int *out)
{
    enum { PAUSE_MS = 20 };
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    for (uint32_t waited = 0;; waited += PAUSE_MS) {
        int fd = atom_fd_open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0)
            return atom_fail_errno(errno, "cannot create %s", path);
        bool held = is_held(fd);
        if (!held && is_named(path, fd) && ftruncate(fd, 0) == 0) {
            *out = fd;
            return ATOM_OK;
        }
        int error = held || !is_named(path, fd) ? 0 : errno;
        close(fd);
        if (error)
            return atom_fail_errno(error, "cannot empty %s", path);
        if (waited >= patience_ms)
            return atom_fail(ATOM_E_USAGE,
                             "%s is being written by another process; wait until that has ended, "
                             "or choose another name",
                             path);
        nanosleep(&pause, NULL);
    }
}

/* The lock on the temporary name lasts until it is gone: whoever opened it between closing and renaming would
 * write into what is then the file. */
static atom_status write_over(const char *temporary, const char *path, const void *data,
                              uint64_t bytes)
{
    enum { PATIENCE_MS = 10000 };
    int fd = -1;
    ATOM_TRY(atom_temporary_open(temporary, PATIENCE_MS, &fd));
    int error = write_whole(fd, data, bytes);
    if (!error && fsync(fd) < 0)
        error = errno;
    atom_status st = error ? atom_fail_errno(error, "cannot write %s", temporary) : ATOM_OK;
    if (st == ATOM_OK && rename(temporary, path) < 0)
        st = atom_fail_errno(errno, "cannot rename %s to %s", temporary, path);
    if (st != ATOM_OK)
        unlink(temporary);
    close(fd);
    return st;
}

/* Devices and pipes: no temporary name, nothing to sync. */
static atom_status write_special(const char *path, const void *data, uint64_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open %s", path);
    int error = write_whole(fd, data, bytes);
    if (close(fd) < 0 && !error)
        error = errno;
    return error ? atom_fail_errno(error, "cannot write %s", path) : ATOM_OK;
}

bool atom_is_lfs_pointer(const void *data, uint64_t bytes)
{
    static const char first[] = "version https://git-lfs";
    return bytes >= sizeof first - 1 && memcmp(data, first, sizeof first - 1) == 0;
}

atom_status atom_fail_lfs(const char *path)
{
    return atom_fail(ATOM_E_FORMAT,
                     "%s is a Git LFS pointer, not the file itself; fetch it with: git lfs pull",
                     path);
}

atom_status atom_dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open directory %s", path);
    int bad = fsync(fd);
    int error = errno;
    close(fd);
    return bad ? atom_fail_errno(error, "cannot sync directory %s", path) : ATOM_OK;
}

static atom_status write_and_rename(const char *path, const void *data, uint64_t bytes)
{
    char *temporary = atom_format("%s.tmp", path);
    char *dir = atom_strdup(path);
    atom_status st = ATOM_OK;
    if (!temporary || !dir)
        ATOM_TRY_CLEAN(atom_fail_memory("a file name", strlen(path)));
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir ? 1 : 0] = 0;
    ATOM_TRY_CLEAN(write_over(temporary, path, data, bytes));
    st = atom_dir_sync(slash ? dir : ".");
cleanup:
    atom_free(temporary);
    atom_free(dir);
    return st;
}

bool atom_file_line(const char *path, char *line, size_t room)
{
    FILE *f = fopen(path, "re");
    bool read = f && fgets(line, (int)room, f);
    if (f)
        fclose(f);
    if (read)
        line[strcspn(line, "\n")] = 0;
    return read;
}

atom_status atom_file_check_place(const char *path, const char *says, const char *what)
{
    char head[128] = "";
    struct stat s;
    const char *slash = strrchr(path, '/');
    char *parent = slash && slash > path ? atom_strndup(path, (size_t)(slash - path)) : NULL;
    bool nowhere = parent && !atom_path_is_dir(parent);
    atom_free(parent);
    if (nowhere)
        return atom_fail(ATOM_E_USAGE, "%s: there is no directory %.*s; create it first", path,
                         (int)(slash - path), path);
    if (stat(path, &s) < 0 || !S_ISREG(s.st_mode) || s.st_size == 0)
        return ATOM_OK;
    FILE *f = fopen(path, "re");
    if (!f)
        return ATOM_OK; /* writing says why */
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    head[n] = 0;
    if (strstr(head, says))
        return ATOM_OK;
    return atom_fail(
        ATOM_E_USAGE,
        "%s exists and is not %s, so it is not replaced; choose another name, or remove "
        "it first",
        path, what);
}

atom_status atom_file_write(const char *path, const void *data, uint64_t bytes)
{
    struct stat info;
    char real[PATH_MAX];
    if (stat(path, &info) < 0)
        return write_and_rename(path, data, bytes);
    if (S_ISDIR(info.st_mode))
        return atom_fail(ATOM_E_USAGE, "%s is a directory; give the name of a file", path);
    if (!S_ISREG(info.st_mode))
        return write_special(path, data, bytes);
    return write_and_rename(realpath(path, real) ? real : path, data, bytes);
}

atom_status atom_dir_make(const char *path)
{
    if (!*path)
        return atom_fail(ATOM_E_USAGE, "the name of a directory is empty");
    char *copy = atom_strdup(path);
    if (!copy)
        return atom_fail_memory("a path", strlen(path));
    for (char *at = copy + 1;; at++) {
        if (*at && *at != '/')
            continue;
        char keep = *at;
        *at = 0;
        int error = mkdir(copy, 0755) < 0 ? errno : 0;
        if (error && error != EEXIST && !atom_path_is_dir(copy)) {
            atom_status st = atom_fail_errno(error, "cannot make directory %s", copy);
            atom_free(copy);
            return st;
        }
        *at = keep;
        if (!keep)
            break;
    }
    atom_free(copy);
    return atom_path_is_dir(path) ? ATOM_OK
                                  : atom_fail(ATOM_E_USAGE, "%s is not a directory", path);
}

static atom_status remove_entry(const char *path)
{
    struct stat info;
    if (lstat(path, &info) < 0)
        return errno == ENOENT ? ATOM_OK : atom_fail_errno(errno, "cannot remove %s", path);
    if (!S_ISDIR(info.st_mode))
        return unlink(path) == 0 ? ATOM_OK : atom_fail_errno(errno, "cannot remove %s", path);
    return atom_dir_remove(path);
}

atom_status atom_dir_empty(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    atom_status st = ATOM_OK;
    if (!dir) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return error == ENOENT ? ATOM_OK
                               : atom_fail_errno(error, "cannot remove directory %s", path);
    }
    for (struct dirent *entry; st == ATOM_OK && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *child = atom_path_join(path, entry->d_name);
        st = child ? remove_entry(child) : atom_fail_memory("a path", 256);
        atom_free(child);
    }
    closedir(dir);
    return st;
}

atom_status atom_dir_remove(const char *path)
{
    ATOM_TRY(atom_dir_empty(path));
    return rmdir(path) == 0 || errno == ENOENT ? ATOM_OK
                                               : atom_fail_errno(errno, "cannot remove %s", path);
}

bool atom_path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool atom_dir_free_bytes(const char *dir, uint64_t *bytes)
{
    struct statvfs info;
    if (statvfs(dir, &info) != 0)
        return false;
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return true;
}

bool atom_path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *atom_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return atom_format("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

/* Code is loaded from the cache, so a directory that somebody else may write is refused. */
static atom_status own_dir(const char *path)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return atom_fail_errno(errno, "cannot read the attributes of %s", path);
    if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && !(info.st_mode & S_IWOTH))
        return ATOM_OK;
    return atom_fail(ATOM_E_RUNTIME,
                     "%s is not a directory that belongs only to this user; set "
                     "XDG_CACHE_HOME to one that does",
                     path);
}

atom_status atom_cache_dir(char **path)
{
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char *dir;
    if (xdg && xdg[0] == '/')
        dir = atom_path_join(xdg, "atom");
    else if (home && home[0] == '/')
        dir = atom_path_join(home, ".cache/atom");
    else
        dir = atom_format("/tmp/atom-cache-%u", (unsigned)geteuid());
    if (!dir)
        return atom_fail_memory("a path", 256);
    atom_status st = atom_dir_make(dir);
    if (st != ATOM_OK)
        ATOM_TRY_CLEAN(atom_fail_in(st, "the cache for profiles and generated code (set "
                                        "XDG_CACHE_HOME to have it elsewhere): "));
    ATOM_TRY_CLEAN(own_dir(dir));
    *path = dir;
    return ATOM_OK;
cleanup:
    atom_free(dir);
    return st;
}
