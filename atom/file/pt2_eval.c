/*
 * Owns the run through an exported graph: its inputs, which operator handles a node, and what the
 * result must be. One idea: one pass in the order
 * of the file; an operator either says what its result stands for, or says no and why. Refuses what
 * is not in the operators' tables, by name and line.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- inputs --------------------------------------------------------------------------------- */

static const json_t *meta_of(const pt2_eval *e, const char *name)
{
    return json_object_get(json_object_get(e->archive->graph, "tensor_values"), name);
}

/* Parameters are views, buffers and constants are read. */
static atom_status enter_tensor(pt2_eval *e, int32_t i)
{
    const pt2_tensor *t = &e->archive->tensors[i];
    pt2_value *v;
    double *data;
    if (t->parameter) {
        v = pt2_value_new(e);
        if (!v)
            return atom_fail_memory("a value", sizeof *v);
        v->kind = PT2_PARAM;
        v->base = t->first;
        if (!pt2_view_packed((int)t->rank, t->dims, &v->v))
            return atom_fail(ATOM_E_FORMAT, "%s: '%.128s' has no shape", e->path, t->name);
    } else {
        bool complex = pt2_is_complex(t->dtype);
        int64_t sizes[PT2_RANK_MAX + 1], n = complex ? 2 * t->elements : t->elements;
        memcpy(sizes, t->dims, sizeof t->dims);
        sizes[t->rank] = 2;
        ATOM_TRY(pt2_const_new(e, (int)t->rank + complex, sizes, &v, &data));
        ATOM_TRY(pt2_tensor_read(e->archive, t, 0, n, data));
        v->complex = complex;
    }
    return pt2_name(e, t->value, v);
}

/* tokens come first, targets may follow: both are whole numbers [B,T]. */
static atom_status enter_user(pt2_eval *e, const json_t *spec, int *n)
{
    const json_t *arg = json_object_get(json_object_get(spec, "user_input"), "arg");
    const char *name =
        json_string_value(json_object_get(json_object_get(arg, "as_tensor"), "name"));
    const json_t *meta = name ? meta_of(e, name) : NULL, *sizes = json_object_get(meta, "sizes");
    int64_t size[2];
    if (!arg || json_object_get(arg, "as_none"))
        return ATOM_OK;
    if (!name || json_array_size(sizes) != 2 || *n > 1 ||
        json_integer_value(json_object_get(meta, "dtype")) != PT2_I64 ||
        !pt2_size_of(json_array_get(sizes, 0), &size[0]) ||
        !pt2_size_of(json_array_get(sizes, 1), &size[1]))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: the model must take the tokens, and may take the targets: int64 "
                         "tensors [batch, sequence], nothing else",
                         e->path);
    if (*n == 0) {
        e->B = size[0];
        e->T = size[1];
    }
    if (size[0] != e->B || size[1] != e->T || e->T < 2 || e->B < 1 || e->B * e->T > INT32_MAX / 2 ||
        e->B > INT32_MAX || e->T > INT32_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tokens and targets must have the same shape, at least 2 tokens long",
                         e->path);
    pt2_value *v = pt2_value_new(e);
    if (!v)
        return atom_fail_memory("a value", sizeof *v);
    v->kind = (*n)++ == 0 ? PT2_TOKENS : PT2_TARGETS;
    if (!pt2_view_packed(2, size, &v->v))
        return atom_fail(ATOM_E_FORMAT, "%s: the tokens have no shape", e->path);
    return pt2_name(e, name, v);
}

/* Where rotations are looked at: the first places, then some up to the last. */
static void choose_samples(pt2_eval *e)
{
    int64_t near = PT2_SAMPLES_MAX / 2;
    for (int64_t t = 0; t < e->T && t < near; t++)
        e->samples[e->n_samples++] = t;
    for (int64_t i = 1; i <= PT2_SAMPLES_MAX - near && e->T > near; i++) {
        int64_t t = near - 1 + (e->T - near) * i / (PT2_SAMPLES_MAX - near);
        if (t > e->samples[e->n_samples - 1])
            e->samples[e->n_samples++] = t;
    }
}

