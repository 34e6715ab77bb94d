/*
 * A tile of gemm.h without oneDNN: fp32 where this is faster (gemm.c says when), bf16 on machines
 * where oneDNN has no bf16 code, and whatever it refuses. One idea: tile.h multiplies; in bf16,
 * blocks of PLAIN_ROWS rows and PLAIN_K columns of a become fp32 on the stack first. Refuses to be fast
 * on pair-packed panels; those reach it only when oneDNN fails on a machine where it should not.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa/tile.h"

enum { PLAIN_K = 256, PLAIN_ROWS = 8 * TILE_ROWS };

static void widen(float *dst, const atom_bf16 *src, int64_t n)
{
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(dst + i, vf_load_bf16(src + i));
    for (; i < n; i++)
        dst[i] = atom_bf16_to_f32(src[i]);
}

/* Rows k0 .. k0+k of a pair-packed panel as fp32 rows. */
static void unpack_pairs(float *dst, const atom_bf16 *b, int64_t k0, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        const atom_bf16 *row = b + (k0 + i) / 2 * 2 * GEMM_PANEL + ((k0 + i) & 1);
        for (int64_t j = 0; j < GEMM_PANEL; j++)
            dst[i * GEMM_PANEL + j] = atom_bf16_to_f32(row[2 * j]);
    }
}

void KRN_ISA(krn_cpu_gemm_plain)(const gemm *g, gemm_layout layout, const void *a, const void *b,
                                 float *tile)
{
    if (g->in == ATOM_F32) {
        tile_job all = {a, g->k, 1, b, GEMM_PANEL, tile, GEMM_PANEL, g->k, false};
        tile_mul(&all, g->m, GEMM_PANEL);
        return;
    }
    float unpacked[PLAIN_K * GEMM_PANEL], wide[PLAIN_ROWS * PLAIN_K];
    for (int64_t k0 = 0; k0 < g->k; k0 += PLAIN_K) {
        int64_t k = g->k - k0 < PLAIN_K ? g->k - k0 : PLAIN_K;
        const float *rows = (const float *)b + k0 * GEMM_PANEL;
        if (layout == GEMM_PAIRS) {
            unpack_pairs(unpacked, b, k0, k);
            rows = unpacked;
        }
        for (int64_t m0 = 0; m0 < g->m; m0 += PLAIN_ROWS) {
            int64_t m = g->m - m0 < PLAIN_ROWS ? g->m - m0 : PLAIN_ROWS;
            for (int64_t r = 0; r < m; r++) {
                int64_t at = (m0 + r) * g->k + k0;
                widen(wide + r * PLAIN_K, (const atom_bf16 *)a + at, k);
            }
            tile_job t = {.a = wide,
                          .a_row = PLAIN_K,
                          .a_col = 1,
                          .b = rows,
                          .ldb = GEMM_PANEL,
                          .c = tile + m0 * GEMM_PANEL,
                          .ldc = GEMM_PANEL,
                          .k = k,
                          .add = k0 > 0};
            tile_mul(&t, m, GEMM_PANEL);
        }
    }
}
