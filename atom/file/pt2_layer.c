/*
 * Owns layers: products with weights, embeddings, norms, activations, dropout, the loss. One idea:
 * a layer reads whole rows and makes whole rows, and its weight is a view of one of the user's
 * parameters as it is stored, or turned. Refuses weights that are computed from others.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <string.h>

static bool is(const pt2_value *v, pt2_kind kind)
{
    return v && v->kind == kind;
}

/* --- weights ---------------------------------------------------------------------------------- */

/* A view [out, in] of a parameter as rows of it, or all of it transposed. */
static bool weight_rows(const pt2_eval *e, const pt2_view *w, int32_t tensor, pt2_piece *p)
{
    const pt2_tensor *t = &e->archive->tensors[tensor];
    memset(p, 0, sizeof *p);
    p->tensor = tensor;
    p->step = 1;
    p->rows = w->size[0];
    if (w->rank != 2 || t->rank != 2 || w->rep[0] != 1 || w->rep[1] != 1)
        return false;
    bool down = w->size[0] == 1 || w->stride[0] == t->dims[1];
    bool along = w->size[1] == 1 || w->stride[1] == 1;
    if (down && along && w->size[1] == t->dims[1] && w->offset % t->dims[1] == 0) {
        p->row = w->offset / t->dims[1];
        return true;
    }
    p->transposed = true;
    return w->offset == 0 && w->size[0] == t->dims[1] && w->size[1] == t->dims[0] &&
           (w->size[0] == 1 || w->stride[0] == 1) &&
           (w->size[1] == 1 || w->stride[1] == t->dims[1]);
}

/* A view [n] of a parameter. */
static bool vector_rows(const pt2_eval *e, const pt2_value *v, int64_t n, pt2_piece *p)
{
    memset(p, 0, sizeof *p);
    if (!is(v, PT2_PARAM) || e->archive->tensors[v->base].rank != 1 || v->v.rank != 1 ||
        v->v.size[0] != n || v->v.rep[0] != 1 || (n > 1 && v->v.stride[0] != 1))
        return false;
    p->tensor = v->base;
    p->row = v->v.offset;
    p->step = 1;
    p->rows = n;
    return true;
}

/* x w' + b; turned: w is [in, out]. It waits until somebody reads it. */
static atom_status linear(pt2_eval *e, const pt2_value *x, const pt2_value *w, bool turned,
                          const pt2_value *b)
{
    pt2_base base = {.op = ATOM_OP_linear, .tensor = GRAPH_NONE, .node = e->node};
    int32_t id;
    if (!is(x, PT2_ACT) || x->v.rank < 2)
        return pt2_refuse_rows(e, x);
    if (!is(w, PT2_PARAM) || w->v.rank != 2)
        return pt2_refuse(e, "its weight is not a parameter as it is stored, but computed");
    pt2_view view = w->v;
    if (turned)
        pt2_view_swap(&view, 0, 1);
    if (!weight_rows(e, &view, w->base, &base.w) || view.size[1] != x->v.size[x->v.rank - 1])
        return pt2_refuse(e, "its weight is not a run of rows of a parameter");
    base.width = view.size[0];
    base.has_b = b != NULL;
    if (b && !vector_rows(e, b, base.width, &base.b))
        return pt2_refuse(e, "its bias is not a parameter as it is stored");
    ATOM_TRY(pt2_force(e, x, &base.x));
    ATOM_TRY(pt2_base_new(e, &base, &id));
    return pt2_whole_result(e, id, x);
}

static atom_status op_linear(pt2_eval *e)
{
    return linear(e, pt2_tensor_arg(e, "input"), pt2_tensor_arg(e, "weight"), false,
                  pt2_tensor_arg(e, "bias"));
}

static atom_status op_addmm(pt2_eval *e)
{
    if (pt2_real_arg(e, "alpha", 1) != 1 || pt2_real_arg(e, "beta", 1) != 1)
        return pt2_refuse(e, "alpha or beta other than 1 is not supported");
    return linear(e, pt2_tensor_arg(e, "mat1"), pt2_tensor_arg(e, "mat2"), true,
                  pt2_tensor_arg(e, "self"));
}

static atom_status op_matmul(pt2_eval *e)
{
    const pt2_value *a = pt2_tensor_arg(e, "self"), *b = pt2_tensor_arg(e, "other");
    b = b ? b : pt2_tensor_arg(e, "mat2");
    if (is(a, PT2_CONST) && is(b, PT2_CONST))
        return pt2_const_matmul(e, a, b);
    if (is(a, PT2_SCORES) && is(b, PT2_ACT))
        return pt2_attend(e, a, b);
    if ((is(a, PT2_ACT) || is(a, PT2_TURN)) && (is(b, PT2_ACT) || is(b, PT2_FLIP)))
        return pt2_scores(e, a, b);
    return linear(e, a, b, true, NULL);
}

