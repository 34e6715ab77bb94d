/*
 * Owns a .pt2 as a model that can be named: its configuration, and its weights on their way into
 * the canonical vector. One idea: the table of stored tensors that was made with the graph says for
 * each run of rows which entry of the archive has them. Refuses weights that are not floating
 * point.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

bool file_pt2_is_file(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".pt2") == 0 ? file_zip_is_file(path) : false;
}

/* "models/my.pt2" -> "my" */
static void model_name(const char *path, char name[GRAPH_NAME_MAX])
{
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    const char *dot = strrchr(last, '.');
    int n = dot && dot > last ? (int)(dot - last) : (int)strlen(last);
    snprintf(name, GRAPH_NAME_MAX, "%.*s", n < GRAPH_NAME_MAX ? n : GRAPH_NAME_MAX - 1, last);
}

atom_status file_pt2_read_model(const char *path, graph_config *config)
{
    pt2_archive *a = NULL;
    graph *g = NULL;
    int64_t positions = 0;
    char name[GRAPH_NAME_MAX];
    atom_status st;
    ATOM_TRY_CLEAN(pt2_archive_open(path, &a));
    ATOM_TRY_CLEAN(pt2_evaluate(a, &g, &positions));
    model_name(path, name);
    ATOM_TRY_CLEAN(pt2_keep_buffers(a, g));
    ATOM_TRY_CLEAN(graph_own_describe(name, g, positions, config));
    g = NULL;
cleanup:
    graph_close(&g);
    pt2_archive_close(&a);
    return st;
}

typedef struct reading {
    const pt2_archive *a;
    const graph *g;
    file_vector vector;
    double *wide; /* a band of rows */
    float *narrow;
    int64_t room;
    const char *name; /* of the tensor that is read */
    bool warned;      /* of that */
} reading;

static const pt2_tensor *find_tensor(const pt2_archive *a, const graph_stored *s)
{
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const pt2_tensor *t = &a->tensors[i];
        if (t->parameter && strcmp(t->name, s->name) == 0 && t->rank == s->rank &&
            memcmp(t->dims, s->dims, t->rank * sizeof t->dims[0]) == 0)
            return t;
    }
    return NULL;
}

static atom_status put(reading *r, uint64_t to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        r->narrow[i] = (float)r->wide[i];
    file_vector_look(r->vector, r->a->zip->path, r->name, r->narrow, (uint64_t)n, &r->warned);
    return r->vector.put(r->vector.ctx, to, (uint64_t)n, r->narrow);
}

/* Runs of rows, as they lie in the file. */
static atom_status read_rows(reading *r, const pt2_tensor *t, const graph_stored *s, int64_t width)
{
    uint64_t to = r->g->params[s->param].offset + (uint64_t)(s->first * width);
    int64_t at_once = s->step == 1 ? r->room / width : 1;
    for (int64_t row = 0, some; row < s->rows; row += some) {
        some = s->rows - row < at_once ? s->rows - row : at_once;
        ATOM_TRY(
            pt2_tensor_read(r->a, t, (s->from + row * s->step) * width, some * width, r->wide));
        ATOM_TRY(put(r, to, some * width));
        to += (uint64_t)(some * width);
    }
    return ATOM_OK;
}

/* [in, out] there, [out, in] here: a row here is a column there; a band of them at a time. */
static atom_status read_turned(reading *r, const pt2_tensor *t, const graph_stored *s)
{
    int64_t in = t->dims[0], out = t->dims[1];
    double *whole = atom_alloc((size_t)t->elements, sizeof *whole);
    if (!whole)
        return atom_fail_memory("a transposed tensor", (uint64_t)t->elements * sizeof *whole);
    atom_status st = pt2_tensor_read(r->a, t, 0, t->elements, whole);
    for (int64_t row = 0; row < out && st == ATOM_OK; row++) {
        for (int64_t i = 0; i < in; i++)
            r->wide[i] = whole[i * out + row];
        st = put(r, r->g->params[s->param].offset + (uint64_t)((s->first + row) * in), in);
    }
    atom_free(whole);
    return st;
}

static atom_status read_one(reading *r, const graph_stored *s)
{
    const pt2_tensor *t = find_tensor(r->a, s);
    const graph_param *p = &r->g->params[s->param];
    int64_t width = p->rank == 2 ? p->dims[1] : 1;
    if (!t || t->elements % width != 0 || s->from + (s->rows - 1) * s->step >= t->elements / width)
        return atom_fail(ATOM_E_FORMAT, "%s: parameter '%.128s' is missing or of another shape",
                         r->a->zip->path, s->name);
    if (t->dtype != PT2_F32 && t->dtype != PT2_F16 && t->dtype != PT2_BF16 && t->dtype != PT2_F64)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: parameter '%.128s' is not floating point",
                         r->a->zip->path, s->name);
    if (t->first != (int32_t)(t - r->a->tensors))
        return ATOM_OK; /* another name of what is read anyway */
    r->name = s->name;
    r->warned = false;
    return s->transposed ? read_turned(r, t, s) : read_rows(r, t, s, width);
}

atom_status file_pt2_read_weights(const char *path, const graph *g, file_vector vector)
{
    reading r = {.g = g, .vector = vector, .room = 1 << 16};
    pt2_archive *a = NULL;
    atom_status st;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (g->params[i].rank == 2 && g->params[i].dims[1] > r.room)
            r.room = g->params[i].dims[1];
    r.wide = atom_alloc((size_t)r.room, sizeof *r.wide);
    r.narrow = atom_alloc((size_t)r.room, sizeof *r.narrow);
    if (!r.wide || !r.narrow)
        ATOM_TRY_CLEAN(atom_fail_memory("reading weights", (uint64_t)r.room * 12));
    ATOM_TRY_CLEAN(pt2_archive_open(path, &a));
    r.a = a;
    if (g->n_stored == 0)
        st = atom_fail(ATOM_E_FORMAT, "%s: the graph has no names of its tensors", path);
    for (uint32_t i = 0; i < g->n_stored && st == ATOM_OK; i++)
        st = read_one(&r, &g->stored[i]);
cleanup:
    atom_free(r.wide);
    atom_free(r.narrow);
    pt2_archive_close(&a);
    return st;
}
