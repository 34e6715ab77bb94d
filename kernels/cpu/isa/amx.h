/*
 * AMX: products of bf16 blocks that are in the L1 cache, summed in fp32 (Intel Architecture
 * Instruction Set Extensions Programming Reference, chapter 3). For attention's tiles, which are
 * too small for a oneDNN call each. Only in the AVX-512 variant; krn_amx_usable() (matmul.h) says
 * at run time.
 *
 *   c[m,n] f32 = a[m,k] b[k,n] (+ c)      m, n, k multiples of 32
 *   a  bf16 row-major;  b  bf16 pairs: [k/2][n][2] (isa/pack.h);  steps in elements, of b in pairs
 */
#ifndef KERNELS_CPU_ISA_AMX_H
#define KERNELS_CPU_ISA_AMX_H

#include "kernels/cpu/isa/vec.h"

#include "kernels/cpu/matmul.h"

#include <stdbool.h>

#if defined(__AVX512F__)

/* attention_amx.c, attention_amx_bwd.c: entries of attention in bf16. */
void krn_cpu_attention_amx_fwd(krn_ctx *cx, const krn_args *args);
void krn_cpu_attention_amx_bwd(krn_ctx *cx, const krn_args *args);

/*
 * Tiles of 64 bytes a row: 0 1 2 3 sums, 4 5 left, 6 7 right operands. Tiles of the upper half of a
 * block of rows (0 1 4) and of the lower (2 3 5) have `rows` together, 1 .. 32; right tiles
 * have 16. Before the first product of a task; after its last, amx_close(): oneDNN has its own
 * ideas.
 */
