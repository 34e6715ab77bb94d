/*
 * The primitives that kernels are made of: element types, packs of 16 bytes, lanes and warps,
 * barriers, shared memory, arithmetic with a stated rounding. Every .cu uses these and none of the
 * toolkit's intrinsics, so that tests/shim/cuda_shim.h can stand in for each on the CPU.
 *
 * Rules for kernels
 * - Blocks are one-dimensional, whole warps; threadIdx.x, blockIdx, blockDim.x, gridDim as usual.
 * - Warp primitives are called by all 32 lanes of a warp, krn_sync() by all threads of the block
 *   that have not returned.
 * - Shared memory: KRN_SHARED(type, name, count) at the top of the kernel, or KRN_SHARED_DYNAMIC.
 *   It holds garbage at the start (the shim fills it with NaN).
 * - Built with -fmad=false: a product and a sum are two roundings unless krn_fma() says otherwise,
 *   so the source says what is rounded and both compilers agree.
 * - No float atomics. Sums have an order that depends on arguments alone.
 * - No static or global variables on the device.
 */
#ifndef KERNELS_CUDA_PRIM_CUH
#define KERNELS_CUDA_PRIM_CUH

#include "kernels/cuda/launch.cuh"

#if defined(__CUDACC__)

#define KRN_SHARED(type, name, count) __shared__ type name[count]
/* name is an unsigned char pointer, 128-byte aligned. */
#define KRN_SHARED_DYNAMIC(name) extern __shared__ __align__(128) unsigned char name[]

static __device__ __forceinline__ void krn_sync(void)
{
    __syncthreads();
}
/* Orders shared memory among the lanes of a warp. */
static __device__ __forceinline__ void krn_sync_warp(void)
{
    __syncwarp();
}
template <typename T> static __device__ __forceinline__ T krn_shuffle(T value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}
template <typename T> static __device__ __forceinline__ T krn_shuffle_xor(T value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
/* Bit i: the predicate of lane i. */
static __device__ __forceinline__ uint32_t krn_ballot(bool yes)
{
    return __ballot_sync(0xffffffffu, yes);
}

static __device__ __forceinline__ float krn_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
static __device__ __forceinline__ double krn_fma(double a, double b, double c)
{
    return __fma_rn(a, b, c);
}
/* Correctly rounded. */
static __device__ __forceinline__ float krn_div(float a, float b)
{
    return __fdiv_rn(a, b);
}
static __device__ __forceinline__ float krn_sqrt(float a)
{
    return __fsqrt_rn(a);
}
/* Of the special function unit: relative error about 2^-22; 0 for very negative, inf for large. */
static __device__ __forceinline__ float krn_exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float krn_inv_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ uint32_t krn_bits(float x)
{
    return __float_as_uint(x);
}
static __device__ __forceinline__ float krn_from_bits(uint32_t x)
{
    return __uint_as_float(x);
}
static __device__ __forceinline__ int krn_popcount(uint32_t x)
{
    return __popc(x);
}

/* 16 bytes at an aligned address. _once: not kept in the caches for a second reader. */
static __device__ __forceinline__ uint4 krn_load16(const void *at)
{
    return *(const uint4 *)at;
}
static __device__ __forceinline__ uint4 krn_load16_once(const void *at)
{
    return __ldcs((const uint4 *)at);
}
static __device__ __forceinline__ void krn_store16(void *at, uint4 bits)
{
    *(uint4 *)at = bits;
}
static __device__ __forceinline__ void krn_store16_once(void *at, uint4 bits)
{
    __stcs((uint4 *)at, bits);
}

/* ---- copies from global to shared memory that do not wait (sm_80 and up) ---- */

/* 16 bytes, both addresses multiples of 16; zeros where !there (at must still be a valid address).
 * Complete after krn_copy_wait and, for other threads, a krn_sync(). On older chips it waits. */
static __device__ __forceinline__ void krn_copy16_async(void *shared, const void *at, bool there)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(at),
                 "r"(there ? 16 : 0)
                 : "memory");
#else
    uint4 none = {0, 0, 0, 0};
    *(uint4 *)shared = there ? *(const uint4 *)at : none;
