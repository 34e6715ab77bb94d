/*
 * Owns the life of a graph: open, add, seal, close. One idea: a graph is checked where it is made
 * (each node when it is added, the whole when it is sealed), so that nobody downstream has to doubt
 * it. Refuses names that the text form could not carry, parameters out of canonical order, dead
 * nodes, and anything but one loss at the end.
 */
#include "atom/graph/graph.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/graph/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '/' || c == ':' || c == '+';
}

/* Copies a name that must be 1 .. GRAPH_NAME_MAX-1-spare characters of [A-Za-z0-9._/:+-]. */
static atom_status name_copy(char *to, const char *name, size_t spare, const char *what)
{
    size_t n = strnlen(name, GRAPH_NAME_MAX);
    if (n == 0)
        return atom_fail(ATOM_E_FORMAT, "a %s has no name; give it one", what);
    for (size_t i = 0; i < n; i++)
        if (!name_char(name[i]))
            return atom_fail(ATOM_E_FORMAT,
                             "the name of a %s has a character (0x%02x, at place %zu) other than "
                             "letters, digits and . _ - / : +",
                             what, (unsigned)(unsigned char)name[i], i);
    if (n >= GRAPH_NAME_MAX - spare)
        return atom_fail(ATOM_E_FORMAT, "the name of %s \"%.*s\" is longer than %zu characters",
                         what, GRAPH_NAME_MAX, name, GRAPH_NAME_MAX - 1 - spare);
    memset(to, 0, GRAPH_NAME_MAX);
    memcpy(to, name, n);
    return ATOM_OK;
}

/* The graph's own name may come from a directory: what does not fit is replaced, not refused. */
static void name_clean(char *to, const char *name)
{
    size_t n = name ? strnlen(name, GRAPH_NAME_MAX - 1) : 0;
    memset(to, 0, GRAPH_NAME_MAX);
    for (size_t i = 0; i < n; i++)
        to[i] = name_char(name[i]) ? name[i] : '_';
    if (n == 0)
        memcpy(to, "graph", 5);
}

atom_status graph_open(const char *name, atom_dtype dtype, int64_t B, int64_t T, graph **out)
{
    if (dtype != ATOM_F32 && dtype != ATOM_BF16)
        return atom_fail(ATOM_E_FORMAT, "a graph's dtype is fp32 or bf16");
    if (B < 1 || T < 1 || B > GRAPH_DIM_MAX || T > GRAPH_DIM_MAX || B * T > GRAPH_DIM_MAX)
        return atom_fail(ATOM_E_FORMAT,
                         "micro-batch %lld x sequence %lld: each must be at least 1 and their "
                         "product below 2^31",
                         (long long)B, (long long)T);
    graph *g = atom_alloc(1, sizeof *g);
    if (!g)
        return atom_fail_memory("a graph", sizeof *g);
    name_clean(g->name, name);
    g->dtype = dtype;
    g->micro_batch = B;
    g->sequence = T;
    g->tokens = g->targets = g->loss = GRAPH_NONE;
    *out = g;
    return ATOM_OK;
}

void graph_set_packed(graph *g, bool packed)
{
    g->packed = packed;
}

void graph_set_tied_files(graph *g, bool tied_files)
{
    g->tied_files = tied_files;
}

void graph_set_moments(graph *g, atom_dtype moments)
{
    ATOM_ASSERT(moments == ATOM_F32 || moments == ATOM_BF16);
    g->moments = moments;
}

void graph_close(graph **g)
{
    if (!g || !*g)
        return;
    atom_free((*g)->tensors);
    atom_free((*g)->params);
    atom_free((*g)->nodes);
    atom_free((*g)->stored);
    graph_buffers_release(&(*g)->buffers);
    atom_free(*g);
    *g = NULL;
}

int graph_stored_order(const void *a, const void *b)
{
    const graph_stored *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->from < y->from ? -1 : x->from > y->from;
}

atom_status graph_set_stored(graph *g, const graph_stored *stored, uint32_t n)
{
    graph_stored *copy = n ? atom_alloc(n, sizeof *copy) : NULL;
    if (n && !copy)
        return atom_fail_memory("the names of tensors", (uint64_t)n * sizeof *copy);
    if (n) {
        memcpy(copy, stored, n * sizeof *copy);
        qsort(copy, n, sizeof *copy, graph_stored_order);
    }
    atom_free(g->stored);
    g->stored = copy;
    g->n_stored = n;
    return ATOM_OK;
}

