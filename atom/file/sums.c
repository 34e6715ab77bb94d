/*
 * Owns checksums of runs of a file. One idea: a reader that goes from front to back has had every byte in its
 * hands when it comes to the end, so only those that jump pay for reading twice. Refuses a run that differs
 * from its sum, and does not say which byte of it does: nobody knows.
 */
#include "atom/file/sums.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <zlib.h>

enum { PIECE_BYTES = 1 << 18 };

uint32_t file_sum_add(uint32_t sum, const void *data, uint64_t bytes)
{
    return (uint32_t)crc32_z(sum, data, bytes);
}

atom_status file_sum_differs(const char *path, const char *name)
{
    return atom_fail(ATOM_E_FORMAT,
                     "%s: entry '%.128s' is damaged: its bytes are not those that its checksum is "
                     "of; copy the file again",
                     path, name);
}

/* The run that byte `offset` lies in; NULL if there is none. */
static file_sum *find(const file_sums *s, uint64_t offset)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        file_sum *at = &s->all[mid];
        if (offset < at->first)
            high = mid;
        else if (offset - at->first >= at->bytes)
            low = mid + 1;
        else
            return at;
    }
    return NULL;
}

void file_sums_expect(file_sums *sums, uint64_t offset, uint64_t bytes)
{
    file_sum *s = bytes ? find(sums, offset) : NULL;
    if (s && offset + bytes == s->first + s->bytes)
        s->to_end = true;
}

static atom_status compare(file_sum *s, const char *path, uint32_t sum)
{
    s->done = sum == s->wanted;
    return s->done ? ATOM_OK : file_sum_differs(path, s->name);
}

static atom_status read_all(file_sum *s, const char *path, int fd)
{
    void *piece = atom_alloc(PIECE_BYTES, 1);
    uint32_t sum = 0;
    atom_status st = ATOM_OK;
    if (!piece)
        return atom_fail_memory("a checksum", PIECE_BYTES);
    for (uint64_t at = 0, some; at < s->bytes; at += some) {
        some = s->bytes - at < PIECE_BYTES ? s->bytes - at : PIECE_BYTES;
        int error = atom_fd_read(fd, s->first + at, piece, some);
        if (error)
            ATOM_TRY_CLEAN(error == ENODATA ? atom_fail(ATOM_E_FORMAT,
                                                        "%s became shorter while it was read", path)
                                            : atom_fail_errno(error, "cannot read %s", path));
        sum = file_sum_add(sum, piece, some);
    }
    st = compare(s, path, sum);
cleanup:
    atom_free(piece);
    return st;
}

atom_status file_sums_see(file_sums *sums, const char *path, int fd, uint64_t offset,
                          uint64_t bytes, const void *data)
{
    file_sum *s = bytes ? find(sums, offset) : NULL;
    if (!s || s->done)
        return ATOM_OK;
    if (!s->to_end || offset - s->first != s->passed)
        return read_all(s, path, fd);
    s->sum = file_sum_add(s->sum, data, bytes);
    s->passed += bytes;
    return s->passed == s->bytes ? compare(s, path, s->sum) : ATOM_OK;
}

void file_sums_close(file_sums **ref)
{
    file_sums *s = *ref;
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        atom_free(s->all[i].name);
    atom_free(s->all);
    atom_free(s);
    *ref = NULL;
}
