/*
 * Owns rownorm, the length of each row of w + scale (b a), and dora, which gives columns new lengths.
 * One idea: rownorm takes a few rows at a time, so that a is read once for them; dora's quotients are
 * made once, in f32, and everything else is a run over columns. Sums go in ascending order of column
 * or row, in the lanes of a vector, which are folded at the end.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

#include <math.h>

enum { ROWS = 16, NORMS = 4 };

typedef struct dora_job {
    const krn_args *args;
    float *f, *inverse; /* m / n and 1 / n, or 0 where n is 0: [O] */
} dora_job;

/* NORMS rows from o; the last ones once more where fewer are left. */
KRN_INLINE void norm_rows(atom_dtype dtype, const dora_job *j, int64_t o)
{
    void *const *buf = j->args->buf;
    int64_t O = j->args->dim[0], I = j->args->dim[1], R = j->args->dim[2], first = j->args->dim[3];
    int64_t row[NORMS];
    vf square[NORMS], sum[NORMS];
    for (int k = 0; k < NORMS; k++) {
        row[k] = krn_min(o + k, O - 1);
        square[k] = vf_all(0);
    }
    for (int64_t i = 0; i < I; i += VF_LANES) {
        int64_t some = krn_min(VF_LANES, I - i);
        for (int k = 0; k < NORMS; k++)
            sum[k] = vf_all(0);
        for (int64_t r = 0; r < R; r++) {
            vf a = vf_get(dtype, buf[1], r * I + i, some);
            for (int k = 0; k < NORMS; k++)
                sum[k] = vf_fma(vf_all(vf_one(dtype, buf[2], row[k] * R + r)), a, sum[k]);
        }
        for (int k = 0; k < NORMS; k++) {
            vf whole = vf_fma(vf_all(j->args->scale), sum[k],
                              vf_get(dtype, buf[0], (first + row[k]) * I + i, some));
            square[k] = vf_fma(whole, whole, square[k]);
        }
    }
    for (int k = 0; k < NORMS; k++)
        ((float *)buf[3])[row[k]] = sqrtf(vf_sum(square[k]));
}

static dora_job dora_of(krn_ctx *cx, const krn_args *args, atom_dtype dtype)
{
    int64_t O = args->dim[2];
    dora_job j = {.args = args, .f = cx->workspace};
    const float *n = args->buf[1];
    j.inverse = j.f + O;
    for (int64_t o = 0; o < O; o++) {
        j.inverse[o] = n[o] > 0 ? 1 / n[o] : 0;
        j.f[o] = n[o] > 0 ? vf_one(dtype, args->buf[2], o) / n[o] : 0;
    }
    return j;
}

KRN_INLINE vf bias_at(atom_dtype dtype, const dora_job *j, int64_t o, int64_t k)
{
    const void *c = j->args->buf[3];
    return c ? vf_get(dtype, c, j->args->dim[3] + o, k) : vf_all(0);
}

/* Columns outside are copied. */
KRN_INLINE void outside(atom_dtype dtype, const dora_job *j, const void *from, void *to, int64_t at,
                        bool add)
{
    int64_t W = j->args->dim[1], first = j->args->dim[3], past = first + j->args->dim[2];
    vf_copy(dtype, from, to, at, first, add);
    vf_copy(dtype, from, to, at + past, W - past, add);
}

KRN_INLINE void fwd_row(atom_dtype dtype, const dora_job *j, int64_t n)
{
    void *const *buf = j->args->buf;
    int64_t O = j->args->dim[2], at = n * j->args->dim[1];
    outside(dtype, j, buf[0], buf[4], at, false);
    for (int64_t o = 0; o < O; o += VF_LANES) {
        int64_t k = krn_min(VF_LANES, O - o), to = at + j->args->dim[3] + o;
        vf c = bias_at(dtype, j, o, k);
        vf_put(dtype, buf[4], to, k,
               vf_fma(vf_get(dtype, buf[0], to, k) - c, vf_get(ATOM_F32, j->f, o, k), c));
    }
}

