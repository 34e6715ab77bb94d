/*
 * Owns what ops.def says in words about shapes, as code: one rule per op for the shapes of outputs
 * and saved tensors, one for its floating-point operations. One idea: a rule reads its operands
 * through two checks (an activation [B,T,C], a parameter of given dims), so that every complaint
 * has the same form. Refuses sizes whose bytes, summed over a graph, could overflow 64 bits.
 */
#include "atom/graph/build.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

const char *const graph_kind_names[] = {
    [GRAPH_ACT] = "act", [GRAPH_F32] = "f32", [GRAPH_I32] = "i32"};
const char *const graph_init_names[] = {[GRAPH_INIT_ZERO] = "zero",
                                        [GRAPH_INIT_ONE] = "one",
                                        [GRAPH_INIT_NORMAL] = "normal",
                                        [GRAPH_INIT_UNIFORM] = "uniform"};

atom_status graph_check_range(const char *key, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s is %lld; it must be in 1 .. %lld", key, (long long)value,
                     (long long)most);
}

atom_status graph_dims_check(const char *what, int rank, const int64_t *dims, uint64_t *elements)
{
    if (rank < 1 || rank > GRAPH_RANK_MAX)
        return atom_fail(ATOM_E_FORMAT, "\"%s\": rank %d is not in 1 .. %d", what, rank,
                         GRAPH_RANK_MAX);
    uint64_t product = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1 || dims[i] > GRAPH_DIM_MAX)
            return atom_fail(ATOM_E_FORMAT, "\"%s\": dimension %d is %lld, not in 1 .. 2^31-1",
                             what, i, (long long)dims[i]);
        product *= (uint64_t)dims[i]; /* below 2^42 * 2^31: no overflow */
        if (product > GRAPH_ELEMENTS_MAX)
            return atom_fail(ATOM_E_FORMAT, "\"%s\": more than 2^42 elements", what);
    }
    *elements = product;
    return ATOM_OK;
}

/* "[4,8,16]" of at most 4 dims; buf holds 64 bytes. */
static const char *dims_text(int rank, const int64_t *dims, char *buf)
{
    size_t at = 0;
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(buf + at, 64 - at, "%c%lld", i ? ',' : '[', (long long)dims[i]);
    snprintf(buf + at, 64 - at, "]");
    return buf;
}

/* Input i must be act[B,T,*]; *width gets the last dimension. */
static atom_status take_act(const graph *g, const graph_node *n, int i, int64_t *width)
{
    const graph_tensor *t = &g->tensors[n->in[i]];
    char buf[64];
    if (t->kind != GRAPH_ACT || t->rank != 3 || t->dims[0] != g->micro_batch ||
        t->dims[1] != g->sequence)
        return atom_fail(ATOM_E_FORMAT, "input %d, \"%s\", is %s%s, must be act[%lld,%lld,*]", i,
                         t->name, graph_kind_names[t->kind], dims_text(t->rank, t->dims, buf),
                         (long long)g->micro_batch, (long long)g->sequence);
    *width = t->dims[2];
    return ATOM_OK;
}

/* Input i must be i32[B,T] and come from outside: tokens or targets. */
static atom_status take_ids(const graph *g, const graph_node *n, int i)
{
    const graph_tensor *t = &g->tensors[n->in[i]];
    char buf[64];
    if (t->kind != GRAPH_I32 || t->rank != 2 || t->dims[0] != g->micro_batch ||
        t->dims[1] != g->sequence || t->producer != GRAPH_NONE)
        return atom_fail(ATOM_E_FORMAT,
                         "input %d, \"%s\", is %s%s, must be a graph input i32[%lld,%lld]", i,
                         t->name, graph_kind_names[t->kind], dims_text(t->rank, t->dims, buf),
                         (long long)g->micro_batch, (long long)g->sequence);
    return ATOM_OK;
}

/* Parameter i must have these dims; 0 means any. */
static atom_status take_param(const graph *g, const graph_node *n, int i, int rank, int64_t d0,
                              int64_t d1)
{
    const graph_param *p = &g->params[n->params[i]];
    int64_t want[2] = {d0, d1};
    bool good = p->rank == rank;
    for (int k = 0; good && k < rank; k++)
        good = want[k] == 0 || p->dims[k] == want[k];
    if (good)
        return ATOM_OK;
    char got[64], first[24] = "*", second[32] = "";
    if (d0)
        snprintf(first, sizeof first, "%lld", (long long)d0);
    if (rank == 2 && d1)
        snprintf(second, sizeof second, ",%lld", (long long)d1);
    else if (rank == 2)
        snprintf(second, sizeof second, ",*");
    return atom_fail(ATOM_E_FORMAT, "parameter %d, \"%s\", is %s, must be [%s%s]", i, p->name,
                     dims_text(p->rank, p->dims, got), first, second);
}

