/*
 * exp, sigmoid, tanh and gelu on vectors (vec.h), about 1e-7 relative. Our own polynomials: the C library
 * has no vector forms that are the same on every machine.
 *
 * exp: x = n ln 2 + r, |r| <= ln 2 / 2; exp(r) by a polynomial of degree 7 in r; 2^n in two
 * factors, so that the whole range of float works. Below -87.33 the result is 0, above 88.73
 * infinity, NaN stays NaN. On AVX-512, 2^n is one instruction, and n log2(e) is exact inside an
 * fma: there 2^r on |r| <= 1/2 is the polynomial of degree 6 with p(0) = 1 and the least largest
 * relative error (3.9e-9, by Remez' exchange).
 */
#ifndef KERNELS_CPU_ISA_VECMATH_H
#define KERNELS_CPU_ISA_VECMATH_H

#include "kernels/cpu/isa/vec.h"

/* 2^n for integers n in -126 .. 127 */
KRN_INLINE vf vf_power2(vi n)
{
    return vf_bits(vi_shl(vi_add(n, vi_all(127)), 23));
}

#if defined(__AVX512F__)
KRN_INLINE vf vf_exp(vf x)
{
    const vf log2_e = vf_all(1.44269504088896341f);
    /* lanes that would underflow are never computed: the processor is very slow at that */
    __mmask16 normal = _mm512_cmp_ps_mask(x, vf_all(-87.33f), _CMP_NLT_UQ);
    x = vf_min(vf_all(128.0f), x);
    vf n = vf_round(x * log2_e);
    vf r = _mm512_fmsub_ps(x, log2_e, n);
    vf p = vf_all(0.00015469731972236165f);
    p = vf_fma(p, r, vf_all(0.0013410000965839784f));
    p = vf_fma(p, r, vf_all(0.009618030782527863f));
    p = vf_fma(p, r, vf_all(0.055502973142002816f));
    p = vf_fma(p, r, vf_all(0.24022651084117072f));
    p = vf_fma(p, r, vf_all(0.6931472253950103f));
    p = vf_fma(p, r, vf_all(1.0f));
    return _mm512_maskz_scalef_ps(normal, p, n);
}
/* 1 / x for normal x: an estimate of 14 bits and one step of Newton. */
KRN_INLINE vf vf_inverse(vf x)
{
    vf y = _mm512_rcp14_ps(x);
    return vf_fma(y, _mm512_fnmadd_ps(x, y, vf_all(1.0f)), y);
}
#else
KRN_INLINE vf vf_exp(vf x)
{
    /* the bounds come first, so that NaN (second operand) passes through */
    vf given = x, least = vf_all(-87.33f);
    x = vf_min(vf_all(128.0f), vf_max(least, x));
    vf n = vf_round(x * vf_all(1.44269504088896341f));
    /* ln 2 in two parts: the upper has few bits, so that n * upper is exact without an fma */
    vf r = vf_fma(n, vf_all(-0.693359375f), x);
    r = vf_fma(n, vf_all(2.12194440054690583e-4f), r);
    vf p = vf_all(1.0f / 5040);
    p = vf_fma(p, r, vf_all(1.0f / 720));
    p = vf_fma(p, r, vf_all(1.0f / 120));
    p = vf_fma(p, r, vf_all(1.0f / 24));
    p = vf_fma(p, r, vf_all(1.0f / 6));
    p = vf_fma(p, r, vf_all(0.5f));
    p = vf_fma(p, r * r, r) + vf_all(1.0f);
    vi whole = vi_from_f(n);
    vi half = vi_sar(whole, 1);
    p = p * vf_power2(half) * vf_power2(vi_sub(whole, half));
    return vf_if_less(given, least, vf_all(0.0f), p);
}

KRN_INLINE vf vf_inverse(vf x)
{
    return vf_all(1.0f) / x;
}
#endif

/* 1 / (1 + e) with e = exp(-x), and e itself, clamped so that e stays finite. */
KRN_INLINE vf vf_sigmoid(vf x, vf *e)
{
    *e = vf_exp(vf_min(vf_all(80.0f), vf_all(0.0f) - x));
    return vf_inverse(vf_all(1.0f) + *e);
}

/* tanh: z + z^3 P(z^2) up to 0.625, where P of degree 4 is fitted at Chebyshev's nodes to be least
 * wrong relative to tanh (8e-8); beyond, (1 - e) / (1 + e) with e = exp(-2 |z|). */
KRN_INLINE vf vf_tanh(vf z)
{
    static const float P[] = {-0.00581114739f, 0.0207449272f, -0.0537766665f, 0.133319646f,
                              -0.333333045f};
    vf zero = vf_all(0.0f), a = vf_max(zero - z, z), zz = z * z, e, p = vf_all(P[0]);
    for (int i = 1; i < 5; i++)
        p = vf_fma(p, zz, vf_all(P[i]));
    vf s = vf_sigmoid(a + a, &e), far = (vf_all(1.0f) - e) * s;
    return vf_if_less(a, vf_all(0.625f), vf_fma(z * zz, p, z),
                      vf_if_less(z, zero, zero - far, far));
}

/* cap tanh(x / cap), and its slope where that is y. */
KRN_INLINE vf vf_capped(vf x, float cap)
{
    return vf_all(cap) * vf_tanh(x * vf_all(1.0f / cap));
}
KRN_INLINE vf vf_cap_slope(vf y, float cap)
{
    vf t = y * vf_all(1.0f / cap);
    return vf_fma(vf_all(0.0f) - t, t, vf_all(1.0f));
}

/*
 * gelu_new: 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks and
 * Gimpel 2016). The sigmoid form has no cancellation for negative x.
 */
KRN_INLINE vf vf_gelu(vf x)
{
    const float k = 2 * 0.797884560802865356f;
    vf e;
    vf u2 = x * vf_fma(x * x, vf_all(k * 0.044715f), vf_all(k));
    return x * vf_sigmoid(u2, &e);
}

/* d gelu / d x = s + x s (1 - s) (2 u)', with 1 - s = e s. */
KRN_INLINE vf vf_gelu_slope(vf x)
{
    const float k = 2 * 0.797884560802865356f;
    vf e;
    vf xx = x * x;
    vf u2 = x * vf_fma(xx, vf_all(k * 0.044715f), vf_all(k));
    vf du2 = vf_fma(xx, vf_all(k * 3 * 0.044715f), vf_all(k));
    vf s = vf_sigmoid(u2, &e);
    return vf_fma(x * du2, e * s * s, s);
}

#endif