/* --- embeddings ------------------------------------------------------------------------------- */

/* 0, 1, ... T - 1, for every sequence of the batch. */
static bool are_places(const pt2_eval *e, const pt2_value *v)
{
    int64_t at[PT2_RANK_MAX] = {0};
    if (!is(v, PT2_CONST) || v->v.rank < 1 || v->v.size[v->v.rank - 1] != e->T)
        return false;
    do
        if (pt2_const_at(e, v, at) != (double)at[v->v.rank - 1])
            return false;
    while (pt2_view_next(&v->v, at));
    return true;
}

static atom_status op_embedding(pt2_eval *e)
{
    const pt2_value *w = pt2_tensor_arg(e, "weight"), *i = pt2_tensor_arg(e, "indices");
    pt2_base base = {.op = ATOM_OP_embed, .tensor = GRAPH_NONE, .node = e->node};
    int32_t id;
    if (!is(w, PT2_PARAM) || !weight_rows(e, &w->v, w->base, &base.w) || base.w.transposed ||
        base.w.rows != e->archive->tensors[w->base].dims[0])
        return pt2_refuse(e, "its table is not a whole parameter");
    if (pt2_int_arg(e, "padding_idx", -1) >= 0)
        return pt2_refuse(e, "padding_idx is not supported; pad the targets instead");
    if (pt2_bool_arg(e, "scale_grad_by_freq", false))
        return pt2_refuse(e, "scale_grad_by_freq is not supported; leave it out");
    base.width = w->v.size[1];
    if (is(i, PT2_TOKENS) && pt2_view_elements(&i->v) == e->B * e->T && i->v.rank < PT2_RANK_MAX) {
        pt2_value *v;
        ATOM_TRY(pt2_base_new(e, &base, &id));
        atom_status st = pt2_whole(e, id, i->v, &v);
        return st == ATOM_OK ? pt2_result(e, 0, v) : st;
    }
    if (is(i, PT2_TARGETS))
        return pt2_refuse(e, "it looks up the targets; export with two tensors of their own for "
                             "tokens and targets, and the tokens first");
    if (!are_places(e, i))
        return pt2_refuse(e,
                          "it looks up something other than the tokens or the places 0, 1, ... of "
                          "the sequence");
    pt2_value *v = pt2_value_new(e);
    if (!v)
        return atom_fail_memory("a value", sizeof *v);
    v->kind = PT2_PLACES;
    v->base = w->base;
    v->v = i->v;
    if (v->v.rank == PT2_RANK_MAX)
        return pt2_refuse(e, "it has too many axes");
    for (int k = 0; k < v->v.rank; k++) { /* as a view of the table's first T rows */
        v->v.stride[k] = k == v->v.rank - 1 ? base.width : 0;
        v->v.rep[k] = 1;
        v->v.inner[k] = 0;
    }
    v->v.offset = 0;
    v->v.size[v->v.rank] = base.width;
    v->v.stride[v->v.rank] = v->v.rep[v->v.rank] = 1;
    v->v.inner[v->v.rank++] = 0;
    return pt2_result(e, 0, v);
}

/* A parameter [.., P, C] of which the first T rows are added to the embedding: row t where x has
 * place t, whichever axis that is. */
static bool rows_of_places(const pt2_eval *e, const pt2_value *x, const pt2_value *v, pt2_piece *p)
{
    const pt2_tensor *t = &e->archive->tensors[v->base];
    int64_t C = e->bases[x->base].width;
    int rank = x->v.rank, time = -1;
    pt2_view w;
    memset(p, 0, sizeof *p);
    p->tensor = v->base;
    p->step = 1;
    p->rows = t->elements / C;
    if (t->rank < 2 || t->dims[t->rank - 1] != C || t->dims[t->rank - 2] != p->rows ||
        v->v.offset != 0 || !pt2_view_expand(&v->v, rank, x->v.size, &w))
        return false;
    for (int i = 0; i + 1 < rank; i++) {
        bool places = x->v.size[i] == e->T && x->v.stride[i] == C && x->v.rep[i] == 1;
        time = places ? i : time;
        if (x->v.size[i] > 1 && (w.rep[i] != 1 || w.stride[i] != (places ? C : 0)))
            return false;
    }
    return time >= 0 && (C == 1 || w.stride[rank - 1] == 1) && w.rep[rank - 1] == 1;
}

