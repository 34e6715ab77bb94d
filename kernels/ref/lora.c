/*
 * lora: y = x, with scale h b' added in columns [first, first + O): the sum over the rank, then one
 * rounding of x + scale sum. Backward, with dz = dy of those columns: dx = dy, dh = scale dz b,
 * db += scale dz' h.
 */
#include "kernels/ref/ref.h"

typedef struct sizes {
    int64_t N, W, R, O, first;
    double scale;
} sizes;

static sizes sizes_of(const krn_args *args)
{
    return (sizes){args->dim[0], args->dim[1], args->dim[2],
                   args->dim[3], args->dim[4], (double)args->scale};
}

static void fwd_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    sizes s = sizes_of(job->args);
    for (int64_t c = 0; c < s.W; c++) {
        int64_t o = c - s.first;
        double sum = 0;
        for (int64_t r = 0; r < s.R && o >= 0 && o < s.O; r++)
            sum += ref_get(job->act, buf[1], n * s.R + r) * ref_get(job->act, buf[2], o * s.R + r);
        ref_put(job->act, buf[3], n * s.W + c,
                ref_get(job->act, buf[0], n * s.W + c) + s.scale * sum);
    }
}

void ref_lora_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], fwd_row);
}

static void d_in_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    sizes s = sizes_of(job->args);
    for (int64_t c = 0; c < s.W && buf[5]; c++)
        ref_put_or_add(job->act, buf[5], n * s.W + c, ref_get(job->act, buf[4], n * s.W + c),
                       job->args->flags & KRN_ADD_D_IN0);
    for (int64_t r = 0; r < s.R && buf[6]; r++) {
        double sum = 0;
        for (int64_t o = 0; o < s.O; o++)
            sum += ref_get(job->act, buf[4], n * s.W + s.first + o) *
                   ref_get(job->act, buf[2], o * s.R + r);
        ref_put_or_add(job->act, buf[6], n * s.R + r, s.scale * sum,
                       job->args->flags & KRN_ADD_D_IN1);
    }
}

static void d_param_row(const ref_job *job, int64_t o)
{
    void *const *buf = job->args->buf;
    sizes s = sizes_of(job->args);
    for (int64_t r = 0; r < s.R; r++) {
        double sum = 0;
        for (int64_t n = 0; n < s.N; n++)
            sum += ref_get(job->act, buf[4], n * s.W + s.first + o) *
                   ref_get(job->act, buf[1], n * s.R + r);
        ref_put_or_add(job->stat, buf[7], o * s.R + r, s.scale * sum, true);
    }
}

void ref_lora_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], d_in_row);
    if (args->buf[7])
        ref_parallel(cx, args, act, args->dim[3], d_param_row);
}
