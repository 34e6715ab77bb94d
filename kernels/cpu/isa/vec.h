/*
 * One vector type of the native width, for files that are compiled once per instruction set
 * (cpu.h).
 *
 *   vf   VF_LANES floats       vi   VF_LANES 32-bit integers
 *
 * + - * / work on vf directly (compiler's vector arithmetic). Everything else is a function here.
 * vf_fma rounds once on AVX2 and AVX-512, twice on baseline. Tensors in the run's dtype (act) are
 * read and written with vf_load_act / vf_store_act, whose dtype argument must be a constant after
 * inlining.
 */
#ifndef KERNELS_CPU_ISA_VEC_H
#define KERNELS_CPU_ISA_VEC_H

#include "atom/base/dtype.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define KRN_INLINE static inline __attribute__((always_inline, unused))
#define KRN_JOIN2(a, b) a##b
#define KRN_JOIN(a, b) KRN_JOIN2(a, b)
#define KRN_ISA(name) KRN_JOIN(name, KRN_ISA_SUFFIX) /* -DKRN_ISA_SUFFIX=_base, _avx2, _avx512 */

#if defined(__AVX512F__)
enum { VF_LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;
KRN_INLINE vf vf_all(float x)
{
    return _mm512_set1_ps(x);
}
KRN_INLINE vi vi_all(uint32_t x)
{
    return _mm512_set1_epi32((int32_t)x);
}
KRN_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
KRN_INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
KRN_INLINE void vf_stream(float *p, vf x) /* past the caches; p aligned */
{
    _mm512_stream_ps(p, x);
}
KRN_INLINE vf vf_fma(vf a, vf b, vf c) /* a b + c */
{
    return _mm512_fmadd_ps(a, b, c);
}
KRN_INLINE vf vf_sqrt(vf x)
{
    return _mm512_sqrt_ps(x);
}
KRN_INLINE vf vf_max(vf a, vf b) /* b where either is NaN */
{
    return _mm512_max_ps(a, b);
}
KRN_INLINE vf vf_min(vf a, vf b) /* b where either is NaN */
{
    return _mm512_min_ps(a, b);
}
KRN_INLINE vf vf_round(vf x) /* to the nearest integer, ties to even */
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KRN_INLINE vi vi_from_f(vf x) /* x holds integers */
{
    return _mm512_cvtps_epi32(x);
}
KRN_INLINE vf vf_bits(vi x)
{
    return _mm512_castsi512_ps(x);
}
KRN_INLINE vi vi_bits(vf x)
{
    return _mm512_castps_si512(x);
}
KRN_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
KRN_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
KRN_INLINE vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
KRN_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
KRN_INLINE vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
#define vi_shl(x, n) _mm512_slli_epi32((x), (n))
#define vi_shr(x, n) _mm512_srli_epi32((x), (n))    /* zeros come in */
#define vi_sar(x, n) _mm512_srai_epi32((x), (n))    /* the sign comes in */
KRN_INLINE vf vf_if_less(vf a, vf b, vf yes, vf no) /* a < b ? yes : no */
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
KRN_INLINE vf vf_if_nan(vf a, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), no, yes);
}
/* x where word >= threshold (unsigned), else 0 */
KRN_INLINE vf vf_keep(vf x, vi word, vi threshold)
{
    return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(word, threshold), x);
}
KRN_INLINE vi vi_load_u16(const uint16_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
KRN_INLINE vi vi_load_u32(const uint32_t *p)
{
    return _mm512_loadu_si512((const __m512i *)p);
}
/* The low 16 bits of each lane. */
KRN_INLINE void vi_store_u16(uint16_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(x));
}
KRN_INLINE vi vi_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
KRN_INLINE void vi_store_u8(uint8_t *p, vi x) /* x holds 0 to 255 */
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}
KRN_INLINE vf vf_from_i(vi x) /* signed */
{
    return _mm512_cvtepi32_ps(x);
}
KRN_INLINE int vf_any_nan(vf x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0;
}
KRN_INLINE __m128 vf_quarter_top(vf x) /* the largest of each fourth lane */
{
    __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    return _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

#elif defined(__AVX2__)
enum { VF_LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;
KRN_INLINE vf vf_all(float x)
{
    return _mm256_set1_ps(x);
}
KRN_INLINE vi vi_all(uint32_t x)
{
    return _mm256_set1_epi32((int32_t)x);
}
KRN_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
KRN_INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
KRN_INLINE void vf_stream(float *p, vf x) /* past the caches; p aligned */
{
    _mm256_stream_ps(p, x);
}
KRN_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
KRN_INLINE vf vf_sqrt(vf x)
{
    return _mm256_sqrt_ps(x);
}
KRN_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
KRN_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
KRN_INLINE vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KRN_INLINE vi vi_from_f(vf x)
{
    return _mm256_cvtps_epi32(x);
}
KRN_INLINE vf vf_bits(vi x)
{
    return _mm256_castsi256_ps(x);
}
KRN_INLINE vi vi_bits(vf x)
{
    return _mm256_castps_si256(x);
}
KRN_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
KRN_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
KRN_INLINE vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
KRN_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
KRN_INLINE vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}
#define vi_shl(x, n) _mm256_slli_epi32((x), (n))
#define vi_shr(x, n) _mm256_srli_epi32((x), (n))
#define vi_sar(x, n) _mm256_srai_epi32((x), (n))
KRN_INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
KRN_INLINE vf vf_if_nan(vf a, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
KRN_INLINE vf vf_keep(vf x, vi word, vi threshold)
{
    __m256i keep = _mm256_cmpeq_epi32(_mm256_max_epu32(word, threshold), word);
    return _mm256_and_ps(x, _mm256_castsi256_ps(keep));
}
KRN_INLINE vi vi_load_u16(const uint16_t *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
}
KRN_INLINE vi vi_load_u32(const uint32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
KRN_INLINE void vi_store_u16(uint16_t *p, vi x)
{
    __m256i s = _mm256_srai_epi32(_mm256_slli_epi32(x, 16), 16);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(s, s), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
KRN_INLINE vi vi_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
KRN_INLINE void vi_store_u8(uint8_t *p, vi x) /* x holds 0 to 255 */
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));
}
KRN_INLINE vf vf_from_i(vi x) /* signed */
{
    return _mm256_cvtepi32_ps(x);
}
KRN_INLINE int vf_any_nan(vf x)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
}
KRN_INLINE __m128 vf_quarter_top(vf x) /* the largest of each fourth lane */
{
    return _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

#else
enum { VF_LANES = 4 };
typedef __m128 vf;
typedef __m128i vi;
KRN_INLINE vf vf_all(float x)
{
    return _mm_set1_ps(x);
}
KRN_INLINE vi vi_all(uint32_t x)
{
    return _mm_set1_epi32((int32_t)x);
}
KRN_INLINE vf vf_load(const float *p)
{
    return _mm_loadu_ps(p);
}
KRN_INLINE void vf_store(float *p, vf x)
{
    _mm_storeu_ps(p, x);
}
KRN_INLINE void vf_stream(float *p, vf x) /* past the caches; p aligned */
{
    _mm_stream_ps(p, x);
}
KRN_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
KRN_INLINE vf vf_sqrt(vf x)
{
    return _mm_sqrt_ps(x);
}
KRN_INLINE vf vf_max(vf a, vf b)
{
    return _mm_max_ps(a, b);
}
KRN_INLINE vf vf_min(vf a, vf b)
{
    return _mm_min_ps(a, b);
}
KRN_INLINE vi vi_from_f(vf x)
{
    return _mm_cvtps_epi32(x);
}
KRN_INLINE vf vf_round(vf x) /* |x| < 2^31 */
{
    return _mm_cvtepi32_ps(_mm_cvtps_epi32(x));
}
KRN_INLINE vf vf_bits(vi x)
{
    return _mm_castsi128_ps(x);
}
KRN_INLINE vi vi_bits(vf x)
{
    return _mm_castps_si128(x);
}
KRN_INLINE vi vi_add(vi a, vi b)
{
    return _mm_add_epi32(a, b);
}
KRN_INLINE vi vi_sub(vi a, vi b)
{
    return _mm_sub_epi32(a, b);
}
KRN_INLINE vi vi_xor(vi a, vi b)
{
    return _mm_xor_si128(a, b);
}
KRN_INLINE vi vi_and(vi a, vi b)
{
    return _mm_and_si128(a, b);
}
KRN_INLINE vi vi_or(vi a, vi b)
{
    return _mm_or_si128(a, b);
}
#define vi_shl(x, n) _mm_slli_epi32((x), (n))
#define vi_shr(x, n) _mm_srli_epi32((x), (n))
#define vi_sar(x, n) _mm_srai_epi32((x), (n))
KRN_INLINE vf vf_blend(vf mask, vf yes, vf no)
{
    return _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no));
}
KRN_INLINE vf vf_if_less(vf a, vf b, vf yes, vf no)
{
    return vf_blend(_mm_cmplt_ps(a, b), yes, no);
}
KRN_INLINE vf vf_if_nan(vf a, vf yes, vf no)
{
    return vf_blend(_mm_cmpunord_ps(a, a), yes, no);
}
KRN_INLINE vf vf_keep(vf x, vi word, vi threshold)
{
    __m128i top = _mm_set1_epi32((int32_t)0x80000000u);
    __m128i drop = _mm_cmplt_epi32(_mm_xor_si128(word, top), _mm_xor_si128(threshold, top));
    return _mm_andnot_ps(_mm_castsi128_ps(drop), x);
}
KRN_INLINE vi vi_load_u16(const uint16_t *p)
{
    return _mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)p), _mm_setzero_si128());
}
KRN_INLINE vi vi_load_u32(const uint32_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
KRN_INLINE void vi_store_u16(uint16_t *p, vi x)
{
    __m128i s = _mm_srai_epi32(_mm_slli_epi32(x, 16), 16);
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(s, s));
}
KRN_INLINE vi vi_load_u8(const uint8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), _mm_setzero_si128());
    return _mm_unpacklo_epi16(words, _mm_setzero_si128());
}
KRN_INLINE void vi_store_u8(uint8_t *p, vi x) /* x holds 0 to 255 */
{
    __m128i words = _mm_packs_epi32(x, x);
    int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(p, &four, sizeof four);
}
KRN_INLINE vf vf_from_i(vi x) /* signed */
{
    return _mm_cvtepi32_ps(x);
}
KRN_INLINE int vf_any_nan(vf x)
{
    return _mm_movemask_ps(_mm_cmpunord_ps(x, x)) != 0;
}
KRN_INLINE __m128 vf_quarter_top(vf x) /* the largest of each fourth lane */
{
    return x;
}
#endif

