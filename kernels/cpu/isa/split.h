/*
 * fp32 products on bf16 tiles, at the accuracy of fp32. One idea: an fp32 number is exactly the sum
 * of three bf16 numbers of 8 significant bits each, x = h + m + l, cut off and not rounded. Of the
 * nine products of two such sums the six largest are summed in fp32,
 *
 *   a b ~ l h + m h + m m + h m + h l + h h,
 *
 * what is left out is below 2^-22 of |a b|, and 2^-24 on average: the error of one fp32 rounding.
 * Every product of two parts is exact in fp32, and tiles sum two of them at a time, so that a long
 * sum ends nearer to the true one than a chain of fp32 multiply-adds does (tests:
 * unit/kernels_split). An infinity becomes NaN: its parts do not exist. Parts below 2^-126 are
 * taken as zero.
 *
 * Six tile products of 16 x 16 x 32 take 96 cycles; in fp32 vectors the same work takes 256.
 * (G. Henry, P. Tang, A. Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
 * Higher-Precision Computations, ARITH 2019.)
 *
 * Layout (GEMM_SPLIT). Steps of 32 along k, 6 KB each, contiguous: three parts (h, m, l) of two
 * tiles of 1 KB.
 *   left   [rows / 32][k32 / 32] steps of [part][16-row half][16 rows][32 k] bf16
 *   panel  [2 halves of 32 columns][k32 / 32] steps of [part][16-column half][16 pairs][16][2]
 *
 * Only in the AVX-512 variant, where AMX is usable.
 */
#ifndef KERNELS_CPU_ISA_SPLIT_H
#define KERNELS_CPU_ISA_SPLIT_H

#include "kernels/cpu/isa/blocks.h"

#if defined(__AVX512F__)

enum { SPLIT_PARTS = 3, SPLIT_TILE = 1024, SPLIT_PART = 2048, SPLIT_STEP = 6144, SPLIT_SIDE = 32 };

typedef struct split_parts {
    vi part[SPLIT_PARTS]; /* fp32 bits whose low halves are zero, but for NaN */
} split_parts;

KRN_INLINE split_parts split_of(vi bits)
{
    const vi high = vi_all(0xffff0000u);
    vf x = vf_bits(bits), h = vf_bits(vi_and(bits, high)), rest = x - h;
    vf m = vf_bits(vi_and(vi_bits(rest), high));
    return (split_parts){{vi_bits(h), vi_bits(m), vi_bits(rest - m)}};
}

/* Where row `row`, column k of a left operand begins; k a multiple of 32. */
KRN_INLINE char *split_left_at(void *left, int64_t k32, int64_t row, int64_t k)
{
    return (char *)left + (row / 32 * (k32 / 32) + k / 32) * SPLIT_STEP +
           row % 32 / 16 * SPLIT_TILE + row % 16 * 64;
}
/* Where the pair of rows k, k + 1 of columns n .. n+16 of a panel begins. */
KRN_INLINE char *split_panel_at(void *panel, int64_t k32, int64_t k, int64_t n)
{
    return (char *)panel + (n / 32 * (k32 / 32) + k / 32) * SPLIT_STEP + n % 32 / 16 * SPLIT_TILE +
           k % 32 / 2 * 64;
}

/* Sixteen columns of two rows as pairs. */
KRN_INLINE void split_store_pairs(char *at, vi even, vi odd)
{
    const vi high = vi_all(0xffff0000u);
    split_parts e = split_of(even), o = split_of(odd);
#pragma GCC unroll 3
    for (int p = 0; p < SPLIT_PARTS; p++)
        vi_store(at + p * SPLIT_PART, vi_or(vi_shr(e.part[p], 16), vi_and(o.part[p], high)));
}

/* 32 columns of one row. */
KRN_INLINE void split_store_row(char *at, vi first, vi second)
{
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    split_parts a = split_of(first), b = split_of(second);
#pragma GCC unroll 3
    for (int p = 0; p < SPLIT_PARTS; p++)
        vi_store(at + p * SPLIT_PART, _mm512_permutex2var_epi16(a.part[p], upper, b.part[p]));
}

