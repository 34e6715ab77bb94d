/*
 * Owns the fragments on disk. One idea: two files per fragment are written in turn, each with a
 * header that hashes everything, so that the one before is whole while the next is written. Refuses
 * floats that do not have the hash that their header says.
 */
#include "atom/pool/store.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/agree/signed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

enum { HEAD_BYTES = 4096, USED_BYTES = 8 + 3 * 8 + 3 * 32 };
static const char MAGIC[8] = {'a', 't', 'o', 'm', 'a', 'n', 'c', '1'};

void pool_floats_hash(const float *x, uint64_t n, gsp_hash *out)
{
    crypto_generichash(out->byte, sizeof out->byte, (const uint8_t *)x, n * sizeof *x, NULL, 0);
}

static char *path_of(const pool_store *s, uint32_t f, uint32_t slot)
{
    return atom_format("%s/fragment-%u.%u", s->directory, f, slot);
}

static atom_status write_at(int fd, uint64_t at, const void *data, uint64_t bytes)
{
    int error = atom_fd_write(fd, at, data, bytes);
    return error ? atom_fail_errno(error, "cannot write the pool's anchor") : ATOM_OK;
}

static bool read_at(int fd, uint64_t at, void *data, uint64_t bytes)
{
    return atom_fd_read(fd, at, data, bytes) == 0;
}

static void encode(const pool_header *h, uint8_t out[HEAD_BYTES])
{
    atom_writer w = atom_writer_make(out, HEAD_BYTES);
    memset(out, 0, HEAD_BYTES);
    atom_write_bytes(&w, MAGIC, sizeof MAGIC);
    atom_write_uint(&w, h->epoch, 8);
    atom_write_uint(&w, h->version, 8);
    atom_write_uint(&w, h->n, 8);
    atom_write_bytes(&w, h->lineage.byte, 32);
    atom_write_bytes(&w, h->anchor.byte, 32);
    atom_write_bytes(&w, h->momentum.byte, 32);
    crypto_generichash(out + USED_BYTES, 32, out, USED_BYTES, NULL, 0);
}

static bool decode(const uint8_t in[HEAD_BYTES], pool_header *h)
{
    uint8_t hash[32];
    atom_reader r = atom_reader_make(in + sizeof MAGIC, USED_BYTES - sizeof MAGIC);
    crypto_generichash(hash, sizeof hash, in, USED_BYTES, NULL, 0);
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0 || memcmp(hash, in + USED_BYTES, 32) != 0)
        return false;
    h->epoch = atom_read_u64(&r);
    h->version = atom_read_u64(&r);
    h->n = atom_read_u64(&r);
    atom_read_bytes(&r, h->lineage.byte, 32);
    atom_read_bytes(&r, h->anchor.byte, 32);
    atom_read_bytes(&r, h->momentum.byte, 32);
    return true;
}

static atom_status open_slot(const pool_store *s, uint32_t f, uint32_t slot, int flags, int *fd)
{
    char *path = path_of(s, f, slot);
    if (!path)
        return atom_fail_memory("a path", 256);
    atom_status st = ATOM_OK;
    bool fresh = (flags & O_CREAT) && !atom_path_exists(path);
    *fd = atom_fd_open(path, flags | O_CLOEXEC, 0600);
    if (*fd < 0)
        st = atom_fail_errno(errno, "cannot open %s", path);
    else if (fresh)
        st = atom_dir_sync(s->directory);
    if (st != ATOM_OK && *fd >= 0)
        close(*fd);
    atom_free(path);
    return st;
}

static atom_status finish(const pool_store *s, uint32_t f, int fd, const pool_header *header)
{
    uint8_t head[HEAD_BYTES];
    encode(header, head);
    atom_status st = write_at(fd, 0, head, sizeof head);
    if (st == ATOM_OK && fdatasync(fd) < 0)
        st = atom_fail_errno(errno, "cannot sync fragment %u of the pool's anchor in %s", f,
                             s->directory);
    return st;
}

