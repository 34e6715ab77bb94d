/*
 * Owns Mistral as a graph: Llama, with a window on what attention sees (Jiang et al. 2023, 2.1).
 * Refuses nothing that Llama takes.
 */
#include "atom/graph/blocks.h"

void graph_mistral_defaults(graph_config *c)
{
    *c = (graph_config){.family = GRAPH_MISTRAL,
                        .vocab_size = 32000,
                        .positions = 131072,
                        .width = 4096,
                        .layers = 32,
                        .heads = 32,
                        .inner = 14336,
                        .epsilon = 1e-6f,
                        .init_std = 0.02f,
                        .untied = true,
                        .rope = {.theta = 1e4f, .factor = 1},
                        .kv_heads = 8,
                        .window = 4096};
}

atom_status graph_mistral_build(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
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