atom_status pt2_add_places(pt2_eval *e, const pt2_value *x, const pt2_value *places)
{
    int64_t first, n;
    int32_t id;
    pt2_base base = e->bases[x->base];
    bool fits = pt2_columns(e, x, &first, &n) && first == 0 && n == base.width &&
                base.op == ATOM_OP_embed && base.tensor == GRAPH_NONE && !base.has_b;
    if (!fits || !rows_of_places(e, x, places, &base.b))
        return pt2_refuse(
            e, "a parameter is added to activations, which atom supports only for biases of linear "
               "layers and for a table of positions beside that of tokens, before it is scaled");
    base.has_b = true;
    base.node = e->node;
    e->positions = base.b.rows;
    atom_status st = pt2_base_new(e, &base, &id);
    return st == ATOM_OK ? pt2_whole_result(e, id, x) : st;
}

/* --- norms ------------------------------------------------------------------------------------ */

/* Heads [.., D] of a product: remembered until attention reads them. */
static atom_status norm_heads(pt2_eval *e, const pt2_value *x, const pt2_piece *w, double eps)
{
    pt2_value *v;
    if (x->norm >= 0 || x->cap != 0 || x->v.rank != 4 || w->row != 0 ||
        w->rows != e->archive->tensors[w->tensor].dims[0])
        return pt2_refuse(e, "it normalises something that is neither whole rows nor whole heads");
    ATOM_TRY(pt2_value_copy(e, x, &v));
    v->norm = w->tensor;
    v->eps = eps;
    return pt2_result(e, 0, v);
}

static atom_status rms_norm(pt2_eval *e, const pt2_value *x, const pt2_value *weight, double eps)
{
    graph_node node = {.op = ATOM_OP_rmsnorm, .n_params = 1, .eps = (float)eps};
    int64_t first, n, C = is(x, PT2_ACT) && x->v.rank ? x->v.size[x->v.rank - 1] : 0;
    int32_t base;
    pt2_piece w;
    if (C == 0 || !vector_rows(e, weight, C, &w))
        return pt2_refuse(e, "an RMS norm needs one weight for each column, as it is stored");
    if (!(eps > 0 && eps < 1))
        return pt2_refuse(e, "its eps is %g; it must be between 0 and 1", eps);
    if (!pt2_columns(e, x, &first, &n) || n != e->bases[x->base].width)
        return norm_heads(e, x, &w, eps);
    ATOM_TRY(pt2_force(e, x, &node.in[0]));
    ATOM_TRY(pt2_param(e, &w, 1, 1, 0, GRAPH_INIT_ONE, &node.params[0]));
    ATOM_TRY(pt2_node(e, &node, &base));
    return pt2_whole_result(e, base, x);
}

atom_status pt2_norm_weight(pt2_eval *e, const pt2_value *normed, const pt2_value *weight)
{
    return rms_norm(e, normed->a, weight, normed->eps);
}

/* Over the last axis alone? */
static bool over_last(const pt2_eval *e, const pt2_value *x)
{
    int64_t sizes[PT2_RANK_MAX];
    return is(x, PT2_ACT) && x->v.rank > 0 &&
           pt2_ints_arg(e, "normalized_shape", sizes, PT2_RANK_MAX) == 1 &&
           sizes[0] == x->v.size[x->v.rank - 1];
}

static atom_status op_rms_norm(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "input");
    if (!over_last(e, x))
        return pt2_refuse(e, "supported only over the last axis of activations");
    return rms_norm(e, x, pt2_tensor_arg(e, "weight"), pt2_real_arg(e, "eps", 0x1p-23));
}

static atom_status op_layer_norm(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "input");
    const pt2_value *bias = pt2_tensor_arg(e, "bias");
    graph_node node = {.op = ATOM_OP_layernorm, .n_params = bias ? 2 : 1};
    int32_t base;
    pt2_piece w, b;
    if (!over_last(e, x))
        return pt2_refuse(e, "supported only over the last axis of activations");
    int64_t C = x->v.size[x->v.rank - 1];
    if (!vector_rows(e, pt2_tensor_arg(e, "weight"), C, &w))
        return pt2_refuse(e, "a layer norm needs a weight that is a parameter as it is stored; "
                             "leave elementwise_affine=False out");
    if (bias && !vector_rows(e, bias, C, &b))
        return pt2_refuse(e, "its bias is not a parameter as it is stored");
    node.eps = (float)pt2_real_arg(e, "eps", 1e-5);
    ATOM_TRY(pt2_force(e, x, &node.in[0]));
    ATOM_TRY(pt2_param(e, &w, 1, 1, 0, GRAPH_INIT_ONE, &node.params[0]));
    if (bias)
        ATOM_TRY(pt2_param(e, &b, 1, 1, 0, GRAPH_INIT_ZERO, &node.params[1]));
    ATOM_TRY(pt2_node(e, &node, &base));
    return pt2_whole_result(e, base, x);
}

