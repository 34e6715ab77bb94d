/*
 * Model families: configurations and graph builders. A configuration is plain numbers, whoever read
 * them (a preset, a config.json, a checkpoint).
 *
 * Adding a family: a row in models.c, its class defaults in llama.c (or a file like it, with a
 * builder over blocks.h), and what its config.json says beyond the others' in atom/file/hfconfig_llama.c.
 */
#ifndef ATOM_GRAPH_MODELS_H
#define ATOM_GRAPH_MODELS_H

#include "atom/graph/graph.h"

typedef enum graph_family {
    GRAPH_GPT2,
    GRAPH_LLAMA,   /* Llama 2 and 3, SmolLM2 */
    GRAPH_MISTRAL, /* a window may limit what attention sees */
    GRAPH_QWEN2,   /* biases on q, k, v */
    GRAPH_QWEN3,   /* norms on the heads of q and k; head_dim of its own */
    GRAPH_OWN,     /* somebody's own model: a graph is there, the numbers only describe it */
    GRAPH_FAMILY_N
} graph_family;

typedef struct graph_config {
    char name[GRAPH_NAME_MAX];
    int64_t vocab_size; /* V */
    int64_t positions;  /* P: n_positions, max_position_embeddings: the longest sequence */
    int64_t width;      /* C: n_embd, hidden_size */
    int64_t layers;     /* L: n_layer, num_hidden_layers */
    int64_t heads;      /* H: n_head, num_attention_heads */
    int64_t inner;      /* F: n_inner, 4 C when the file says null; intermediate_size */
    float epsilon;      /* layer_norm_epsilon, rms_norm_eps */
    float init_std;     /* initializer_range; GPT-2: c_proj weights get std / sqrt(2 L) */
    float embd_pdrop, attn_pdrop,
        resid_pdrop; /* other families have only attn: attention_dropout */

    /* From here on zero for GPT-2. */
    graph_family family;
    int64_t kv_heads;      /* K: num_key_value_heads */
    int64_t head_dim;      /* D; H D need not be C */
    int64_t window;        /* sliding_window where it is used; 0: none */
    int64_t window_layers; /* layers before this one have none (max_window_layers) */
    bool untied;           /* the head has weights of its own */
    bool qkv_bias, o_bias, mlp_bias;
    atom_rope rope;

    graph *
        own; /* OWN: the model at some B and T, with its table of stored tensors; else NULL. Belongs
                to who made the configuration, as copies of it do not (graph_config_free) */
} graph_config;

/* Only of OWN is there anything to free. */
void graph_config_free(graph_config *config);

/* NULL-terminated names, in order: gpt2-124m ... gpt2-1558m, gpt3-125m ... gpt3-175b (ATOM Table
 * II), then published sizes of the other families. */
const char *const *graph_preset_names(void);
/* ATOM_E_USAGE with a suggestion for unknown names. Dropouts are 0 in presets. */
ATOM_MUST atom_status graph_preset_get(const char *name, graph_config *config);

/* "llama": model_type of config.json. */
const char *graph_family_name(graph_family family);
/* "LlamaForCausalLM" */
const char *graph_family_class(graph_family family);
/* What transformers' class of this family says for absent keys. kv_heads, head_dim: 0 where it
 * derives them from others. */
void graph_family_defaults(graph_family family, graph_config *config);

/* Ranges and divisibility; ATOM_E_FORMAT names the key as config.json spells it. */
ATOM_MUST atom_status graph_model_check(const graph_config *config);
/* Canonical count of parameters (tied head counted once). */
uint64_t graph_model_params(const graph_config *config);
/* What to train at by default: the longest, but at most this. Many models could take more than a
 * hundred thousand tokens, which hardly any machine can. */
enum { GRAPH_SEQUENCE_USUAL = 2048 };
int64_t graph_model_usual(const graph_config *config);
/*
 * The model as a graph: sealed, unfused. ATOM_E_USAGE where T is longer than it can take.
 *
 * Families other than GPT-2: "embed", "layers.0.input_layernorm", "layers.0.self_attn.qkv_proj",
 * "layers.0.self_attn.qk_norm" (Qwen 3), "layers.0.self_attn.rope", "layers.0.self_attn",
 * "layers.0.self_attn.o_proj", "layers.0.add_1", "layers.0.post_attention_layernorm",
 * "layers.0.mlp.gate_up_proj", "layers.0.mlp.act", "layers.0.mlp.down_proj", "layers.0.add_2", ...,
 * "norm", "lm_head", "loss". Parameters have the files' names without "model.", but q, k and v lie
 * one after the other in one qkv_proj, and gate and up in one gate_up_proj: one product each.
 */
ATOM_MUST atom_status graph_model_build(const graph_config *config, atom_dtype dtype, int64_t B,
                                        int64_t T, graph **out);

/*
 * Somebody's own model (own.c): describe fills the numbers of a configuration in from a sealed,
 * unfused graph, which it takes over on success; `positions` is the longest sequence. build is that
 * graph again at another dtype, B and T.
 */
ATOM_MUST atom_status graph_own_describe(const char *name, graph *g, int64_t positions,
                                         graph_config *config);
ATOM_MUST atom_status graph_own_check(const graph_config *config);
ATOM_MUST atom_status graph_own_build(const graph_config *config, atom_dtype dtype, int64_t B,
                                      int64_t T, graph **out);

/* GPT-2's own. */
ATOM_MUST atom_status graph_gpt2_check(const graph_config *config);
uint64_t graph_gpt2_params(const graph_config *config);
/*
 * Exactly GPT-2: pre-norm, gelu_new, tied head, learned positions, biases, dropout at the four
 * usual places (nodes left out where p = 0). Sealed, unfused. T <= positions. Node names: "embed",
 * "embed.drop", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn", "h.0.attn.c_proj", "h.0.attn.drop",
 * "h.0.add_1", "h.0.ln_2", "h.0.mlp.c_fc", "h.0.mlp.gelu", "h.0.mlp.c_proj", "h.0.mlp.drop",
 * "h.0.add_2", ..., "ln_f", "lm_head", "loss".
 */
ATOM_MUST atom_status graph_gpt2_build(const graph_config *config, atom_dtype dtype, int64_t B,
                                       int64_t T, graph **out);

#endif
