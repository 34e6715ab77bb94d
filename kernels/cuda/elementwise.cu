/*
 * Owns gelu, scale, dropout, add, dropout_add and their backward. One idea: these are bound by memory, so
 * a thread takes packs of 16 bytes, all loads before the first use, and the last elements one by
 * one. One rounding per stored element. Masks are drawn again in backward, never stored. Refuses to
 * touch an input whose gradient nobody wants.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256 };

/* x sigma(2u) with u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form, without its cancellation. */
#define GELU_A2 1.59576912160573071176f /* 2 sqrt(2/pi) */
#define GELU_B 0.044715f

template <typename A> static __device__ __forceinline__ float gate_of(float x)
{
    float u2 = GELU_A2 * krn_fma(GELU_B * x * x, x, x);
    return krn_inv<A>(1.0f + krn_exp<A>(-u2));
}

template <typename A> static __device__ __forceinline__ float gelu_of(float x)
{
    return x * gate_of<A>(x);
}

template <typename A> static __device__ __forceinline__ float slope_of(float x)
{
    float gate = gate_of<A>(x);
    float inner = GELU_A2 * krn_fma(3.0f * GELU_B * x, x, 1.0f);
    return krn_fma(x * gate * (1.0f - gate), inner, gate);
}

/* Blocks for n elements, a pack per thread; the thread behind the last whole pack does the rest. */
template <typename A> static dim3 grid_of(int64_t n)
{
    int64_t share = (int64_t)THREADS * krn_pack<A>::N;
    return krn_grid((n + share - 1) / share);
}

template <typename A>
__global__ void __launch_bounds__(THREADS) gelu_fwd(A *y, const A *x, int64_t n)
{
    constexpr int W = krn_pack<A>::N;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (at + W <= n) {
        float v[W];
        krn_load_pack(x + at, v);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] = gelu_of<A>(v[i]);
        krn_store_pack(y + at, v);
        return;
    }
    for (; at < n; at++)
        krn_put(y + at, gelu_of<A>(krn_float(x[at])));
}

template <typename A, bool ADD>
__global__ void __launch_bounds__(THREADS) gelu_bwd(A *dx, const A *x, const A *dy, int64_t n)
{
    constexpr int W = krn_pack<A>::N;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (at + W <= n) {
        float v[W], d[W], old[W];
        krn_load_pack(x + at, v);
        krn_load_pack(dy + at, d);
        if constexpr (ADD)
            krn_load_pack(dx + at, old);
#pragma unroll
        for (int i = 0; i < W; i++)
            d[i] = ADD ? krn_fma(d[i], slope_of<A>(v[i]), old[i]) : d[i] * slope_of<A>(v[i]);
        krn_store_pack(dx + at, d);
        return;
    }
    for (; at < n; at++) {
        float d = krn_float(dy[at]), slope = slope_of<A>(krn_float(x[at]));
        krn_put(dx + at, ADD ? krn_fma(d, slope, krn_float(dx[at])) : d * slope);
    }
}

/* y (+)= by x: scale, and its backward on gradients. */
template <typename A, bool ADD>
__global__ void __launch_bounds__(THREADS) scale_any(A *y, const A *x, float by, int64_t n)
{
    constexpr int W = krn_pack<A>::N;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (at + W <= n) {
        float v[W], old[W];
        krn_load_pack(x + at, v);
        if constexpr (ADD)
            krn_load_pack(y + at, old);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] = ADD ? krn_fma(v[i], by, old[i]) : v[i] * by;
        krn_store_pack(y + at, v);
        return;
    }
    for (; at < n; at++) {
        float v = krn_float(x[at]);
        krn_put(y + at, ADD ? krn_fma(v, by, krn_float(y[at])) : v * by);
    }
}

/* What elements at .. at+W-1 are multiplied with; at is a multiple of 4. */
template <int W>
static __device__ __forceinline__ void factors_at(const krn_dropout *drop, const krn_step *step,
                                                  int64_t at, float factor[W])
{
#pragma unroll
    for (int i = 0; i < W; i += 4)
        krn_dropout_factors(drop, step, (uint64_t)(at + i) >> 2, factor + i);
}

static __device__ __forceinline__ float factor_of(bool on, const krn_dropout *drop,
                                                  const krn_step *step, int64_t e)
{
    float factor[4];
    if (!on)
        return 1.0f;
    krn_dropout_factors(drop, step, (uint64_t)e >> 2, factor);
    return e % 4 == 0 ? factor[0] : e % 4 == 1 ? factor[1] : e % 4 == 2 ? factor[2] : factor[3];
}

/* y = mask x (+ r); r may be NULL. */
template <typename A>
__global__ void __launch_bounds__(THREADS, 4)
    dropout_add_fwd(A *y, const A *x, const A *r, krn_dropout drop, const krn_step *step, int64_t n)
{
    constexpr int W = krn_pack<A>::N;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    bool on = drop.on && step->train;
    if (at + W <= n) {
        float v[W], other[W], factor[W];
#pragma unroll
        for (int i = 0; i < W; i++) {
            other[i] = 0.0f;
            factor[i] = 1.0f;
        }
        krn_load_pack(x + at, v);
        if (r)
            krn_load_pack(r + at, other);
        if (on)
            factors_at<W>(&drop, step, at, factor);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] = r ? krn_fma(v[i], factor[i], other[i]) : v[i] * factor[i];
        krn_store_pack(y + at, v);
        return;
    }
    for (; at < n; at++) {
        float factor = factor_of(on, &drop, step, at), v = krn_float(x[at]);
        krn_put(y + at, r ? krn_fma(v, factor, krn_float(r[at])) : v * factor);
    }
}

