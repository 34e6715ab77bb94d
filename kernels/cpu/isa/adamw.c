/*
 * Owns the loops over flat vectors: AdamW, rounding to the wire dtype, sums of squares. Their bits
 * are fixed by kernels.h and equal on every instruction set. One idea: they run at the speed of
 * memory, so AdamW reads and writes each stream once and prefetches ahead of all of them;
 * non-temporal stores were measured slower, because every line is read before it is written.
 */
#include "kernels/cpu/isa/drawn.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = KRN_NORM_CHUNK,
    LINE = 64 / sizeof(float), /* floats of one cache line */
    AHEAD = 16 * LINE          /* how far AdamW prefetches, in elements */
};
_Static_assert(KRN_DRAW_ALIGN % KRN_DRAWN == 0 && CHUNK % KRN_DRAWN == 0,
               "words are made in groups");

typedef struct host_job {
    const krn_adamw_step *step;
    void *wire;
    float *master;
    void *m, *v;
    const void *x;
    double *sums;
    uint64_t n;
} host_job;

static int64_t chunks(uint64_t n)
{
    return (int64_t)krn_norm_chunks(n);
}

static int64_t chunk_end(const host_job *job, int64_t from)
{
    return krn_min(from + CHUNK, (int64_t)job->n);
}

/* a b + c rounded once, also where there is no such instruction */
KRN_INLINE vf fma_exact(vf a, vf b, vf c)
{
#if defined(__FMA__)
    return vf_fma(a, b, c);
#else
    float x[VF_LANES], y[VF_LANES], z[VF_LANES];
    vf_store(x, a);
    vf_store(y, b);
    vf_store(z, c);
    for (int i = 0; i < VF_LANES; i++)
        z[i] = fmaf(x[i], y[i], z[i]);
    return vf_load(z);
#endif
}

/* The sequence of kernels.h on k <= VF_LANES elements from i; draw: 16 random bits of each. */
KRN_INLINE void adamw_vector(atom_dtype wire, atom_dtype moments, const host_job *job, int64_t i,
                             int64_t k, vi draw)
{
    const krn_adamw_step *s = job->step;
    vf g = vf_all(s->scale) * vf_get(wire, job->wire, i, k);
    vf m = vf_get(moments, job->m, i, k), v = vf_get(moments, job->v, i, k);
    vf p = vf_get(ATOM_F32, job->master, i, k);
    m = fma_exact(vf_all(s->beta1), m, vf_all(s->one_minus_beta1) * g);
    v = fma_exact(vf_all(s->beta2), v, vf_all(s->one_minus_beta2) * (g * g));
    vf den = vf_sqrt(v) * vf_all(s->inv_sqrt_bias2) + vf_all(s->eps);
    vf upd = (m * vf_all(s->inv_bias1)) / den;
    p = fma_exact(vf_all(-s->lr), fma_exact(vf_all(s->decay), p, upd), p);
    vf_put_drawn(moments, job->m, i, k, m, draw);
    vf_put_drawn(moments, job->v, i, k, v, draw);
    vf_put(ATOM_F32, job->master, i, k, p);
    vf_put(wire, job->wire, i, k, p);
}

/* Past the end a prefetch does nothing. */
KRN_INLINE void prefetch_line(atom_dtype dtype, const void *x, int64_t i)
{
    __builtin_prefetch((const char *)x + (i + AHEAD) * (dtype == ATOM_F32 ? 4 : 2), 1);
}

KRN_INLINE void adamw_chunk(atom_dtype wire, atom_dtype moments, const host_job *job,
                            uint32_t index)
{
    const int64_t group = moments == ATOM_F32 ? LINE : KRN_DRAWN;
    int64_t i = (int64_t)index * CHUNK, end = chunk_end(job, i);
    uint16_t half[KRN_DRAWN] = {0};
    for (; i < end; i += group) {
        int64_t here = krn_min(group, end - i), q = 0;
        for (int64_t l = 0; l < here; l += LINE) {
            prefetch_line(wire, job->wire, i + l);
            prefetch_line(ATOM_F32, job->master, i + l);
            prefetch_line(moments, job->m, i + l);
            prefetch_line(moments, job->v, i + l);
        }
        if (moments == ATOM_BF16)
            krn_draw_halves(job->step->rng, job->step->first + (uint64_t)i, half);
        if (here == group) {
            for (; q < group; q += VF_LANES)
                adamw_vector(wire, moments, job, i + q, VF_LANES, vi_load_u16(half + q));
        }
        for (; q < here; q += VF_LANES)
            adamw_vector(wire, moments, job, i + q, krn_min(VF_LANES, here - q),
                         vi_load_u16(half + q));
    }
}

