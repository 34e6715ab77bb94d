/*
 * Owns the weighted sum of encoded parts. Its one idea: decode a contribution whole before a float
 * of it is added, so that a bad one leaves no trace. It refuses any order but the caller's, which
 * is that of the keys.
 */
#include "gossip/sum/reduce.h"

#include "gossip/sum/isa.h"

#include "atom/base/assert.h"

#include <math.h>
#include <stddef.h>

GSP_INLINE void set_body(float *restrict sum, const float *restrict x, float weight, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] = weight * x[i];
}
GSP_FOR_ISAS(void, set, (float *restrict sum, const float *restrict x, float weight, uint64_t n),
             (sum, x, weight, n))

GSP_INLINE void add_body(float *restrict sum, const float *restrict x, float weight, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += weight * x[i];
}
GSP_FOR_ISAS(void, add, (float *restrict sum, const float *restrict x, float weight, uint64_t n),
             (sum, x, weight, n))

void gsp_sum_add(float *restrict sum, const float *restrict x, float weight, uint64_t n)
{
    add(sum, x, weight, n);
}

bool gsp_reduce_add(gsp_codec codec, const void *in, uint64_t bytes, uint64_t weight,
                    uint64_t total, bool first, float *sum, float *scratch, uint64_t n)
{
    ATOM_ASSERT(weight <= total && total > 0);
    if (!gsp_decode(codec, in, bytes, scratch, n))
        return false;
    float share = (float)((double)weight / (double)total);
    if (first)
        set(sum, scratch, share, n);
    else
        add(sum, scratch, share, n);
    return true;
}

double gsp_squares(double before, const float *x, uint64_t n)
{
    double total = before;
    for (uint64_t at = 0; at < n; at += GSP_NORM_CHUNK) {
        double sum = 0.0;
        for (uint64_t i = at; i < n && i < at + GSP_NORM_CHUNK; i++)
            sum += (double)x[i] * (double)x[i];
        total += sum;
    }
    return total;
}

double gsp_norm(const float *x, uint64_t n)
{
    return sqrt(gsp_squares(0.0, x, n));
}

bool gsp_reduce_finish(gsp_codec codec, float *sum, uint64_t n, void *out, double *norm)
{
    if (!gsp_all_finite(sum, n))
        return false;
    gsp_encode(codec, sum, n, NULL, out, NULL);
    if (!gsp_decode(codec, out, gsp_codec_bytes(codec, n), sum, n))
        return false;
    *norm = gsp_norm(sum, n);
    return true;
}