/* Makes room for `more` tensors, so that what follows cannot fail half-way. */
static atom_status tensors_room(graph *g, uint32_t more)
{
    for (uint32_t i = 0; i < more; i++) {
        ATOM_TRY(atom_grow(&g->tensors, g->n_tensors + i, &g->tensors_room, sizeof *g->tensors));
    }
    return ATOM_OK;
}

/* Room is there. */
static int32_t tensor_add(graph *g, const char *name, const graph_shape *shape, int32_t producer)
{
    graph_tensor *t = &g->tensors[g->n_tensors];
    *t = (graph_tensor){
        .kind = shape->kind, .rank = shape->rank, .producer = producer, .last_use = GRAPH_NONE};
    size_t n = strlen(name), m = strlen(shape->suffix);
    ATOM_ASSERT(n + m < GRAPH_NAME_MAX);
    memcpy(t->name, name, n);
    memcpy(t->name + n, shape->suffix, m);
    for (int i = 0; i < shape->rank; i++)
        t->dims[i] = shape->dims[i];
    return (int32_t)g->n_tensors++;
}

atom_status graph_add_input(graph *g, const char *name, graph_kind kind, int rank,
                            const int64_t *dims, int32_t *id)
{
    ATOM_ASSERT(!g->sealed);
    char checked[GRAPH_NAME_MAX];
    uint64_t elements;
    ATOM_TRY(name_copy(checked, name, 0, "graph input"));
    ATOM_TRY(graph_dims_check(checked, rank, dims, &elements));
    if (kind != GRAPH_ACT && kind != GRAPH_F32 && kind != GRAPH_I32)
        return atom_fail(ATOM_E_FORMAT, "graph input \"%s\": unknown kind", checked);
    if (g->n_tensors >= GRAPH_NODES_MAX)
        return atom_fail(ATOM_E_FORMAT, "more than %d tensors", GRAPH_NODES_MAX);
    graph_shape shape = {.kind = kind, .rank = (uint8_t)rank, .suffix = ""};
    memcpy(shape.dims, dims, (size_t)rank * sizeof *dims);
    ATOM_TRY(tensors_room(g, 1));
    *id = tensor_add(g, checked, &shape, GRAPH_NONE);
    return ATOM_OK;
}

atom_status graph_add_param(graph *g, const char *name, int rank, const int64_t *dims,
                            graph_init init, float std, int32_t *id)
{
    ATOM_ASSERT(!g->sealed);
    graph_param p = {.rank = (uint8_t)rank,
                     .decay = rank >= 2,
                     .init = init,
                     .init_std = std,
                     .first_node = GRAPH_NONE,
                     .last_node = GRAPH_NONE};
    ATOM_TRY(name_copy(p.name, name, 0, "parameter"));
    ATOM_TRY(graph_dims_check(p.name, rank, dims, &p.elements));
    memcpy(p.dims, dims, (size_t)rank * sizeof *dims);
    bool random = init == GRAPH_INIT_NORMAL || init == GRAPH_INIT_UNIFORM;
    if (init != GRAPH_INIT_ZERO && init != GRAPH_INIT_ONE && !random)
        return atom_fail(ATOM_E_FORMAT, "parameter \"%s\": unknown initialisation", p.name);
    if (!isfinite(std) || std < 0 || signbit(std) || (!random && std != 0))
        return atom_fail(ATOM_E_FORMAT,
                         "parameter \"%s\": init std %g; it must be 0 or more, and 0 unless the "
                         "initialisation is normal or uniform",
                         p.name, (double)std);
    if (g->n_params >= GRAPH_NODES_MAX)
        return atom_fail(ATOM_E_FORMAT, "more than %d parameters", GRAPH_NODES_MAX);
    ATOM_TRY(atom_grow(&g->params, g->n_params, &g->params_room, sizeof *g->params));
    g->params[g->n_params] = p;
    *id = (int32_t)g->n_params++;
    return ATOM_OK;
}

