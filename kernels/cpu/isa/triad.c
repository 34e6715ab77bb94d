/*
 * Owns the yardstick: STREAM's triad (McCalpin 1995) with non-temporal stores, the fastest way to
 * move three arrays through this machine's memory. Nothing trains with it; benchmarks divide by it.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

enum { CHUNK = 65536 };

typedef struct triad_job {
    float *a;
    const float *b, *c;
    uint64_t n;
} triad_job;

static void triad_chunk(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const triad_job *job = ctx;
    int64_t i = (int64_t)index * CHUNK, end = krn_min(i + CHUNK, (int64_t)job->n);
    vf s = vf_all(3.0f);
    for (; i + VF_LANES <= end; i += VF_LANES)
        vf_stream(job->a + i, vf_fma(s, vf_load(job->c + i), vf_load(job->b + i)));
    for (; i < end; i++)
        job->a[i] = job->b[i] + 3.0f * job->c[i];
    _mm_sfence();
}

/* a is 64-byte aligned. */
void KRN_ISA(krn_cpu_triad)(atom_threads *threads, float *a, const float *b, const float *c,
                            uint64_t n)
{
    triad_job job = {a, b, c, n};
    krn_each(threads, krn_ceil_div((int64_t)n, CHUNK), triad_chunk, &job);
}
