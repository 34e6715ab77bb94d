/*
 * A codec or bottlenecks on some of a random model's boundaries between blocks: a pure function of
 * the seed and the graph.
 */
#ifndef TESTS_LIB_RANDOM_CODEC_H
#define TESTS_LIB_RANDOM_CODEC_H

#include "atom/graph/graph.h"
#include "tests/lib/random_gpt2.h"

#include <string.h>

/* Of any width that is narrower: the model's own is that of its embedding. */
static inline atom_status random_bottleneck(uint64_t seed, const graph *g, const int32_t *after,
                                            uint32_t n, graph **out)
{
    graph_bottlenecks b = {.n = n};
    int64_t C = g->params[0].dims[1];
    memcpy(b.after, after, n * sizeof *after);
    b.width = random_gpt2_draw(seed, 175, 1, C - 1);
    b.maxout = random_gpt2_draw(seed, 176, 0, 1);
    while (b.maxout && C % b.width != 0)
        b.width--;
    return graph_bottleneck(g, &b, out);
}

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
    if (random_gpt2_draw(seed, 174, 0, 2) == 0)
        ATOM_TRY(random_bottleneck(seed, *g, after, n, &cut));
    else
        ATOM_TRY(graph_compress(*g, codec, after, n, &cut));
    graph_close(g);
    *g = cut;
    return ATOM_OK;
}

#endif
