/*
 * A codec on some of a random model's boundaries between blocks: a pure function of the seed and the
 * graph.
 */
#ifndef TESTS_LIB_RANDOM_CODEC_H
#define TESTS_LIB_RANDOM_CODEC_H

#include "atom/graph/graph.h"
#include "tests/lib/random_gpt2.h"

/* Replaces *g; a model of one block stays as it is. */
static inline atom_status random_codec(uint64_t seed, graph **g)
{
    static const float shares[] = {0.05f, 0.3f, 1};
    graph *cut = NULL;
    int32_t after[8], blocks = 0;
    uint32_t n = 0;
    atom_codec codec = {
        .kind = (atom_codec_kind)random_gpt2_draw(seed, 162, ATOM_CODEC_INT8, ATOM_CODEC_RANDOMK)};
    codec.share = atom_codec_bits(codec.kind) ? 1 : shares[random_gpt2_draw(seed, 163, 0, 2)];
    for (uint32_t i = 0; i < (*g)->n_nodes; i++)
        blocks += (*g)->nodes[i].op == ATOM_OP_attention;
    for (int32_t b = 1; b < blocks && n < 8; b++)
        if (n == 0 || random_gpt2_draw(seed, 164 + (uint64_t)b, 0, 1))
            after[n++] = b;
    if (n == 0)
        return ATOM_OK;
    ATOM_TRY(graph_compress(*g, codec, after, n, &cut));
    graph_close(g);
    *g = cut;
    return ATOM_OK;
}

#endif
