/*
 * Owns sums over rows: out[o] += sum over n of x[n,o]. Two passes: a block sums one of `parts` row
 * ranges for a tile of columns, then finish.cuh's kernel adds the parts in ascending order. The
 * number of parts depends on N alone, so bits do not depend on the card. Refuses atomics.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/finish.cuh"

enum { THREADS = 256, ROW_LANES = THREADS / 32, BATCH = 8 };

/* Adds ROWS rows to sum, in ascending order: all loads before the first use. */
template <typename A, int W, int ROWS>
static __device__ __forceinline__ void add_rows(float sum[W], const A *x, int64_t stride)
{
    float v[ROWS][W];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        krn_load_w<A, W>(x + r * stride, v[r]);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            sum[i] += v[r][i];
    }
}

/* Block (tile, part): 32 lanes x W columns; 8 warps take every eighth row, combined in order. */
template <typename A, int W>
__global__ void __launch_bounds__(THREADS, 4)
    column_parts(float *parts, const A *x, int64_t N, int64_t O, int64_t part_rows)
{
    constexpr int LINE = THREADS + 32 / W; /* so that the reads below meet different banks */
    KRN_SHARED(float, fold, LINE *W);
    int64_t column = ((int64_t)blockIdx.x * 32 + krn_lane()) * W;
    int64_t first = (int64_t)blockIdx.y * part_rows;
    int64_t end = first + part_rows < N ? first + part_rows : N;
    float sum[W];
#pragma unroll
    for (int i = 0; i < W; i++)
        sum[i] = 0.0f;
    if (column < O) {
        int64_t n = first + krn_warp(), stride = (int64_t)ROW_LANES * O;
        for (; n + ROW_LANES * (BATCH - 1) < end; n += ROW_LANES * BATCH)
            add_rows<A, W, BATCH>(sum, x + n * O + column, stride);
        for (; n < end; n += ROW_LANES)
            add_rows<A, W, 1>(sum, x + n * O + column, stride);
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        fold[i * LINE + (int)threadIdx.x] = sum[i];
    krn_sync();
    int at = (int)threadIdx.x;
    int64_t mine = (int64_t)blockIdx.x * 32 * W + at;
    if (at >= 32 * W || mine >= O)
        return;
    float all = 0.0f;
#pragma unroll
    for (int warp = 0; warp < ROW_LANES; warp++)
        all += fold[at % W * LINE + warp * 32 + at / W];
    parts[(int64_t)blockIdx.y * O + mine] = all;
}

/* 64 rows a part at least, 256 parts at most. */
static int64_t part_rows_of(int64_t N)
{
    int64_t rows = (N + 255) / 256;
    return rows < 64 ? 64 : rows;
}

uint64_t krn_cuda_column_sums_workspace(int64_t N, int64_t O)
{
    int64_t rows = part_rows_of(N);
    return (uint64_t)((N + rows - 1) / rows * O) * sizeof(float);
}

template <typename A, int W>
static void run_parts(krn_ctx *cx, float *parts, const void *x, int64_t N, int64_t O)
{
    int64_t rows = part_rows_of(N), tile = 32 * W;
    krn_launch(cx, column_parts<A, W>, krn_grid((O + tile - 1) / tile, (N + rows - 1) / rows),
               THREADS, 0, parts, (const A *)x, N, O, rows);
}

void krn_cuda_column_sums(krn_ctx *cx, void *workspace, float *out, const void *x, int64_t N,
                          int64_t O, atom_dtype act)
{
    float *parts = (float *)workspace;
    int64_t rows = part_rows_of(N);
    if (act == ATOM_F32)
        (O % 4 == 0 ? run_parts<float, 4> : run_parts<float, 1>)(cx, parts, x, N, O);
    else
        (O % 8 == 0 ? run_parts<krn_bf16, 8> : run_parts<krn_bf16, 1>)(cx, parts, x, N, O);
    krn_finish(cx, out, nullptr, parts, (N + rows - 1) / rows, O, 0);
}
