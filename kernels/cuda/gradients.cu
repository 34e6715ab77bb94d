/*
 * Owns the loops over flat gradients whose bits are the same everywhere: round, sumsq, settle, and
 * the copy. One idea for the sums: the 16 f64 lanes of a chunk are serial chains (kernels.h), so a
 * block takes one chunk, its other warps bring tiles of it into shared memory, and half a warp does
 * nothing but add. A square is exact in f64, so one fused multiply-add has the bits of a product
 * and a sum. Refuses any other order.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

/* Warp 0 adds; the other threads load. A tile is what they bring between two barriers. */
enum { THREADS = 288, LOADERS = THREADS - 32, TILE = LOADERS * 8, ROUND_THREADS = 256 };
static_assert(KRN_NORM_CHUNK % TILE == 0 && TILE % KRN_NORM_LANES == 0, "tiles fill chunks");

/* `value` rounded to wire, as it is stored and as a number. */
static __device__ __forceinline__ float wire_of(float value, float *stored)
{
    *stored = value;
    return value;
}
static __device__ __forceinline__ float wire_of(float value, krn_bf16 *stored)
{
    stored->bits = (uint16_t)krn_bf16_exact(value);
    return krn_float(*stored);
}

/* Rounds 8 f32 of src to dst and clears src; v gets the rounded numbers. */
static __device__ __forceinline__ void settle8(float *dst, float *src, float v[8])
{
    uint4 low = krn_load16_once(src), high = krn_load16_once(src + 4), zero = {0, 0, 0, 0};
    krn_store16(dst, low);
    krn_store16(dst + 4, high);
    krn_store16_once(src, zero);
    krn_store16_once(src + 4, zero);
    krn_unpack(low, src, v);
    krn_unpack(high, src, v + 4);
}
static __device__ __forceinline__ uint4 round8(const float v[8])
{
    uint4 bits;
    bits.x = krn_bf16_exact(v[0]) | krn_bf16_exact(v[1]) << 16;
    bits.y = krn_bf16_exact(v[2]) | krn_bf16_exact(v[3]) << 16;
    bits.z = krn_bf16_exact(v[4]) | krn_bf16_exact(v[5]) << 16;
    bits.w = krn_bf16_exact(v[6]) | krn_bf16_exact(v[7]) << 16;
    return bits;
}
static __device__ __forceinline__ void settle8(krn_bf16 *dst, float *src, float v[8])
{
    uint4 low = krn_load16_once(src), high = krn_load16_once(src + 4), zero = {0, 0, 0, 0};
    krn_unpack(low, src, v);
    krn_unpack(high, src, v + 4);
    uint4 bits = round8(v);
    krn_store16(dst, bits);
    krn_store16_once(src, zero);
    krn_store16_once(src + 4, zero);
    krn_unpack(bits, dst, v);
}

static __device__ __forceinline__ void load8(const float *x, float v[8])
{
    krn_load_pack(x, v);
    krn_load_pack(x + 4, v + 4);
}
static __device__ __forceinline__ void load8(const krn_bf16 *x, float v[8])
{
    krn_load_pack(x, v);
}

/*
 * A loader's 8 elements at `at` of x, into tile[0..7]; zeros behind n, which add nothing: x >= 0
 * plus 0 has the same bits. SETTLE: x is written from src, which is cleared.
 */
template <typename A, bool SETTLE>
static __device__ __forceinline__ void bring(float *tile, A *x, float *src, uint64_t at, uint64_t n)
{
    float v[8];
    if (at + 8 <= n) {
        if constexpr (SETTLE)
            settle8(x + at, src + at, v);
        else
            load8(x + at, v);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = 0.0f;
            if (at + (uint64_t)i >= n)
                continue;
            if constexpr (SETTLE) {
                v[i] = wire_of(src[at + (uint64_t)i], x + at + i);
                src[at + (uint64_t)i] = 0.0f;
            } else {
                v[i] = krn_float(x[at + (uint64_t)i]);
            }
        }
    }
    krn_store16(tile, krn_repack((const float *)nullptr, v));
    krn_store16(tile + 4, krn_repack((const float *)nullptr, v + 4));
}

