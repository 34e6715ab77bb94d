/*
 * Other activations for a random model, and scaled values between its nodes: every gelu becomes one
 * of the pointwise operators, and some tensors are scaled before they are used. A pure function of
 * the seed and the graph.
 */
#ifndef TESTS_LIB_RANDOM_POINTWISE_H
#define TESTS_LIB_RANDOM_POINTWISE_H

#include "atom/base/mem.h"
#include "atom/graph/graph.h"
#include "tests/lib/random_gpt2.h"

/* tensor: by id in `from`, the id in `to`. */
static inline atom_status random_pointwise_node(uint64_t seed, const graph *from, uint32_t index,
                                                graph *to, int32_t *tensor)
{
    static const atom_op some[6] = {ATOM_OP_gelu,  ATOM_OP_gelu_erf, ATOM_OP_relu,
                                    ATOM_OP_relu2, ATOM_OP_silu,     ATOM_OP_scale};
    graph_node node = from->nodes[index];
    int32_t *out = &tensor[from->nodes[index].out[0]];
    for (int i = 0; i < atom_op_get(node.op)->ins; i++)
        node.in[i] = tensor[node.in[i]];
    if (node.op == ATOM_OP_gelu) {
        node.op = some[random_gpt2_draw(seed, 300 + index, 0, 5)];
        node.scale = node.op == ATOM_OP_scale ? 0.75f : 0;
    }
    ATOM_TRY(graph_add_node(to, &node, out));
    bool between = node.op == ATOM_OP_linear && index + 2 < from->n_nodes;
    if (!between || random_gpt2_draw(seed, 400 + index, 0, 3) != 0)
        return ATOM_OK;
    graph_node scaled = {.op = ATOM_OP_scale, .in = {*out}, .scale = 1.5f};
    snprintf(scaled.name, sizeof scaled.name, "%.48s.scaled", node.name);
    return graph_add_node(to, &scaled, out);
}

/* Replaces *g, which must be unfused and without adapters. */
static inline atom_status random_pointwise(uint64_t seed, graph **g)
{
    const graph *from = *g;
    graph *to = NULL;
    int32_t id, *tensor = atom_alloc(from->n_tensors, sizeof *tensor);
    atom_status st;
    ATOM_TRY_CLEAN(tensor ? ATOM_OK : atom_fail_memory("a random model", from->n_tensors));
    ATOM_TRY_CLEAN(graph_open(from->name, from->dtype, from->micro_batch, from->sequence, &to));
    for (uint32_t i = 0; i < from->n_params; i++) {
        const graph_param *p = &from->params[i];
        ATOM_TRY_CLEAN(graph_add_param(to, p->name, p->rank, p->dims, p->init, p->init_std, &id));
    }
    for (uint32_t i = 0; i < from->n_tensors; i++) {
        const graph_tensor *t = &from->tensors[i];
        if (t->producer == GRAPH_NONE)
            ATOM_TRY_CLEAN(graph_add_input(to, t->name, t->kind, t->rank, t->dims, &tensor[i]));
    }
    for (uint32_t i = 0; i < from->n_nodes; i++)
        ATOM_TRY_CLEAN(random_pointwise_node(seed, from, i, to, tensor));
    ATOM_TRY_CLEAN(graph_seal(to));
    graph_close(g);
    *g = to;
    to = NULL;
cleanup:
    graph_close(&to);
    atom_free(tensor);
    return st;
}

#endif
