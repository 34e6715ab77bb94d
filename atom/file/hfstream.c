/*
 * Owns model directories that are read tensor by tensor, when somebody asks. One idea: all tensors
 * are found and checked when the directory is opened; after that the files themselves are the
 * vector, and only the last transposed tensor is kept. Refuses what hfweights.c refuses.
 */
#include "atom/file/hfweights.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"

#include <string.h>

struct file_weights {
    const graph *g;
    file_safetensors **files;
    uint32_t n_files, n_slices;
    file_slice *slices;
    const file_tensor **tensors; /* by slice; NULL: not found yet */
    uint32_t *where;             /* by slice: which file */
    const file_source *source;   /* of the file `through`; NULL: none */
    uint32_t through;            /* or n_files */
    uint32_t last;               /* the slice of the last request */
    uint32_t turned;             /* the slice in `whole`, or n_slices */
    float *whole, *band;         /* a transposed tensor, the largest there is; a band of one */
    uint64_t room;               /* of the band */
    const file_tensor *head;     /* the head's weight of a tied model: must equal the embedding */
    uint32_t head_file;
    float *loaded; /* all of a GGUF file or of somebody's own model, in place of all that */
};

static uint32_t find(const file_weights *w, const char *name)
{
    uint32_t i = 0;
    while (i < w->n_slices && strcmp(w->slices[i].name, name) != 0)
        i++;
    return i;
}

static atom_status twice(const file_safetensors *file, const file_tensor *t)
{
    return atom_fail(ATOM_E_FORMAT, "%s: tensor '%.128s' appears twice in this model", file->path,
                     t->name);
}

static atom_status place(file_weights *w, uint32_t k, const file_tensor *t)
{
    const char *name = file_inner_name(w->g, t->name);
    const file_safetensors *file = w->files[k];
    if (file_is_buffer(name))
        return ATOM_OK;
    uint32_t i = find(w, name);
    bool head = (i == w->n_slices || w->g->tied_files) && file_is_head(w->g, name);
    if (head && w->head)
        return twice(file, t);
    if (head) {
        w->head = t;
        w->head_file = k;
        return file_check_shape(file, t, &w->slices[0]);
    }
    if (i == w->n_slices)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: tensor '%.128s' is not part of the model that config.json describes",
                         file->path, t->name);
    if (w->tensors[i])
        return twice(file, t);
    w->tensors[i] = t;
    w->where[i] = k;
    return file_check_shape(file, t, &w->slices[i]);
}

/* A head that is the embedding in the files, but not here. */
static void copy_head(file_weights *w)
{
    uint32_t i = 0;
    if (!w->g->tied_files)
        return;
    while (i < w->n_slices && !file_is_head(w->g, w->slices[i].name))
        i++;
    ATOM_ASSERT(i < w->n_slices);
    w->tensors[i] = w->tensors[0];
    w->where[i] = w->where[0];
}

/* A tied head may stand beside the embedding, or in its place. */
static atom_status check_head(file_weights *w)
{
    const file_tensor *a = w->tensors[0], *b = w->head;
    uint64_t half = w->room / 2;
    atom_status st = ATOM_OK;
    if (!b || !a) {
        w->tensors[0] = a ? a : b;
        w->where[0] = a ? w->where[0] : w->head_file;
        return ATOM_OK;
    }
    for (uint64_t at = 0, some; at < a->elements && st == ATOM_OK; at += some) {
        some = a->elements - at < half ? a->elements - at : half;
        ATOM_TRY(file_st_read_f32(w->files[w->where[0]], a, at, some, w->band));
        ATOM_TRY(file_st_read_f32(w->files[w->head_file], b, at, some, w->band + half));
        if (memcmp(w->band, w->band + half, (size_t)some * sizeof *w->band) != 0)
            st = atom_fail(ATOM_E_UNSUPPORTED,
                           "%s: %s differs from %s, although config.json says that they are tied",
                           w->files[w->head_file]->path, b->name, a->name);
    }
    return st;
}

static atom_status check_all(const file_weights *w, const char *dir)
{
    for (uint32_t i = 0; i < w->n_slices; i++) {
        if (!w->tensors[i])
            return atom_fail(ATOM_E_FORMAT, "%s: tensor %s is missing", dir, w->slices[i].name);
    }
    return ATOM_OK;
}

static atom_status open_buffers(file_weights *w)
{
    uint64_t largest;
    ATOM_TRY(file_slices(w->g, &w->slices, &w->n_slices));
    w->turned = w->n_slices;
    w->room = FILE_BAND_ELEMENTS;
    for (uint32_t i = 0; i < w->n_slices; i++) {
        if (w->slices[i].transposed && w->slices[i].dims[1] > w->room)
            w->room = w->slices[i].dims[1];
    }
    largest = file_largest_transposed(w->slices, w->n_slices);
    w->tensors = atom_alloc(w->n_slices, sizeof *w->tensors);
    w->where = atom_alloc(w->n_slices, sizeof *w->where);
    w->band = atom_alloc((size_t)w->room, sizeof *w->band);
    w->whole = atom_alloc((size_t)largest, sizeof *w->whole);
    return w->tensors && w->where && w->band && w->whole
               ? ATOM_OK
               : atom_fail_memory("reading weights", (w->room + largest) * sizeof *w->band);
}

static uint64_t loaded_bytes(const file_weights *w)
{
    return atom_align(w->g->param_extent * sizeof *w->loaded);
}

