/*
 * Owns maxout, the largest of each K values that follow each other, and its backward. One idea: a
 * task is a few rows, and since a window lies together, it is read once, from front to back, by plain
 * code; which value won is found again in backward. The first of those that are equal wins, and so
 * does the first that is not a number.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

enum { ROW_ELEMENTS = 16384 }; /* of a task, about */

static int64_t task_rows(const krn_args *args)
{
    int64_t rows = ROW_ELEMENTS / (args->dim[1] * args->dim[2]);
    return rows < 1 ? 1 : rows;
}

KRN_INLINE float get(atom_dtype dtype, const void *x, int64_t i)
{
    return dtype == ATOM_F32 ? ((const float *)x)[i] : atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

KRN_INLINE void put(atom_dtype dtype, void *x, int64_t i, float value)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = value;
    else
        ((atom_bf16 *)x)[i] = atom_f32_to_bf16(value);
}

/* The index in x of what wins among K from `from`, and its value. */
KRN_INLINE int64_t winner(atom_dtype dtype, const void *x, int64_t from, int64_t K, float *value)
{
    int64_t best = from;
    float most = get(dtype, x, from);
    for (int64_t i = from + 1; i < from + K; i++) {
        float v = get(dtype, x, i);
        if (most == most && !(v <= most)) {
            best = i;
            most = v;
        }
    }
    *value = most;
    return best;
}

KRN_INLINE void fwd_part(atom_dtype dtype, const krn_args *args, int64_t e)
{
    float value;
    winner(dtype, args->buf[0], e * args->dim[2], args->dim[2], &value);
    put(dtype, args->buf[1], e, value);
}

KRN_INLINE void bwd_part(atom_dtype dtype, const krn_args *args, int64_t e)
{
    int64_t K = args->dim[2];
    float value, dy = get(dtype, args->buf[2], e);
    int64_t best = winner(dtype, args->buf[0], e * K, K, &value);
    if (args->flags & KRN_ADD_D_IN0) {
        put(dtype, args->buf[3], best, get(dtype, args->buf[3], best) + dy);
        return;
    }
    for (int64_t i = e * K; i < (e + 1) * K; i++)
        put(dtype, args->buf[3], i, i == best ? dy : 0.0f);
}

typedef void (*part_fn)(atom_dtype dtype, const krn_args *args, int64_t e);

KRN_INLINE void run_rows(atom_dtype dtype, const krn_args *shared, uint32_t index, part_fn part)
{
    const krn_args args = *shared;
    int64_t rows = task_rows(&args), n = (int64_t)index * rows;
    int64_t end = krn_min(n + rows, args.dim[0]) * args.dim[1];
    for (int64_t e = n * args.dim[1]; e < end; e++)
        part(dtype, &args, e);
}

static void run(krn_ctx *cx, const krn_args *args, atom_task task)
{
    krn_each(cx->threads, krn_ceil_div(args->dim[0], task_rows(args)), task,
             (void *)(uintptr_t)args);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK_AS(fwd_rows_##suffix, run_rows(dtype, ctx, index, fwd_part))                          \
    KRN_TASK_AS(bwd_rows_##suffix, run_rows(dtype, ctx, index, bwd_part))                          \
    void KRN_ISA(krn_cpu_maxout_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                  \
    {                                                                                              \
        run(cx, args, fwd_rows_##suffix);                                                          \
    }                                                                                              \
    void KRN_ISA(krn_cpu_maxout_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                  \
    {                                                                                              \
        if (args->buf[3])                                                                          \
            run(cx, args, bwd_rows_##suffix);                                                      \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
