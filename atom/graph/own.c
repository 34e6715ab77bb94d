/*
 * Owns models that came as a graph: somebody's own, read from an export. One idea: nothing in a
 * graph but the shapes of its two inputs depends on the micro-batch and the sequence, so adding the
 * same nodes again behind other inputs is the model at other sizes. Refuses sequences beyond what
 * the model was made for.
 */
#include "atom/graph/models.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

void graph_config_free(graph_config *config)
{
    graph_close(&config->own);
}

static bool is_activation(atom_op op)
{
    return op == ATOM_OP_gelu || op == ATOM_OP_swiglu || op == ATOM_OP_geglu ||
           op == ATOM_OP_gelu_erf || op == ATOM_OP_relu || op == ATOM_OP_relu2 ||
           op == ATOM_OP_silu;
}

/* Layers, heads and width are for reports and estimates: those of the last attention. */
atom_status graph_own_describe(const char *name, graph *g, int64_t positions, graph_config *config)
{
    graph_config c = {.family = GRAPH_OWN, .positions = positions, .init_std = 0.02f, .own = g};
    snprintf(c.name, sizeof c.name, "%.*s", GRAPH_NAME_MAX - 1, name);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *node = &g->nodes[i];
        const graph_tensor *out = &g->tensors[node->out[0]];
        if (node->op == ATOM_OP_attention) {
            c.layers++;
            c.heads = node->heads;
            c.kv_heads = node->kv_heads ? node->kv_heads : node->heads;
            c.head_dim = out->dims[2] / c.heads;
        } else if (node->op == ATOM_OP_embed) {
            c.vocab_size = g->params[node->params[0]].dims[0];
            c.width = g->params[node->params[0]].dims[1];
        } else if (is_activation(node->op)) {
            c.inner = out->dims[2];
        } else if (node->op == ATOM_OP_linear && g->tensors[g->loss].producer == (int32_t)i + 1) {
            c.untied = g->params[node->params[0]].first_node == (int32_t)i;
        }
    }
    atom_status st = graph_own_check(&c);
    if (st == ATOM_OK)
        *config = c;
    return st;
}

atom_status graph_own_check(const graph_config *c)
{
    if (!c->own || c->vocab_size < 1 || c->width < 1)
        return atom_fail(ATOM_E_FORMAT, "the graph has no embedding of tokens");
    if (c->positions < 1)
        return atom_fail(ATOM_E_FORMAT, "the model has no positions");
    return ATOM_OK;
}

static atom_status copy_params(const graph *from, graph *to)
{
    for (uint32_t i = 0; i < from->n_params; i++) {
        const graph_param *p = &from->params[i];
        int32_t id;
        ATOM_TRY(graph_add_param(to, p->name, p->rank, p->dims, p->init, p->init_std, &id));
        if (p->frozen)
            graph_freeze(to, id);
    }
    return ATOM_OK;
}

/* tensor: by id in `from`, the id in `to`. */
static atom_status copy_nodes(const graph *from, graph *to, int32_t *tensor)
{
    int64_t dims[2] = {to->micro_batch, to->sequence};
    for (uint32_t i = 0; i < from->n_tensors; i++) {
        const graph_tensor *t = &from->tensors[i];
        if (t->producer == GRAPH_NONE)
            ATOM_TRY(graph_add_input(to, t->name, t->kind, 2, dims, &tensor[i]));
    }
    for (uint32_t i = 0; i < from->n_nodes; i++) {
        graph_node node = from->nodes[i];
        for (int k = 0; k < atom_op_get(node.op)->ins; k++)
            node.in[k] = tensor[node.in[k]];
        ATOM_TRY(graph_add_node(to, &node, &tensor[from->nodes[i].out[0]]));
    }
    return ATOM_OK;
}

atom_status graph_own_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                            graph **out)
{
    graph *g = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(graph_own_check(c));
    if (T > c->positions)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len is %lld but the model was exported for %lld positions; "
                         "shorten sequence_len, or export it for more",
                         (long long)T, (long long)c->positions);
    int32_t *tensor = atom_alloc(c->own->n_tensors, sizeof *tensor);
    if (!tensor)
        return atom_fail_memory("a graph", (uint64_t)c->own->n_tensors * sizeof *tensor);
    ATOM_TRY_CLEAN(graph_open(c->name, dtype, B, T, &g));
    ATOM_TRY_CLEAN(copy_params(c->own, g));
    ATOM_TRY_CLEAN(copy_nodes(c->own, g, tensor));
    ATOM_TRY_CLEAN(graph_set_stored(g, c->own->stored, c->own->n_stored));
    graph_set_buffers(g, c->own->buffers);
    ATOM_TRY_CLEAN(graph_seal(g));
    *out = g;
    g = NULL;
