/*
 * Owns which parameters Muon trains, and as which matrices. One idea: what a parameter is follows
 * from its place in the graph, never from its name: a weight of a linear layer between two others is
 * a matrix; where the layer's columns are the heads of q, k and v, or gate and up, they are several
 * matrices that are only stored together. LoRA's factors are matrices each by itself, the head's
 * included. Refuses embeddings, the head and what is shared: AdamW trains those.
 */
#include "atom/graph/graph.h"

#include "atom/base/assert.h"

void graph_set_optimizer(graph *g, graph_optimizer optimizer)
{
    ATOM_ASSERT(optimizer == GRAPH_ADAMW || optimizer == GRAPH_MUON);
    g->optimizer = optimizer;
}

/* The only node that reads the tensor; NULL where there are several. */
static const graph_node *only_reader(const graph *g, int32_t tensor)
{
    const graph_node *found = NULL;
    for (int32_t i = g->tensors[tensor].producer + 1; i <= g->tensors[tensor].last_use; i++) {
        for (int j = 0; j < atom_op_get(g->nodes[i].op)->ins; j++) {
            if (g->nodes[i].in[j] != tensor)
                continue;
            if (found)
                return NULL;
            found = &g->nodes[i];
        }
    }
    return found;
}

/* The reader of the tensor behind nodes that change each column by itself. */
static const graph_node *reader_of(const graph *g, int32_t tensor)
{
    const graph_node *node = only_reader(g, tensor);
    while (node && (node->op == ATOM_OP_headnorm || node->op == ATOM_OP_rope ||
                    node->op == ATOM_OP_scale || node->op == ATOM_OP_dropout))
        node = only_reader(g, node->out[0]);
    return node;
}

/* Rows of q, k and v in a weight of that many. */
static uint32_t heads_of(const graph_node *attention, int64_t rows, int64_t part[])
{
    int64_t heads = attention->heads, kv = attention->kv_heads ? attention->kv_heads : heads;
    int64_t each = rows / (heads + 2 * kv);
    part[0] = heads * each;
    part[1] = part[2] = kv * each;
    return 3;
}

uint32_t graph_matrices(const graph *g, int32_t param, int64_t rows[GRAPH_MATRICES_MAX])
{
    const graph_param *p = &g->params[param];
    const graph_node *node = &g->nodes[p->first_node];
    bool linear =
        node->op == ATOM_OP_linear || node->op == ATOM_OP_linear_gelu || node->op == ATOM_OP_lora;
    if (g->optimizer != GRAPH_MUON || !linear || node->params[0] != param || p->frozen || p->shared)
        return 0;
    rows[0] = p->dims[0];
    if (node->op == ATOM_OP_lora) /* B: q, k and v, gate and up have one each */
        return 1;
    const graph_node *reader = reader_of(g, node->out[0]);
    if (!reader || node->op == ATOM_OP_linear_gelu || reader->op == ATOM_OP_lora)
        return 1;
    if (atom_op_get(reader->op)->flags & ATOM_OP_TERMINAL)
        return 0;
    if (reader->op == ATOM_OP_attention)
        return heads_of(reader, p->dims[0], rows);
    if (reader->op != ATOM_OP_swiglu && reader->op != ATOM_OP_geglu)
        return 1;
    rows[0] = rows[1] = p->dims[0] / 2;
    return 2;
}

uint64_t graph_matrix_elements(const graph *g)
{
    uint64_t elements = 0;
    int64_t rows[GRAPH_MATRICES_MAX];
    for (uint32_t p = 0; p < g->n_params; p++)
        elements += graph_matrices(g, (int32_t)p, rows) ? g->params[p].elements : 0;
    return elements;
}

uint64_t graph_state_bytes(const graph *g)
{
    return g->trained_extent * atom_state_bytes(g->moments) -
           graph_matrix_elements(g) * atom_dtype_bytes(g->moments);
}
