/*
 * Owns the rewrites that make one kernel of two. One idea: first decide which node absorbs which,
 * by looking only at neighbours; then copy the graph node by node, with the absorbed left out. A
 * linear absorbs the gelu behind it (and stays in its place, so the canonical order of parameters
 * holds); an add absorbs the dropout before it; a cross entropy absorbs the linear before it.
 * Refuses to fuse across a tensor that somebody else uses too.
 */
#include "atom/graph/build.h"

#include "atom/base/mem.h"

#include <string.h>

typedef struct fusing {
    const graph *from;
    graph *to;
    int32_t *partner; /* by node: the node it absorbs, or GRAPH_NONE */
    bool *absorbed;   /* by node */
    uint32_t *uses;   /* by tensor: forward uses */
    int32_t *tensor;  /* by tensor of `from`: its id in `to` */
} fusing;

static atom_status fusing_open(const graph *g, fusing *f)
{
    *f = (fusing){.from = g};
    f->partner = atom_alloc(g->n_nodes, sizeof *f->partner);
    f->absorbed = atom_alloc(g->n_nodes, sizeof *f->absorbed);
    f->uses = atom_alloc(g->n_tensors, sizeof *f->uses);
    f->tensor = atom_alloc(g->n_tensors, sizeof *f->tensor);
    if (!f->partner || !f->absorbed || !f->uses || !f->tensor)
        return atom_fail_memory("fusing a graph", (uint64_t)g->n_tensors * 16);
    atom_status st = graph_open(g->name, g->dtype, g->micro_batch, g->sequence, &f->to);
    if (st == ATOM_OK) {
        graph_set_moments(f->to, g->moments);
        graph_set_optimizer(f->to, g->optimizer);
        graph_set_packed(f->to, g->packed);
        graph_set_tied_files(f->to, g->tied_files);
    }
    return st;
}

static void fusing_close(fusing *f)
{
    atom_free(f->partner);
    atom_free(f->absorbed);
    atom_free(f->uses);
    atom_free(f->tensor);
    graph_close(&f->to);
}

/* The node of kind `op` that makes `tensor` for one user alone; GRAPH_NONE if there is none. */
static int32_t sole_producer(const fusing *f, int32_t tensor, atom_op op)
{
    int32_t n = f->from->tensors[tensor].producer;
    if (n == GRAPH_NONE || f->from->nodes[n].op != op || f->uses[tensor] != 1)
        return GRAPH_NONE;
    return n;
}

static void decide(fusing *f)
{
    const graph *g = f->from;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const graph_node *node = &g->nodes[n];
        f->partner[n] = GRAPH_NONE;
        for (int i = 0; i < atom_op_get(node->op)->ins; i++)
            f->uses[node->in[i]]++;
    }
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const graph_node *node = &g->nodes[n];
        int32_t other = GRAPH_NONE;
        if (node->op == ATOM_OP_gelu) {
            other = sole_producer(f, node->in[0], ATOM_OP_linear);
            if (other != GRAPH_NONE) {
                f->partner[other] = (int32_t)n;
                f->absorbed[n] = true;
            }
        } else if (node->op == ATOM_OP_add) {
            for (int i = 0; i < 2 && other == GRAPH_NONE; i++) {
                other = sole_producer(f, node->in[i], ATOM_OP_dropout);
                if (other != GRAPH_NONE && g->nodes[other].in[0] == node->in[1 - i])
                    other = GRAPH_NONE; /* x + dropout(x): one tensor cannot be both inputs */
            }
            f->partner[n] = other;
        } else if (node->op == ATOM_OP_cross_entropy) {
            other = sole_producer(f, node->in[0], ATOM_OP_linear);
            if (other != GRAPH_NONE && g->nodes[other].n_params == 1)
                f->partner[n] = other;
        }
        if (f->partner[n] != GRAPH_NONE)
            f->absorbed[f->partner[n]] = true;
    }
}

/* Fills in the fused form of node n; *out_of is the node whose output it makes. */
static graph_node rewrite(const fusing *f, int32_t n, int32_t *out_of)
{
    const graph *g = f->from;
    graph_node node = g->nodes[n];
    int32_t other = f->partner[n];
    *out_of = n;
    if (node.op == ATOM_OP_linear && other != GRAPH_NONE) {
        node.op = ATOM_OP_linear_gelu;
        *out_of = other;
    } else if (node.op == ATOM_OP_cross_entropy && other != GRAPH_NONE) {
        node = g->nodes[other];
        node.op = ATOM_OP_classifier;
        node.in[1] = g->nodes[n].in[1];
        node.cap = g->nodes[n].cap;
        node.rng = g->nodes[n].rng;
    } else if (node.op == ATOM_OP_add) {
        node.op = ATOM_OP_dropout_add;
        if (other != GRAPH_NONE) {
            const graph_node *dropout = &g->nodes[other];
            node.in[1] = node.in[0] == dropout->out[0] ? node.in[1] : node.in[0];
            node.in[0] = dropout->in[0];
            node.p = dropout->p;
            node.rng = dropout->rng;
        }
    }
    return node;
}

static atom_status copy(fusing *f)
{
    const graph *g = f->from;
    atom_status st = ATOM_OK;
    int32_t id;
    for (uint32_t i = 0; i < g->n_params && st == ATOM_OK; i++) {
        const graph_param *p = &g->params[i];
        st = graph_add_param(f->to, p->name, p->rank, p->dims, p->init, p->init_std, &id);
        if (st == ATOM_OK && p->frozen)
            graph_freeze(f->to, id);
    }
    for (uint32_t i = 0; i < g->n_tensors && st == ATOM_OK; i++) {
        const graph_tensor *t = &g->tensors[i];
        f->tensor[i] = GRAPH_NONE;
        if (t->producer == GRAPH_NONE)
            st = graph_add_input(f->to, t->name, t->kind, t->rank, t->dims, &f->tensor[i]);
    }
    for (uint32_t n = 0; n < g->n_nodes && st == ATOM_OK; n++) {
        if (f->absorbed[n])
            continue;
        int32_t out_of;
        graph_node node = rewrite(f, (int32_t)n, &out_of);
        for (int i = 0; i < atom_op_get(node.op)->ins; i++)
            node.in[i] = f->tensor[node.in[i]];
        st = graph_add_node_rng(f->to, &node, node.rng, &id);
        if (st == ATOM_OK)
            f->tensor[g->nodes[out_of].out[0]] = id;
    }
    return st;
}

atom_status graph_fuse(const graph *g, graph **out)
{
    fusing f;
    atom_status st;
    ATOM_TRY_CLEAN(fusing_open(g, &f));
    decide(&f);
    ATOM_TRY_CLEAN(copy(&f));
    ATOM_TRY_CLEAN(graph_set_stored(f.to, g->stored, g->n_stored));
    graph_set_buffers(f.to, g->buffers);
    ATOM_TRY_CLEAN(graph_seal(f.to));
    *out = f.to;
    f.to = NULL;
cleanup:
    fusing_close(&f);
    return st;
}
