/*
 * Owns layer norm. One idea: a row stays in the first-level cache, so reading it three times costs
 * one read of memory. Sums run in four vectors in turn, folded in a fixed order; the gradients of w
 * and b are summed per fixed block of rows, and the blocks are combined in ascending order.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

#include <math.h>

enum { FWD_ROWS = 16, COLUMNS = 64 };

typedef struct norm_job {
    const krn_args *args;
    float *partial; /* [blocks][2][C] */
    int64_t block_rows, blocks;
} norm_job;

/* Four vectors in turn hide the latency of the sum. */
typedef struct sum4 {
    vf at[4];
} sum4;

KRN_INLINE sum4 sum4_zero(void)
{
    vf zero = vf_all(0.0f);
    return (sum4){{zero, zero, zero, zero}};
}
KRN_INLINE float sum4_fold(sum4 s)
{
    return vf_sum((s.at[0] + s.at[1]) + (s.at[2] + s.at[3]));
}

KRN_INLINE float row_mean(atom_dtype dtype, const void *x, int64_t at, int64_t C)
{
    sum4 sum = sum4_zero();
    int64_t c = 0;
    for (; c + 4 * VF_LANES <= C; c += 4 * VF_LANES) {
        for (int q = 0; q < 4; q++)
            sum.at[q] += vf_load_act(dtype, x, at + c + q * VF_LANES);
    }
    for (; c < C; c += VF_LANES)
        sum.at[0] += vf_get(dtype, x, at + c, krn_min(VF_LANES, C - c));
    return sum4_fold(sum) / (float)C;
}

/* k lanes of x - mean, the others 0 */
KRN_INLINE vf away(atom_dtype dtype, const void *x, int64_t i, int64_t k, vf mean)
{
    if (k == VF_LANES)
        return vf_load_act(dtype, x, i) - mean;
    float lanes[VF_LANES];
    vf_store(lanes, vf_load_act_n(dtype, x, i, k) - mean);
    for (int64_t l = k; l < VF_LANES; l++)
        lanes[l] = 0;
    return vf_load(lanes);
}

KRN_INLINE float row_variance(atom_dtype dtype, const void *x, int64_t at, int64_t C, float mean)
{
    sum4 sum = sum4_zero();
    vf m = vf_all(mean);
    int64_t c = 0;
    for (; c + 4 * VF_LANES <= C; c += 4 * VF_LANES) {
        for (int q = 0; q < 4; q++) {
            vf d = away(dtype, x, at + c + q * VF_LANES, VF_LANES, m);
            sum.at[q] = vf_fma(d, d, sum.at[q]);
        }
    }
    for (; c < C; c += VF_LANES) {
        vf d = away(dtype, x, at + c, krn_min(VF_LANES, C - c), m);
        sum.at[0] = vf_fma(d, d, sum.at[0]);
    }
    return sum4_fold(sum) / (float)C;
}

KRN_INLINE void fwd_row(atom_dtype dtype, const krn_args *args, int64_t n)
{
    void *const *buf = args->buf;
    int64_t C = args->dim[1], at = n * C;
    float mean = row_mean(dtype, buf[0], at, C);
    float rstd = 1.0f / sqrtf(row_variance(dtype, buf[0], at, C, mean) + args->eps);
    vf m = vf_all(mean), r = vf_all(rstd);
    for (int64_t c = 0; c + VF_LANES <= C; c += VF_LANES) {
        vf z = (vf_load_act(dtype, buf[0], at + c) - m) * r;
        vf b = buf[2] ? vf_load_act(dtype, buf[2], c) : vf_all(0.0f);
        vf y = vf_fma(z, vf_load_act(dtype, buf[1], c), b);
        vf_store_act(dtype, buf[3], at + c, y);
    }
    int64_t k = C % VF_LANES, c = C - k;
    if (k) {
        vf z = (vf_load_act_n(dtype, buf[0], at + c, k) - m) * r;
        vf b = buf[2] ? vf_load_act_n(dtype, buf[2], c, k) : vf_all(0.0f);
        vf y = vf_fma(z, vf_load_act_n(dtype, buf[1], c, k), b);
        vf_store_act_n(dtype, buf[3], at + c, k, y);
    }
    ((float *)buf[4])[n] = mean;
    ((float *)buf[5])[n] = rstd;
}

KRN_INLINE void fwd_rows(atom_dtype dtype, const norm_job *job, uint32_t index)
{
    int64_t n = (int64_t)index * FWD_ROWS, end = krn_min(n + FWD_ROWS, job->args->dim[0]);
    for (; n < end; n++)
        fwd_row(dtype, job->args, n);
}