/* The longest sequence that the export allows, where it was made for several. */
static int64_t longest(const pt2_eval *e, const char *tokens)
{
    const json_t *size = json_array_get(json_object_get(meta_of(e, tokens), "sizes"), 1);
    const char *expr =
        json_string_value(json_object_get(json_object_get(size, "as_expr"), "expr_str"));
    const char *from = expr ? strchr(expr, '\'') : NULL, *to = from ? strchr(from + 1, '\'') : NULL;
    char name[64];
    if (!to || to - from > 60 || strncmp(expr, "Symbol(", 7) != 0)
        return e->T;
    snprintf(name, sizeof name, "%.*s", (int)(to - from - 1), from + 1);
    const json_t *range =
        json_object_get(json_object_get(e->archive->model, "range_constraints"), name);
    const json_t *most = json_object_get(range, "max_val");
    int64_t n = json_integer_value(most);
    return n > e->T && n <= (1 << 24) ? n : e->T;
}

static atom_status enter_inputs(pt2_eval *e)
{
    const json_t *specs = json_object_get(e->archive->signature, "input_specs");
    const char *tokens = NULL;
    int users = 0;
    for (uint32_t i = 0; i < e->archive->n_tensors; i++)
        if (e->archive->tensors[i].value)
            ATOM_TRY(enter_tensor(e, (int32_t)i));
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const json_t *spec = json_array_get(specs, i);
        if (!json_object_get(spec, "user_input"))
            continue;
        ATOM_TRY(enter_user(e, spec, &users));
        if (users == 1 && !tokens)
            tokens = json_string_value(json_object_get(
                json_object_get(json_object_get(json_object_get(spec, "user_input"), "arg"),
                                "as_tensor"),
                "name"));
    }
    if (users == 0 || !tokens)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: the model takes no tokens", e->path);
    e->positions = longest(e, tokens);
    choose_samples(e);
    int64_t dims[2] = {e->B, e->T};
    ATOM_TRY(graph_open("pt2", ATOM_F32, e->B, e->T, &e->g));
    ATOM_TRY(graph_add_input(e->g, "tokens", GRAPH_I32, 2, dims, &e->tokens));
    return graph_add_input(e->g, "targets", GRAPH_I32, 2, dims, &e->targets);
}

/* --- the run -------------------------------------------------------------------------------- */

static pt2_op_fn find_op(const char *target)
{
    const pt2_op *const tables[] = {pt2_shape_ops,   pt2_const_ops,     pt2_math_ops,
                                    pt2_layer_ops,   pt2_attention_ops, pt2_gate_ops,
                                    pt2_complex_ops, pt2_mask_ops};
    static const char FRONT[] = "torch.ops.";
    if (target && strncmp(target, FRONT, sizeof FRONT - 1) == 0)
        target += sizeof FRONT - 1;
    for (size_t i = 0; target && i < sizeof tables / sizeof *tables; i++)
        for (const pt2_op *op = tables[i]; op->target; op++)
            if (strcmp(op->target, target) == 0)
                return op->run;
    return NULL;
}

/* What to write in place of an operator that atom does not have. */
static atom_status unknown(const pt2_eval *e)
{
    static const struct {
        const char *part, *instead;
    } hints[] = {
        {".erf.", "write GELU as F.gelu(x)"},
        {"_native_multi_head_attention", "export without torch.no_grad()"},
        {"_transformer_encoder_layer_fwd", "export without torch.no_grad()"},
        {"leaky_relu", "it knows GELU, ReLU, its square and SiLU"},
        {".elu.", "it knows GELU, ReLU, its square and SiLU"},
        {".mish.", "it knows GELU, ReLU, its square and SiLU"},
        {"topk", "mixtures of experts are not supported"},
        {"conv", "convolutions are not supported"},
    };
    const char *target = json_string_value(json_object_get(e->node, "target"));
    for (size_t i = 0; target && i < sizeof hints / sizeof *hints; i++)
        if (strstr(target, hints[i].part))
            return pt2_refuse(e, "atom does not know this operator; %s", hints[i].instead);
    return pt2_refuse(e,
                      "atom does not know this operator; it knows embeddings, linear layers, "
                      "LayerNorm, RMSNorm, causal attention, rotary embedding, GELU, ReLU, SiLU, "
                      "SwiGLU, GEGLU, dropout, residual sums, scaling by a number, soft caps");
}

/* Adds every name that stands in `args` to a set. */
static bool add_names(json_t *set, const json_t *args)
{
    const char *key;
    const json_t *it;
    size_t i;
    bool fine = true;
    json_array_foreach((json_t *)(uintptr_t)args, i, it) fine &= add_names(set, it);
    json_object_foreach((json_t *)(uintptr_t)args, key, it)
    {
        const char *name =
            strcmp(key, "name") == 0 || strcmp(key, "as_name") == 0 ? json_string_value(it) : NULL;
        fine &= name ? json_object_set_new(set, name, json_true()) == 0 : add_names(set, it);
    }
    return fine;
}

