/*
 * Owns Llama 2 and 3 and SmolLM2 as a graph: pre-norm with RMSNorm, rotary embedding, grouped
 * heads, gated MLP; biases where attention_bias and mlp_bias say so (Touvron et al. 2023; Llama 3
 * herd 2024). Refuses nothing of its own.
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

atom_status graph_llama_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                              graph **out)
{
    graph_blocks b;
    atom_status st = blocks_open(c, dtype, B, T, &b);
    for (int64_t layer = 0; layer < c->layers && st == ATOM_OK; layer++) {
        ATOM_TRY_CLEAN(block_attention(&b, layer, 0));
        ATOM_TRY_CLEAN(block_gated_mlp(&b, layer));
    }
    if (st == ATOM_OK)
        st = block_head(&b);
cleanup:
    return blocks_close(&b, st, out);
}
