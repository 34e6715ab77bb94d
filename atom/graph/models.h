/*
 * Model families: configurations and graph builders. A configuration is plain numbers, whoever read
 * them (a preset, a config.json, a checkpoint).
 *
 * Adding a family: a value of graph_family and a row in families.c; HACKING.md has the rest.
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
    GRAPH_SMOLLM3, /* some layers have no rotary embedding */
    GRAPH_GRANITE, /* four multipliers */
    GRAPH_PHI3,    /* Phi 3 and 4: packed in files */
    GRAPH_OLMO2,   /* norms behind attention and MLP, and of all of q and all of k */
    GRAPH_OLMO3,   /* as OLMo 2; three layers of four with a window, whose rope is not scaled */
    GRAPH_GEMMA2,  /* norms around attention and MLP, every second layer with a window, soft caps */
    GRAPH_GEMMA3, /* norms around attention and MLP; most layers with a window and a rope of theirs */
    GRAPH_NEOX,   /* LayerNorms, an MLP without a gate; both branches may read the same */
    GRAPH_OWN,    /* somebody's own model: a graph is there, the numbers only describe it */
    GRAPH_FAMILY_N
} graph_family;

/* LongRoPE: what frequencies are divided by where sequence_len is at most the original length, and
 * where it is longer. */
typedef struct graph_long_rope {
    int64_t original; /* original_max_position_embeddings; 0: no such thing */
    float shorter[ATOM_ROPE_DIVISORS_MAX], longer[ATOM_ROPE_DIVISORS_MAX];
} graph_long_rope;

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
        resid_pdrop; /* other families have only attn: attention_dropout; GPT-NeoX's
                        hidden_dropout is the other two */

    bool untied;     /* the head has weights of its own */
    bool tied_files; /* only here, for an adapter: the model's files have it in the embedding */

    /* From here on zero for GPT-2. */
    graph_family family;
    int64_t kv_heads;      /* K: num_key_value_heads */
    int64_t head_dim;      /* D; H D need not be C */
    int64_t window;        /* sliding_window where it is used; 0: none */
    int64_t window_layers; /* layers before this one have none (max_window_layers) */
    int64_t full_every;    /* nor have layers N - 1, 2 N - 1, ... (layer_types); 0: no such thing */
    float local_theta;     /* the rope of layers that may have a window: this base, nothing scaled
                              (graph_local_rope); 0: as the others */
    float query_scalar;    /* whose root divides scores (query_pre_attn_scalar); 0: D */
    float attn_cap, final_cap; /* soft caps of scores and of logits (attn_logit_softcapping,
                                  final_logit_softcapping); 0: none */
    bool qkv_bias, o_bias, mlp_bias;
    bool parallel;  /* GPT-NeoX: the MLP reads what attention reads (use_parallel_residual) */
    bool tanh_gelu; /* GPT-NeoX: gelu's tanh form in place of the exact one (hidden_act) */
    atom_rope rope; /* without divisors: those of long_rope depend on T */
    graph_long_rope long_rope;
    int64_t nope_every; /* layers N - 1, 2 N - 1, ... turn nothing (no_rope_layers); 0: all turn */

    /* embedding_multiplier, residual_multiplier and attention_multiplier; logits_scaling, which
     * divides. 0 is 1, but in attention 1/sqrt(D). */
    float embedding_scale, residual_scale, attention_scale, logits_divisor;

    graph_bottlenecks bottlenecks; /* of any family: on boundaries between its blocks */

    /* OWN: the model at some B and T, with its table of stored tensors; else NULL. Belongs to who
     * made the configuration, not to copies of it (graph_config_free). */
    graph *own;
} graph_config;

/* Which layers attend through a window. */
typedef enum graph_windows {
    GRAPH_WINDOW_NEVER,
    GRAPH_WINDOW_ALL,   /* all of them, unless sliding_window is null */
    GRAPH_WINDOW_LATER, /* where use_sliding_window is true, those from max_window_layers on */
    GRAPH_WINDOW_MOST   /* all but every n-th, as layer_types or sliding_window_pattern say */
} graph_windows;

