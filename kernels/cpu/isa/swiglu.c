/*
 * Owns swiglu, y = silu(gate) up of the two halves of a row, and geglu, the same with gelu's tanh form
 * (Shazeer 2020). One idea: a task is a few rows; a vector of the gate and one of up are read once and
 * give y, or both gradients.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

enum { ROW_ELEMENTS = 16384 }; /* of a task, about */

static int64_t task_rows(const krn_args *args)
{
    int64_t rows = ROW_ELEMENTS / args->dim[1];
    return rows < 1 ? 1 : rows;
}

KRN_INLINE void swiglu_fwd(atom_dtype dtype, const krn_args *args, int64_t n, int64_t f, int64_t k)
{
    int64_t F = args->dim[1];
    vf e, gate = vf_get(dtype, args->buf[0], n * 2 * F + f, k);
    vf up = vf_get(dtype, args->buf[0], n * 2 * F + F + f, k);
    vf_put(dtype, args->buf[1], n * F + f, k, gate * vf_sigmoid(gate, &e) * up);
}

KRN_INLINE void geglu_fwd(atom_dtype dtype, const krn_args *args, int64_t n, int64_t f, int64_t k)
{
    int64_t F = args->dim[1];
    vf gate = vf_get(dtype, args->buf[0], n * 2 * F + f, k);
    vf up = vf_get(dtype, args->buf[0], n * 2 * F + F + f, k);
    vf_put(dtype, args->buf[1], n * F + f, k, vf_gelu(gate) * up);
}

KRN_INLINE void put_d(atom_dtype dtype, const krn_args *args, int64_t i, int64_t k, vf d)
{
    if (args->flags & KRN_ADD_D_IN0)
        d += vf_get(dtype, args->buf[3], i, k);
    vf_put(dtype, args->buf[3], i, k, d);
}

/* silu' = s (1 + gate (1 - s)), with 1 - s = e s */
KRN_INLINE void swiglu_bwd(atom_dtype dtype, const krn_args *args, int64_t n, int64_t f, int64_t k)
{
    int64_t F = args->dim[1], at = n * 2 * F + f;
    vf e, gate = vf_get(dtype, args->buf[0], at, k), up = vf_get(dtype, args->buf[0], at + F, k);
    vf dy = vf_get(dtype, args->buf[2], n * F + f, k), s = vf_sigmoid(gate, &e);
    vf slope = vf_fma(gate * s, e * s, s);
    put_d(dtype, args, at, k, dy * up * slope);
    put_d(dtype, args, at + F, k, dy * gate * s);
}

KRN_INLINE void geglu_bwd(atom_dtype dtype, const krn_args *args, int64_t n, int64_t f, int64_t k)
{
    int64_t F = args->dim[1], at = n * 2 * F + f;
    vf gate = vf_get(dtype, args->buf[0], at, k), up = vf_get(dtype, args->buf[0], at + F, k);
    vf dy = vf_get(dtype, args->buf[2], n * F + f, k);
    put_d(dtype, args, at, k, dy * up * vf_gelu_slope(gate));
    put_d(dtype, args, at + F, k, dy * vf_gelu(gate));
}

typedef void (*part_fn)(atom_dtype dtype, const krn_args *args, int64_t n, int64_t f, int64_t k);

KRN_INLINE void run_rows(atom_dtype dtype, const krn_args *shared, uint32_t index, part_fn part)
{
    const krn_args args = *shared;
    int64_t F = args.dim[1], rows = task_rows(&args), n = (int64_t)index * rows;
    int64_t end = krn_min(n + rows, args.dim[0]), whole = F - F % VF_LANES;
    for (; n < end; n++) {
        for (int64_t f = 0; f < whole; f += VF_LANES)
            part(dtype, &args, n, f, VF_LANES);
        if (whole < F)
            part(dtype, &args, n, whole, F - whole);
    }
}

static void run(krn_ctx *cx, const krn_args *args, atom_task task)
{
    krn_each(cx->threads, krn_ceil_div(args->dim[0], task_rows(args)), task,
             (void *)(uintptr_t)args);
}

#define ENTRIES(op, dtype, suffix)                                                                 \
    KRN_TASK_AS(op##_fwd_rows_##suffix, run_rows(dtype, ctx, index, op##_fwd))                     \
    KRN_TASK_AS(op##_bwd_rows_##suffix, run_rows(dtype, ctx, index, op##_bwd))                     \
    void KRN_ISA(krn_cpu_##op##_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                  \
    {                                                                                              \
        run(cx, args, op##_fwd_rows_##suffix);                                                     \
    }                                                                                              \
    void KRN_ISA(krn_cpu_##op##_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                  \
    {                                                                                              \
        if (args->buf[3])                                                                          \
            run(cx, args, op##_bwd_rows_##suffix);                                                 \
    }
ENTRIES(swiglu, ATOM_F32, f32)
ENTRIES(swiglu, ATOM_BF16, bf16)
ENTRIES(geglu, ATOM_F32, f32)
ENTRIES(geglu, ATOM_BF16, bf16)
