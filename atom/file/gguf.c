/*
 * Owns GGUF files on their way out. One idea: metadata grows in memory, tensors are declared with
 * their sizes, and then everything is written once, front to back. Refuses names that are too long
 * and data of another size than declared.
 */
#include "atom/file/gguf.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 3, ENCODE_ELEMENTS = 1 << 14, TEXT_MAX = 1 << 28 };
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_ARRAY = 9 };

typedef struct gguf_tensor {
    char name[FILE_GGUF_NAME_MAX];
    file_gguf_type type;
    uint32_t rank;
    uint64_t dims[4], elements;
} gguf_tensor;

struct file_gguf {
    char *path, *temporary;
    FILE *file;
    const file_sink *sink;
    void *writer; /* the sink's; NULL: plain writes */
    char *meta;   /* metadata as it stands in the file */
    size_t meta_bytes, meta_room;
    uint64_t n_meta;
    gguf_tensor *tensors;
    uint32_t n_tensors, present;
    size_t tensors_room;
    uint64_t written; /* elements of the present tensor */
    uint64_t lost;    /* weights too large for their type */
    atom_status st;   /* of the metadata */
    bool finished;
    _Alignas(8) char encoded[ENCODE_ELEMENTS * 4];
};

static atom_status open_temporary(file_gguf *w)
{
    int fd = -1;
    ATOM_TRY(atom_temporary_open(w->temporary, ATOM_TEMPORARY_MS, &fd));
    w->file = fdopen(fd, "wb");
    if (w->file)
        return ATOM_OK;
    unlink(w->temporary);
    close(fd);
    return atom_fail_memory(w->temporary, 4096);
}

atom_status file_gguf_create(const char *path, const file_sink *sink, file_gguf **out)
{
    file_gguf *w = atom_alloc(1, sizeof *w);
    atom_status st = ATOM_OK;
    if (!w)
        return atom_fail_memory("a GGUF writer", sizeof *w);
    w->sink = sink;
    w->path = atom_strdup(path);
    w->temporary = atom_format("%s.tmp", path);
    if (!w->path || !w->temporary)
        st = atom_fail_memory("a path", strlen(path));
    else
        st = open_temporary(w);
    if (st != ATOM_OK)
        file_gguf_close(&w);
    else
        *out = w;
    return st;
}

void file_gguf_close(file_gguf **ref)
{
    file_gguf *w = *ref;
    if (!w)
        return;
    if (w->writer)
        w->sink->close(w->writer);
    if (w->file && !w->finished) /* while it is locked: it is ours */
        unlink(w->temporary);
    if (w->file)
        fclose(w->file);
    atom_free(w->path);
    atom_free(w->temporary);
    atom_free(w->meta);
    atom_free(w->tensors);
    atom_free(w);
    *ref = NULL;
}

/* --- metadata -------------------------------------------------------------------------------- */

static void put(file_gguf *w, const void *data, size_t bytes)
{
    if (w->st != ATOM_OK)
        return;
    if (w->meta_room - w->meta_bytes < bytes) {
        size_t room = 2 * w->meta_room + bytes + 4096;
        char *grown = atom_realloc(w->meta, room, 1);
        if (!grown) {
            w->st = atom_fail_memory("metadata of a GGUF file", room);
            return;
        }
        w->meta = grown;
        w->meta_room = room;
    }
    memcpy(w->meta + w->meta_bytes, data, bytes);
    w->meta_bytes += bytes;
}

static void put_u32(file_gguf *w, uint32_t x)
{
    put(w, &x, sizeof x);
}
static void put_u64(file_gguf *w, uint64_t x)
{
    put(w, &x, sizeof x);
}

void file_gguf_add_text(file_gguf *w, const char *bytes, size_t n)
{
    if (n > TEXT_MAX && w->st == ATOM_OK)
        w->st = atom_fail(ATOM_E_FORMAT, "%s: a text of %zu bytes in the metadata", w->path, n);
    put_u64(w, n);
    put(w, bytes, n);
}

static void put_key(file_gguf *w, const char *key, uint32_t type)
{
    file_gguf_add_text(w, key, strlen(key));
    put_u32(w, type);
    w->n_meta++;
}

void file_gguf_put_u32(file_gguf *w, const char *key, uint32_t value)
{
    put_key(w, key, TYPE_U32);
    put_u32(w, value);
}

void file_gguf_put_f32(file_gguf *w, const char *key, float value)
{
    put_key(w, key, TYPE_F32);
    put(w, &value, sizeof value);
}

void file_gguf_put_bool(file_gguf *w, const char *key, bool value)
{
    char byte = value;
    put_key(w, key, TYPE_BOOL);
    put(w, &byte, 1);
}

void file_gguf_put_text(file_gguf *w, const char *key, const char *value)
{
    put_key(w, key, TYPE_TEXT);
    file_gguf_add_text(w, value, strlen(value));
}

static void put_array(file_gguf *w, const char *key, uint32_t type, uint64_t n)
{
    put_key(w, key, TYPE_ARRAY);
    put_u32(w, type);
    put_u64(w, n);
}

void file_gguf_put_texts(file_gguf *w, const char *key, uint64_t n)
{
    put_array(w, key, TYPE_TEXT, n);
}

void file_gguf_put_i32s(file_gguf *w, const char *key, const int32_t *values, uint64_t n)
{
    put_array(w, key, TYPE_I32, n);
    put(w, values, n * sizeof *values);
}

void file_gguf_put_f32s(file_gguf *w, const char *key, const float *values, uint64_t n)
{
    put_array(w, key, TYPE_F32, n);
    put(w, values, n * sizeof *values);
}