#endif
}
/* Ends a group of copies of this thread. */
static __device__ __forceinline__ void krn_copy_commit(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until at most N of this thread's groups are under way. */
template <int N> static __device__ __forceinline__ void krn_copy_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* ---- matrix fragments of a warp ---- */

/*
 * d[16,8] += a[16,16] b[16,8], bf16 in, f32 sums (sm_80 and up). With g = lane / 4, t = lane % 4:
 *   a[0] row g, columns 2t 2t+1      a[1] row g+8, the same      a[2], a[3]: 8 columns further
 *   b[0] rows 2t 2t+1 of column g    b[1]: 8 rows further
 *   d[0] d[1] row g, columns 2t 2t+1     d[2] d[3] row g+8
 * The lower half of a register holds the lower index.
 */
static __device__ __forceinline__ void krn_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)d, (void)a, (void)b;
    __trap(); /* no bf16 on this chip: the registry refuses it */
#endif
}
/*
 * Four 8 x 8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l % 8
 * of matrix l / 8 (16 bytes, aligned). m[i]: row g, columns 2t 2t+1 of matrix i; with TURNED: rows
 * 2t 2t+1 of column g.
 */
template <bool TURNED>
static __device__ __forceinline__ void krn_load_matrices(uint32_t m[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(at)
                     : "memory");
}

#endif /* the shim has the same names */

/* ---- element types ---- */

typedef struct krn_bf16 {
    uint16_t bits; /* upper half of an IEEE float */
} krn_bf16;

static __device__ __forceinline__ float krn_float(float x)
{
    return x;
}
static __device__ __forceinline__ float krn_float(krn_bf16 x)
{
    return krn_from_bits((uint32_t)x.bits << 16);
}

