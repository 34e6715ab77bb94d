/*
 * Owns the way of weights from model directories into the canonical vector. One idea: one pass over
 * the tensors of each file, each tensor finding its parameter by name; what was not found is
 * counted at the end. Refuses silence: a missing, extra or misshapen tensor is named.
 */
#include "atom/file/hfweights.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

static const char PREFIX[] = "transformer.";

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool file_param_transposed(const graph_param *param)
{
    return param->rank == 2 &&
           (ends_with(param->name, ".attn.c_attn.weight") ||
            ends_with(param->name, ".c_proj.weight") || ends_with(param->name, ".mlp.c_fc.weight"));
}

/* Causal-mask buffers that old files carry: h.N.attn.bias and h.N.attn.masked_bias. */
static bool is_buffer(const char *name)
{
    unsigned long digits = strncmp(name, "h.", 2) == 0 ? strspn(name + 2, "0123456789") : 0;
    return digits && (strcmp(name + 2 + digits, ".attn.bias") == 0 ||
                      strcmp(name + 2 + digits, ".attn.masked_bias") == 0);
}

static int32_t find_param(const graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_params; i++) {
        if (strcmp(g->params[i].name, name) == 0)
            return (int32_t)i;
    }
    return -1;
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

/* Shape of a parameter as files store it. */
void file_param_dims(const graph_param *param, uint64_t dims[GRAPH_RANK_MAX])
{
    bool swap = file_param_transposed(param);
    for (uint32_t i = 0; i < param->rank; i++)
        dims[i] = (uint64_t)param->dims[swap ? 1 - i : i];
}

static atom_status check_shape(const file_safetensors *file, const file_tensor *t,
                               const graph_param *param)
{
    char has[160], wants[160];
    uint64_t dims[GRAPH_RANK_MAX] = {0};
    file_param_dims(param, dims);
    if (t->rank == param->rank && memcmp(t->dims, dims, param->rank * sizeof dims[0]) == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' is %s; config.json says %s", file->path,
                     t->name, shape_text(t->rank, t->dims, has),
                     shape_text(param->rank, dims, wants));
}

static bool all_finite(const float *x, uint64_t count)
{
    uint32_t bad = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

static void warn_if_odd(weights_reader *r, const file_tensor *t, const float *x, uint64_t n,
                        bool *warned)
{
    if (*warned || all_finite(x, n))
        return;
    *warned = true;
    atom_log(ATOM_LOG_WARN, "%s: tensor '%.128s' has values that are not finite", r->file->path,
             t->name);
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
        atom_status st = file_st_read_f32(r->file, t, row * cols, band * cols, r->buffer);
        if (st != ATOM_OK)
            return st;
        warn_if_odd(r, t, r->buffer, band * cols, &warned);
        for (uint64_t c = 0; c < cols; c++) {
            for (uint64_t k = 0; k < band; k++)
                r->whole[c * rows + row + k] = r->buffer[k * cols + c];
        }
    }
    return r->vector.put(r->vector.ctx, to, t->elements, r->whole);
}

static atom_status read_plain(weights_reader *r, const file_tensor *t, uint64_t to)
{
    bool warned = false;
    for (uint64_t at = 0, some; at < t->elements; at += some) {
        some = t->elements - at < r->buffer_elements ? t->elements - at : r->buffer_elements;
        atom_status st = file_st_read_f32(r->file, t, at, some, r->buffer);
        if (st == ATOM_OK) {
            warn_if_odd(r, t, r->buffer, some, &warned);
            st = r->vector.put(r->vector.ctx, to + at, some, r->buffer);
        }
        if (st != ATOM_OK)
            return st;
    }
    return ATOM_OK;
}

/* The second of wte.weight and lm_head.weight must equal the first, which is in the vector. */
static atom_status check_tied(weights_reader *r, const file_tensor *t, uint64_t first)
{
    uint64_t band = r->buffer_elements / 2;
    float *other = r->buffer + band;
    for (uint64_t at = 0, some; at < t->elements; at += some) {
        some = t->elements - at < band ? t->elements - at : band;
        atom_status st = file_st_read_f32(r->file, t, at, some, r->buffer);
        if (st == ATOM_OK)
            st = r->vector.get(r->vector.ctx, first + at, some, other);
        if (st != ATOM_OK)
            return st;
        if (memcmp(r->buffer, other, (size_t)some * sizeof *other) != 0)
            return atom_fail(
                ATOM_E_UNSUPPORTED,
                "%s: lm_head.weight differs from wte.weight; only tied heads are supported",
                r->file->path);
    }
    return ATOM_OK;
}

/* head: the tensor is lm_head.weight, another name of parameter i, wte.weight. */
static atom_status read_param(weights_reader *r, const file_tensor *t, uint32_t i, bool head)
{
    const graph_param *param = &r->g->params[i];
    atom_status st = check_shape(r->file, t, param);
    if (st != ATOM_OK)
        return st;
    uint8_t as = head ? SEEN_AS_HEAD : SEEN;
    if (r->seen[i] & as)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' appears twice in this model",
                         r->file->path, t->name);
    if (r->seen[i]) {
        r->seen[i] |= as;
        return check_tied(r, t, param->offset);
    }
    r->seen[i] = as;
    return file_param_transposed(param) ? read_transposed(r, t, param->offset)
                                        : read_plain(r, t, param->offset);
}

