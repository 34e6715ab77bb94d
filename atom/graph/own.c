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
