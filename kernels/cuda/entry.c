/*
 * Owns the module's one door: what cards there are, which of them this backend serves, and their
 * tables. One idea: refuse early and in one line that says what is missing. Serves compute
 * capability 7.5 and up (CUDA 13); fp32 everywhere, bf16 from 8.0 on. Built with CUDA 12 it would
 * take 7.0 and 6.x as well (fp32): that was never built.
 */
#include "kernels/cuda/entry.h"

#include "kernels/cuda/blas_lt.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/table.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if CUDART_VERSION >= 13000
enum { OLDEST = 75 };
#else
enum { OLDEST = 60 };
#endif
enum { BF16_FROM = 80, CARDS_MAX = 16 };

static atom_status no_driver(cudaError_t error, int driver)
{
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return atom_fail(ATOM_E_UNSUPPORTED, "CUDA is not used: this machine has no NVIDIA driver");
    if (error == cudaErrorInsufficientDriver)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "CUDA is not used: the driver is for CUDA %d.%d, this build needs %d.%d; "
                         "install a newer driver",
                         driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                         CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "CUDA is not used: a driver, but no card that it shows us");
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
                         "CUDA is not used: %s has compute capability %d.%d, this build needs "
                         "%d.%d",
                         out->name, prop.major, prop.minor, OLDEST / 10, OLDEST % 10);
    return ATOM_OK;
}

/* Filled once per card. */
static struct {
    pthread_mutex_t lock;
    krn_table table[CARDS_MAX][2];
    char isa[CARDS_MAX][16];
} cards = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atom_status table(int card, atom_dtype dtype, const krn_table **out)
{
    dev_cuda_info info;
    ATOM_TRY(krn_cuda_describe(card, &info));
    if (dtype != ATOM_F32 && dtype != ATOM_BF16)
        return atom_fail(ATOM_E_UNSUPPORTED, "dtype: CUDA computes in fp32 or bf16");
    if (dtype == ATOM_BF16 && info.major * 10 + info.minor < BF16_FROM)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "dtype: %s (compute capability %d.%d) has no bf16; use fp32", info.name,
                         info.major, info.minor);
    if (card >= CARDS_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED, "device: card numbers end at %d", CARDS_MAX - 1);
    pthread_mutex_lock(&cards.lock);
    krn_table *t = &cards.table[card][dtype == ATOM_BF16];
    if (!t->backend) {
        snprintf(cards.isa[card], sizeof cards.isa[card], "sm_%d%d", info.major, info.minor);
        krn_cuda_table_fill(t, dtype, "cuda", cards.isa[card]);
    }
    pthread_mutex_unlock(&cards.lock);
    *out = t;
    return ATOM_OK;
}

static void *shared_take(uint64_t bytes)
{
    void *at = NULL;
    unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    return cudaHostAlloc(&at, bytes, flags) == cudaSuccess ? at : NULL;
}

static void shared_give(void *at)
{
    (void)cudaFreeHost(at);
}

const krn_cuda_module *atom_cuda_module(const krn_cuda_host *host)
{
    static krn_cuda_module module;
    krn_cuda_host_set(host);
    module = (krn_cuda_module){.abi = krn_cuda_abi(),
                               .describe = krn_cuda_describe,
                               .table = table,
                               .open = krn_cuda_open,
                               .adamw = krn_cuda_adamw,
                               .shared_take = shared_take,
                               .shared_give = shared_give,
                               .kept_bytes = krn_cuda_kept_bytes,
                               .blas_hash = krn_cuda_blas_hash};
    return &module;
}
