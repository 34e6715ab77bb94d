/*
 * Owns the functions of one number: gelu_erf, relu, relu2, silu, scale. One idea: each is a value and
 * a slope of one vector, and one loop over spans makes kernels of them; the last, partial vector
 * takes the same path. Every stored element is rounded once.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

enum { SPAN = 16384 };

typedef vf (*map_fn)(const krn_args *args, vf x);

KRN_INLINE vf positive(vf x)
{
    return vf_max(vf_all(0.0f), x); /* not a number stays none */
}

/*
 * Phi(x), the normal distribution's share below x: half of erfc(z), z = |x| / sqrt(2), by its
 * Chebyshev fit t exp(-z^2 + P(t)), t = 1 / (1 + z / 2), whose relative error is below 1.2e-7
 * everywhere (Numerical Recipes, 6.2). Beyond 13 nothing of the tail is left.
 */
KRN_INLINE vf phi(vf x)
{
    static const float P[] = {0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                              -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f};
    vf far = vf_min(vf_all(13.0f), vf_max(vf_all(0.0f) - x, x));
    vf z = far * vf_all(0.707106781186547524f);
    vf t = vf_inverse(vf_fma(vf_all(0.5f), z, vf_all(1.0f))), p = vf_all(P[0]);
    for (int i = 1; i < 10; i++)
        p = vf_fma(p, t, vf_all(P[i]));
    vf tail = vf_all(0.5f) * t * vf_exp(vf_fma(vf_all(-0.5f) * far, far, p));
    return vf_if_less(x, vf_all(0.0f), tail, vf_all(1.0f) - tail);
}

KRN_INLINE vf gelu_erf(const krn_args *args, vf x)
{
    (void)args;
    return x * phi(x);
}

KRN_INLINE vf gelu_erf_slope(const krn_args *args, vf x)
{
    (void)args;
    vf far = vf_min(vf_all(13.0f), vf_max(vf_all(-13.0f), x));
    vf density = vf_all(0.398942280401432678f) * vf_exp(vf_all(-0.5f) * far * far);
    return vf_fma(far, density, phi(x));
}

KRN_INLINE vf relu(const krn_args *args, vf x)
{
    (void)args;
    return positive(x);
}

KRN_INLINE vf relu_slope(const krn_args *args, vf x)
{
    (void)args;
    return vf_if_less(vf_all(0.0f), x, vf_all(1.0f), vf_all(0.0f));
}

KRN_INLINE vf relu2(const krn_args *args, vf x)
{
    (void)args;
    return positive(x) * positive(x);
}

KRN_INLINE vf relu2_slope(const krn_args *args, vf x)
{
    (void)args;
    return vf_all(2.0f) * positive(x);
}

KRN_INLINE vf silu(const krn_args *args, vf x)
{
    (void)args;
    vf e;
    return x * vf_sigmoid(x, &e);
}

/* silu' = s (1 + x (1 - s)), with 1 - s = e s */
KRN_INLINE vf silu_slope(const krn_args *args, vf x)
{
    (void)args;
    vf e, s = vf_sigmoid(x, &e);
    return vf_fma(x * s, e * s, s);
}

KRN_INLINE vf scale(const krn_args *args, vf x)
{
    return vf_all(args->scale) * x;
}

KRN_INLINE vf scale_slope(const krn_args *args, vf x)
{
    (void)x;
    return vf_all(args->scale);
}

KRN_INLINE void fwd_part(atom_dtype dtype, const krn_args *args, int64_t i, int64_t k, map_fn f)
{
    vf_put(dtype, args->buf[1], i, k, f(args, vf_get(dtype, args->buf[0], i, k)));
}

KRN_INLINE void bwd_part(atom_dtype dtype, const krn_args *args, int64_t i, int64_t k, map_fn slope)
{
    vf d = vf_get(dtype, args->buf[2], i, k) * slope(args, vf_get(dtype, args->buf[0], i, k));
    if (args->flags & KRN_ADD_D_IN0)
        d += vf_get(dtype, args->buf[3], i, k);
    vf_put(dtype, args->buf[3], i, k, d);
}

typedef void (*part_fn)(atom_dtype dtype, const krn_args *args, int64_t i, int64_t k, map_fn f);

/* One span; dtype, part and f are constants after inlining. */
KRN_INLINE void run_span(atom_dtype dtype, const krn_args *shared, uint32_t index, part_fn part,
                         map_fn f)
{
    const krn_args args = *shared;
    int64_t i = (int64_t)index * SPAN, end = krn_min(i + SPAN, args.dim[0]);
    for (; i + VF_LANES <= end; i += VF_LANES)
        part(dtype, &args, i, VF_LANES, f);
    if (i < end)
        part(dtype, &args, i, end - i, f);
}

static void run(krn_ctx *cx, const krn_args *args, atom_task task)
{
    krn_each(cx->threads, krn_ceil_div(args->dim[0], SPAN), task, (void *)(uintptr_t)args);
}

#define ENTRY(name, dtype, suffix)                                                                 \
    KRN_TASK_AS(name##_fwd_span_##suffix, run_span(dtype, ctx, index, fwd_part, name))             \
    KRN_TASK_AS(name##_bwd_span_##suffix, run_span(dtype, ctx, index, bwd_part, name##_slope))     \
    void KRN_ISA(krn_cpu_##name##_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                \
    {                                                                                              \
        run(cx, args, name##_fwd_span_##suffix);                                                   \
    }                                                                                              \
    void KRN_ISA(krn_cpu_##name##_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                \
    {                                                                                              \
        if (args->buf[3])                                                                          \
            run(cx, args, name##_bwd_span_##suffix);                                               \
    }
#define ENTRIES(name)                                                                              \
    ENTRY(name, ATOM_F32, f32)                                                                     \
    ENTRY(name, ATOM_BF16, bf16)
ENTRIES(gelu_erf)
ENTRIES(relu)
ENTRIES(relu2)
ENTRIES(silu)
ENTRIES(scale)