/* No header yet: what was there is not whole any more. */
static atom_status start(const pool_store *s, uint32_t f, uint32_t slot, int *fd)
{
    static const uint8_t nothing[HEAD_BYTES];
    ATOM_TRY(open_slot(s, f, slot, O_RDWR | O_CREAT, fd));
    atom_status st = write_at(*fd, 0, nothing, sizeof nothing);
    if (st != ATOM_OK) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

static atom_status put(int fd, uint64_t first, uint64_t n, const float *x)
{
    return write_at(fd, HEAD_BYTES + first * sizeof *x, x, n * sizeof *x);
}

void pool_incoming_close(pool_incoming *in)
{
    if (in->fd >= 0)
        close(in->fd);
    in->fd = -1;
}

atom_status pool_incoming_put(pool_incoming *in, const pool_store *s, uint32_t f, uint32_t slot,
                              uint64_t version, uint64_t first, uint64_t n, const float *x)
{
    if (first == 0) {
        pool_incoming_close(in);
        ATOM_TRY(start(s, f, slot, &in->fd));
        in->fragment = f;
        in->version[f] = version;
    }
    ATOM_ASSERT(in->fd >= 0 && in->fragment == f);
    return put(in->fd, first, n, x);
}

/* One sync is enough: a torn write does not have the header's hashes, and nobody counts on a
 * version before it is synced. */
atom_status pool_file_write(const pool_store *s, uint32_t f, uint32_t slot, pool_header *header,
                            const float *anchor, const float *momentum)
{
    int fd = -1;
    atom_status st = ATOM_OK;
    ATOM_TRY(start(s, f, slot, &fd));
    pool_floats_hash(anchor, header->n, &header->anchor);
    pool_floats_hash(momentum, s->outer[f], &header->momentum);
    ATOM_TRY_CLEAN(put(fd, 0, header->n, anchor));
    ATOM_TRY_CLEAN(put(fd, header->n, s->outer[f], momentum));
    ATOM_TRY_CLEAN(finish(s, f, fd, header));
cleanup:
    close(fd);
    return st;
}

bool pool_file_header(const pool_store *s, uint32_t f, uint32_t slot, pool_header *out)
{
    uint8_t head[HEAD_BYTES];
    char *path = path_of(s, f, slot);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool good =
        fd >= 0 && read_at(fd, 0, head, sizeof head) && decode(head, out) && out->n == s->n[f];
    if (fd >= 0)
        close(fd);
    atom_free(path);
    return good;
}

static bool read_floats(int fd, uint64_t n, uint64_t outer, float *anchor, float *momentum)
{
    return read_at(fd, HEAD_BYTES, anchor, n * sizeof *anchor) &&
           (!momentum ||
            read_at(fd, HEAD_BYTES + n * sizeof *anchor, momentum, outer * sizeof *momentum));
}

static atom_status is_damaged(const pool_store *s, uint32_t f, uint32_t slot)
{
    return atom_fail(ATOM_E_FORMAT,
                     "%s/fragment-%u.%u is damaged; the anchor must be fetched from the others",
                     s->directory, f, slot);
}

atom_status pool_file_read(const pool_store *s, uint32_t f, uint32_t slot,
                           const pool_header *header, float *anchor, float *momentum)
{
    gsp_hash a = {{0}}, m = {{0}};
    int fd = -1;
    ATOM_TRY(open_slot(s, f, slot, O_RDONLY, &fd));
    bool whole = read_floats(fd, header->n, s->outer[f], anchor, momentum);
    close(fd);
    if (whole)
        pool_floats_hash(anchor, header->n, &a);
    if (whole && momentum)
        pool_floats_hash(momentum, s->outer[f], &m);
    if (!whole || !gsp_hash_equal(&a, &header->anchor) ||
        (momentum && !gsp_hash_equal(&m, &header->momentum)))
        return is_damaged(s, f, slot);
    return ATOM_OK;
}

atom_status pool_file_seal(const pool_store *s, uint32_t f, uint32_t slot, pool_header *header,
                           float *anchor, float *momentum)
{
    int fd = -1;
    atom_status st = ATOM_OK;
    ATOM_TRY(open_slot(s, f, slot, O_RDWR, &fd));
    if (!read_floats(fd, header->n, s->outer[f], anchor, momentum))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME,
                                 "%s/fragment-%u.%u is shorter than what was written", s->directory,
                                 f, slot));
    pool_floats_hash(anchor, header->n, &header->anchor);
    pool_floats_hash(momentum, s->outer[f], &header->momentum);
    ATOM_TRY_CLEAN(finish(s, f, fd, header));