static graph_shape act(const graph *g, int64_t width)
{
    return (graph_shape){
        .kind = GRAPH_ACT, .rank = 3, .dims = {g->micro_batch, g->sequence, width}, .suffix = ""};
}

static graph_shape rows(const graph *g, const char *suffix)
{
    return (graph_shape){
        .kind = GRAPH_F32, .rank = 2, .dims = {g->micro_batch, g->sequence}, .suffix = suffix};
}

static atom_status infer_embed(const graph *g, const graph_node *n, graph_shape *out)
{
    ATOM_TRY(take_ids(g, n, 0));
    ATOM_TRY(take_param(g, n, 0, 2, 0, 0));
    int64_t C = g->params[n->params[0]].dims[1];
    if (n->n_params == 2)
        ATOM_TRY(take_param(g, n, 1, 2, 0, C));
    int64_t P = n->n_params == 2 ? g->params[n->params[1]].dims[0] : g->sequence;
    if (P < g->sequence)
        return atom_fail(ATOM_E_FORMAT, "%lld positions are too few for a sequence of %lld",
                         (long long)P, (long long)g->sequence);
    out[0] = act(g, C);
    return ATOM_OK;
}

static atom_status infer_layernorm(const graph *g, const graph_node *n, graph_shape *out,
                                   graph_shape *saved)
{
    int64_t C;
    ATOM_TRY(take_act(g, n, 0, &C));
    ATOM_TRY(take_param(g, n, 0, 1, C, 0));
    if (n->n_params == 2)
        ATOM_TRY(take_param(g, n, 1, 1, C, 0));
    out[0] = act(g, C);
    saved[0] = rows(g, ".mean");
    saved[1] = rows(g, ".rstd");
    return ATOM_OK;
}

static atom_status infer_linear(const graph *g, const graph_node *n, graph_shape *out,
                                graph_shape *saved)
{
    int64_t I;
    ATOM_TRY(take_act(g, n, 0, &I));
    ATOM_TRY(take_param(g, n, 0, 2, 0, I));
    int64_t O = g->params[n->params[0]].dims[0];
    if (n->n_params == 2)
        ATOM_TRY(take_param(g, n, 1, 1, O, 0));
    out[0] = act(g, O);
    if (n->op == ATOM_OP_linear_gelu) {
        saved[0] = act(g, O);
        saved[0].suffix = ".u";
    }
    return ATOM_OK;
}

/* qkv[B,T,(H+2K)D]: input 0 of attention, headnorm and rope. */
static atom_status take_qkv(const graph *g, const graph_node *n, int64_t *width, int64_t *D)
{
    int64_t H = n->heads, K = n->kv_heads ? n->kv_heads : H;
    ATOM_TRY(take_act(g, n, 0, width));
    *D = *width / (H + 2 * K);
    if (*D < 1 || *width % (H + 2 * K) != 0)
        return atom_fail(
            ATOM_E_FORMAT,
            "width %lld is not a whole multiple of %lld heads and twice %lld key heads",
            (long long)*width, (long long)H, (long long)K);
    return ATOM_OK;
}

static atom_status infer_attention(const graph *g, const graph_node *n, graph_shape *out,
                                   graph_shape *saved)
{
    int64_t width, D;
    ATOM_TRY(take_qkv(g, n, &width, &D));
    out[0] = act(g, n->heads * D);
    saved[0] = (graph_shape){.kind = GRAPH_F32,
                             .rank = 3,
                             .dims = {g->micro_batch, n->heads, g->sequence},
                             .suffix = ".lse"};
    return ATOM_OK;
}

static atom_status infer_headnorm(const graph *g, const graph_node *n, graph_shape *out,
                                  graph_shape *saved)
{
    int64_t width, D, heads = n->heads + (n->kv_heads ? n->kv_heads : n->heads);
    ATOM_TRY(take_qkv(g, n, &width, &D));
    ATOM_TRY(take_param(g, n, 0, 1, D, 0));
    ATOM_TRY(take_param(g, n, 1, 1, D, 0));
    out[0] = act(g, width);
    saved[0] = (graph_shape){.kind = GRAPH_F32,
                             .rank = 3,
                             .dims = {g->micro_batch, g->sequence, heads},
                             .suffix = ".rstd"};
    return ATOM_OK;
}