void graph_freeze(graph *g, int32_t param)
{
    ATOM_ASSERT(!g->sealed && param >= 0 && (uint32_t)param < g->n_params);
    g->params[param].frozen = true;
}

static bool rope_number(float x)
{
    return isfinite(x) && x >= 0 && !signbit(x);
}

/* What few ropes have. */
static atom_status rope_parts_check(const graph_node *n)
{
    const atom_rope *r = &n->rope;
    bool has = r->gain != 0 || r->width != 0 || r->yarn != 0 || r->divisors[0] != 0;
    bool good = rope_number(r->gain) && r->width >= 0 && r->width % 2 == 0 &&
                (r->yarn == 0 || (r->yarn == 1 && r->original > 0)) &&
                (r->divisors[0] == 0 || (r->original == 0 && r->factor == 1));
    for (int i = 0; i < ATOM_ROPE_DIVISORS_MAX; i++)
        good = good && rope_number(r->divisors[i]) &&
               (i == 0 || r->divisors[i] == 0 || r->divisors[i - 1] > 0);
    if (good && (n->op == ATOM_OP_rope || !has))
        return ATOM_OK;
    return atom_fail(
        ATOM_E_FORMAT,
        "gain=%g width=%d yarn=%d divisors=%g,...; rope takes an even width, yarn with "
        "original > 0, divisors above 0 with factor 1 and original 0; other ops none of "
        "them",
        (double)r->gain, r->width, r->yarn, (double)r->divisors[0]);
}

static atom_status rope_check(const graph_node *n)
{
    const atom_rope *r = &n->rope;
    bool finite = rope_number(r->theta) && rope_number(r->factor) && rope_number(r->low) &&
                  rope_number(r->high) && rope_number(r->original);
    bool none = r->theta == 0 && r->factor == 0 && r->low == 0 && r->high == 0 && r->original == 0;
    bool scaled = r->original > 0 ? r->low > 0 && r->high > r->low : r->low == 0 && r->high == 0;
    ATOM_TRY(rope_parts_check(n));
    if (finite && (n->op == ATOM_OP_rope ? r->theta > 1 && r->factor > 0 && scaled : none))
        return ATOM_OK;
    return atom_fail(
        ATOM_E_FORMAT,
        "theta=%g factor=%g low=%g high=%g original=%g; rope takes theta > 1, factor > "
        "0, and where original > 0 also 0 < low < high; other ops none of them",
        (double)r->theta, (double)r->factor, (double)r->low, (double)r->high, (double)r->original);
}

static atom_status codec_check(const graph_node *n)
{
    bool compress = n->op == ATOM_OP_compress;
    bool known = n->codec > ATOM_CODEC_NONE && n->codec < ATOM_CODEC_N;
    bool whole = known && atom_codec_bits((atom_codec_kind)n->codec);
    if (compress != (n->codec != 0) || (compress && !known))
        return atom_fail(ATOM_E_FORMAT, "codec is %d; compress takes one, other ops none",
                         n->codec);
    if (compress && (n->p != 0 || n->scale > 1 || (whole && n->scale < 1)))
        return atom_fail(ATOM_E_FORMAT,
                         "p is %g and scale %g; compress drops nothing, and its scale is the share "
                         "of the values that topk and randomk send, else 1",
                         (double)n->p, (double)n->scale);
    return ATOM_OK;
}

static atom_status scale_check(const graph_node *n)
{
    bool adapter = n->op == ATOM_OP_lora || n->op == ATOM_OP_rownorm;
    bool scaled = adapter || n->op == ATOM_OP_scale || n->op == ATOM_OP_compress;
    bool may = scaled || n->op == ATOM_OP_attention;
    float scale = n->op == ATOM_OP_scale ? fabsf(n->scale) : n->scale;
    if (!rope_number(scale) || (scaled && !(scale > 0)) || (scale > 0 && !may) || n->first < 0 ||
        (n->first && !adapter && n->op != ATOM_OP_dora))
        return atom_fail(ATOM_E_FORMAT,
                         "scale is %g and first %d; lora, rownorm and compress take a scale above "
                         "0, scale takes one that is not 0, attention may have one; lora, rownorm "
                         "and dora take a first column, other ops none",
                         (double)n->scale, n->first);
    return ATOM_OK;
}

