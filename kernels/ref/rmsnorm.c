/*
 * rmsnorm: y = x * rstd * w over the last dimension, rstd = 1/sqrt(mean(x^2) + eps) (Zhang and
 * Sennrich 2019), where w is the stored weight plus the lift. y is computed from the unrounded rstd;
 * backward from the stored one, with
 * z = x * rstd: dx = rstd * (dy w - z mean_c(dy w z)), dw = sum_n dy z. headnorm is the same over
 * each head of q (wq) and k (wk) of a packed qkv; v passes. One idea: a head is a row at a place.
 */
#include "kernels/ref/ref.h"

#include <math.h>

/* One row of C elements at `at` of buf[0] and of the output; its statistic is number `stat`. */
typedef struct row {
    int64_t at, C, stat;
    const void *w;
} row;

/* Places of what the two ops have: y, rstd forward; rstd, dy, dx backward. */
typedef struct places {
    int y, rstd, dy, dx;
} places;
static const places rms_fwd = {2, 3, 0, 0}, rms_bwd = {0, 3, 4, 5};
static const places head_fwd = {3, 4, 0, 0}, head_bwd = {0, 4, 5, 6};

static double weight(const ref_job *job, row r, int64_t c)
{
    return ref_get(job->act, r.w, c) + (double)job->args->lift;
}

static void norm_fwd(const ref_job *job, const places *p, row r)
{
    void *const *buf = job->args->buf;
    double sum = 0.0;
    for (int64_t c = 0; c < r.C; c++) {
        double x = ref_get(job->act, buf[0], r.at + c);
        sum += x * x;
    }
    double rstd = 1.0 / sqrt(sum / (double)r.C + (double)job->args->eps);
    for (int64_t c = 0; c < r.C; c++)
        ref_put(job->act, buf[p->y], r.at + c,
                ref_get(job->act, buf[0], r.at + c) * rstd * weight(job, r, c));
    ref_put(job->stat, buf[p->rstd], r.stat, rstd);
}

static void norm_dx(const ref_job *job, const places *p, row r)
{
    void *const *buf = job->args->buf;
    double rstd = ref_get(job->stat, buf[p->rstd], r.stat), mean = 0.0;
    for (int64_t c = 0; c < r.C; c++)
        mean += ref_get(job->act, buf[p->dy], r.at + c) * weight(job, r, c) *
                ref_get(job->act, buf[0], r.at + c) * rstd;
    mean /= (double)r.C;
    for (int64_t c = 0; c < r.C; c++) {
        double z = ref_get(job->act, buf[0], r.at + c) * rstd;
        double d = ref_get(job->act, buf[p->dy], r.at + c) * weight(job, r, c);
        ref_put_or_add(job->act, buf[p->dx], r.at + c, rstd * (d - z * mean),
                       job->args->flags & KRN_ADD_D_IN0);
    }
}

/* What a row gives to channel c of dw. */
static double norm_dw(const ref_job *job, const places *p, row r, int64_t c)
{
    void *const *buf = job->args->buf;
    return ref_get(job->act, buf[p->dy], r.at + c) * ref_get(job->act, buf[0], r.at + c) *
           ref_get(job->stat, buf[p->rstd], r.stat);
}

static row rms_row(const ref_job *job, int64_t n)
{
    int64_t C = job->args->dim[1];
    return (row){.at = n * C, .C = C, .stat = n, .w = job->args->buf[1]};
}

static void rms_fwd_row(const ref_job *job, int64_t n)
{
    norm_fwd(job, &rms_fwd, rms_row(job, n));
}

void ref_rmsnorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], rms_fwd_row);
}

static void rms_dx_row(const ref_job *job, int64_t n)
{
    norm_dx(job, &rms_bwd, rms_row(job, n));
}

static void rms_dw_column(const ref_job *job, int64_t c)
{
    double sum = 0.0;
    for (int64_t n = 0; n < job->args->dim[0]; n++)
        sum += norm_dw(job, &rms_bwd, rms_row(job, n), c);
    ref_put_or_add(job->stat, job->args->buf[6], c, sum, true);
}

void ref_rmsnorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[5])
        ref_parallel(cx, args, act, args->dim[0], rms_dx_row);
    if (args->buf[6])
        ref_parallel(cx, args, act, args->dim[1], rms_dw_column);
}

/* Head h of token n; heads count through q and k. */
static row head_row(const ref_job *job, int64_t n, int64_t h)
{
    const krn_args *args = job->args;
    int64_t H = args->dim[1], D = args->dim[2], K = krn_kv_heads(args->dim, 1, 3);
    return (row){.at = (n * (H + 2 * K) + h) * D,
                 .C = D,
                 .stat = n * (H + K) + h,
                 .w = args->buf[h < H ? 1 : 2]};
}

/* The v part of token n: from -> to. */
static void pass_values(const ref_job *job, int64_t n, int from, int to, bool add)
{
    const krn_args *args = job->args;
    int64_t H = args->dim[1], D = args->dim[2], K = krn_kv_heads(args->dim, 1, 3);
    int64_t at = (n * (H + 2 * K) + H + K) * D;
    for (int64_t i = at; i < at + K * D; i++)
        ref_put_or_add(job->act, args->buf[to], i, ref_get(job->act, args->buf[from], i), add);
}

static void head_fwd_row(const ref_job *job, int64_t n)
{
    int64_t heads = job->args->dim[1] + krn_kv_heads(job->args->dim, 1, 3);
    for (int64_t h = 0; h < heads; h++)
        norm_fwd(job, &head_fwd, head_row(job, n, h));
    pass_values(job, n, 0, head_fwd.y, false);
}

void ref_headnorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], head_fwd_row);
}

static void head_dx_row(const ref_job *job, int64_t n)
{
    int64_t heads = job->args->dim[1] + krn_kv_heads(job->args->dim, 1, 3);
    for (int64_t h = 0; h < heads; h++)
        norm_dx(job, &head_bwd, head_row(job, n, h));
    pass_values(job, n, head_bwd.dy, head_bwd.dx, job->args->flags & KRN_ADD_D_IN0);
}

/* Channel i % D of dwq (i < D) or dwk. */
static void head_dw_column(const ref_job *job, int64_t i)
{
    const krn_args *args = job->args;
    int64_t H = args->dim[1], D = args->dim[2], K = krn_kv_heads(args->dim, 1, 3);
    int64_t first = i < D ? 0 : H, last = i < D ? H : H + K;
    void *dw = args->buf[i < D ? 7 : 8];
    double sum = 0.0;
    for (int64_t n = 0; dw && n < args->dim[0]; n++) {
        for (int64_t h = first; h < last; h++)
            sum += norm_dw(job, &head_bwd, head_row(job, n, h), i % D);
    }
    if (dw)
        ref_put_or_add(job->stat, dw, i % D, sum, true);
}

void ref_headnorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[6])
        ref_parallel(cx, args, act, args->dim[0], head_dx_row);
    ref_parallel(cx, args, act, 2 * args->dim[2], head_dw_column);
}
