/*
 * The specification of the codecs (atom/base/codec.h): a block of a row to bytes and back. All
 * arithmetic is f32, each operation rounded once, none fused; faster code gives the same values.
 *
 *   int8 int4 int2   f32 lo, f32 step, and then ceil(n bits / 8) bytes
 *                      lo   = the smallest x, step = (largest x - lo) / (2^bits - 1)
 *                      q    = (x - lo) * (1 / step) to the nearest integer, ties to even
 *                      x'   = lo + q * step
 *                    step is 0 and x' = lo where it would be below the smallest normal f32. A block
 *                    with a value that is not finite, or whose range is not, is NaN: the receiver
 *                    sees that the run has diverged. With m = ceil(n bits / 8), byte j holds the
 *                    values j, j + m, j + 2 m, .. that there are, from its lowest bits up.
 *                    |x - x'| <= step (1/2 + 2^-10) + 2^-23 max |x|, or 255 times the smallest
 *                    normal f32 where step is 0
 *   topk             places, and then those values in bf16 in ascending order of place. Of equal
 *                    |x| the first are sent; NaN is larger than all. Places are 16-bit numbers,
 *                    or one bit for each of the n where that takes fewer bytes (lowest bit first).
 *                    x' = bf16(x), or 0, and then |x| is at most any |x| that is sent
 *   randomk          the values only; the places are those of the largest words, of equal ones the
 *                    first, in atom_rng_u32(key of the node, element), where element counts from
 *                    the start of the tensor. x' = bf16(x), or 0; not scaled up
 *
 * Bytes are little-endian. Thread: any. Errors: none.
 */
#ifndef KERNELS_REF_CODEC_H
#define KERNELS_REF_CODEC_H

#include "atom/base/codec.h"

/* Encodes x[n], n <= atom_codec_block; words[n] are randomk's, NULL for the others. Returns the
 * bytes written to out, atom_codec_row_bytes(codec, n). */
uint64_t ref_codec_encode(atom_codec codec, const float *x, int64_t n, const uint32_t *words,
                          uint8_t *out);
/* x[n] from what ref_codec_encode wrote, with the same n and words. */
void ref_codec_decode(atom_codec codec, const uint8_t *in, int64_t n, const uint32_t *words,
                      float *x);

/* Room for the bytes of any block. */
enum { REF_CODEC_BYTES_MAX = 4 * ATOM_CODEC_SPARSE_BLOCK };

#endif
