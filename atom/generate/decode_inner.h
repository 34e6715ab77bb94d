/*
 * What the files of the decoder share: decode.c (open, feed, close), decode_plan.c (where
 * everything is), decode_run.c (nodes to kernels), decode_swap.c (parameters through the device).
 */
#ifndef ATOM_GENERATE_DECODE_INNER_H
#define ATOM_GENERATE_DECODE_INNER_H

#include "atom/generate/decode.h"

#define DECODE_NOWHERE UINT64_MAX

/* Nodes [first, last) or, where rows > 0, rows [row, row + rows) of the head; and the parameters
 * that they need, elements [offset, offset + elements) of the canonical vector. */
typedef struct decode_part {
    struct generate_decoder *d;
    int32_t first, last;
    int64_t row, rows;
    uint64_t offset, elements;
    bool streamed;
    const void *at; /* its parameters, where the kernels find them now */
} decode_part;

/* Parameters on their way through the device; all zero where they are used in place. */
typedef struct decode_swap {
    dev_stream *compute, *h2d;
    char *slot[2];
    dev_event *filled[2], *freed[2];
    uint32_t *order; /* the streamed parts */
    uint32_t n_order;
    uint64_t fetched, used; /* visits since open; visit k is in slot k % 2 */
    char *rows;             /* pinned: embedding rows on their way */
    float *logits;          /* pinned */
} decode_swap;

struct generate_decoder {
    generate_decoder_config c;
    int64_t chunk;
    int32_t embed, head; /* nodes */
    int64_t C, V, P;
    int64_t past, n; /* tokens kept before this pass; new ones */

    /* the arena: one block of device memory; offsets in bytes */
    char *arena;
    uint64_t arena_bytes, fixed_bytes;
    uint64_t *tensor_at; /* by tensor; DECODE_NOWHERE where there is none */
    uint64_t *keys_at;   /* by node: keys, then values cache_bytes further on */
    uint64_t cache_bytes, caches_bytes;
    uint64_t tokens_at;     /* i32[chunk] */
    uint64_t token_rows_at; /* act [chunk][C] and as many of positions; swapping only */
    uint64_t logits_at;     /* f32[V] */
    uint64_t workspace_at, workspace_bytes;
    uint64_t slot_at[2], slot_bytes;
    uint64_t *resident_at; /* by part */

    decode_part *parts;
    uint32_t n_parts;
    decode_swap swap;
};

static inline bool decode_swaps(const generate_decoder *d)
{
    return d->c.device->budget_bytes != 0;
}
static inline uint64_t decode_bytes(const generate_decoder *d, uint64_t elements)
{
    return elements * atom_dtype_bytes(d->c.g->dtype);
}
/* Elements of one row (one token) of a tensor. */
static inline int64_t decode_width(const generate_decoder *d, int32_t tensor)
{
    return (int64_t)graph_tensor_elements(d->c.g, tensor) / d->c.g->sequence;
}
/* dim[] of a node's kernel with n rows. */
void decode_dims(const generate_decoder *d, int32_t node, int64_t n, int64_t dim[KRN_DIM_MAX]);
/* Has the node a kernel that takes a single row? */
krn_fn decode_row_kernel(const generate_decoder *d, int32_t node);

/* decode_plan.c: fills in the arena's offsets and the parts; takes no device memory. */
ATOM_MUST atom_status decode_plan(generate_decoder *d);

/* decode_run.c: runs a part of the present pass. */
void decode_run(krn_ctx *cx, const decode_part *part);

/* decode_swap.c */
ATOM_MUST atom_status decode_swap_open(generate_decoder *d);
void decode_swap_close(generate_decoder *d);
/* One pass over `tokens` (d->n of them). Waits; logits are in swap.logits. */
ATOM_MUST atom_status decode_swap_pass(generate_decoder *d, const int32_t *tokens);

#endif
