/*
 * The one way to start a kernel, to copy and to clear on the device, and to ask whether there is
 * code for the card. Included by every .cu; its twin for the CPU is tests/shim/cuda_shim.h, so no
 * .cu has a <<< >>> or calls the CUDA runtime.
 *
 *   krn_launch(cx, kernel, grid, threads, shared_bytes, args...)
 *
 * Order: on the context's stream. Never waits. Blocks are one-dimensional and a multiple of 32
 * threads; a grid without blocks starts nothing. Dynamic shared memory beyond 48 KiB is asked for
 * here. Allowed while a stream is captured into a graph: arguments are copied at the call, so what
 * changes per step is read from device memory (krn_ctx.step).
 *
 * Errors: none are returned (kernels return void). What the runtime refuses stays in its last
 * error, which the device layer reads after each call list; a fault of a running kernel is sticky.
 */
#ifndef KERNELS_CUDA_LAUNCH_CUH
#define KERNELS_CUDA_LAUNCH_CUH

extern "C" {
#include "atom/base/assert.h"
#include "kernels/kernels.h"
}

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include <cuda_shim.h>
#endif

enum { KRN_SHARED_FREE_BYTES = 48 << 10 }; /* dynamic shared memory that needs no asking */

static inline dim3 krn_grid(int64_t x, int64_t y = 1, int64_t z = 1)
{
    ATOM_ASSERT(x >= 0 && x < INT32_MAX && y >= 0 && y < 65536 && z >= 0 && z < 65536);
    dim3 grid;
    grid.x = (unsigned)x;
    grid.y = (unsigned)y;
    grid.z = (unsigned)z;
    return grid;
}

template <typename... Params, typename... Args>
static inline void krn_launch(krn_ctx *cx, void (*kernel)(Params...), dim3 grid, unsigned threads,
                              size_t shared_bytes, Args... args)
{
    ATOM_ASSERT(threads && threads % 32 == 0 && threads <= 1024);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return;
#if defined(__CUDACC__)
    if (shared_bytes > KRN_SHARED_FREE_BYTES)
        (void)cudaFuncSetAttribute((const void *)kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    kernel<<<grid, threads, shared_bytes, (cudaStream_t)cx->native_stream>>>(
        static_cast<Params>(args)...);
#else
    shim_launch(cx->native_stream, grid, threads, shared_bytes,
                [=] { kernel(static_cast<Params>(args)...); });
#endif
}

/* This build has code of the kernel that the current card can run. Starts the card. */
template <typename... Params> static inline bool krn_code_there(void (*kernel)(Params...))
{
#if defined(__CUDACC__)
    cudaFuncAttributes found;
    bool there = cudaFuncGetAttributes(&found, (const void *)kernel) == cudaSuccess;
    (void)cudaGetLastError(); /* the caller says it in its own words */
    return there;
#else
    (void)kernel;
    return shim_code_there();
#endif
}

/* Of the current card. */
static inline int krn_multiprocessors(void)
{
    int n = 0;
#if defined(__CUDACC__)
    int card = 0;
    (void)cudaGetDevice(&card);
    (void)cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, card);
#endif
    return n > 0 ? n : 1;
}

/* dst <- src, both on the device, no overlap. */
static inline void krn_copy_on_stream(krn_ctx *cx, void *dst, const void *src, uint64_t bytes)
{
    if (bytes == 0)
        return;
#if defined(__CUDACC__)
    (void)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, (cudaStream_t)cx->native_stream);
#else
    shim_launch(cx->native_stream, krn_grid(1), 32, 0, [=] {
        if (threadIdx.x == 0)
            memcpy(dst, src, bytes);
    });
#endif
}

#endif
