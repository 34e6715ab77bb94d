/*
 * Owns somebody's own model in a config.json: its graph as text, line by line, and the table that
 * says what its tensors are called. One idea: a checkpoint of such a model needs nothing but
 * itself, and both parts are checked as any stranger's. Refuses tables that leave a number without
 * a place, or reach outside.
 */
#include "atom/file/hfconfig.h"
#include "atom/file/hfweights.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORED_MAX = 1 << 18 };

/* --- reading ---------------------------------------------------------------------------------- */

static atom_status take_graph(const char *path, const json_t *root, graph **out)
{
    const json_t *lines = atom_json_present(root, "atom_graph");
    size_t bytes = 0, used = 0;
    for (size_t i = 0; i < json_array_size(lines); i++)
        bytes += json_string_length(json_array_get(lines, i)) + 1;
    if (bytes == 0)
        return atom_fail(ATOM_E_FORMAT, "%s: atom_graph is missing", path);
    char *text = atom_alloc(bytes + 1, 1);
    if (!text)
        return atom_fail_memory(path, bytes);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *line = json_string_value(json_array_get(lines, i));
        size_t n = json_string_length(json_array_get(lines, i));
        if (n)
            memcpy(text + used, line, n);
        used += n;
        text[used++] = '\n';
    }
    atom_status st = graph_parse(text, used, out);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: atom_graph: ", path);
    atom_free(text);
    return st;
}

static bool whole_at(const json_t *list, size_t i, int64_t least, int64_t *out)
{
    const json_t *it = json_array_get(list, i);
    *out = json_integer_value(it);
    return json_is_integer(it) && *out >= least && *out <= ((int64_t)1 << 42);
}

/* Does the row describe rows that both the tensor and the parameter have? */
static bool fits(const graph *g, const graph_stored *s)
{
    const graph_param *p = &g->params[s->param];
    int64_t width = p->rank == 2 ? p->dims[1] : 1, elements = 1;
    for (int i = 0; i < s->rank; i++) {
        if (s->dims[i] > ((int64_t)1 << 42) / elements)
            return false;
        elements *= s->dims[i];
    }
    if (p->rank > 2 || s->rows > p->dims[0] || s->first > p->dims[0] - s->rows)
        return false;
    if (s->transposed)
        return s->rank == 2 && s->dims[0] == width && s->dims[1] == p->dims[0] && s->from == 0 &&
               s->step == 1 && s->first == 0 && s->rows == p->dims[0];
    if (elements % width != 0 || s->from >= elements / width || s->step > elements / width)
        return false;
    return (s->rows - 1) <= (elements / width - 1 - s->from) / s->step;
}

static atom_status take_row(const char *path, const graph *g, const json_t *row, graph_stored *s)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *shape = json_object_get(row, "shape"), *rows = json_object_get(row, "rows");
    int64_t param = 0;
    memset(s, 0, sizeof *s);
    s->rank = (uint8_t)json_array_size(shape);
    bool good = name && name[0] && strlen(name) < sizeof s->name &&
                json_array_size(shape) - 1 < GRAPH_RANK_MAX && json_array_size(rows) == 5 &&
                whole_at(rows, 0, 0, &param) && param < g->n_params &&
                whole_at(rows, 1, 0, &s->first) && whole_at(rows, 2, 0, &s->from) &&
                whole_at(rows, 3, 1, &s->step) && whole_at(rows, 4, 1, &s->rows);
    for (int i = 0; i < s->rank && good; i++)
        good = whole_at(shape, (size_t)i, 1, &s->dims[i]);
    if (good) {
        s->param = (int32_t)param;
        s->transposed = json_is_true(json_object_get(row, "transposed"));
        snprintf(s->name, sizeof s->name, "%s", name);
        good = fits(g, s);
    }
    return good ? ATOM_OK
                : atom_fail(ATOM_E_FORMAT, "%s: atom_tensors: '%.128s' does not fit the graph",
                            path, name ? name : "(no name)");
}

static int by_place(const void *a, const void *b)
{
    const graph_stored *x = a, *y = b;
    if (x->param != y->param)
        return x->param < y->param ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Every row of every parameter has a place: runs follow each other; several of one place are names
 * of the same. */
static bool covers(const graph *g, const graph_stored *rows, uint32_t n)
{
    uint32_t i = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        int64_t at = 0, last = 0;
        for (; i < n && rows[i].param == (int32_t)p; i++) {
            if (rows[i].first == at) {
                last = at;
                at += rows[i].rows;
            } else if (rows[i].first != last || rows[i].rows != at - last) {
                return false;
            }
        }
        if (at != g->params[p].dims[0])
            return false;
    }
    return i == n;
}

