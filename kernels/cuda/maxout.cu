/*
 * Owns maxout and its backward. One idea: a thread takes one window of K values, which lie together,
 * and finds the largest; backward finds it again. The first of those that are equal wins, and so
 * does the first that is not a number. K is small, so a warp's windows share their cache lines.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256 };

/* Which of the K values from x wins; *value is that one. */
template <typename A>
static __device__ __forceinline__ int64_t winner(const A *x, int64_t K, float *value)
{
    int64_t best = 0;
    float most = krn_float(x[0]);
    for (int64_t k = 1; k < K; k++) {
        float v = krn_float(x[k]);
        if (most == most && !(v <= most)) {
            best = k;
            most = v;
        }
    }
    *value = most;
    return best;
}

template <typename A>
__global__ void __launch_bounds__(THREADS) maxout_fwd(A *y, const A *x, int64_t n, int64_t K)
{
    int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float value;
    if (e >= n)
        return;
    winner(x + e * K, K, &value);
    krn_put(y + e, value);
}

template <typename A, bool ADD>
__global__ void __launch_bounds__(THREADS)
    maxout_bwd(A *dx, const A *x, const A *dy, int64_t n, int64_t K)
{
    int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float value;
    if (e >= n)
        return;
    int64_t best = winner(x + e * K, K, &value);
    dx += e * K;
    if constexpr (ADD) {
        krn_put(dx + best, krn_float(dx[best]) + krn_float(dy[e]));
    } else {
        for (int64_t k = 0; k < K; k++)
            krn_put(dx + k, k == best ? krn_float(dy[e]) : 0.0f);
    }
}

template <typename A> static void fwd(krn_ctx *cx, const krn_args *args)
{
    int64_t n = args->dim[0] * args->dim[1];
    krn_launch(cx, maxout_fwd<A>, krn_grid((n + THREADS - 1) / THREADS), THREADS, 0,
               (A *)args->buf[1], (const A *)args->buf[0], n, args->dim[2]);
}

template <typename A> static void bwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t n = args->dim[0] * args->dim[1];
    if (buf[3])
        krn_launch(cx, args->flags & KRN_ADD_D_IN0 ? maxout_bwd<A, true> : maxout_bwd<A, false>,
                   krn_grid((n + THREADS - 1) / THREADS), THREADS, 0, (A *)buf[3],
                   (const A *)buf[0], (const A *)buf[2], n, args->dim[2]);
}

void krn_cuda_maxout_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? fwd<float> : fwd<krn_bf16>)(cx, args);
}

void krn_cuda_maxout_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? bwd<float> : bwd<krn_bf16>)(cx, args);
}