/* One vector of a row of backward: sums of d = dy w and d z, and the row's part of dw and db. */
KRN_INLINE void bwd_sums(atom_dtype dtype, const krn_args *args, int64_t at, int64_t c, int64_t k,
                         vf mean, vf rstd, float *dw, float *db, vf *sum_d, vf *sum_dz)
{
    vf dy = vf_get(dtype, args->buf[6], at + c, k);
    vf z = (vf_get(dtype, args->buf[0], at + c, k) - mean) * rstd;
    vf d = dy * vf_get(dtype, args->buf[1], c, k);
    *sum_d += d;
    *sum_dz = vf_fma(d, z, *sum_dz); /* d is 0 in lanes past k */
    vf_put(ATOM_F32, dw, c, k, vf_fma(dy, z, vf_get(ATOM_F32, dw, c, k)));
    vf_put(ATOM_F32, db, c, k, vf_get(ATOM_F32, db, c, k) + dy);
}

KRN_INLINE void bwd_dx(atom_dtype dtype, const krn_args *args, int64_t at, int64_t c, int64_t k,
                       vf mean, vf rstd, vf mean_d, vf mean_dz)
{
    vf z = (vf_get(dtype, args->buf[0], at + c, k) - mean) * rstd;
    vf d = vf_get(dtype, args->buf[6], at + c, k) * vf_get(dtype, args->buf[1], c, k);
    vf dx = rstd * (d - mean_d - z * mean_dz);
    if (args->flags & KRN_ADD_D_IN0)
        dx += vf_get(dtype, args->buf[7], at + c, k);
    vf_put(dtype, args->buf[7], at + c, k, dx);
}

KRN_INLINE void bwd_row(atom_dtype dtype, const krn_args *args, int64_t n, float *dw, float *db)
{
    int64_t C = args->dim[1], at = n * C, whole = C - C % VF_LANES;
    vf mean = vf_all(((const float *)args->buf[4])[n]);
    vf rstd = vf_all(((const float *)args->buf[5])[n]);
    sum4 d = sum4_zero(), dz = sum4_zero();
    int64_t c = 0;
    for (; c + 4 * VF_LANES <= C; c += 4 * VF_LANES) {
        for (int q = 0; q < 4; q++)
            bwd_sums(dtype, args, at, c + q * VF_LANES, VF_LANES, mean, rstd, dw, db, &d.at[q],
                     &dz.at[q]);
    }
    for (; c < C; c += VF_LANES)
        bwd_sums(dtype, args, at, c, krn_min(VF_LANES, C - c), mean, rstd, dw, db, &d.at[0],
                 &dz.at[0]);
    if (!args->buf[7])
        return;
    vf mean_d = vf_all(sum4_fold(d) / (float)C), mean_dz = vf_all(sum4_fold(dz) / (float)C);
    for (c = 0; c < whole; c += VF_LANES)
        bwd_dx(dtype, args, at, c, VF_LANES, mean, rstd, mean_d, mean_dz);
    if (c < C)
        bwd_dx(dtype, args, at, c, C - c, mean, rstd, mean_d, mean_dz);
}

KRN_INLINE void bwd_block(atom_dtype dtype, const norm_job *job, uint32_t index)
{
    int64_t C = job->args->dim[1], n = index * job->block_rows;
    int64_t end = krn_min(n + job->block_rows, job->args->dim[0]);
    float *dw = job->partial + (int64_t)index * 2 * C, *db = dw + C;
    memset(dw, 0, (size_t)(2 * C) * sizeof *dw);
    for (; n < end; n++)
        bwd_row(dtype, job->args, n, dw, db);
}

/* Adds the blocks' sums, in ascending order, to COLUMNS columns of [dw | db]. */
static void combine(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const norm_job *job = ctx;
    int64_t C = job->args->dim[1], c = (int64_t)index * COLUMNS;
    int64_t end = krn_min(c + COLUMNS, C);
    for (int which = 0; which < 2; which++) {
        float *out = job->args->buf[8 + which];
        for (int64_t i = c; out && i < end; i++) {
            float sum = 0;
            for (int64_t b = 0; b < job->blocks; b++)
                sum += job->partial[(b * 2 + which) * C + i];
            out[i] += sum;
        }
    }
}

static void run_bwd(krn_ctx *cx, const krn_args *args, atom_task block)
{
    norm_job job = {.args = args, .partial = cx->workspace};
    job.block_rows = krn_norm_block_rows(args->dim[0]);
    job.blocks = krn_ceil_div(args->dim[0], job.block_rows);
    krn_each(cx->threads, job.blocks, block, &job);
    krn_each(cx->threads, krn_ceil_div(args->dim[1], COLUMNS), combine, &job);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK(fwd_rows, dtype, suffix)                                                              \
    KRN_TASK(bwd_block, dtype, suffix)                                                             \
    void KRN_ISA(krn_cpu_layernorm_fwd_##suffix)(krn_ctx * cx, const krn_args *args)               \
    {                                                                                              \
        norm_job job = {.args = args};                                                             \
        krn_each(cx->threads, krn_ceil_div(args->dim[0], FWD_ROWS), fwd_rows_##suffix, &job);      \
    }                                                                                              \
    void KRN_ISA(krn_cpu_layernorm_bwd_##suffix)(krn_ctx * cx, const krn_args *args)               \
    {                                                                                              \
        run_bwd(cx, args, bwd_block_##suffix);                                                     \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
