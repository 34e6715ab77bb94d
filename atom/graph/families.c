/*
 * Owns the table of model families. One idea: a family is a row, and whoever reads, writes, builds
 * or exports a model asks the row and never the family's name. Refuses nothing. The defaults are
 * what transformers' class of the family says for keys that a config.json leaves out; those of
 * GPT-2 are in atom/file/hfconfig.c. Sources:
 *
 *   Llama 2, 3, SmolLM2   biases where attention_bias and mlp_bias say so   Touvron et al. 2023;
 *                                                                           Llama 3 herd 2024
 *   Mistral               a window on what attention sees                   Jiang et al. 2023, 2.1
 *   Qwen2, Qwen2.5        biases on q, k and v; later layers may have       Qwen2 report 2024, 2.2.1
 *                         a window
 *   Qwen3                 an RMSNorm on every head of q and k before they   Qwen3 report 2025, 2
 *                         are turned; heads whose width is not C / H
 *   SmolLM3               one layer in four has no rotary embedding         Yang et al. 2025, RNoPE;
 *                                                                           SmolLM3 blog 2025
 *   Granite 3             what enters and leaves the residual stream,       Yang et al. 2022, muP;
 *                         scores and logits are multiplied by constants     Granite 3.0 report 2024
 *   Phi-3, Phi-4          as Mistral; q, k and v are one tensor in files,   Phi-3 report 2024, 2
 *                         and so are gate and up; later ones turn a part of every
 *                         head (Phi-4-mini report 2025, 2)
 *   OLMo 2                an RMSNorm behind attention and MLP, none before  OLMo 2 report 2025, 3.1
 *                         them; one of all of q and one of all of k
 *   OLMo 3                as OLMo 2; three layers in four have a window,  OLMo 3 report 2025, 3.1
 *                         and only the others' rope is scaled
 *   Gemma 2               RMSNorms around attention and MLP, whose weights  Gemma 2 report 2024, 2
 *                         are added to 1; GEGLU; every second layer with a
 *                         window; soft caps of scores and logits
 *   Gemma 3               as Gemma 2, with an RMSNorm on every head of q    Gemma 3 report 2025, 2
 *                         and k in the place of soft caps; five layers with
 *                         a window to one without, each kind with a rope of
 *                         its own
 *   GPT-NeoX, Pythia,     LayerNorms with biases, an MLP without a gate;    Black et al. 2022, 2.1;
 *   Dolly 2               attention and MLP may read the same and be added  Biderman et al. 2023
 *                         together; q, k and v of a head are together in files
 */
#include "atom/graph/models.h"

#include <stdio.h>
#include <string.h>