/* Of a GGUF file, or of somebody's own model. */
static atom_status load_whole(file_weights *w, const char *path)
{
    file_vector to;
    w->loaded = atom_pages_take(loaded_bytes(w));
    if (!w->loaded)
        return atom_fail_memory("the weights", loaded_bytes(w));
    to = file_vector_memory(w->loaded);
    to.source = w->source;
    return file_weights_read_to(path, w->g, to);
}

atom_status file_weights_open(const char *dir, const graph *g, const file_source *source,
                              file_weights **out)
{
    file_weights *w = atom_alloc(1, sizeof *w);
    atom_status st;
    if (!w)
        return atom_fail_memory("reading weights", sizeof *w);
    w->g = g;
    w->source = source;
    if (file_gguf_is_file(dir) || g->n_stored) {
        ATOM_TRY_CLEAN(load_whole(w, dir));
        *out = w;
        return ATOM_OK;
    }
    ATOM_TRY_CLEAN(open_buffers(w));
    ATOM_TRY_CLEAN(file_shards_open(dir, &w->files, &w->n_files));
    w->through = w->n_files;
    for (uint32_t k = 0; k < w->n_files; k++) {
        for (uint32_t i = 0; i < w->files[k]->n_tensors; i++)
            ATOM_TRY_CLEAN(place(w, k, &w->files[k]->tensors[i]));
    }
    ATOM_TRY_CLEAN(check_head(w));
    copy_head(w);
    ATOM_TRY_CLEAN(check_all(w, dir));
    *out = w;
    return ATOM_OK;
cleanup:
    file_weights_close(&w);
    return st;
}

void file_weights_close(file_weights **ref)
{
    file_weights *w = *ref;
    if (!w)
        return;
    if (w->loaded)
        atom_pages_give(w->loaded, loaded_bytes(w));
    for (uint32_t i = 0; i < w->n_files; i++)
        file_st_close(&w->files[i]);
    atom_free(w->files);
    atom_free(w->slices);
    atom_free(w->tensors);
    atom_free(w->where);
    atom_free(w->band);
    atom_free(w->whole);
    atom_free(w);
    *ref = NULL;
}

/* Elements of a slice as they are in its file. Windows are large: the one moves with the reader. */
static atom_status read_slice(file_weights *w, uint32_t i, uint64_t at, uint64_t n, float *to)
{
    uint32_t k = w->where[i];
    if (w->source && w->through != k) {
        atom_status st = ATOM_OK;
        if (w->through < w->n_files)
            st = file_st_through(w->files[w->through], NULL);
        w->through = k;
        ATOM_TRY(st);
        ATOM_TRY(file_st_through(w->files[k], w->source));
    }
    return file_st_read_f32(w->files[k], w->tensors[i], at, n, to);
}

/* The same of a slice as it is here. */
static atom_status read_here(file_weights *w, uint32_t i, uint64_t at, uint64_t n, float *to)
{
    const file_slice *s = &w->slices[i];
    uint64_t run = s->elements / file_slice_runs(s);
    for (uint64_t some; n; at += some, to += some, n -= some) {
        uint64_t in = at % run;
        some = n < run - in ? n : run - in;
        ATOM_TRY(read_slice(w, i, file_slice_run_there(s, at / run) * run + in, some, to));
    }
    return ATOM_OK;
}

/* [in, out] in the file -> [out, in] in w->whole, a band of file rows at a time. */
static atom_status turn(file_weights *w, uint32_t i)
{
    const file_tensor *t = w->tensors[i];
    uint64_t rows = t->dims[0], cols = t->dims[1];
    w->turned = w->n_slices;
    for (uint64_t row = 0, band; row < rows; row += band) {
        band = w->room / cols;
        band = band < rows - row ? band : rows - row;
        ATOM_TRY(read_slice(w, i, row * cols, band * cols, w->band));
        for (uint64_t c = 0; c < cols; c++) {
            for (uint64_t k = 0; k < band; k++)
                w->whole[c * rows + row + k] = w->band[k * cols + c];
        }
    }
    w->turned = i;
    return ATOM_OK;
}

static uint64_t begin_of(const file_weights *w, uint32_t i)
{
    return w->g->params[w->slices[i].param].offset + w->slices[i].first;
}

/* The slice that holds this element; there is one. */
static uint32_t slice_at(file_weights *w, uint64_t element)
{
    uint32_t k = 0, i = w->last;
    while (k < w->n_slices &&
           (element < begin_of(w, i) || element - begin_of(w, i) >= w->slices[i].elements))
        i = (w->last + ++k) % w->n_slices;
    ATOM_ASSERT(k < w->n_slices);
    return w->last = i;
}

static atom_status get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    file_weights *w = ctx;
    while (n) {
        uint32_t i = slice_at(w, first);
        uint64_t at = first - begin_of(w, i), some = w->slices[i].elements - at;
        some = n < some ? n : some;
        if (!w->slices[i].transposed)
            ATOM_TRY(read_here(w, i, at, some, to));
        else if (w->turned != i)
            ATOM_TRY(turn(w, i));
        if (w->slices[i].transposed)
            memcpy(to, w->whole + at, (size_t)some * sizeof *to);
        first += some;
        n -= some;
        to += some;
    }
    return ATOM_OK;
}

file_vector file_weights_vector(file_weights *w)
{
    return w->loaded ? file_vector_memory(w->loaded) : (file_vector){.ctx = w, .get = get};
}

atom_dtype file_weights_dtype(const file_weights *w)
{
    file_dtype dtype = w->loaded ? FILE_F32 : w->tensors[0]->dtype;
    return dtype == FILE_BF16 ? ATOM_BF16 : dtype == FILE_F16 ? ATOM_F16 : ATOM_F32;
}
