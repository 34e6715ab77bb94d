/*
 * Owns the writing side of safetensors. One idea: sizes are declared first, so the header is final
 * before the first byte of data and any model streams through in pieces. Refuses to leave half a
 * file: until finish succeeds there is only a temporary, and close removes it.
 */
#include "atom/file/safetensors.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file_st_writer {
    char *path;
    char *temporary;
    int fd;
    bool begun, made;     /* made: the temporary exists */
    file_tensor *tensors; /* as declared; offset is relative to the data */
    uint32_t *order;      /* order of data -> declared */
    size_t n, room;
    size_t at;         /* position in order */
    uint64_t at_bytes; /* written of that tensor */
    uint64_t total_bytes;
    const file_sink *sink;
    void *writer; /* the sink's; NULL: plain writes */
};

atom_status file_st_create(const char *path, file_st_writer **out)
{
    file_st_writer *w = atom_alloc(1, sizeof *w);
    if (!w)
        return atom_fail_memory(path, sizeof *w);
    w->fd = -1;
    w->path = atom_strdup(path);
    w->temporary = atom_format("%s.tmp", path);
    if (!w->path || !w->temporary) {
        file_st_writer_close(&w);
        return atom_fail_memory("a file writer", 0);
    }
    *out = w;
    return ATOM_OK;
}

void file_st_into(file_st_writer *w, const file_sink *sink)
{
    ATOM_ASSERT(!w->begun);
    w->sink = sink;
}

atom_status file_st_declare(file_st_writer *w, const char *name, file_dtype dtype, uint32_t rank,
                            const uint64_t *dims)
{
    uint64_t bits = file_dtype_bits(dtype);
    ATOM_ASSERT(!w->begun && rank <= FILE_RANK_MAX);
    ATOM_TRY(atom_grow(&w->tensors, w->n, &w->room, sizeof *w->tensors));
    file_tensor *t = &w->tensors[w->n];
    *t = (file_tensor){.dtype = dtype, .rank = rank, .elements = 1};
    for (uint32_t i = 0; i < rank; i++) {
        t->dims[i] = dims[i];
        ATOM_ASSERT(!__builtin_mul_overflow(t->elements, dims[i], &t->elements));
    }
    ATOM_ASSERT(!__builtin_mul_overflow(bits, t->elements, &bits) && bits % 8 == 0);
    t->bytes = bits / 8;
    t->name = atom_strdup(name);
    if (!t->name)
        return atom_fail_memory("a tensor name", strlen(name));
    w->n++;
    return ATOM_OK;
}

static int order_of_data(const void *a, const void *b, void *ctx)
{
    const file_st_writer *w = ctx;
    const file_tensor *x = &w->tensors[*(const uint32_t *)a];
    const file_tensor *y = &w->tensors[*(const uint32_t *)b];
    if (x->dtype != y->dtype)
        return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

static json_t *tensor_json(const file_tensor *t)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; shape && i < t->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", file_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)t->offset, (json_int_t)(t->offset + t->bytes));
}

/* The header's text; sorts and places the tensors on the way. */
static atom_status make_header(file_st_writer *w, char **out)
{
    uint64_t at = 0;
    w->order = atom_alloc(w->n + 1, sizeof *w->order);
    if (!w->order)
        return atom_fail_memory(w->path, w->n * sizeof *w->order);
    for (uint32_t i = 0; i < w->n; i++)
        w->order[i] = i;
    qsort_r(w->order, w->n, sizeof *w->order, order_of_data, w);
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool failed = !root;
    for (size_t i = 0; !failed && i < w->n; i++) {
        file_tensor *t = &w->tensors[w->order[i]];
        t->offset = at;
        at += t->bytes;
        if (json_object_get(root, t->name)) {
            json_decref(root);
            return atom_fail(ATOM_E_RUNTIME, "%s: two tensors named '%s'", w->path, t->name);
        }
        failed = json_object_set_new(root, t->name, tensor_json(t)) < 0;
    }
    *out = failed ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    w->total_bytes = at;
    return *out ? ATOM_OK : atom_fail(ATOM_E_RUNTIME, "%s: cannot make its header", w->path);
}