cleanup:
    close(fd);
    return st;
}

/* ---- fragments that stay on disk ---- */

pool_floats pool_file_anchor(int fd)
{
    return (pool_floats){.fd = fd, .offset = HEAD_BYTES};
}

pool_floats pool_file_outer(const pool_store *s, uint32_t f, int fd)
{
    return (pool_floats){.fd = fd, .offset = HEAD_BYTES + s->n[f] * sizeof(float)};
}

static char *next_path(const pool_store *s)
{
    return atom_path_join(s->directory, "next");
}

atom_status pool_next_open(const pool_store *s, uint32_t f, int *fd)
{
    uint64_t bytes = HEAD_BYTES + (s->n[f] + s->outer[f]) * sizeof(float);
    char *path = next_path(s);
    atom_status st = ATOM_OK;
    *fd = -1;
    if (!path)
        return atom_fail_memory("a path", 256);
    *fd = atom_fd_open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (*fd < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "cannot open %s", path));
    ATOM_TRY_CLEAN(atom_fd_room(*fd, path, bytes));
    if (ftruncate(*fd, (off_t)bytes) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "cannot make room in %s", path));
cleanup:
    if (st != ATOM_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    atom_free(path);
    return st;
}

/* Hashes of what lies in fd. */
static atom_status hash_file(const pool_store *s, uint32_t f, int fd, float *room, uint64_t piece,
                             pool_header *out)
{
    const pool_floats anchor = pool_file_anchor(fd), outer = pool_file_outer(s, f, fd);
    ATOM_TRY(pool_floats_hash_of(&anchor, s->n[f], room, piece, &out->anchor));
    return pool_floats_hash_of(&outer, s->outer[f], room, piece, &out->momentum);
}

atom_status pool_next_end(const pool_store *s, uint32_t f, uint32_t slot, int fd,
                          pool_header *header, float *room, uint64_t piece)
{
    char *from = next_path(s), *to = path_of(s, f, slot);
    atom_status st;
    if (!from || !to)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    ATOM_TRY_CLEAN(hash_file(s, f, fd, room, piece, header));
    ATOM_TRY_CLEAN(finish(s, f, fd, header));
    if (rename(from, to) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "cannot rename %s to %s", from, to));
    ATOM_TRY_CLEAN(atom_dir_sync(s->directory));
cleanup:
    atom_free(from);
    atom_free(to);
    return st;
}

static atom_status check_slot(const pool_store *s, uint32_t f, uint32_t slot, int fd,
                              const pool_header *header, float *room, uint64_t piece)
{
    pool_header is;
    if (hash_file(s, f, fd, room, piece, &is) != ATOM_OK ||
        !gsp_hash_equal(&is.anchor, &header->anchor) ||
        !gsp_hash_equal(&is.momentum, &header->momentum))
        return is_damaged(s, f, slot);
    return ATOM_OK;
}

atom_status pool_slot_open(const pool_store *s, uint32_t f, uint32_t slot,
                           const pool_header *header, float *room, uint64_t piece, int *fd)
{
    ATOM_TRY(open_slot(s, f, slot, O_RDONLY, fd));
    atom_status st = check_slot(s, f, slot, *fd, header, room, piece);
    if (st != ATOM_OK) {
        close(*fd);
        *fd = -1;
    }
    return st;
}

atom_status pool_slot_seal(const pool_store *s, uint32_t f, uint32_t slot, pool_header *header,
                           float *room, uint64_t piece, int *fd)
{
    ATOM_TRY(open_slot(s, f, slot, O_RDWR, fd));
    atom_status st = hash_file(s, f, *fd, room, piece, header);
    st = st == ATOM_OK ? finish(s, f, *fd, header) : st;
    if (st != ATOM_OK) {
        close(*fd);
        *fd = -1;
    }
    return st;
}