KRN_INLINE void bwd_row(atom_dtype dtype, const dora_job *j, int64_t n)
{
    void *const *buf = j->args->buf;
    int64_t O = j->args->dim[2], at = n * j->args->dim[1];
    bool add = j->args->flags & KRN_ADD_D_IN0;
    outside(dtype, j, buf[5], buf[6], at, add);
    for (int64_t o = 0; o < O; o += VF_LANES) {
        int64_t k = krn_min(VF_LANES, O - o), to = at + j->args->dim[3] + o;
        vf before = add ? vf_get(dtype, buf[6], to, k) : vf_all(0);
        vf_put(dtype, buf[6], to, k,
               vf_fma(vf_get(dtype, buf[5], to, k), vf_get(ATOM_F32, j->f, o, k), before));
    }
}

/* dm and dc of one vector of columns, over all rows. */
KRN_INLINE void d_param_part(atom_dtype dtype, const dora_job *j, int64_t o)
{
    void *const *buf = j->args->buf;
    int64_t k = krn_min(VF_LANES, j->args->dim[2] - o), W = j->args->dim[1],
            first = j->args->dim[3];
    float dm[VF_LANES] __attribute__((aligned(64))), dc[VF_LANES] __attribute__((aligned(64)));
    vf product = vf_all(0), sum = vf_all(0), c = bias_at(dtype, j, o, k);
    for (int64_t n = 0; n < j->args->dim[0]; n++) {
        vf dy = vf_get(dtype, buf[5], n * W + first + o, k);
        product = vf_fma(dy, vf_get(dtype, buf[0], n * W + first + o, k) - c, product);
        sum += dy;
    }
    vf_store(dm, product);
    vf_store(dc, sum);
    for (int64_t i = 0; i < k && buf[8]; i++)
        ((float *)buf[8])[o + i] += dm[i] * j->inverse[o + i];
    for (int64_t i = 0; i < k && buf[9]; i++)
        ((float *)buf[9])[first + o + i] += dc[i] * (1 - j->f[o + i]);
}

typedef void (*row_fn)(atom_dtype dtype, const dora_job *j, int64_t n);

KRN_INLINE void run_rows(atom_dtype dtype, const dora_job *j, uint32_t index, row_fn row)
{
    int64_t n = (int64_t)index * ROWS, end = krn_min(n + ROWS, j->args->dim[0]);
    for (; n < end; n++)
        row(dtype, j, n);
}

static void bwd(krn_ctx *cx, dora_job *j, atom_task rows, atom_task parts)
{
    if (j->args->buf[6])
        krn_each(cx->threads, krn_ceil_div(j->args->dim[0], ROWS), rows, j);
    if (j->args->buf[8] || j->args->buf[9])
        krn_each(cx->threads, krn_ceil_div(j->args->dim[2], VF_LANES), parts, j);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK_AS(norm_rows_##suffix, norm_rows(dtype, ctx, (int64_t)index *NORMS))                  \
    KRN_TASK_AS(fwd_rows_##suffix, run_rows(dtype, ctx, index, fwd_row))                           \
    KRN_TASK_AS(bwd_rows_##suffix, run_rows(dtype, ctx, index, bwd_row))                           \
    KRN_TASK_AS(parts_##suffix, d_param_part(dtype, ctx, (int64_t)index *VF_LANES))                \
    void KRN_ISA(krn_cpu_rownorm_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                 \
    {                                                                                              \
        dora_job j = {.args = args};                                                               \
        krn_each(cx->threads, krn_ceil_div(args->dim[0], NORMS), norm_rows_##suffix, &j);          \
    }                                                                                              \
    void KRN_ISA(krn_cpu_rownorm_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                 \
    {                                                                                              \
        (void)cx, (void)args; /* a constant has no gradient: nobody calls this */                  \
    }                                                                                              \
    void KRN_ISA(krn_cpu_dora_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        dora_job j = dora_of(cx, args, dtype);                                                     \
        krn_each(cx->threads, krn_ceil_div(args->dim[0], ROWS), fwd_rows_##suffix, &j);            \
    }                                                                                              \
    void KRN_ISA(krn_cpu_dora_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        dora_job j = dora_of(cx, args, dtype);                                                     \
        bwd(cx, &j, bwd_rows_##suffix, parts_##suffix);                                            \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
