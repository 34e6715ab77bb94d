/*
 * Owns GPT-2 as a graph: the check of its configuration and the builder.
 * One idea: the weights that end a branch start smaller; all else is the pieces' own. Refuses
 * configurations that GPT-2 cannot have.
 */
#include "atom/graph/blocks.h"

#include <math.h>

static atom_status check_probability(const char *key, float value)
{
    if (value >= 0 && value < 1)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s is %g; it must be at least 0 and below 1", key,
                     (double)value);
}

atom_status graph_gpt2_check(const graph_config *c)
{
    ATOM_TRY(graph_check_range("vocab_size", c->vocab_size, GRAPH_VOCAB_MAX));
    ATOM_TRY(graph_check_range("n_positions", c->positions, GRAPH_POSITIONS_MAX));
    ATOM_TRY(graph_check_range("n_embd", c->width, GRAPH_WIDTH_MAX));
    ATOM_TRY(graph_check_range("n_layer", c->layers, GRAPH_LAYERS_MAX));
    ATOM_TRY(graph_check_range("n_head", c->heads, c->width));
    ATOM_TRY(graph_check_range("n_inner", c->inner, GRAPH_INNER_MAX));
    if (c->width % c->heads != 0)
        return atom_fail(ATOM_E_FORMAT, "n_embd %lld is not a multiple of n_head %lld",
                         (long long)c->width, (long long)c->heads);
    if (!(c->epsilon > 0 && c->epsilon < 1))
        return atom_fail(ATOM_E_FORMAT, "layer_norm_epsilon is %g; it must be between 0 and 1",
                         (double)c->epsilon);
    if (!(c->init_std >= 0 && c->init_std <= 1e3f))
        return atom_fail(ATOM_E_FORMAT, "initializer_range is %g; it must be in 0 .. 1000",
                         (double)c->init_std);
    ATOM_TRY(check_probability("embd_pdrop", c->embd_pdrop));
    ATOM_TRY(check_probability("attn_pdrop", c->attn_pdrop));
    ATOM_TRY(check_probability("resid_pdrop", c->resid_pdrop));
    return ATOM_OK;
}

uint64_t graph_gpt2_params(const graph_config *c)
{
    uint64_t V = (uint64_t)c->vocab_size, P = (uint64_t)c->positions, C = (uint64_t)c->width,
             L = (uint64_t)c->layers, F = (uint64_t)c->inner;
    uint64_t norms = 2 * 2 * C;
    uint64_t attention = 3 * C * C + 3 * C + C * C + C;
    uint64_t mlp = F * C + F + C * F + C;
    return V * C * (c->untied ? 2 : 1) + P * C + L * (norms + attention + mlp) + 2 * C;
}

/* Of the weights that end a branch: GPT-2 divides by the root of the number of branches. */
static float branch_std(const graph_config *c)
{
    return (float)((double)c->init_std / sqrt(2.0 * (double)c->layers));
}

static atom_status add_attention(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    int64_t C = c->width;
    int32_t a;
    ATOM_TRY(block_layernorm(b, layer, "ln_1", b->x, &a));
    ATOM_TRY(block_linear(b, layer, "attn.c_attn", C, 3 * C, true, c->init_std, &a));
    graph_node attention = block_headed(b, layer, "attn", ATOM_OP_attention, a);
    attention.p = c->attn_pdrop;
    ATOM_TRY(graph_add_node(b->g, &attention, &a));
    ATOM_TRY(block_linear(b, layer, "attn.c_proj", C, C, true, branch_std(c), &a));
    ATOM_TRY(block_dropout(b, layer, "attn.drop", c->resid_pdrop, &a));
    return block_residual(b, layer, "add_1", a);
}

static atom_status add_mlp(graph_blocks *b, int64_t layer)
{
    const graph_config *c = b->c;
    int64_t C = c->width, F = c->inner;
    int32_t a;
    ATOM_TRY(block_layernorm(b, layer, "ln_2", b->x, &a));
    ATOM_TRY(block_linear(b, layer, "mlp.c_fc", C, F, true, c->init_std, &a));
    ATOM_TRY(block_apply(b, layer, "mlp.gelu", ATOM_OP_gelu, &a));
    ATOM_TRY(block_linear(b, layer, "mlp.c_proj", F, C, true, branch_std(c), &a));
    ATOM_TRY(block_dropout(b, layer, "mlp.drop", c->resid_pdrop, &a));
    return block_residual(b, layer, "add_2", a);
}

atom_status graph_gpt2_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                             graph **out)
{
    graph_blocks b;
    int32_t a;
    atom_status st;
    ATOM_TRY(graph_gpt2_check(c));
    ATOM_TRY_CLEAN(blocks_open(c, dtype, B, T, "h", "n_positions", &b));
    ATOM_TRY_CLEAN(block_embed(&b, "wte.weight", "wpe.weight"));
    ATOM_TRY_CLEAN(block_dropout(&b, -1, "embed.drop", c->embd_pdrop, &b.x));
    for (int64_t layer = 0; layer < c->layers; layer++) {
        ATOM_TRY_CLEAN(add_attention(&b, layer));
        ATOM_TRY_CLEAN(add_mlp(&b, layer));
    }
    ATOM_TRY_CLEAN(block_layernorm(&b, -1, "ln_f", b.x, &a));
    ATOM_TRY_CLEAN(block_head(&b, "lm_head.weight", a));
cleanup:
    return blocks_close(&b, st, out);
}
