/*
 * Owns the robust combination of a part's contributions. Its one idea: a contribution has a say by
 * its direction, never by its size, and no more of a say than the median one has. It refuses
 * nothing: what is not finite never gets here.
 */
#include "gossip/sum/robust.h"

#include "gossip/sum/isa.h"
#include "gossip/sum/reduce.h"

#include "atom/base/assert.h"

#include <math.h>

enum { LANES = 16 };

static double total_of(const double lane[LANES])
{
    double total = 0.0;
    for (uint32_t j = 0; j < LANES; j++)
        total += lane[j];
    return total;
}

/* |s x - c|^2 */
GSP_INLINE void distance_body(const float *restrict x, float s, const float *restrict c, uint64_t n,
                              double *restrict lane)
{
    uint64_t whole = n - n % LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (uint32_t j = 0; j < LANES; j++) {
            float d = s * x[i + j] - c[i + j];
            lane[j] += (double)d * (double)d;
        }
    for (uint64_t i = whole; i < n; i++) {
        float d = s * x[i] - c[i];
        lane[i - whole] += (double)d * (double)d;
    }
}
GSP_FOR_ISAS(void, distance,
             (const float *restrict x, float s, const float *restrict c, uint64_t n,
              double *restrict lane),
             (x, s, c, n, lane))

GSP_INLINE void dot_body(const float *restrict x, const float *restrict y, uint64_t n,
                         double *restrict lane)
{
    uint64_t whole = n - n % LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * (double)y[i + j];
    for (uint64_t i = whole; i < n; i++)
        lane[i - whole] += (double)x[i] * (double)y[i];
}
GSP_FOR_ISAS(void, dot,
             (const float *restrict x, const float *restrict y, uint64_t n, double *restrict lane),
             (x, y, n, lane))

/* sum += w (s x - c) */
GSP_INLINE void pull_body(float *restrict sum, const float *restrict x, float s,
                          const float *restrict c, float w, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += w * (s * x[i] - c[i]);
}
GSP_FOR_ISAS(void, pull,
             (float *restrict sum, const float *restrict x, float s, const float *restrict c,
              float w, uint64_t n),
             (sum, x, s, c, w, n))

static double product(const float *x, const float *y, uint64_t n)
{
    double lane[LANES] = {0};
    dot(x, y, n, lane);
    return total_of(lane);
}

/* Of those whose weight is not 0; of an even number the lower. */
static double median(const double *value, const uint64_t *weight, uint32_t k)
{
    double sorted[GSP_MEMBERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t at = n;
        if (weight[i] == 0)
            continue;
        for (; at > 0 && sorted[at - 1] > value[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = value[i];
        n++;
    }
    return sorted[(n - 1) / 2];
}

static float at_most(double limit, double length)
{
    return length > limit ? (float)(limit / length) : 1.0f;
}

typedef struct combination {
    const float *const *x;
    uint32_t k;
    uint64_t n;
    double share[GSP_MEMBERS_MAX], norm[GSP_MEMBERS_MAX];
    float scale[GSP_MEMBERS_MAX];
} combination;

/* sum[n] = sum of share_i scale_i x_i */
static void mean(const combination *m, float *sum)
{
    for (uint64_t i = 0; i < m->n; i++)
        sum[i] = 0.0f;
    for (uint32_t i = 0; i < m->k; i++)
        if (m->share[i] > 0)
            gsp_sum_add(sum, m->x[i], (float)(m->share[i] * (double)m->scale[i]), m->n);
}

static void lean_of(const combination *m, const float *sum, int8_t *lean)
{
    double all = product(sum, sum, m->n);
    for (uint32_t i = 0; i < m->k; i++) {
        double own = m->share[i] * (double)m->scale[i], square = m->norm[i] * m->norm[i];
        double along = product(m->x[i], sum, m->n);
        double rest = all - 2 * own * along + own * own * square; /* |sum of the others|^2 */
        double cosine = 0.0;
        if (rest > 0 && square > 0)
            cosine = (along - own * square) / (sqrt(rest) * m->norm[i]);
        cosine = cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
        lean[i] = (int8_t)nearbyint(cosine * GSP_LEAN_ONE);
    }
}

/* One pass of centred clipping; `next` gets what `center` was. */
static void clip_once(const combination *m, const uint64_t *weight, float *center, float *next)
{
    double far[GSP_MEMBERS_MAX];
    for (uint32_t i = 0; i < m->k; i++) {
        double lane[LANES] = {0};
        if (weight[i])
            distance(m->x[i], m->scale[i], center, m->n, lane);
        far[i] = sqrt(total_of(lane));
    }
    double limit = median(far, weight, m->k);
    for (uint64_t i = 0; i < m->n; i++)
        next[i] = center[i];
    for (uint32_t i = 0; i < m->k; i++)
        if (weight[i])
            pull(center, m->x[i], m->scale[i], next,
                 (float)(m->share[i] * (double)at_most(limit, far[i])), m->n);
}

void gsp_robust_combine(const float *const *x, const uint64_t *weight, uint32_t k, uint64_t n,
                        float *center, float *spare, int8_t *lean)
{
    combination m = {.x = x, .k = k, .n = n};
    uint64_t total = 0;
    uint32_t voices = 0;
    ATOM_ASSERT(k <= GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < k; i++) {
        total += weight[i];
        voices += weight[i] != 0;
    }
    ATOM_ASSERT(total > 0);
    for (uint32_t i = 0; i < k; i++) {
        m.share[i] = (double)weight[i] / (double)total;
        m.norm[i] = sqrt(product(x[i], x[i], n));
        m.scale[i] = 1.0f;
    }
    if (voices > 2)
        for (uint32_t i = 0; i < k; i++)
            m.scale[i] = at_most(median(m.norm, weight, k), m.norm[i]);
    mean(&m, center);
    if (lean)
        lean_of(&m, center, lean);
    for (uint32_t pass = 0; voices > 2 && pass < GSP_ROBUST_PASSES; pass++)
        clip_once(&m, weight, center, spare);
}
