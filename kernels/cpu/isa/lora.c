/*
 * Owns lora: y = x + scale h b' in some columns, and its gradients. One idea: the rank is small, so
 * b is turned once, [rank][columns] in f32, and everything is a run over columns: a vector of them
 * gathers the sums over the rank (or, for db, over rows) in registers. Sums go in ascending order
 * of rank, column block or row; dh folds its lanes at the end.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

enum { ROWS = 16, LOW = 8 };

typedef struct lora_job {
    atom_dtype dtype;
    const krn_args *args;
    float *turned; /* b' [R][O] */
    int64_t N, W, R, O, first;
} lora_job;

static lora_job job_of(krn_ctx *cx, const krn_args *args, atom_dtype dtype)
{
    const int64_t *d = args->dim;
    return (lora_job){.dtype = dtype,
                      .args = args,
                      .turned = cx->workspace,
                      .N = d[0],
                      .W = d[1],
                      .R = d[2],
                      .O = d[3],
                      .first = d[4]};
}

/* Rank r of b, as a row. */
static void turn_row(void *ctx, uint32_t r, uint32_t worker)
{
    const lora_job *j = ctx;
    const float *wide = j->args->buf[2];
    const atom_bf16 *narrow = j->args->buf[2];
    (void)worker;
    for (int64_t o = 0; o < j->O; o++)
        j->turned[r * j->O + o] =
            j->dtype == ATOM_F32 ? wide[o * j->R + r] : atom_bf16_to_f32(narrow[o * j->R + r]);
}

KRN_INLINE void fwd_row(atom_dtype dtype, const lora_job *j, int64_t n)
{
    void *const *buf = j->args->buf;
    int64_t past = j->first + j->O;
    vf_copy(dtype, buf[0], buf[3], n * j->W, j->first, false);
    vf_copy(dtype, buf[0], buf[3], n * j->W + past, j->W - past, false);
    for (int64_t o = 0; o < j->O; o += VF_LANES) {
        int64_t k = krn_min(VF_LANES, j->O - o), at = n * j->W + j->first + o;
        vf sum = vf_all(0);
        for (int64_t r = 0; r < j->R; r++)
            sum = vf_fma(vf_all(vf_one(dtype, j->args->buf[1], n * j->R + r)),
                         vf_get(ATOM_F32, j->turned, r * j->O + o, k), sum);
        vf_put(dtype, buf[3], at, k,
               vf_fma(vf_all(j->args->scale), sum, vf_get(dtype, buf[0], at, k)));
    }
}

/* dh of one row. */
KRN_INLINE void d_low_row(atom_dtype dtype, const lora_job *j, int64_t n)
{
    void *const *buf = j->args->buf;
    for (int64_t r = 0; r < j->R; r++) {
        float lanes[VF_LANES] __attribute__((aligned(64))), total = 0;
        vf sum = vf_all(0);
        for (int64_t o = 0; o < j->O; o += VF_LANES) {
            int64_t k = krn_min(VF_LANES, j->O - o);
            sum = vf_fma(vf_get(dtype, buf[4], n * j->W + j->first + o, k),
                         vf_get(ATOM_F32, j->turned, r * j->O + o, k), sum);
        }
        vf_store(lanes, sum);
        for (int i = 0; i < VF_LANES; i++)
            total += lanes[i];
        total *= j->args->scale;
        int64_t at = n * j->R + r;
        if (dtype == ATOM_F32) {
            float *d = (float *)buf[6] + at;
            *d = j->args->flags & KRN_ADD_D_IN1 ? *d + total : total;
        } else {
            atom_bf16 *d = (atom_bf16 *)buf[6] + at;
            *d = atom_f32_to_bf16(j->args->flags & KRN_ADD_D_IN1 ? atom_bf16_to_f32(*d) + total
                                                                 : total);
        }
    }
}

KRN_INLINE void bwd_row(atom_dtype dtype, const lora_job *j, int64_t n)
{
    void *const *buf = j->args->buf;
    if (buf[5])
        vf_copy(dtype, buf[4], buf[5], n * j->W, j->W, j->args->flags & KRN_ADD_D_IN0);
    if (buf[6])
        d_low_row(dtype, j, n);
}

/* db of one vector of columns: LOW ranks at a time, over all rows. */
KRN_INLINE void d_weight_part(atom_dtype dtype, const lora_job *j, int64_t o)
{
    int64_t k = krn_min(VF_LANES, j->O - o);
    float *db = j->args->buf[7];
    for (int64_t r0 = 0; r0 < j->R; r0 += LOW) {
        int64_t some = krn_min(LOW, j->R - r0);
        vf sum[LOW];
        for (int i = 0; i < LOW; i++)
            sum[i] = vf_all(0);
        for (int64_t n = 0; n < j->N; n++) {
            vf dy = vf_get(dtype, j->args->buf[4], n * j->W + j->first + o, k);
            for (int64_t i = 0; i < some; i++)
                sum[i] =
                    vf_fma(dy, vf_all(vf_one(dtype, j->args->buf[1], n * j->R + r0 + i)), sum[i]);
        }
        for (int64_t i = 0; i < some; i++) {
            float lanes[VF_LANES] __attribute__((aligned(64)));
            vf_store(lanes, sum[i]);
            for (int64_t c = 0; c < k; c++)
                db[(o + c) * j->R + r0 + i] += j->args->scale * lanes[c];
        }
    }
}

typedef void (*row_fn)(atom_dtype dtype, const lora_job *j, int64_t n);

KRN_INLINE void run_rows(atom_dtype dtype, const lora_job *j, uint32_t index, row_fn row)
{
    int64_t n = (int64_t)index * ROWS, end = krn_min(n + ROWS, j->N);
    for (; n < end; n++)
        row(dtype, j, n);
}

static void fwd(krn_ctx *cx, lora_job *j, atom_task rows)
{
    krn_each(cx->threads, j->R, turn_row, j);
    krn_each(cx->threads, krn_ceil_div(j->N, ROWS), rows, j);
}

static void bwd(krn_ctx *cx, lora_job *j, atom_task rows, atom_task parts)
{
    if (j->args->buf[6])
        krn_each(cx->threads, j->R, turn_row, j);
    krn_each(cx->threads, krn_ceil_div(j->N, ROWS), rows, j);
    if (j->args->buf[7])
        krn_each(cx->threads, krn_ceil_div(j->O, VF_LANES), parts, j);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK_AS(fwd_rows_##suffix, run_rows(dtype, ctx, index, fwd_row))                           \
    KRN_TASK_AS(bwd_rows_##suffix, run_rows(dtype, ctx, index, bwd_row))                           \
    KRN_TASK_AS(parts_##suffix, d_weight_part(dtype, ctx, (int64_t)index *VF_LANES))               \
    void KRN_ISA(krn_cpu_lora_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        lora_job j = job_of(cx, args, dtype);                                                      \
        fwd(cx, &j, fwd_rows_##suffix);                                                            \
    }                                                                                              \
    void KRN_ISA(krn_cpu_lora_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        lora_job j = job_of(cx, args, dtype);                                                      \
        bwd(cx, &j, bwd_rows_##suffix, parts_##suffix);                                            \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
