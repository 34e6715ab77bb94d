/*
 * The pieces that models are made of. A builder opens, adds pieces in order, closes; `x` is the
 * activation that the next block reads. Each piece adds its parameters just before the node that uses
 * them, so that canonical order (order of first use) needs no bookkeeping. Not for other folders.
 *
 * A piece is named `part` within its layer, or `part` alone where layer is below 0; its parameters are
 * named after it. Shapes are in graph.h.
 * Owner: the builder, which closes with blocks_close also after a failure. Errors: graph.h.
 */
#ifndef ATOM_GRAPH_BLOCKS_H
#define ATOM_GRAPH_BLOCKS_H

#include "atom/graph/build.h"
#include "atom/graph/models.h"

typedef struct graph_blocks {
    const graph_config *c;
    const graph_traits *traits; /* of c's family */
    const char *layers;         /* what all layers are named after: "layers" */
    graph *g;
    int32_t tokens, targets; /* inputs */
    int32_t embedding;       /* parameter */
    int32_t x;
} graph_blocks;

/* Inputs, after checking T; c is checked. positions_key: how files name what T may not exceed. */
ATOM_MUST atom_status blocks_open(const graph_config *c, atom_dtype dtype, int64_t B, int64_t T,
                                  const char *layers, const char *positions_key, graph_blocks *b);
/* Seals and hands out when st is ATOM_OK, else frees and returns st. */
ATOM_MUST atom_status blocks_close(graph_blocks *b, atom_status st, graph **out);

void block_name(const graph_blocks *b, int64_t layer, const char *part, char name[GRAPH_NAME_MAX]);
/* Adds node->name + suffix as the node's next parameter. std is that of GRAPH_INIT_NORMAL. */
ATOM_MUST atom_status block_param(graph_blocks *b, graph_node *node, const char *suffix, int rank,
                                  int64_t d0, int64_t d1, graph_init init, float std);

/* b->x becomes the tokens' rows of `weight`, and, where `positions` is not NULL, those of their positions
 * on top. */
ATOM_MUST atom_status block_embed(graph_blocks *b, const char *weight, const char *positions);
/* *y = LayerNorm of x, with a bias. */
ATOM_MUST atom_status block_layernorm(graph_blocks *b, int64_t layer, const char *part, int32_t x,
                                      int32_t *y);
/* *x [.. I] becomes [.. O]. std: of the weight at first. */
ATOM_MUST atom_status block_linear(graph_blocks *b, int64_t layer, const char *part, int64_t I,
                                   int64_t O, bool bias, float std, int32_t *x);
/* A node without parameters or attributes. */
ATOM_MUST atom_status block_apply(graph_blocks *b, int64_t layer, const char *part, atom_op op,
                                  int32_t *x);
/* Nothing where p is 0. */
ATOM_MUST atom_status block_dropout(graph_blocks *b, int64_t layer, const char *part, float p,
                                    int32_t *x);
/* Nothing where that changes nothing. */
ATOM_MUST atom_status block_scale(graph_blocks *b, int64_t layer, const char *part, float by,
                                  int32_t *x);
/* b->x += y. */
ATOM_MUST atom_status block_residual(graph_blocks *b, int64_t layer, const char *part, int32_t y);
/* Logits of the normed x, by `weight` or by the embedding where they are tied, and their loss. */
ATOM_MUST atom_status block_head(graph_blocks *b, const char *weight, int32_t x);

/* A node on packed q, k and v, and how it turns them. */
graph_node block_headed(const graph_blocks *b, int64_t layer, const char *part, atom_op op,
                        int32_t x);
atom_rope block_rope(const graph_blocks *b, int64_t layer);

/* The builders of families that are not built as graph_llama_build builds them, and of all others; c is
 * checked. */
ATOM_MUST atom_status graph_neox_build(const graph_config *c, atom_dtype dtype, int64_t B,
                                       int64_t T, graph **out);
ATOM_MUST atom_status graph_llama_build(const graph_config *c, atom_dtype dtype, int64_t B,
                                        int64_t T, graph **out);

#endif
