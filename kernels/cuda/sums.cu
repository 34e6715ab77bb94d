/*
 * Owns sums over rows: out[o] += sum over n of x[n,o]. Two passes: a block sums one of `parts` row
 * ranges for a tile of columns, then finish.cuh's kernel adds the parts in ascending order. The
 * number of parts depends on N alone, so bits do not depend on the card. Refuses atomics.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/finish.cuh"

enum { THREADS = 256, ROW_LANES = THREADS / 32 };

/* Block (tile, part): 32 lanes x W columns; 8 warps take every eighth row, combined in order. */
template <typename A, int W>
__global__ void __launch_bounds__(THREADS)
    column_parts(float *parts, const A *x, int64_t N, int64_t O, int64_t part_rows)
{
    KRN_SHARED(float, fold, THREADS *W);
    int64_t column = ((int64_t)blockIdx.x * 32 + krn_lane()) * W;
    int64_t first = (int64_t)blockIdx.y * part_rows;
    int64_t end = first + part_rows < N ? first + part_rows : N;
    float sum[W];
#pragma unroll
    for (int i = 0; i < W; i++)
        sum[i] = 0.0f;
    if (column < O) {
#pragma unroll 4
        for (int64_t n = first + krn_warp(); n < end; n += ROW_LANES) {
            float v[W];
            krn_load_w<A, W>(x + n * O + column, v);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum[i] += v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        fold[i * THREADS + (int)threadIdx.x] = sum[i];
    krn_sync();
    if (krn_warp() != 0 || column >= O)
        return;
#pragma unroll
    for (int i = 0; i < W; i++) {
        float all = 0.0f;
        for (int warp = 0; warp < ROW_LANES; warp++)
            all += fold[i * THREADS + warp * 32 + krn_lane()];
        parts[(int64_t)blockIdx.y * O + column + i] = all;
    }
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
