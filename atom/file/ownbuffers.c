/*
 * Owns the buffers of somebody's own model on their way from file to file: what its state_dict has
 * beside parameters. One idea: they are never computed with here (the graph has what they mean), so
 * their bytes are kept in memory and written as they came. Refuses more than FILE_BUFFERS_BYTES_MAX,
 * a name that is taken, and buffers of another type, shape or content than the model's.
 */
#include "atom/file/hfweights.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ALONE[] = "buffers.safetensors";

static int by_name(const void *a, const void *b)
{
    const graph_buffer *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int to_stored(const void *key, const void *row)
{
    return strcmp(key, ((const graph_stored *)row)->name);
}

atom_status file_buffers_set(const char *path, graph *g, graph_buffers *buffers)
{
    uint64_t bytes = 0;
    qsort(buffers->all, buffers->n, sizeof buffers->all[0], by_name);
    for (uint32_t i = 0; i < buffers->n; i++) {
        const graph_buffer *b = &buffers->all[i];
        bool taken = (i > 0 && strcmp(b->name, b[-1].name) == 0) ||
                     strcmp(b->name, "__metadata__") == 0; /* of safetensors itself */
        if (taken || bsearch(b->name, g->stored, g->n_stored, sizeof *g->stored, to_stored))
            return atom_fail(ATOM_E_FORMAT, "%s: buffer '%.128s' has a name that is already used",
                             path, b->name);
        if (b->bytes > FILE_BUFFERS_BYTES_MAX - bytes)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: with '%.128s' the buffers of the model's state_dict have more "
                             "than %d MiB, which is the most that atom keeps; register large "
                             "ones with persistent=False",
                             path, b->name, (int)(FILE_BUFFERS_BYTES_MAX >> 20));
        bytes += b->bytes;
    }
    graph_set_buffers(g, buffers);
    return ATOM_OK;
}

bool file_buffer_size(graph_buffer *b)
{
    uint64_t bits = file_dtype_bits((file_dtype)b->dtype), elements = 1;
    for (uint32_t i = 0; i < b->rank; i++) {
        if (b->dims[i] < 1 || b->dims[i] > ((uint64_t)1 << 42) / elements)
            return false;
        elements *= b->dims[i];
    }
    b->bytes = elements * bits / 8;
    return bits % 8 == 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool same_shape(const file_tensor *t, const graph_buffer *b)
{
    return t->dtype == (file_dtype)b->dtype && t->rank == b->rank &&
           memcmp(t->dims, b->dims, b->rank * sizeof b->dims[0]) == 0;
}

atom_status file_buffer_check(const file_safetensors *file, const file_tensor *t,
                              const graph_buffer *b)
{
    unsigned char band[4096];
    bool same = same_shape(t, b);
    for (uint64_t at = 0, some; same && at < b->bytes; at += some) {
        some = b->bytes - at < sizeof band ? b->bytes - at : sizeof band;
        ATOM_TRY(file_st_read(file, t, at, some, band));
        same = memcmp(band, (const unsigned char *)b->data + at, some) == 0;
    }
    return same ? ATOM_OK
                : atom_fail(ATOM_E_FORMAT,
                            "%s: buffer '%.128s' differs from the model's, but buffers are not "
                            "trained, so these are weights of another model",
                            file->path, b->name);
}

static atom_status read_one(file_safetensors *const *files, uint32_t n, const char *dir,
                            graph_buffer *b)
{
    const file_tensor *t = NULL;
    uint32_t i = 0;
    while (i < n && !(t = file_st_find(files[i], b->name)))
        i++;
    if (!t)
        return atom_fail(ATOM_E_FORMAT, "%s: buffer '%.128s' of config.json is missing", dir,
                         b->name);
    if (!same_shape(t, b))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: buffer '%.128s' has another type or shape than config.json says",
                         files[i]->path, b->name);
    b->data = atom_alloc(b->bytes, 1);
    return b->data ? file_st_read(files[i], t, 0, b->bytes, b->data)
                   : atom_fail_memory("buffers of a model", b->bytes);
}

atom_status file_buffers_read(const char *dir, graph *g)
{
    file_safetensors **files = NULL, *alone = NULL;
    uint32_t n = 0;
    char *path = NULL;
    atom_status st = ATOM_OK;
    if (!g || !g->buffers)
        return ATOM_OK;
    if (file_weights_exist(dir)) {
        ATOM_TRY_CLEAN(file_shards_open(dir, &files, &n));
    } else {
        path = atom_path_join(dir, ALONE);
        if (!path)
            ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(dir)));
        if (!atom_path_exists(path))
            ATOM_TRY_CLEAN(atom_fail(
                ATOM_E_USAGE,
                "%s: the model in config.json has buffers ('%.128s'), but neither its weights "
                "nor %s are in the same directory; put one of them there",
                dir, g->buffers->all[0].name, ALONE));
        ATOM_TRY_CLEAN(file_st_open(path, &alone));
    }
    for (uint32_t i = 0; i < g->buffers->n; i++)
        ATOM_TRY_CLEAN(read_one(alone ? &alone : files, alone ? 1 : n, dir, &g->buffers->all[i]));
cleanup:
    for (uint32_t i = 0; i < n; i++)
        file_st_close(&files[i]);
    atom_free(files);
    file_st_close(&alone);
    atom_free(path);
    return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

atom_status file_buffer_declare(file_st_writer *w, const graph_buffer *b)
{
    return file_st_declare(w, b->name, (file_dtype)b->dtype, b->rank, b->dims);
}

atom_status file_buffers_write(const char *dir, const graph_config *config)
{
    const graph_buffers *b = config->own ? config->own->buffers : NULL;
    file_st_writer *w = NULL;
    uint32_t i;
    atom_status st = ATOM_OK;
    char *path = atom_path_join(dir, ALONE);
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    if (!b) {
        unlink(path);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(file_st_create(path, &w));
    for (i = 0; i < b->n; i++)
        ATOM_TRY_CLEAN(file_buffer_declare(w, &b->all[i]));
    ATOM_TRY_CLEAN(file_st_begin(w));
    while (file_st_next(w, &i))
        ATOM_TRY_CLEAN(file_st_write(w, b->all[i].data, b->all[i].bytes));
    ATOM_TRY_CLEAN(file_st_finish(w));
cleanup:
    file_st_writer_close(&w);
    atom_free(path);
    return st;
}
