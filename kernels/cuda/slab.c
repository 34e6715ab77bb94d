/*
 * Owns pinned host memory. One idea: a slab is ordinary pages, touched and registered with the card
 * in chunks by all threads of the pool, because the first touch and the pinning of 100 GB by one
 * thread take a minute. Copies are cut at the chunks' borders: a copy may not cross from one
 * registration into the next. A slab that is given back stays pinned for the next device of this
 * process, which adds to it what it lacks: a process pins a byte once. Refuses what the machine
 * does not have, before touching it.
 */
#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/host.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };
#ifndef CUDA_CHUNK_BYTES /* the tests' shim takes small ones, to cross them */
#define CUDA_CHUNK_BYTES ((uint64_t)1 << 30)
#endif
static const uint64_t CHUNK_BYTES = CUDA_CHUNK_BYTES;
static const double SPEAK_SECONDS = 5;

/* Given back and still pinned: the first `bytes` of `room` bytes of addresses. */
typedef struct kept_slab {
    char *at;
    uint64_t bytes, room;
} kept_slab;
static struct {
    pthread_mutex_t lock;
    kept_slab slab[CUDA_SLABS_MAX];
    uint32_t n;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct pinning {
    cuda_dev *d;
    char *at;
    uint64_t bytes;
    uint64_t pinned; /* whole chunks of it that are pinned already, in bytes */
    double last_word;
    pthread_mutex_t lock; /* guards the two below */
    uint64_t done_bytes;
    cudaError_t error;
} pinning;

static uint64_t chunk_at(const pinning *p, uint32_t index, char **at)
{
    uint64_t from = p->pinned + index * CHUNK_BYTES, left = p->bytes - from;
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

/* Chunks [from, to) in bytes; the last may be short. */
static void unpin(char *at, uint64_t from, uint64_t to)
{
    for (; from < to; from += CHUNK_BYTES)
        (void)cudaHostUnregister(at + from);
    (void)cudaGetLastError(); /* chunks that were never registered */
}

static atom_status refuse(cudaError_t error, uint64_t bytes)
{
    char text[24];
    return atom_fail(
        error == cudaErrorMemoryAllocation ? ATOM_E_RESOURCE : ATOM_E_RUNTIME,
        "CUDA: %s of host memory cannot be pinned: %s; a container, a virtual machine "
        "or WSL may limit that; with a lower --host-memory the optimizer's state goes to disk",
        atom_size_text(bytes, text), cudaGetErrorString(error));
}

static uint64_t page_bytes(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void throw_away(const kept_slab *k)
{
    unpin(k->at, 0, k->bytes);
    atom_pages_give(k->at, k->room);
}

uint64_t krn_cuda_kept_bytes(void)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&kept.lock);
    for (uint32_t i = 0; i < kept.n; i++)
        bytes += kept.slab[i].bytes;
    pthread_mutex_unlock(&kept.lock);
    return bytes;
}

/* The smallest kept slab that has room for `bytes`; the others are thrown away when the machine has
 * not enough beside them. False: there is none. */
static bool take_kept(uint64_t bytes, kept_slab *out)
{
    uint32_t best = UINT32_MAX;
    pthread_mutex_lock(&kept.lock);
    for (uint32_t i = 0; i < kept.n; i++) {
        if (kept.slab[i].room >= bytes &&
            (best == UINT32_MAX || kept.slab[i].room < kept.slab[best].room))
            best = i;
    }
    if (best != UINT32_MAX) {
        *out = kept.slab[best];
        kept.slab[best] = kept.slab[--kept.n];
    }
    uint64_t there = best == UINT32_MAX ? 0 : out->bytes;
    uint64_t lacks = bytes > there ? bytes - there : 0;
    uint64_t has = atom_host_available_bytes();
    while (kept.n && has && lacks > has) {
        kept_slab *last = &kept.slab[--kept.n];
        has += last->bytes;
        throw_away(last);
    }
    pthread_mutex_unlock(&kept.lock);
    return best != UINT32_MAX;
}

/* Addresses for a slab that may grow to all that the machine has; pages come when touched. */
static bool reserve(uint64_t bytes, kept_slab *out)
{
    uint64_t all = page_bytes(atom_host_available_bytes());
    *out = (kept_slab){.room = all > bytes && bytes >= CHUNK_BYTES ? all : bytes};
    out->at = atom_pages_take(out->room);
    if (!out->at && out->room > bytes) { /* a machine that lends no more than it has */
        out->room = bytes;
        out->at = atom_pages_take(bytes);
    }
    if (out->at)
        (void)madvise(out->at, out->room, MADV_HUGEPAGE); /* a refusal changes nothing */
    return out->at != NULL;
}

static void clear_chunk(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    pinning *p = ctx;
    uint64_t from = index * CHUNK_BYTES, left = p->pinned - from;
    memset(p->at + from, 0, left < CHUNK_BYTES ? left : CHUNK_BYTES);
}

/* Pins what the slab lacks. Whole chunks stay as they are; a short one at the end is done again. */
static cudaError_t fill(cuda_dev *d, kept_slab *slab, uint64_t bytes)
{
    pinning p = {.d = d, .at = slab->at, .bytes = bytes, .last_word = atom_clock_seconds()};
    uint64_t whole = slab->bytes / CHUNK_BYTES * CHUNK_BYTES;
    pthread_mutex_init(&p.lock, NULL);
    p.pinned = slab->bytes < bytes ? slab->bytes : bytes;
    if (p.pinned)
        atom_parallel(d->threads, chunks_of(p.pinned), clear_chunk, &p);
    if (bytes > slab->bytes) {
        unpin(slab->at, whole, slab->bytes);
        p.pinned = whole;
        atom_parallel(d->threads, chunks_of(bytes - whole), pin_chunk, &p);
        slab->bytes = bytes;
    }
    pthread_mutex_destroy(&p.lock);
    return p.error;
}

atom_status cuda_slab_take(cuda_dev *d, uint64_t bytes, void **out)
{
    kept_slab slab = {0};
    bytes = page_bytes(bytes);
    if (d->n_slabs == CUDA_SLABS_MAX)
        return atom_fail(ATOM_E_RESOURCE, "host memory: more than %d slabs", CUDA_SLABS_MAX);
    bool found = take_kept(bytes, &slab);
    uint64_t has = atom_host_available_bytes(), more = bytes > slab.bytes ? bytes - slab.bytes : 0;
    if (has && more > has) {
        if (found)
            throw_away(&slab);
        return atom_fail(ATOM_E_RESOURCE,
                         "host memory: %llu bytes are needed, but this machine has only %llu "
                         "free; %llu are missing",
                         (unsigned long long)bytes, (unsigned long long)(has + slab.bytes),
                         (unsigned long long)(more - has));
    }
    if (!found && !reserve(bytes, &slab))
        return atom_fail_memory("host memory", bytes);
    cudaError_t error = fill(d, &slab, bytes);
    if (error != cudaSuccess) {
        throw_away(&slab);
        return refuse(error, bytes);
    }
    d->slabs[d->n_slabs++] = (cuda_slab){slab.at, slab.bytes, slab.room};
    *out = slab.at;
    return ATOM_OK;
}

void cuda_slab_give(cuda_dev *d, void *at)
{
    for (uint32_t i = 0; i < d->n_slabs; i++) {
        if (d->slabs[i].at != at)
            continue;
        kept_slab slab = {d->slabs[i].at, d->slabs[i].bytes, d->slabs[i].room};
        d->slabs[i] = d->slabs[--d->n_slabs];
        pthread_mutex_lock(&kept.lock);
        bool room = kept.n < CUDA_SLABS_MAX && !atomic_load(&d->fault.failed);
        if (room)
            kept.slab[kept.n++] = slab;
        pthread_mutex_unlock(&kept.lock);
        if (!room)
            throw_away(&slab);
        return;
    }
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
