/*
 * Owns the way of weights out of the canonical vector into a model directory. One idea: the writer
 * says whose turn it is, and each tensor streams through a small buffer, transposed where Hugging
 * Face stores it so. Large models go to several files with an index, as transformers splits them.
 * Refuses to leave files of an older save beside a new model.
 */
#include "atom/file/hfweights.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct weights_writer {
    const graph *g;
    file_vector vector;
    file_slice *slices;
    uint32_t n_slices;
    file_dtype dtype;
    uint32_t first, last; /* the slices of the present file */
    uint64_t overflows;   /* finite numbers that the narrower type does not have */
    float *buffer;        /* a band of a tensor */
    float *whole;         /* a transposed tensor, the largest there is */
    uint64_t room;
} weights_writer;

/* As transformers calls it; room for FILE_NAME_MAX + 16. */
static void full_name(const weights_writer *all, const file_slice *s, char *name)
{
    bool head = file_is_head(all->g, s->name);
    snprintf(name, FILE_NAME_MAX + 16, "%s%s", head ? "" : file_prefix(all->g), s->name);
}

static uint64_t bytes_of(const weights_writer *all, uint64_t elements)
{
    return elements * (file_dtype_bits(all->dtype) / 8);
}

static uint64_t slice_bytes(const weights_writer *all, const file_slice *s)
{
    return s->buffer ? s->buffer->bytes : bytes_of(all, s->elements);
}

/* The tensors of the parameters, then the buffers. */
static atom_status list_all(weights_writer *all)
{
    const graph_buffers *b = all->g->buffers;
    ATOM_TRY(file_slices(all->g, &all->slices, &all->n_slices));
    if (!b)
        return ATOM_OK;
    file_slice *more = atom_alloc((size_t)all->n_slices + b->n, sizeof *more);
    if (!more)
        return atom_fail_memory("the tensors' names", (uint64_t)b->n * sizeof *more);
    memcpy(more, all->slices, all->n_slices * sizeof *more);
    atom_free(all->slices);
    all->slices = more;
    for (uint32_t i = 0; i < b->n; i++) {
        file_slice *s = &more[all->n_slices++];
        ATOM_ASSERT(b->all[i].data);
        s->buffer = &b->all[i];
        memcpy(s->name, b->all[i].name, sizeof s->name);
    }
    return ATOM_OK;
}

/* n numbers at `buffer`, made narrower in place. */
static atom_status put(file_st_writer *w, weights_writer *all, uint64_t n)
{
    uint16_t *narrow = (uint16_t *)(void *)all->buffer;
    const uint16_t infinite = all->dtype == FILE_F16 ? 0x7c00 : 0x7f80;
    for (uint64_t i = 0; i < n && all->dtype != FILE_F32; i++) {
        float x = all->buffer[i];
        uint16_t half = all->dtype == FILE_F16 ? atom_f32_to_f16(x) : atom_f32_to_bf16(x);
        all->overflows += isfinite(x) && (half & 0x7fffu) == infinite;
        memcpy(&narrow[i], &half, sizeof half);
    }
    return file_st_write(w, all->buffer, bytes_of(all, n));
}

static atom_status declare_all(file_st_writer *w, const weights_writer *all)
{
    char name[FILE_NAME_MAX + 16];
    for (uint32_t i = all->first; i < all->last; i++) {
        const file_slice *s = &all->slices[i];
        full_name(all, s, name);
        if (s->buffer)
            ATOM_TRY(file_buffer_declare(w, s->buffer));
        else
            ATOM_TRY(file_st_declare(w, name, all->dtype, s->rank, s->dims));
    }
    return ATOM_OK;
}

/* [out, in] in the vector -> [in, out] in the file, a band of file rows at a time. */
static atom_status write_transposed(file_st_writer *w, weights_writer *all, const file_slice *s,
                                    const float *in)
{
    uint64_t rows = s->dims[0], cols = s->dims[1];
    for (uint64_t row = 0, band; row < rows; row += band) {
        band = all->room / cols;
        band = band < rows - row ? band : rows - row;
        for (uint64_t c = 0; c < cols; c++) {
            for (uint64_t k = 0; k < band; k++)
                all->buffer[k * cols + c] = in[c * rows + row + k];
        }
        ATOM_TRY(put(w, all, band * cols));
    }
    return ATOM_OK;
}

