/*
 * layernorm: y = (x - mean) * rstd * w + b (0 where there is none) over the last dimension, rstd = 1/sqrt(var + eps), var
 * the biased variance about the mean (two passes). y is computed from the unrounded statistics;
 * backward from the stored ones, with z = (x - mean) * rstd: dx = rstd * (dy w - mean_c(dy w) - z
 * mean_c(dy w z)),  dw = sum_n dy z,  db = sum_n dy.
 */
#include "kernels/ref/ref.h"

#include <math.h>

static void layernorm_row(const ref_job *job, int64_t n)
{
    const krn_args *args = job->args;
    int64_t C = args->dim[1];
    double mean = 0.0, var = 0.0;
    for (int64_t c = 0; c < C; c++)
        mean += ref_get(job->act, args->buf[0], n * C + c);
    mean /= (double)C;
    for (int64_t c = 0; c < C; c++) {
        double away = ref_get(job->act, args->buf[0], n * C + c) - mean;
        var += away * away;
    }
    double rstd = 1.0 / sqrt(var / (double)C + (double)args->eps);
    for (int64_t c = 0; c < C; c++) {
        double z = (ref_get(job->act, args->buf[0], n * C + c) - mean) * rstd;
        double b = args->buf[2] ? ref_get(job->act, args->buf[2], c) : 0;
        ref_put(job->act, args->buf[3], n * C + c, z * ref_get(job->act, args->buf[1], c) + b);
    }
    ref_put(job->stat, args->buf[4], n, mean);
    ref_put(job->stat, args->buf[5], n, rstd);
}

void ref_layernorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], layernorm_row);
}

static double normal_at(const ref_job *job, int64_t n, int64_t c)
{
    const krn_args *args = job->args;
    return (ref_get(job->act, args->buf[0], n * args->dim[1] + c) -
            ref_get(job->stat, args->buf[4], n)) *
           ref_get(job->stat, args->buf[5], n);
}

static void d_in_row(const ref_job *job, int64_t n)
{
    const krn_args *args = job->args;
    int64_t C = args->dim[1];
    double mean_d = 0.0, mean_dz = 0.0;
    for (int64_t c = 0; c < C; c++) {
        double d = ref_get(job->act, args->buf[6], n * C + c) * ref_get(job->act, args->buf[1], c);
        mean_d += d;
        mean_dz += d * normal_at(job, n, c);
    }
    mean_d /= (double)C;
    mean_dz /= (double)C;
    double rstd = ref_get(job->stat, args->buf[5], n);
    for (int64_t c = 0; c < C; c++) {
        double d = ref_get(job->act, args->buf[6], n * C + c) * ref_get(job->act, args->buf[1], c);
        ref_put_or_add(job->act, args->buf[7], n * C + c,
                       rstd * (d - mean_d - normal_at(job, n, c) * mean_dz),
                       args->flags & KRN_ADD_D_IN0);
    }
}

static void d_param_column(const ref_job *job, int64_t c)
{
    const krn_args *args = job->args;
    int64_t N = args->dim[0], C = args->dim[1];
    double dw = 0.0, db = 0.0;
    for (int64_t n = 0; n < N; n++) {
        double dy = ref_get(job->act, args->buf[6], n * C + c);
        dw += dy * normal_at(job, n, c);
        db += dy;
    }
    if (args->buf[8])
        ref_put_or_add(job->stat, args->buf[8], c, dw, true);
    if (args->buf[9])
        ref_put_or_add(job->stat, args->buf[9], c, db, true);
}

void ref_layernorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[7])
        ref_parallel(cx, args, act, args->dim[0], d_in_row);
    ref_parallel(cx, args, act, args->dim[1], d_param_column);
}