KRN_INLINE void round_chunk(atom_dtype wire, const host_job *job, uint32_t index)
{
    int64_t i = (int64_t)index * CHUNK, end = chunk_end(job, i);
    for (; i + VF_LANES <= end; i += VF_LANES)
        vf_store_act(wire, job->wire, i, vf_load_act(ATOM_F32, job->x, i));
    if (i < end)
        vf_store_act_n(wire, job->wire, i, end - i, vf_load_act_n(ATOM_F32, job->x, i, end - i));
}

KRN_INLINE void sumsq_chunk(atom_dtype act, const host_job *job, uint32_t index)
{
    enum { VECTORS = KRN_NORM_LANES / VF_LANES };
    int64_t i = (int64_t)index * CHUNK, end = chunk_end(job, i);
    vd sum[2 * VECTORS];
    for (int q = 0; q < 2 * VECTORS; q++)
        sum[q] = vd_low(vf_all(0.0f));
    for (; i < end; i += KRN_NORM_LANES) {
        for (int q = 0; q < VECTORS; q++) {
            int64_t at = i + q * VF_LANES, k = end - at;
            vf x = k >= VF_LANES ? vf_load_act(act, job->x, at)
                   : k > 0       ? vf_load_act_n(act, job->x, at, k)
                                 : vf_all(0.0f);
            sum[2 * q] += vd_low(x) * vd_low(x);
            sum[2 * q + 1] += vd_high(x) * vd_high(x);
        }
    }
    double lane[KRN_NORM_LANES];
    for (int q = 0; q < 2 * VECTORS; q++)
        vd_store(lane + q * (VF_LANES / 2), sum[q]);
    for (int width = KRN_NORM_LANES / 2; width; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    job->sums[index] = lane[0];
}

/* While the chunk is in cache: round it, sum the squares of what was rounded, clear it. */
KRN_INLINE void settle_chunk(atom_dtype wire, const host_job *job, uint32_t index)
{
    int64_t i = (int64_t)index * CHUNK, end = chunk_end(job, i);
    host_job rounded = {.sums = job->sums, .x = job->wire, .n = job->n};
    round_chunk(wire, job, index);
    sumsq_chunk(wire, &rounded, index);
    memset((float *)job->m + i, 0, (size_t)(end - i) * sizeof(float));
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK_AS(adamw_chunk_##suffix, adamw_chunk(dtype, ATOM_F32, ctx, index))                    \
    KRN_TASK_AS(adamw_chunk_##suffix##_bf16, adamw_chunk(dtype, ATOM_BF16, ctx, index))            \
    KRN_TASK(round_chunk, dtype, suffix)                                                           \
    KRN_TASK(sumsq_chunk, dtype, suffix)                                                           \
    KRN_TASK(settle_chunk, dtype, suffix)                                                          \
    void KRN_ISA(krn_cpu_round_##suffix)(krn_ctx * cx, void *dst, const float *src, uint64_t n)    \
    {                                                                                              \
        host_job job = {.wire = dst, .x = src, .n = n};                                            \
        krn_each(cx->threads, chunks(n), round_chunk_##suffix, &job);                              \
    }                                                                                              \
    void KRN_ISA(krn_cpu_sumsq_##suffix)(krn_ctx * cx, double *out, const void *x, uint64_t n)     \
    {                                                                                              \
        host_job job = {.sums = out, .x = x, .n = n};                                              \
        krn_each(cx->threads, chunks(n), sumsq_chunk_##suffix, &job);                              \
    }                                                                                              \
    void KRN_ISA(krn_cpu_settle_##suffix)(krn_ctx * cx, void *dst, float *src, double *norms,      \
                                          uint64_t n)                                              \
    {                                                                                              \
        host_job job = {.wire = dst, .x = src, .m = src, .sums = norms, .n = n};                   \
        krn_each(cx->threads, chunks(n), settle_chunk_##suffix, &job);                             \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)

void KRN_ISA(krn_cpu_adamw)(atom_threads *threads, const krn_adamw_step *step,
                            atom_dtype wire_dtype, void *wire, float *master, void *m, void *v,
                            uint64_t n)
{
    static const atom_task tasks[2][2] = {{adamw_chunk_f32, adamw_chunk_f32_bf16},
                                          {adamw_chunk_bf16, adamw_chunk_bf16_bf16}};
    host_job job = {.step = step, .wire = wire, .master = master, .m = m, .v = v, .n = n};
    krn_each(threads, chunks(n), tasks[wire_dtype == ATOM_BF16][step->moments == ATOM_BF16], &job);
}
