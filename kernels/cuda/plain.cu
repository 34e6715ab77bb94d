/*
 * Owns small things that have no library and no op: the matrix product for shapes that the library
 * refuses (odd widths, addresses off a boundary), the sum of two vectors, and what brings the step's
 * arguments to the card. One idea: the product is a tile in shared memory with fp32 fma in ascending
 * k, so it serves any shape; it is there to be right, not fast.
 */
#include "kernels/cuda/plain.h"

#include "kernels/cuda/prim.cuh"

enum { TILE = 32, THREADS = 256, EACH = TILE * TILE / THREADS };

/* op(x)[row, column], 0 outside. */
template <typename T>
static __device__ __forceinline__ float element(const T *x, int64_t ld, int turned, int64_t row,
                                                int64_t column, int64_t rows, int64_t columns)
{
    if (row >= rows || column >= columns)
        return 0.0f;
    return krn_float(x[turned ? column * ld + row : row * ld + column]);
}

template <typename T, typename D>
__global__ void __launch_bounds__(THREADS) plain_matmul(krn_matmul mm)
{
    KRN_SHARED(float, left, TILE *(TILE + 1));
    KRN_SHARED(float, right, TILE *(TILE + 1));
    const T *a = (const T *)mm.a, *b = (const T *)mm.b;
    int64_t row0 = (int64_t)blockIdx.x * TILE, column0 = (int64_t)blockIdx.y * TILE;
    int column = (int)threadIdx.x % TILE, row = (int)threadIdx.x / TILE;
    float sum[EACH] = {};
    for (int64_t k0 = 0; k0 < mm.k; k0 += TILE) {
        for (int e = 0; e < EACH; e++) {
            int r = row + e * (THREADS / TILE);
            left[r * (TILE + 1) + column] =
                element(a, mm.lda, mm.a_turned, row0 + r, k0 + column, mm.m, mm.k);
            right[r * (TILE + 1) + column] =
                element(b, mm.ldb, mm.b_turned, k0 + r, column0 + column, mm.k, mm.n);
        }
        krn_sync();
        for (int k = 0; k < TILE; k++) {
            for (int e = 0; e < EACH; e++)
                sum[e] = krn_fma(left[(row + e * (THREADS / TILE)) * (TILE + 1) + k],
                                 right[k * (TILE + 1) + column], sum[e]);
        }
        krn_sync();
    }
    D *d = (D *)(mm.aux ? mm.aux : mm.d);
    for (int e = 0; e < EACH; e++) {
        int64_t r = row0 + row + e * (THREADS / TILE), c = column0 + column;
        if (r >= mm.m || c >= mm.n)
            continue;
        float value = sum[e] * (mm.scale != 0.0f ? mm.scale : 1.0f);
        value += (mm.bias ? krn_float(((const T *)mm.bias)[c]) : 0.0f);
        if (mm.add)
            value += krn_float(d[r * mm.ldd + c]);
        krn_put(d + r * mm.ldd + c, value);
    }
}

unsigned krn_cuda_plain_matmul(krn_ctx *cx, const krn_matmul *mm)
{
    dim3 grid = krn_grid((mm->m + TILE - 1) / TILE, (mm->n + TILE - 1) / TILE);
    if (mm->ab == ATOM_F32)
        krn_launch(cx, plain_matmul<float, float>, grid, THREADS, 0, *mm);
    else if (mm->d_dtype == ATOM_F32)
        krn_launch(cx, plain_matmul<krn_bf16, float>, grid, THREADS, 0, *mm);
    else
        krn_launch(cx, plain_matmul<krn_bf16, krn_bf16>, grid, THREADS, 0, *mm);
    return (mm->aux ? (unsigned)KRN_LEFT_GELU : 0u) | (mm->sums ? (unsigned)KRN_LEFT_SUMS : 0u);
}

static __global__ void __launch_bounds__(THREADS) add_to(float *dst, const float *src, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        dst[i] += src[i];
}

void krn_cuda_add_to(krn_ctx *cx, float *dst, const float *src, int64_t n)
{
    krn_launch(cx, add_to, krn_grid((n + THREADS - 1) / THREADS), THREADS, 0, dst, src, n);
}

static __global__ void __launch_bounds__(THREADS)
    put_starts(int32_t *dst, const int32_t *src, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        dst[i] = src[i];
}

void krn_cuda_put_starts(krn_ctx *cx, int32_t *dst, const int32_t *src, uint64_t n)
{
    krn_launch(cx, put_starts, krn_grid((int64_t)((n + THREADS - 1) / THREADS)), THREADS, 0, dst,
               src, n);
}

static __global__ void __launch_bounds__(32) put_step(krn_step *block, krn_step step)
{
    if (threadIdx.x == 0)
        *block = step;
}

void krn_cuda_put_step(krn_ctx *cx, krn_step *block, const krn_step *step)
{
    krn_launch(cx, put_step, krn_grid(1), 32, 0, block, *step);
}

bool krn_cuda_code_there(void)
{
    return krn_code_there(put_step);
}
