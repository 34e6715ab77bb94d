/*
 * Re-ordering of matrices for gemm.h: packed panels and transposes, in the layout that the machine
 * multiplies by.
 */
#ifndef KERNELS_CPU_ISA_PACK_H
#define KERNELS_CPU_ISA_PACK_H

#include "kernels/cpu/isa/blocks.h"
#include "kernels/cpu/isa/split.h"

/* Pairs of rows to columns of tiles (GEMM_TILES), `column` words from one to the next. */
enum { PACK_TILE = 16 };
KRN_INLINE void pack_tiles(uint32_t *dst, int64_t column, const pack_from *m, int64_t pairs)
{
    bool full = pairs * 2 <= m->rows && m->cols >= GEMM_PANEL;
    for (int64_t i = 0; i < pairs; i++) {
        const char *p = m->data + i * 2 * m->step;
#pragma GCC unroll 16
        for (int64_t j = 0; j < GEMM_PANEL; j += VF_LANES)
            vi_store(dst + j / PACK_TILE * column + i * PACK_TILE + j % PACK_TILE,
                     full ? pack_load_full(PACK_ZIP, p + j * 2, m->step)
                          : pack_load(PACK_ZIP, m, i * 2, j));
    }
}

/*
 * Rows r .. r + m->rows of one panel (k rows in all): b[r + i][n] = m[i][n]; m->cols <= GEMM_PANEL,
 * r a multiple of 32.
 */
KRN_INLINE void pack_rows(atom_dtype dtype, gemm_layout layout, void *panel, int64_t k, int64_t r,
                          const pack_from *m)
{
    int64_t rows = gemm_round_k(m->rows);
    uint32_t *dst = panel;
    if (layout == GEMM_SPLIT)
        split_panel_rows(panel, gemm_round_k(k), r, m);
    else if (dtype == ATOM_F32)
        pack_copy(PACK_WORDS, dst + r * GEMM_PANEL, GEMM_PANEL, m, rows, GEMM_PANEL);
    else if (layout == GEMM_WIDE)
        pack_copy(PACK_WIDE, dst + r * GEMM_PANEL, GEMM_PANEL, m, rows, GEMM_PANEL);
    else if (layout == GEMM_PAIRS)
        pack_copy(PACK_ZIP, dst + r / 2 * GEMM_PANEL, GEMM_PANEL, m, rows / 2, GEMM_PANEL);
    else
        pack_tiles(dst + r / 2 * PACK_TILE, gemm_round_k(k) / 2 * PACK_TILE, m, rows / 2);
}

/* The panel of b whose columns are the rows of m: b[k][n] = m[n][k]; m->rows <= GEMM_PANEL. */
KRN_INLINE void pack_cols(atom_dtype dtype, gemm_layout layout, void *panel, const pack_from *m)
{
    int64_t k = gemm_round_k(m->cols);
    if (layout == GEMM_SPLIT)
        split_panel_cols(panel, m);
    else if (dtype == ATOM_F32)
        pack_turn(PACK_WORDS, panel, GEMM_PANEL, m, GEMM_PANEL, k);
    else if (layout == GEMM_WIDE)
        pack_turn(PACK_WIDE, panel, GEMM_PANEL, m, GEMM_PANEL, k);
    else if (layout == GEMM_PAIRS)
        pack_turn(PACK_WORDS, panel, GEMM_PANEL, m, GEMM_PANEL, k / 2);
    else {
        for (int64_t n = 0; n < GEMM_PANEL; n += PACK_TILE) {
            pack_from part = *m;
            part.data += n * m->step;
            part.rows = m->rows - n;
            pack_turn(PACK_WORDS, (uint32_t *)panel + n * (k / 2), PACK_TILE, &part, PACK_TILE,
                      k / 2);
        }
    }
}

/* dst[c][r] = m[r][c]; dst rows are `ld` elements apart and written up to m->rows rounded up to 32,
 * with zeros. */
KRN_INLINE void pack_transpose(atom_dtype dtype, void *dst, int64_t ld, const pack_from *m)
{
    if (dtype == ATOM_F32)
        pack_turn(PACK_WORDS, dst, ld, m, gemm_round_k(m->rows), m->cols);
    else
        pack_turn(PACK_ZIP, dst, ld / 2, m, gemm_round_k(m->rows) / 2, m->cols);
}

/* The next columns of a row, while these are worked on: rows are pages apart. */
KRN_INLINE void pack_fetch(atom_dtype dtype, const void *base, int64_t at)
{
    const char *p = (const char *)base + at * (dtype == ATOM_F32 ? 4 : 2);
    for (int line = 0; line < GEMM_PANEL * (dtype == ATOM_F32 ? 4 : 2); line += 64)
        __builtin_prefetch(p + line);
}

/*
 * Rows r .. r+n of all panels (k rows each) of a right operand; r a multiple of 32. src: row r, at
 * element `at`, of a matrix of `width` columns. Reading rows, not columns, is what makes it fast.
 */
KRN_INLINE void pack_block(atom_dtype dtype, gemm_layout layout, void *panels, int64_t k, int64_t r,
                           const void *src, int64_t at, int64_t width, int64_t n)
{
    char *panel = panels;
    for (int64_t c = 0; c < width; c += GEMM_PANEL, panel += gemm_panel_bytes(layout, k)) {
        int64_t cols = width - c < GEMM_PANEL ? width - c : GEMM_PANEL;
        pack_from m = pack_at(dtype, src, at + c, width, n, cols);
        for (int64_t i = 0; i < n; i++)
            pack_fetch(dtype, src, at + i * width + c + GEMM_PANEL);
        pack_rows(dtype, layout, panel, k, r, &m);
    }
}

#endif
