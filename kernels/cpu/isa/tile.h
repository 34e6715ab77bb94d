/*
 * A small product in fp32 registers, for tiles that are in cache already:
 *
 *   c[m,n] = a[m,k] b[k,n] (+ c)
 *
 * a has any strides (a_row, a_col elements), so that a transposed a costs nothing; b and c are
 * row-major and padded to n = whole vectors. Sums run over k in ascending order, one fma each.
 *
 * For attention and for machines without a oneDNN kernel; the linear layers go through gemm.h.
 */
#ifndef KERNELS_CPU_ISA_TILE_H
#define KERNELS_CPU_ISA_TILE_H

#include "kernels/cpu/isa/vec.h"

#include <stdbool.h>

/* Rows and vectors of a register block: 6 x 4 of 32 registers on AVX-512, 6 x 2 of 16 elsewhere. */
enum { TILE_ROWS = 6, TILE_VECS = VF_LANES == 16 ? 4 : 2 };

typedef struct tile_job {
    const float *a;
    int64_t a_row, a_col;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc, k;
    bool add;
} tile_job;

KRN_INLINE void tile_block(const tile_job *t, int64_t m0, int64_t n0, const int rows,
                           const int vecs)
{
    vf sum[TILE_ROWS][TILE_VECS];
    float *c = t->c + m0 * t->ldc + n0;
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++)
            sum[r][v] = t->add ? vf_load(c + r * t->ldc + v * VF_LANES) : vf_all(0.0f);
    }
    /* two pointers and multiples of one step reach six rows without running out of registers */
    const int64_t step = t->a_row, next = t->a_col, ldb = t->ldb;
    const float *low = t->a + m0 * step, *high = low + 3 * step, *b = t->b + n0;
    for (const float *end = b + t->k * ldb; b != end; b += ldb, low += next, high += next) {
        vf bv[TILE_VECS];
        for (int v = 0; v < vecs; v++)
            bv[v] = vf_load(b + v * VF_LANES);
        for (int r = 0; r < rows; r++) {
            vf av = vf_all(r < 3 ? low[r * step] : high[(r - 3) * step]);
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vf_fma(av, bv[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++)
            vf_store(c + r * t->ldc + v * VF_LANES, sum[r][v]);
    }
}

/* Where the time goes; a function of its own, so that the compiler sees nothing else. */
static __attribute__((noinline, unused)) void tile_full(const tile_job *t, int64_t m0, int64_t n0)
{
    tile_block(t, m0, n0, TILE_ROWS, TILE_VECS);
}

KRN_INLINE void tile_rows(const tile_job *t, int64_t m, int64_t n0, const int vecs)
{
    int64_t m0 = 0;
    for (; m0 + TILE_ROWS <= m; m0 += TILE_ROWS) {
        if (vecs == TILE_VECS)
            tile_full(t, m0, n0);
        else
            tile_block(t, m0, n0, TILE_ROWS, vecs);
    }
    switch (m - m0) {
    case 5:
        tile_block(t, m0, n0, 5, vecs);
        break;
    case 4:
        tile_block(t, m0, n0, 4, vecs);
        break;
    case 3:
        tile_block(t, m0, n0, 3, vecs);
        break;
    case 2:
        tile_block(t, m0, n0, 2, vecs);
        break;
    case 1:
        tile_block(t, m0, n0, 1, vecs);
        break;
    default:
        break;
    }
}

/* n: a multiple of VF_LANES. */
static inline __attribute__((unused)) void tile_mul(const tile_job *t, int64_t m, int64_t n)
{
    int64_t n0 = 0;
    for (; n0 + TILE_VECS * VF_LANES <= n; n0 += TILE_VECS * VF_LANES)
        tile_rows(t, m, n0, TILE_VECS);
    for (; n0 < n; n0 += VF_LANES)
        tile_rows(t, m, n0, 1);
}

#endif
