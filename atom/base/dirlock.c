/*
 * Owns the lock on a directory that one process at a time may write to. One idea: the kernel holds
 * the lock, so it ends with its process; whether a holder is about to end is read from /proc, and
 * only one that is ending is worth a longer wait. Refuses to break a lock.
 */
#include "atom/base/files.h"
#include "atom/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* Tries of PAUSE_NS each: a second, and ten. */
enum { PAUSE_NS = 20000000, TRIES = 50, TRIES_ENDING = 500, LOOKS = 5 };

/* The process that /proc/locks names as holder of a lock on the directory; 0: none is named. */
static int64_t read_holder(int fd)
{
    struct stat s;
    char line[256], piece[1 << 14];
    int64_t pid = 0, found;
    unsigned major, minor;
    uint64_t inode;
    FILE *locks = fstat(fd, &s) == 0 ? fopen("/proc/locks", "re") : NULL;
    if (!locks)
        return 0;
    (void)setvbuf(locks, piece, _IOFBF, sizeof piece);
    while (pid == 0 && fgets(line, sizeof line, locks)) {
        if (sscanf(line, "%*u: FLOCK %*s %*s %" SCNd64 " %x:%x:%" SCNu64, &found, &major, &minor,
                   &inode) == 4 &&
            found > 0 && inode == (uint64_t)s.st_ino && major == major(s.st_dev) &&
            minor == minor(s.st_dev))
            pid = found;
    }
    fclose(locks);
    return pid;
}

/* The kernel gives the table in pieces, and a line can slip from one into the other while it is read
 * and others lock and unlock, so a holder that is not in it is looked for again. */
static int64_t find_holder(int fd)
{
    int64_t pid = 0;
    for (int i = 0; i < LOOKS && pid == 0; i++)
        pid = read_holder(fd);
    return pid;
}

/* Has it been killed, or does it exit already? Its memory may take seconds to be given back. */
static bool is_ending(int64_t pid)
{
    enum { PF_EXITING = 4, SIGKILL_BIT = 1 << 8 };
    char path[64], line[512], state = 0;
    unsigned long flags = 0, pending;
    bool ending = false;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true;
    const char *behind = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    fclose(f);
    if (behind && sscanf(behind + 1, " %c %*d %*d %*d %*d %*d %lu", &state, &flags) == 2)
        ending = state == 'Z' || state == 'X' || (flags & PF_EXITING);
    snprintf(path, sizeof path, "/proc/%" PRId64 "/status", pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "SigPnd: %lx", &pending) == 1 ||
            sscanf(line, "ShdPnd: %lx", &pending) == 1)
            ending |= (pending & SIGKILL_BIT) != 0;
    if (f)
        fclose(f);
    return ending;
}

static bool is_held(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

atom_status atom_dir_lock(const char *path, int *out, int64_t *holder)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), tries = 0;
    bool held;
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open directory %s", path);
    *holder = 0;
    while ((held = is_held(fd)) && tries < TRIES_ENDING) {
        if (tries >= TRIES) {
            *holder = find_holder(fd);
            if (*holder == 0) /* nobody is named: it may have let go between the two looks */
                held = is_held(fd);
            if (*holder == 0 || !is_ending(*holder))
                break;
        }
        if (tries == TRIES)
            atom_log(ATOM_LOG_INFO,
                     "%s is still held by process %" PRId64
                     ", which is ending; waiting up to 10 s for it",
                     path, *holder);
        nanosleep(&pause, NULL);
        tries++;
    }
    if (held) {
        close(fd);
        fd = -1;
    }
    *out = fd;
    return ATOM_OK;
}
