/*
 * Owns Qwen3 as a graph: Llama with an RMSNorm on every head of q and k before they are turned, and
 * heads whose width is not C / H (Qwen3 report 2025, section 2). The later layers
 * may have a window.
 */
#include "atom/graph/blocks.h"

void graph_qwen3_defaults(graph_config *c)
{
    *c = (graph_config){.family = GRAPH_QWEN3,
                        .vocab_size = 151936,
                        .positions = 32768,
                        .width = 4096,
                        .layers = 32,
                        .heads = 32,
                        .inner = 22016,
                        .epsilon = 1e-6f,
                        .init_std = 0.02f,
                        .untied = true,
                        .rope = {.theta = 1e4f, .factor = 1},
                        .kv_heads = 32,
                        .head_dim = 128};
}

atom_status graph_qwen3_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                              graph **out)
{
    graph_blocks b;
    atom_status st = blocks_open(c, dtype, B, T, &b);
    for (int64_t layer = 0; layer < c->layers && st == ATOM_OK; layer++) {
        ATOM_TRY_CLEAN(block_attention(&b, layer, BLOCK_HEADNORM));
        ATOM_TRY_CLEAN(block_gated_mlp(&b, layer));
    }
    if (st == ATOM_OK)
        st = block_head(&b);
cleanup:
    return blocks_close(&b, st, out);
}
