/*
 * Owns the module's one door and the tables of each card. One idea: refuse early and in one line
 * that says what is missing: fp32 is everywhere, bf16 from compute capability 8.0 on.
 */
#include "kernels/cuda/entry.h"

#include "kernels/cuda/blas_lt.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/table.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { BF16_FROM = 80, CARDS_MAX = 16 };

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
                               .free_bytes = krn_cuda_free_bytes};
    return &module;
}