static atom_status open_buffers(weights_writer *all)
{
    all->room = FILE_BAND_ELEMENTS;
    for (uint32_t i = 0; i < all->n_slices; i++) {
        const file_slice *s = &all->slices[i];
        if (s->transposed && s->dims[1] > all->room)
            all->room = s->dims[1];
    }
    uint64_t largest = file_largest_transposed(all->slices, all->n_slices);
    all->buffer = atom_alloc((size_t)all->room, sizeof *all->buffer);
    all->whole = atom_alloc((size_t)largest, sizeof *all->whole);
    return all->buffer && all->whole
               ? ATOM_OK
               : atom_fail_memory("writing weights", (all->room + largest) * sizeof *all->buffer);
}

static atom_status write_plain(file_st_writer *w, weights_writer *all, uint64_t from, uint64_t n)
{
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < all->room ? n - at : all->room;
        ATOM_TRY(all->vector.get(all->vector.ctx, from + at, some, all->buffer));
        ATOM_TRY(put(w, all, some));
    }
    return ATOM_OK;
}

/* Runs of rows, from wherever they are. */
static atom_status write_in_order(file_st_writer *w, weights_writer *all, const file_slice *s,
                                  uint64_t from)
{
    uint64_t runs = file_slice_runs(s), n = s->elements / runs;
    for (uint64_t i = 0; i < runs; i++)
        ATOM_TRY(write_plain(w, all, from + file_slice_run(s, i) * n, n));
    return ATOM_OK;
}

/* The rows of somebody's own tensor, from wherever they are. */
static atom_status write_runs(file_st_writer *w, weights_writer *all, const file_slice *s)
{
    uint64_t rows = 0, row = 0;
    for (uint32_t i = 0; i < s->n_runs; i++)
        rows += (uint64_t)s->runs[i].rows;
    uint64_t width = s->elements / rows;
    atom_status st = ATOM_OK;
    while (row < rows && st == ATOM_OK) {
        const graph_stored *run = s->runs;
        uint64_t k = 0, some;
        while ((uint64_t)run->from > row ||
               (row - (uint64_t)run->from) % (uint64_t)run->step != 0 ||
               (row - (uint64_t)run->from) / (uint64_t)run->step >= (uint64_t)run->rows)
            run++;
        k = (row - (uint64_t)run->from) / (uint64_t)run->step;
        some = run->step == 1 ? (uint64_t)run->rows - k : 1;
        st = write_plain(w, all,
                         all->g->params[run->param].offset + ((uint64_t)run->first + k) * width,
                         some * width);
        row += some;
    }
    return st;
}

static atom_status write_all(file_st_writer *w, weights_writer *all)
{
    uint32_t i;
    atom_status st = ATOM_OK;
    while (st == ATOM_OK && file_st_next(w, &i)) {
        const file_slice *s = &all->slices[all->first + i];
        uint64_t from = all->g->params[s->param].offset + s->first;
        if (s->buffer) {
            st = file_st_write(w, s->buffer->data, s->buffer->bytes);
            continue;
        }
        if (s->runs && !s->transposed) {
            st = write_runs(w, all, s);
            continue;
        }
        if (!s->transposed) {
            st = write_in_order(w, all, s, from);
            file_vector_done(all->vector, from, s->elements);
            continue;
        }
        st = all->vector.get(all->vector.ctx, from, s->elements, all->whole);
        if (st == ATOM_OK)
            st = write_transposed(w, all, s, all->whole);
        file_vector_done(all->vector, from, s->elements);
    }
    return st;
}

/* model-00001-of-00003.safetensors, model.safetensors.index.json */
static bool is_stale(const char *name)
{
    if (strcmp(name, "model.safetensors.index.json") == 0)
        return true;
    return strncmp(name, "model-", 6) == 0 && strspn(name + 6, "0123456789") == 5 &&
           strncmp(name + 11, "-of-", 4) == 0 && strspn(name + 15, "0123456789") == 5 &&
           strcmp(name + 20, ".safetensors") == 0;
}

/* Everything that an older save may have left, but for `n` files of the new one. */
static void remove_stale(const char *dir, uint32_t n)
{
    DIR *list = opendir(dir);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const char *name = entry->d_name;
        bool single = strcmp(name, "model.safetensors") == 0;
        bool ours = n == 1 ? single
                           : strcmp(name, "model.safetensors.index.json") == 0 ||
                                 (is_stale(name) && strtoul(name + 15, NULL, 10) == n &&
                                  strtoul(name + 6, NULL, 10) <= n);
        if (!ours && (single || is_stale(name)))
            unlinkat(dirfd(list), name, 0);
    }
    if (list)
        closedir(list);
}

