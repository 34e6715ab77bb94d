/*
 * Blocks that Llama and its kin are made of. A builder opens, adds blocks in order, closes; `x` is
 * the activation that the next block reads. Not for other folders.
 *
 * Owner: the builder, which closes with blocks_close also after a failure. Errors: graph.h.
 */
#ifndef ATOM_GRAPH_BLOCKS_H
#define ATOM_GRAPH_BLOCKS_H

#include "atom/graph/models.h"

typedef struct graph_blocks {
    const graph_config *c;
    const graph_traits *traits; /* of c's family */
    graph *g;
    int32_t embedding; /* parameter */
    int32_t targets, x;
} graph_blocks;

/* Inputs and the embedding (scaled, where c says so), after checking T; c is checked. */
ATOM_MUST atom_status blocks_open(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                                  graph_blocks *b);
/* x += o_proj(attention(rope(qkv_proj(norm(x))))); with norms of q and k where
 * the family has them. */
ATOM_MUST atom_status block_attention(graph_blocks *b, int64_t layer);
/* x += down_proj(swiglu(gate_up_proj(norm(x)))). Where norms stand behind, both are
 * x += norm(block(x)); where they stand around, x += norm(block(norm(x))). */
ATOM_MUST atom_status block_gated_mlp(graph_blocks *b, int64_t layer);
/* Last norm, head (tied or not) and loss. */
ATOM_MUST atom_status block_head(graph_blocks *b);
/* Seals and hands out when st is ATOM_OK, else frees and returns st. */
ATOM_MUST atom_status blocks_close(graph_blocks *b, atom_status st, graph **out);

/* A node on packed q, k and v, and how it turns them. */
graph_node block_headed(const graph_blocks *b, int64_t layer, const char *part, atom_op op,
                        int32_t x);
atom_rope block_rope(const graph_blocks *b, int64_t layer);

/* GPT-NeoX (neox.c); c is checked. */
ATOM_MUST atom_status graph_neox_build(const graph_config *c, atom_dtype dtype, int64_t B,
                                       int64_t T, graph **out);
/* The builder of every other family of this kind; c is checked. */
ATOM_MUST atom_status graph_llama_build(const graph_config *c, atom_dtype dtype, int64_t B,
                                        int64_t T, graph **out);

#endif