cleanup:
    atom_free(tensor);
    graph_close(&g);
    return st;
}

/* --- is it the same? ---------------------------------------------------------------------------- */

/* The nodes of a graph in order, without dropout. number[t]: which of them made tensor t; below 0: an input. */
typedef struct walk {
    const graph *g;
    uint32_t at;
    int32_t made;
    int32_t *number;
} walk;

static atom_status walk_begin(walk *w, const graph *g)
{
    int32_t inputs = 0;
    *w = (walk){.g = g, .number = atom_alloc(g->n_tensors, sizeof *w->number)};
    if (!w->number)
        return atom_fail_memory("a graph", (uint64_t)g->n_tensors * sizeof *w->number);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].producer == GRAPH_NONE)
            w->number[i] = --inputs;
    return ATOM_OK;
}

/* NULL behind the last. */
static const graph_node *walk_next(walk *w)
{
    while (w->at < w->g->n_nodes) {
        const graph_node *node = &w->g->nodes[w->at++];
        bool drops = node->op == ATOM_OP_dropout;
        w->number[node->out[0]] = drops ? w->number[node->in[0]] : w->made++;
        if (!drops)
            return node;
    }
    return NULL;
}

static bool equal(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool same_rope(const atom_rope *a, const atom_rope *b)
{
    bool same = a->width == b->width && a->yarn == b->yarn && equal(a->theta, b->theta) &&
                equal(a->factor, b->factor) && equal(a->low, b->low) && equal(a->high, b->high) &&
                equal(a->original, b->original) && equal(a->gain, b->gain);
    for (int i = 0; i < ATOM_ROPE_DIVISORS_MAX && same; i++)
        same = equal(a->divisors[i], b->divisors[i]);
    return same;
}

static bool same_node(const walk *a, const graph_node *x, const walk *b, const graph_node *y)
{
    bool same = x->op == y->op && x->n_params == y->n_params && x->heads == y->heads &&
                x->kv_heads == y->kv_heads && x->window == y->window && x->codec == y->codec &&
                x->first == y->first && equal(x->eps, y->eps) && equal(x->scale, y->scale) &&
                equal(x->lift, y->lift) && equal(x->cap, y->cap) && same_rope(&x->rope, &y->rope);
    for (int i = 0; same && i < x->n_params; i++)
        same = x->params[i] == y->params[i];
    for (int i = 0; same && i < atom_op_get(x->op)->ins; i++)
        same = a->number[x->in[i]] == b->number[y->in[i]];
    return same;
}

static bool same_stored(const graph_stored *a, const graph_stored *b)
{
    return strcmp(a->name, b->name) == 0 && a->rank == b->rank && a->transposed == b->transposed &&
           a->param == b->param && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0 &&
           a->from == b->from && a->step == b->step && a->first == b->first && a->rows == b->rows;
}

/* Of the parameters and their places in files. */
static bool same_params(const graph *a, const graph *b, char where[GRAPH_WHERE_MAX])
{
    bool same = a->n_params == b->n_params && a->n_stored == b->n_stored;
    for (uint32_t i = 0; same && i < b->n_params; i++) {
        const graph_param *x = &a->params[i], *y = &b->params[i];
        same = x->rank == y->rank && memcmp(x->dims, y->dims, x->rank * sizeof x->dims[0]) == 0;
        snprintf(where, GRAPH_WHERE_MAX, "parameter %s", y->name);
    }
    for (uint32_t i = 0; same && i < b->n_stored; i++) {
        same = same_stored(&a->stored[i], &b->stored[i]);
        snprintf(where, GRAPH_WHERE_MAX, "tensor %s", b->stored[i].name);
    }
    return same;
}

atom_status graph_own_compare(const graph *a, const graph *b, char where[GRAPH_WHERE_MAX])
{
    walk x = {0}, y = {0};
    const graph_node *p, *q;
    bool same = true;
    atom_status st;
    ATOM_TRY_CLEAN(walk_begin(&x, a));
    ATOM_TRY_CLEAN(walk_begin(&y, b));
    snprintf(where, GRAPH_WHERE_MAX, "how many parameters it has");
    same = same_params(a, b, where);
    while (same) {
        p = walk_next(&x);
        q = walk_next(&y);
        if (!p && !q)
            break;
        same = p && q && same_node(&x, p, &y, q);
        snprintf(where, GRAPH_WHERE_MAX, "node %s", q ? q->name : p->name);
    }
    if (same)
        where[0] = 0;
cleanup:
    atom_free(x.number);
    atom_free(y.number);
    return st;
}
