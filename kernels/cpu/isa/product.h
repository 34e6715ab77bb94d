/*
 * c[m,n] = a[m,k] b[k,n] as tasks of a parallel loop: a dense and row-major, b in panels (gemm.h).
 * What becomes of c is the caller's: it gets finished strips of a few rows by 64 columns, f32,
 * still in the L1 cache, adds what belongs to them and writes them where they go, rounded once.
 *
 * What multiplies, where:
 *
 *   bf16, AVX-512 with AMX    AMX tiles (amx.h)
 *   fp32, AVX-512 with AMX    the same tiles, each number in three parts (split.h)
 *   fp32, AVX-512             vector code (tile.h)
 *   else                      oneDNN (gemm.c), or plain.c where it cannot
 *
 * oneDNN 2.6 is left out of the first three because it takes dense operands only, cannot be told to
 * bring the next panel to the L2 cache, and was slower by 30 % and 12 % when panels came from the
 * L3 cache.
 *
 * In GEMM_SPLIT the left operand is packed too: `a` is then what split_left() wrote.
 *
 * A task is PRODUCT_ROWS rows by PRODUCT_PANELS panels: rows of a stay in the L2 cache, panels
 * stream. Tasks are a function of the shape only, so bits never depend on threads
 * (docs/design/engine.md#the-same-bits).
 */
#ifndef KERNELS_CPU_ISA_PRODUCT_H
#define KERNELS_CPU_ISA_PRODUCT_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/split.h"
#include "kernels/cpu/isa/tile.h"

enum { PRODUCT_ROWS = GEMM_ROWS, PRODUCT_PANELS = 3, PRODUCT_STRIP = 8 * TILE_ROWS };

/* Longer panels do not fit beside the rows of a: no use in asking for the next one early. */
enum { PRODUCT_FETCH_BYTES = 256 << 10 };

typedef struct product {
    int64_t m, n, k;
    atom_dtype in;
    gemm_layout layout;
    uint32_t row_blocks, groups;
    gemm parts[2]; /* oneDNN: a full block of rows, the last one */
} product;

/* Where a strip is in c; n <= 64. */
typedef struct product_spot {
    int64_t m0, m, n0, n;
} product_spot;

/* strip: f32, rows of 64. */
typedef void (*product_out)(const void *ctx, const float *strip, product_spot spot);

/* How panels are packed for this dtype, in this instruction set's code on this machine. */
KRN_INLINE gemm_layout product_layout(atom_dtype dtype)
{
#if defined(__AVX512F__)
    if (krn_amx_usable())
        return dtype == ATOM_BF16 ? GEMM_TILES : GEMM_SPLIT;
#endif
    return gemm_layout_of(dtype);
}

KRN_INLINE bool product_is_own(const product *p)
{
    return p->layout >= GEMM_TILES || (p->in == ATOM_F32 && VF_LANES == 16);
}

KRN_INLINE product product_open(atom_dtype in, int64_t m, int64_t n, int64_t k)
{
    product p = {.m = m, .n = n, .k = k, .in = in, .layout = product_layout(in)};
    p.row_blocks = (uint32_t)krn_ceil_div(m, PRODUCT_ROWS);
    p.groups = (uint32_t)krn_ceil_div(n, PRODUCT_PANELS * GEMM_PANEL);
    if (!product_is_own(&p)) {
        p.parts[0] = gemm_get(in, krn_min(m, PRODUCT_ROWS), k);
        p.parts[1] = gemm_get(in, m - (int64_t)(p.row_blocks - 1) * PRODUCT_ROWS, k);
    }
    return p;
}

/* How many; neighbours share rows of a. */
KRN_INLINE uint32_t product_tasks(const product *p)
{
    return p->row_blocks * p->groups;
}

#if defined(__AVX512F__)
/* The last k % 32 columns of `rows` rows, so that no tile reads beyond a row. */
KRN_INLINE void product_tail(const product *p, const atom_bf16 *a, int64_t rows,
                             atom_bf16 tail[32 * 32])
{
    int64_t rest = p->k % 32;
    memset(tail, 0, 32 * 32 * sizeof *tail);
    for (int64_t r = 0; r < rows; r++)
        memcpy(tail + r * 32, a + r * p->k + p->k - rest, (size_t)rest * sizeof *tail);
}

/* Strips of one panel. They go to `tile`, one under the other, or if that is NULL to a small
 * buffer; and then to out. */