/* Operands exist, are not used twice, and the attributes belong to the op. */
static atom_status node_check(const graph *g, const graph_node *n, const atom_op_info *op)
{
    if (n->n_params < op->params_min || n->n_params > op->params_max)
        return atom_fail(ATOM_E_FORMAT, "has %d parameters, takes %d to %d", n->n_params,
                         op->params_min, op->params_max);
    for (int i = 0; i < op->ins; i++) {
        if (n->in[i] < 0 || (uint32_t)n->in[i] >= g->n_tensors)
            return atom_fail(ATOM_E_FORMAT, "input %d is not a tensor made before it", i);
        const graph_tensor *t = &g->tensors[n->in[i]];
        if (t->producer != GRAPH_NONE && g->nodes[t->producer].out[0] != n->in[i])
            return atom_fail(
                ATOM_E_FORMAT,
                "input %d, \"%s\", is saved for a backward pass and cannot be an input", i,
                t->name);
    }
    if (op->ins == 2 && n->in[0] == n->in[1])
        return atom_fail(ATOM_E_FORMAT, "its two inputs are the same tensor");
    for (int i = 0; i < n->n_params; i++)
        if (n->params[i] < 0 || (uint32_t)n->params[i] >= g->n_params)
            return atom_fail(ATOM_E_FORMAT, "parameter %d does not exist", i);
    for (int i = 1; i < n->n_params; i++)
        for (int j = 0; j < i; j++)
            if (n->params[i] == n->params[j])
                return atom_fail(ATOM_E_FORMAT, "two of its parameters are the same");
    bool norm = n->op == ATOM_OP_layernorm || n->op == ATOM_OP_rmsnorm || n->op == ATOM_OP_headnorm;
    if (norm ? !(n->eps > 0 && n->eps < 1) : n->eps != 0)
        return atom_fail(ATOM_E_FORMAT, "eps is %g; norms take 0 < eps < 1, other ops none",
                         (double)n->eps);
    bool lifts = n->lift == 0 || (n->lift == 1 && norm && n->op != ATOM_OP_layernorm);
    if (!lifts || signbit(n->lift))
        return atom_fail(ATOM_E_FORMAT, "lift is %g; rmsnorm and headnorm take 0 or 1, other ops 0",
                         (double)n->lift);
    bool caps = n->op == ATOM_OP_attention || (op->flags & ATOM_OP_TERMINAL);
    if (!rope_number(n->cap) || (n->cap > 0 && !caps))
        return atom_fail(ATOM_E_FORMAT,
                         "cap is %g; attention and losses may have one above 0, other ops none",
                         (double)n->cap);
    bool random = op->flags & ATOM_OP_RANDOM;
    if (!(n->p >= 0 && n->p < 1) || signbit(n->p) || (!random && n->p != 0))
        return atom_fail(ATOM_E_FORMAT,
                         "dropout probability %g; it must be in [0, 1), and 0 where nothing is "
                         "dropped",
                         (double)n->p);
    bool headed = n->op == ATOM_OP_attention || n->op == ATOM_OP_headnorm || n->op == ATOM_OP_rope;
    if (headed ? n->heads < 1 : n->heads != 0)
        return atom_fail(ATOM_E_FORMAT, "heads is %d; attention takes 1 or more, other ops none",
                         n->heads);
    if (n->kv_heads < 0 || (n->kv_heads != 0 && (!headed || n->heads % n->kv_heads != 0)))
        return atom_fail(ATOM_E_FORMAT,
                         "kv_heads is %d of %d heads; it must divide them, and only attention, "
                         "headnorm and rope take it",
                         n->kv_heads, n->heads);
    bool maxout = n->op == ATOM_OP_maxout;
    if (n->window < (maxout ? 2 : 0) || (n->window > 0 && n->op != ATOM_OP_attention && !maxout))
        return atom_fail(ATOM_E_FORMAT,
                         "window is %lld; only attention takes one, of 1 or more, and maxout needs "
                         "one of 2 or more",
                         (long long)n->window);
    ATOM_TRY(scale_check(n));
    ATOM_TRY(codec_check(n));
    return rope_check(n);
}

