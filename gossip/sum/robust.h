/*
 * A weighted mean of contributions that a few hostile ones cannot steer far
 * (docs/design/pool.md#hostile-members). In a robust pool, owners use it in place of the plain
 * weighted sum of reduce.h. It depends on its inputs alone, so anybody who does it again gets the
 * same bits. Three steps, with w_i the weights divided by their sum:
 *
 *   1. Norms. Contributions longer than the median norm m are scaled down to it:
 *      x_i' = min(1, m / |x_i|) x_i.
 *   2. Centred clipping (Karimireddy, He, Jaggi: "Learning from history for Byzantine robust
 *      optimization", 2021; per part as in BTARD). Start at c = sum of w_i x_i'. Then
 *      GSP_ROBUST_PASSES times: c += sum of w_i min(1, t / |x_i' - c|) (x_i' - c), where t is the
 *      median distance from c. So nobody pulls further than the median member does.
 *   3. Leaning. The cosine of each contribution with the weighted sum of all others. It tells a
 *      member that always pulls backwards from one that is merely different.
 *
 * One or two contributions are taken as they are: of two, nobody can say which is wrong. A
 * contribution of weight 0 does not count in the medians or the sum, but its lean is measured.
 *
 * Norms are f64 sums of exact squares in a fixed order of 16 lanes. Vectors are fp32 with one
 * rounding per product and per sum, none fused.
 *
 * Thread: any. Errors: none; contributions are finite (quant.h decodes nothing else).
 */
#ifndef GOSSIP_SUM_ROBUST_H
#define GOSSIP_SUM_ROBUST_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

enum { GSP_ROBUST_PASSES = 3, GSP_LEAN_ONE = 127 };

/*
 * center[n] = the combination of x[i][n] by weight[i], for i < k <= GSP_MEMBERS_MAX; at least one
 * weight is not 0. spare[n] is overwritten. lean[k], if not NULL, gets the cosines in units of
 * 1/GSP_LEAN_ONE, 0 where there are no others.
 */
void gsp_robust_combine(const float *const *x, const uint64_t *weight, uint32_t k, uint64_t n,
                        float *center, float *spare, int8_t *lean);

#endif