/* The runs of one name are of one tensor, and all of it. */
static bool agree(const graph *g, const graph_stored *rows, uint32_t n)
{
    for (uint32_t i = 0, k; i < n; i = k) {
        int64_t elements = 1, seen = 0;
        for (int d = 0; d < rows[i].rank; d++)
            elements *= rows[i].dims[d];
        for (k = i; k < n && strcmp(rows[k].name, rows[i].name) == 0; k++) {
            const graph_param *p = &g->params[rows[k].param], *q = &g->params[rows[i].param];
            bool same = rows[k].rank == rows[i].rank && rows[k].transposed == rows[i].transposed &&
                        memcmp(rows[k].dims, rows[i].dims, sizeof rows[k].dims) == 0 &&
                        p->rank == q->rank && (p->rank < 2 || p->dims[1] == q->dims[1]);
            if (!same || (k > i && rows[k].transposed))
                return false;
            seen += rows[k].rows * (p->rank == 2 ? p->dims[1] : 1);
            for (uint32_t m = i; m < k; m++) {
                int64_t a = rows[m].from, b = rows[k].from, step = rows[m].step;
                int64_t a_end = a + (rows[m].rows - 1) * step;
                int64_t b_end = b + (rows[k].rows - 1) * rows[k].step;
                bool apart = a_end < b || b_end < a ||
                             (step == rows[k].step && step > 1 && (a - b) % step != 0);
                if (!apart)
                    return false;
            }
        }
        if (seen != elements)
            return false;
    }
    return true;
}

static atom_status take_table(const char *path, const json_t *root, graph *g)
{
    const json_t *list = atom_json_present(root, "atom_tensors");
    size_t n = json_array_size(list);
    atom_status st = ATOM_OK;
    if (n == 0 || n > STORED_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: atom_tensors is missing or too long", path);
    graph_stored *rows = atom_alloc(n, sizeof *rows);
    if (!rows)
        return atom_fail_memory(path, n * sizeof *rows);
    for (size_t i = 0; i < n && st == ATOM_OK; i++)
        ATOM_TRY_CLEAN(take_row(path, g, json_array_get(list, i), &rows[i]));
    qsort(rows, n, sizeof *rows, graph_stored_order);
    bool good = agree(g, rows, (uint32_t)n);
    qsort(rows, n, sizeof *rows, by_place);
    if (!good || !covers(g, rows, (uint32_t)n))
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_FORMAT,
                      "%s: atom_tensors: some weights of the graph have no place in the tensors, "
                      "or two places",
                      path));
    st = graph_set_stored(g, rows, (uint32_t)n);
cleanup:
    atom_free(rows);
    return st;
}

static atom_status take_buffer(const char *path, const json_t *row, graph_buffer *b)
{
    const char *name = json_string_value(json_object_get(row, "name"));
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    const json_t *shape = json_object_get(row, "shape");
    int64_t d = 0;
    b->rank = (uint8_t)json_array_size(shape);
    while (dtype && b->dtype < FILE_DTYPE_N && strcmp(dtype, file_dtype_name(b->dtype)) != 0)
        b->dtype++;
    bool good = name && name[0] && strlen(name) < sizeof b->name && dtype &&
                b->dtype < FILE_DTYPE_N && json_is_array(shape) &&
                json_array_size(shape) <= GRAPH_BUFFER_RANK_MAX;
    for (uint32_t i = 0; good && i < b->rank; i++) {
        good = whole_at(shape, i, 1, &d);
        b->dims[i] = (uint64_t)d;
    }
    if (!good || !file_buffer_size(b))
        return atom_fail(ATOM_E_FORMAT, "%s: atom_buffers: '%.128s' has no type or shape", path,
                         name ? name : "(no name)");
    snprintf(b->name, sizeof b->name, "%s", name);
    return ATOM_OK;
}

static atom_status take_buffers(const char *path, const json_t *root, graph *g)
{
    const json_t *list = atom_json_present(root, "atom_buffers");
    size_t n = json_array_size(list);
    graph_buffers *b = NULL;
    atom_status st = ATOM_OK;
    if (!list)
        return ATOM_OK;
    if (n == 0 || n > FILE_BUFFERS_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: atom_buffers is not a list of 1 to %d buffers", path,
                         FILE_BUFFERS_MAX);
    ATOM_TRY(graph_buffers_make((uint32_t)n, &b));
    for (size_t i = 0; i < n; i++)
        ATOM_TRY_CLEAN(take_buffer(path, json_array_get(list, i), &b->all[i]));
    ATOM_TRY_CLEAN(file_buffers_set(path, g, b));
cleanup:
    graph_buffers_release(&b);
    return st;
}