static atom_status put(file_st_writer *w, const void *data, uint64_t bytes)
{
    const char *at = data;
    if (w->writer)
        return w->sink->write(w->writer, data, bytes);
    while (bytes) {
        size_t some = bytes < (1u << 30) ? (size_t)bytes : (1u << 30);
        ssize_t n = write(w->fd, at, some);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return atom_fail_write(errno, w->path, w->total_bytes);
        at += n;
        bytes -= (uint64_t)n;
    }
    return ATOM_OK;
}

/* Tensors without bytes need no write. */
static void skip_empty(file_st_writer *w)
{
    while (w->at < w->n && w->at_bytes == w->tensors[w->order[w->at]].bytes) {
        w->at++;
        w->at_bytes = 0;
    }
}

static atom_status open_temporary(file_st_writer *w)
{
    unlink(w->temporary); /* of a run that died */
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (w->fd < 0)
        return atom_fail_errno(errno, "cannot create %s", w->temporary);
    w->made = true;
    atom_status st = atom_fd_room(w->fd, w->path, w->total_bytes);
    if (st == ATOM_OK && w->sink)
        st = w->sink->open(w->sink->ctx, w->temporary, w->fd, w->total_bytes, &w->writer);
    return st;
}

atom_status file_st_begin(file_st_writer *w)
{
    static const char spaces[8] = "        ";
    char *header = NULL;
    ATOM_ASSERT(!w->begun);
    atom_status st = ATOM_OK;
    ATOM_TRY(make_header(w, &header));
    uint64_t text_bytes = strlen(header);
    uint64_t header_bytes = (text_bytes + 7) & ~7ull;
    w->total_bytes += 8 + header_bytes;
    if (header_bytes > FILE_HEADER_BYTES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME, "%s: too many tensors for one file", w->path));
    ATOM_TRY_CLEAN(open_temporary(w));
    w->begun = true;
    ATOM_TRY_CLEAN(put(w, &header_bytes, 8));
    ATOM_TRY_CLEAN(put(w, header, text_bytes));
    ATOM_TRY_CLEAN(put(w, spaces, header_bytes - text_bytes));
    skip_empty(w);
cleanup:
    free(header);
    return st;
}

bool file_st_next(const file_st_writer *w, uint32_t *declared)
{
    if (w->at == w->n)
        return false;
    *declared = w->order[w->at];
    return true;
}

atom_status file_st_write(file_st_writer *w, const void *data, uint64_t bytes)
{
    ATOM_ASSERT(w->begun && w->at < w->n);
    ATOM_ASSERT(bytes <= w->tensors[w->order[w->at]].bytes - w->at_bytes);
    ATOM_TRY(put(w, data, bytes));
    w->at_bytes += bytes;
    skip_empty(w);
    return ATOM_OK;
}

static atom_status sync_dir_of(const char *path)
{
    char *dir = atom_strdup(path);
    if (!dir)
        return atom_fail_memory("a path", strlen(path));
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir ? 1 : 0] = 0;
    atom_status st = atom_dir_sync(slash ? dir : ".");
    atom_free(dir);
    return st;
}

atom_status file_st_finish(file_st_writer *w)
{
    ATOM_ASSERT(w->begun && w->at == w->n);
    ATOM_TRY(w->writer ? w->sink->finish(w->writer) : ATOM_OK);
    int synced = fsync(w->fd);
    int error = errno;
    if (close(w->fd) < 0 && synced == 0) {
        synced = -1;
        error = errno;
    }
    w->fd = -1;
    if (synced < 0)
        return atom_fail_write(error, w->path, w->total_bytes);
    if (rename(w->temporary, w->path) < 0)
        return atom_fail_errno(errno, "cannot rename %s to %s", w->temporary, w->path);
    w->made = false;
    return sync_dir_of(w->path);
}

void file_st_writer_close(file_st_writer **writer)
{
    file_st_writer *w = *writer;
    if (!w)
        return;
    if (w->writer)
        w->sink->close(w->writer);
    if (w->fd >= 0)
        close(w->fd);
    if (w->made)
        unlink(w->temporary);
    for (size_t i = 0; i < w->n; i++)
        atom_free(w->tensors[i].name);
    atom_free(w->tensors);
    atom_free(w->order);
    atom_free(w->path);
    atom_free(w->temporary);
    atom_free(w);
    *writer = NULL;
}