KRN_INLINE void product_amx_panel(const product *p, const atom_bf16 *a, const char *panel,
                                  const char *next, product_spot spot, float *tile, product_out out,
                                  const void *ctx)
{
    _Alignas(64) float buffer[32 * GEMM_PANEL];
    _Alignas(64) atom_bf16 tail[32 * 32];
    for (int64_t m = 0; m < spot.m; m += 32) {
        product_spot part = {spot.m0 + m, krn_min(32, spot.m - m), spot.n0, spot.n};
        float *strip = tile ? tile + m * GEMM_PANEL : buffer;
        amx_strip s = {.a = a + part.m0 * p->k,
                       .panel = (const atom_bf16 *)(const void *)panel,
                       .tail = tail,
                       .lda = p->k,
                       .k = p->k,
                       .next = next};
        if (p->k % 32)
            product_tail(p, s.a, part.m, tail);
        if (part.m < 32)
            amx_open(part.m);
        for (int64_t c = 0; c < spot.n; c += 32) {
            if (part.m > 16)
                amx_strip_half(strip, &s, c, true);
            else
                amx_strip_half(strip, &s, c, false);
        }
        if (part.m < 32)
            amx_open(32);
        next = next ? next + p->k / 32 * 512 : NULL;
        out(ctx, strip, part);
    }
}
#endif

#if defined(__AVX512F__)
/* Steps of k at a time: rows of a and a panel of them fit the L2 cache together. */
enum { SPLIT_BLOCK = 24 };

/* Strip of 32 rows at row m of spot += steps [from, from + SPLIT_BLOCK) under one panel. */
KRN_INLINE void product_split_strip(const product *p, const void *a, const char *panel, int64_t m,
                                    int64_t from, float *strip)
{
    int64_t steps = gemm_round_k(p->k) / 32, n = krn_min(SPLIT_BLOCK, steps - from);
    const char *left = (const char *)a + (m / 32 * steps + from) * SPLIT_STEP;
    for (int64_t half = 0; half < 2; half++)
        amx_split_half(strip + half * 32, left, panel + (half * steps + from) * SPLIT_STEP, n,
                       from > 0);
}

/* All of a task: blocks of k, then panels, then strips; sums wait in `sums` between blocks. */
KRN_INLINE void product_split_run(const product *p, product_spot spot, const void *a,
                                  const char *panels, product_out out, const void *ctx)
{
    _Alignas(64) float sums[PRODUCT_PANELS][PRODUCT_ROWS * GEMM_PANEL];
    int64_t steps = gemm_round_k(p->k) / 32;
    for (int64_t from = 0; from < steps; from += SPLIT_BLOCK) {
        bool last = from + SPLIT_BLOCK >= steps;
        for (int64_t n = 0; n < spot.n; n += GEMM_PANEL) {
            const char *panel = panels + n * steps * (SPLIT_STEP / 32);
            for (int64_t m = 0; m < spot.m; m += 32) {
                float *strip =
                    sums[last && !from ? 0 : n / GEMM_PANEL] + (last && !from ? 0 : m * GEMM_PANEL);
                product_split_strip(p, a, panel, spot.m0 + m, from, strip);
                product_spot part = {spot.m0 + m, krn_min(32, spot.m - m), spot.n0 + n,
                                     krn_min(GEMM_PANEL, spot.n - n)};
                if (last)
                    out(ctx, strip, part);
            }
        }
    }
}

/* One panel under the rows of spot, to `tile`. */
KRN_INLINE void product_split_tile(const product *p, const void *a, const char *panel,
                                   product_spot spot, float *tile)
{
    for (int64_t from = 0; from < gemm_round_k(p->k) / 32; from += SPLIT_BLOCK) {
        for (int64_t m = 0; m < spot.m; m += 32)
            product_split_strip(p, a, panel, spot.m0 + m, from, tile + m * GEMM_PANEL);
    }
}
#endif

/* The same for fp32 in vector registers. */
KRN_INLINE void product_f32_panel(const product *p, const float *a, const char *panel,
                                  const char *next, product_spot spot, float *tile, product_out out,
                                  const void *ctx)
{
    _Alignas(64) float buffer[PRODUCT_STRIP * GEMM_PANEL];
    int64_t share = p->k * 256 / (PRODUCT_ROWS / PRODUCT_STRIP);
    for (int64_t m = 0; m < spot.m; m += PRODUCT_STRIP) {
        product_spot part = {spot.m0 + m, krn_min(PRODUCT_STRIP, spot.m - m), spot.n0, spot.n};
        float *strip = tile ? tile + m * GEMM_PANEL : buffer;
        tile_job t = {.a = a + part.m0 * p->k,
                      .a_row = p->k,
                      .a_col = 1,
                      .b = (const float *)(const void *)panel,
                      .ldb = GEMM_PANEL,
                      .c = strip,
                      .ldc = GEMM_PANEL,
                      .k = p->k};
        for (int64_t at = 0; at < share && next; at += 64)
            __builtin_prefetch(next + at, 0, 2);
        next = next ? next + share : NULL;
        tile_mul(&t, part.m, GEMM_PANEL);
        out(ctx, strip, part);
    }
}

