/*
 * What becomes of a strip of product.h: written to its place in a row-major tensor (ld elements
 * from row to row) with all that is to be added, rounded once.
 */
#ifndef KERNELS_CPU_ISA_OUT_H
#define KERNELS_CPU_ISA_OUT_H

#include "kernels/cpu/isa/product.h"
#include "kernels/cpu/isa/vecmath.h"

/* k elements from column c of one row: strip + bias (+ dst). */
KRN_INLINE void out_part(atom_dtype dtype, const float *row, void *dst, int64_t at, int64_t c,
                         int64_t k, const void *bias, int64_t n0, bool add)
{
    vf x = vf_load(row + c);
    if (bias)
        x += vf_get(dtype, bias, n0 + c, k);
    if (add)
        x += vf_get(dtype, dst, at + c, k);
    vf_put(dtype, dst, at + c, k, x);
}

/* dst = strip (+ bias) (+ dst). bias: act, or NULL. */
KRN_INLINE void out_act(atom_dtype dtype, const float *strip, product_spot s, void *dst, int64_t ld,
                        const void *bias, bool add)
{
    for (int64_t m = 0; m < s.m; m++) {
        const float *row = strip + m * GEMM_PANEL;
        int64_t at = (s.m0 + m) * ld + s.n0, c = 0;
        for (; c + VF_LANES <= s.n; c += VF_LANES)
            out_part(dtype, row, dst, at, c, VF_LANES, bias, s.n0, add);
        if (c < s.n)
            out_part(dtype, row, dst, at, c, s.n - c, bias, s.n0, add);
    }
}

KRN_INLINE void out_gelu_part(atom_dtype dtype, const float *row, void *u, void *y, int64_t at,
                              int64_t c, int64_t k, const void *bias, int64_t n0)
{
    vf x = vf_load(row + c);
    if (bias)
        x += vf_get(dtype, bias, n0 + c, k);
    if (dtype == ATOM_BF16)
        x = vf_bits(vi_shl(vi_bf16(x), 16));
    vf_put(dtype, u, at + c, k, x);
    vf_put(dtype, y, at + c, k, vf_gelu(x));
}

/* u = strip (+ bias) rounded to act; y = gelu(u). */
KRN_INLINE void out_gelu(atom_dtype dtype, const float *strip, product_spot s, void *u, void *y,
                         int64_t ld, const void *bias)
{
    for (int64_t m = 0; m < s.m; m++) {
        const float *row = strip + m * GEMM_PANEL;
        int64_t at = (s.m0 + m) * ld + s.n0, c = 0;
        for (; c + VF_LANES <= s.n; c += VF_LANES)
            out_gelu_part(dtype, row, u, y, at, c, VF_LANES, bias, s.n0);
        if (c < s.n)
            out_gelu_part(dtype, row, u, y, at, c, s.n - c, bias, s.n0);
    }
}

/* dst f32 += strip. */
KRN_INLINE void out_sum(const float *strip, product_spot s, float *dst, int64_t ld)
{
    out_act(ATOM_F32, strip, s, dst, ld, NULL, true);
}

#endif