/* Where attention and MLP have norms. */
typedef enum graph_norms {
    GRAPH_NORMS_BEFORE, /* of what they read */
    GRAPH_NORMS_BEHIND, /* of what they make */
    GRAPH_NORMS_AROUND  /* of both */
} graph_norms;

/* Which norms q and k pass before they are turned. */
typedef enum graph_qk_norm {
    GRAPH_QK_NORM_NONE,
    GRAPH_QK_NORM_HEADS, /* an RMSNorm of every head, with weights that the heads share */
    GRAPH_QK_NORM_WHOLE  /* one RMSNorm of all heads of q, and one of k: as many heads of each */
} graph_qk_norm;

/* The rope of layers that may have a window, where it is not that of the others. Nothing is scaled in it. */
typedef enum graph_local_rope {
    GRAPH_LOCAL_ROPE_NONE,
    GRAPH_LOCAL_ROPE_OWN, /* its base is rope_local_base_freq, or inside rope_parameters */
    GRAPH_LOCAL_ROPE_SAME /* its base is that of the others, rope_theta */
} graph_local_rope;

/* What sets a family apart, as a row of families.c. Strings are constants. */
typedef struct graph_traits {
    const char *name;       /* "llama": model_type of config.json */
    const char *class_name; /* "LlamaForCausalLM" */
    const char *body_name;  /* "LlamaModel": the class without a head */
    const char *gguf;       /* llama.cpp's name of the architecture; NULL: it has none */
    bool gguf_pairs;        /* there, rows of q and k stand in pairs that are turned together */
    bool attention_bias, mlp_bias; /* config.json has these keys; the first is for q, k, v and o */
    graph_windows windows;
    int64_t window; /* sliding_window where it is used but absent */
    graph_qk_norm qk_norm;
    bool partial;   /* config.json has partial_rotary_factor */
    bool packed;    /* files have qkv_proj and gate_up_proj */
    bool long_rope; /* GGUF has LongRoPE for it; older config.json call that su or yarn */
    bool
        neox; /* built by neox.c, with its names: LayerNorms, no gate, q, k and v head by head in files */
    graph_norms norms;
    bool lifted;       /* weights of norms are what is added to 1 */
    bool geglu;        /* the MLP's gate is gelu's tanh form; config.json has hidden_activation */
    bool root_scaled;  /* embeddings are multiplied by the root of C, rounded to the dtype */
    bool query_scalar; /* config.json has query_pre_attn_scalar */
    bool caps;         /* it has final_logit_softcapping */
    bool score_caps;   /* it has attn_logit_softcapping, which Gemma 3's class ignores */
    bool typed_window; /* of windows that all layers have: layer_types may say otherwise */
    graph_local_rope local_rope;
    bool nope;             /* config.json has no_rope_layers and no_rope_layer_interval */
    bool multipliers;      /* it has the four keys of Granite */
    graph_config defaults; /* for absent keys. kv_heads, head_dim: 0 where others decide them */
} graph_traits;
const graph_traits *graph_family_traits(graph_family family);

/* Does this layer see everything, whatever the window? */
bool graph_layer_is_full(const graph_config *config, int64_t layer);

/* Only of OWN is there anything to free. */
void graph_config_free(graph_config *config);

/* NULL-terminated names, in order: gpt2-124m ... gpt2-1558m, gpt3-125m ... gpt3-175b (ATOM Table
 * II), then published sizes of the other families. */
const char *const *graph_preset_names(void);
/* ATOM_E_USAGE with a suggestion for unknown names. Dropouts are 0 in presets. */
ATOM_MUST atom_status graph_preset_get(const char *name, graph_config *config);

/* "llama": model_type of config.json. */
const char *graph_family_name(graph_family family);
/* "gpt2, llama and mistral": the families that a config.json may name, or those of GGUF. */
enum { GRAPH_FAMILY_LIST_MAX = 256 };
void graph_family_list(bool gguf, char text[GRAPH_FAMILY_LIST_MAX]);
/* What transformers' class of this family says for absent keys (graph_traits.defaults). */
void graph_family_defaults(graph_family family, graph_config *config);

