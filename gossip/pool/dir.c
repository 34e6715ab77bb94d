/*
 * Owns reading and replacing the small files of a pool's directory. Its one idea: a file is written
 * beside its place with the rights it shall have, synced and renamed. It refuses to follow a link
 * at the name it writes to.
 */
#include "gossip/pool/dir.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_FILE_MAX = 1 << 20 };

atom_status gsp_dir_check_rights(const char *directory)
{
    if (access(directory, R_OK | X_OK) == 0 || errno != EACCES)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s: this user may not look into it; run the command as the user to whom it "
                     "belongs",
                     directory);
}

static bool write_whole(int fd, const uint8_t *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && (errno == EINTR || atom_room_waited(errno, fd, bytes)))
            continue;
        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return fsync(fd) == 0;
}

atom_status gsp_dir_save(const char *directory, const char *name, const void *data, size_t bytes)
{
    atom_status st = ATOM_OK;
    char *path = atom_path_join(directory, name),
         *aside = atom_format("%s/%s.tmp", directory, name);
    int fd = -1;
    if (!path || !aside)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    fd = atom_fd_open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0600) != 0 || !write_whole(fd, data, bytes) ||
        rename(aside, path) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", path));
    st = atom_dir_sync(directory);
cleanup:
    if (fd >= 0)
        close(fd);
    atom_free(path);
    atom_free(aside);
    return st;
}

atom_status gsp_dir_read(const char *directory, const char *name, char **data, uint64_t *bytes)
{
    char *path = atom_path_join(directory, name);
    if (!path)
        return atom_fail_memory("a path", 0);
    atom_status st = atom_file_read(path, SMALL_FILE_MAX, data, bytes);
    atom_free(path);
    return st;
}

bool gsp_dir_has(const char *directory, const char *name)
{
    char *path = atom_path_join(directory, name);
    bool has = path && atom_path_exists(path);
    atom_free(path);
    return has;
}

atom_status gsp_dir_room(const char *directory, uint64_t bytes, const char *what)
{
    uint64_t room;
    char need[24], left[24];
    if (!atom_dir_free_bytes(directory, &room))
        return atom_fail_errno(errno, "cannot find out how much space is free in %s", directory);
    return bytes <= room ? ATOM_OK
                         : atom_fail(ATOM_E_RESOURCE,
                                     "%s: %s takes %s, but only %s are free; nothing of it was "
                                     "fetched. Free some space, or use a directory on another "
                                     "disk",
                                     directory, what, atom_size_text(bytes, need),
                                     atom_size_text(room, left));
}

atom_status gsp_dir_make(const char *directory, const char *name)
{
    char *path = atom_path_join(directory, name);
    atom_status st = path ? atom_dir_make(path) : atom_fail_memory("a path", 0);
    atom_free(path);
    return st;
}

void gsp_dir_sweep(const char *directory)
{
    static const char end[] = ".tmp";
    DIR *list = opendir(directory);
    if (!list)
        return;
    for (const struct dirent *e; (e = readdir(list));) {
        size_t n = strlen(e->d_name);
        struct stat s;
        if (n >= sizeof end && strcmp(e->d_name + n - (sizeof end - 1), end) == 0 &&
            fstatat(dirfd(list), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode))
            (void)unlinkat(dirfd(list), e->d_name, 0);
    }
    closedir(list);
}
