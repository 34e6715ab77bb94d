/*
 * Moments in bf16, on vectors: the random halves that round them, in groups, and the rounding
 * (kernels.h, AdamW and Muon).
 */
#ifndef KERNELS_CPU_ISA_DRAWN_H
#define KERNELS_CPU_ISA_DRAWN_H

#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecrng.h"

#include <string.h>

enum { KRN_DRAWN = 8 * VF_LANES }; /* elements whose random bits are made at once */

/* The random bits of the KRN_DRAWN elements of the canonical vector from e, in order: halves of
 * words. e is a multiple of KRN_DRAWN. */
KRN_INLINE void krn_draw_halves(atom_rng_key key, uint64_t e, uint16_t half[KRN_DRAWN])
{
    vi word[4];
    krn_rng_words(key, e / 8, word);
    for (int q = 0; q < 4; q++)
        memcpy(half + 2 * VF_LANES * q, &word[q], sizeof word[q]);
}

/* As vf_put, but bf16 is rounded by the 16 random bits in each lane of draw. */
KRN_INLINE void vf_put_drawn(atom_dtype dtype, void *base, int64_t i, int64_t k, vf x, vi draw)
{
    if (dtype == ATOM_F32) {
        vf_put(ATOM_F32, base, i, k, x);
        return;
    }
    atom_bf16 halves[VF_LANES], *to = (atom_bf16 *)base + i;
    vi bits = vi_bits(x), quiet = vi_or(vi_shr(bits, 16), vi_all(0x40));
    vi rounded = vi_shr(vi_add(bits, draw), 16);
    rounded = vi_bits(vf_if_nan(x, vf_bits(quiet), vf_bits(rounded)));
    vi_store_u16(k == VF_LANES ? to : halves, rounded);
    if (k < VF_LANES)
        memcpy(to, halves, (size_t)k * sizeof *to);
}

#endif
