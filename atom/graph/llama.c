/*
 * Owns the families that are built like Llama: pre-norm with RMSNorm, rotary embedding, grouped
 * heads, gated MLP. One idea: the numbers of a configuration say all that sets them apart, but for
 * the norms on Qwen3's heads. Refuses nothing of its own. Sources:
 *
 *   Llama 2, 3, SmolLM2   biases where attention_bias and mlp_bias say so   Touvron et al. 2023;
 *                                                                           Llama 3 herd 2024
 *   Mistral               a window on what attention sees                   Jiang et al. 2023, 2.1
 *   Qwen2, Qwen2.5        biases on q, k and v; later layers may have       Qwen2 report 2024, 2.2.1
 *                         a window
 *   Qwen3                 an RMSNorm on every head of q and k before they   Qwen3 report 2025, 2
 *                         are turned; heads whose width is not C / H
 */
#include "atom/graph/blocks.h"

void graph_llama_defaults(graph_config *c)
{
    *c = (graph_config){.family = GRAPH_LLAMA,
                        .vocab_size = 32000,
                        .positions = 2048,
                        .width = 4096,
                        .layers = 32,
                        .heads = 32,
                        .inner = 11008,
                        .epsilon = 1e-6f,
                        .init_std = 0.02f,
                        .untied = true,
                        .rope = {.theta = 1e4f, .factor = 1}};
}

void graph_mistral_defaults(graph_config *c)
{
    graph_llama_defaults(c);
    c->family = GRAPH_MISTRAL;
    c->positions = 131072;
    c->inner = 14336;
    c->kv_heads = 8;
    c->window = 4096;
}

static void qwen_defaults(graph_config *c, graph_family family)
{
    graph_llama_defaults(c);
    c->family = family;
    c->vocab_size = 151936;
    c->positions = 32768;
    c->inner = 22016;
    c->kv_heads = 32;
}

void graph_qwen2_defaults(graph_config *c)
{
    qwen_defaults(c, GRAPH_QWEN2);
    c->qkv_bias = true;
}

void graph_qwen3_defaults(graph_config *c)
{
    qwen_defaults(c, GRAPH_QWEN3);
    c->head_dim = 128;
}

atom_status graph_llama_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                              graph **out)
{
    graph_blocks b;
    atom_status st = blocks_open(c, dtype, B, T, &b);
    for (int64_t layer = 0; layer < c->layers && st == ATOM_OK; layer++) {
        ATOM_TRY_CLEAN(block_attention(&b, layer));
        ATOM_TRY_CLEAN(block_gated_mlp(&b, layer));
    }
    if (st == ATOM_OK)
        st = block_head(&b);
cleanup:
    return blocks_close(&b, st, out);
}
