/*
 * Owns the file that says that a member is paused. One idea: it is there or not, so it can be neither
 * half written nor damaged. Refuses to change it beside a process that takes part.
 */
#include "gossip/pool/pause.h"

#include "atom/base/mem.h"
#include "gossip/pool/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

static const char NAME[] = "paused";

bool gsp_pause_is_kept(const char *directory)
{
    return gsp_dir_has(directory, NAME);
}

atom_status gsp_pause_keep(const char *directory, bool paused)
{
    static const char text[] =
        "atom pool pause was said here; atom pool resume removes this file\n";
    if (paused)
        return gsp_dir_save(directory, NAME, text, sizeof text - 1);
    char *path = atom_format("%s/%s", directory, NAME);
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", 0);
    if (path && unlink(path) != 0 && errno != ENOENT)
        st = atom_fail_errno(errno, "cannot remove %s", path);
    atom_free(path);
    return st;
}

atom_status gsp_pause_keep_for_later(const char *directory, bool paused)
{
    char *path = atom_format("%s/lock", directory);
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    atom_status st;
    if (fd < 0)
        ATOM_TRY_CLEAN(path ? atom_fail_errno(errno, "%s", path) : atom_fail_memory("a path", 0));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s: the member is starting or ending at this moment; try again",
                                 directory));
    st = gsp_pause_keep(directory, paused);
cleanup:
    if (fd >= 0)
        close(fd);
    atom_free(path);
    return st;
}