KRN_INLINE void amx_open(int64_t rows)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    uint8_t upper = (uint8_t)(rows < 16 ? rows : 16);
    uint8_t lower = (uint8_t)(rows > 16 ? rows - 16 : 16);
    const uint8_t count[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = count[i];
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
KRN_INLINE void amx_close(void)
{
    __asm__ volatile("tilerelease" ::: "memory");
}

#define AMX_LOAD(tile, p, step_bytes)                                                              \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(p), "r"(step_bytes) : "memory")
#define AMX_STORE(tile, p, step_bytes)                                                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(p), "r"(step_bytes) : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define AMX_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

/* 32 x 32 of c. */
KRN_INLINE void amx_block(float *c, int64_t ldc, bool add, const atom_bf16 *a, int64_t lda,
                          const atom_bf16 *b, int64_t ldb, int64_t k)
{
    int64_t c_bytes = ldc * 4, a_bytes = lda * 2, b_bytes = ldb * 4;
    if (add) {
        AMX_LOAD(0, c, c_bytes);
        AMX_LOAD(1, c + 16, c_bytes);
        AMX_LOAD(2, c + 16 * ldc, c_bytes);
        AMX_LOAD(3, c + 16 * ldc + 16, c_bytes);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (int64_t at = 0; at < k; at += 32) {
        AMX_LOAD(6, b + at * ldb, b_bytes);
        AMX_LOAD(4, a + at, a_bytes);
        AMX_DOT(0, 4, 6);
        AMX_LOAD(7, b + at * ldb + 32, b_bytes);
        AMX_DOT(1, 4, 7);
        AMX_LOAD(5, a + 16 * lda + at, a_bytes);
        AMX_DOT(2, 5, 6);
        AMX_DOT(3, 5, 7);
    }
    AMX_STORE(0, c, c_bytes);
    AMX_STORE(1, c + 16, c_bytes);
    AMX_STORE(2, c + 16 * ldc, c_bytes);
    AMX_STORE(3, c + 16 * ldc + 16, c_bytes);
}

KRN_INLINE void amx_mul(float *c, int64_t ldc, bool add, const atom_bf16 *a, int64_t lda,
                        const atom_bf16 *b, int64_t ldb, int64_t m, int64_t n, int64_t k)
{
    for (int64_t j = 0; j < n; j += 32) {
        for (int64_t i = 0; i < m; i += 32)
            amx_block(c + i * ldc + j, ldc, add, a + i * lda, lda, b + j * 2, ldb, k);
    }
}

/* One k-step of 32 of a block of 32 columns; `two`: more than 16 rows. */
KRN_INLINE void amx_step(const atom_bf16 *a, int64_t a_bytes, const atom_bf16 *b, int64_t column,
                         const bool two)
{
    const int64_t b_bytes = 64;
    AMX_LOAD(6, b, b_bytes);
    AMX_LOAD(4, a, a_bytes);
    AMX_DOT(0, 4, 6);
    AMX_LOAD(7, b + column, b_bytes);
    AMX_DOT(1, 4, 7);
    if (two) {
        AMX_LOAD(5, a + a_bytes / 2 * 16, a_bytes);
        AMX_DOT(2, 5, 6);
        AMX_DOT(3, 5, 7);
    }
}

/* What a strip multiplies: rows of a (lda elements apart), a panel in tiles (gemm.h), k. `tail`:
 * the last k % 32 columns of a as [32][32], the rest zero. `next`: what to bring to the L2 cache
 * meanwhile, 128 bytes per row and step; or NULL. */
typedef struct amx_strip {
    const atom_bf16 *a, *panel, *tail;
    int64_t lda, k;
    const char *next;
} amx_strip;

/* buf[rows][64] f32 = 32 columns from column c of a strip; amx_open(rows) came before. */
KRN_INLINE void amx_strip_half(float *buf, const amx_strip *s, int64_t c, const bool two)
{
    const int64_t column = (s->k + 31) / 32 * 512, buf_bytes = 256;
    const atom_bf16 *b = s->panel + c / 16 * column;
    const char *next = s->next ? s->next + c / 32 * (s->k / 32 * 256) : NULL;
    int64_t at = 0;
    AMX_ZERO(0);
    AMX_ZERO(1);
    if (two) {
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (; at + 32 <= s->k; at += 32) {
        amx_step(s->a + at, s->lda * 2, b + at * 16, column, two);
        for (int line = 0; line < 4 && next; line++)
            __builtin_prefetch(next + line * 64, 0, 2);
        next = next ? next + 256 : NULL;
    }
    if (at < s->k)
        amx_step(s->tail, 64, b + at * 16, column, two);
    AMX_STORE(0, buf + c, buf_bytes);
    AMX_STORE(1, buf + c + 16, buf_bytes);
    if (two) {
        AMX_STORE(2, buf + c + 16 * 64, buf_bytes);
        AMX_STORE(3, buf + c + 16 * 64 + 16, buf_bytes);
    }
}

/* Four tile products: both left tiles by both right ones. */
#define AMX_ALL_FOUR()                                                                             \
    AMX_DOT(0, 4, 6);                                                                              \
    AMX_DOT(1, 4, 7);                                                                              \
    AMX_DOT(2, 5, 6);                                                                              \
    AMX_DOT(3, 5, 7)

/*
 * 32 x 32 of c (rows of 64) = `steps` steps of split operands (split.h) (+ c): six products of
 * parts per step, from the small to the large. Fourteen loads for 24 tile products.
 */
KRN_INLINE void amx_split_half(float *c, const char *a, const char *b, int64_t steps, bool add)
{
    enum { TILE = 1024, H = 0, M = 2048, L = 4096, STEP = 6144 };
    const int64_t line = 64, c_bytes = 256;
    if (add) {
        AMX_LOAD(0, c, c_bytes);
        AMX_LOAD(1, c + 16, c_bytes);
        AMX_LOAD(2, c + 16 * 64, c_bytes);
        AMX_LOAD(3, c + 16 * 64 + 16, c_bytes);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (const char *end = a + steps * STEP; a != end; a += STEP, b += STEP) {
        AMX_LOAD(4, a + L, line);
        AMX_LOAD(6, b + H, line);
        AMX_LOAD(7, b + H + TILE, line);
        AMX_LOAD(5, a + L + TILE, line);
        AMX_ALL_FOUR(); /* l h */
        AMX_LOAD(4, a + M, line);
        AMX_LOAD(5, a + M + TILE, line);
        AMX_ALL_FOUR(); /* m h */
        AMX_LOAD(6, b + M, line);
        AMX_LOAD(7, b + M + TILE, line);
        AMX_ALL_FOUR(); /* m m */
        AMX_LOAD(4, a + H, line);
        AMX_LOAD(5, a + H + TILE, line);
        AMX_ALL_FOUR(); /* h m */
        AMX_LOAD(6, b + L, line);
        AMX_LOAD(7, b + L + TILE, line);
        AMX_ALL_FOUR(); /* h l */
        AMX_LOAD(6, b + H, line);
        AMX_LOAD(7, b + H + TILE, line);
        AMX_ALL_FOUR(); /* h h */
    }
    AMX_STORE(0, c, c_bytes);
    AMX_STORE(1, c + 16, c_bytes);
    AMX_STORE(2, c + 16 * 64, c_bytes);
    AMX_STORE(3, c + 16 * 64 + 16, c_bytes);
}

#undef AMX_ALL_FOUR
#undef AMX_LOAD
#undef AMX_STORE
#undef AMX_ZERO
#undef AMX_DOT

#endif
#endif
