/*
 * Owns the rotary embedding. One idea: sines and cosines of all places are made first, 64 places a
 * task: one exact pair per frequency and block, then turned on by one place at a time in f64; the
 * rest is two products and a sum per element. Blocks count places from 0, so a place has the same
 * bits whether it comes alone (generation) or in a row (training).
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

#include <math.h>

enum { ROWS = 16 };

typedef struct rope_job {
    const krn_args *args;
    const krn_step *step;
    float *table;                                /* [places][2][half]: cosines, then sines */
    int64_t T, H, D, K, half, first_block, rows; /* half: of the channels that are turned */
    int from, to;
    float sign; /* -1: turn back */
    bool add;
} rope_job;

static void fill_block(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const rope_job *j = ctx;
    int64_t first = (j->first_block + index) * KRN_ROPE_BLOCK;
    float *rows = j->table + (int64_t)index * KRN_ROPE_BLOCK * 2 * j->half;
    double gain = atom_rope_gain(&j->args->rope);
    for (int64_t i = 0; i < j->half; i++) {
        double f = (double)atom_rope_frequency(&j->args->rope, i, j->D);
        double c = cos((double)first * f), s = sin((double)first * f), dc = cos(f), ds = sin(f);
        for (int64_t r = 0; r < KRN_ROPE_BLOCK; r++) {
            double next = c * dc - s * ds;
            rows[r * 2 * j->half + i] = (float)(gain * c);
            rows[(r * 2 + 1) * j->half + i] = (float)(gain * s);
            s = s * dc + c * ds;
            c = next;
        }
    }
}

KRN_INLINE void put(atom_dtype dtype, const rope_job *j, int64_t i, int64_t k, vf y)
{
    void *to = j->args->buf[j->to];
    if (j->add)
        y += vf_get(dtype, to, i, k);
    vf_put(dtype, to, i, k, y);
}

KRN_INLINE void turn_part(atom_dtype dtype, const rope_job *j, int64_t at, const float *place,
                          int64_t i, int64_t k)
{
    const void *from = j->args->buf[j->from];
    vf c = vf_get(ATOM_F32, place, i, k);
    vf s = vf_get(ATOM_F32, place, j->half + i, k) * vf_all(j->sign);
    vf a = vf_get(dtype, from, at + i, k), b = vf_get(dtype, from, at + j->half + i, k);
    put(dtype, j, at + i, k, vf_fma(a, c, vf_all(0.0f) - b * s));
    put(dtype, j, at + j->half + i, k, vf_fma(b, c, a * s));
}

KRN_INLINE void pass(atom_dtype dtype, const rope_job *j, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LANES) {
        int64_t k = krn_min(VF_LANES, n - i);
        put(dtype, j, at + i, k, vf_get(dtype, j->args->buf[j->from], at + i, k));
    }
}

/* One token: its heads of q and k turned, those of v passed on. */
KRN_INLINE void turn_row(atom_dtype dtype, const rope_job *j, int64_t n)
{
    int64_t place = j->args->dim[5] + krn_place(j->step, j->T, n) - j->first_block * KRN_ROPE_BLOCK;
    const float *row = j->table + place * 2 * j->half;
    int64_t at = n * (j->H + 2 * j->K) * j->D, whole = j->half - j->half % VF_LANES;
    for (int64_t h = 0; h < j->H + j->K; h++, at += j->D) {
        for (int64_t i = 0; i < whole; i += VF_LANES)
            turn_part(dtype, j, at, row, i, VF_LANES);
        if (whole < j->half)
            turn_part(dtype, j, at, row, whole, j->half - whole);
        pass(dtype, j, at + 2 * j->half, j->D - 2 * j->half);
    }
    pass(dtype, j, at, j->K * j->D);
}

KRN_INLINE void run_rows(atom_dtype dtype, const rope_job *shared, uint32_t index)
{
    const rope_job own = *shared;
    int64_t n = (int64_t)index * ROWS, end = krn_min(n + ROWS, own.rows);
    for (; n < end; n++)
        turn_row(dtype, &own, n);
}

static void run(krn_ctx *cx, const krn_args *args, int backward, atom_task task)
{
    int64_t P = args->dim[5], T = args->dim[1], first = P / KRN_ROPE_BLOCK;
    rope_job j = {.args = args,
                  .step = cx->step,
                  .table = cx->workspace,
                  .T = T,
                  .H = args->dim[2],
                  .D = args->dim[3],
                  .K = krn_kv_heads(args->dim, 2, 4),
                  .half = atom_rope_width(&args->rope, args->dim[3]) / 2,
                  .first_block = first,
                  .rows = args->dim[0] * T,
                  .from = backward ? 2 : 0,
                  .to = backward ? 3 : 1,
                  .sign = backward ? -1.0f : 1.0f,
                  .add = backward && args->flags & KRN_ADD_D_IN0};
    if (!args->buf[j.to])
        return;
    krn_each(cx->threads, krn_ceil_div(P + T, KRN_ROPE_BLOCK) - first, fill_block, &j);
    krn_each(cx->threads, krn_ceil_div(j.rows, ROWS), task, &j);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK_AS(rows_##suffix, run_rows(dtype, ctx, index))                                        \
    void KRN_ISA(krn_cpu_rope_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        run(cx, args, 0, rows_##suffix);                                                           \
    }                                                                                              \
    void KRN_ISA(krn_cpu_rope_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        run(cx, args, 1, rows_##suffix);                                                           \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
