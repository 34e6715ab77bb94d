/*
 * Functions of one number: gelu_erf (Hendrycks and Gimpel 2016, exact), relu, relu2 (So et al.
 * 2021), silu and scale. Forward stores f(x), backward dy f'(x), each rounded once.
 */
#include "kernels/ref/ref.h"

#include <math.h>

enum { SPAN = 1024 }; /* elements per row of ref_parallel */

typedef double (*map_fn)(const krn_args *args, double x);

static double phi(double x)
{
    return 0.5 * erfc(-x * M_SQRT1_2);
}

static double sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double gelu_erf(const krn_args *args, double x)
{
    (void)args;
    return x * phi(x);
}

static double gelu_erf_slope(const krn_args *args, double x)
{
    (void)args;
    return phi(x) + x * exp(-0.5 * x * x) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
}

static double relu(const krn_args *args, double x)
{
    (void)args;
    return x <= 0 ? 0 : x; /* not a number stays none */
}

static double relu_slope(const krn_args *args, double x)
{
    (void)args;
    return x > 0;
}

static double relu2(const krn_args *args, double x)
{
    return relu(args, x) * x;
}

static double relu2_slope(const krn_args *args, double x)
{
    return 2 * relu(args, x);
}

static double silu(const krn_args *args, double x)
{
    (void)args;
    return x * sigmoid(x);
}

static double silu_slope(const krn_args *args, double x)
{
    double s = sigmoid(x);
    (void)args;
    return s * (1.0 + x * (1.0 - s));
}

static double scale(const krn_args *args, double x)
{
    return (double)args->scale * x;
}

static double scale_slope(const krn_args *args, double x)
{
    (void)x;
    return (double)args->scale;
}

static void forward_span(const ref_job *job, int64_t i, map_fn f)
{
    void *const *buf = job->args->buf;
    int64_t n = job->args->dim[0];
    for (int64_t e = i * SPAN; e < n && e < (i + 1) * SPAN; e++)
        ref_put(job->act, buf[1], e, f(job->args, ref_get(job->act, buf[0], e)));
}

static void backward_span(const ref_job *job, int64_t i, map_fn slope)
{
    void *const *buf = job->args->buf;
    int64_t n = job->args->dim[0];
    for (int64_t e = i * SPAN; e < n && e < (i + 1) * SPAN; e++)
        ref_put_or_add(job->act, buf[3], e,
                       ref_get(job->act, buf[2], e) *
                           slope(job->args, ref_get(job->act, buf[0], e)),
                       job->args->flags & KRN_ADD_D_IN0);
}

#define ENTRIES(name)                                                                              \
    static void name##_fwd_span(const ref_job *job, int64_t i)                                     \
    {                                                                                              \
        forward_span(job, i, name);                                                                \
    }                                                                                              \
    static void name##_bwd_span(const ref_job *job, int64_t i)                                     \
    {                                                                                              \
        backward_span(job, i, name##_slope);                                                       \
    }                                                                                              \
    void ref_##name##_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)                       \
    {                                                                                              \
        ref_parallel(cx, args, act, (args->dim[0] + SPAN - 1) / SPAN, name##_fwd_span);            \
    }                                                                                              \
    void ref_##name##_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)                       \
    {                                                                                              \
        if (args->buf[3])                                                                          \
            ref_parallel(cx, args, act, (args->dim[0] + SPAN - 1) / SPAN, name##_bwd_span);        \
    }
ENTRIES(gelu_erf)
ENTRIES(relu)
ENTRIES(relu2)
ENTRIES(silu)
ENTRIES(scale)
