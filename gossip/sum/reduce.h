/*
 * The sum that an owner makes of a part (docs/design/pool.md#sums): contributions in key order, in
 * fp32, each decoded and scaled as it is added. Anybody with the same inputs gets the same bits,
 * which is how an owner's work is checked (docs/design/pool.md#hostile-members).
 *
 *   result = sum over included contributors i, ascending, of (float)(weight_i / W) * x_i
 *   W = the sum of their weights, an integer; the quotient is taken in f64 and rounded once;
 *   one rounding per product and one per sum, none fused.
 *
 * Thread: any, one at a time per object. Errors: a contribution that does not decode is `false`,
 * and the sum is as if it had not been offered.
 */
#ifndef GOSSIP_SUM_REDUCE_H
#define GOSSIP_SUM_REDUCE_H

#include "gossip/agree/types.h"
#include "gossip/sum/quant.h"

/* sum[n] = (or +=, if !first) (float)(weight / total) * decoded in[bytes]. scratch holds n floats.
 */
ATOM_MUST bool gsp_reduce_add(gsp_codec codec, const void *in, uint64_t bytes, uint64_t weight,
                              uint64_t total, bool first, float *sum, float *scratch, uint64_t n);

/* Euclidean norm, in f64, in chunks of 4096 from the start. */
double gsp_norm(const float *x, uint64_t n);

/* What an owner sends out: sum[n] encoded, and then sum[n] as everybody will decode it. False if a
 * value is not finite. */
ATOM_MUST bool gsp_reduce_finish(gsp_codec codec, float *sum, uint64_t n, void *out, double *norm);

#endif
