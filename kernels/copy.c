/* Owns copies within host memory. Refuses to be clever: fixed chunks, handed out by the pool. */
#include "kernels/kernels.h"

#include <string.h>

typedef struct copy_job {
    char *dst;
    const char *src;
    uint64_t bytes;
} copy_job;

enum { COPY_CHUNK_BYTES = 1 << 20 };

static void copy_chunk(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const copy_job *job = ctx;
    uint64_t at = (uint64_t)index * COPY_CHUNK_BYTES;
    uint64_t left = job->bytes - at;
    memcpy(job->dst + at, job->src + at, left < COPY_CHUNK_BYTES ? left : COPY_CHUNK_BYTES);
}

void krn_copy_host(krn_ctx *cx, void *dst, const void *src, uint64_t bytes)
{
    copy_job job = {dst, src, bytes};
    uint64_t chunks = (bytes + COPY_CHUNK_BYTES - 1) / COPY_CHUNK_BYTES;
    atom_parallel(cx->threads, (uint32_t)chunks, copy_chunk, &job);
}
