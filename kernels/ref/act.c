/*
 * The elementwise ops: gelu, dropout, add, dropout_add, swiglu, geglu. One rounding per stored element;
 * dropout_add rounds once, after the sum. Backward of dropout draws the same mask again.
 */
#include "kernels/ref/ref.h"

#include <math.h>

enum { SPAN = 1024 }; /* elements per row of ref_parallel */

static int64_t spans(const krn_args *args)
{
    return (args->dim[0] + SPAN - 1) / SPAN;
}

static int64_t span_end(const ref_job *job, int64_t i)
{
    int64_t end = (i + 1) * SPAN;
    return end < job->args->dim[0] ? end : job->args->dim[0];
}

static void gelu_span(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    for (int64_t e = i * SPAN; e < span_end(job, i); e++)
        ref_put(job->act, buf[1], e, ref_gelu(ref_get(job->act, buf[0], e)));
}

void ref_gelu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, spans(args), gelu_span);
}

static void gelu_d_span(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    for (int64_t e = i * SPAN; e < span_end(job, i); e++)
        ref_put_or_add(job->act, buf[3], e,
                       ref_get(job->act, buf[2], e) * ref_gelu_slope(ref_get(job->act, buf[0], e)),
                       job->args->flags & KRN_ADD_D_IN0);
}

void ref_gelu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, spans(args), gelu_d_span);
}

static void dropout_span(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    ref_dropout d = ref_dropout_make(job->cx, job->args);
    for (int64_t e = i * SPAN; e < span_end(job, i); e++)
        ref_put(job->act, buf[1], e, ref_get(job->act, buf[0], e) * ref_dropout_factor(&d, e));
}

void ref_dropout_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, spans(args), dropout_span);
}

static void dropout_d_span(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    ref_dropout d = ref_dropout_make(job->cx, job->args);
    for (int64_t e = i * SPAN; e < span_end(job, i); e++)
        ref_put_or_add(job->act, buf[3], e,
                       ref_get(job->act, buf[2], e) * ref_dropout_factor(&d, e),
                       job->args->flags & KRN_ADD_D_IN0);
}

void ref_dropout_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, spans(args), dropout_d_span);
}

/* add is dropout_add without its dropout. */
static void dropout_add_span(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    ref_dropout d = ref_dropout_make(job->cx, job->args);
    for (int64_t e = i * SPAN; e < span_end(job, i); e++)
        ref_put(job->act, buf[2], e,
                ref_get(job->act, buf[0], e) * ref_dropout_factor(&d, e) +
                    ref_get(job->act, buf[1], e));
}

static void dropout_add_d_span(const ref_job *job, int64_t i)
{
    void *const *buf = job->args->buf;
    ref_dropout d = ref_dropout_make(job->cx, job->args);
    for (int64_t e = i * SPAN; e < span_end(job, i); e++) {
        double dy = ref_get(job->act, buf[3], e);
        if (buf[4])
            ref_put_or_add(job->act, buf[4], e, dy * ref_dropout_factor(&d, e),
                           job->args->flags & KRN_ADD_D_IN0);
        if (buf[5])
            ref_put_or_add(job->act, buf[5], e, dy, job->args->flags & KRN_ADD_D_IN1);
    }
}

void ref_dropout_add_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, spans(args), dropout_add_span);
}

void ref_dropout_add_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, spans(args), dropout_add_d_span);
}

void ref_add_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ATOM_ASSERT(args->p == 0.0f);
    ref_dropout_add_fwd(cx, args, act);
}

void ref_add_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ATOM_ASSERT(args->p == 0.0f);
    ref_dropout_add_bwd(cx, args, act);
}

/* silu(x) = x s, silu'(x) = s (1 + x (1 - s)), s = 1/(1 + exp(-x)) (Shazeer 2020 for the gate). */
static double sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static void swiglu_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t F = job->args->dim[1];
    for (int64_t f = 0; f < F; f++) {
        double gate = ref_get(job->act, buf[0], n * 2 * F + f);
        ref_put(job->act, buf[1], n * F + f,
                gate * sigmoid(gate) * ref_get(job->act, buf[0], n * 2 * F + F + f));
    }
}

void ref_swiglu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], swiglu_row);
}

static void swiglu_d_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t F = job->args->dim[1];
    bool add = job->args->flags & KRN_ADD_D_IN0;
    for (int64_t f = 0; f < F; f++) {
        double gate = ref_get(job->act, buf[0], n * 2 * F + f), s = sigmoid(gate);
        double up = ref_get(job->act, buf[0], n * 2 * F + F + f);
        double dy = ref_get(job->act, buf[2], n * F + f);
        ref_put_or_add(job->act, buf[3], n * 2 * F + f, dy * up * s * (1.0 + gate * (1.0 - s)),
                       add);
        ref_put_or_add(job->act, buf[3], n * 2 * F + F + f, dy * gate * s, add);
    }
}

void ref_swiglu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, args->dim[0], swiglu_d_row);
}

static void geglu_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t F = job->args->dim[1];
    for (int64_t f = 0; f < F; f++) {
        double gate = ref_get(job->act, buf[0], n * 2 * F + f);
        ref_put(job->act, buf[1], n * F + f,
                ref_gelu(gate) * ref_get(job->act, buf[0], n * 2 * F + F + f));
    }
}

void ref_geglu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], geglu_row);
}

static void geglu_d_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t F = job->args->dim[1];
    bool add = job->args->flags & KRN_ADD_D_IN0;
    for (int64_t f = 0; f < F; f++) {
        double gate = ref_get(job->act, buf[0], n * 2 * F + f);
        double up = ref_get(job->act, buf[0], n * 2 * F + F + f);
        double dy = ref_get(job->act, buf[2], n * F + f);
        ref_put_or_add(job->act, buf[3], n * 2 * F + f, dy * up * ref_gelu_slope(gate), add);
        ref_put_or_add(job->act, buf[3], n * 2 * F + F + f, dy * ref_gelu(gate), add);
    }
}

void ref_geglu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, args->dim[0], geglu_d_row);
}
