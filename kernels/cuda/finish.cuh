/*
 * What kernels over rows share: how a row is laid over threads, and the last pass of sums that
 * blocks made in parts: out[c] += parts[0][c] + parts[1][c] + ..., added in an order that depends on
 * the number of parts alone. Each .cu that includes it has its own copy.
 *
 *   parts   f32 [n][columns]
 *   out     f32 [split], or [columns] where split is 0; NULL: skipped
 *   out2    takes columns split .. columns - 1; NULL: skipped
 */
#ifndef KERNELS_CUDA_FINISH_CUH
#define KERNELS_CUDA_FINISH_CUH

#include "kernels/cuda/prim.cuh"

enum { KRN_FINISH_WARPS = 16, KRN_ROW_THREADS_MAX = 512 };

/* How a row of a norm is laid over threads. packs 0: element by element. */
struct krn_row {
    unsigned threads;
    int packs; /* per thread: 1, 2 or 4 */
};

/* C channels in packs of W. */
static inline krn_row krn_row_of(int64_t C, int64_t W)
{
    krn_row s = {256, 0};
    int64_t packs = C / W, most = KRN_ROW_THREADS_MAX;
    if (C % W != 0 || packs > 4 * most)
        return s;
    s.packs = packs <= most ? 1 : packs <= 2 * most ? 2 : 4;
    s.threads = (unsigned)(((packs + s.packs - 1) / s.packs + 31) / 32 * 32);
    return s;
}

#ifndef KRN_PARTS_MAX /* the tests' shim takes fewer, to give a block many rows */
#define KRN_PARTS_MAX 512
#endif

/* Rows of N that a block makes a part of, where there are `most` parts at most; and how many parts. */
static inline int64_t krn_rows_per_part(int64_t N, int64_t most)
{
    most = most < KRN_PARTS_MAX ? most : KRN_PARTS_MAX;
    return (N + most - 1) / most;
}

static inline int64_t krn_parts(int64_t N, int64_t most)
{
    int64_t rows = krn_rows_per_part(N, most);
    return (N + rows - 1) / rows;
}

/* 32 columns a block; each warp sums a contiguous sixteenth of the parts. */
static __global__ void __launch_bounds__(KRN_FINISH_WARPS * 32)
    krn_finish_parts(float *out, float *out2, const float *parts, int64_t n, int64_t columns,
                     int64_t split)
{
    KRN_SHARED(float, fold, KRN_FINISH_WARPS * 32);
    int64_t column = (int64_t)blockIdx.x * 32 + krn_lane();
    int64_t share = (n + KRN_FINISH_WARPS - 1) / KRN_FINISH_WARPS;
    int64_t first = krn_warp() * share, end = first + share < n ? first + share : n;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 16 /* of 256 parts: all at once */
        for (int64_t i = first; i < end; i++)
            sum += parts[i * columns + column];
    }
    fold[threadIdx.x] = sum;
    krn_sync();
    if (krn_warp() != 0 || column >= columns)
        return;
    for (int warp = 1; warp < KRN_FINISH_WARPS; warp++)
        sum += fold[warp * 32 + krn_lane()];
    float *to = column < split ? out + column : out2 + (column - split);
    if (column < split ? out != nullptr : out2 != nullptr)
        *to += sum;
}

static inline void krn_finish(krn_ctx *cx, float *out, float *out2, const float *parts, int64_t n,
                              int64_t columns, int64_t split)
{
    krn_launch(cx, krn_finish_parts, krn_grid((columns + 31) / 32), KRN_FINISH_WARPS * 32, 0, out,
               out2, parts, n, columns, split ? split : columns);
}

#endif
