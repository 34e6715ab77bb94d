/*
 * A model that reads tokens and says what may come next: the forward pass with kept keys and
 * values. The graph's own nodes are run with as many rows as there are new tokens; only attention
 * and one-row products have kernels of their own (kernels/decode.h).
 *
 * With a budget on the device, parameters stay on the host and visit the device: as many as fit are
 * kept there, the others pass through two slots, so that the next part is copied while this one
 * computes. Of the two embeddings only the rows of the tokens at hand are copied. Without a budget
 * parameters are used in place. Both ways give the same bits.
 *
 * Ownership: the decoder borrows everything in its configuration until it is closed.
 * Thread: one caller. Errors: ATOM_E_RESOURCE with what is missing; ATOM_E_UNSUPPORTED for graphs
 * that are not decoders with a tied head.
 */
#ifndef ATOM_GENERATE_DECODE_H
#define ATOM_GENERATE_DECODE_H

#include "atom/graph/graph.h"
#include "kernels/decode.h"
#include "kernels/device.h"

/* Tokens fed at once, at most. A constant, because products of different heights differ in bits. */
enum { GENERATE_DECODE_CHUNK = 256 };

typedef struct generate_decoder_config {
    const graph *g; /* fused, one sample (B = 1) */
    const krn_table *table;
    const krn_decode_table *decode;
    atom_threads *threads;
    dev *device;        /* budget_bytes 0: parameters are used in place */
    const void *params; /* the canonical vector in g->dtype, g->param_extent elements, host */
    int64_t room;       /* tokens that are kept at most: 1 .. the model's positions */
} generate_decoder_config;

typedef struct generate_decoder generate_decoder;

ATOM_MUST atom_status generate_decoder_open(const generate_decoder_config *config,
                                            generate_decoder **out);
void generate_decoder_close(generate_decoder **d);

/* Appends n >= 1 tokens, ids below V; past + n <= room. Afterwards logits are the last token's. */
ATOM_MUST atom_status generate_decoder_feed(generate_decoder *d, const int32_t *tokens, int64_t n);
/* f32[V]; valid until the next feed. */
const float *generate_decoder_logits(const generate_decoder *d);
/* Tokens that are kept. */
int64_t generate_decoder_past(const generate_decoder *d);
/* Forgets all tokens. */
/* Forgets all but the first `past` positions, which it holds. */
void generate_decoder_rewind(generate_decoder *d, int64_t past);
void generate_decoder_reset(generate_decoder *d);

typedef struct generate_decoder_info {
    int64_t vocab, positions;
    uint64_t cache_bytes;                    /* keys and values */
    uint64_t param_bytes;                    /* of the whole model */
    uint64_t resident_bytes, streamed_bytes; /* parameters kept on the device; copied per token */
    uint32_t parts;                          /* visits per token; 1 in place */
} generate_decoder_info;
generate_decoder_info generate_decoder_get_info(const generate_decoder *d);

#endif