/* A word of m, zero where there is none. */
KRN_INLINE vi split_load(const pack_from *m, int64_t row, int64_t col, bool full)
{
    return full ? vi_load(m->data + row * m->step + col * 4) : pack_load(PACK_WORDS, m, row, col);
}

/* left[row + i][k + j] = m[i][j]: k and row multiples of 32; whole tiles are written. */
KRN_INLINE void split_left(void *left, int64_t k32, int64_t row, int64_t k, const pack_from *m)
{
    for (int64_t j = 0; j < m->cols; j += SPLIT_SIDE) {
        bool full = j + SPLIT_SIDE <= m->cols;
        for (int64_t i = 0; i < gemm_round_k(m->rows); i++) {
            bool whole = full && i < m->rows;
            split_store_row(split_left_at(left, k32, row + i, k + j), split_load(m, i, j, whole),
                            split_load(m, i, j + 16, whole));
        }
    }
}

KRN_INLINE void split_turn(vi r[16], const pack_from *m, int64_t row, int64_t col)
{
    bool full = row + 16 <= m->rows && col + 16 <= m->cols;
#pragma GCC unroll 16
    for (int x = 0; x < 16; x++)
        r[x] = split_load(m, row + x, col, full);
    vi_transpose(r);
}

/* left[row + j][k + i] = m[i][j]: transposed on the way. */
KRN_INLINE void split_left_turned(void *left, int64_t k32, int64_t row, int64_t k,
                                  const pack_from *m)
{
    for (int64_t j = 0; j < gemm_round_k(m->cols); j += 16) {
        for (int64_t i = 0; i < m->rows; i += SPLIT_SIDE) {
            vi first[16], second[16];
            split_turn(first, m, i, j);
            split_turn(second, m, i + 16, j);
            char *at = split_left_at(left, k32, row + j, k + i);
            for (int x = 0; x < 16; x++)
                split_store_row(at + x * 64, first[x], second[x]);
        }
    }
}

/* Rows r .. of one panel: b[r + i][n] = m[i][n]; m->cols <= 64, r a multiple of 32. */
KRN_INLINE void split_panel_rows(void *panel, int64_t k32, int64_t r, const pack_from *m)
{
    for (int64_t i = 0; i < gemm_round_k(m->rows); i += 2) {
        bool full = i + 2 <= m->rows && m->cols >= GEMM_PANEL;
#pragma GCC unroll 4
        for (int64_t n = 0; n < GEMM_PANEL; n += 16)
            split_store_pairs(split_panel_at(panel, k32, r + i, n), split_load(m, i, n, full),
                              split_load(m, i + 1, n, full));
    }
}

/* The panel whose columns are the rows of m: b[k][n] = m[n][k]; m->rows <= 64. */
KRN_INLINE void split_panel_cols(void *panel, const pack_from *m)
{
    int64_t k32 = gemm_round_k(m->cols);
    for (int64_t k = 0; k < k32; k += 16) {
        for (int64_t n = 0; n < GEMM_PANEL; n += 16) {
            vi r[16];
            split_turn(r, m, n, k);
            char *at = split_panel_at(panel, k32, k, n);
#pragma GCC unroll 8
            for (int x = 0; x < 16; x += 2)
                split_store_pairs(at + x / 2 * 64, r[x], r[x + 1]);
        }
    }
}

#else
KRN_INLINE void split_panel_rows(void *panel, int64_t k32, int64_t r, const pack_from *m)
{
    (void)panel, (void)k32, (void)r, (void)m;
}
KRN_INLINE void split_panel_cols(void *panel, const pack_from *m)
{
    (void)panel, (void)m;
}
KRN_INLINE void split_left(void *left, int64_t k32, int64_t row, int64_t k, const pack_from *m)
{
    (void)left, (void)k32, (void)row, (void)k, (void)m;
}
KRN_INLINE void split_left_turned(void *left, int64_t k32, int64_t row, int64_t k,
                                  const pack_from *m)
{
    (void)left, (void)k32, (void)row, (void)k, (void)m;
}
#endif
#endif