/* dx (+)= mask dy, dr (+)= dy; either may be NULL. */
template <typename A>
__global__ void __launch_bounds__(THREADS, 4)
    dropout_add_bwd(A *dx, A *dr, const A *dy, uint32_t flags, krn_dropout drop,
                    const krn_step *step, int64_t n)
{
    constexpr int W = krn_pack<A>::N;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    bool on = dx && drop.on && step->train, add_x = flags & KRN_ADD_D_IN0;
    bool add_r = flags & KRN_ADD_D_IN1;
    if (at + W <= n) {
        float d[W], x_old[W], r_old[W], factor[W];
#pragma unroll
        for (int i = 0; i < W; i++) {
            x_old[i] = r_old[i] = 0.0f;
            factor[i] = 1.0f;
        }
        krn_load_pack(dy + at, d);
        if (dx && add_x)
            krn_load_pack(dx + at, x_old);
        if (dr && add_r)
            krn_load_pack(dr + at, r_old);
        if (on)
            factors_at<W>(&drop, step, at, factor);
#pragma unroll
        for (int i = 0; i < W; i++) {
            x_old[i] = add_x ? krn_fma(d[i], factor[i], x_old[i]) : d[i] * factor[i];
            r_old[i] = add_r ? d[i] + r_old[i] : d[i];
        }
        if (dx)
            krn_store_pack(dx + at, x_old);
        if (dr)
            krn_store_pack(dr + at, r_old);
        return;
    }
    for (; at < n; at++) {
        float d = krn_float(dy[at]), factor = factor_of(on, &drop, step, at);
        if (dx)
            krn_put(dx + at, add_x ? krn_fma(d, factor, krn_float(dx[at])) : d * factor);
        if (dr)
            krn_put(dr + at, add_r ? d + krn_float(dr[at]) : d);
    }
}

template <typename A>
static void run_gelu_bwd(krn_ctx *cx, void *dx, const void *x, const void *dy, int64_t n, bool add)
{
    krn_launch(cx, add ? gelu_bwd<A, true> : gelu_bwd<A, false>, grid_of<A>(n), THREADS, 0, (A *)dx,
               (const A *)x, (const A *)dy, n);
}

void krn_cuda_gelu_slope(krn_ctx *cx, void *du, const void *dy, const void *u, int64_t n,
                         atom_dtype act)
{
    (act == ATOM_F32 ? run_gelu_bwd<float> : run_gelu_bwd<krn_bf16>)(cx, du, u, dy, n, false);
}

template <typename A> static void run_gelu_fwd(krn_ctx *cx, const krn_args *args)
{
    krn_launch(cx, gelu_fwd<A>, grid_of<A>(args->dim[0]), THREADS, 0, (A *)args->buf[1],
               (const A *)args->buf[0], args->dim[0]);
}

void krn_cuda_gelu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_gelu_fwd<float> : run_gelu_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_gelu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        (act == ATOM_F32 ? run_gelu_bwd<float>
                         : run_gelu_bwd<krn_bf16>)(cx, args->buf[3], args->buf[0], args->buf[2],
                                                   args->dim[0], args->flags & KRN_ADD_D_IN0);
}

template <typename A>
static void run_scale(krn_ctx *cx, const krn_args *args, void *y, const void *x, bool add)
{
    krn_launch(cx, add ? scale_any<A, true> : scale_any<A, false>, grid_of<A>(args->dim[0]),
               THREADS, 0, (A *)y, (const A *)x, args->scale, args->dim[0]);
}

void krn_cuda_scale_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_scale<float> : run_scale<krn_bf16>)(cx, args, args->buf[1], args->buf[0],
                                                               false);
}

void krn_cuda_scale_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        (act == ATOM_F32 ? run_scale<float> : run_scale<krn_bf16>)(cx, args, args->buf[3],
                                                                   args->buf[2],
                                                                   args->flags & KRN_ADD_D_IN0);
}

template <typename A>
static void run_dropout_add_fwd(krn_ctx *cx, const krn_args *args, void *y, const void *r)
{
    krn_launch(cx, dropout_add_fwd<A>, grid_of<A>(args->dim[0]), THREADS, 0, (A *)y,
               (const A *)args->buf[0], (const A *)r, krn_dropout_make(args), cx->step,
               args->dim[0]);
}

template <typename A>
static void run_dropout_add_bwd(krn_ctx *cx, const krn_args *args, const void *dy, void *dx,
                                void *dr)
{
    if (dx || dr)
        krn_launch(cx, dropout_add_bwd<A>, grid_of<A>(args->dim[0]), THREADS, 0, (A *)dx, (A *)dr,
                   (const A *)dy, args->flags, krn_dropout_make(args), cx->step, args->dim[0]);
}

void krn_cuda_dropout_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_dropout_add_fwd<float>
                     : run_dropout_add_fwd<krn_bf16>)(cx, args, args->buf[1], nullptr);
}

void krn_cuda_dropout_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32
         ? run_dropout_add_bwd<float>
         : run_dropout_add_bwd<krn_bf16>)(cx, args, args->buf[2], args->buf[3], nullptr);
}

void krn_cuda_dropout_add_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_dropout_add_fwd<float>
                     : run_dropout_add_fwd<krn_bf16>)(cx, args, args->buf[2], args->buf[1]);
}

void krn_cuda_dropout_add_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32
         ? run_dropout_add_bwd<float>
         : run_dropout_add_bwd<krn_bf16>)(cx, args, args->buf[3], args->buf[4], args->buf[5]);
}

/* add is dropout_add with p 0. */
void krn_cuda_add_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    krn_cuda_dropout_add_fwd(cx, args, act);
}

void krn_cuda_add_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    krn_cuda_dropout_add_bwd(cx, args, act);
}
