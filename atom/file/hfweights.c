/*
 * Owns the way of weights from model directories into the canonical vector. One idea: one pass over
 * the tensors of each file, each tensor finding its parameter by name; what was not found is
 * counted at the end. Refuses silence: a missing, extra or misshapen tensor is named.
 */
#include "atom/file/hfweights.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "atom/file/pt2.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static int32_t find_slice(const weights_reader *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_slices; i++) {
        if (strcmp(r->slices[i].name, name) == 0)
            return (int32_t)i;
    }
    return -1;
}

static int32_t find_head(const weights_reader *r)
{
    int32_t i = (int32_t)r->n_slices - 1;
    while (i >= 0 && !file_is_head(r->g, r->slices[i].name))
        i--;
    return i;
}

/* "[3, 4]" of a tensor as the file has it. */
static char *shape_text(uint32_t rank, const uint64_t *dims, char buf[160])
{
    size_t used = 0;
    buf[used++] = '[';
    for (uint32_t i = 0; i < rank; i++)
        used += (size_t)snprintf(buf + used, 160 - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)dims[i]);
    snprintf(buf + used, 160 - used, "]");
    return buf;
}

atom_status file_check_shape(const file_safetensors *file, const file_tensor *t,
                             const file_slice *slice)
{
    char has[160], wants[160];
    if (t->rank == slice->rank && memcmp(t->dims, slice->dims, t->rank * sizeof t->dims[0]) == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' is %s, but config.json says %s",
                     file->path, t->name, shape_text(t->rank, t->dims, has),
                     shape_text(slice->rank, slice->dims, wants));
}

static void warn_if_odd(weights_reader *r, const file_tensor *t, const float *x, uint64_t n,
                        bool *warned)
{
    file_vector_look(r->vector, r->file->path, t->name, x, n, warned);
}

/* rows x cols in the file -> cols x rows in the vector, a band of rows at a time. */
static atom_status read_transposed(weights_reader *r, const file_tensor *t, uint64_t to)
{
    uint64_t rows = t->dims[0], cols = t->dims[1];
    bool warned = false;
    for (uint64_t row = 0, band; row < rows; row += band) {
        /* at least one row fits: open_buffers() saw to it */
        band = r->buffer_elements / cols;
        band = band < rows - row ? band : rows - row;
        ATOM_TRY(file_st_read_f32(r->file, t, row * cols, band * cols, r->buffer));
        warn_if_odd(r, t, r->buffer, band * cols, &warned);
        for (uint64_t c = 0; c < cols; c++) {
            for (uint64_t k = 0; k < band; k++)
                r->whole[c * rows + row + k] = r->buffer[k * cols + c];
        }
    }
    return r->vector.put(r->vector.ctx, to, t->elements, r->whole);
}

/* n elements of the file's tensor from `from` on. */
static atom_status read_run(weights_reader *r, const file_tensor *t, uint64_t from, uint64_t n,
                            uint64_t to, bool *warned)
{
    float *floats = r->vector.floats;
    for (uint64_t at = 0, some; at < n; at += some) {
        float *place = floats ? floats + to + at : r->buffer;
        some = n - at < r->buffer_elements ? n - at : r->buffer_elements;
        ATOM_TRY(file_st_read_f32(r->file, t, from + at, some, place));
        warn_if_odd(r, t, place, some, warned);
        if (!floats)
            ATOM_TRY(r->vector.put(r->vector.ctx, to + at, some, place));
    }
    return ATOM_OK;
}

static atom_status read_plain(weights_reader *r, const file_tensor *t, uint64_t to)
{
    bool warned = false;
    return read_run(r, t, 0, t->elements, to, &warned);
}

static atom_status read_headed(weights_reader *r, const file_tensor *t, const file_slice *slice,
                               uint64_t to)
{
    uint64_t runs = file_slice_runs(slice), n = t->elements / runs;
    bool warned = false;
    for (uint64_t i = 0; i < runs; i++)
        ATOM_TRY(read_run(r, t, i * n, n, to + file_slice_run(slice, i) * n, &warned));
    return ATOM_OK;
}

