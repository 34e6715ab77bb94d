/*
 * One matrix product on one panel, by the calling thread alone: c[m,n] = a[m,k] b[k,n] (+ bias) (+
 * c).
 *
 *   a     row-major, lda elements from row to row
 *   b     one packed panel of at most GEMM_PANEL columns, as isa/pack.h writes it:
 *           fp32   [k32][64]        k32: k rounded up to 32; what is missing is zero
 *           bf16   [k32/2][64][2]   pairs of rows side by side
 *         or, where gemm_layout() says GEMM_WIDE, bf16 operands are packed as fp32 too
 *   bias  [n] in a's dtype, or NULL where the shape has none
 *   c     row-major, ldc elements from row to row, out dtype; one rounding after all is added
 *
 * oneDNN does the work (DESIGN 8). Its primitives are made once per shape and shared by all
 * threads; each call runs on one thread, so bits depend on the panel grid only (DESIGN D5).
 *
 * Thread: any. Errors: none; where oneDNN has nothing for a shape or a machine, plain vector code
 * takes its place (isa/plain.c).
 */
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "atom/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { GEMM_PANEL = 64 };

typedef enum gemm_layout { GEMM_PAIRS, GEMM_WIDE } gemm_layout;

/* How bf16 panels are packed on this machine; never changes. fp32 is always GEMM_WIDE. */
gemm_layout gemm_layout_of(atom_dtype dtype);

/* k rounded up as panels are: with zeros in a too, a product may run over all of it. */
static inline int64_t gemm_round_k(int64_t k)
{
    return (k + 31) / 32 * 32;
}
/* Bytes of one packed panel with k rows: at most (fp32), and on this machine. */
static inline uint64_t gemm_panel_bytes_max(int64_t k)
{
    return (uint64_t)gemm_round_k(k) * GEMM_PANEL * 4;
}
uint64_t gemm_panel_bytes(atom_dtype dtype, int64_t k);

static inline int64_t gemm_panels(int64_t n)
{
    return (n + GEMM_PANEL - 1) / GEMM_PANEL;
}

typedef struct gemm_shape {
    int64_t m, n, k; /* n <= GEMM_PANEL */
    int64_t lda, ldc;
    atom_dtype in, out;
    bool add;  /* c is added to */
    bool bias; /* bias is added; not together with add */
} gemm_shape;

/* A prepared product; a plain value, valid as long as the process. */
typedef struct gemm {
    gemm_shape shape;
    const struct gemm_entry *entry; /* NULL: plain code does it */
} gemm;

/* Looks the shape up, or makes its primitive on first use. Not for the inner loop: once per call.
 */
gemm gemm_get(const gemm_shape *shape);

void gemm_run(const gemm *g, const void *a, const void *b, const void *bias, void *c);

/*
 * A large product as a grid of panels: row blocks of `row_step` times column panels, all tasks of
 * one or more atom_parallel loops. b: gemm_panels(n) panels, gemm_panel_bytes() apart.
 */
typedef struct gemm_grid {
    gemm_shape shape; /* m, n of the whole product */
    int64_t row_step;
    uint32_t row_blocks, panels;
    gemm parts[2][2]; /* [last row block][last panel] */
} gemm_grid;

/* Where task i of a grid is. */
typedef struct gemm_spot {
    int64_t m0, m, n0, n;
} gemm_spot;

void gemm_grid_open(gemm_grid *grid, const gemm_shape *shape, int64_t row_step);
static inline uint32_t gemm_grid_count(const gemm_grid *grid)
{
    return grid->row_blocks * grid->panels;
}
/* Neighbouring tasks share rows of a. */
gemm_spot gemm_grid_spot(const gemm_grid *grid, uint32_t i);
void gemm_grid_run(const gemm_grid *grid, uint32_t i, const void *a, const void *b,
                   const void *bias, void *c);

/* plain.c, per instruction set: the same without oneDNN; b packed as `layout`. */
typedef void (*gemm_plain_fn)(const gemm_shape *shape, gemm_layout layout, const void *a,
                              const void *b, const void *bias, void *c);
void krn_cpu_gemm_plain_base(const gemm_shape *shape, gemm_layout layout, const void *a,
                             const void *b, const void *bias, void *c);
void krn_cpu_gemm_plain_avx2(const gemm_shape *shape, gemm_layout layout, const void *a,
                             const void *b, const void *bias, void *c);
void krn_cpu_gemm_plain_avx512(const gemm_shape *shape, gemm_layout layout, const void *a,
                               const void *b, const void *bias, void *c);

#endif
