/*
 * Owns what is common to all model families: limits, counts and the way to a builder. One idea:
 * what sets families apart is in the rows of families.c. Refuses configurations that the family
 * cannot have.
 */
#include "atom/graph/blocks.h"
#include "atom/graph/build.h"

#include <math.h>

static atom_status check_multiplier(const char *key, float value)
{
    if (value >= 0 && value <= 1e6f)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s is %g; it must be above 0 and at most 1e6", key,
                     (double)value);
}

/* The parts of heads that are turned, and the numbers of YaRN and LongRoPE. */
static atom_status check_rope(const graph_config *c)
{
    const atom_rope *r = &c->rope;
    int64_t half = atom_rope_width(r, c->head_dim) / 2;
    if (!(r->gain >= 0 && r->gain <= 1e6f))
        return atom_fail(ATOM_E_FORMAT, "attention_factor is %g; it must be above 0",
                         (double)r->gain);
    if (r->width < 0 || r->width % 2 != 0 || r->width > c->head_dim)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %d of %lld channels of a head would be rotated, "
                         "but it must be an even number, at least 2",
                         graph_family_traits(c->family)->neox ? "rotary_pct"
                                                              : "partial_rotary_factor",
                         r->width, (long long)c->head_dim);
    if (c->long_rope.original > 0 && half > ATOM_ROPE_DIVISORS_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "rope_type 'longrope' of %lld channels of a head is not supported; up to "
                         "%d are",
                         (long long)(2 * half), 2 * ATOM_ROPE_DIVISORS_MAX);
    for (int64_t i = 0; i < half && c->long_rope.original > 0; i++) {
        float a = c->long_rope.shorter[i], b = c->long_rope.longer[i];
        if (!(a > 0 && a <= 1e6f && b > 0 && b <= 1e6f))
            return atom_fail(ATOM_E_FORMAT,
                             "short_factor and long_factor need %lld numbers above 0 each",
                             (long long)half);
    }
    return ATOM_OK;
}

/* What only Gemma has. */
static atom_status check_kinds(const graph_config *c)
{
    if (c->full_every < 0)
        return atom_fail(ATOM_E_FORMAT, "sliding_window_pattern is %lld; it must be 1 or more",
                         (long long)c->full_every);
    if (c->local_theta != 0 && !(c->local_theta > 1 && c->local_theta <= 1e12f))
        return atom_fail(ATOM_E_FORMAT,
                         "rope_local_base_freq is %g; it must be above 1 and at most 1e12",
                         (double)c->local_theta);
    if (!(c->attn_cap >= 0 && c->attn_cap <= 1e6f && c->final_cap >= 0 && c->final_cap <= 1e6f))
        return atom_fail(
            ATOM_E_FORMAT,
            "attn_logit_softcapping is %g and final_logit_softcapping %g; they must be "
            "above 0 and at most 1e6",
            (double)c->attn_cap, (double)c->final_cap);
    if (!(c->query_scalar >= 0 && c->query_scalar <= 1e12f))
        return atom_fail(ATOM_E_FORMAT, "query_pre_attn_scalar is %g; it must be above 0",
                         (double)c->query_scalar);
    return ATOM_OK;
}