/* The second of the embedding and the head's weight must equal the first, whose file is opened again:
 * what was put into the vector need not be what was read (peft.h). */
static atom_status check_tied(weights_reader *r, const file_tensor *t, const char *embedding)
{
    uint64_t band = r->buffer_elements / 2;
    float *other = r->buffer + band;
    file_safetensors *file = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(file_shards_open_one(&r->shards, r->met_in, &file));
    const file_tensor *met = file_st_find(file, r->met_as);
    if (!met || met->elements != t->elements)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s changed while it was being read", file->path));
    for (uint64_t at = 0, some; at < t->elements; at += some) {
        some = t->elements - at < band ? t->elements - at : band;
        ATOM_TRY_CLEAN(file_st_read_f32(r->file, t, at, some, r->buffer));
        ATOM_TRY_CLEAN(file_st_read_f32(file, met, at, some, other));
        if (memcmp(r->buffer, other, (size_t)some * sizeof *other) != 0)
            ATOM_TRY_CLEAN(
                atom_fail(ATOM_E_UNSUPPORTED,
                          "%s: %s.weight differs from %s; only tied heads are supported where "
                          "config.json has tie_word_embeddings true (the default of GPT-2)",
                          r->file->path, file_head(r->g), embedding));
    }
cleanup:
    file_st_close(&file);
    return st;
}

/* The embedding, met for the first time under either name; a head that files have in it is a copy. */
static atom_status read_embedding(weights_reader *r, const file_tensor *t)
{
    const graph *g = r->g;
    int32_t head = g->tied_files ? find_head(r) : -1;
    r->met_in = r->at;
    snprintf(r->met_as, sizeof r->met_as, "%s", t->name);
    ATOM_TRY(read_plain(r, t, g->params[r->slices[0].param].offset));
    if (head < 0)
        return ATOM_OK;
    r->seen[head] = SEEN;
    return read_plain(r, t, g->params[r->slices[head].param].offset);
}

/* head: the tensor is the head's weight, another name of slice i, the embedding. */
static atom_status read_slice(weights_reader *r, const file_tensor *t, uint32_t i, bool head)
{
    const file_slice *slice = &r->slices[i];
    uint64_t to = r->g->params[slice->param].offset + slice->first;
    ATOM_TRY(file_check_shape(r->file, t, slice));
    uint8_t as = head ? SEEN_AS_HEAD : SEEN;
    if (r->seen[i] & as)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' appears twice in this model",
                         r->file->path, t->name);
    if (r->seen[i]) {
        r->seen[i] |= as;
        return check_tied(r, t, slice->name);
    }
    r->seen[i] = as;
    if (i == 0)
        return read_embedding(r, t);
    if (slice->heads)
        return read_headed(r, t, slice, to);
    return slice->transposed ? read_transposed(r, t, to) : read_plain(r, t, to);
}

static atom_status read_tensor(weights_reader *r, const file_tensor *t)
{
    const char *name = file_inner_name(r->g, t->name);
    if (file_is_buffer(name))
        return ATOM_OK;
    bool head = file_is_head(r->g, name) && (r->g->tied_files || find_slice(r, name) < 0);
    int32_t i = find_slice(r, head ? r->g->params[0].name : name);
    if (i >= 0)
        return read_slice(r, t, (uint32_t)i, head);
    return atom_fail(ATOM_E_FORMAT,
                     "%s: tensor '%.128s' is not part of the model that config.json describes",
                     r->file->path, t->name);
}

static atom_status take_file(weights_reader *r)
{
    ATOM_TRY(file_st_through(r->file, r->vector.source));
    for (uint32_t i = 0; i < r->file->n_tensors; i++)
        ATOM_TRY(read_tensor(r, &r->file->tensors[i]));
    return ATOM_OK;
}

static atom_status check_all_seen(const weights_reader *r, const char *dir)
{
    char names[512];
    size_t used = 0;
    uint32_t missing = 0;
    names[0] = 0;
    for (uint32_t i = 0; i < r->n_slices; i++) {
        if (r->seen[i])
            continue;
        if (missing++ < 4)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.64s",
                                     missing > 1 ? ", " : "", r->slices[i].name);
    }
    if (missing == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: %u tensors are missing: %s%s", dir, missing, names,
                     missing > 4 ? ", ..." : "");
}

