/*
 * Owns kernels that are wrong on purpose: each must end the program under the shim, or be seen by
 * its own check. They show that the alarms of the other tests ring.
 */
#include "kernels/cuda/prim.cuh"
#include "tests/shim/shim.h"

#include <stdio.h>

enum { THREADS = 64 };

/* One thread never comes. */
static __global__ void barrier(float *x)
{
    if (threadIdx.x != 5)
        krn_sync();
    else
        krn_sync_warp();
    x[threadIdx.x] = 1.0f;
}

/* One lane is missing at a warp primitive. */
static __global__ void lanes(float *x)
{
    if (threadIdx.x != 3)
        x[threadIdx.x] = krn_warp_sum(1.0f);
}

/* Reads one element behind a shared array. */
static __global__ void shared(float *x)
{
    KRN_SHARED(float, fold, THREADS);
    fold[threadIdx.x] = 1.0f;
    krn_sync();
    x[threadIdx.x] = fold[threadIdx.x + 64];
}

static __global__ void aligned(float *x)
{
    krn_store16(x + 1, krn_load16(x));
}

static __global__ void overrun(float *x, int64_t n)
{
    x[n + threadIdx.x] = 0.0f;
}

/* No barrier between writing and reading: some thread sees the garbage of the start. */
static __global__ void race(float *x)
{
    KRN_SHARED(float, fold, THREADS);
    fold[threadIdx.x] = 1.0f;
    x[threadIdx.x] = fold[THREADS - 1 - threadIdx.x];
}

/* Reads what is still on its way. */
static __global__ void early(float *x)
{
    KRN_SHARED(float4, tile, THREADS);
    krn_copy16_async(tile + threadIdx.x, x + threadIdx.x / 4 * 4, true);
    krn_copy_commit();
    x[threadIdx.x] = ((const float *)tile)[threadIdx.x * 4];
    krn_copy_wait<0>();
}

/* Eight bytes at an address that is a multiple of four only. */
static __global__ void pair(float *x)
{
    *(uint2 *)(x + 1 + threadIdx.x / 2) = uint2{0, 0};
}

/* Not wrong: a[16,16] b[16,8] through copies, matrix loads and the product; x gets d. */
static __global__ void product(float *x, const krn_bf16 *a, const krn_bf16 *b_turned)
{
    KRN_SHARED(uint4, tile, 32 + 16);
    int lane = krn_lane();
    if (krn_warp() != 0)
        return;
    krn_copy16_async(tile + lane, a + lane * 8, true);
    krn_copy16_async(tile + 32 + lane % 16, b_turned + lane % 16 * 8, true);
    krn_copy_commit();
    krn_copy_wait<0>();
    krn_sync_warp();
    uint32_t left[4], right[4];
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    krn_load_matrices<false>(left, tile + (lane % 16) * 2 + lane / 16);
    krn_load_matrices<false>(right, tile + 32 + (lane % 8) * 2 + lane / 8 % 2);
    krn_mma(d, left, right);
    for (int e = 0; e < 4; e++)
        x[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = d[e];
}

/* The same a, loaded turned, is a': x gets its fragments' numbers back in place. */
static __global__ void turned(float *x, const krn_bf16 *a)
{
    KRN_SHARED(uint4, tile, 32);
    int lane = krn_lane();
    if (krn_warp() != 0)
        return;
    tile[lane] = krn_load16(a + lane * 8);
    krn_sync_warp();
    uint32_t m[4];
    krn_load_matrices<true>(m, tile + (lane % 8 + lane / 8 % 2 * 8) * 2 + lane / 16);
    for (int i = 0; i < 4; i++) {
        for (int half = 0; half < 2; half++) {
            int row = lane % 4 * 2 + half + i % 2 * 8, column = lane / 4 + i / 2 * 8;
            x[row * 16 + column] = krn_from_bits(half ? m[i] & 0xffff0000u : m[i] << 16);
        }
    }
}

/* Matrix primitives against plain loops over small whole numbers; 0 where they agree. */
int shim_check_matrices(void)
{
    krn_ctx cx = {};
    krn_bf16 *a = (krn_bf16 *)aligned_alloc(256, 512), *b = (krn_bf16 *)aligned_alloc(256, 256);
    float *x = (float *)aligned_alloc(256, 1024);
    int wrong = 0;
    for (int i = 0; i < 256; i++)
        krn_put(a + i, (float)(i * 37 % 23 - 11));
    for (int i = 0; i < 128; i++)
        krn_put(b + i, (float)(i * 29 % 19 - 9));
    krn_launch(&cx, product, krn_grid(1), THREADS, 0, x, a, b);
    for (int i = 0; i < 128; i++) {
        float sum = 0.0f;
        for (int k = 0; k < 16; k++)
            sum += krn_float(a[i / 8 * 16 + k]) * krn_float(b[i % 8 * 16 + k]);
        wrong += x[i] != sum;
    }
    krn_launch(&cx, turned, krn_grid(1), THREADS, 0, x, a);
    for (int i = 0; i < 256; i++)
        wrong += x[i] != krn_float(a[i]);
    free(a);
    free(b);
    free(x);
    return wrong;
}

int shim_run_twisted(const char *name)
{
    static const char *const names[] = {"barrier", "lanes", "shared", "aligned",
                                        "overrun", "race",  "early",  "pair"};
    krn_ctx cx = {};
    float *x = (float *)aligned_alloc(256, THREADS * sizeof(float));
    int which = 0;
    while (which < 8 && strcmp(names[which], name) != 0)
        which++;
    for (int i = 0; i < THREADS; i++)
        x[i] = 0.0f;
    if (which == 4)
        krn_launch(&cx, overrun, krn_grid(1), THREADS, 0, x, (int64_t)THREADS);
    else if (which < 8)
        krn_launch(&cx,
                   which == 0   ? barrier
                   : which == 1 ? lanes
                   : which == 2 ? shared
                   : which == 3 ? aligned
                   : which == 5 ? race
                   : which == 6 ? early
                                : pair,
                   krn_grid(1), THREADS, 0, x);
    for (int i = 0; i < THREADS; i++) {
        if (x[i] != x[i]) {
            printf("caught: garbage of shared memory\n");
            break;
        }
    }
    free(x);
    return which < 8;
}