static atom_status check_numbers(const graph_config *c)
{
    ATOM_TRY(check_rope(c));
    ATOM_TRY(check_kinds(c));
    if (!(c->epsilon > 0 && c->epsilon < 1))
        return atom_fail(ATOM_E_FORMAT, "%s is %g; it must be between 0 and 1",
                         graph_family_traits(c->family)->neox ? "layer_norm_eps" : "rms_norm_eps",
                         (double)c->epsilon);
    if (!(c->resid_pdrop >= 0 && c->resid_pdrop < 1))
        return atom_fail(ATOM_E_FORMAT, "hidden_dropout is %g; it must be at least 0 and below 1",
                         (double)c->resid_pdrop);
    if (!(c->init_std >= 0 && c->init_std <= 1e3f))
        return atom_fail(ATOM_E_FORMAT, "initializer_range is %g; it must be in 0 .. 1000",
                         (double)c->init_std);
    ATOM_TRY(check_multiplier("embedding_multiplier", c->embedding_scale));
    ATOM_TRY(check_multiplier("residual_multiplier", c->residual_scale));
    ATOM_TRY(check_multiplier("attention_multiplier", c->attention_scale));
    ATOM_TRY(check_multiplier("logits_scaling", c->logits_divisor));
    if (!(c->attn_pdrop >= 0 && c->attn_pdrop < 1))
        return atom_fail(ATOM_E_FORMAT,
                         "attention_dropout is %g; it must be at least 0 and below 1",
                         (double)c->attn_pdrop);
    if (!(c->rope.theta > 1 && c->rope.theta <= 1e12f))
        return atom_fail(ATOM_E_FORMAT, "rope_theta is %g; it must be above 1 and at most 1e12",
                         (double)c->rope.theta);
    if (!(c->rope.factor > 0 && c->rope.factor <= 1e6f))
        return atom_fail(ATOM_E_FORMAT, "rope_scaling: factor is %g; it must be above 0",
                         (double)c->rope.factor);
    if (c->rope.original > 0 && !(c->rope.low > 0 && c->rope.high > c->rope.low))
        return atom_fail(
            ATOM_E_FORMAT,
            "rope_scaling: %s is %g and %s %g; both must be above 0, the second above the first",
            c->rope.yarn ? "beta_slow" : "low_freq_factor", (double)c->rope.low,
            c->rope.yarn ? "beta_fast" : "high_freq_factor", (double)c->rope.high);
    return ATOM_OK;
}

atom_status graph_bottlenecks_check(const graph_config *c)
{
    const graph_bottlenecks *b = &c->bottlenecks;
    if (b->n == 0)
        return ATOM_OK;
    if (b->width < 1 || b->width >= c->width)
        return atom_fail(ATOM_E_FORMAT,
                         "atom_bottlenecks: width is %lld; it must be below the model's own, %lld",
                         (long long)b->width, (long long)c->width);
    if (b->maxout && c->width % b->width != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "atom_bottlenecks: width is %lld; with maxout it must divide the model's "
                         "own, %lld",
                         (long long)b->width, (long long)c->width);
    for (uint32_t i = 0; i < b->n; i++)
        if (b->after[i] < 1 || b->after[i] >= c->layers || (i && b->after[i] <= b->after[i - 1]))
            return atom_fail(ATOM_E_FORMAT,
                             "atom_bottlenecks: after_blocks has %d, but bottlenecks can be "
                             "after block 1 to %lld of the %lld blocks, in ascending order",
                             b->after[i], (long long)c->layers - 1, (long long)c->layers);
    return ATOM_OK;
}

atom_status graph_model_check(const graph_config *c)
{
    ATOM_TRY(graph_bottlenecks_check(c));
    if (c->family == GRAPH_GPT2)
        return graph_gpt2_check(c);
    if (c->family == GRAPH_OWN)
        return graph_own_check(c);
    ATOM_TRY(graph_check_range("vocab_size", c->vocab_size, GRAPH_VOCAB_MAX));
    ATOM_TRY(graph_check_range("max_position_embeddings", c->positions, GRAPH_POSITIONS_MAX));
    ATOM_TRY(graph_check_range("hidden_size", c->width, GRAPH_WIDTH_MAX));
    ATOM_TRY(graph_check_range("num_hidden_layers", c->layers, GRAPH_LAYERS_MAX));
    ATOM_TRY(graph_check_range("num_attention_heads", c->heads, GRAPH_WIDTH_MAX));
    ATOM_TRY(graph_check_range("num_key_value_heads", c->kv_heads, c->heads));
    ATOM_TRY(graph_check_range("head_dim", c->head_dim, GRAPH_WIDTH_MAX / c->heads));
    ATOM_TRY(graph_check_range("intermediate_size", c->inner, GRAPH_INNER_MAX));
    if (c->heads % c->kv_heads != 0)
        return atom_fail(ATOM_E_FORMAT,
                         "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                         (long long)c->heads, (long long)c->kv_heads);
    if (graph_family_traits(c->family)->qk_norm == GRAPH_QK_NORM_WHOLE && c->kv_heads != c->heads)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "num_key_value_heads is %lld of %lld; in models that normalise all of q "
                         "and all of k, fewer key heads than heads are not supported",
                         (long long)c->kv_heads, (long long)c->heads);
    if (graph_family_traits(c->family)->neox &&
        (c->kv_heads != c->heads || c->head_dim * c->heads != c->width))
        return atom_fail(ATOM_E_FORMAT,
                         "hidden_size %lld is not a multiple of num_attention_heads %lld",
                         (long long)c->width, (long long)c->heads);
    if (c->head_dim % 2 != 0)
        return atom_fail(ATOM_E_FORMAT, "head_dim is %lld; rotary embedding needs an even one",
                         (long long)c->head_dim);
    if (c->window < 0)
        return atom_fail(ATOM_E_FORMAT, "sliding_window is %lld; it must be 1 or more",
                         (long long)c->window);
    if (c->nope_every < 0)
        return atom_fail(ATOM_E_FORMAT, "no_rope_layer_interval is %lld; it must be 1 or more",
                         (long long)c->nope_every);
    if (c->window_layers < 0)
        return atom_fail(ATOM_E_FORMAT, "max_window_layers is %lld; it must be 0 or more",
                         (long long)c->window_layers);
    return check_numbers(c);
}