static atom_status infer_rope(const graph *g, const graph_node *n, graph_shape *out)
{
    int64_t width, D, divisors = 0;
    ATOM_TRY(take_qkv(g, n, &width, &D));
    if (D % 2 != 0)
        return atom_fail(ATOM_E_FORMAT, "heads of %lld channels cannot be halved", (long long)D);
    if (n->rope.width > D)
        return atom_fail(ATOM_E_FORMAT, "width=%d, but heads have %lld channels", n->rope.width,
                         (long long)D);
    while (divisors < ATOM_ROPE_DIVISORS_MAX && n->rope.divisors[divisors] > 0)
        divisors++;
    if (divisors > 0 && 2 * divisors != atom_rope_width(&n->rope, D))
        return atom_fail(ATOM_E_FORMAT, "%lld divisors, but %lld channels are turned in pairs",
                         (long long)divisors, (long long)atom_rope_width(&n->rope, D));
    out[0] = act(g, width);
    return ATOM_OK;
}

static atom_status infer_rmsnorm(const graph *g, const graph_node *n, graph_shape *out,
                                 graph_shape *saved)
{
    int64_t C;
    ATOM_TRY(take_act(g, n, 0, &C));
    ATOM_TRY(take_param(g, n, 0, 1, C, 0));
    out[0] = act(g, C);
    saved[0] = rows(g, ".rstd");
    return ATOM_OK;
}

static atom_status infer_swiglu(const graph *g, const graph_node *n, graph_shape *out)
{
    int64_t C;
    ATOM_TRY(take_act(g, n, 0, &C));
    if (C % 2 != 0)
        return atom_fail(ATOM_E_FORMAT, "width %lld cannot be halved", (long long)C);
    out[0] = act(g, C / 2);
    return ATOM_OK;
}

static atom_status infer_maxout(const graph *g, const graph_node *n, graph_shape *out)
{
    int64_t C;
    ATOM_TRY(take_act(g, n, 0, &C));
    if (C % n->window != 0)
        return atom_fail(ATOM_E_FORMAT, "width %lld is not a whole multiple of window %lld",
                         (long long)C, (long long)n->window);
    out[0] = act(g, C / n->window);
    return ATOM_OK;
}

static atom_status infer_lora(const graph *g, const graph_node *n, graph_shape *out)
{
    int64_t W, R;
    ATOM_TRY(take_act(g, n, 0, &W));
    ATOM_TRY(take_act(g, n, 1, &R));
    ATOM_TRY(take_param(g, n, 0, 2, 0, R));
    int64_t O = g->params[n->params[0]].dims[0];
    if (n->first > W - O)
        return atom_fail(ATOM_E_FORMAT, "columns %d to %lld of %lld", n->first,
                         (long long)(n->first + O), (long long)W);
    out[0] = act(g, W);
    return ATOM_OK;
}

static atom_status infer_rownorm(const graph *g, const graph_node *n, graph_shape *out)
{
    ATOM_TRY(take_param(g, n, 0, 2, 0, 0));
    const graph_param *w = &g->params[n->params[0]];
    ATOM_TRY(take_param(g, n, 1, 2, 0, w->dims[1]));
    ATOM_TRY(take_param(g, n, 2, 2, 0, g->params[n->params[1]].dims[0]));
    int64_t O = g->params[n->params[2]].dims[0];
    if (n->first > w->dims[0] - O)
        return atom_fail(ATOM_E_FORMAT, "rows %d to %lld of %lld", n->first,
                         (long long)(n->first + O), (long long)w->dims[0]);
    out[0] = (graph_shape){.kind = GRAPH_F32, .rank = 1, .dims = {O}, .suffix = ""};
    return ATOM_OK;
}

static atom_status infer_dora(const graph *g, const graph_node *n, graph_shape *out)
{
    const graph_tensor *norm = &g->tensors[n->in[1]];
    char buf[64];
    int64_t W;
    ATOM_TRY(take_act(g, n, 0, &W));
    ATOM_TRY(take_param(g, n, 0, 1, 0, 0));
    if (n->n_params == 2)
        ATOM_TRY(take_param(g, n, 1, 1, W, 0));
    int64_t O = g->params[n->params[0]].dims[0];
    if (norm->kind != GRAPH_F32 || norm->rank != 1 || norm->dims[0] != O)
        return atom_fail(ATOM_E_FORMAT, "input 1, \"%s\", is %s%s, must be f32[%lld]", norm->name,
                         graph_kind_names[norm->kind], dims_text(norm->rank, norm->dims, buf),
                         (long long)O);
    if (n->first > W - O)
        return atom_fail(ATOM_E_FORMAT, "columns %d to %lld of %lld", n->first,
                         (long long)(n->first + O), (long long)W);
    out[0] = act(g, W);
    return ATOM_OK;
}

