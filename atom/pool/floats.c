/*
 * Owns how a vector in memory and one in a file look alike. One idea: whoever asks for a piece gets a
 * pointer, into the vector or into room of its own. Refuses to hide a disk that fails.
 */
#include "atom/pool/floats.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

/* A file without a name. Not every file system makes one at once. */
static atom_status open_file(const char *directory, uint64_t bytes, int *fd)
{
    *fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (*fd < 0) {
        char *path = atom_path_join(directory, "floats-XXXXXX");
        if (!path)
            return atom_fail_memory("a path", 256);
        *fd = mkostemp(path, O_CLOEXEC);
        if (*fd >= 0)
            unlink(path);
        atom_free(path);
    }
    if (*fd < 0 || ftruncate(*fd, (off_t)bytes) != 0)
        return atom_fail_errno(errno, "cannot make a file in %s", directory);
    return ATOM_OK;
}

atom_status pool_floats_open(const char *directory, uint64_t n, pool_floats **out)
{
    atom_status st = ATOM_OK;
    pool_floats *x = atom_alloc(1, sizeof *x);
    if (!x)
        return atom_fail_memory("floats of a pool", sizeof *x);
    x->fd = -1;
    if (directory)
        st = open_file(directory, n * sizeof *x->at, &x->fd);
    else if (!(x->at = atom_alloc(n ? n : 1, sizeof *x->at)))
        st = atom_fail_memory("floats of a pool", n * sizeof *x->at);
    if (st != ATOM_OK)
        pool_floats_close(&x);
    *out = x;
    return st;
}

void pool_floats_close(pool_floats **floats)
{
    pool_floats *x = *floats;
    *floats = NULL;
    if (!x)
        return;
    if (!x->at && x->fd >= 0)
        close(x->fd);
    atom_free(x->at);
    atom_free(x);
}

static uint64_t place_of(const pool_floats *x, uint64_t first)
{
    return x->offset + first * sizeof *x->at;
}

atom_status pool_floats_look(const pool_floats *x, uint64_t first, uint64_t n, float *room,
                             const float **out)
{
    *out = x->at ? x->at + first : room;
    int error = x->at ? 0 : atom_fd_read(x->fd, place_of(x, first), room, n * sizeof *room);
    return error ? atom_fail_errno(error, "cannot read what a pool keeps on disk") : ATOM_OK;
}

float *pool_floats_place(const pool_floats *x, uint64_t first, float *room)
{
    return x->at ? x->at + first : room;
}

atom_status pool_floats_put(const pool_floats *x, uint64_t first, uint64_t n, const float *from)
{
    if (x->at) {
        if (x->at + first != from)
            memcpy(x->at + first, from, n * sizeof *from);
        return ATOM_OK;
    }
    int error = atom_fd_write(x->fd, place_of(x, first), from, n * sizeof *from);
    return error ? atom_fail_errno(error, "cannot write what a pool keeps on disk") : ATOM_OK;
}

void pool_floats_begin_write(const pool_floats *x, uint64_t first, uint64_t n)
{
    if (!x->at)
        (void)sync_file_range(x->fd, (off_t)place_of(x, first), (off_t)(n * sizeof *x->at),
                              SYNC_FILE_RANGE_WRITE);
}

void pool_floats_begin_read(const pool_floats *x, uint64_t first, uint64_t n)
{
    if (!x->at)
        (void)posix_fadvise(x->fd, (off_t)place_of(x, first), (off_t)(n * sizeof *x->at),
                            POSIX_FADV_WILLNEED);
}

atom_status pool_floats_hash_of(const pool_floats *x, uint64_t n, float *room, uint64_t piece,
                                gsp_hash *out)
{
    crypto_generichash_state state;
    const float *from;
    crypto_generichash_init(&state, NULL, 0, sizeof out->byte);
    for (uint64_t at = 0, some; at < n; at += some) {
        some = x->at || n - at < piece ? n - at : piece;
        ATOM_TRY(pool_floats_look(x, at, some, room, &from));
        crypto_generichash_update(&state, (const uint8_t *)from, some * sizeof *from);
    }
    crypto_generichash_final(&state, out->byte, sizeof out->byte);
    return ATOM_OK;
}
