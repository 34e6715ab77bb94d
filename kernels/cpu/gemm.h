/*
 * Products of matrices, one tile at a time, by the calling thread alone:
 *
 *   tile[m,64] = a[m,k] b[k,64]        f32, dense, at most GEMM_ROWS rows: stays in the L2 cache
 *
 * Whoever wants the tile adds what belongs to it (bias, gelu, an older sum) and writes it where it
 * goes, rounded once. oneDNN does the product (DESIGN 8); its fast code takes dense operands only,
 * and is fastest on tiles of this kind, because they and a panel of b stay in cache.
 *
 *   a   rows of k elements, dense; or cut into chunks along k, each [m][chunk] dense, one behind
 * the other (gemm_chunk()), which keeps long rows from falling out of the L1 cache b   packed
 * panels of 64 columns, as isa/pack.h writes them: fp32   [k32][64]         k32: k rounded up to
 * 32; what is missing is zero bf16   [k32/2][64][2]    pairs of rows side by side or, where
 * gemm_layout_of() says GEMM_WIDE, bf16 panels are fp32 too
 *
 * The grid of tiles is a function of the shape only; so bits never depend on threads (DESIGN D5).
 * Thread: any. Errors: none; where oneDNN has nothing for a shape or a machine, plain vector code
 * takes its place (isa/plain.c).
 */
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "atom/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { GEMM_PANEL = 64, GEMM_ROWS = 256, GEMM_CHUNK = 768 };

typedef enum gemm_layout { GEMM_PAIRS, GEMM_WIDE } gemm_layout;

/* How panels of this dtype are packed on this machine; never changes. */
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

/* How long the chunks of a left operand with k columns should be: k itself, or a multiple of 64,
 * all equal but the last. */
static inline int64_t gemm_chunk(int64_t k)
{
    int64_t chunks = (k + GEMM_CHUNK - 1) / GEMM_CHUNK;
    return chunks <= 1 ? k : ((k + chunks - 1) / chunks + 63) / 64 * 64;
}

/* Where column k0 of row 0 is in a left operand of m rows, in elements, and how far rows are apart.
 */
typedef struct gemm_place {
    int64_t at, step;
} gemm_place;
static inline gemm_place gemm_chunk_place(int64_t m, int64_t k, int64_t chunk, int64_t k0)
{
    int64_t first = k0 / chunk * chunk;
    return (gemm_place){first * m + k0 - first, k - first < chunk ? k - first : chunk};
}

typedef struct gemm_tile {
    _Alignas(64) float at[GEMM_ROWS * GEMM_PANEL];
} gemm_tile;

/* One prepared product of a tile; a plain value, valid as long as the process. */
typedef struct gemm {
    int64_t m, k;
    atom_dtype in;
    bool add;                       /* to what the tile holds */
    const struct gemm_entry *entry; /* NULL: plain code does it */
} gemm;

/*
 * c[m,n] = a[m,k] b[k,n] as a grid of tiles. `chunk`: k, or what gemm_chunk() said when a was
 * written.
 */
typedef struct gemm_grid {
    int64_t m, n, k, chunk;
    atom_dtype in;
    uint32_t row_blocks, panels;
    gemm parts[2][3]; /* [last row block][first chunk, one between, the last of several] */
} gemm_grid;

/* Where a tile is in c. n <= 64; the tile's other columns hold zeros or nothing of use. */
typedef struct gemm_spot {
    int64_t m0, m, n0, n;
} gemm_spot;

/* Makes primitives on first use of a shape: once per kernel call, not in its loops. */
gemm_grid gemm_grid_open(atom_dtype in, int64_t m, int64_t n, int64_t k, int64_t chunk);

/* Tiles; as indices of a parallel loop, neighbours share rows of a. */
static inline uint32_t gemm_grid_tiles(const gemm_grid *grid)
{
    return grid->row_blocks * grid->panels;
}
gemm_spot gemm_grid_run(const gemm_grid *grid, uint32_t i, const void *a, const void *b,
                        gemm_tile *tile);

/* plain.c, per instruction set: one product of a tile without oneDNN. */
typedef void (*gemm_plain_fn)(const gemm *g, gemm_layout layout, const void *a, const void *b,
                              float *tile);
void krn_cpu_gemm_plain_base(const gemm *g, gemm_layout layout, const void *a, const void *b,
                             float *tile);
void krn_cpu_gemm_plain_avx2(const gemm *g, gemm_layout layout, const void *a, const void *b,
                             float *tile);
void krn_cpu_gemm_plain_avx512(const gemm *g, gemm_layout layout, const void *a, const void *b,
                               float *tile);

#endif
