/*
 * Owns GPT-NeoX as a graph. One idea: both kinds of residual are the same nodes in the same order, and
 * use_parallel_residual only says whether the MLP reads what attention read or what it left behind.
 * Refuses nothing of its own.
 */
#include "atom/graph/blocks.h"

#include <stdio.h>

/* "layers.3." + part, or part alone for layer < 0. */
static void name_make(char name[GRAPH_NAME_MAX], int64_t layer, const char *part)
{
    if (layer < 0)
        snprintf(name, GRAPH_NAME_MAX, "%s", part);
    else
        snprintf(name, GRAPH_NAME_MAX, "layers.%lld.%s", (long long)layer, part);
}

/* Adds node.name + suffix as the node's next parameter. */
static atom_status param_add(graph_blocks *b, graph_node *node, const char *suffix, int rank,
                             int64_t d0, int64_t d1, graph_init init)
{
    char name[GRAPH_NAME_MAX + 16];
    int64_t dims[2] = {d0, d1};
    float std = init == GRAPH_INIT_NORMAL ? b->c->init_std : 0;
    snprintf(name, sizeof name, "%s%s", node->name, suffix);
    return graph_add_param(b->g, name, rank, dims, init, std, &node->params[node->n_params++]);
}

static atom_status add_norm(graph_blocks *b, int64_t layer, const char *part, int32_t x, int32_t *y)
{
    graph_node node = {.op = ATOM_OP_layernorm, .in = {x}, .eps = b->c->epsilon};
    name_make(node.name, layer, part);
    ATOM_TRY(param_add(b, &node, ".weight", 1, b->c->width, 0, GRAPH_INIT_ONE));
    ATOM_TRY(param_add(b, &node, ".bias", 1, b->c->width, 0, GRAPH_INIT_ZERO));
    return graph_add_node(b->g, &node, y);
}

static atom_status add_linear(graph_blocks *b, int64_t layer, const char *part, int64_t I,
                              int64_t O, bool bias, int32_t *x)
{
    graph_node node = {.op = ATOM_OP_linear, .in = {*x}};
    name_make(node.name, layer, part);
    ATOM_TRY(param_add(b, &node, ".weight", 2, O, I, GRAPH_INIT_NORMAL));
    if (bias)
        ATOM_TRY(param_add(b, &node, ".bias", 1, O, 0, GRAPH_INIT_ZERO));
    return graph_add_node(b->g, &node, x);
}

/* Where p is 0 there is no node. */
static atom_status add_dropout(graph_blocks *b, int64_t layer, const char *part, float p,
                               int32_t *x)
{
    graph_node node = {.op = ATOM_OP_dropout, .in = {*x}, .p = p};
    if (!(p > 0))
        return ATOM_OK;
    name_make(node.name, layer, part);
    return graph_add_node(b->g, &node, x);
}

static atom_status add_residual(graph_blocks *b, int64_t layer, const char *part, int32_t y)
{
    graph_node node = {.op = ATOM_OP_add, .in = {y, b->x}};
    name_make(node.name, layer, part);
    return graph_add_node(b->g, &node, &b->x);
}

static atom_status add_attention(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    int64_t C = c->width;
    int32_t a;
    ATOM_TRY(add_norm(b, layer, "input_layernorm", b->x, &a));
    ATOM_TRY(add_linear(b, layer, "attention.query_key_value", C, 3 * C, c->qkv_bias, &a));
    graph_node rope = block_headed(b, layer, "attention.rope", ATOM_OP_rope, a);
    rope.rope = block_rope(b, layer);
    ATOM_TRY(graph_add_node(b->g, &rope, &a));
    graph_node attention = block_headed(b, layer, "attention", ATOM_OP_attention, a);
    attention.p = c->attn_pdrop;
    ATOM_TRY(graph_add_node(b->g, &attention, &a));
    ATOM_TRY(add_linear(b, layer, "attention.dense", C, C, c->o_bias, &a));
    ATOM_TRY(add_dropout(b, layer, "attention.drop", c->resid_pdrop, &a));
    return add_residual(b, layer, "add_1", a);
}

/* x: what it reads. */
static atom_status add_mlp(graph_blocks *b, int64_t layer, int32_t x)
{
    const graph_config *c = b->c;
    graph_node act = {.op = c->tanh_gelu ? ATOM_OP_gelu : ATOM_OP_gelu_erf};
    int32_t a;
    ATOM_TRY(add_norm(b, layer, "post_attention_layernorm", x, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.dense_h_to_4h", c->width, c->inner, true, &a));
    name_make(act.name, layer, "mlp.act");
    act.in[0] = a;
    ATOM_TRY(graph_add_node(b->g, &act, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.dense_4h_to_h", c->inner, c->width, true, &a));
    ATOM_TRY(add_dropout(b, layer, "mlp.drop", c->resid_pdrop, &a));
    return add_residual(b, layer, "add_2", a);
}

static atom_status add_head(graph_blocks *b)
{
    graph_node head = {.name = "lm_head", .op = ATOM_OP_linear, .n_params = 1};
    graph_node loss = {.name = "loss", .op = ATOM_OP_cross_entropy};
    int64_t dims[2] = {b->c->vocab_size, b->c->width};
    int32_t out;
    ATOM_TRY(add_norm(b, -1, "final_layer_norm", b->x, &head.in[0]));
    head.params[0] = b->embedding;
    if (b->c->untied)
        ATOM_TRY(graph_add_param(b->g, "embed_out.weight", 2, dims, GRAPH_INIT_NORMAL,
                                 b->c->init_std, &head.params[0]));
    ATOM_TRY(graph_add_node(b->g, &head, &loss.in[0]));
    loss.in[1] = b->targets;
    return graph_add_node(b->g, &loss, &out);
}

atom_status graph_neox_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                             graph **out)
{
    graph_blocks b;
    atom_status st = blocks_open(c, dtype, B, T, &b);
    if (st == ATOM_OK)
        st = add_dropout(&b, -1, "embed.drop", c->embd_pdrop, &b.x);
    for (int64_t layer = 0; layer < c->layers && st == ATOM_OK; layer++) {
        int32_t x = b.x;
        ATOM_TRY_CLEAN(add_attention(&b, layer));
        ATOM_TRY_CLEAN(add_mlp(&b, layer, c->parallel ? x : b.x));
    }
    if (st == ATOM_OK)
        st = add_head(&b);
cleanup:
    return blocks_close(&b, st, out);
}