atom_status file_own_take(const char *path, const json_t *root, graph_config *c)
{
    char name[GRAPH_NAME_MAX];
    int64_t positions;
    graph *g = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(file_take_int(path, root, "max_position_embeddings", NULL, 0, &positions));
    ATOM_TRY_CLEAN(take_graph(path, root, &g));
    if (positions > ((int64_t)1 << 24))
        positions = (int64_t)1 << 24;
    ATOM_TRY_CLEAN(take_table(path, root, g));
    ATOM_TRY_CLEAN(take_buffers(path, root, g));
    file_take_name(root, GRAPH_OWN, name);
    st = graph_own_describe(name, g, positions, c);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", path);
    else
        g = NULL;
cleanup:
    graph_close(&g);
    return st;
}

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *lines_of(const char *text)
{
    json_t *lines = json_array();
    bool failed = !lines;
    while (*text && !failed) {
        size_t n = strcspn(text, "\n");
        failed = json_array_append_new(lines, json_stringn(text, n)) < 0;
        text += n + (text[n] == '\n');
    }
    if (!failed)
        return lines;
    json_decref(lines);
    return NULL;
}

static json_t *table_of(const graph *g)
{
    json_t *table = json_array();
    bool failed = !table;
    for (uint32_t i = 0; i < g->n_stored && !failed; i++) {
        const graph_stored *s = &g->stored[i];
        json_t *shape = json_array();
        for (int d = 0; d < s->rank; d++)
            failed |= !shape || json_array_append_new(shape, json_integer(s->dims[d])) < 0;
        json_t *row = json_pack("{s:s, s:o, s:[I,I,I,I,I]}", "name", s->name, "shape", shape,
                                "rows", (json_int_t)s->param, (json_int_t)s->first,
                                (json_int_t)s->from, (json_int_t)s->step, (json_int_t)s->rows);
        if (row && s->transposed)
            failed |= json_object_set_new(row, "transposed", json_true()) < 0;
        failed = failed || !row || json_array_append_new(table, row) < 0;
    }
    if (!failed)
        return table;
    json_decref(table);
    return NULL;
}

static json_t *buffers_of(const graph_buffers *b)
{
    json_t *table = json_array();
    bool failed = !table;
    for (uint32_t i = 0; i < b->n && !failed; i++) {
        json_t *shape = json_array();
        for (uint32_t d = 0; d < b->all[i].rank; d++)
            failed |= !shape ||
                      json_array_append_new(shape, json_integer((json_int_t)b->all[i].dims[d])) < 0;
        json_t *row = json_pack("{s:s, s:s, s:o}", "name", b->all[i].name, "dtype",
                                file_dtype_name((file_dtype)b->all[i].dtype), "shape", shape);
        failed = failed || !row || json_array_append_new(table, row) < 0;
    }
    if (!failed)
        return table;
    json_decref(table);
    return NULL;
}

atom_status file_own_set(json_t *root, const graph_config *c)
{
    char *text = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(graph_print(c->own, &text));
    json_t *lines = lines_of(text), *table = table_of(c->own);
    json_t *ours =
        lines && table
            ? json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:O, s:O, s:s}", "architectures",
                        graph_family_traits(GRAPH_OWN)->class_name, "model_type",
                        graph_family_name(GRAPH_OWN), "vocab_size", (json_int_t)c->vocab_size,
                        "max_position_embeddings", (json_int_t)c->positions, "hidden_size",
                        (json_int_t)c->width, "num_hidden_layers", (json_int_t)c->layers,
                        "num_attention_heads", (json_int_t)c->heads, "atom_graph", lines,
                        "atom_tensors", table, "_name_or_path", c->name)
            : NULL;
    bool failed = !ours || json_object_update(root, ours) < 0;
    if (c->own->buffers)
        failed |= json_object_set_new(root, "atom_buffers", buffers_of(c->own->buffers)) < 0;
    st = failed ? atom_fail_memory("config.json", 0) : ATOM_OK;
    json_decref(ours);
    json_decref(lines);
    json_decref(table);
    atom_free(text);
    return st;
}
