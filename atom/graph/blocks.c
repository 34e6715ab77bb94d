/*
 * Owns the pieces that the builders of all families share, as graph nodes. One idea: a piece is one
 * node with its parameters, and knows nothing of the block that it stands in. Refuses sequences that the
 * model cannot take.
 */
#include "atom/graph/blocks.h"

#include <stdio.h>
#include <string.h>

void block_name(const graph_blocks *b, int64_t layer, const char *part, char name[GRAPH_NAME_MAX])
{
    if (layer < 0)
        snprintf(name, GRAPH_NAME_MAX, "%s", part);
    else
        snprintf(name, GRAPH_NAME_MAX, "%s.%lld.%s", b->layers, (long long)layer, part);
}

atom_status block_param(graph_blocks *b, graph_node *node, const char *suffix, int rank, int64_t d0,
                        int64_t d1, graph_init init, float std)
{
    char name[GRAPH_NAME_MAX + 16];
    int64_t dims[2] = {d0, d1};
    snprintf(name, sizeof name, "%s%s", node->name, suffix);
    return graph_add_param(b->g, name, rank, dims, init, init == GRAPH_INIT_NORMAL ? std : 0,
                           &node->params[node->n_params++]);
}

atom_status block_layernorm(graph_blocks *b, int64_t layer, const char *part, int32_t x, int32_t *y)
{
    graph_node node = {.op = ATOM_OP_layernorm, .in = {x}, .eps = b->c->epsilon};
    block_name(b, layer, part, node.name);
    ATOM_TRY(block_param(b, &node, ".weight", 1, b->c->width, 0, GRAPH_INIT_ONE, 0));
    ATOM_TRY(block_param(b, &node, ".bias", 1, b->c->width, 0, GRAPH_INIT_ZERO, 0));
    return graph_add_node(b->g, &node, y);
}

atom_status block_linear(graph_blocks *b, int64_t layer, const char *part, int64_t I, int64_t O,
                         bool bias, float std, int32_t *x)
{
    graph_node node = {.op = ATOM_OP_linear, .in = {*x}};
    block_name(b, layer, part, node.name);
    ATOM_TRY(block_param(b, &node, ".weight", 2, O, I, GRAPH_INIT_NORMAL, std));
    if (bias)
        ATOM_TRY(block_param(b, &node, ".bias", 1, O, 0, GRAPH_INIT_ZERO, 0));
    return graph_add_node(b->g, &node, x);
}

atom_status block_apply(graph_blocks *b, int64_t layer, const char *part, atom_op op, int32_t *x)
{
    graph_node node = {.op = op, .in = {*x}};
    block_name(b, layer, part, node.name);
    return graph_add_node(b->g, &node, x);
}

atom_status block_dropout(graph_blocks *b, int64_t layer, const char *part, float p, int32_t *x)
{
    graph_node node = {.op = ATOM_OP_dropout, .in = {*x}, .p = p};
    if (!(p > 0))
        return ATOM_OK;
    block_name(b, layer, part, node.name);
    return graph_add_node(b->g, &node, x);
}

atom_status block_scale(graph_blocks *b, int64_t layer, const char *part, float by, int32_t *x)
{
    graph_node node = {.op = ATOM_OP_scale, .in = {*x}, .scale = by};
    if (by == 0 || by == 1)
        return ATOM_OK;
    block_name(b, layer, part, node.name);
    return graph_add_node(b->g, &node, x);
}

atom_status block_residual(graph_blocks *b, int64_t layer, const char *part, int32_t y)
{
    graph_node node = {.op = ATOM_OP_add, .in = {y, b->x}};
    block_name(b, layer, part, node.name);
    return graph_add_node(b->g, &node, &b->x);
}

graph_node block_headed(const graph_blocks *b, int64_t layer, const char *part, atom_op op,
                        int32_t x)
{
    const graph_config *c = b->c;
    graph_node node = {.op = op, .in = {x}, .heads = (int32_t)c->heads};
    node.kv_heads = c->kv_heads == c->heads ? 0 : (int32_t)c->kv_heads;
    block_name(b, layer, part, node.name);
    return node;
}

atom_rope block_rope(const graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    atom_rope rope = c->rope;
    if (c->local_theta > 0 && !graph_layer_is_full(c, layer))
        return (atom_rope){.theta = c->local_theta, .factor = 1};
    if (c->long_rope.original > 0)
        memcpy(rope.divisors,
               b->g->sequence > c->long_rope.original ? c->long_rope.longer : c->long_rope.shorter,
               sizeof rope.divisors);
    return rope;
}

atom_status block_embed(graph_blocks *b, const char *weight, const char *positions)
{
    const graph_config *c = b->c;
    graph_node node = {.name = "embed", .op = ATOM_OP_embed, .n_params = 1, .in = {b->tokens}};
    int64_t rows[2] = {c->vocab_size, c->width}, places[2] = {c->positions, c->width};
    ATOM_TRY(
        graph_add_param(b->g, weight, 2, rows, GRAPH_INIT_NORMAL, c->init_std, &b->embedding));
    node.params[0] = b->embedding;
    if (positions)
        ATOM_TRY(graph_add_param(b->g, positions, 2, places, GRAPH_INIT_NORMAL, c->init_std,
                                 &node.params[node.n_params++]));
    return graph_add_node(b->g, &node, &b->x);
}

atom_status block_head(graph_blocks *b, const char *weight, int32_t x)
{
    graph_node head = {.name = "lm_head", .op = ATOM_OP_linear, .n_params = 1, .in = {x}};
    graph_node loss = {.name = "loss", .op = ATOM_OP_cross_entropy, .cap = b->c->final_cap};
    int64_t dims[2] = {b->c->vocab_size, b->c->width};
    int32_t out;
    head.params[0] = b->embedding;
    if (b->c->untied)
        ATOM_TRY(graph_add_param(b->g, weight, 2, dims, GRAPH_INIT_NORMAL, b->c->init_std,
                                 &head.params[0]));
    ATOM_TRY(graph_add_node(b->g, &head, &loss.in[0]));
    loss.in[1] = b->targets;
    return graph_add_node(b->g, &loss, &out);
}

atom_status blocks_open(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                        const char *layers, const char *positions_key, graph_blocks *b)
{
    int64_t dims[2] = {B, T};
    *b = (graph_blocks){.c = c, .traits = graph_family_traits(c->family), .layers = layers};
    if (T > c->positions)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len is %lld but the model has %lld positions (%s); shorten "
                         "sequence_len",
                         (long long)T, (long long)c->positions, positions_key);
    ATOM_TRY(graph_open(c->name, dtype, B, T, &b->g));
    graph_set_packed(b->g, b->traits->packed);
    graph_set_tied_files(b->g, c->tied_files);
    ATOM_TRY(graph_add_input(b->g, "tokens", GRAPH_I32, 2, dims, &b->tokens));
    return graph_add_input(b->g, "targets", GRAPH_I32, 2, dims, &b->targets);
}

atom_status blocks_close(graph_blocks *b, atom_status st, graph **out)
{
    if (st == ATOM_OK)
        st = graph_seal(b->g);
    if (st == ATOM_OK)
        *out = b->g;
    else
        graph_close(&b->g);
    return st;
}