static atom_status read_tensor(weights_reader *r, const file_tensor *t)
{
    const char *name = t->name;
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) == 0)
        name += sizeof PREFIX - 1;
    if (is_buffer(name))
        return ATOM_OK;
    bool head = strcmp(t->name, "lm_head.weight") == 0;
    int32_t i = find_param(r->g, head ? "wte.weight" : name);
    if (i >= 0)
        return read_param(r, t, (uint32_t)i, head);
    return atom_fail(ATOM_E_FORMAT,
                     "%s: tensor '%.128s' is no part of the model that config.json describes",
                     r->file->path, t->name);
}

atom_status file_weights_take(weights_reader *r)
{
    for (uint32_t i = 0; i < r->file->n_tensors; i++) {
        atom_status st = read_tensor(r, &r->file->tensors[i]);
        if (st != ATOM_OK)
            return st;
    }
    return ATOM_OK;
}

static atom_status check_all_seen(const weights_reader *r, const char *dir)
{
    char names[512];
    size_t used = 0;
    uint32_t missing = 0;
    names[0] = 0;
    for (uint32_t i = 0; i < r->g->n_params; i++) {
        if (r->seen[i])
            continue;
        if (missing++ < 4)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.64s",
                                     missing > 1 ? ", " : "", r->g->params[i].name);
    }
    if (missing == 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: %u tensors are missing: %s%s", dir, missing, names,
                     missing > 4 ? ", ..." : "");
}

uint64_t file_largest_transposed(const graph *g)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < g->n_params; i++) {
        if (file_param_transposed(&g->params[i]) && g->params[i].elements > most)
            most = g->params[i].elements;
    }
    return most;
}

/* Room for a band of rows of the widest transposed tensor, and for a whole one. */
static atom_status open_buffers(weights_reader *r)
{
    uint64_t widest = 1, largest = file_largest_transposed(r->g);
    for (uint32_t i = 0; i < r->g->n_params; i++) {
        const graph_param *p = &r->g->params[i];
        if (file_param_transposed(p) && (uint64_t)p->dims[0] > widest)
            widest = (uint64_t)p->dims[0];
    }
    r->buffer_elements = widest > FILE_BAND_ELEMENTS ? widest : FILE_BAND_ELEMENTS;
    r->buffer = atom_alloc((size_t)r->buffer_elements, sizeof *r->buffer);
    r->whole = atom_alloc((size_t)largest, sizeof *r->whole);
    r->seen = atom_alloc(r->g->n_params + 1, sizeof *r->seen);
    if (!r->buffer || !r->whole || !r->seen)
        return atom_fail_memory("reading weights", (r->buffer_elements + largest) * 4);
    return ATOM_OK;
}

bool file_weights_exist(const char *dir)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    bool exist = false;
    for (int i = 0; i < 2; i++) {
        char *path = atom_path_join(dir, names[i]);
        exist = exist || (path && atom_path_exists(path));
        atom_free(path);
    }
    return exist;
}

static atom_status no_weights(const char *dir)
{
    char *pickle = atom_path_join(dir, "pytorch_model.bin");
    bool has_pickle = pickle && atom_path_exists(pickle);
    atom_free(pickle);
    if (has_pickle)
        return atom_fail(
            ATOM_E_FORMAT,
            "%s has only pytorch_model.bin, a Python pickle, which is never read; convert "
            "it in Python: model.save_pretrained(dir, safe_serialization=True)",
            dir);
    return atom_fail(ATOM_E_FORMAT, "%s has neither model.safetensors nor its index", dir);
}

atom_status file_weights_read(const char *dir, const graph *g, float *vector)
{
    return file_weights_read_to(dir, g, file_vector_memory(vector));
}

atom_status file_weights_read_to(const char *dir, const graph *g, file_vector vector)
{
    weights_reader r = {.g = g, .vector = vector};
    atom_status st = ATOM_OK;
    char *path = atom_path_join(dir, "model.safetensors");
    char *index = atom_path_join(dir, "model.safetensors.index.json");
    if (!path || !index) {
        st = atom_fail_memory("a path", strlen(dir));
        goto fail;
    }
    ATOM_TRY(open_buffers(&r));
    if (atom_path_exists(path)) {
        ATOM_TRY(file_st_open(path, &r.file));
        ATOM_TRY(file_weights_take(&r));
    } else if (atom_path_exists(index)) {
        ATOM_TRY(file_shards_take(&r, dir, index));
    } else {
        st = no_weights(dir);
        goto fail;
    }
    ATOM_TRY(check_all_seen(&r, dir));
fail:
    file_st_close(&r.file);
    atom_free(r.buffer);
    atom_free(r.whole);
    atom_free(r.seen);
    atom_free(path);
    atom_free(index);
    return st;
}
