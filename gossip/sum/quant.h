/*
 * Codecs of what is averaged (docs/design/pool.md#codecs): n floats to bytes and back.
 *
 *   fp32   4 n bytes, as they are
 *   bf16   2 n bytes, rounded to nearest even
 *   int8   per block of GSP_INT8_BLOCK floats: f32 scale = max |x| / 127, then one signed byte
 * each, x * (127 / max |x|) rounded to nearest even; a block of zeros has scale 0. |x - decoded| <=
 * scale * 0.5 (1 + 2^-10). All scales first, then all bytes.
 *
 * Error feedback: what encoding loses can be kept in a residual and added next time. The residual
 * that goes in and the one that comes out are apart, so that the caller keeps the old one when the
 * contribution was not included.
 *
 * Same bytes and floats on every machine: one multiplication or addition per rounding, none fused.
 * Thread: any. Errors: none on encoding, which takes finite floats only (gsp_all_finite); decoding
 * refuses what no encoder writes.
 */
#ifndef GOSSIP_SUM_QUANT_H
#define GOSSIP_SUM_QUANT_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum gsp_codec { GSP_CODEC_FP32, GSP_CODEC_BF16, GSP_CODEC_INT8, GSP_CODEC_N } gsp_codec;

enum { GSP_INT8_BLOCK = 4096 };

/* "fp32", "bf16", "int8". */
const char *gsp_codec_name(gsp_codec codec);
ATOM_MUST bool gsp_codec_parse(const char *name, gsp_codec *out);
/* Encoded size of n floats. */
uint64_t gsp_codec_bytes(gsp_codec codec, uint64_t n);

ATOM_MUST bool gsp_all_finite(const float *x, uint64_t n);

/*
 * out[gsp_codec_bytes] = encoding of x[n] (+ residual[n]); lost[n] = what that loses. residual and
 * lost may be NULL, and may be the same. Sums must be finite. out is 4-byte aligned.
 */
void gsp_encode(gsp_codec codec, const float *x, uint64_t n, const float *residual, void *out,
                float *lost);

/* x[n] = decoding of in[bytes]; false (x undefined) for a wrong size or anything not finite. in is
 * 4-byte aligned. */
ATOM_MUST bool gsp_decode(gsp_codec codec, const void *in, uint64_t bytes, float *x, uint64_t n);

#endif
