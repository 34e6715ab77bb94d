/*
 * Small random models of all families for tests: a pure function of the seed. Every third seed is
 * one of Llama's kin, with what its row of families.c allows (grouped heads, heads of odd sizes,
 * tied and untied, biases, windows, multipliers, the three rotary embeddings and none), the others
 * are GPT-2 (random_gpt2.h).
 */
#ifndef TESTS_LIB_RANDOM_MODEL_H
#define TESTS_LIB_RANDOM_MODEL_H

#include "tests/lib/random_gpt2.h"

static inline atom_rope random_rope(uint64_t seed)
{
    static const atom_rope kinds[3] = {
        {.theta = 1e4f, .factor = 1},
        {.theta = 5e5f, .factor = 4},
        {.theta = 1e4f, .factor = 8, .low = 1, .high = 4, .original = 16}};
    return kinds[random_gpt2_draw(seed, 200, 0, 2)];
}

/* Of families that can: a part of every head, and LongRoPE at lengths on both sides of its limit. Of
 * the others, some have YaRN. */
static inline void random_rope_parts(uint64_t seed, graph_config *c)
{
    int64_t kind = random_gpt2_draw(seed, 218, 0, 2);
    if (!graph_family_traits(c->family)->partial) {
        if (kind == 0)
            c->rope = (atom_rope){.theta = 1e4f,
                                  .factor = 4,
                                  .low = 1,
                                  .high = 3,
                                  .original = 16,
                                  .gain = 1.125f,
                                  .yarn = 1};
        return;
    }
    if (kind > 0)
        c->rope.width = 2 * (int32_t)random_gpt2_draw(seed, 219, 1, c->head_dim / 2 - 1);
    if (kind < 2 && graph_family_traits(c->family)->long_rope) {
        c->rope = (atom_rope){.theta = 1e4f, .factor = 1, .gain = 1.25f, .width = c->rope.width};
        c->long_rope.original = random_gpt2_draw(seed, 220, 1, c->positions);
        for (int64_t i = 0; i < atom_rope_width(&c->rope, c->head_dim) / 2; i++) {
            c->long_rope.shorter[i] = 1 + 0.25f * (float)i;
            c->long_rope.longer[i] = 2 + (float)i;
        }
    }
}

/* 1 is drawn, too, which adds no node. */
static inline void random_multipliers(uint64_t seed, graph_config *c)
{
    static const float some[4] = {1, 0.22f, 12, 0.5f};
    c->embedding_scale = some[random_gpt2_draw(seed, 215, 0, 3)];
    c->residual_scale = some[random_gpt2_draw(seed, 216, 0, 1)];
    c->attention_scale = 1 / (float)c->head_dim;
    c->logits_divisor = some[random_gpt2_draw(seed, 217, 0, 3)];
}

/* No wider than its heads; one dropout for three places. */
static inline void random_neox(uint64_t seed, graph_config *c)
{
    c->kv_heads = c->heads;
    c->width = c->heads * c->head_dim;
    c->parallel = random_gpt2_draw(seed, 227, 0, 2) > 0;
    c->tanh_gelu = random_gpt2_draw(seed, 228, 0, 2) == 0;
    c->embd_pdrop = c->resid_pdrop = random_gpt2_draw(seed, 229, 0, 1) ? 0.1f : 0;
}

/* K 1 .. 3 key heads, 1 .. 3 query heads each, D 4 .. 16; C 9 .. 60; as random_gpt2_make else. */
static inline random_gpt2 random_llama_make(uint64_t seed)
{
    random_gpt2 r = random_gpt2_make(seed);
    graph_config old = r.config, *c = &r.config;
    graph_family_defaults((graph_family)random_gpt2_draw(seed, 201, GRAPH_LLAMA, GRAPH_OWN - 1), c);
    const graph_traits *traits = graph_family_traits(c->family);
    memcpy(c->name, old.name, sizeof c->name);
    c->vocab_size = old.vocab_size;
    c->positions = old.positions;
    c->layers = random_gpt2_draw(seed, 202, 1, 3);
    c->kv_heads = random_gpt2_draw(seed, 203, 1, 3);
    c->heads = c->kv_heads * random_gpt2_draw(seed, 204, 1, 3);
    if (traits->qk_norm == GRAPH_QK_NORM_WHOLE)
        c->kv_heads = c->heads;
    c->head_dim = 2 * random_gpt2_draw(seed, 205, 2, 8);
    c->width = random_gpt2_draw(seed, 206, 9, 60);
    if (traits->neox)
        random_neox(seed, c);
    c->inner = random_gpt2_draw(seed, 207, 11, 90);
    c->init_std = old.init_std;
    c->attn_pdrop = old.attn_pdrop;
    c->untied = random_gpt2_draw(seed, 208, 0, 1);
    c->rope = random_rope(seed);
    random_rope_parts(seed, c);
    c->window = c->window_layers = 0;
    if (traits->windows != GRAPH_WINDOW_NEVER && random_gpt2_draw(seed, 211, 0, 1)) {
        c->window = random_gpt2_draw(seed, 212, 1, 12);
        c->window_layers = random_gpt2_draw(seed, 213, 0, c->layers - 1);
    }
    if (traits->windows == GRAPH_WINDOW_ALL && !traits->typed_window)
        c->window_layers = 0;
    if (traits->windows == GRAPH_WINDOW_MOST) {
        c->window_layers = 0;
        c->full_every = random_gpt2_draw(seed, 221, 0, 3);
    }
    if (traits->local_rope == GRAPH_LOCAL_ROPE_SAME)
        c->local_theta = c->rope.theta;
    if (traits->local_rope == GRAPH_LOCAL_ROPE_OWN)
        c->local_theta = random_gpt2_draw(seed, 222, 0, 1) ? 1e4f : 300;
    if (traits->query_scalar)
        c->query_scalar = random_gpt2_draw(seed, 223, 0, 1) ? (float)c->head_dim : 20;
    if (traits->caps) {
        c->attn_cap = traits->score_caps && random_gpt2_draw(seed, 224, 0, 2) ? 1.5f : 0;
        c->final_cap = random_gpt2_draw(seed, 225, 0, 2) ? 2 : 0;
    }
    if (traits->nope)
        c->nope_every = random_gpt2_draw(seed, 214, 0, 4);
    if (traits->multipliers)
        random_multipliers(seed, c);
    if (traits->attention_bias && !(traits->neox && random_gpt2_draw(seed, 226, 0, 1)))
        c->qkv_bias = c->o_bias = random_gpt2_draw(seed, 209, 0, 1);
    if (traits->mlp_bias)
        c->mlp_bias = random_gpt2_draw(seed, 210, 0, 1);
    return r;
}

static inline random_gpt2 random_model_make(uint64_t seed)
{
    return seed % 3 == 0 ? random_llama_make(seed) : random_gpt2_make(seed);
}

#endif
