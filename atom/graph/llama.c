/*
 * Owns the models that are built like Llama: RMSNorm, rotary embedding, grouped heads, gated MLP.
 * One idea: the family's row and the numbers of a configuration say all that sets one apart from
 * the others, and the blocks ask them; what files store as q, k and v (gate and up) is one parameter
 * and one product here. Refuses nothing of its own.
 */
#include "atom/graph/blocks.h"

#include "atom/base/dtype.h"

#include <math.h>

/* Weights of norms are 1 at first, and so is what is added to 1 with a weight of 0. */
static float lift_of(const graph_blocks *b)
{
    return b->traits->lifted ? 1 : 0;
}

static graph_init norm_init(const graph_blocks *b)
{
    return b->traits->lifted ? GRAPH_INIT_ZERO : GRAPH_INIT_ONE;
}

static atom_status add_norm(graph_blocks *b, int64_t layer, const char *part, int32_t x, int32_t *y)
{
    graph_node node = {.op = ATOM_OP_rmsnorm, .in = {x}, .eps = b->c->epsilon};
    node.lift = lift_of(b);
    block_name(b, layer, part, node.name);
    ATOM_TRY(block_param(b, &node, ".weight", 1, b->c->width, 0, norm_init(b), 0));
    return graph_add_node(b->g, &node, y);
}

static atom_status add_linear(graph_blocks *b, int64_t layer, const char *part, int64_t I,
                              int64_t O, bool bias, int32_t *x)
{
    return block_linear(b, layer, part, I, O, bias, b->c->init_std, x);
}

/* Of every head by itself, or of q and k as one head each. */
static atom_status add_qk_norm(graph_blocks *b, int64_t layer, int32_t *x)
{
    graph_node node = block_headed(b, layer, "self_attn.qk_norm", ATOM_OP_headnorm, *x);
    int64_t D = b->c->head_dim;
    char name[GRAPH_NAME_MAX];
    if (b->traits->qk_norm == GRAPH_QK_NORM_NONE)
        return ATOM_OK;
    if (b->traits->qk_norm == GRAPH_QK_NORM_WHOLE) {
        D *= b->c->heads;
        node.heads = 1;
        node.kv_heads = 0;
    }
    node.eps = b->c->epsilon;
    node.lift = lift_of(b);
    node.n_params = 2;
    block_name(b, layer, "self_attn.q_norm.weight", name);
    ATOM_TRY(graph_add_param(b->g, name, 1, &D, norm_init(b), 0, &node.params[0]));
    block_name(b, layer, "self_attn.k_norm.weight", name);
    ATOM_TRY(graph_add_param(b->g, name, 1, &D, norm_init(b), 0, &node.params[1]));
    return graph_add_node(b->g, &node, x);
}

/* What attention or MLP reads. */
static atom_status open_branch(graph_blocks *b, int64_t layer, const char *norm, int32_t *y)
{
    *y = b->x;
    return b->traits->norms == GRAPH_NORMS_BEHIND ? ATOM_OK : add_norm(b, layer, norm, b->x, y);
}

/* What they made goes back into the stream. */
static atom_status close_branch(graph_blocks *b, int64_t layer, const char *norm, const char *scale,
                                const char *add, int32_t y)
{
    if (b->traits->norms != GRAPH_NORMS_BEFORE)
        ATOM_TRY(add_norm(b, layer, norm, y, &y));
    ATOM_TRY(block_scale(b, layer, scale, b->c->residual_scale, &y));
    return block_residual(b, layer, add, y);
}

/* x += o_proj(attention(rope(qkv_proj(norm(x))))); with norms of q and k where the family has them. Where
 * norms stand behind, a block is x += norm(block(x)); where they stand around, x += norm(block(norm(x))). */
static atom_status add_attention(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    int64_t H = c->heads, K = c->kv_heads, D = c->head_dim;
    int32_t a;
    ATOM_TRY(open_branch(b, layer, "input_layernorm", &a));
    ATOM_TRY(
        add_linear(b, layer, "self_attn.qkv_proj", c->width, (H + 2 * K) * D, c->qkv_bias, &a));
    ATOM_TRY(add_qk_norm(b, layer, &a));
    graph_node rope = block_headed(b, layer, "self_attn.rope", ATOM_OP_rope, a);
    rope.rope = block_rope(b, layer);
    if (c->nope_every == 0 || (layer + 1) % c->nope_every != 0)
        ATOM_TRY(graph_add_node(b->g, &rope, &a));
    graph_node attention = block_headed(b, layer, "self_attn", ATOM_OP_attention, a);
    attention.p = c->attn_pdrop;
    attention.scale = c->attention_scale;
    if (c->query_scalar > 0)
        attention.scale = (float)(1 / sqrt((double)c->query_scalar));
    attention.cap = c->attn_cap;
    attention.window = graph_layer_is_full(c, layer) ? 0 : c->window;
    ATOM_TRY(graph_add_node(b->g, &attention, &a));
    ATOM_TRY(add_linear(b, layer, "self_attn.o_proj", H * D, c->width, c->o_bias, &a));
    return close_branch(b, layer, "post_attention_layernorm", "self_attn.o_proj.scale", "add_1", a);
}

/* x += down_proj(act(gate_up_proj(norm(x)))). */
static atom_status add_gated_mlp(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    bool around = b->traits->norms == GRAPH_NORMS_AROUND;
    int32_t a;
    ATOM_TRY(open_branch(b, layer,
                         around ? "pre_feedforward_layernorm" : "post_attention_layernorm", &a));
    ATOM_TRY(add_linear(b, layer, "mlp.gate_up_proj", c->width, 2 * c->inner, c->mlp_bias, &a));
    ATOM_TRY(block_apply(b, layer, "mlp.act", b->traits->geglu ? ATOM_OP_geglu : ATOM_OP_swiglu,
                         &a));
    ATOM_TRY(add_linear(b, layer, "mlp.down_proj", c->inner, c->width, c->mlp_bias, &a));
    return close_branch(b, layer, "post_feedforward_layernorm", "mlp.down_proj.scale", "add_2", a);
}

/* The root is rounded to what activations are made of, as transformers does it. */
static float embedding_scale(const graph_blocks *b)
{
    float root = (float)sqrt((double)b->c->width);
    if (!b->traits->root_scaled)
        return b->c->embedding_scale;
    return b->g->dtype == ATOM_BF16 ? atom_bf16_to_f32(atom_f32_to_bf16(root)) : root;
}

static atom_status add_head(graph_blocks *b)
{
    int32_t a;
    ATOM_TRY(add_norm(b, -1, "norm", b->x, &a));
    if (b->c->logits_divisor > 0) /* logits are linear in this, and there are fewer numbers here */
        ATOM_TRY(block_scale(b, -1, "norm.scale", 1 / b->c->logits_divisor, &a));
    return block_head(b, "lm_head.weight", a);
}

atom_status graph_llama_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                              graph **out)
{
    graph_blocks b;
    atom_status st;
    ATOM_TRY_CLEAN(blocks_open(c, dtype, B, T, "layers", "max_position_embeddings", &b));
    ATOM_TRY_CLEAN(block_embed(&b, "embed_tokens.weight", NULL));
    ATOM_TRY_CLEAN(block_scale(&b, -1, "embed.scale", embedding_scale(&b), &b.x));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        ATOM_TRY_CLEAN(add_attention(&b, layer));
        ATOM_TRY_CLEAN(add_gated_mlp(&b, layer));
    }
    ATOM_TRY_CLEAN(add_head(&b));
cleanup:
    return blocks_close(&b, st, out);
}
