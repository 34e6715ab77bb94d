/*
 * rownorm: n = |w + scale (b a)| of each row (the norm of Liu et al. 2024, DoRA, equation 5), a
 * constant to those who differentiate. dora: y = c + (x - c) f in columns [first, first + O) with
 * f = m / n, or 0 where n is 0, else y = x; c is 0 where there is none. Backward, with dz = dy of those
 * columns: dx = f dz, dm += sum dz (x - c) / n, dc += sum dz (1 - f); dx = dy elsewhere.
 */
#include "kernels/ref/ref.h"

#include <math.h>

static void norm_row(const ref_job *job, int64_t o)
{
    const krn_args *args = job->args;
    void *const *buf = args->buf;
    int64_t I = args->dim[1], R = args->dim[2], first = args->dim[3];
    double total = 0;
    for (int64_t i = 0; i < I; i++) {
        double sum = 0;
        for (int64_t r = 0; r < R; r++)
            sum += ref_get(job->act, buf[2], o * R + r) * ref_get(job->act, buf[1], r * I + i);
        sum = ref_get(job->act, buf[0], (first + o) * I + i) + (double)args->scale * sum;
        total += sum * sum;
    }
    ref_put(job->stat, buf[3], o, sqrt(total));
}

void ref_rownorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], norm_row);
}

void ref_rownorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (void)cx, (void)args, (void)act; /* a constant has no gradient: nobody calls this */
}

/* Column c of x: its 1 / n (0 where n is 0), f and bias; false: it passes. */
static bool column(const ref_job *job, int64_t c, double *inverse, double *f, double *bias)
{
    void *const *buf = job->args->buf;
    int64_t o = c - job->args->dim[3];
    if (o < 0 || o >= job->args->dim[2])
        return false;
    double n = ref_get(job->stat, buf[1], o);
    *inverse = n > 0 ? 1 / n : 0;
    *f = *inverse * ref_get(job->act, buf[2], o);
    *bias = buf[3] ? ref_get(job->act, buf[3], c) : 0;
    return true;
}

static void fwd_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t W = job->args->dim[1];
    for (int64_t c = 0; c < W; c++) {
        double x = ref_get(job->act, buf[0], n * W + c), inverse, f, bias;
        if (column(job, c, &inverse, &f, &bias))
            x = bias + (x - bias) * f;
        ref_put(job->act, buf[4], n * W + c, x);
    }
}

void ref_dora_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], fwd_row);
}

static void d_in_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t W = job->args->dim[1];
    for (int64_t c = 0; c < W; c++) {
        double dy = ref_get(job->act, buf[5], n * W + c), inverse, f, bias;
        if (column(job, c, &inverse, &f, &bias))
            dy *= f;
        ref_put_or_add(job->act, buf[6], n * W + c, dy, job->args->flags & KRN_ADD_D_IN0);
    }
}

static void d_param_column(const ref_job *job, int64_t o)
{
    void *const *buf = job->args->buf;
    int64_t W = job->args->dim[1], c = job->args->dim[3] + o;
    double inverse = 0, f = 0, bias = 0, dm = 0, dc = 0;
    column(job, c, &inverse, &f, &bias);
    for (int64_t n = 0; n < job->args->dim[0]; n++) {
        double dy = ref_get(job->act, buf[5], n * W + c);
        dm += dy * (ref_get(job->act, buf[0], n * W + c) - bias);
        dc += dy;
    }
    if (buf[8])
        ref_put_or_add(job->stat, buf[8], o, dm * inverse, true);
    if (buf[9])
        ref_put_or_add(job->stat, buf[9], c, dc * (1 - f), true);
}

void ref_dora_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[6])
        ref_parallel(cx, args, act, args->dim[0], d_in_row);
    if (args->buf[8] || args->buf[9])
        ref_parallel(cx, args, act, args->dim[2], d_param_column);
}
