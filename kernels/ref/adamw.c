/*
 * The host loops over flat vectors: AdamW, rounding to wire, sums of squares. These three have the
 * same bits in every implementation (docs/design/engine.md#the-same-bits), so the order of fp32
 * operations here is the specification, not an example. Split in chunks of KRN_NORM_CHUNK elements.
 */
#include "kernels/ref/ref.h"

#include <math.h>

typedef struct span_job {
    const krn_adamw_step *step;
    void *wire; /* or dst */
    float *master;
    void *m, *v;
    const void *x; /* or src */
    double *sums;
    uint64_t n;
    atom_dtype dtype;
} span_job;

static void run_chunks(atom_threads *threads, span_job *job, atom_task task)
{
    uint32_t chunks = (uint32_t)krn_norm_chunks(job->n);
    if (threads) {
        atom_parallel(threads, chunks, task, job);
        return;
    }
    for (uint32_t i = 0; i < chunks; i++)
        task(job, i, 0);
}

static uint64_t chunk_end(const span_job *job, uint32_t chunk)
{
    uint64_t end = ((uint64_t)chunk + 1) * KRN_NORM_CHUNK;
    return end < job->n ? end : job->n;
}

static float stored_get(atom_dtype dtype, const void *x, uint64_t i)
{
    return dtype == ATOM_F32 ? ((const float *)x)[i] : atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

static void stored_put(atom_dtype dtype, void *x, uint64_t i, float value)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = value;
    else
        ((atom_bf16 *)x)[i] = atom_f32_to_bf16(value);
}

/* The 16 random bits of element e of the canonical vector. */
static uint32_t draw_of(const krn_adamw_step *s, uint64_t e)
{
    uint32_t word = atom_rng_u32(s->rng, e / 2);
    return e % 2 ? word >> 16 : word & 0xffff;
}

/* Element i of a moment, rounded by 16 random bits where it is bf16. */
static void moment_put(atom_dtype dtype, void *x, uint64_t i, float value, uint32_t draw)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = value;
    else
        ((atom_bf16 *)x)[i] = atom_f32_to_bf16_drawn(value, draw);
}

static void adamw_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const span_job *job = ctx;
    const krn_adamw_step *s = job->step;
    for (uint64_t i = (uint64_t)chunk * KRN_NORM_CHUNK; i < chunk_end(job, chunk); i++) {
        float g = s->scale * stored_get(job->dtype, job->wire, i);
        float m = fmaf(s->beta1, stored_get(s->moments, job->m, i), s->one_minus_beta1 * g);
        float v = fmaf(s->beta2, stored_get(s->moments, job->v, i), s->one_minus_beta2 * (g * g));
        float den = sqrtf(v) * s->inv_sqrt_bias2 + s->eps;
        float upd = (m * s->inv_bias1) / den;
        float p = fmaf(-s->lr, fmaf(s->decay, job->master[i], upd), job->master[i]);
        uint32_t draw = s->moments == ATOM_F32 ? 0 : draw_of(s, s->first + i);
        moment_put(s->moments, job->m, i, m, draw);
        moment_put(s->moments, job->v, i, v, draw);
        job->master[i] = p;
        stored_put(job->dtype, job->wire, i, p);
    }
}

void ref_adamw(atom_threads *threads, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
               float *master, void *m, void *v, uint64_t n)
{
    span_job job = {
        .step = step, .wire = wire, .master = master, .m = m, .v = v, .n = n, .dtype = wire_dtype};
    run_chunks(threads, &job, adamw_chunk);
}

static void round_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const span_job *job = ctx;
    for (uint64_t i = (uint64_t)chunk * KRN_NORM_CHUNK; i < chunk_end(job, chunk); i++)
        stored_put(job->dtype, job->wire, i, ((const float *)job->x)[i]);
}

void ref_round(krn_ctx *cx, void *dst, const float *src, uint64_t n, atom_dtype wire)
{
    span_job job = {.wire = dst, .x = src, .n = n, .dtype = wire};
    run_chunks(cx->threads, &job, round_chunk);
}

static void sumsq_chunk(void *ctx, uint32_t chunk, uint32_t worker)
{
    (void)worker;
    const span_job *job = ctx;
    double lane[KRN_NORM_LANES] = {0};
    uint64_t first = (uint64_t)chunk * KRN_NORM_CHUNK, end = chunk_end(job, chunk);
    for (uint64_t i = first; i < end; i++) {
        double x = (double)stored_get(job->dtype, job->x, i);
        lane[(i - first) % KRN_NORM_LANES] += x * x;
    }
    for (int width = KRN_NORM_LANES / 2; width; width /= 2) {
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    }
    job->sums[chunk] = lane[0];
}

void ref_sumsq(krn_ctx *cx, double *out, const void *x, uint64_t n, atom_dtype act)
{
    span_job job = {.sums = out, .x = x, .n = n, .dtype = act};
    run_chunks(cx->threads, &job, sumsq_chunk);
}