/* --- tensors --------------------------------------------------------------------------------- */

uint64_t file_gguf_bytes(file_gguf_type type, uint64_t n)
{
    return type == FILE_GGUF_F32    ? n * 4
           : type == FILE_GGUF_Q8_0 ? n / FILE_GGUF_Q8_BLOCK * (2 + FILE_GGUF_Q8_BLOCK)
                                    : n * 2;
}

atom_status file_gguf_declare(file_gguf *w, const char *name, file_gguf_type type, uint32_t rank,
                              const uint64_t *dims)
{
    gguf_tensor t = {.type = type, .rank = rank, .elements = 1};
    if (strlen(name) >= sizeof t.name)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor name '%.80s' is longer than %d characters",
                         w->path, name, FILE_GGUF_NAME_MAX - 1);
    ATOM_ASSERT(rank >= 1 && rank <= 4);
    snprintf(t.name, sizeof t.name, "%s", name);
    for (uint32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.elements *= dims[i];
    }
    if (type == FILE_GGUF_Q8_0 && dims[rank - 1] % FILE_GGUF_Q8_BLOCK != 0)
        return atom_fail(ATOM_E_FORMAT, "%s: rows of '%s' are not a multiple of %d, as Q8_0 needs",
                         w->path, name, FILE_GGUF_Q8_BLOCK);
    ATOM_TRY(atom_grow(&w->tensors, w->n_tensors, &w->tensors_room, sizeof *w->tensors));
    w->tensors[w->n_tensors++] = t;
    return ATOM_OK;
}

static atom_status write_bytes(file_gguf *w, const void *data, uint64_t bytes)
{
    if (w->writer)
        return w->sink->write(w->writer, data, bytes);
    if (bytes == 0 || fwrite(data, (size_t)bytes, 1, w->file) == 1)
        return ATOM_OK;
    return atom_fail_errno(errno ? errno : EIO, "cannot write %s", w->temporary);
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + FILE_GGUF_ALIGN - 1) / FILE_GGUF_ALIGN * FILE_GGUF_ALIGN;
}

static atom_status write_padding(file_gguf *w, uint64_t bytes)
{
    static const char zeros[FILE_GGUF_ALIGN];
    return write_bytes(w, zeros, padded(bytes) - bytes);
}

/* Tensor infos, after the metadata in the same buffer. Returns the bytes of all tensors. */
static uint64_t put_infos(file_gguf *w)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        const gguf_tensor *t = &w->tensors[i];
        file_gguf_add_text(w, t->name, strlen(t->name));
        put_u32(w, t->rank);
        for (uint32_t d = t->rank; d-- > 0;)
            put_u64(w, t->dims[d]);
        put_u32(w, (uint32_t)t->type);
        put_u64(w, offset);
        offset += padded(file_gguf_bytes(t->type, t->elements));
    }
    return offset;
}

/* The room is taken before anything is written. */
static atom_status open_data(file_gguf *w, uint64_t bytes)
{
    int fd = fileno(w->file);
    atom_status st = atom_fd_room(fd, w->path, bytes);
    if (st == ATOM_OK && w->sink)
        st = w->sink->open(w->sink->ctx, w->temporary, fd, bytes, &w->writer);
    return st;
}

atom_status file_gguf_begin(file_gguf *w)
{
    struct {
        char magic[4];
        uint32_t version;
        uint64_t tensors, meta;
    } head = {{'G', 'G', 'U', 'F'}, VERSION, w->n_tensors, w->n_meta};
    uint64_t data = put_infos(w);
    ATOM_TRY(w->st);
    ATOM_TRY(open_data(w, padded(sizeof head + w->meta_bytes) + data));
    ATOM_TRY(write_bytes(w, &head, sizeof head));
    ATOM_TRY(write_bytes(w, w->meta, w->meta_bytes));
    return write_padding(w, sizeof head + w->meta_bytes);
}

atom_status file_gguf_write(file_gguf *w, const float *x, uint64_t n)
{
    ATOM_ASSERT(w->present < w->n_tensors);
    const gguf_tensor *t = &w->tensors[w->present];
    atom_status st = ATOM_OK;
    ATOM_ASSERT(w->written + n <= t->elements);
    for (uint64_t at = 0, some; at < n && st == ATOM_OK; at += some) {
        some = n - at < ENCODE_ELEMENTS ? n - at : ENCODE_ELEMENTS;
        w->lost += file_gguf_encode(t->type, x + at, some, w->encoded);
        st = write_bytes(w, w->encoded, file_gguf_bytes(t->type, some));
    }
    w->written += n;
    if (st == ATOM_OK && w->written == t->elements) {
        w->written = 0;
        w->present++;
        st = write_padding(w, file_gguf_bytes(t->type, t->elements));
    }
    return st;
}

atom_status file_gguf_finish(file_gguf *w)
{
    ATOM_ASSERT(w->present == w->n_tensors && w->written == 0);
    ATOM_TRY(w->writer ? w->sink->finish(w->writer) : ATOM_OK);
    if (fflush(w->file) != 0 || fsync(fileno(w->file)) < 0)
        return atom_fail_errno(errno, "cannot write %s", w->temporary);
    if (rename(w->temporary, w->path) < 0)
        return atom_fail_errno(errno, "cannot rename %s to %s", w->temporary, w->path);
    w->finished = true;
    if (w->lost)
        atom_log(
            ATOM_LOG_WARN,
            "%s: %llu weights are too large for f16, for the f16 that scales a block of q8_0, or "
            "for bf16, and are "
            "no longer finite; use --type bf16, or f32 where they are too large for that as well",
            w->path, (unsigned long long)w->lost);
    return ATOM_OK;
}