static uint64_t params_plain(const graph_config *c)
{
    if (c->family == GRAPH_GPT2)
        return graph_gpt2_params(c);
    if (c->family == GRAPH_OWN)
        return c->own->param_elements;
    uint64_t V = (uint64_t)c->vocab_size, C = (uint64_t)c->width, F = (uint64_t)c->inner;
    uint64_t D = (uint64_t)c->head_dim, q = (uint64_t)c->heads * D;
    uint64_t qkv = q + 2 * (uint64_t)c->kv_heads * D;
    const graph_traits *traits = graph_family_traits(c->family);
    uint64_t gates = traits->neox ? 1 : 2; /* products of F columns */
    uint64_t attention = qkv * C + q * C, mlp = (gates + 1) * F * C;
    uint64_t biases =
        (c->qkv_bias ? qkv : 0) + (c->o_bias ? C : 0) + (c->mlp_bias ? gates * F + C : 0);
    const graph_qk_norm qk_norm = traits->qk_norm;
    uint64_t norms = (traits->norms == GRAPH_NORMS_AROUND ? 4 : 2) * C +
                     (qk_norm == GRAPH_QK_NORM_HEADS   ? 2 * D
                      : qk_norm == GRAPH_QK_NORM_WHOLE ? qkv - (uint64_t)c->kv_heads * D
                                                       : 0);
    if (traits->neox) /* its norms have biases */
        return V * C * (c->untied ? 2 : 1) +
               (uint64_t)c->layers * (attention + mlp + biases + 4 * C) + 2 * C;
    return V * C * (c->untied ? 2 : 1) + (uint64_t)c->layers * (attention + mlp + biases + norms) +
           C;
}

uint64_t graph_model_params(const graph_config *c)
{
    const graph_bottlenecks *b = &c->bottlenecks;
    uint64_t C = (uint64_t)c->width, W = (uint64_t)b->width;
    return params_plain(c) + b->n * (b->maxout ? 2 * C + 2 * W + W * C : 2 * W * C);
}

int64_t graph_model_usual(const graph_config *c)
{
    return c->positions < GRAPH_SEQUENCE_USUAL ? c->positions : GRAPH_SEQUENCE_USUAL;
}

int64_t graph_model_reach(const graph_config *c, int64_t T)
{
    bool shorter = c->long_rope.original > 0 && T <= c->long_rope.original;
    return shorter && c->long_rope.original < c->positions ? c->long_rope.original : c->positions;
}

static atom_status build_plain(const graph_config *config, atom_dtype dtype, int64_t B, int64_t T,
                               graph **out)
{
    if (config->family == GRAPH_GPT2)
        return graph_gpt2_build(config, dtype, B, T, out);
    if (config->family == GRAPH_OWN)
        return graph_own_build(config, dtype, B, T, out);
    if (graph_family_traits(config->family)->neox)
        return graph_neox_build(config, dtype, B, T, out);
    return graph_llama_build(config, dtype, B, T, out);
}

atom_status graph_model_build(const graph_config *config, atom_dtype dtype, int64_t B, int64_t T,
                              graph **out)
{
    graph *plain = NULL;
    ATOM_TRY(graph_model_check(config));
    if (config->bottlenecks.n == 0)
        return build_plain(config, dtype, B, T, out);
    ATOM_TRY(build_plain(config, dtype, B, T, &plain));
    atom_status st = graph_bottleneck(plain, &config->bottlenecks, out);
    graph_close(&plain);
    return st;
}
