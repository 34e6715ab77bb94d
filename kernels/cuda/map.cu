/*
 * Owns gelu_erf, relu, relu2 and silu and their backward. One idea: bound by memory, so a thread
 * takes a pack of 16 bytes and the one behind the last whole pack the rest, whichever function it
 * is; that is a type with a value and a slope. One rounding per stored element. Nothing is kept for
 * backward but the input.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256 };

/* x Phi(x) and Phi(x) + x phi(x); erfc keeps what is left of Phi far below 0. */
template <typename A> struct gelu_erf_of {
    static __device__ __forceinline__ float share(float x)
    {
        return 0.5f * erfcf(-0.70710678118654752440f * x);
    }
    static __device__ __forceinline__ float value(float x)
    {
        return x * share(x);
    }
    static __device__ __forceinline__ float slope(float x)
    {
        return krn_fma(0.39894228040143267794f * x, krn_exp<A>(-0.5f * x * x), share(x));
    }
};

/* Not a number stays none. */
template <typename A> struct relu_of {
    static __device__ __forceinline__ float value(float x)
    {
        return x <= 0.0f ? 0.0f : x;
    }
    static __device__ __forceinline__ float slope(float x)
    {
        return x > 0.0f ? 1.0f : 0.0f;
    }
};

template <typename A> struct relu2_of {
    static __device__ __forceinline__ float value(float x)
    {
        return relu_of<A>::value(x) * x;
    }
    static __device__ __forceinline__ float slope(float x)
    {
        return 2.0f * relu_of<A>::value(x);
    }
};

/* exp overflows to infinity, of which the inverse is 0. */
template <typename A> struct silu_of {
    static __device__ __forceinline__ float share(float x)
    {
        return krn_inv<A>(1.0f + krn_exp<A>(-x));
    }
    static __device__ __forceinline__ float value(float x)
    {
        return x * share(x);
    }
    static __device__ __forceinline__ float slope(float x)
    {
        float s = share(x);
        return s * krn_fma(x, 1.0f - s, 1.0f);
    }
};

template <typename A, typename F>
__global__ void __launch_bounds__(THREADS) map_fwd(A *y, const A *x, int64_t n)
{
    constexpr int W = krn_pack<A>::N;
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (at + W <= n) {
        float v[W];
        krn_load_pack(x + at, v);
#pragma unroll
        for (int i = 0; i < W; i++)
            v[i] = F::value(v[i]);
        krn_store_pack(y + at, v);
        return;
    }
    for (; at < n; at++)
        krn_put(y + at, F::value(krn_float(x[at])));
}

template <typename A, typename F, bool ADD>
__global__ void __launch_bounds__(THREADS) map_bwd(A *dx, const A *x, const A *dy, int64_t n)
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
            d[i] = ADD ? krn_fma(d[i], F::slope(v[i]), old[i]) : d[i] * F::slope(v[i]);
        krn_store_pack(dx + at, d);
        return;
    }
    for (; at < n; at++) {
        float d = krn_float(dy[at]), slope = F::slope(krn_float(x[at]));
        krn_put(dx + at, ADD ? krn_fma(d, slope, krn_float(dx[at])) : d * slope);
    }
}

/* A thread for each pack, and one for what is behind the last. */
template <typename A> static dim3 grid_of(int64_t n)
{
    int64_t share = (int64_t)THREADS * krn_pack<A>::N;
    return krn_grid((n + share - 1) / share);
}

template <typename A, typename F> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    krn_launch(cx, map_fwd<A, F>, grid_of<A>(args->dim[0]), THREADS, 0, (A *)args->buf[1],
               (const A *)args->buf[0], args->dim[0]);
}

template <typename A, typename F> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    if (buf[3])
        krn_launch(cx, args->flags & KRN_ADD_D_IN0 ? map_bwd<A, F, true> : map_bwd<A, F, false>,
                   grid_of<A>(args->dim[0]), THREADS, 0, (A *)buf[3], (const A *)buf[0],
                   (const A *)buf[2], args->dim[0]);
}

template <template <typename> class F>
static void fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_fwd<float, F<float>> : run_fwd<krn_bf16, F<krn_bf16>>)(cx, args);
}

template <template <typename> class F>
static void bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_bwd<float, F<float>> : run_bwd<krn_bf16, F<krn_bf16>>)(cx, args);
}

void krn_cuda_gelu_erf_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    fwd<gelu_erf_of>(cx, args, act);
}

void krn_cuda_gelu_erf_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bwd<gelu_erf_of>(cx, args, act);
}

void krn_cuda_relu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    fwd<relu_of>(cx, args, act);
}

void krn_cuda_relu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bwd<relu_of>(cx, args, act);
}

void krn_cuda_relu2_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    fwd<relu2_of>(cx, args, act);
}

void krn_cuda_relu2_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bwd<relu2_of>(cx, args, act);
}

void krn_cuda_silu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    fwd<silu_of>(cx, args, act);
}

void krn_cuda_silu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bwd<silu_of>(cx, args, act);
}
