/*
 * Owns GPT-NeoX as a graph. One idea: both kinds of residual are the same nodes in the same order, and
 * use_parallel_residual only says whether the MLP reads what attention read or what it left behind.
 * Refuses nothing of its own.
 */
#include "atom/graph/blocks.h"

static atom_status add_linear(graph_blocks *b, int64_t layer, const char *part, int64_t I,
                              int64_t O, bool bias, int32_t *x)
{
    return block_linear(b, layer, part, I, O, bias, b->c->init_std, x);
}

static atom_status add_attention(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    int64_t C = c->width;
    int32_t a;
    ATOM_TRY(block_layernorm(b, layer, "input_layernorm", b->x, &a));
    ATOM_TRY(add_linear(b, layer, "attention.query_key_value", C, 3 * C, c->qkv_bias, &a));
    graph_node rope = block_headed(b, layer, "attention.rope", ATOM_OP_rope, a);
    rope.rope = block_rope(b, layer);
    ATOM_TRY(graph_add_node(b->g, &rope, &a));
    graph_node attention = block_headed(b, layer, "attention", ATOM_OP_attention, a);
    attention.p = c->attn_pdrop;
    ATOM_TRY(graph_add_node(b->g, &attention, &a));
    ATOM_TRY(add_linear(b, layer, "attention.dense", C, C, c->o_bias, &a));
    ATOM_TRY(block_dropout(b, layer, "attention.drop", c->resid_pdrop, &a));
    return block_residual(b, layer, "add_1", a);
}

/* x: what it reads. */
static atom_status add_mlp(graph_blocks *b, int64_t layer, int32_t x)
{
    const graph_config *c = b->c;
    atom_op act = c->tanh_gelu ? ATOM_OP_gelu : ATOM_OP_gelu_erf;
    int32_t a;
    ATOM_TRY(block_layernorm(b, layer, "post_attention_layernorm", x, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.dense_h_to_4h", c->width, c->inner, true, &a));
    ATOM_TRY(block_apply(b, layer, "mlp.act", act, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.dense_4h_to_h", c->inner, c->width, true, &a));
    ATOM_TRY(block_dropout(b, layer, "mlp.drop", c->resid_pdrop, &a));
    return block_residual(b, layer, "add_2", a);
}

atom_status graph_neox_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                             graph **out)
{
    graph_blocks b;
    int32_t a;
    atom_status st;
    ATOM_TRY_CLEAN(blocks_open(c, dtype, B, T, "layers", "max_position_embeddings", &b));
    ATOM_TRY_CLEAN(block_embed(&b, "embed_in.weight", NULL));
    ATOM_TRY_CLEAN(block_dropout(&b, -1, "embed.drop", c->embd_pdrop, &b.x));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        int32_t x = b.x;
        ATOM_TRY_CLEAN(add_attention(&b, layer));
        ATOM_TRY_CLEAN(add_mlp(&b, layer, c->parallel ? x : b.x));
    }
    ATOM_TRY_CLEAN(block_layernorm(&b, -1, "final_layer_norm", b.x, &a));
    ATOM_TRY_CLEAN(block_head(&b, "embed_out.weight", a));
cleanup:
    return blocks_close(&b, st, out);
}
