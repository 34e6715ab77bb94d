/*
 * How floats travel (docs/design/pool.md#codecs): n floats to bytes and back.
 *
 *   fp32   4 n bytes, unchanged
 *   bf16   2 n bytes, rounded to nearest even
 *   int8   for each block of GSP_INT8_BLOCK floats an f32 scale = max |x| / 127, and for each float
 *          one signed byte, x * (127 / max |x|) rounded to nearest even; a block of zeros has scale
 *          0. All scales come first, then all bytes. |x - decoded| <= scale * 0.5 (1 + 2^-10)
 *
 * Error feedback: what encoding loses can be kept in a residual and added next time. The residual
 * that goes in and the one that comes out are separate, so that a caller whose contribution was not
 * included still has the old one.
 *
 * The same bytes and floats on every machine: each multiplication and addition is rounded, none is
 * fused. Thread: any. Errors: encoding has none, but takes finite floats only (gsp_all_finite);
 * decoding refuses what no encoder writes.
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
 * lost may be NULL, or the same array. x + residual must be finite. out is 4-byte aligned.
 */
void gsp_encode(gsp_codec codec, const float *x, uint64_t n, const float *residual, void *out,
                float *lost);

/* x[n] = decoding of in[bytes], which is 4-byte aligned. False, with x undefined: a wrong size, or
 * a value that is not finite. */
ATOM_MUST bool gsp_decode(gsp_codec codec, const void *in, uint64_t bytes, float *x, uint64_t n);

#endif