atom_status graph_add_node_rng(graph *g, const graph_node *node, uint32_t rng, int32_t *out)
{
    ATOM_ASSERT(!g->sealed);
    if ((unsigned)node->op >= ATOM_OP_N)
        return atom_fail(ATOM_E_FORMAT, "node \"%.63s\": unknown op", node->name);
    const atom_op_info *op = atom_op_get(node->op);
    graph_node n = *node;
    graph_shape outs[GRAPH_OUT_MAX], saved[GRAPH_SAVED_MAX];
    atom_status st = ATOM_OK;
    ATOM_TRY(name_copy(n.name, node->name, sizeof ".mean" - 1, "node"));
    ATOM_TRY_CLEAN(node_check(g, &n, op));
    ATOM_TRY_CLEAN(graph_infer(g, &n, outs, saved));
    if (g->n_nodes >= GRAPH_NODES_MAX)
        return atom_fail(ATOM_E_FORMAT, "more than %d nodes", GRAPH_NODES_MAX);
    ATOM_TRY(atom_grow(&g->nodes, g->n_nodes, &g->nodes_room, sizeof *g->nodes));
    ATOM_TRY(tensors_room(g, (uint32_t)op->outs + op->saved));

    n.rng = rng;
    for (int i = op->ins; i < GRAPH_IN_MAX; i++)
        n.in[i] = GRAPH_NONE;
    for (int i = n.n_params; i < GRAPH_PARAM_MAX; i++)
        n.params[i] = GRAPH_NONE;
    int32_t index = (int32_t)g->n_nodes;
    for (int i = 0; i < GRAPH_OUT_MAX; i++)
        n.out[i] = i < op->outs ? tensor_add(g, n.name, &outs[i], index) : GRAPH_NONE;
    for (int i = 0; i < GRAPH_SAVED_MAX; i++)
        n.saved[i] = i < op->saved ? tensor_add(g, n.name, &saved[i], index) : GRAPH_NONE;
    g->nodes[g->n_nodes++] = n;
    *out = n.out[0];
    return ATOM_OK;
cleanup:
    return atom_fail_in(st, "node \"%s\" (%s): ", n.name, op->name);
}

atom_status graph_add_node(graph *g, const graph_node *node, int32_t *out)
{
    return graph_add_node_rng(g, node, node->rng ? node->rng : g->n_nodes, out);
}

/* last_use of every tensor; tokens, targets and the loss. */
static atom_status seal_tensors(graph *g)
{
    g->tokens = g->targets = g->loss = GRAPH_NONE;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const graph_node *node = &g->nodes[n];
        const atom_op_info *op = atom_op_get(node->op);
        for (int i = 0; i < op->ins; i++)
            g->tensors[node->in[i]].last_use = (int32_t)n;
        bool last = n + 1 == g->n_nodes, terminal = op->flags & ATOM_OP_TERMINAL;
        if (terminal != last)
            return atom_fail(
                ATOM_E_FORMAT, "node \"%s\" (%s): a graph ends in its one loss; %s", node->name,
                op->name, last ? "the last node is not a loss" : "this one is not the last node");
        if (node->op == ATOM_OP_embed) {
            if (g->tokens != GRAPH_NONE && g->tokens != node->in[0])
                return atom_fail(ATOM_E_FORMAT,
                                 "node \"%s\": a second input of tokens; a graph has one",
                                 node->name);
            g->tokens = node->in[0];
        }
        if (terminal) {
            g->targets = node->in[1];
            g->loss = node->out[0];
        }
    }
    if (g->loss == GRAPH_NONE || g->tokens == GRAPH_NONE)
        return atom_fail(ATOM_E_FORMAT, "the graph has no %s",
                         g->loss == GRAPH_NONE ? "nodes" : "embedding of its tokens");
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const graph_tensor *t = &g->tensors[i];
        bool input = t->producer == GRAPH_NONE;
        if (input && (int32_t)i != g->tokens && (int32_t)i != g->targets)
            return atom_fail(ATOM_E_FORMAT,
                             "graph input \"%s\" is neither the tokens nor the targets", t->name);
        bool output = !input && g->nodes[t->producer].out[0] == (int32_t)i;
        if (output && t->last_use == GRAPH_NONE && (int32_t)i != g->loss)
            return atom_fail(ATOM_E_FORMAT, "nobody uses the output of node \"%s\"; leave it out",
                             t->name);
    }
    return ATOM_OK;
}

