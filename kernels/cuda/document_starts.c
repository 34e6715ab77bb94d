/*
 * Owns the way of krn_step.starts, where documents begin, from the caller's memory to the card's.
 * One idea: copies go through a few pinned stages, so the stream's thread hands one over and goes
 * on, and what the last copy brought is not brought again. The copy is a kernel that reads the stage
 * over the link: the card's copy engine takes one copy at a time, so a copy of this stream would
 * wait for the end of whatever fetch is under way, once per micro-batch. It is in stream order,
 * before the kernels of its step and never inside a recording; kernels find it through the step's
 * block. Refuses nothing; a runtime that has no memory left makes the device fail with that message.
 */
#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/plain.h"

#include <string.h>

static void drop(cuda_starts *h)
{
    if (h->at)
        (void)cudaFree(h->at);
    for (int i = 0; i < CUDA_STARTS_STAGES; i++) {
        if (h->stage[i])
            (void)cudaFreeHost(h->stage[i]);
        if (h->sent[i])
            (void)cudaEventDestroy(h->sent[i]);
    }
    *h = (cuda_starts){0};
}

void cuda_starts_close(dev_stream *s)
{
    drop(&s->starts);
}

/* Longer samples than before: rare. Nothing reads the old memory when it goes. */
static cudaError_t grow(dev_stream *s, uint64_t n)
{
    cuda_starts *h = &s->starts;
    cudaError_t error = h->at ? cudaStreamSynchronize(s->native) : cudaSuccess;
    drop(h);
    if (error == cudaSuccess)
        error = cudaMalloc((void **)&h->at, n * sizeof *h->at);
    for (int i = 0; i < CUDA_STARTS_STAGES && error == cudaSuccess; i++) {
        error = cudaHostAlloc((void **)&h->stage[i], n * sizeof *h->at,
                              cudaHostAllocPortable | cudaHostAllocMapped);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&h->sent[i], cudaEventBlockingSync);
    }
    h->room = error == cudaSuccess ? n : 0;
    return error;
}

static cudaError_t send(dev_stream *s, const int32_t *starts, uint64_t n)
{
    cuda_starts *h = &s->starts;
    uint32_t turn = h->turns % CUDA_STARTS_STAGES;
    cudaError_t error = cudaSuccess;
    if (h->turns >= CUDA_STARTS_STAGES)
        error = cudaEventSynchronize(h->sent[turn]);
    if (error != cudaSuccess)
        return error;
    memcpy(h->stage[turn], starts, n * sizeof *starts);
    krn_cuda_put_starts(&(krn_ctx){.native_stream = (void *)s->native}, h->at, h->stage[turn], n);
    error = cudaGetLastError();
    if (error == cudaSuccess)
        error = cudaEventRecord(h->sent[turn], s->native);
    if (error == cudaSuccess) {
        h->turns++;
        h->n = n;
    }
    return error;
}

const int32_t *cuda_starts_put(dev_stream *s, const int32_t *starts, uint64_t n)
{
    cuda_starts *h = &s->starts;
    cudaError_t error = cudaSuccess;
    if (!starts || n == 0)
        return NULL;
    if (n > h->room)
        error = grow(s, n);
    const int32_t *last = h->stage[(h->turns + CUDA_STARTS_STAGES - 1) % CUDA_STARTS_STAGES];
    bool there = h->turns && h->n == n && memcmp(last, starts, n * sizeof *starts) == 0;
    if (error == cudaSuccess && !there)
        error = send(s, starts, n);
    return cuda_dev_ok(s->owner, error, "where documents begin") ? h->at : NULL;
}