/* dropout, gelu, add, dropout_add: as the first input. */
static atom_status infer_alike(const graph *g, const graph_node *n, graph_shape *out)
{
    int64_t C, C1;
    ATOM_TRY(take_act(g, n, 0, &C));
    if (atom_op_get(n->op)->ins == 2) {
        ATOM_TRY(take_act(g, n, 1, &C1));
        if (C1 != C)
            return atom_fail(ATOM_E_FORMAT, "its inputs are %lld and %lld wide", (long long)C,
                             (long long)C1);
    }
    out[0] = act(g, C);
    return ATOM_OK;
}

static atom_status infer_loss(const graph *g, const graph_node *n, graph_shape *out)
{
    int64_t C;
    ATOM_TRY(take_act(g, n, 0, &C));
    ATOM_TRY(take_ids(g, n, 1));
    if (n->op == ATOM_OP_classifier)
        ATOM_TRY(take_param(g, n, 0, 2, 0, C));
    out[0] = rows(g, "");
    return ATOM_OK;
}

atom_status graph_infer(const graph *g, const graph_node *n, graph_shape out[GRAPH_OUT_MAX],
                        graph_shape saved[GRAPH_SAVED_MAX])
{
    const atom_op_info *op = atom_op_get(n->op);
    atom_status st = ATOM_OK;
    switch (n->op) {
    case ATOM_OP_embed:
        st = infer_embed(g, n, out);
        break;
    case ATOM_OP_layernorm:
        st = infer_layernorm(g, n, out, saved);
        break;
    case ATOM_OP_linear:
    case ATOM_OP_linear_gelu:
        st = infer_linear(g, n, out, saved);
        break;
    case ATOM_OP_attention:
        st = infer_attention(g, n, out, saved);
        break;
    case ATOM_OP_rmsnorm:
        st = infer_rmsnorm(g, n, out, saved);
        break;
    case ATOM_OP_headnorm:
        st = infer_headnorm(g, n, out, saved);
        break;
    case ATOM_OP_rope:
        st = infer_rope(g, n, out);
        break;
    case ATOM_OP_swiglu:
    case ATOM_OP_geglu:
        st = infer_swiglu(g, n, out);
        break;
    case ATOM_OP_maxout:
        st = infer_maxout(g, n, out);
        break;
    case ATOM_OP_lora:
        st = infer_lora(g, n, out);
        break;
    case ATOM_OP_rownorm:
        st = infer_rownorm(g, n, out);
        break;
    case ATOM_OP_dora:
        st = infer_dora(g, n, out);
        break;
    case ATOM_OP_dropout:
    case ATOM_OP_gelu:
    case ATOM_OP_gelu_erf:
    case ATOM_OP_relu:
    case ATOM_OP_relu2:
    case ATOM_OP_silu:
    case ATOM_OP_scale:
    case ATOM_OP_compress:
    case ATOM_OP_add:
    case ATOM_OP_dropout_add:
        st = infer_alike(g, n, out);
        break;
    case ATOM_OP_cross_entropy:
    case ATOM_OP_classifier:
        st = infer_loss(g, n, out);
        break;
    case ATOM_OP_N:
        ATOM_ASSERT(n->op != ATOM_OP_N);
    }
    uint64_t elements;
    for (int i = 0; i < op->outs && st == ATOM_OK; i++)
        st = graph_dims_check("output", out[i].rank, out[i].dims, &elements);
    for (int i = 0; i < op->saved && st == ATOM_OK; i++)
        st = graph_dims_check("saved tensor", saved[i].rank, saved[i].dims, &elements);
    return st;
}

atom_dtype graph_tensor_dtype(const graph *g, int32_t tensor)
{
    switch (g->tensors[tensor].kind) {
    case GRAPH_ACT:
        return g->dtype;
    case GRAPH_F32:
        return ATOM_F32;
    case GRAPH_I32:
        return ATOM_I32;
    }
    return g->dtype;
}

