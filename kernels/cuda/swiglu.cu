/*
 * Owns swiglu, geglu and their backward. One idea: bound by memory, so a thread takes one pack of 16 bytes
 * of the gate and the pack of the other half that it meets; a block stays in one row, so no thread
 * divides by F. Rows that are not made of whole packs go element by element. One rounding per
 * stored element. The gate's function is computed again in
 * backward, never stored.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256 };

/* 1/(1 + exp(-x)); exp overflows to infinity, of which the inverse is 0. */
template <typename A> static __device__ __forceinline__ float sigmoid_of(float x)
{
    return krn_inv<A>(1.0f + krn_exp<A>(-x));
}

/* What the gate becomes, and its slope there. */
template <typename A> struct silu_gate {
    static __device__ __forceinline__ float value(float x)
    {
        return x * sigmoid_of<A>(x);
    }
    /* s (1 + x (1 - s)); *value = x s */
    static __device__ __forceinline__ float slope(float x, float *value)
    {
        float s = sigmoid_of<A>(x);
        *value = x * s;
        return s * krn_fma(x, 1.0f - s, 1.0f);
    }
};

/* gelu's tanh form, x sigma(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), as in elementwise.cu. */
template <typename A> struct gelu_gate {
    static __device__ __forceinline__ float share(float x)
    {
        return sigmoid_of<A>(x * krn_fma(0.07135481627f * x, x, 1.59576912161f));
    }
    static __device__ __forceinline__ float value(float x)
    {
        return x * share(x);
    }
    static __device__ __forceinline__ float slope(float x, float *value)
    {
        float s = share(x), turn = krn_fma(3.0f * 0.07135481627f * x, x, 1.59576912161f);
        *value = x * s;
        return krn_fma(x * s * (1.0f - s), turn, s);
    }
};

/* Which W elements of which row are this thread's: column, or F and more where there are none. */
struct place {
    int64_t row, column;
};

template <int W> static __device__ __forceinline__ place place_of(uint32_t tiles)
{
    uint32_t row = blockIdx.x / tiles, tile = blockIdx.x - row * tiles;
    return {(int64_t)row, ((int64_t)tile * blockDim.x + threadIdx.x) * W};
}

template <typename A, int W, typename G>
__global__ void __launch_bounds__(THREADS) gated_fwd(A *y, const A *x, int64_t F, uint32_t tiles)
{
    place at = place_of<W>(tiles);
    if (at.column >= F)
        return;
    const A *from = x + at.row * 2 * F + at.column;
    float gate[W], up[W];
    krn_load_w<A, W>(from, gate);
    krn_load_w<A, W>(from + F, up);
#pragma unroll
    for (int i = 0; i < W; i++)
        gate[i] = G::value(gate[i]) * up[i];
    krn_store_w<A, W>(y + at.row * F + at.column, gate);
}

/* dgate = dy up slope, dup = dy value. */
template <typename A, int W, typename G, bool ADD>
__global__ void __launch_bounds__(THREADS)
    gated_bwd(A *dx, const A *x, const A *dy, int64_t F, uint32_t tiles)
{
    place at = place_of<W>(tiles);
    if (at.column >= F)
        return;
    const A *from = x + at.row * 2 * F + at.column;
    A *to = dx + at.row * 2 * F + at.column;
    float gate[W], up[W], d[W], gate_old[W], up_old[W];
    krn_load_w<A, W>(from, gate);
    krn_load_w<A, W>(from + F, up);
    krn_load_w<A, W>(dy + at.row * F + at.column, d);
    if constexpr (ADD) {
        krn_load_w<A, W>(to, gate_old);
        krn_load_w<A, W>(to + F, up_old);
    }
#pragma unroll
    for (int i = 0; i < W; i++) {
        float to_up, slope = G::slope(gate[i], &to_up), to_gate = d[i] * up[i];
        gate[i] = ADD ? krn_fma(to_gate, slope, gate_old[i]) : to_gate * slope;
        up[i] = ADD ? krn_fma(d[i], to_up, up_old[i]) : d[i] * to_up;
    }
    krn_store_w<A, W>(to, gate);
    krn_store_w<A, W>(to + F, up);
}

/* How a row lies over blocks. */
struct shape {
    unsigned threads;
    int64_t tiles;
};

static shape shape_of(int64_t F, int64_t W)
{
    int64_t packs = (F + W - 1) / W;
    shape s;
    s.threads = packs < THREADS ? (unsigned)((packs + 31) / 32 * 32) : (unsigned)THREADS;
    s.tiles = (packs + s.threads - 1) / s.threads;
    return s;
}

template <typename A, int W, typename G> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    int64_t N = args->dim[0], F = args->dim[1];
    shape s = shape_of(F, W);
    krn_launch(cx, gated_fwd<A, W, G>, krn_grid(N * s.tiles), s.threads, 0, (A *)args->buf[1],
               (const A *)args->buf[0], F, (uint32_t)s.tiles);
}

template <typename A, int W, typename G> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t N = args->dim[0], F = args->dim[1];
    shape s = shape_of(F, W);
    if (!buf[3])
        return;
    krn_launch(cx,
               args->flags & KRN_ADD_D_IN0 ? gated_bwd<A, W, G, true> : gated_bwd<A, W, G, false>,
               krn_grid(N * s.tiles), s.threads, 0, (A *)buf[3], (const A *)buf[0],
               (const A *)buf[2], F, (uint32_t)s.tiles);
}

template <template <typename> class G>
static void fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bool whole = args->dim[1] % (act == ATOM_F32 ? 4 : 8) == 0;
    if (act == ATOM_F32)
        (whole ? run_fwd<float, 4, G<float>> : run_fwd<float, 1, G<float>>)(cx, args);
    else
        (whole ? run_fwd<krn_bf16, 8, G<krn_bf16>> : run_fwd<krn_bf16, 1, G<krn_bf16>>)(cx, args);
}

template <template <typename> class G>
static void bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bool whole = args->dim[1] % (act == ATOM_F32 ? 4 : 8) == 0;
    if (act == ATOM_F32)
        (whole ? run_bwd<float, 4, G<float>> : run_bwd<float, 1, G<float>>)(cx, args);
    else
        (whole ? run_bwd<krn_bf16, 8, G<krn_bf16>> : run_bwd<krn_bf16, 1, G<krn_bf16>>)(cx, args);
}

void krn_cuda_swiglu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    fwd<silu_gate>(cx, args, act);
}

void krn_cuda_swiglu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bwd<silu_gate>(cx, args, act);
}

void krn_cuda_geglu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    fwd<gelu_gate>(cx, args, act);
}

void krn_cuda_geglu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bwd<gelu_gate>(cx, args, act);
}
