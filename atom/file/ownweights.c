/*
 * Owns weights of somebody's own model in safetensors, under the names of its state_dict. One idea:
 * the table that came with the graph says for each tensor which rows of it go where; several names
 * of one parameter (tied weights) must hold the same. Refuses a missing, extra or misshapen tensor
 * by name.
 */
#include "atom/file/hfweights.h"

#include "atom/base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct own_reader {
    const graph *g;
    file_vector vector;
    file_safetensors **files;
    uint32_t n_files;
    bool *filled; /* as the table: this run has been read */
    float *band, *other;
    uint64_t room;
    const char *path; /* of the file of the tensor that is read */
    bool warned;      /* of that tensor */
} own_reader;

static const file_tensor *find(const own_reader *r, const char *name, const file_safetensors **file)
{
    for (uint32_t i = 0; i < r->n_files; i++) {
        const file_tensor *t = file_st_find(r->files[i], name);
        *file = r->files[i];
        if (t)
            return t;
    }
    return NULL;
}

static atom_status check_shape(const file_safetensors *file, const file_tensor *t,
                               const graph_stored *s)
{
    bool same = t->rank == s->rank;
    for (uint32_t i = 0; same && i < t->rank; i++)
        same = t->dims[i] == (uint64_t)s->dims[i];
    return same ? ATOM_OK
                : atom_fail(ATOM_E_FORMAT,
                            "%s: tensor '%.128s' has another shape than config.json "
                            "says",
                            file->path, t->name);
}

/* n numbers at r->band to their place. Where another name has filled it, they must be the same; a vector may
 * have rounded them, so what is asked is whether they change what is there. */
static atom_status put(own_reader *r, uint64_t to, uint64_t n, bool again, const file_tensor *t)
{
    file_vector v = r->vector;
    file_vector_look(v, r->path, t->name, r->band, n, &r->warned);
    if (!again)
        return v.put(v.ctx, to, n, r->band);
    ATOM_TRY(v.get(v.ctx, to, n, r->other));
    ATOM_TRY(v.put(v.ctx, to, n, r->band));
    atom_status st = v.get(v.ctx, to, n, r->band);
    if (st == ATOM_OK && memcmp(r->band, r->other, (size_t)n * sizeof *r->band) != 0)
        st = atom_fail(ATOM_E_UNSUPPORTED,
                       "tensor '%.128s' differs from another name of the same weights", t->name);
    return st;
}

static atom_status read_rows(own_reader *r, const file_safetensors *file, const file_tensor *t,
                             const graph_stored *s, bool again)
{
    const graph_param *p = &r->g->params[s->param];
    uint64_t width = p->rank == 2 ? (uint64_t)p->dims[1] : 1, rows = (uint64_t)s->rows;
    uint64_t to = p->offset + (uint64_t)s->first * width;
    uint64_t at_once = s->step == 1 ? r->room / width : 1;
    atom_status st = ATOM_OK;
    for (uint64_t row = 0, some; row < rows && st == ATOM_OK; row += some) {
        some = rows - row < at_once ? rows - row : at_once;
        st = file_st_read_f32(file, t, ((uint64_t)s->from + row * (uint64_t)s->step) * width,
                              some * width, r->band);
        if (st == ATOM_OK)
            st = put(r, to, some * width, again, t);
        to += some * width;
    }
    return st;
}

/* [in, out] there, [out, in] here. */
static atom_status read_turned(own_reader *r, const file_safetensors *file, const file_tensor *t,
                               const graph_stored *s, bool again)
{
    uint64_t in = t->dims[0], out = t->dims[1];
    float *whole = atom_alloc((size_t)t->elements, sizeof *whole);
    if (!whole)
        return atom_fail_memory("a transposed tensor", t->elements * sizeof *whole);
    atom_status st = file_st_read_f32(file, t, 0, t->elements, whole);
    for (uint64_t row = 0; row < out && st == ATOM_OK; row++) {
        for (uint64_t i = 0; i < in; i++)
            r->band[i] = whole[i * out + row];
        st = put(r, r->g->params[s->param].offset + row * in, in, again, t);
    }
    atom_free(whole);
    return st;
}

/* Has an earlier run, under another name, filled the same rows? */
static bool filled_before(const own_reader *r, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (r->filled[k] && r->g->stored[k].param == r->g->stored[i].param &&
            r->g->stored[k].first == r->g->stored[i].first)
            return true;
    return false;
}

static atom_status read_all(own_reader *r, const char *dir)
{
    const file_safetensors *file = NULL;
    for (uint32_t i = 0; i < r->g->n_stored; i++) {
        const graph_stored *s = &r->g->stored[i];
        const file_tensor *t = find(r, s->name, &file);
        if (!t)
            continue;
        bool again = filled_before(r, i);
        r->path = file->path;
        r->warned = false;
        ATOM_TRY(check_shape(file, t, s));
        ATOM_TRY(s->transposed ? read_turned(r, file, t, s, again)
                               : read_rows(r, file, t, s, again));
        r->filled[i] = true;
    }
    for (uint32_t i = 0; i < r->g->n_stored; i++) {
        bool found = false;
        for (uint32_t k = 0; k < r->g->n_stored && !found; k++)
            found = r->filled[k] && r->g->stored[k].param == r->g->stored[i].param &&
                    r->g->stored[k].first == r->g->stored[i].first;
        if (!found)
            return atom_fail(ATOM_E_FORMAT, "%s: tensor %s is missing", dir, r->g->stored[i].name);
    }
    return ATOM_OK;
}

static int to_name(const void *key, const void *row)
{
    return strcmp(key, ((const graph_stored *)row)->name);
}

static atom_status check_extra(const own_reader *r)
{
    for (uint32_t f = 0; f < r->n_files; f++)
        for (uint32_t i = 0; i < r->files[f]->n_tensors; i++) {
            const char *name = r->files[f]->tensors[i].name;
            const graph_buffer *b = graph_find_buffer(r->g, name);
            if (b)
                ATOM_TRY(file_buffer_check(r->files[f], &r->files[f]->tensors[i], b));
            else if (!bsearch(name, r->g->stored, r->g->n_stored, sizeof *r->g->stored, to_name))
                return atom_fail(
                    ATOM_E_FORMAT,
                    "%s: tensor '%.128s' is not part of the model that config.json describes",
                    r->files[f]->path, name);
        }
    return ATOM_OK;
}

atom_status file_own_read(const char *dir, const graph *g, file_vector vector)
{
    own_reader r = {.g = g, .vector = vector, .room = FILE_BAND_ELEMENTS};
    atom_status st;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (g->params[i].rank == 2 && (uint64_t)g->params[i].dims[1] > r.room)
            r.room = (uint64_t)g->params[i].dims[1];
    r.filled = atom_alloc(g->n_stored, sizeof *r.filled);
    r.band = atom_alloc((size_t)r.room, sizeof *r.band);
    r.other = atom_alloc((size_t)r.room, sizeof *r.other);
    if (!r.filled || !r.band || !r.other)
        ATOM_TRY_CLEAN(atom_fail_memory("reading weights", r.room * 8));
    ATOM_TRY_CLEAN(file_shards_open(dir, &r.files, &r.n_files));
    ATOM_TRY_CLEAN(check_extra(&r));
    ATOM_TRY_CLEAN(read_all(&r, dir));
cleanup:
    for (uint32_t i = 0; i < r.n_files; i++)
        file_st_close(&r.files[i]);
    atom_free(r.files);
    atom_free(r.filled);
    atom_free(r.band);
    atom_free(r.other);
    return st;
}
