/*
 * Owns the way from a packed file to its bytes. One idea: the first bytes of a file say how it is
 * packed, neither gzip's nor zstd's can start a text in UTF-8; the name is believed only where it
 * promises more than the file holds. Memory is two fixed buffers and the unpacker's window,
 * whatever the file unpacks to. Refuses files that end early, fail their checksum, or go on after
 * their end.
 */
#include "atom/text/unpack.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { PACKED_BYTES = 1 << 17, GZIP_WINDOW = 15 + 16, ZSTD_WINDOW_LOG = 27 };

typedef enum packing { PLAIN, GZIP, ZSTD } packing;

struct text_unpack {
    char *path;
    int fd;
    packing kind;
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd;
    bool inside; /* a member or frame, whose end has not been seen */
    bool end_of_file;
    uint64_t read; /* bytes of the file so far */
    size_t at, n;  /* packed[at .. n) are still to be unpacked */
    uint8_t *packed;
};

static bool ends_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), suffix_n = strlen(suffix);
    return n > suffix_n && strcasecmp(path + n - suffix_n, suffix) == 0;
}

size_t text_unpack_stem(const char *path)
{
    size_t n = strlen(path);
    return ends_with(path, ".gz") ? n - 3 : ends_with(path, ".zst") ? n - 4 : n;
}

