/*
 * The product of gemm.h without oneDNN: bf16 on machines where oneDNN has no bf16 code, and
 * whatever it refuses. One idea: blocks of a few rows and GEMM_PLAIN_K columns of a become fp32 on
 * the stack, then tile.h multiplies. Refuses to be fast on pair-packed panels; those reach it only
 * when oneDNN fails on a machine where it should not.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa/tile.h"

enum { PLAIN_K = 256 };

static void widen(atom_dtype dtype, float *dst, const void *src, int64_t at, int64_t n)
{
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(dst + i, vf_load_act(dtype, src, at + i));
    if (i < n) {
        float lanes[VF_LANES];
        vf_store(lanes, vf_load_act_n(dtype, src, at + i, n - i));
        memcpy(dst + i, lanes, (size_t)(n - i) * 4);
    }
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

static void put_row(const gemm_shape *s, const float *sum, int64_t row, const void *bias, void *c)
{
    for (int64_t j = 0; j < s->n; j++) {
        int64_t at = row * s->ldc + j;
        float x = sum[j];
        if (s->bias)
            x += s->in == ATOM_F32 ? ((const float *)bias)[j]
                                   : atom_bf16_to_f32(((const atom_bf16 *)bias)[j]);
        if (s->out == ATOM_F32)
            ((float *)c)[at] = s->add ? ((float *)c)[at] + x : x;
        else {
            atom_bf16 *p = (atom_bf16 *)c + at;
            *p = atom_f32_to_bf16(s->add ? atom_bf16_to_f32(*p) + x : x);
        }
    }
}

/* Adds rows m0 .. m0+m times k0 .. k0+k to sum[TILE_ROWS][GEMM_PANEL]. */
static void add_block(const gemm_shape *s, const void *a, const float *b, int64_t m0, int64_t m,
                      int64_t k0, int64_t k, float *sum)
{
    float wide[TILE_ROWS * PLAIN_K];
    for (int64_t r = 0; r < m; r++) {
        if (s->in == ATOM_F32)
            widen(ATOM_F32, wide + r * PLAIN_K, a, (m0 + r) * s->lda + k0, k);
        else
            widen(ATOM_BF16, wide + r * PLAIN_K, a, (m0 + r) * s->lda + k0, k);
    }
    tile_job t = {.a = wide,
                  .a_row = PLAIN_K,
                  .a_col = 1,
                  .b = b,
                  .ldb = GEMM_PANEL,
                  .c = sum,
                  .ldc = GEMM_PANEL,
                  .k = k,
                  .add = true};
    tile_mul(&t, m, GEMM_PANEL);
}

void KRN_ISA(krn_cpu_gemm_plain)(const gemm_shape *s, gemm_layout layout, const void *a,
                                 const void *b, const void *bias, void *c)
{
    float unpacked[PLAIN_K * GEMM_PANEL];
    for (int64_t m0 = 0; m0 < s->m; m0 += TILE_ROWS) {
        float sum[TILE_ROWS * GEMM_PANEL] = {0};
        int64_t m = s->m - m0 < TILE_ROWS ? s->m - m0 : TILE_ROWS;
        for (int64_t k0 = 0; k0 < s->k; k0 += PLAIN_K) {
            int64_t k = s->k - k0 < PLAIN_K ? s->k - k0 : PLAIN_K;
            const float *rows = (const float *)b + k0 * GEMM_PANEL;
            if (layout == GEMM_PAIRS) {
                unpack_pairs(unpacked, b, k0, k);
                rows = unpacked;
            }
            add_block(s, a, rows, m0, m, k0, k, sum);
        }
        for (int64_t r = 0; r < m; r++)
            put_row(s, sum + r * GEMM_PANEL, m0 + r, bias, c);
    }
}