/* Places in the canonical vector: what is trained, then what is frozen. */
static atom_status seal_places(graph *g)
{
    g->param_elements = g->param_extent = g->trained_elements = g->trained_extent = 0;
    for (int frozen = 0; frozen < 2; frozen++) {
        for (uint32_t i = 0; i < g->n_params; i++) {
            graph_param *p = &g->params[i];
            if (p->frozen != (bool)frozen)
                continue;
            p->offset = g->param_extent;
            g->param_elements += p->elements;
            g->param_extent +=
                (p->elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN * GRAPH_PARAM_ALIGN;
            if (g->param_extent > GRAPH_ELEMENTS_MAX)
                return atom_fail(ATOM_E_FORMAT, "more than 2^42 parameters, reached at \"%s\"",
                                 p->name);
        }
        if (!frozen) {
            g->trained_elements = g->param_elements;
            g->trained_extent = g->param_extent;
        }
    }
    return ATOM_OK;
}

/* Users, canonical order and places of the parameters. */
static atom_status seal_params(graph *g)
{
    for (uint32_t i = 0; i < g->n_params; i++) {
        g->params[i].first_node = g->params[i].last_node = GRAPH_NONE;
        g->params[i].shared = false;
    }
    int32_t next = 0;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const graph_node *node = &g->nodes[n];
        for (int i = 0; i < node->n_params; i++) {
            graph_param *p = &g->params[node->params[i]];
            if (p->first_node == GRAPH_NONE) {
                if (node->params[i] != next)
                    return atom_fail(ATOM_E_FORMAT,
                                     "parameter \"%s\" is used before \"%s\", which was added "
                                     "before it; add parameters in the order of their first use",
                                     p->name, g->params[next].name);
                next++;
                p->first_node = (int32_t)n;
            }
            p->shared |=
                p->first_node != (int32_t)n && !(atom_op_get(node->op)->flags & ATOM_OP_CONSTANT);
            p->last_node = (int32_t)n;
        }
    }
    if ((uint32_t)next != g->n_params)
        return atom_fail(ATOM_E_FORMAT, "no node uses parameter \"%s\"", g->params[next].name);
    ATOM_TRY(seal_places(g));
    if (g->trained_elements == 0)
        return atom_fail(ATOM_E_FORMAT, "all parameters are frozen: there is nothing to train");
    return ATOM_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names are what the text form refers by: no two tensors, and no two parameters, share one. */
static atom_status seal_names(const graph *g)
{
    uint32_t most = g->n_tensors > g->n_params ? g->n_tensors : g->n_params;
    const char **names = atom_alloc(most, sizeof *names);
    if (!names)
        return atom_fail_memory("names of a graph", (uint64_t)most * sizeof *names);
    atom_status st = ATOM_OK;
    for (int pass = 0; pass < 2 && st == ATOM_OK; pass++) {
        uint32_t n = pass ? g->n_params : g->n_tensors;
        for (uint32_t i = 0; i < n; i++)
            names[i] = pass ? g->params[i].name : g->tensors[i].name;
        qsort(names, n, sizeof *names, compare_names);
        for (uint32_t i = 1; i < n && st == ATOM_OK; i++)
            if (strcmp(names[i - 1], names[i]) == 0)
                st = atom_fail(ATOM_E_FORMAT, "two %s are named \"%s\"",
                               pass ? "parameters" : "tensors", names[i]);
    }
    atom_free(names);
    return st;
}

atom_status graph_seal(graph *g)
{
    ATOM_ASSERT(!g->sealed);
    ATOM_TRY(seal_tensors(g));
    ATOM_TRY(seal_params(g));
    ATOM_TRY(seal_names(g));
    graph_derive_grad(g);
    g->sealed = true;
    return ATOM_OK;
}

void graph_set_forward(graph *g)
{
    ATOM_ASSERT(g->sealed);
    for (uint32_t i = 0; i < g->n_params; i++)
        g->params[i].frozen = true;
    atom_status st = seal_places(g); /* as many elements as before, which were not too many */
    ATOM_ASSERT(st == ATOM_OK);
    graph_derive_grad(g);
}
