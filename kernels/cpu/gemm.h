/*
 * Panels of a right operand, and oneDNN's part in multiplying by them. isa/product.h is the way to
 * multiply; it comes here where it has no faster code of its own.
 *
 * A product c[m,n] = a[m,k] b[k,n] reads a as it is, row-major and dense, and b as packed panels of
 * 64 columns, one behind the other, written by isa/pack.h; k32 is k rounded up to 32, what is
 * missing is zero:
 *
 *   GEMM_WIDE    fp32   [k32][64]               fp32, and bf16 on machines without bf16 products
 *   GEMM_PAIRS   bf16   [k32/2][64][2]          pairs of rows side by side; oneDNN's BA16a64b2a
 *   GEMM_TILES   bf16   [4][k32/2][16][2]       the same in columns of AMX tiles
 *   GEMM_SPLIT   fp32   three bf16 parts of each number in tiles (isa/split.h);
 *                                           the left operand too
 *
 * Thread: any. Errors: none; where oneDNN has nothing for a shape or a machine, plain vector code
 * takes its place (isa/plain.c).
 */
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "atom/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { GEMM_PANEL = 64, GEMM_ROWS = 256 };

typedef enum gemm_layout { GEMM_WIDE, GEMM_PAIRS, GEMM_TILES, GEMM_SPLIT } gemm_layout;

/* GEMM_PAIRS for bf16 where oneDNN has compiled code for it, else GEMM_WIDE. Never changes. */
gemm_layout gemm_layout_of(atom_dtype dtype);

/* k rounded up as panels are: with zeros in a too, a product may run over all of it. */
static inline int64_t gemm_round_k(int64_t k)
{
    return (k + 31) / 32 * 32;
}
static inline uint64_t gemm_panel_bytes(gemm_layout layout, int64_t k)
{
    const uint64_t bytes[] = {
        [GEMM_WIDE] = 4, [GEMM_PAIRS] = 2, [GEMM_TILES] = 2, [GEMM_SPLIT] = 6};
    return (uint64_t)gemm_round_k(k) * GEMM_PANEL * bytes[layout];
}
/* The widest layout of a dtype: what to plan with, on any machine. */
static inline gemm_layout gemm_layout_widest(atom_dtype dtype)
{
    return dtype == ATOM_F32 ? GEMM_SPLIT : GEMM_WIDE;
}
/* Of a left operand in GEMM_SPLIT. */
static inline uint64_t gemm_left_bytes(int64_t rows, int64_t k)
{
    return (uint64_t)gemm_round_k(rows) * (uint64_t)gemm_round_k(k) * 6;
}
static inline int64_t gemm_panels(int64_t n)
{
    return (n + GEMM_PANEL - 1) / GEMM_PANEL;
}

/* tile[m,64] f32, dense, = a[m,k] times one panel; m <= GEMM_ROWS. A plain value, valid as long as
 * the process. */
typedef struct gemm {
    int64_t m, k;
    atom_dtype in;
    const struct gemm_entry *entry; /* NULL: plain code does it */
} gemm;

/* Makes a oneDNN primitive on first use of a shape: once per kernel call, not in its loops. */
gemm gemm_get(atom_dtype in, int64_t m, int64_t k);
void gemm_run(const gemm *g, const void *a, const void *b, float *tile);

/* plain.c, per instruction set: the same without oneDNN. */
typedef void (*gemm_plain_fn)(const gemm *g, gemm_layout layout, const void *a, const void *b,
                              float *tile);
void krn_cpu_gemm_plain_base(const gemm *g, gemm_layout layout, const void *a, const void *b,
                             float *tile);
void krn_cpu_gemm_plain_avx2(const gemm *g, gemm_layout layout, const void *a, const void *b,
                             float *tile);
void krn_cpu_gemm_plain_avx512(const gemm *g, gemm_layout layout, const void *a, const void *b,
                               float *tile);

#endif
