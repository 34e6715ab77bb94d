/*
 * The twin of CUDA for the CPU: what kernels/cuda/launch.cuh and prim.cuh need when no nvcc
 * compiles them. A block is run at a time; its threads are fibers on one host thread, switched at
 * barriers and warp primitives only, in random order. Shared memory is filled with NaN at the start
 * of each block and lies between the sanitizer's red zones. Finds: wrong indices, missing barriers,
 * barriers that not all threads reach, reads of what was never written. Does not find: what needs
 * two threads at the same instant, or the card's rounding of approximate functions.
 *
 * Only whole warps call warp primitives; a warp in which some lanes returned must call none.
 */
#ifndef CUDA_SHIM_H
#define CUDA_SHIM_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

extern dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the running fiber */

/* Runs `thread` for every thread of every block. stream: the module's; the tests of kernels have
 * none. shim.cpp. */
void shim_launch(void *stream, dim3 grid, unsigned threads, size_t shared_bytes,
                 const std::function<void()> &thread);
/* ATOM_FAKE_NO_CODE: a build for another card. */
static inline bool shim_code_there(void)
{
    return getenv("ATOM_FAKE_NO_CODE") == nullptr;
}
/* The block's shared array that belongs to this key; the first thread to ask makes it. */
void *shim_shared(const void *key, size_t bytes);
void *shim_shared_dynamic(void);
/* All threads of the block that still run. */
void shim_sync(void);
/*
 * One collective step of a warp: gives `bytes` (at most SHIM_SLOT) of every lane, waits for all 32
 * lanes, returns the 32 slots; they stay valid until this lane's next collective step.
 */
enum { SHIM_SLOT = 128 };
const unsigned char *shim_warp_exchange(const void *mine, size_t bytes);
/* Stops the test with a message that names the thread. */
[[noreturn]] void shim_fail(const char *what);

#define KRN_SHARED(type, name, count)                                                              \
    static const char name##_key = 0;                                                              \
    type *name = (type *)shim_shared(&name##_key, sizeof(type) * (count))
#define KRN_SHARED_DYNAMIC(name) unsigned char *name = (unsigned char *)shim_shared_dynamic()

template <typename T> static inline T shim_slot(const unsigned char *slots, int lane)
{
    T value;
    memcpy(&value, slots + lane * SHIM_SLOT, sizeof value);
    return value;
}

static inline void krn_sync(void)
{
    shim_sync();
}
static inline void krn_sync_warp(void)
{
    (void)shim_warp_exchange("", 1);
}
template <typename T> static inline T krn_shuffle(T value, int lane)
{
    return shim_slot<T>(shim_warp_exchange(&value, sizeof value), lane & 31);
}
template <typename T> static inline T krn_shuffle_xor(T value, int mask)
{
    int from = (int)(threadIdx.x & 31u) ^ mask;
    return shim_slot<T>(shim_warp_exchange(&value, sizeof value), from & 31);
}
static inline uint32_t krn_ballot(bool yes)
{
    uint8_t mine = yes;
    const unsigned char *slots = shim_warp_exchange(&mine, 1);
    uint32_t bits = 0;
    for (int lane = 0; lane < 32; lane++)
        bits |= (uint32_t)slots[lane * SHIM_SLOT] << lane;
    return bits;
}

static inline float krn_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double krn_fma(double a, double b, double c)
{
    return fma(a, b, c);
}
static inline float krn_div(float a, float b)
{
    return a / b;
}
static inline float krn_sqrt(float a)
{
    return sqrtf(a);
}
static inline float krn_exp2_fast(float x)
{
    return exp2f(x);
}
static inline float krn_inv_fast(float x)
{
    return 1.0f / x;
}
static inline uint32_t krn_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float krn_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline int krn_popcount(uint32_t x)
{
    return __builtin_popcount(x);
}

/* A 16-byte access faults on the card where the address is not a multiple of 16. */
static inline void shim_aligned(const void *at)
{
    if ((uintptr_t)at % 16)
        shim_fail("a 16-byte access to an address that is not a multiple of 16");
}
static inline uint4 krn_load16(const void *at)
{
    shim_aligned(at);
    uint4 bits;
    memcpy(&bits, at, 16);
    return bits;
}
static inline void krn_store16(void *at, uint4 bits)
{
    shim_aligned(at);
    memcpy(at, &bits, 16);
}
static inline uint4 krn_load16_once(const void *at)
{
    return krn_load16(at);
}
static inline void krn_store16_once(void *at, uint4 bits)
{
    krn_store16(at, bits);
}

/* Nothing arrives before the wait, so what reads too early reads NaN. */
void shim_copy_async(void *shared, const void *at, bool there);
void shim_copy_commit(void);
void shim_copy_wait(int groups);

static inline void krn_copy16_async(void *shared, const void *at, bool there)
{
    shim_aligned(shared);
    shim_aligned(at);
    shim_copy_async(shared, at, there);
}
static inline void krn_copy_commit(void)
{
    shim_copy_commit();
}
template <int N> static inline void krn_copy_wait(void)
{
    shim_copy_wait(N);
}

/*
 * The 16 x 8 product by its definition: every lane gives its fragments, and computes its four
 * elements of d from the rows and columns of others. Sums in f64, so that no order is favoured.
 */
void shim_mma(float d[4], const unsigned char *slots);

static inline void krn_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    shim_mma(d, shim_warp_exchange(mine, sizeof mine));
}

template <bool TURNED> static inline void krn_load_matrices(uint32_t m[4], const void *row)
{
    shim_aligned(row);
    const unsigned char *slots = shim_warp_exchange(&row, sizeof row);
    int g = (int)(threadIdx.x & 31u) / 4, t = (int)(threadIdx.x & 31u) % 4;
    for (int i = 0; i < 4; i++) {
        uint16_t low, high;
        const uint16_t *first = shim_slot<const uint16_t *>(slots, i * 8 + (TURNED ? 2 * t : g));
        const uint16_t *second =
            TURNED ? shim_slot<const uint16_t *>(slots, i * 8 + 2 * t + 1) : first;
        low = first[TURNED ? g : 2 * t];
        high = second[TURNED ? g : 2 * t + 1];
        m[i] = (uint32_t)low | (uint32_t)high << 16;
    }
    /* The rows are read here: nobody writes them before all lanes have. */
    (void)shim_warp_exchange("", 1);
}

#endif
