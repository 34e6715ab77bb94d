/*
 * fp32 to bf16 where every cycle counts: one instruction on machines with AVX512_BF16 (the AMX
 * variant), else as vec.h does it. Nearest even; the instruction makes denormal numbers zero, which
 * is why parameters and gradients, whose bits are the same everywhere, do not come here
 * (kernels.h).
 */
#ifndef KERNELS_CPU_ISA_CAST_H
#define KERNELS_CPU_ISA_CAST_H

#include "kernels/cpu/isa/vec.h"

KRN_INLINE void vf_cast_bf16(atom_bf16 *p, vf x)
{
#if defined(__AVX512BF16__)
    __m256bh y = _mm512_cvtneps_pbh(x);
    memcpy(p, &y, sizeof y);
#else
    vf_store_bf16(p, x);
#endif
}

/* Element i.. of a tensor in the run's dtype. */
KRN_INLINE void vf_cast(atom_dtype dtype, void *base, int64_t i, vf x)
{
    if (dtype == ATOM_F32)
        vf_store((float *)base + i, x);
    else
        vf_cast_bf16((atom_bf16 *)base + i, x);
}

/* k elements from i, k <= VF_LANES. */
KRN_INLINE void vf_cast_n(atom_dtype dtype, void *base, int64_t i, int64_t k, vf x)
{
    if (k == VF_LANES)
        vf_cast(dtype, base, i, x);
    else
        vf_store_act_n(dtype, base, i, k, x);
}

#if defined(__AVX512BF16__)
/* Lane i: bf16 of low's lane i in the low half, of high's in the high half. */
KRN_INLINE vi vf_zip_bf16(vf low, vf high)
{
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512bh both = _mm512_cvtne2ps_pbh(high, low);
    __m512i words;
    memcpy(&words, &both, sizeof words);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), words);
}
#endif

#endif