/* One panel under the rows of spot. */
KRN_INLINE void product_panel(const product *p, const void *a, const char *panel, const char *next,
                              product_spot spot, float *tile, product_out out, const void *ctx)
{
#if defined(__AVX512F__)
    if (p->layout == GEMM_TILES) {
        product_amx_panel(p, a, panel, next, spot, tile, out, ctx);
        return;
    }
    if (p->layout == GEMM_SPLIT) {
        product_split_tile(p, a, panel, spot, tile);
        return;
    }
#endif
    if (product_is_own(p)) {
        product_f32_panel(p, a, panel, next, spot, tile, out, ctx);
        return;
    }
    _Alignas(64) float buffer[PRODUCT_ROWS * GEMM_PANEL];
    gemm_run(&p->parts[spot.m0 + spot.m == p->m],
             (const char *)a + (uint64_t)(spot.m0 * p->k) * atom_dtype_bytes(p->in), panel,
             tile ? tile : buffer);
    out(ctx, tile ? tile : buffer, spot);
}

/* Before the first panel of a task, and after its last. */
KRN_INLINE void product_begin(const product *p)
{
#if defined(__AVX512F__)
    if (p->layout >= GEMM_TILES)
        amx_open(32);
#endif
    (void)p;
}
KRN_INLINE void product_end(const product *p)
{
#if defined(__AVX512F__)
    if (p->layout >= GEMM_TILES)
        amx_close();
#endif
    (void)p;
}

/* Task i: every strip of its part of c goes to out(ctx, ...). */
KRN_INLINE void product_run(const product *p, uint32_t i, const void *a, const void *b,
                            product_out out, const void *ctx)
{
    int64_t m0 = (int64_t)(i / p->groups) * PRODUCT_ROWS;
    int64_t n0 = (int64_t)(i % p->groups) * PRODUCT_PANELS * GEMM_PANEL;
    int64_t end = krn_min(n0 + PRODUCT_PANELS * GEMM_PANEL, p->n);
    uint64_t bytes = gemm_panel_bytes(p->layout, p->k);
    const char *panel = (const char *)b + (uint64_t)(n0 / GEMM_PANEL) * bytes;
    product_begin(p);
#if defined(__AVX512F__)
    if (p->layout == GEMM_SPLIT) {
        product_spot all = {m0, krn_min(PRODUCT_ROWS, p->m - m0), n0, end - n0};
        product_split_run(p, all, a, panel, out, ctx);
        product_end(p);
        return;
    }
#endif
    for (int64_t n = n0; n < end; n += GEMM_PANEL, panel += bytes) {
        product_spot spot = {m0, krn_min(PRODUCT_ROWS, p->m - m0), n, krn_min(GEMM_PANEL, end - n)};
        bool fetch = n + GEMM_PANEL < end && bytes <= PRODUCT_FETCH_BYTES;
        product_panel(p, a, panel, fetch ? panel + bytes : NULL, spot, NULL, out, ctx);
    }
    product_end(p);
}

KRN_INLINE void product_keep(const void *ctx, const float *strip, product_spot spot)
{
    (void)ctx;
    (void)strip;
    (void)spot;
}

/* Row block `block` under panel `i` as a dense tile [PRODUCT_ROWS][64]; between product_begin() and
 * product_end(). */
KRN_INLINE void product_tile(const product *p, uint32_t block, uint32_t i, const void *a,
                             const void *b, float *tile)
{
    int64_t m0 = (int64_t)block * PRODUCT_ROWS, n0 = (int64_t)i * GEMM_PANEL;
    uint64_t bytes = gemm_panel_bytes(p->layout, p->k);
    product_spot spot = {m0, krn_min(PRODUCT_ROWS, p->m - m0), n0, krn_min(GEMM_PANEL, p->n - n0)};
    const char *panel = (const char *)b + i * bytes;
    bool fetch = n0 + GEMM_PANEL < p->n && bytes <= PRODUCT_FETCH_BYTES;
    product_panel(p, a, panel, fetch ? panel + bytes : NULL, spot, tile, product_keep, NULL);
}

#endif
