/*
 * attention: causal softmax attention per head, with m the dropout mask (0 or 1/(1-p)).
 *
 *   score[t,s] = scale q_t k_s            for first(t) <= s <= t (krn_first_seen)
 *   lse[t] = log sum_s exp(score[t,s])    stored as f32
 *   P = exp(score - lse)
 *   y_t = sum_s P m v_s                   stored as act; nothing else is rounded
 *
 * Backward reads lse and y as stored, and rounds dqkv once:
 *
 *   dP = m (dy_t v_s)      delta_t = dy_t y_t      dS = P scale (dP - delta_t)
 *   dq_t = sum_s dS k_s    dk_s = sum_t dS q_t     dv_s = sum_t P m dy_t
 *
 * Where H/K query heads share a key head, its dk and dv are the sums over them (grouped heads:
 * Ainslie et al. 2023). Source of delta: FlashAttention (Dao et al. 2022), section 3.1.
 */
#include "kernels/ref/ref.h"

#include <math.h>

/* One query head of one sample: places of its vectors inside qkv[B,T,(H+2K)D] and y[B,T,HD]. */
typedef struct head {
    int64_t b, h, T, H, D, K, C;
    double scale;
    ref_dropout dropout;
} head;

static head head_of(const ref_job *job, int64_t i)
{
    const krn_args *args = job->args;
    int64_t H = args->dim[2], D = args->dim[3];
    return (head){.b = i / H,
                  .h = i % H,
                  .T = args->dim[1],
                  .H = H,
                  .D = D,
                  .K = krn_kv_heads(args->dim, 2, 4),
                  .C = H * D,
                  .scale = krn_attention_scale(args->scale, D),
                  .dropout = ref_dropout_make(job->cx, args)};
}

/* which: 0 q, 1 k, 2 v. */
static int64_t qkv_at(const head *a, int which, int64_t t)
{
    int64_t shared = a->h / (a->H / a->K);
    int64_t at = which == 0 ? a->h : a->H + (which - 1) * a->K + shared;
    return ((a->b * a->T + t) * (a->H + 2 * a->K) + at) * a->D;
}

static int64_t y_at(const head *a, int64_t t)
{
    return (a->b * a->T + t) * a->C + a->h * a->D;
}

static int64_t first_at(const ref_job *job, const head *a, int64_t t)
{
    return krn_first_seen(job->cx->step, job->args->dim, a->b, t);
}

static int64_t row_at(const head *a, int64_t t)
{
    return (a->b * a->H + a->h) * a->T + t;
}

static double factor_at(const head *a, int64_t t, int64_t s)
{
    return ref_dropout_factor(&a->dropout, row_at(a, t) * a->T + s);
}

static double dot(atom_dtype act, const void *x, int64_t x_at, const void *y, int64_t y_first,
                  int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += ref_get(act, x, x_at + i) * ref_get(act, y, y_first + i);
    return sum;
}

static double score_at(const ref_job *job, const head *a, int64_t t, int64_t s)
{
    const void *qkv = job->args->buf[0];
    double sum = dot(job->act, qkv, qkv_at(a, 0, t), qkv, qkv_at(a, 1, s), a->D);
    return ref_capped(a->scale * sum, job->args->cap);
}

static void attention_head(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    head a = head_of(job, i);
    double *score = (double *)job->cx->workspace + i * a.T;
    for (int64_t t = 0; t < a.T; t++) {
        int64_t first = first_at(job, &a, t);
        for (int64_t s = first; s <= t; s++)
            score[s] = score_at(job, &a, t, s);
        double lse = ref_log_sum_exp(score + first, t + 1 - first);
        for (int64_t s = first; s <= t; s++)
            score[s] = exp(score[s] - lse) * factor_at(&a, t, s);
        for (int64_t d0 = 0; d0 < a.D; d0 += REF_BLOCK) {
            int64_t width = a.D - d0 < REF_BLOCK ? a.D - d0 : REF_BLOCK;
            double sum[REF_BLOCK] = {0};
            ref_dot_block(sum, width, t + 1 - first, ATOM_F64, score, first, 1, job->act, buf[0],
                          qkv_at(&a, 2, first) + d0, (a.H + 2 * a.K) * a.D, 1);
            for (int64_t d = 0; d < width; d++)
                ref_put(job->act, buf[1], y_at(&a, t) + d0 + d, sum[d]);
        }
        ref_put(job->stat, buf[2], row_at(&a, t), lse);
    }
}

void ref_attention_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0] * args->dim[2], attention_head);
}

/* What row t of the scores gives to dq[t], dk[s], dv[s] for all s <= t; dq is f64[T][D], dkv
 * f64[2][T][D]. */
static void d_score_row(const ref_job *job, const head *a, double *d_q, double *dkv, int64_t t)
{
    void *const *buf = job->args->buf;
    const void *qkv = buf[0], *dy = buf[3];
    double delta = dot(job->act, dy, y_at(a, t), buf[1], y_at(a, t), a->D);
    double lse = ref_get(job->stat, buf[2], row_at(a, t));
    double *dq = d_q + t * a->D;
    for (int64_t s = first_at(job, a, t); s <= t; s++) {
        double *dk = dkv + s * a->D, *dv = dkv + (a->T + s) * a->D;
        double score = score_at(job, a, t, s), slope = ref_cap_slope(score, job->args->cap);
        double p = exp(score - lse), factor = factor_at(a, t, s);
        double dp = factor * dot(job->act, dy, y_at(a, t), qkv, qkv_at(a, 2, s), a->D);
        double ds = p * (dp - delta) * a->scale * slope;
        for (int64_t e = 0; e < a->D; e++) {
            dq[e] += ds * ref_get(job->act, qkv, qkv_at(a, 1, s) + e);
            dk[e] += ds * ref_get(job->act, qkv, qkv_at(a, 0, t) + e);
            dv[e] += p * factor * ref_get(job->act, dy, y_at(a, t) + e);
        }
    }
}

static void put_d(const ref_job *job, const head *a, int which, const double *d)
{
    for (int64_t t = 0; t < a->T; t++) {
        for (int64_t e = 0; e < a->D; e++)
            ref_put_or_add(job->act, job->args->buf[4], qkv_at(a, which, t) + e, d[t * a->D + e],
                           job->args->flags & KRN_ADD_D_IN0);
    }
}

/* Key head i % K of sample i / K, and the query heads that share it. */
static void attention_d_group(const ref_job *job, int64_t i)
{
    const krn_args *args = job->args;
    int64_t H = args->dim[2], K = krn_kv_heads(args->dim, 2, 4), group = H / K;
    int64_t size = args->dim[1] * args->dim[3];
    double *dkv = (double *)job->cx->workspace + i * 3 * size, *dq = dkv + 2 * size;
    head a = {0};
    memset(dkv, 0, (size_t)(2 * size) * sizeof *dkv);
    for (int64_t h = 0; h < group; h++) {
        a = head_of(job, i / K * H + i % K * group + h);
        memset(dq, 0, (size_t)size * sizeof *dq);
        for (int64_t t = 0; t < a.T; t++)
            d_score_row(job, &a, dq, dkv, t);
        put_d(job, &a, 0, dq);
    }
    put_d(job, &a, 1, dkv);
    put_d(job, &a, 2, dkv + size);
}

void ref_attention_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[4])
        ref_parallel(cx, args, act, args->dim[0] * krn_kv_heads(args->dim, 2, 4),
                     attention_d_group);
}