/* More packed bytes behind those that are left. */
static atom_status fill(text_unpack *u)
{
    memmove(u->packed, u->packed + u->at, u->n - u->at);
    u->n -= u->at;
    u->at = 0;
    while (u->n < PACKED_BYTES && !u->end_of_file) {
        ssize_t n = read(u->fd, u->packed + u->n, PACKED_BYTES - u->n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return atom_fail_errno(errno, "cannot read %s", u->path);
        u->end_of_file = n == 0;
        u->n += (size_t)n;
        u->read += (uint64_t)n;
    }
    return ATOM_OK;
}

static bool is_gzip(const uint8_t *head, size_t n)
{
    return n >= 2 && head[0] == 0x1f && head[1] == 0x8b;
}

/* A frame, or a frame to skip (RFC 8878, sections 3.1.1 and 3.1.2). */
static bool is_zstd(const uint8_t *head, size_t n)
{
    if (n < 4 || head[1] != 0xb5 || head[2] != 0x2f || head[3] != 0xfd)
        return n >= 4 && (head[0] & 0xf0) == 0x50 && head[1] == 0x2a && head[2] == 0x4d &&
               head[3] == 0x18;
    return head[0] == 0x28;
}

static atom_status begin(text_unpack *u)
{
    ATOM_TRY(fill(u));
    if (atom_is_lfs_pointer(u->packed, u->n))
        return atom_fail_lfs(u->path);
    if (is_gzip(u->packed, u->n))
        u->kind = GZIP;
    else if (is_zstd(u->packed, u->n) && (u->packed[0] == 0x28 || ends_with(u->path, ".zst")))
        u->kind = ZSTD;
    if (u->kind != GZIP && ends_with(u->path, ".gz"))
        return atom_fail(ATOM_E_FORMAT,
                         "%s is named .gz but is not gzip (it does not start with 1f 8b); rename "
                         "it, or compress it again",
                         u->path);
    if (u->kind != ZSTD && ends_with(u->path, ".zst"))
        return atom_fail(ATOM_E_FORMAT,
                         "%s is named .zst but is not zstd (it does not start with 28 b5 2f fd); "
                         "rename it, or compress it again",
                         u->path);
    if (u->kind == GZIP) {
        u->gzip_open = inflateInit2(&u->gzip, GZIP_WINDOW) == Z_OK;
        return u->gzip_open ? ATOM_OK : atom_fail_memory("unpacking gzip", 1 << 15);
    }
    if (u->kind == ZSTD) {
        u->zstd = ZSTD_createDStream();
        if (!u->zstd || ZSTD_isError(ZSTD_initDStream(u->zstd)) ||
            ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
            return atom_fail_memory("unpacking zstd", 1 << 17);
    }
    return ATOM_OK;
}

atom_status text_unpack_take(int fd, const char *path, text_unpack **out)
{
    atom_status st = ATOM_OK;
    text_unpack *u = atom_alloc(1, sizeof *u);
    if (!u) {
        close(fd);
        return atom_fail_memory(path, sizeof *u);
    }
    u->fd = fd;
    u->path = atom_strdup(path);
    u->packed = atom_alloc(PACKED_BYTES, 1);
    if (!u->path || !u->packed)
        ATOM_TRY_CLEAN(atom_fail_memory(path, PACKED_BYTES));
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    ATOM_TRY_CLEAN(begin(u));
    *out = u;
    return ATOM_OK;
cleanup:
    text_unpack_close(&u);
    return st;
}

atom_status text_unpack_open(const char *path, text_unpack **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot open %s", path);
    return text_unpack_take(fd, path, out);
}

void text_unpack_close(text_unpack **unpack)
{
    text_unpack *u = *unpack;
    if (!u)
        return;
    if (u->gzip_open)
        inflateEnd(&u->gzip);
    ZSTD_freeDStream(u->zstd);
    close(u->fd);
    atom_free(u->path);
    atom_free(u->packed);
    atom_free(u);
    *unpack = NULL;
}

bool text_unpack_packed(const text_unpack *u)
{
    return u->kind != PLAIN;
}

uint64_t text_unpack_used(const text_unpack *u)
{
    return u->read - (u->n - u->at);
}

/* ---- unpacking ---- */

static atom_status fail_damaged(const text_unpack *u, const char *what)
{
    return atom_fail(
        ATOM_E_FORMAT, "%s: damaged %s at byte %llu of the file: %s; copy or download it again",
        u->path, u->kind == GZIP ? "gzip" : "zstd", (unsigned long long)text_unpack_used(u), what);
}

/* Unpacks some of packed[at .. n) into data; *got may be 0. */
static atom_status step_gzip(text_unpack *u, char *data, size_t want, size_t *got)
{
    if (!u->inside) {
        if (!is_gzip(u->packed + u->at, u->n - u->at))
            return fail_damaged(u, "there is something else after its end");
        inflateReset(&u->gzip);
        u->inside = true;
    }
    uint32_t room = want < 1 << 30 ? (uint32_t)want : 1 << 30;
    u->gzip.next_in = u->packed + u->at;
    u->gzip.avail_in = (uint32_t)(u->n - u->at);
    u->gzip.next_out = (uint8_t *)data;
    u->gzip.avail_out = room;
    int result = inflate(&u->gzip, Z_NO_FLUSH);
    u->at = u->n - u->gzip.avail_in;
    *got = room - u->gzip.avail_out;
    if (result == Z_STREAM_END)
        u->inside = false;
    else if (result == Z_MEM_ERROR)
        return atom_fail_memory("unpacking gzip", 1 << 15);
    else if (result == Z_NEED_DICT)
        return fail_damaged(u, "it asks for a dictionary");
    else if (result != Z_OK && result != Z_BUF_ERROR)
        return fail_damaged(u, u->gzip.msg ? u->gzip.msg : "wrong data");
    return ATOM_OK;
}

static atom_status step_zstd(text_unpack *u, char *data, size_t want, size_t *got)
{
    ZSTD_inBuffer in = {u->packed, u->n, u->at};
    ZSTD_outBuffer out = {data, want, 0};
    size_t left = ZSTD_decompressStream(u->zstd, &out, &in);
    if (ZSTD_isError(left)) {
        ZSTD_ErrorCode code = ZSTD_getErrorCode(left);
        if (code == ZSTD_error_memory_allocation)
            return atom_fail_memory("unpacking zstd", (uint64_t)1 << ZSTD_WINDOW_LOG);
        if (code == ZSTD_error_frameParameter_windowTooLarge)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s is compressed with a window above 128 MiB (zstd --long); unpack "
                             "it, or compress it again without that",
                             u->path);
        return fail_damaged(u, ZSTD_getErrorName(left));
    }
    u->at = in.pos;
    *got = out.pos;
    u->inside = left != 0;
    return ATOM_OK;
}

static atom_status read_plain(text_unpack *u, char *data, size_t want, size_t *got)
{
    if (u->at == u->n) {
        ATOM_TRY(fill(u));
    }
    *got = u->n - u->at < want ? u->n - u->at : want;
    memcpy(data, u->packed + u->at, *got);
    u->at += *got;
    return ATOM_OK;
}

atom_status text_unpack_read(text_unpack *u, char *data, size_t want, size_t *got)
{
    ATOM_ASSERT(want > 0);
    *got = 0;
    if (u->kind == PLAIN)
        return read_plain(u, data, want, got);
    while (*got == 0) {
        /* An unpacker may hold bytes back that it has room for only now: ask it before the file. */
        if (u->n - u->at < 18 && !u->end_of_file)
            ATOM_TRY(fill(u));
        if (u->at == u->n && !u->inside)
            return ATOM_OK;
        size_t before = u->at;
        ATOM_TRY(u->kind == GZIP ? step_gzip(u, data, want, got) : step_zstd(u, data, want, got));
        if (*got == 0 && u->at == before && u->inside)
            return fail_damaged(u, "it is cut off");
    }
    return ATOM_OK;
}
