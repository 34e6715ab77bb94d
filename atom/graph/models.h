/*
 * Model families: configurations and graph builders. A configuration is plain numbers, whoever read
 * them (a preset, a config.json, a checkpoint).
 */
#ifndef ATOM_GRAPH_MODELS_H
#define ATOM_GRAPH_MODELS_H

#include "atom/graph/graph.h"

typedef struct graph_gpt2_config {
    char name[GRAPH_NAME_MAX];
    int64_t vocab_size; /* V */
    int64_t positions;  /* P: n_positions, the longest sequence */
    int64_t width;      /* C: n_embd */
    int64_t layers;     /* L: n_layer */
    int64_t heads;      /* H: n_head */
    int64_t inner;      /* F: n_inner, 4 C when the file says null */
    float epsilon;      /* layer_norm_epsilon */
    float init_std;     /* initializer_range; c_proj weights get std / sqrt(2 L) */
    float embd_pdrop, attn_pdrop, resid_pdrop;
} graph_gpt2_config;

/* NULL-terminated names, in order: gpt2-124m ... gpt2-1558m, gpt3-125m ... gpt3-175b (ATOM Table
 * II). */
const char *const *graph_preset_names(void);
/* ATOM_E_USAGE with a suggestion for unknown names. Dropouts are 0 in presets; V is 50257. */
ATOM_MUST atom_status graph_preset_get(const char *name, graph_gpt2_config *config);
/* Ranges and divisibility; ATOM_E_FORMAT names the key as config.json spells it. */
ATOM_MUST atom_status graph_gpt2_check(const graph_gpt2_config *config);
/* Canonical count of parameters (tied head counted once). */
uint64_t graph_gpt2_params(const graph_gpt2_config *config);

/*
 * Exactly GPT-2: pre-norm, gelu_new, tied head, learned positions, biases, dropout at the four
 * usual places (nodes left out where p = 0). Sealed, unfused. T <= positions. Node names: "embed",
 * "embed.drop", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn", "h.0.attn.c_proj", "h.0.attn.drop",
 * "h.0.add_1", "h.0.ln_2", "h.0.mlp.c_fc", "h.0.mlp.gelu", "h.0.mlp.c_proj", "h.0.mlp.drop",
 * "h.0.add_2", ..., "ln_f", "lm_head", "loss".
 */
ATOM_MUST atom_status graph_gpt2_build(const graph_gpt2_config *config, atom_dtype dtype, int64_t B,
                                       int64_t T, graph **out);

#endif
