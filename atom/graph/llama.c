/*
 * Owns the models that are built like Llama: RMSNorm, rotary embedding, grouped heads, gated MLP.
 * One idea: the family's row and the numbers of a configuration say all that sets one apart from
 * the others, and the blocks ask them. Refuses nothing of its own.
 */
#include "atom/graph/blocks.h"

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
