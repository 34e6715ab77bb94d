/*
 * Owns the buffers of a .pt2's state_dict on their way into the model's table of them. One idea:
 * training leaves them as they are, so their bytes are kept as the archive has them, whether the
 * program reads them or not. Refuses buffers that the program changes, or that are a parameter.
 */
#include "atom/file/hfweights.h"
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

/* As safetensors calls it; FILE_DTYPE_N: it has no such type. */
static file_dtype stored_type(int dtype)
{
    static const struct {
        int from;
        file_dtype to;
    } types[] = {{PT2_BOOL, FILE_BOOL}, {PT2_I64, FILE_I64}, {PT2_F16, FILE_F16},
                 {PT2_BF16, FILE_BF16}, {PT2_F32, FILE_F32}, {PT2_F64, FILE_F64},
                 {PT2_C64, FILE_C64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].from == dtype)
            return types[i].to;
    return FILE_DTYPE_N;
}

static const char *text_in(const json_t *object, const char *a, const char *b)
{
    const char *text = json_string_value(json_object_get(json_object_get(object, a), b));
    return text ? text : "";
}

/* Does an operator change it or a view of it in place, or the program hand back what it is from then on? */
static bool is_changed(const pt2_archive *a, const pt2_tensor *t, const json_t *roots)
{
    const json_t *outputs = json_object_get(a->signature, "output_specs"),
                 *nodes = json_object_get(a->graph, "nodes");
    bool changed = false;
    for (size_t i = 0; i < json_array_size(outputs) && !changed; i++)
        changed = strcmp(text_in(json_array_get(outputs, i), "buffer_mutation", "buffer_name"),
                         t->name) == 0;
    for (size_t i = 0; i < json_array_size(nodes) && !changed && t->value; i++) {
        const json_t *node = json_array_get(nodes, i);
        const char *self = pt2_in_place(node) ? pt2_self(node) : NULL;
        changed = self && strcmp(pt2_root(roots, self), t->value) == 0;
    }
    return changed;
}

static atom_status describe(const pt2_archive *a, const pt2_tensor *t, const json_t *roots,
                            graph_buffer *b)
{
    const char *path = a->zip->path;
    file_dtype dtype = stored_type(t->dtype);
    if (dtype == FILE_DTYPE_N)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: buffer '%.128s' of the model's state_dict is complex128, which "
                         "safetensors does not have; make it complex64, or register it with "
                         "persistent=False",
                         path, t->name);
    if (a->tensors[t->first].parameter)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: buffer '%.128s' is the parameter '%.128s', which training changes; "
                         "register a clone() of it",
                         path, t->name, a->tensors[t->first].name);
    if (is_changed(a, t, roots))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: buffer '%.128s' of the model's state_dict is changed in forward, and "
                         "atom keeps buffers as they are; register it with persistent=False, or do "
                         "not change it",
                         path, t->name);
    if (strlen(t->name) >= sizeof b->name)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: buffer '%.300s' has a name of more than %zu characters", path,
                         t->name, sizeof b->name - 1);
    snprintf(b->name, sizeof b->name, "%s", t->name);
    b->dtype = (uint8_t)dtype;
    b->rank = (uint8_t)t->rank;
    for (uint32_t i = 0; i < t->rank; i++)
        b->dims[i] = (uint64_t)t->dims[i];
    b->bytes = t->entry->bytes;
    return ATOM_OK;
}

static bool is_kept(const pt2_tensor *t)
{
    return t->persistent && !t->parameter;
}

/* After their sizes are known to be bearable. */
static atom_status read_all(const pt2_archive *a, const graph *g)
{
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const pt2_tensor *t = &a->tensors[i];
        const graph_buffer *row = is_kept(t) ? graph_find_buffer(g, t->name) : NULL;
        if (!row)
            continue;
        graph_buffer *b = &g->buffers->all[row - g->buffers->all];
        b->data = atom_alloc(b->bytes, 1);
        if (!b->data)
            return atom_fail_memory("buffers of a model", b->bytes);
        ATOM_TRY(file_zip_read(a->zip, t->entry, 0, b->bytes, b->data));
    }
    return ATOM_OK;
}

atom_status pt2_keep_buffers(const pt2_archive *a, graph *g)
{
    graph_buffers *buffers = NULL;
    json_t *roots = NULL;
    uint32_t n = 0;
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < a->n_tensors; i++)
        n += is_kept(&a->tensors[i]);
    if (n == 0)
        return ATOM_OK;
    if (n > FILE_BUFFERS_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: the model's state_dict has %u buffers, and atom keeps at most %d; "
                         "register them with persistent=False",
                         a->zip->path, n, FILE_BUFFERS_MAX);
    ATOM_TRY_CLEAN(pt2_roots(a, &roots));
    ATOM_TRY_CLEAN(graph_buffers_make(n, &buffers));
    for (uint32_t i = 0, k = 0; i < a->n_tensors; i++)
        if (is_kept(&a->tensors[i]))
            ATOM_TRY_CLEAN(describe(a, &a->tensors[i], roots, &buffers->all[k++]));
    ATOM_TRY_CLEAN(file_buffers_set(a->zip->path, g, buffers));
    ATOM_TRY_CLEAN(read_all(a, g));
cleanup:
    json_decref(roots);
    graph_buffers_release(&buffers);
    return st;
}