/* Doubles: VF_LANES / 2 of them, from the lower and the upper half of a vf. */
#if defined(__AVX512F__)
typedef __m512d vd;
KRN_INLINE vd vd_low(vf x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
KRN_INLINE vd vd_high(vf x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
KRN_INLINE void vd_store(double *p, vd x)
{
    _mm512_storeu_pd(p, x);
}
#elif defined(__AVX2__)
typedef __m256d vd;
KRN_INLINE vd vd_low(vf x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
KRN_INLINE vd vd_high(vf x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
KRN_INLINE void vd_store(double *p, vd x)
{
    _mm256_storeu_pd(p, x);
}
#else
typedef __m128d vd;
KRN_INLINE vd vd_low(vf x)
{
    return _mm_cvtps_pd(x);
}
KRN_INLINE vd vd_high(vf x)
{
    return _mm_cvtps_pd(_mm_movehl_ps(x, x));
}
KRN_INLINE void vd_store(double *p, vd x)
{
    _mm_storeu_pd(p, x);
}
#endif

/* Sum and maximum of the lanes, as a fixed tree. */
KRN_INLINE float vf_sum(vf x)
{
    float a[VF_LANES];
    vf_store(a, x);
    for (int half = VF_LANES / 2; half; half /= 2) {
        for (int i = 0; i < half; i++)
            a[i] += a[i + half];
    }
    return a[0];
}
KRN_INLINE float vf_top(vf x)
{
    float a[VF_LANES];
    vf_store(a, x);
    float top = a[0];
    for (int i = 1; i < VF_LANES; i++)
        top = a[i] > top ? a[i] : top;
    return top;
}

/* The largest of the lanes, none of which is NaN, in few steps; of zeros either. */
KRN_INLINE float vf_most(vf x)
{
    __m128 four = vf_quarter_top(x), two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* bf16 bits of x in the low half of each lane: nearest even, NaN kept quiet (dtype.h). */
KRN_INLINE vi vi_bf16(vf x)
{
    vi bits = vi_bits(x);
    vi odd = vi_and(vi_shr(bits, 16), vi_all(1));
    vi rounded = vi_shr(vi_add(vi_add(bits, vi_all(0x7fff)), odd), 16);
    vi quiet = vi_or(vi_shr(bits, 16), vi_all(0x40));
    return vi_bits(vf_if_nan(x, vf_bits(quiet), vf_bits(rounded)));
}
KRN_INLINE vf vf_load_bf16(const atom_bf16 *p)
{
    return vf_bits(vi_shl(vi_load_u16(p), 16));
}
KRN_INLINE void vf_store_bf16(atom_bf16 *p, vf x)
{
    vi_store_u16(p, vi_bf16(x));
}

/* Element i.. of a tensor in the run's dtype. */
KRN_INLINE vf vf_load_act(atom_dtype dtype, const void *base, int64_t i)
{
    return dtype == ATOM_F32 ? vf_load((const float *)base + i)
                             : vf_load_bf16((const atom_bf16 *)base + i);
}
KRN_INLINE void vf_store_act(atom_dtype dtype, void *base, int64_t i, vf x)
{
    if (dtype == ATOM_F32)
        vf_store((float *)base + i, x);
    else
        vf_store_bf16((atom_bf16 *)base + i, x);
}

/* The first k < VF_LANES lanes only; the others read as 0 and are not written. */
KRN_INLINE vf vf_load_act_n(atom_dtype dtype, const void *base, int64_t i, int64_t k)
{
    float lanes[VF_LANES] = {0};
    atom_bf16 halves[VF_LANES] = {0};
    if (dtype == ATOM_F32) {
        memcpy(lanes, (const float *)base + i, (size_t)k * 4);
        return vf_load(lanes);
    }
    memcpy(halves, (const atom_bf16 *)base + i, (size_t)k * 2);
    return vf_load_bf16(halves);
}
KRN_INLINE void vf_store_act_n(atom_dtype dtype, void *base, int64_t i, int64_t k, vf x)
{
    float lanes[VF_LANES];
    atom_bf16 halves[VF_LANES];
    if (dtype == ATOM_F32) {
        vf_store(lanes, x);
        memcpy((float *)base + i, lanes, (size_t)k * 4);
    } else {
        vf_store_bf16(halves, x);
        memcpy((atom_bf16 *)base + i, halves, (size_t)k * 2);
    }
}

#endif
