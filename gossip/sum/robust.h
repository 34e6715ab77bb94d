/*
 * The combination of contributions that hostile data cannot steer far
 * (docs/design/pool.md#hostile-members): what an owner makes of a part instead of the plain
 * weighted sum of reduce.h. Three steps, all of them functions of the inputs and nothing else, so
 * that a verifier gets the same bits:
 *
 *   1. Norms. Every contribution is scaled down to the median norm: x_i' = min(1, m / |x_i|) x_i.
 *   2. Centred clipping (Karimireddy, He, Jaggi: "Learning from history for Byzantine robust
 *      optimization", 2021; per part as in BTARD): from c = sum of w_i x_i', GSP_ROBUST_PASSES
 *      times c += sum of w_i min(1, t / |x_i' - c|) (x_i' - c), t the median distance.
 *   3. Leaning: the cosine of each contribution with the weighted sum of all others, which is how
 *      a member that always pulls backwards is told from one that is merely different.
 *
 * One contribution, or two, are taken as they are: nobody could say which of two is wrong. Weights
 * of 0 do not count in the medians or the sum, but lean. Norms are sums in f64 of exact squares in
 * a fixed order of 16 lanes; vectors are fp32, one rounding per product and per sum, none fused.
 *
 * Thread: any. Errors: none; contributions are finite (quant.h decodes nothing else).
 */
#ifndef GOSSIP_SUM_ROBUST_H
#define GOSSIP_SUM_ROBUST_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

enum { GSP_ROBUST_PASSES = 3, GSP_LEAN_ONE = 127 };

/*
 * center[n] = the combination of x[i][n], i < k <= GSP_MEMBERS_MAX, by weight[i] (at least one is
 * not 0). spare[n] is overwritten. lean[k], if not NULL: cosines in 1/GSP_LEAN_ONE, 0 where there
 * are no others.
 */
void gsp_robust_combine(const float *const *x, const uint64_t *weight, uint32_t k, uint64_t n,
                        float *center, float *spare, int8_t *lean);

#endif