uint64_t graph_tensor_elements(const graph *g, int32_t tensor)
{
    const graph_tensor *t = &g->tensors[tensor];
    uint64_t elements = 1;
    for (int i = 0; i < t->rank; i++)
        elements *= (uint64_t)t->dims[i];
    return elements;
}

uint64_t graph_tensor_bytes(const graph *g, int32_t tensor)
{
    return graph_tensor_elements(g, tensor) * atom_dtype_bytes(graph_tensor_dtype(g, tensor));
}

uint64_t graph_node_param_bytes(const graph *g, int32_t node)
{
    const graph_node *n = &g->nodes[node];
    uint64_t elements = 0;
    for (int i = 0; i < n->n_params; i++)
        elements += g->params[n->params[i]].elements;
    return elements * atom_dtype_bytes(g->dtype);
}

/* Operations per element of the elementwise part of an op: what its arithmetic needs, with a
 * division, a square root or an exponential counted as one. Only totals and rooflines read it. */
static double elementwise_flops(atom_op op, bool backward)
{
    static const double table[ATOM_OP_N][2] = {
        [ATOM_OP_embed] = {1, 2},        [ATOM_OP_dropout] = {1, 1},
        [ATOM_OP_layernorm] = {8, 14},   [ATOM_OP_gelu] = {9, 15},
        [ATOM_OP_add] = {1, 1},          [ATOM_OP_cross_entropy] = {4, 7},
        [ATOM_OP_linear_gelu] = {9, 15}, [ATOM_OP_dropout_add] = {2, 2},
        [ATOM_OP_rmsnorm] = {4, 9},      [ATOM_OP_headnorm] = {4, 9},
        [ATOM_OP_rope] = {3, 3},         [ATOM_OP_swiglu] = {6, 12},
        [ATOM_OP_gelu_erf] = {25, 30},   [ATOM_OP_relu] = {1, 2},
        [ATOM_OP_relu2] = {2, 3},        [ATOM_OP_silu] = {4, 8},
        [ATOM_OP_scale] = {1, 1},        [ATOM_OP_compress] = {8, 8},
        [ATOM_OP_geglu] = {10, 17},      [ATOM_OP_dora] = {3, 6},
    };
    return table[op][backward];
}

/* Does the node train parameter i? */
static bool trains(const graph *g, const graph_node *n, int i)
{
    return i < n->n_params && !g->params[n->params[i]].frozen;
}

/* How many rows a row of attention sees, on average: half of all, or what its window leaves. */
static double pairs_per_row(const graph *g, const graph_node *n)
{
    double T = (double)g->sequence, W = (double)n->window;
    return W > 0 && W < T ? W - W * W / (2 * T) : T / 2;
}

double graph_node_flops(const graph *g, int32_t node, bool backward)
{
    const graph_node *n = &g->nodes[node];
    int32_t wide = n->op == ATOM_OP_cross_entropy ? n->in[0] : n->out[0];
    double elements = (double)graph_tensor_elements(g, wide);
    double flops = elements * elementwise_flops(n->op, backward);
    double tokens = (double)(g->micro_batch * g->sequence);
    double d_in = graph_grad_mode(g, node, 0) != GRAPH_GRAD_NONE, d_w = trains(g, n, 0);
    if (backward && !graph_node_backward(g, node))
        return 0;
    switch (n->op) {
    case ATOM_OP_linear:
    case ATOM_OP_linear_gelu: {
        double product = 2 * tokens * (double)g->params[n->params[0]].elements;
        return flops + (backward ? (d_in + d_w) * product : product);
    }
    case ATOM_OP_maxout: /* a comparison of each of its inputs */
        return (backward ? 2 : 1) * elements * (double)n->window;
    case ATOM_OP_lora:
        return elements +
               2 * tokens * (double)g->params[n->params[0]].elements * (backward ? 2 : 1);
    case ATOM_OP_rownorm: /* b a, then scale, w, square and sum */
        return elements * (double)g->params[n->params[0]].dims[1] *
               (2 * (double)g->params[n->params[1]].dims[0] + 4);
    case ATOM_OP_attention: /* q k' and p v, each 2 B H D per pair that is seen; backward: five */
        return 4 * elements * pairs_per_row(g, n) * (backward ? 2.5 : 1);
    case ATOM_OP_classifier:
        return 2 * tokens * (double)g->params[n->params[0]].elements *
               (backward ? 1 + d_in + d_w : 1);
    default:
        return flops;
    }
}