static const graph_traits families[GRAPH_FAMILY_N] = {
    [GRAPH_GPT2] = {.name = "gpt2",
                    .class_name = "GPT2LMHeadModel",
                    .body_name = "GPT2Model",
                    .gguf = "gpt2",
                    .defaults = {.family = GRAPH_GPT2}},
    [GRAPH_LLAMA] = {.name = "llama",
                     .class_name = "LlamaForCausalLM",
                     .body_name = "LlamaModel",
                     .gguf = "llama",
                     .gguf_pairs = true,
                     .attention_bias = true,
                     .mlp_bias = true,
                     .defaults = {.family = GRAPH_LLAMA,
                                  .vocab_size = 32000,
                                  .positions = 2048,
                                  .width = 4096,
                                  .layers = 32,
                                  .heads = 32,
                                  .inner = 11008,
                                  .epsilon = 1e-6f,
                                  .init_std = 0.02f,
                                  .untied = true,
                                  .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_MISTRAL] = {.name = "mistral",
                       .class_name = "MistralForCausalLM",
                       .body_name = "MistralModel",
                       .gguf = "llama",
                       .gguf_pairs = true,
                       .windows = GRAPH_WINDOW_ALL,
                       .window = 4096,
                       .typed_window = true,
                       .defaults = {.family = GRAPH_MISTRAL,
                                    .vocab_size = 32000,
                                    .positions = 131072,
                                    .width = 4096,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .inner = 14336,
                                    .epsilon = 1e-6f,
                                    .init_std = 0.02f,
                                    .window = 4096,
                                    .untied = true,
                                    .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_QWEN2] = {.name = "qwen2",
                     .class_name = "Qwen2ForCausalLM",
                     .body_name = "Qwen2Model",
                     .gguf = "qwen2",
                     .windows = GRAPH_WINDOW_LATER,
                     .window = 4096,
                     .defaults = {.family = GRAPH_QWEN2,
                                  .vocab_size = 151936,
                                  .positions = 32768,
                                  .width = 4096,
                                  .layers = 32,
                                  .heads = 32,
                                  .kv_heads = 32,
                                  .inner = 22016,
                                  .epsilon = 1e-6f,
                                  .init_std = 0.02f,
                                  .untied = true,
                                  .qkv_bias = true,
                                  .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_QWEN3] = {.name = "qwen3",
                     .class_name = "Qwen3ForCausalLM",
                     .body_name = "Qwen3Model",
                     .gguf = "qwen3",
                     .attention_bias = true,
                     .windows = GRAPH_WINDOW_LATER,
                     .window = 4096,
                     .qk_norm = GRAPH_QK_NORM_HEADS,
                     .defaults = {.family = GRAPH_QWEN3,
                                  .vocab_size = 151936,
                                  .positions = 32768,
                                  .width = 4096,
                                  .layers = 32,
                                  .heads = 32,
                                  .kv_heads = 32,
                                  .head_dim = 128,
                                  .inner = 22016,
                                  .epsilon = 1e-6f,
                                  .init_std = 0.02f,
                                  .untied = true,
                                  .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_SMOLLM3] = {.name = "smollm3",
                       .class_name = "SmolLM3ForCausalLM",
                       .body_name = "SmolLM3Model",
                       .gguf = "smollm3",
                       .gguf_pairs = true,
                       .attention_bias = true,
                       .mlp_bias = true,
                       .nope = true,
                       .defaults = {.family = GRAPH_SMOLLM3,
                                    .vocab_size = 128256,
                                    .positions = 32768,
                                    .width = 2048,
                                    .layers = 36,
                                    .heads = 16,
                                    .kv_heads = 4,
                                    .inner = 11008,
                                    .epsilon = 1e-6f,
                                    .init_std = 0.02f,
                                    .nope_every = 4,
                                    .rope = {.theta = 2e6f, .factor = 1}}},
    [GRAPH_GRANITE] = {.name = "granite",
                       .class_name = "GraniteForCausalLM",
                       .body_name = "GraniteModel",
                       .gguf = "granite",
                       .gguf_pairs = true,
                       .attention_bias = true,
                       .mlp_bias = true,
                       .multipliers = true,
                       .defaults = {.family = GRAPH_GRANITE,
                                    .vocab_size = 32000,
                                    .positions = 2048,
                                    .width = 4096,
                                    .layers = 32,
                                    .heads = 32,
                                    .inner = 11008,
                                    .epsilon = 1e-6f,
                                    .init_std = 0.02f,
                                    .untied = true,
                                    .embedding_scale = 1,
                                    .residual_scale = 1,
                                    .attention_scale = 1,
                                    .logits_divisor = 1,
                                    .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_PHI3] = {.name = "phi3",
                    .class_name = "Phi3ForCausalLM",
                    .body_name = "Phi3Model",
                    .gguf = "phi3",
                    .windows = GRAPH_WINDOW_ALL,
                    .partial = true,
                    .packed = true,
                    .long_rope = true,
                    .defaults = {.family = GRAPH_PHI3,
                                 .vocab_size = 32064,
                                 .positions = 4096,
                                 .width = 3072,
                                 .layers = 32,
                                 .heads = 32,
                                 .inner = 8192,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f,
                                 .untied = true,
                                 .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_OLMO2] = {.name = "olmo2",
                     .class_name = "Olmo2ForCausalLM",
                     .body_name = "Olmo2Model",
                     .gguf = "olmo2",
                     .attention_bias = true,
                     .qk_norm = GRAPH_QK_NORM_WHOLE,
                     .norms = GRAPH_NORMS_BEHIND,
                     .defaults = {.family = GRAPH_OLMO2,
                                  .vocab_size = 50304,
                                  .positions = 2048,
                                  .width = 4096,
                                  .layers = 32,
                                  .heads = 32,
                                  .inner = 11008,
                                  .epsilon = 1e-5f,
                                  .init_std = 0.02f,
                                  .untied = true,
                                  .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_OLMO3] = {.name = "olmo3",
                     .class_name = "Olmo3ForCausalLM",
                     .body_name = "Olmo3Model",
                     .gguf = "olmo2",
                     .attention_bias = true,
                     .windows = GRAPH_WINDOW_MOST,
                     .window = 4096,
                     .qk_norm = GRAPH_QK_NORM_WHOLE,
                     .norms = GRAPH_NORMS_BEHIND,
                     .local_rope = GRAPH_LOCAL_ROPE_SAME,
                     .defaults = {.family = GRAPH_OLMO3,
                                  .vocab_size = 50304,
                                  .positions = 2048,
                                  .width = 4096,
                                  .layers = 32,
                                  .heads = 32,
                                  .inner = 11008,
                                  .epsilon = 1e-5f,
                                  .init_std = 0.02f,
                                  .window = 4096,
                                  .full_every = 4,
                                  .untied = true,
                                  .rope = {.factor =
                                               1}}}, /* theta: transformers 4 and 5 disagree */
    [GRAPH_GEMMA2] = {.name = "gemma2",
                      .class_name = "Gemma2ForCausalLM",
                      .body_name = "Gemma2Model",
                      .gguf = "gemma2",
                      .attention_bias = true,
                      .windows = GRAPH_WINDOW_MOST,
                      .window = 4096,
                      .norms = GRAPH_NORMS_AROUND,
                      .lifted = true,
                      .geglu = true,
                      .root_scaled = true,
                      .query_scalar = true,
                      .caps = true,
                      .score_caps = true,
                      .defaults = {.family = GRAPH_GEMMA2,
                                   .vocab_size = 256000,
                                   .positions = 8192,
                                   .width = 2304,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .inner = 9216,
                                   .epsilon = 1e-6f,
                                   .init_std = 0.02f,
                                   .window = 4096,
                                   .full_every = 2,
                                   .query_scalar = 256,
                                   .attn_cap = 50,
                                   .final_cap = 30,
                                   .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_GEMMA3] = {.name = "gemma3_text",
                      .class_name = "Gemma3ForCausalLM",
                      .body_name = "Gemma3TextModel",
                      .gguf = "gemma3",
                      .attention_bias = true,
                      .windows = GRAPH_WINDOW_MOST,
                      .window = 4096,
                      .qk_norm = GRAPH_QK_NORM_HEADS,
                      .norms = GRAPH_NORMS_AROUND,
                      .lifted = true,
                      .geglu = true,
                      .root_scaled = true,
                      .query_scalar = true,
                      .caps = true,
                      .local_rope = GRAPH_LOCAL_ROPE_OWN,
                      .defaults = {.family = GRAPH_GEMMA3,
                                   .vocab_size = 262208,
                                   .positions = 131072,
                                   .width = 2304,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .inner = 9216,
                                   .epsilon = 1e-6f,
                                   .init_std = 0.02f,
                                   .window = 4096,
                                   .full_every = 6,
                                   .local_theta = 1e4f,
                                   .query_scalar = 256,
                                   .rope = {.theta = 1e6f, .factor = 1}}},
    [GRAPH_NEOX] = {.name = "gpt_neox",
                    .class_name = "GPTNeoXForCausalLM",
                    .body_name = "GPTNeoXModel",
                    .gguf = "gptneox",
                    .attention_bias = true,
                    .partial = true,
                    .neox = true,
                    .defaults = {.family = GRAPH_NEOX,
                                 .vocab_size = 50432,
                                 .positions = 2048,
                                 .width = 6144,
                                 .layers = 44,
                                 .heads = 64,
                                 .inner = 24576,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f,
                                 .untied = true,
                                 .parallel = true,
                                 .qkv_bias = true,
                                 .o_bias = true,
                                 .mlp_bias = true,
                                 .rope = {.theta = 1e4f, .factor = 1}}},
    [GRAPH_OWN] = {.name = "atom_graph",
                   .class_name = "AtomGraphForCausalLM",
                   .body_name = "AtomGraphModel",
                   .defaults = {.family = GRAPH_OWN}},
};

const graph_traits *graph_family_traits(graph_family family)
{
    return &families[family];
}

const char *graph_family_name(graph_family family)
{
    return families[family].name;
}

void graph_family_defaults(graph_family family, graph_config *config)
{
    *config = families[family].defaults;
}

bool graph_layer_is_full(const graph_config *c, int64_t layer)
{
    return layer < c->window_layers || (c->full_every > 0 && (layer + 1) % c->full_every == 0);
}

/* The name of row f in the list, or NULL where it has none or an earlier row has the same. */
static const char *listed(graph_family f, bool gguf)
{
    const char *name = gguf ? families[f].gguf : families[f].name;
    for (graph_family e = 0; gguf && name && e < f; e++) {
        if (families[e].gguf && strcmp(families[e].gguf, name) == 0)
            return NULL;
    }
    return f == GRAPH_OWN ? NULL : name;
}

void graph_family_list(bool gguf, char text[GRAPH_FAMILY_LIST_MAX])
{
    size_t used = 0;
    int left = 0;
    for (graph_family f = 0; f < GRAPH_FAMILY_N; f++)
        left += listed(f, gguf) != NULL;
    text[0] = '\0';
    for (graph_family f = 0; f < GRAPH_FAMILY_N && used < GRAPH_FAMILY_LIST_MAX; f++) {
        const char *name = listed(f, gguf);
        if (!name)
            continue;
        left--;
        used += (size_t)snprintf(text + used, GRAPH_FAMILY_LIST_MAX - used, "%s%s", name,
                                 left > 1    ? ", "
                                 : left == 1 ? " and "
                                             : "");
    }
}