template <typename A, bool SETTLE>
__global__ void __launch_bounds__(THREADS) chunk_sums(double *sums, A *x, float *src, uint64_t n)
{
    KRN_SHARED(float4, tiles, 2 * TILE / 4);
    uint64_t first = (uint64_t)blockIdx.x * KRN_NORM_CHUNK;
    uint64_t bytes_end = first + KRN_NORM_CHUNK < n ? first + KRN_NORM_CHUNK : n;
    int rounds = (int)((bytes_end - first + TILE - 1) / TILE);
    double sum = 0.0;
    for (int round = 0; round <= rounds; round++) {
        if (krn_warp() != 0 && round < rounds) {
            int mine = ((int)threadIdx.x - 32) * 8;
            bring<A, SETTLE>((float *)tiles + round % 2 * TILE + mine, x, src,
                             first + (uint64_t)(round * TILE + mine), n);
        }
        if (threadIdx.x < KRN_NORM_LANES && round > 0) {
            const float *tile = (const float *)tiles + (round - 1) % 2 * TILE + threadIdx.x;
#pragma unroll 16
            for (int i = 0; i < TILE; i += KRN_NORM_LANES) {
                double v = (double)tile[i];
                sum = krn_fma(v, v, sum);
            }
        }
        krn_sync();
    }
    if (krn_warp() != 0)
        return;
#pragma unroll
    for (int width = KRN_NORM_LANES / 2; width; width /= 2)
        sum += krn_shuffle(sum, krn_lane() + width);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

template <typename A>
__global__ void __launch_bounds__(ROUND_THREADS) round_all(A *dst, const float *src, uint64_t n)
{
    uint64_t at = ((uint64_t)blockIdx.x * ROUND_THREADS + threadIdx.x) * 8;
    if (at + 8 <= n) {
        float v[8];
        load8(src + at, v);
        if constexpr (sizeof(A) == 2) {
            krn_store16(dst + at, round8(v));
        } else {
            krn_store_pack(dst + at, v);
            krn_store_pack(dst + at + 4, v + 4);
        }
        return;
    }
    for (; at < n; at++)
        (void)wire_of(src[at], dst + at);
}

void krn_cuda_copy(krn_ctx *cx, void *dst, const void *src, uint64_t bytes)
{
    krn_copy_on_stream(cx, dst, src, bytes);
}

void krn_cuda_round(krn_ctx *cx, void *dst, const float *src, uint64_t n, atom_dtype wire)
{
    dim3 grid = krn_grid((int64_t)((n + ROUND_THREADS * 8 - 1) / (ROUND_THREADS * 8)));
    if (wire == ATOM_BF16)
        krn_launch(cx, round_all<krn_bf16>, grid, ROUND_THREADS, 0, (krn_bf16 *)dst, src, n);
    else if (dst != src)
        krn_launch(cx, round_all<float>, grid, ROUND_THREADS, 0, (float *)dst, src, n);
}

template <typename A, bool SETTLE>
static void run_sums(krn_ctx *cx, double *sums, void *x, float *src, uint64_t n)
{
    krn_launch(cx, chunk_sums<A, SETTLE>, krn_grid((int64_t)krn_norm_chunks(n)), THREADS, 0, sums,
               (A *)x, src, n);
}

void krn_cuda_sumsq(krn_ctx *cx, double *out, const void *x, uint64_t n, atom_dtype act)
{
    (act == ATOM_F32 ? run_sums<float, false> : run_sums<krn_bf16, false>)(cx, out, (void *)x,
                                                                           nullptr, n);
}

void krn_cuda_settle(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n, atom_dtype wire)
{
    (wire == ATOM_F32 ? run_sums<float, true> : run_sums<krn_bf16, true>)(cx, norms, dst, src, n);
}
