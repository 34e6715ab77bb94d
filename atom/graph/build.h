/*
 * What the files of atom/graph share while a graph is being made. Not for other folders.
 */
#ifndef ATOM_GRAPH_BUILD_H
#define ATOM_GRAPH_BUILD_H

#include "atom/graph/graph.h"

/* Limits of every graph, so that sums of bytes downstream cannot overflow 64 bits. */
enum { GRAPH_NODES_MAX = 1 << 16, GRAPH_TEXT_BYTES_MAX = 1 << 24 };
#define GRAPH_ELEMENTS_MAX ((uint64_t)1 << 42) /* of one tensor, and of all parameters together */
#define GRAPH_DIM_MAX 0x7fffffff
/* And of every family's configuration. */
enum {
    GRAPH_VOCAB_MAX = 1 << 24,
    GRAPH_POSITIONS_MAX = 1 << 24,
    GRAPH_WIDTH_MAX = 1 << 20,
    GRAPH_INNER_MAX = 1 << 22,
    GRAPH_LAYERS_MAX = 4096
};

/* What shape inference says about one output or saved tensor. */
typedef struct graph_shape {
    graph_kind kind;
    uint8_t rank;
    int64_t dims[GRAPH_RANK_MAX];
    const char *suffix; /* of the tensor's name: "" for the output, ".mean", ".lse", ... */
} graph_shape;

/* shape.c: shapes of all outputs and saved tensors of `node`; ATOM_E_FORMAT names
 * node and operand. */
ATOM_MUST atom_status graph_infer(const graph *g, const graph_node *node,
                                  graph_shape out[GRAPH_OUT_MAX],
                                  graph_shape saved[GRAPH_SAVED_MAX]);
/* shape.c: rank, dims and their product within the limits; `what` is for the message. */
ATOM_MUST atom_status graph_dims_check(const char *what, int rank, const int64_t *dims,
                                       uint64_t *elements);

/* shape.c: ATOM_E_FORMAT unless 1 <= value <= most. */
ATOM_MUST atom_status graph_check_range(const char *key, int64_t value, int64_t most);

/* graph.c: as graph_add_node, with this rng id, 0 included. */
ATOM_MUST atom_status graph_add_node_rng(graph *g, const graph_node *node, uint32_t rng,
                                         int32_t *out);

/* grad.c: needs_grad and kept of every tensor; last_use is known. */
void graph_derive_grad(graph *g);

/* What messages and the text form call them. */
extern const char *const graph_kind_names[3], *const graph_init_names[4];

#endif
