/*
 * Owns files that grow by whole pieces. One idea: it knows where the last whole piece ends, and whatever
 * is behind that goes before the next one is written. Refuses to write behind half a piece.
 */
#include "atom/train/append.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

atom_status train_append_open(train_append *a, const char *path, uint64_t keep)
{
    *a = (train_append){.fd = -1, .path = atom_strdup(path), .bytes = keep};
    if (!a->path)
        return atom_fail_memory(path, strlen(path));
    a->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)keep) < 0)
        return atom_fail_errno(errno, "cannot write %s", path);
    return ATOM_OK;
}

static bool take_back(train_append *a)
{
    a->torn = a->torn && ftruncate(a->fd, (off_t)a->bytes) < 0;
    return !a->torn;
}

atom_status train_append_write(train_append *a, const void *data, size_t bytes)
{
    size_t done = 0;
    if (!take_back(a))
        return atom_fail_errno(errno, "cannot write %s", a->path);
    while (done < bytes) {
        ssize_t n = write(a->fd, (const char *)data + done, bytes - done);
        if (n < 0 && (errno == EINTR || atom_room_waited(errno, a->fd, bytes - done)))
            continue;
        if (n < 0) {
            int error = errno;
            a->torn = done > 0;
            (void)take_back(a);
            return atom_fail_errno(error, "cannot write %s", a->path);
        }
        done += (size_t)n;
    }
    a->bytes += bytes;
    return ATOM_OK;
}

atom_status train_append_sync(const train_append *a)
{
    return fdatasync(a->fd) < 0 ? atom_fail_errno(errno, "cannot write %s", a->path) : ATOM_OK;
}

void train_append_close(train_append *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    atom_free(a->path);
    a->path = NULL;
}