uint64_t file_largest_transposed(const file_slice *slices, uint32_t n)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (slices[i].transposed && slices[i].elements > most)
            most = slices[i].elements;
    }
    return most;
}

/* Room for a band of rows of the widest transposed tensor, and for a whole one. */
static atom_status open_buffers(weights_reader *r)
{
    uint64_t widest = 1;
    ATOM_TRY(file_slices(r->g, &r->slices, &r->n_slices));
    for (uint32_t i = 0; i < r->n_slices; i++) {
        if (r->slices[i].transposed && r->slices[i].dims[1] > widest)
            widest = r->slices[i].dims[1];
    }
    uint64_t largest = file_largest_transposed(r->slices, r->n_slices);
    r->buffer_elements = widest > FILE_BAND_ELEMENTS ? widest : FILE_BAND_ELEMENTS;
    r->buffer = atom_alloc((size_t)r->buffer_elements, sizeof *r->buffer);
    r->whole = atom_alloc((size_t)largest, sizeof *r->whole);
    r->seen = atom_alloc(r->n_slices + 1, sizeof *r->seen);
    if (!r->buffer || !r->whole || !r->seen)
        return atom_fail_memory("reading weights", (r->buffer_elements + largest) * 4);
    return ATOM_OK;
}

/* The first name in the directory with this ending, in fresh memory; NULL: none. */
static char *find_ending(const char *dir, const char *ending)
{
    DIR *d = opendir(dir);
    char *found = NULL;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        size_t n = strlen(e->d_name), m = strlen(ending);
        if (n > m && strcmp(e->d_name + n - m, ending) == 0)
            found = atom_strdup(e->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

atom_status file_weights_missing(const char *dir, const char *more)
{
    atom_status st;
    char *pickle = find_ending(dir, ".bin"), *other = find_ending(dir, ".safetensors");
    if (other)
        st = atom_fail(
            ATOM_E_USAGE,
            "%s has no weights under the names that atom reads, model.safetensors or "
            "model.safetensors.index.json, but %s; rename it if it contains the weights, or %s",
            dir, other, more);
    else if (pickle)
        st = atom_fail(ATOM_E_USAGE,
                       "%s has no weights under the names that atom reads, model.safetensors or "
                       "pytorch_model.bin, but %s; rename it if it contains the weights, or %s",
                       dir, pickle, more);
    else
        st = atom_fail(ATOM_E_USAGE,
                       "%s has a config.json but no weights (model.safetensors or "
                       "pytorch_model.bin); download them too, or %s",
                       dir, more);
    atom_free(pickle);
    atom_free(other);
    return st;
}

atom_status file_weights_read(const char *dir, const graph *g, float *vector)
{
    return file_weights_read_to(dir, g, file_vector_memory(vector));
}

atom_status file_weights_read_to(const char *dir, const graph *g, file_vector vector)
{
    weights_reader r = {.g = g, .vector = vector};
    atom_status st = ATOM_OK;
    if (file_pt2_is_file(dir))
        return file_pt2_read_weights(dir, g, vector);
    if (file_gguf_is_file(dir))
        return file_gguf_read_weights(dir, g, vector);
    if (g->n_stored)
        return file_own_read(dir, g, vector);
    ATOM_TRY_CLEAN(open_buffers(&r));
    ATOM_TRY_CLEAN(file_shards_list(dir, &r.shards));
    for (; r.at < r.shards.n; r.at++) {
        ATOM_TRY_CLEAN(file_shards_open_one(&r.shards, r.at, &r.file));
        ATOM_TRY_CLEAN(take_file(&r));
        file_st_close(&r.file);
    }
    ATOM_TRY_CLEAN(check_all_seen(&r, dir));
cleanup:
    file_st_close(&r.file);
    file_shards_free(&r.shards);
    atom_free(r.buffer);
    atom_free(r.whole);
    atom_free(r.slices);
    atom_free(r.seen);
    return st;
}
