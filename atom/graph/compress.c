/*
 * Owns codecs on boundaries as a rewrite. One idea: a model can be handed from host to host exactly
 * where one tensor crosses, so a cut is found by counting what crosses, not by names, and works for
 * every family and for one's own models. Refuses cuts that are not between two blocks.
 */
#include "atom/graph/build.h"

#include "atom/base/mem.h"

#include <stdio.h>

typedef struct cutting {
    const graph *from;
    graph *to;
    int32_t *cut;    /* [n] nodes of `from` in front of which a codec stands, ascending */
    int32_t *sent;   /* [n] tensors of `from` that cross there */
    int32_t *tensor; /* by id of `from`: its id in `to` */
    uint32_t rng;    /* of the next codec: behind all of `from` */
} cutting;

static int32_t blocks_of(const graph *g)
{
    int32_t blocks = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        blocks += g->nodes[i].op == ATOM_OP_attention;
    return blocks;
}

/* Node of the attention of block `index`, from 0. */
static int32_t attention_at(const graph *g, int32_t index)
{
    int32_t i = 0;
    for (; index > 0 || g->nodes[i].op != ATOM_OP_attention; i++)
        index -= g->nodes[i].op == ATOM_OP_attention;
    return i;
}

static atom_status find_cut(const graph *g, int32_t after, int32_t *cut, int32_t *sent)
{
    int32_t first = attention_at(g, after - 1), tensor;
    for (int32_t at = attention_at(g, after); at > first; at--) {
        if (graph_boundary(g, at, &tensor, 1) != 1 || g->tensors[tensor].kind != GRAPH_ACT)
            continue;
        *cut = at;
        *sent = tensor;
        return ATOM_OK;
    }
    return atom_fail(ATOM_E_USAGE,
                     "%s cannot be cut after block %d: more than one tensor crosses everywhere up "
                     "to the next attention",
                     g->name, after);
}

static atom_status find_cuts(cutting *c, const int32_t *after, uint32_t n)
{
    int32_t blocks = blocks_of(c->from);
    for (uint32_t i = 0; i < n; i++) {
        if (after[i] < 1 || after[i] >= blocks)
            return atom_fail(ATOM_E_USAGE,
                             "there is no boundary after %d blocks of %s: it has %d, and a "
                             "boundary lies between two of them",
                             after[i], c->from->name, blocks);
        if (i > 0 && after[i] <= after[i - 1])
            return atom_fail(ATOM_E_USAGE,
                             "boundaries must be in ascending order, each once; %d follows %d",
                             after[i], after[i - 1]);
        ATOM_TRY(find_cut(c->from, after[i], &c->cut[i], &c->sent[i]));
    }
    return ATOM_OK;
}

static atom_status copy_params(const graph *from, graph *to)
{
    int32_t id;
    for (uint32_t i = 0; i < from->n_params; i++) {
        const graph_param *p = &from->params[i];
        ATOM_TRY(graph_add_param(to, p->name, p->rank, p->dims, p->init, p->init_std, &id));
        if (p->frozen)
            graph_freeze(to, id);
    }
    return ATOM_OK;
}

static atom_status add_codec(cutting *c, atom_codec codec, int32_t after, int32_t sent)
{
    graph_node node = {.op = ATOM_OP_compress,
                       .in = {c->tensor[sent]},
                       .scale = codec.share,
                       .codec = (int32_t)codec.kind};
    snprintf(node.name, sizeof node.name, "boundary.%d", after);
    return graph_add_node_rng(c->to, &node, c->rng++, &c->tensor[sent]);
}

static atom_status copy(cutting *c, atom_codec codec, const int32_t *after, uint32_t n)
{
    const graph *g = c->from;
    uint32_t next = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const graph_tensor *t = &g->tensors[i];
        if (t->producer == GRAPH_NONE)
            ATOM_TRY(graph_add_input(c->to, t->name, t->kind, t->rank, t->dims, &c->tensor[i]));
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        c->rng = g->nodes[i].rng >= c->rng ? g->nodes[i].rng + 1 : c->rng;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        graph_node node = g->nodes[i];
        for (; next < n && c->cut[next] == (int32_t)i; next++)
            ATOM_TRY(add_codec(c, codec, after[next], c->sent[next]));
        for (int k = 0; k < atom_op_get(node.op)->ins; k++)
            node.in[k] = c->tensor[node.in[k]];
        ATOM_TRY(graph_add_node_rng(c->to, &node, node.rng, &c->tensor[g->nodes[i].out[0]]));
    }
    return ATOM_OK;
}

atom_status graph_compress(const graph *g, atom_codec codec, const int32_t *after, uint32_t n,
                           graph **out)
{
    cutting c = {.from = g};
    atom_status st = ATOM_OK;
    c.cut = atom_alloc(n ? n : 1, sizeof *c.cut);
    c.sent = atom_alloc(n ? n : 1, sizeof *c.sent);
    c.tensor = atom_alloc(g->n_tensors, sizeof *c.tensor);
    if (!c.cut || !c.sent || !c.tensor)
        ATOM_TRY_CLEAN(atom_fail_memory("a graph", (uint64_t)g->n_tensors * sizeof *c.tensor));
    ATOM_TRY_CLEAN(find_cuts(&c, after, n));
    ATOM_TRY_CLEAN(graph_open(g->name, g->dtype, g->micro_batch, g->sequence, &c.to));
    graph_set_moments(c.to, g->moments);
    graph_set_optimizer(c.to, g->optimizer);
    ATOM_TRY_CLEAN(copy_params(g, c.to));
    ATOM_TRY_CLEAN(copy(&c, codec, after, n));
    ATOM_TRY_CLEAN(graph_set_stored(c.to, g->stored, g->n_stored));
    ATOM_TRY_CLEAN(graph_seal(c.to));
    *out = c.to;
    c.to = NULL;
cleanup:
    atom_free(c.cut);
    atom_free(c.sent);
    atom_free(c.tensor);
    graph_close(&c.to);
    return st;
}
