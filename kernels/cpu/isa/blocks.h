/*
 * Matrices as blocks of 32-bit words, copied or transposed through registers: what pack.h and
 * split.h put panels together from.
 *
 * One idea: a word is a float, a pair of bf16 neighbours of one row, or a pair of bf16 from two
 * rows; a block of VF_LANES x VF_LANES words is transposed or not on its way. What is missing at
 * the edges reads as zero, so that padding is written as zero.
 */
#ifndef KERNELS_CPU_ISA_BLOCKS_H
#define KERNELS_CPU_ISA_BLOCKS_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa/vec.h"

/* What a word holds. */
typedef enum pack_word {
    PACK_WORDS, /* 4 bytes as they are: a float, or two bf16 neighbours */
    PACK_WIDE,  /* one bf16 as float */
    PACK_ZIP    /* bf16 of row r (low half) and of row r + 1 (high half) */
} pack_word;

#if defined(__AVX512F__)
KRN_INLINE void vi_transpose(vi r[VF_LANES])
{
    vi t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
#elif defined(__AVX2__)
KRN_INLINE void vi_transpose(vi r[VF_LANES])
{
    vi t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
    }
    memcpy(r, t, sizeof t);
}
#else
KRN_INLINE void vi_transpose(vi r[VF_LANES])
{
    vi a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpackhi_epi32(r[0], r[1]);
    vi c = _mm_unpacklo_epi32(r[2], r[3]), d = _mm_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm_unpacklo_epi64(a, c);
    r[1] = _mm_unpackhi_epi64(a, c);
    r[2] = _mm_unpacklo_epi64(b, d);
    r[3] = _mm_unpackhi_epi64(b, d);
}
#endif

KRN_INLINE vi vi_load(const void *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}
KRN_INLINE void vi_store(void *p, vi x)
{
    memcpy(p, &x, sizeof x);
}

/* A matrix of 2- or 4-byte elements; rows and columns beyond the ends read as zero. */
typedef struct pack_from {
    const char *data;
    int64_t step; /* bytes from row to row */
    int64_t rows, cols;
    int64_t bytes; /* of an element */
} pack_from;

KRN_INLINE pack_from pack_at(atom_dtype dtype, const void *base, int64_t first, int64_t ld,
                             int64_t rows, int64_t cols)
{
    int64_t bytes = dtype == ATOM_F32 ? 4 : 2;
    return (pack_from){(const char *)base + first * bytes, ld * bytes, rows, cols, bytes};
}

KRN_INLINE vi pack_load_raw(const pack_from *m, int64_t row, int64_t col, int64_t bytes)
{
    const char *p = m->data + row * m->step + col * m->bytes;
    size_t left = m->cols > col ? (size_t)((m->cols - col) * m->bytes) : 0;
    if (left >= (size_t)bytes)
        return vi_load(p);
    char part[sizeof(vi)] = {0};
    memcpy(part, p, left < sizeof part ? left : sizeof part);
    return vi_load(part);
}

KRN_INLINE vi pack_load_half(const pack_from *m, int64_t row, int64_t col)
{
    const atom_bf16 *p = (const atom_bf16 *)(m->data + row * m->step) + col;
    int64_t left = m->cols - col;
    if (left >= VF_LANES)
        return vi_load_u16(p);
    atom_bf16 part[VF_LANES] = {0};
    if (left > 0)
        memcpy(part, p, (size_t)left * 2);
    return vi_load_u16(part);
}

/* VF_LANES words of row `row` from element `col` on (PACK_ZIP: of rows row and row + 1). */
KRN_INLINE vi pack_load(pack_word word, const pack_from *m, int64_t row, int64_t col)
{
    if (row >= m->rows)
        return vi_all(0);
    if (word == PACK_WORDS)
        return pack_load_raw(m, row, col, (int64_t)sizeof(vi));
    vi low = pack_load_half(m, row, col);
    if (word == PACK_WIDE)
        return vi_shl(low, 16);
    if (row + 1 >= m->rows)
        return low;
    return vi_or(low, vi_shl(pack_load_half(m, row + 1, col), 16));
}

/*
 * dst[i][j] = word of row i, word-column j, for i < rows, j < words; dst has `step` words per row.
 * Whole vectors are written: room for words rounded up to VF_LANES.
 */
KRN_INLINE void pack_copy(pack_word word, uint32_t *dst, int64_t step, const pack_from *m,
                          int64_t rows, int64_t words)
{
    int64_t down = word == PACK_ZIP ? 2 : 1, wide = word == PACK_WORDS ? 4 / m->bytes : 1;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < words; j += VF_LANES)
            vi_store(dst + i * step + j, pack_load(word, m, i * down, j * wide));
    }
}

/* The same as pack_load() where nothing is missing. */
KRN_INLINE vi pack_load_full(pack_word word, const char *p, int64_t step)
{
    if (word == PACK_WORDS)
        return vi_load(p);
    vi low = vi_load_u16((const atom_bf16 *)(const void *)p);
    if (word == PACK_WIDE)
        return vi_shl(low, 16);
    return vi_or(low, vi_shl(vi_load_u16((const atom_bf16 *)(const void *)(p + step)), 16));
}

/* A whole block of VF_LANES x VF_LANES words at row i, word-column j. All in registers. */
KRN_INLINE void pack_turn_full(pack_word word, uint32_t *dst, int64_t step, const pack_from *m,
                               int64_t i, int64_t j)
{
    const int64_t down = word == PACK_ZIP ? 2 : 1;
    const char *p = m->data + i * down * m->step + j * (word == PACK_WORDS ? 4 : m->bytes);
    vi r[VF_LANES];
#pragma GCC unroll 16
    for (int x = 0; x < VF_LANES; x++)
        r[x] = pack_load_full(word, p + x * down * m->step, m->step);
    vi_transpose(r);
    dst += j * step + i;
#pragma GCC unroll 16
    for (int x = 0; x < VF_LANES; x++)
        vi_store(dst + x * step, r[x]);
}

/* What is there of a block; `lines` of its transposed rows are written. */
static __attribute__((noinline, unused)) void pack_turn_edge(pack_word word, uint32_t *dst,
                                                             int64_t step, const pack_from *m,
                                                             int64_t i, int64_t j, int64_t lines)
{
    const int64_t down = word == PACK_ZIP ? 2 : 1, wide = word == PACK_WORDS ? 4 / m->bytes : 1;
    vi r[VF_LANES];
    for (int64_t x = 0; x < VF_LANES; x++)
        r[x] = pack_load(word, m, (i + x) * down, j * wide);
    vi_transpose(r);
    for (int64_t x = 0; x < lines; x++)
        vi_store(dst + (j + x) * step + i, r[x]);
}

/* dst[j][i] = word of row i, word-column j: transposed on the way. Writes `words` rows, each `rows`
 * rounded up to VF_LANES. */
KRN_INLINE void pack_turn(pack_word word, uint32_t *dst, int64_t step, const pack_from *m,
                          int64_t rows, int64_t words)
{
    const int64_t down = word == PACK_ZIP ? 2 : 1, wide = word == PACK_WORDS ? 4 / m->bytes : 1;
    for (int64_t j = 0; j < words; j += VF_LANES) {
        int64_t lines = words - j < VF_LANES ? words - j : VF_LANES;
        for (int64_t i = 0; i < rows; i += VF_LANES) {
            if (lines == VF_LANES && (i + VF_LANES) * down <= m->rows &&
                (j + VF_LANES) * wide <= m->cols)
                pack_turn_full(word, dst, step, m, i, j);
            else
                pack_turn_edge(word, dst, step, m, i, j, lines);
        }
    }
}

#endif