/* To nearest even; a NaN keeps its upper bits and becomes quiet (atom/base/dtype.h). */
static __device__ __forceinline__ uint32_t krn_bf16_exact(float x)
{
    uint32_t bits = krn_bits(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded;
}

/* Rounded by 16 random bits (atom_f32_to_bf16_drawn). */
static __device__ __forceinline__ uint32_t krn_bf16_drawn(float x, uint32_t draw)
{
    uint32_t bits = krn_bits(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : (bits + draw) >> 16;
}

/* Two at once, `low` in the lower half: the same numbers, but any NaN becomes some NaN. */
static __device__ __forceinline__ uint32_t krn_bf16_pair(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return krn_bf16_exact(low) | krn_bf16_exact(high) << 16;
#endif
}

static __device__ __forceinline__ void krn_put(float *at, float value)
{
    *at = value;
}
static __device__ __forceinline__ void krn_put(krn_bf16 *at, float value)
{
    at->bits = (uint16_t)krn_bf16_pair(value, 0.0f);
}

/* ---- packs: 16 bytes of elements, as floats ---- */

template <typename A> struct krn_pack {
    enum { N = 16 / sizeof(A) }; /* 4 or 8 elements */
};

static __device__ __forceinline__ void krn_unpack(uint4 bits, const float *, float out[4])
{
    out[0] = krn_from_bits(bits.x);
    out[1] = krn_from_bits(bits.y);
    out[2] = krn_from_bits(bits.z);
    out[3] = krn_from_bits(bits.w);
}
static __device__ __forceinline__ void krn_unpack(uint4 bits, const krn_bf16 *, float out[8])
{
    const uint32_t pair[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = krn_from_bits(pair[i] << 16);
        out[2 * i + 1] = krn_from_bits(pair[i] & 0xffff0000u);
    }
}
static __device__ __forceinline__ uint4 krn_repack(const float *, const float x[4])
{
    uint4 bits;
    bits.x = krn_bits(x[0]);
    bits.y = krn_bits(x[1]);
    bits.z = krn_bits(x[2]);
    bits.w = krn_bits(x[3]);
    return bits;
}
static __device__ __forceinline__ uint4 krn_repack(const krn_bf16 *, const float x[8])
{
    uint4 bits;
    bits.x = krn_bf16_pair(x[0], x[1]);
    bits.y = krn_bf16_pair(x[2], x[3]);
    bits.z = krn_bf16_pair(x[4], x[5]);
    bits.w = krn_bf16_pair(x[6], x[7]);
    return bits;
}

template <typename A> static __device__ __forceinline__ void krn_load_pack(const A *at, float *out)
{
    krn_unpack(krn_load16(at), (const A *)nullptr, out);
}
template <typename A> static __device__ __forceinline__ void krn_store_pack(A *at, const float *x)
{
    krn_store16(at, krn_repack((const A *)nullptr, x));
}

/* W elements: whole packs (aligned), or one. */
template <typename A, int W>
static __device__ __forceinline__ void krn_load_w(const A *at, float *x)
{
    if constexpr (W == 1)
        x[0] = krn_float(*at);
    else {
#pragma unroll
        for (int i = 0; i < W; i += krn_pack<A>::N)
            krn_load_pack(at + i, x + i);
    }
}
template <typename A, int W>
static __device__ __forceinline__ void krn_store_w(A *at, const float *x)
{
    if constexpr (W == 1)
        krn_put(at, x[0]);
    else {
#pragma unroll
        for (int i = 0; i < W; i += krn_pack<A>::N)
            krn_store_pack(at + i, x + i);
    }
}

/* ---- lanes ---- */

static __device__ __forceinline__ int krn_lane(void)
{
    return (int)(threadIdx.x & 31u);
}
static __device__ __forceinline__ int krn_warp(void)
{
    return (int)(threadIdx.x >> 5);
}
static __device__ __forceinline__ int krn_warps(void)
{
    return (int)(blockDim.x >> 5);
}

/* The same sum in every lane; order: halves of the warp. */
static __device__ __forceinline__ float krn_warp_sum(float x)
{
#pragma unroll
    for (int away = 16; away; away >>= 1)
        x += krn_shuffle_xor(x, away);
    return x;
}
static __device__ __forceinline__ float krn_warp_max(float x)
{
#pragma unroll
    for (int away = 16; away; away >>= 1)
        x = fmaxf(x, krn_shuffle_xor(x, away));
    return x;
}

/*
 * Sum over the block, the same in every thread: warps in ascending order. scratch: 32 floats of
 * shared memory that no other reduction uses until the next krn_sync(); callers alternate between
 * two, then one barrier per reduction is enough.
 */
static __device__ __forceinline__ float krn_block_sum(float x, float *scratch)
{
    x = krn_warp_sum(x);
    if (krn_lane() == 0)
        scratch[krn_warp()] = x;
    krn_sync();
    float sum = scratch[0];
    for (int i = 1; i < krn_warps(); i++)
        sum += scratch[i];
    return sum;
}
/* ---- exp ---- */

/* fp32 is exact to the last bits; bf16 takes the special function unit, about 2^-21. */
template <typename A> static __device__ __forceinline__ float krn_exp(float x)
{
    if constexpr (sizeof(A) == 4)
        return expf(x);
    else
        return krn_exp2_fast(x * 1.44269504088896341f);
}
template <typename A> static __device__ __forceinline__ float krn_inv(float x)
{
    if constexpr (sizeof(A) == 4)
        return krn_div(1.0f, x);
    else
        return krn_inv_fast(x);
}

/* ---- dropout: the random bits of atom/base/rng.h ---- */

/* Words 4*block .. 4*block+3 of the stream of node `node` (Philox4x32-10). */
static __device__ __forceinline__ void krn_rng_block(const krn_step *step, uint32_t node,
                                                     uint64_t block, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)block;
    uint32_t c1 = (uint32_t)(block >> 32) ^ (step->micro_batch * 0x9e3779b9u);
    uint32_t c2 = node, c3 = step->step;
    uint32_t k0 = (uint32_t)step->seed, k1 = (uint32_t)(step->seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* What a kernel gets to draw a mask: made on the host from krn_args, by value. */
typedef struct krn_dropout {
    uint32_t node, threshold;
    float scale; /* 1/(1-p) */
    uint32_t on; /* p > 0; the kernel also asks step->train */
} krn_dropout;

static inline krn_dropout krn_dropout_make(const krn_args *args)
{
    krn_dropout d;
    d.node = args->rng;
    d.threshold = (uint32_t)((double)args->p * 4294967296.0);
    d.scale = (float)(1.0 / (1.0 - (double)args->p));
    d.on = args->p > 0.0f;
    return d;
}

/* factor[i] = what elements 4*block + i are multiplied with: 0 or 1/(1-p). */
static __device__ __forceinline__ void
krn_dropout_factors(const krn_dropout *d, const krn_step *step, uint64_t block, float factor[4])
{
    uint32_t word[4];
    krn_rng_block(step, d->node, block, word);
#pragma unroll
    for (int i = 0; i < 4; i++)
        factor[i] = word[i] >= d->threshold ? d->scale : 0.0f;
}

#endif