/* Ranges and divisibility; ATOM_E_FORMAT names the key as config.json spells it. */
ATOM_MUST atom_status graph_model_check(const graph_config *config);
/* The same of its bottlenecks alone. */
ATOM_MUST atom_status graph_bottlenecks_check(const graph_config *config);
/* Canonical count of parameters (tied head counted once). */
uint64_t graph_model_params(const graph_config *config);
/* What to train at by default: the longest, but at most this. Many models could take more than a
 * hundred thousand tokens, which hardly any machine can. */
enum { GRAPH_SEQUENCE_USUAL = 2048 };
int64_t graph_model_usual(const graph_config *config);
/* How many tokens a graph that was built at T can be walked over one by one: its divisors of LongRoPE
 * are those of texts up to the original length, or of longer ones. */
int64_t graph_model_reach(const graph_config *config, int64_t T);
/*
 * The model as a graph: sealed, unfused. ATOM_E_USAGE where T is longer than it can take.
 *
 * Families other than GPT-2: "embed", "layers.0.input_layernorm", "layers.0.self_attn.qkv_proj",
 * "layers.0.self_attn.qk_norm" (Qwen 3, OLMo), "layers.0.self_attn.rope", "layers.0.self_attn",
 * "layers.0.self_attn.o_proj", "layers.0.add_1", "layers.0.post_attention_layernorm",
 * "layers.0.mlp.gate_up_proj", "layers.0.mlp.act", "layers.0.mlp.down_proj", "layers.0.add_2", ...,
 * "norm", "lm_head", "loss"; with multipliers also "embed.scale", "layers.0.self_attn.o_proj.scale",
 * "layers.0.mlp.down_proj.scale" and "norm.scale". OLMo has no "layers.0.input_layernorm"; its
 * "layers.0.post_attention_layernorm" stands behind o_proj, and "layers.0.post_feedforward_layernorm"
 * behind down_proj; Gemma has all three, and "layers.0.pre_feedforward_layernorm". GPT-NeoX has
 * "layers.0.attention.query_key_value", "layers.0.attention.rope", "layers.0.attention",
 * "layers.0.attention.dense", "layers.0.mlp.dense_h_to_4h", "layers.0.mlp.act", "layers.0.mlp.dense_4h_to_h"
 * and "final_layer_norm" in their place, the parameter "embed_out.weight" at "lm_head", and dropouts as GPT-2. Bottlenecks
 * stand between blocks (graph_bottleneck). Parameters have the files' names without "model.", but q,
 * k and v lie one after the other in one qkv_proj, and gate and up in one gate_up_proj: one product
 * each.
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
/* Do two sealed graphs compute the same from tensors of the same names, but for dropout, for what nodes are called, and
 * for the sizes of micro-batch and sequence? where: what differs first, as b calls it; "": nothing. */
enum { GRAPH_WHERE_MAX = GRAPH_STORED_NAME_MAX + 16 };
ATOM_MUST atom_status graph_own_compare(const graph *a, const graph *b,
                                        char where[GRAPH_WHERE_MAX]);
ATOM_MUST atom_status graph_own_build(const graph_config *config, atom_dtype dtype, int64_t B,
                                      int64_t T, graph **out);

/* GPT-2's own. */
ATOM_MUST atom_status graph_gpt2_check(const graph_config *config);
uint64_t graph_gpt2_params(const graph_config *config);
/*
 * Exactly GPT-2: pre-norm, gelu_new, a head that is tied unless config says untied, learned positions, biases, dropout at the four
 * usual places (nodes left out where p = 0). Sealed, unfused. T <= positions. Node names: "embed",
 * "embed.drop", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn", "h.0.attn.c_proj", "h.0.attn.drop",
 * "h.0.add_1", "h.0.ln_2", "h.0.mlp.c_fc", "h.0.mlp.gelu", "h.0.mlp.c_proj", "h.0.mlp.drop",
 * "h.0.add_2", ..., "ln_f", "lm_head", "loss".
 */
ATOM_MUST atom_status graph_gpt2_build(const graph_config *config, atom_dtype dtype, int64_t B,
                                       int64_t T, graph **out);

#endif