static bool has_name(const json_t *set, const json_t *args)
{
    const char *key;
    const json_t *it;
    size_t i;
    bool has = false;
    json_array_foreach((json_t *)(uintptr_t)args, i, it) has |= has_name(set, it);
    json_object_foreach((json_t *)(uintptr_t)args, key, it)
    {
        bool named = strcmp(key, "name") == 0 || strcmp(key, "as_name") == 0;
        has |= named ? json_string_value(it) && json_object_get(set, json_string_value(it))
                     : has_name(set, it);
    }
    return has;
}

/* live[i]: something that the outputs need comes from node i. */
static atom_status find_live(const pt2_eval *e, bool *live)
{
    const json_t *nodes = json_object_get(e->archive->graph, "nodes");
    json_t *needed = json_object();
    bool fine = needed && add_names(needed, json_object_get(e->archive->graph, "outputs"));
    for (size_t i = json_array_size(nodes); i-- > 0 && fine;) {
        const json_t *node = json_array_get(nodes, i);
        live[i] = pt2_in_place(node) || has_name(needed, json_object_get(node, "outputs"));
        if (live[i])
            fine = add_names(needed, json_object_get(node, "inputs"));
    }
    json_decref(needed);
    return fine ? ATOM_OK : atom_fail_memory("names", 64);
}

/* Names that are read behind the present node. */
static bool add_later(const pt2_eval *e, json_t *later)
{
    const json_t *nodes = json_object_get(e->archive->graph, "nodes");
    size_t i = 0, n = json_array_size(nodes);
    bool fine = add_names(later, json_object_get(e->archive->graph, "outputs"));
    while (i < n && json_array_get(nodes, i) != e->node)
        i++;
    for (i++; i < n && fine; i++)
        fine = add_names(later, json_object_get(json_array_get(nodes, i), "inputs"));
    return fine;
}

/* Other views of the same numbers change, too, which is of no matter unless somebody reads them later. */
static atom_status check_views(pt2_eval *e, const char *name)
{
    const pt2_value *was = pt2_named(e, name);
    const char *other, *found = NULL;
    json_t *later, *index;
    if (!was)
        return ATOM_OK;
    later = json_object();
    atom_status st = later && add_later(e, later) ? ATOM_OK : atom_fail_memory("names", 64);
    if (st == ATOM_OK && was->kind != PT2_ACT)
        st = pt2_check_shared(e, name, later);
    json_object_foreach(e->names, other, index)
    {
        const pt2_value *v = pt2_named(e, other);
        if (st == ATOM_OK && was->kind == PT2_ACT && strcmp(other, name) != 0 &&
            v->kind == PT2_ACT && v->base == was->base && v->copy == was->copy &&
            json_object_get(later, other) && pt2_views_overlap(&v->v, &was->v))
            found = other;
    }
    if (found)
        st = pt2_refuse_shared(e, name, found);
    json_decref(later);
    return st;
}

/* Who reads the name of what was changed means what it is now. */
static atom_status change_self(pt2_eval *e)
{
    const json_t *out = json_array_get(json_object_get(e->node, "outputs"), 0);
    const json_t *made = json_object_get(out, "as_tensor"),
                 *self = json_object_get(pt2_arg(e, "self"), "as_tensor");
    const pt2_value *v = pt2_named(e, json_string_value(json_object_get(made, "name")));
    const char *name = json_string_value(json_object_get(self, "name"));
    if (!v || !name)
        return ATOM_OK;
    ATOM_TRY(check_views(e, name));
    return pt2_name(e, name, v);
}

static atom_status run_node(pt2_eval *e)
{
    pt2_op_fn run = find_op(json_string_value(json_object_get(e->node, "target")));
    if (!run)
        return unknown(e);
    ATOM_TRY(pt2_check_complex(e));
    ATOM_TRY(pt2_settle(e));
    ATOM_TRY(run(e));
    return pt2_in_place(e->node) ? change_self(e) : ATOM_OK;
}

