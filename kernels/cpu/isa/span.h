/*
 * Splitting work over the pool, and reading or writing up to one vector of a tensor. The split is a
 * function of sizes only, so bits never depend on the number of threads.
 */
#ifndef KERNELS_CPU_ISA_SPAN_H
#define KERNELS_CPU_ISA_SPAN_H

#include "kernels/cpu/isa/vec.h"
#include "kernels/kernels.h"

/* task(ctx, i, worker) for i < count; threads may be NULL: the caller does it all. */
KRN_INLINE void krn_each(atom_threads *threads, int64_t count, atom_task task, void *ctx)
{
    if (threads) {
        atom_parallel(threads, (uint32_t)count, task, ctx);
        return;
    }
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        task(ctx, i, 0);
}

KRN_INLINE int64_t krn_ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

KRN_INLINE int64_t krn_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* k elements from i, k <= VF_LANES; a constant k == VF_LANES costs one load or store. */
KRN_INLINE vf vf_get(atom_dtype dtype, const void *base, int64_t i, int64_t k)
{
    return k == VF_LANES ? vf_load_act(dtype, base, i) : vf_load_act_n(dtype, base, i, k);
}
KRN_INLINE void vf_put(atom_dtype dtype, void *base, int64_t i, int64_t k, vf x)
{
    if (k == VF_LANES)
        vf_store_act(dtype, base, i, x);
    else
        vf_store_act_n(dtype, base, i, k, x);
}

/* One element, and n of them from `at`: to = from, or to += from. */
KRN_INLINE float vf_one(atom_dtype dtype, const void *base, int64_t i)
{
    return dtype == ATOM_F32 ? ((const float *)base)[i]
                             : atom_bf16_to_f32(((const atom_bf16 *)base)[i]);
}
KRN_INLINE void vf_copy(atom_dtype dtype, const void *from, void *to, int64_t at, int64_t n,
                        bool add)
{
    for (int64_t c = 0; c < n; c += VF_LANES) {
        int64_t k = krn_min(VF_LANES, n - c);
        vf x = vf_get(dtype, from, at + c, k);
        if (add)
            x += vf_get(dtype, to, at + c, k);
        vf_put(dtype, to, at + c, k, x);
    }
}

/* A task of a parallel loop that does one thing with ctx and index; and fn(dtype, ctx, index) as one,
 * named fn_<suffix>. */
#define KRN_TASK_AS(name, ...)                                                                     \
    static void name(void *ctx, uint32_t index, uint32_t worker)                                   \
    {                                                                                              \
        (void)worker;                                                                              \
        __VA_ARGS__;                                                                               \
    }
#define KRN_TASK(fn, dtype, suffix) KRN_TASK_AS(fn##_##suffix, fn(dtype, ctx, index))

#endif
