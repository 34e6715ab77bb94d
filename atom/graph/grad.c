/*
 * Owns what the backward pass means for a graph: which tensors have a gradient, which a backward
 * reads, who writes and who adds, and which nodes are alike. One idea: all of it follows from
 * ops.def and the order of nodes, never from a plan. Refuses nothing; the graph is checked before.
 */
#include "atom/graph/build.h"

#include "atom/base/hash.h"

#include <string.h>

bool graph_node_backward(const graph *g, int32_t node)
{
    const graph_node *n = &g->nodes[node];
    const atom_op_info *op = atom_op_get(n->op);
    bool runs = op->flags & ATOM_OP_TERMINAL;
    if ((op->flags & ATOM_OP_CONSTANT) || !graph_trains(g))
        return false;
    for (int i = 0; i < n->n_params; i++)
        runs |= !g->params[n->params[i]].frozen;
    for (int i = 0; i < op->ins; i++)
        runs |= g->tensors[n->in[i]].needs_grad;
    return runs;
}

unsigned graph_node_keeps(const graph *g, int32_t node)
{
    const graph_node *n = &g->nodes[node];
    unsigned keeps = atom_op_get(n->op)->keeps;
    bool product = n->op == ATOM_OP_linear || n->op == ATOM_OP_linear_gelu;
    if (!graph_node_backward(g, node))
        return 0;
    /* x is what dw is made of, and dx is not */
    return product && g->params[n->params[0]].frozen ? keeps & ~(unsigned)ATOM_KEEP_IN0 : keeps;
}

void graph_derive_grad(graph *g)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        g->tensors[i].needs_grad = g->tensors[i].kept = false;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const graph_node *node = &g->nodes[n];
        const atom_op_info *op = atom_op_get(node->op);
        if (!graph_node_backward(g, (int32_t)n))
            continue;
        unsigned keeps = graph_node_keeps(g, (int32_t)n);
        graph_tensor *out = &g->tensors[node->out[0]];
        out->needs_grad = out->kind == GRAPH_ACT;
        out->kept |= (keeps & ATOM_KEEP_OUT) != 0;
        for (int i = 0; i < op->ins; i++)
            g->tensors[node->in[i]].kept |= (keeps & (unsigned)(ATOM_KEEP_IN0 << i)) != 0;
        for (int i = 0; i < op->saved; i++)
            g->tensors[node->saved[i]].kept = true;
    }
}

graph_grad graph_grad_mode(const graph *g, int32_t node, int i)
{
    const graph_node *n = &g->nodes[node];
    if (i < 0 || i >= atom_op_get(n->op)->ins || !g->tensors[n->in[i]].needs_grad)
        return GRAPH_GRAD_NONE;
    return g->tensors[n->in[i]].last_use == node ? GRAPH_GRAD_WRITE : GRAPH_GRAD_ADD;
}

/* Is the tensor read by a node of [first, last)? */
static bool is_read(const graph *g, int32_t tensor, int32_t first, int32_t last)
{
    for (int32_t i = first; i < last; i++) {
        for (int j = 0; j < atom_op_get(g->nodes[i].op)->ins; j++) {
            if (g->nodes[i].in[j] == tensor)
                return true;
        }
    }
    return false;
}

/* Late nodes have a place of their own for the gradient of what they make. */
static bool begins_here(const graph *g, int32_t node, int input)
{
    int32_t producer = g->tensors[g->nodes[node].in[input]].producer;
    return producer >= 0 && graph_grad_mode(g, node, input) == GRAPH_GRAD_WRITE &&
           !(atom_op_get(g->nodes[producer].op)->flags & ATOM_OP_LATE);
}

bool graph_hands_on(const graph *g, int32_t node, int *owner)
{
    const graph_node *n = &g->nodes[node];
    bool sum = n->op == ATOM_OP_add || (n->op == ATOM_OP_dropout_add && n->p == 0);
    int32_t last = sum ? g->tensors[n->out[0]].last_use : GRAPH_NONE;
    /* If the sum's own gradient lies in another tensor's place, something may still be added there. */
    if (last >= 0 && graph_hands_on(g, last, owner) && g->nodes[last].in[1 - *owner] == n->out[0])
        return false;
    if (!sum || n->in[0] == n->in[1] || !begins_here(g, node, 0) || !begins_here(g, node, 1))
        return false;
    for (int i = 0; i < 2; i++) {
        int32_t own = n->in[i], other = n->in[1 - i], reader = g->tensors[other].producer;
        *owner = i;
        if (g->tensors[own].producer < reader && !is_read(g, own, reader, node) &&
            !is_read(g, other, reader, node))
            return true;
    }
    return false;
}

static uint64_t hash_dims(uint64_t hash, int rank, const int64_t *dims)
{
    hash = atom_hash(hash, &rank, sizeof rank);
    return atom_hash(hash, dims, (size_t)rank * sizeof *dims);
}

uint64_t graph_node_class(const graph *g, int32_t node)
{
    const graph_node *n = &g->nodes[node];
    const atom_op_info *op = atom_op_get(n->op);
    int32_t facts[] = {(int32_t)n->op, n->n_params, n->heads, (int32_t)g->dtype};
    float numbers[] = {n->eps, n->p};
    uint64_t hash = atom_hash(ATOM_HASH_SEED, facts, sizeof facts);
    hash = atom_hash(hash, numbers, sizeof numbers);
    if (n->kv_heads != 0)
        hash = atom_hash(hash, &n->kv_heads, sizeof n->kv_heads);
    if (n->window != 0)
        hash = atom_hash(hash, &n->window, sizeof n->window);
    if (n->cap != 0)
        hash = atom_hash(hash, &n->cap, sizeof n->cap);
    for (int i = 0; i < op->ins; i++) {
        const graph_tensor *t = &g->tensors[n->in[i]];
        int32_t how[] = {(int32_t)t->kind, (int32_t)graph_grad_mode(g, node, i)};
        hash = atom_hash(hash, how, sizeof how);
        hash = hash_dims(hash, t->rank, t->dims);
    }
    for (int i = 0; i < n->n_params; i++) {
        const graph_param *p = &g->params[n->params[i]];
        hash = hash_dims(hash, p->rank, p->dims);
        if (p->frozen)
            hash = atom_hash(hash, &p->frozen, sizeof p->frozen);
    }
    if (n->op == ATOM_OP_compress) {
        hash = atom_hash(hash, &n->codec, sizeof n->codec);
        hash = atom_hash(hash, &n->scale, sizeof n->scale);
    }
    if (n->op == ATOM_OP_lora || n->op == ATOM_OP_rownorm || n->op == ATOM_OP_dora)
        hash = atom_hash(hash, &n->first, sizeof n->first);
    return hash_dims(hash, g->tensors[n->out[0]].rank, g->tensors[n->out[0]].dims);
}