static atom_status write_file(weights_writer *all, const char *dir, const char *name)
{
    file_st_writer *w = NULL;
    atom_status st = ATOM_OK;
    char *path = atom_path_join(dir, name);
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    ATOM_TRY_CLEAN(file_st_create(path, &w));
    file_st_into(w, all->vector.sink);
    ATOM_TRY_CLEAN(declare_all(w, all));
    ATOM_TRY_CLEAN(file_st_begin(w));
    ATOM_TRY_CLEAN(write_all(w, all));
    ATOM_TRY_CLEAN(file_st_finish(w));
cleanup:
    file_st_writer_close(&w);
    atom_free(path);
    return st;
}

/* One past the last slice of a file that begins with `first`: as many as fit, at least one. */
static uint32_t shard_end(const weights_writer *all, uint32_t first, uint64_t most)
{
    uint64_t bytes = 0;
    uint32_t i = first;
    for (; i < all->n_slices; i++) {
        bytes += slice_bytes(all, &all->slices[i]);
        if (i > first && bytes > most)
            break;
    }
    return i;
}

static void shard_name(char name[40], uint32_t k, uint32_t n)
{
    if (n == 1)
        snprintf(name, 40, "model.safetensors");
    else
        snprintf(name, 40, "model-%05u-of-%05u.safetensors", k, n);
}

static atom_status write_index(const weights_writer *all, const char *dir, uint64_t most,
                               uint32_t n)
{
    char name[FILE_NAME_MAX + 16], file[40];
    uint64_t bytes = 0;
    uint32_t k = 1, end = shard_end(all, 0, most);
    json_t *map = json_object();
    int failed = !map;
    for (uint32_t i = 0; i < all->n_slices && !failed; i++) {
        if (i == end) {
            end = shard_end(all, i, most);
            k++;
        }
        shard_name(file, k, n);
        full_name(all, &all->slices[i], name);
        bytes += slice_bytes(all, &all->slices[i]);
        failed = json_object_set_new(map, name, json_string(file)) < 0;
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    char *path = atom_path_join(dir, "model.safetensors.index.json");
    if (failed || !path) {
        json_decref(root);
        root = NULL;
    }
    atom_status st = atom_json_save(root, JSON_INDENT(2), "", path);
    atom_free(path);
    return st;
}

static atom_status write_shards(weights_writer *all, const char *dir, uint64_t most)
{
    char name[40];
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < all->n_slices; i = shard_end(all, i, most))
        n++;
    for (all->first = 0; all->first < all->n_slices; all->first = all->last) {
        all->last = shard_end(all, all->first, most);
        shard_name(name, ++k, n);
        ATOM_TRY(write_file(all, dir, name));
    }
    if (n > 1)
        ATOM_TRY(write_index(all, dir, most, n));
    remove_stale(dir, n);
    return ATOM_OK;
}

atom_status file_weights_write(const char *dir, const graph *g, const float *vector)
{
    return file_weights_write_as(dir, g, file_vector_memory((float *)(uintptr_t)vector), ATOM_F32,
                                 FILE_SHARD_BYTES);
}

atom_status file_weights_write_as(const char *dir, const graph *g, file_vector vector,
                                  atom_dtype dtype, uint64_t shard_bytes)
{
    weights_writer all = {.g = g,
                          .vector = vector,
                          .dtype = dtype == ATOM_BF16  ? FILE_BF16
                                   : dtype == ATOM_F16 ? FILE_F16
                                                       : FILE_F32};
    atom_status st;
    ATOM_TRY_CLEAN(list_all(&all));
    ATOM_TRY_CLEAN(open_buffers(&all));
    ATOM_TRY_CLEAN(write_shards(&all, dir, shard_bytes));
    if (all.overflows)
        atom_log(ATOM_LOG_WARN, "%llu weights are too large for %s and became infinite; use %s",
                 (unsigned long long)all.overflows, dtype == ATOM_F16 ? "fp16" : "bf16",
                 dtype == ATOM_F16 ? "bf16" : "fp32");
cleanup:
    atom_free(all.slices);
    atom_free(all.buffer);
    atom_free(all.whole);
    return st;
}
