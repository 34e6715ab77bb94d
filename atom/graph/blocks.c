/*
 * Owns the blocks of Llama's kin as graph nodes. One idea: a block adds its parameters just before
 * the node that uses them, so canonical order needs no bookkeeping; what files store as q, k and v
 * (gate and up) is one parameter and one product here. Refuses sequences that the model cannot
 * take.
 */
#include "atom/graph/blocks.h"

#include "atom/base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    name_make(node.name, layer, part);
    ATOM_TRY(param_add(b, &node, ".weight", 1, b->c->width, 0, norm_init(b)));
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

/* x = by x; nothing where that changes nothing. The node is called after the one before it. */
static atom_status add_scale(graph_blocks *b, int64_t layer, const char *part, float by, int32_t *x)
{
    graph_node node = {.op = ATOM_OP_scale, .in = {*x}, .scale = by};
    if (by == 0 || by == 1)
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

graph_node block_headed(const graph_blocks *b, int64_t layer, const char *part, atom_op op,
                        int32_t x)
{
    const graph_config *c = b->c;
    graph_node node = {.op = op, .in = {x}, .heads = (int32_t)c->heads};
    node.kv_heads = c->kv_heads == c->heads ? 0 : (int32_t)c->kv_heads;
    name_make(node.name, layer, part);
    return node;
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
    name_make(name, layer, "self_attn.q_norm.weight");
    ATOM_TRY(graph_add_param(b->g, name, 1, &D, norm_init(b), 0, &node.params[0]));
    name_make(name, layer, "self_attn.k_norm.weight");
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
    ATOM_TRY(add_scale(b, layer, scale, b->c->residual_scale, &y));
    return add_residual(b, layer, add, y);
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

atom_status block_attention(graph_blocks *b, int64_t layer)
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

atom_status block_gated_mlp(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    graph_node act = {.op = b->traits->geglu ? ATOM_OP_geglu : ATOM_OP_swiglu};
    bool around = b->traits->norms == GRAPH_NORMS_AROUND;
    int32_t a;
    ATOM_TRY(open_branch(b, layer,
                         around ? "pre_feedforward_layernorm" : "post_attention_layernorm", &a));
    ATOM_TRY(add_linear(b, layer, "mlp.gate_up_proj", c->width, 2 * c->inner, c->mlp_bias, &a));
    name_make(act.name, layer, "mlp.act");
    act.in[0] = a;
    ATOM_TRY(graph_add_node(b->g, &act, &a));
    ATOM_TRY(add_linear(b, layer, "mlp.down_proj", c->inner, c->width, c->mlp_bias, &a));
    return close_branch(b, layer, "post_feedforward_layernorm", "mlp.down_proj.scale", "add_2", a);
}

atom_status block_head(graph_blocks *b)
{
    graph_node head = {.name = "lm_head", .op = ATOM_OP_linear, .n_params = 1};
    graph_node loss = {.name = "loss", .op = ATOM_OP_cross_entropy, .cap = b->c->final_cap};
    int64_t dims[2] = {b->c->vocab_size, b->c->width};
    int32_t out;
    ATOM_TRY(add_norm(b, -1, "norm", b->x, &head.in[0]));
    if (b->c->logits_divisor > 0) /* logits are linear in this, and there are fewer numbers here */
        ATOM_TRY(add_scale(b, -1, "norm.scale", 1 / b->c->logits_divisor, &head.in[0]));
    head.params[0] = b->embedding;
    if (b->c->untied)
        ATOM_TRY(graph_add_param(b->g, "lm_head.weight", 2, dims, GRAPH_INIT_NORMAL, b->c->init_std,
                                 &head.params[0]));
    ATOM_TRY(graph_add_node(b->g, &head, &loss.in[0]));
    loss.in[1] = b->targets;
    return graph_add_node(b->g, &loss, &out);
}

static atom_status check_length(const graph_config *c, int64_t T)
{
    if (T > c->positions)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len is %lld but the model has %lld positions "
                         "(max_position_embeddings); shorten sequence_len",
                         (long long)T, (long long)c->positions);
    return ATOM_OK;
}

/* The root is rounded to what activations are made of, as transformers does it. */
static float embedding_scale(const graph_blocks *b)
{
    float root = (float)sqrt((double)b->c->width);
    if (!b->traits->root_scaled)
        return b->c->embedding_scale;
    return b->g->dtype == ATOM_BF16 ? atom_bf16_to_f32(atom_f32_to_bf16(root)) : root;
}

atom_status blocks_open(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                        graph_blocks *b)
{
    graph_node node = {.name = "embed", .op = ATOM_OP_embed, .n_params = 1};
    const char *embedding =
        graph_family_traits(c->family)->neox ? "embed_in.weight" : "embed_tokens.weight";
    int64_t dims[2] = {B, T}, table[2] = {c->vocab_size, c->width};
    *b = (graph_blocks){.c = c, .traits = graph_family_traits(c->family)};
    ATOM_TRY(check_length(c, T));
    ATOM_TRY(graph_open(c->name, dtype, B, T, &b->g));
    graph_set_packed(b->g, b->traits->packed);
    graph_set_tied_files(b->g, c->tied_files);
    ATOM_TRY(graph_add_input(b->g, "tokens", GRAPH_I32, 2, dims, &node.in[0]));
    ATOM_TRY(graph_add_input(b->g, "targets", GRAPH_I32, 2, dims, &b->targets));
    ATOM_TRY(
        graph_add_param(b->g, embedding, 2, table, GRAPH_INIT_NORMAL, c->init_std, &b->embedding));
    node.params[0] = b->embedding;
    ATOM_TRY(graph_add_node(b->g, &node, &b->x));
    return add_scale(b, -1, "embed.scale", embedding_scale(b), &b->x);
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
