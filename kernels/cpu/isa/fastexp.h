/*
 * exp for softmax: arguments up to 88, about 1e-7 relative, -infinity gives 0, NaN stays NaN. On
 * AVX-512 it takes half the instructions of vf_exp: 2^n in one, and no care for large arguments.
 * 2^r on
 * [-1/2, 1/2] is the polynomial of degree 5 with the least largest relative error (7.5e-8), found
 * by Remez' exchange.
 */
#ifndef KERNELS_CPU_ISA_FASTEXP_H
#define KERNELS_CPU_ISA_FASTEXP_H

#include "kernels/cpu/isa/vecmath.h"

KRN_INLINE vf vf_exp_fast(vf x)
{
#if defined(__AVX512F__)
    const vf log2_e = vf_all(1.44269504088896341f);
    x = vf_max(vf_all(-200.0f), x);
    vf n = vf_round(x * log2_e);
    vf r = _mm512_fmsub_ps(x, log2_e, n);
    vf p = vf_all(0.0013276471979286704f);
    p = vf_fma(p, r, vf_all(0.009675541334209831f));
    p = vf_fma(p, r, vf_all(0.05550713273543075f));
    p = vf_fma(p, r, vf_all(0.2402211972384865f));
    p = vf_fma(p, r, vf_all(0.693146967064733f));
    p = vf_fma(p, r, vf_all(1.0000000716546822f));
    return _mm512_scalef_ps(p, n);
#else
    return vf_exp(x);
#endif
}

#endif