static atom_status run_nodes(pt2_eval *e)
{
    const json_t *nodes = json_object_get(e->archive->graph, "nodes");
    size_t n = json_array_size(nodes);
    bool *live = atom_alloc(n + 1, sizeof *live);
    if (!live)
        return atom_fail_memory("nodes", n);
    atom_status st = find_live(e, live);
    for (size_t i = 0; i < n && st == ATOM_OK; i++) {
        e->node = json_array_get(nodes, i);
        st = live[i] ? run_node(e) : ATOM_OK;
    }
    e->node = NULL;
    atom_free(live);
    return st;
}

/* [batch, sequence, vocabulary], in this order? */
static bool in_order(const pt2_eval *e, const pt2_value *v)
{
    int64_t all[1] = {e->B * e->T};
    pt2_view front = pt2_front(&v->v, e->bases[v->base].width), rows;
    return pt2_view_reshape(&front, 1, all, &rows) && rows.rep[0] == 1 && rows.stride[0] == 1;
}

/* The logits of all positions: of the loss, if there is one, else the first result
 * that has them. */
static atom_status find_logits(pt2_eval *e, const pt2_value **out)
{
    const json_t *outputs = json_object_get(e->archive->graph, "outputs");
    const pt2_value *logits = NULL;
    int64_t first, n;
    bool loss = false;
    for (size_t i = 0; i < json_array_size(outputs) && !loss; i++) {
        const json_t *tensor = json_object_get(json_array_get(outputs, i), "as_tensor");
        const char *name = json_string_value(json_object_get(tensor, "name"));
        ATOM_TRY(pt2_settle_one(e, name));
        const pt2_value *v = pt2_named(e, name);
        loss = v && v->kind == PT2_LOSS;
        if (loss || (v && v->kind == PT2_ACT && !logits))
            logits = loss ? v->a : v;
    }
    pt2_value *bare = NULL;
    if (logits)
        ATOM_TRY(pt2_value_copy(e, logits, &bare));
    if (bare)
        bare->cap = 0;
    if (!bare || !pt2_columns(e, bare, &first, &n) || (!loss && !in_order(e, bare)))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: the first result is not the logits [batch, sequence, vocabulary] of "
                         "all positions, nor the loss; many models compute only the last position "
                         "when they are given no targets: give them targets, or export one whose "
                         "forward returns all logits",
                         e->path);
    bare->cap = logits->cap;
    *out = bare;
    return ATOM_OK;
}

static atom_status finish(pt2_eval *e)
{
    graph_node loss = {.name = "loss", .op = ATOM_OP_cross_entropy};
    const pt2_value *logits = NULL;
    pt2_value *bare;
    int32_t made;
    atom_status st = ATOM_OK;
    ATOM_TRY(find_logits(e, &logits));
    ATOM_TRY(pt2_value_copy(e, logits, &bare));
    bare->cap = 0;
    loss.cap = (float)logits->cap;
    ATOM_TRY(pt2_force(e, bare, &loss.in[0]));
    loss.in[1] = e->targets;
    ATOM_TRY(pt2_node(e, &loss, &made));
    ATOM_TRY(pt2_store_names(e));
    st = graph_seal(e->g);
    if (st == ATOM_E_FORMAT)
        st = atom_fail(ATOM_E_UNSUPPORTED, "%s: %s", e->path, atom_fail_message());
    return st;
}

static void eval_close(pt2_eval *e)
{
    for (size_t i = 0; i < e->n_values; i++) {
        if (e->values[i]->turn) {
            atom_free(e->values[i]->turn->src);
            atom_free(e->values[i]->turn->coef);
        }
        atom_free(e->values[i]->turn);
        atom_free(e->values[i]);
    }
    for (size_t i = 0; i < e->n_consts; i++)
        atom_free(e->consts[i].data);
    for (size_t i = 0; i < e->n_made; i++)
        atom_free(e->made[i].pieces);
    atom_free(e->values);
    atom_free(e->bases);
    atom_free(e->consts);
    atom_free(e->made);
    json_decref(e->names);
    graph_close(&e->g);
}

atom_status pt2_evaluate(const pt2_archive *a, graph **out, int64_t *positions)
{
    pt2_eval e = {.archive = a, .path = a->zip->path, .names = json_object()};
    atom_status st;
    if (!e.names)
        return atom_fail_memory("names", 64);
    ATOM_TRY_CLEAN(enter_inputs(&e));
    ATOM_TRY_CLEAN(run_nodes(&e));
    ATOM_TRY_CLEAN(finish(&e));
    *out = e.g;
    *positions = e.positions;
    e.g = NULL;
cleanup:
    eval_close(&e);
    return st;
}
