/*
 * Owns what cards there are, and which of them this backend serves. One idea: refuse early and in
 * one line that says what is missing. Serves compute capability 7.5 and up (CUDA 13). Built with
 * CUDA 12 it would take 7.0 and 6.x as well (fp32): that was never built.
 */
#include "kernels/cuda/entry.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

#if CUDART_VERSION >= 13000
enum { OLDEST = 75 };
#else
enum { OLDEST = 60 };
#endif

static atom_status no_driver(cudaError_t error, int driver)
{
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return atom_fail(ATOM_E_UNSUPPORTED, "CUDA is not used: this machine has no NVIDIA driver");
    if (error == cudaErrorInsufficientDriver)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "CUDA is not used: the driver is for CUDA %d.%d, but this build needs "
                         "%d.%d; install a newer driver",
                         driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                         CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "CUDA is not used: there is a driver, but it reports no card");
    return atom_fail(ATOM_E_UNSUPPORTED, "CUDA is not used: %s", cudaGetErrorString(error));
}

atom_status krn_cuda_describe(int card, dev_cuda_info *out)
{
    struct cudaDeviceProp prop;
    int cards = 0, driver = 0;
    (void)cudaDriverGetVersion(&driver);
    cudaError_t error = cudaGetDeviceCount(&cards);
    if (error != cudaSuccess)
        return no_driver(error, driver);
    if (card < 0 || card >= cards)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "device: there is no card cuda:%d; this machine has %d", card, cards);
    error = cudaGetDeviceProperties(&prop, card);
    if (error != cudaSuccess)
        return no_driver(error, driver);
    *out = (dev_cuda_info){.cards = cards,
                           .major = prop.major,
                           .minor = prop.minor,
                           .multiprocessors = prop.multiProcessorCount,
                           .memory_bytes = prop.totalGlobalMem,
                           .driver_version = driver,
                           .runtime_version = CUDART_VERSION,
                           .blas_version = cublasLtGetVersion()};
    snprintf(out->name, sizeof out->name, "%.127s", prop.name);
    if (prop.major * 10 + prop.minor < OLDEST)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "CUDA is not used: %s has compute capability %d.%d, but this build "
                         "needs %d.%d",
                         out->name, prop.major, prop.minor, OLDEST / 10, OLDEST % 10);
    return ATOM_OK;
}