/* --- the rest --------------------------------------------------------------------------------- */

/* A node of one activation and no parameters. */
static atom_status plain(pt2_eval *e, atom_op op, float p, const pt2_value *x)
{
    graph_node node = {.op = op, .p = p};
    int32_t base;
    ATOM_TRY(pt2_force(e, x, &node.in[0]));
    ATOM_TRY(pt2_node(e, &node, &base));
    return pt2_whole_result(e, base, x);
}

atom_status pt2_residual(pt2_eval *e, const pt2_value *a, const pt2_value *b)
{
    graph_node node = {.op = ATOM_OP_add};
    int32_t base;
    ATOM_TRY(pt2_force(e, a, &node.in[0]));
    ATOM_TRY(pt2_force(e, b, &node.in[1]));
    if (!pt2_same_rows(e, a, b))
        return pt2_refuse(e, "it adds rows of different places, or of different shapes");
    if (node.in[0] == node.in[1])
        return pt2_refuse(e, "it adds a tensor to itself; write 2 * x");
    ATOM_TRY(pt2_node(e, &node, &base));
    return pt2_whole_result(e, base, a->v.rank >= b->v.rank ? a : b);
}

static atom_status op_dropout(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "input");
    double p = pt2_bool_arg(e, "train", true) ? pt2_real_arg(e, "p", 0) : 0;
    pt2_value *v;
    if (!x || !(p >= 0 && p < 1))
        return pt2_refuse(e, "its input or its probability is not known");
    if (p > 0 && x->kind == PT2_ACT)
        return plain(e, ATOM_OP_dropout, (float)p, x);
    if (p > 0 && (x->kind != PT2_SCORES || !x->soft))
        return pt2_refuse(e, "supported only on activations and on the probabilities of attention");
    ATOM_TRY(pt2_value_copy(e, x, &v));
    if (x->turn)
        ATOM_TRY(pt2_turn_of(e, x, &v));
    v->p = p > 0 ? (float)p : v->p;
    return pt2_result(e, 0, v);
}

/* The targets where the logits of their place are? */
static bool beside(const pt2_eval *e, const pt2_value *logits, const pt2_value *t)
{
    pt2_view front = pt2_front(&logits->v, e->bases[logits->base].width);
    return pt2_view_elements(&t->v) == e->B * e->T && pt2_view_same(&front, &t->v);
}

static atom_status op_loss(pt2_eval *e)
{
    const pt2_value *x = pt2_tensor_arg(e, "self"), *t = pt2_tensor_arg(e, "target");
    pt2_value *v, *logits;
    if (!is(x, PT2_ACT) || !is(t, PT2_TARGETS))
        return pt2_refuse(e, "supported only for the logits of all positions and the targets as "
                             "they were given; atom shifts them itself");
    ATOM_TRY(pt2_value_copy(e, x, &logits));
    if (x->v.rank == 3 && t->v.rank == 2) /* [B, V, T] */
        pt2_view_swap(&logits->v, 1, 2);
    if (!beside(e, logits, t))
        return pt2_refuse(e, "supported only for the logits of all positions and the targets as "
                             "they were given, in the same order; atom shifts them itself");
    if (pt2_arg(e, "weight") || pt2_int_arg(e, "reduction", 1) != 1 ||
        pt2_real_arg(e, "label_smoothing", 0) != 0)
        return pt2_refuse(e, "only the plain mean is supported, without weights and smoothing");
    int64_t ignored = pt2_int_arg(e, "ignore_index", -100);
    if (ignored >= 0 && ignored < logits->v.size[logits->v.rank - 1])
        return pt2_refuse(e,
                          "with ignore_index=%lld the token of that id would not be learned, but "
                          "atom learns all tokens of the data; leave ignore_index out",
                          (long long)ignored);
    ATOM_TRY(pt2_value_copy(e, logits, &v));
    v->kind = PT2_LOSS;
    v->a = logits;
    return pt2_result(e, 0, v);
}

const pt2_op pt2_layer_ops[] = {
    {"aten.linear.default", op_linear},
    {"aten.addmm.default", op_addmm},
    {"aten.matmul.default", op_matmul},
    {"aten.mm.default", op_matmul},
    {"aten.bmm.default", op_matmul},
    {"aten.embedding.default", op_embedding},
    {"aten.layer_norm.default", op_layer_norm},
    {"aten.rms_norm.default", op_rms_norm},
    {"aten.dropout.default", op_dropout},
    {"aten.cross_entropy_loss.default", op_loss},
    {NULL, NULL},
};
