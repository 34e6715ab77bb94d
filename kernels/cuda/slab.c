/*
 * Owns pinned host memory. One idea: a slab is ordinary pages, touched and registered with the card
 * in chunks by all threads of the pool, because the first touch and the pinning of 100 GB by one
 * thread take a minute. Copies are cut at the chunks' borders: a copy may not cross from one
 * registration into the next. Refuses what the machine does not have, before touching it.
 */
#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/host.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };
static const uint64_t CHUNK_BYTES = (uint64_t)1 << 30;
static const double SPEAK_SECONDS = 5;

typedef struct pinning {
    cuda_dev *d;
    char *at;
    uint64_t bytes;
    double last_word;
    pthread_mutex_t lock; /* guards the two below */
    uint64_t done_bytes;
    cudaError_t error;
} pinning;

static uint64_t chunk_at(const pinning *p, uint32_t index, char **at)
{
    uint64_t from = index * CHUNK_BYTES, left = p->bytes - from;
    *at = p->at + from;
    return left < CHUNK_BYTES ? left : CHUNK_BYTES;
}

static void speak(pinning *p)
{
    char done[24], all[24], text[96];
    double now = atom_clock_seconds();
    if (now - p->last_word < SPEAK_SECONDS)
        return;
    p->last_word = now;
    snprintf(text, sizeof text, "pinning host memory: %s of %s",
             atom_size_text(p->done_bytes, done), atom_size_text(p->bytes, all));
    krn_cuda_log(ATOM_LOG_INFO, text);
}

static void pin_chunk(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    pinning *p = ctx;
    char *at;
    uint64_t bytes = chunk_at(p, index, &at);
    for (uint64_t i = 0; i < bytes; i += PAGE_BYTES)
        ((volatile char *)at)[i] = 0;
    cudaError_t error = cudaSetDevice(p->d->card);
    if (error == cudaSuccess)
        error = cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    pthread_mutex_lock(&p->lock);
    if (p->error == cudaSuccess)
        p->error = error;
    p->done_bytes += bytes;
    speak(p);
    pthread_mutex_unlock(&p->lock);
}

static uint32_t chunks_of(uint64_t bytes)
{
    return (uint32_t)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

static void unpin(char *at, uint64_t bytes)
{
    for (uint64_t from = 0; from < bytes; from += CHUNK_BYTES)
        (void)cudaHostUnregister(at + from);
    (void)cudaGetLastError(); /* chunks that were never registered */
}

static atom_status refuse(cudaError_t error, uint64_t bytes)
{
    char text[24];
    return atom_fail(error == cudaErrorMemoryAllocation ? ATOM_E_RESOURCE : ATOM_E_RUNTIME,
                     "CUDA: %s of host memory cannot be pinned: %s; a container or virtual machine "
                     "may limit locked memory",
                     atom_size_text(bytes, text), cudaGetErrorString(error));
}

atom_status cuda_slab_take(cuda_dev *d, uint64_t bytes, void **out)
{
    uint64_t has = atom_host_available_bytes();
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (has && bytes > has)
        return atom_fail(ATOM_E_RESOURCE,
                         "host memory: needs %llu bytes, this machine has %llu free, missing %llu",
                         (unsigned long long)bytes, (unsigned long long)has,
                         (unsigned long long)(bytes - has));
    if (d->n_slabs == CUDA_SLABS_MAX)
        return atom_fail(ATOM_E_RESOURCE, "host memory: more than %d slabs", CUDA_SLABS_MAX);
    char *at = atom_pages_take(bytes);
    if (!at)
        return atom_fail_memory("host memory", bytes);
    (void)madvise(at, bytes, MADV_HUGEPAGE); /* a refusal changes nothing */
    pinning p = {.d = d, .at = at, .bytes = bytes, .last_word = atom_clock_seconds()};
    pthread_mutex_init(&p.lock, NULL);
    atom_parallel(d->threads, chunks_of(bytes), pin_chunk, &p);
    pthread_mutex_destroy(&p.lock);
    if (p.error != cudaSuccess) {
        unpin(at, bytes);
        atom_pages_give(at, bytes);
        return refuse(p.error, bytes);
    }
    d->slabs[d->n_slabs++] = (cuda_slab){at, bytes};
    *out = at;
    return ATOM_OK;
}

void cuda_slab_give(cuda_dev *d, void *slab, uint64_t bytes)
{
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    for (uint32_t i = 0; i < d->n_slabs; i++) {
        if (d->slabs[i].at == slab) {
            d->slabs[i] = d->slabs[--d->n_slabs];
            break;
        }
    }
    unpin(slab, bytes);
    atom_pages_give(slab, bytes);
}

uint64_t cuda_slab_run(const cuda_dev *d, const void *at, uint64_t bytes)
{
    for (uint32_t i = 0; i < d->n_slabs; i++) {
        const cuda_slab *s = &d->slabs[i];
        uintptr_t first = (uintptr_t)s->at, here = (uintptr_t)at;
        if (here < first || here >= first + s->bytes)
            continue;
        uint64_t left = CHUNK_BYTES - (here - first) % CHUNK_BYTES;
        return left < bytes ? left : bytes;
    }
    return bytes;
}
