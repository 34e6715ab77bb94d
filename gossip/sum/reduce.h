/*
 * The weighted sum that an owner makes of a part (docs/design/pool.md#sums): contributions in the
 * order of keys, in fp32, each decoded and scaled as it is added. Anybody with the same inputs gets
 * the same bits, which is how an owner's work is checked (docs/design/pool.md#hostile-members).
 *
 *   result = sum over included contributors i, ascending, of (float)(weight_i / W) * x_i
 *   W      = the sum of their weights, an integer
 *
 * The quotient is taken in f64 and rounded once. Products and sums are each rounded, none is fused.
 *
 * Thread: any, one at a time per object. Errors: false for a contribution that does not decode; the
 * sum is then as if it had not been offered.
 */
#ifndef GOSSIP_SUM_REDUCE_H
#define GOSSIP_SUM_REDUCE_H

#include "gossip/agree/types.h"
#include "gossip/sum/quant.h"

/* sum[n] = (float)(weight / total) * decoded in[bytes], or += if !first. scratch holds n floats. */
ATOM_MUST bool gsp_reduce_add(gsp_codec codec, const void *in, uint64_t bytes, uint64_t weight,
                              uint64_t total, bool first, float *sum, float *scratch, uint64_t n);

/* sum[n] += weight * x[n]. */
void gsp_sum_add(float *restrict sum, const float *restrict x, float weight, uint64_t n);

/* The Euclidean norm in f64, summed in chunks of 4096 from the start. A vector that comes in pieces of
 * whole chunks, the last one shorter, has the root of what gsp_squares makes of them, from 0. */
double gsp_norm(const float *x, uint64_t n);
double gsp_squares(double before, const float *x, uint64_t n);
enum { GSP_NORM_CHUNK = 4096 };

/* What an owner sends out: encodes sum[n] to out, and makes sum[n] what everybody will decode.
 * False if a value is not finite. */
ATOM_MUST bool gsp_reduce_finish(gsp_codec codec, float *sum, uint64_t n, void *out, double *norm);

#endif
