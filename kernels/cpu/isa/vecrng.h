/*
 * Random words on vectors: the same bits as atom_rng_u32 (atom/base/rng.h), 4 VF_LANES at a time.
 */
#ifndef KERNELS_CPU_ISA_VECRNG_H
#define KERNELS_CPU_ISA_VECRNG_H

#include "atom/base/rng.h"
#include "kernels/cpu/isa/vec.h"
#include "kernels/kernels.h"

/* A node's dropout: element e is kept where word(e) >= threshold. */
typedef struct krn_drop {
    atom_rng_key key;
    uint32_t threshold;
    float scale; /* 1 / (1 - p) */
    int on;
} krn_drop;

/* Off when cx is NULL, p is 0 or the step does not train. */
KRN_INLINE krn_drop krn_drop_make(const krn_ctx *cx, const krn_args *args)
{
    krn_drop drop = {.on = cx && args->p > 0.0f && cx->step->train};
    if (!drop.on)
        return drop;
    drop.key = (atom_rng_key){cx->step->seed, cx->step->step, cx->step->micro_batch, args->rng};
    drop.threshold = atom_rng_threshold((double)args->p);
    drop.scale = (float)(1.0 / (1.0 - (double)args->p));
    return drop;
}

#if defined(__AVX512F__)
/* low and high halves of a * m, lane by lane */
KRN_INLINE vi vi_mul_wide(vi a, uint32_t m, vi *high)
{
    vi even = _mm512_mul_epu32(a, vi_all(m)),
       odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), vi_all(m));
    *high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
static const uint32_t krn_rng_lane[VF_LANES] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                2, 6, 10, 14, 3, 7, 11, 15};
#define VI_UNPACK(width, half, a, b) _mm512_unpack##half##_epi##width((a), (b))
#elif defined(__AVX2__)
KRN_INLINE vi vi_mul_wide(vi a, uint32_t m, vi *high)
{
    vi even = _mm256_mul_epu32(a, vi_all(m)),
       odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), vi_all(m));
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
static const uint32_t krn_rng_lane[VF_LANES] = {0, 2, 4, 6, 1, 3, 5, 7};
#define VI_UNPACK(width, half, a, b) _mm256_unpack##half##_epi##width((a), (b))
#else
KRN_INLINE vi vi_mul_wide(vi a, uint32_t m, vi *high)
{
    vi even = _mm_mul_epu32(a, vi_all(m)), odd = _mm_mul_epu32(_mm_srli_epi64(a, 32), vi_all(m));
    vi upper = _mm_set_epi32(-1, 0, -1, 0), lower = _mm_set_epi32(0, -1, 0, -1);
    *high = vi_or(_mm_srli_epi64(even, 32), vi_and(odd, upper));
    return vi_or(vi_and(even, lower), _mm_slli_epi64(odd, 32));
}
static const uint32_t krn_rng_lane[VF_LANES] = {0, 1, 2, 3};
#define VI_UNPACK(width, half, a, b) _mm_unpack##half##_epi##width((a), (b))
#endif

/*
 * Words of elements 4 block .. 4 block + 4 VF_LANES - 1; out[q] holds elements q VF_LANES .. of
 * them. Lane 4 j + k works on block k VF_LANES / 4 + j, so that two rounds of unpacking inside the
 * 128-bit parts put all words in order. block must be a multiple of VF_LANES: then the low 32 bits
 * of the counter do not wrap inside the vector.
 */
KRN_INLINE void krn_rng_words(atom_rng_key key, uint64_t block, vi out[4])
{
    vi c0 = vi_add(vi_all((uint32_t)block), vi_load_u32(krn_rng_lane));
    vi c1 = vi_all((uint32_t)(block >> 32) ^ (key.micro_batch * 0x9e3779b9u));
    vi c2 = vi_all(key.node), c3 = vi_all(key.step);
    vi k0 = vi_all((uint32_t)key.seed), k1 = vi_all((uint32_t)(key.seed >> 32));
    for (int round = 0; round < 10; round++) {
        vi high0, high1;
        vi low0 = vi_mul_wide(c0, 0xd2511f53u, &high0);
        vi low1 = vi_mul_wide(c2, 0xcd9e8d57u, &high1);
        c0 = vi_xor(vi_xor(high1, c1), k0);
        c2 = vi_xor(vi_xor(high0, c3), k1);
        c1 = low1;
        c3 = low0;
        k0 = vi_add(k0, vi_all(0x9e3779b9u));
        k1 = vi_add(k1, vi_all(0xbb67ae85u));
    }
    vi a = VI_UNPACK(32, lo, c0, c1), b = VI_UNPACK(32, hi, c0, c1);
    vi c = VI_UNPACK(32, lo, c2, c3), d = VI_UNPACK(32, hi, c2, c3);
    out[0] = VI_UNPACK(64, lo, a, c);
    out[1] = VI_UNPACK(64, hi, a, c);
    out[2] = VI_UNPACK(64, lo, b, d);
    out[3] = VI_UNPACK(64, hi, b, d);
}

#endif
