/*
 * Owns the tests of a table's ortho, the products of Muon: the bits of ref's over shapes around
 * tiles, and, where the sizes are those of real models and ref would take hours, the bits of Muon as
 * the CPU backend makes it in one piece.
 */
#include "tests/ops/checkop.h"

#include "atom/base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, THREADS = 8 };

/* In front of GUARD bytes that nobody may touch. No zeros: as bf16 and as floats, NaN. */
static uint8_t *guarded(size_t bytes)
{
    uint8_t *p = aligned_alloc(256, (bytes + GUARD + 255) & ~(size_t)255);
    ATOM_ASSERT(p);
    memset(p, 0xff, bytes);
    memset(p + bytes, 0xa5, GUARD);
    return p;
}

static bool is_whole(const uint8_t *p, size_t bytes)
{
    for (int i = 0; i < GUARD; i++) {
        if (p[bytes + (size_t)i] != 0xa5)
            return false;
    }
    return true;
}

/* About as begin leaves it, but not rounded; some elements are zero, about KRN_MUON_TINY, or large
 * beside the others. */
static void fill(atom_dtype dtype, void *x, int64_t n)
{
    static const double factors[] = {1, 0, 1e-18, 30};
    const atom_rng_key key = {.seed = 23, .node = 7};
    for (int64_t i = 0; i < n; i++)
        tensor_put(dtype, x, i,
                   atom_rng_normal(key, (uint64_t)i) / sqrt((double)n) *
                       factors[i % 13 == 5 ? i / 13 % 4 : 0]);
}

/* On the diagonal powers of two, from 1 to below KRN_MUON_TINY, else zeros: nothing hides what becomes
 * of small numbers. */
static void fill_diagonal(atom_dtype dtype, void *x, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t row = i / cols, col = i % cols;
        tensor_put(dtype, x, i, row == col ? exp2((double)(-3 * row - row / 3)) : 0);
    }
}

/* The first element that differs, or n. A NaN is a NaN: its sign is the processor's. */
static int64_t first_other(atom_dtype dtype, const void *want, const void *got, int64_t n)
{
    size_t each = atom_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        bool same = memcmp((const uint8_t *)want + (size_t)i * each,
                           (const uint8_t *)got + (size_t)i * each, each) == 0;
        if (!same && !(isnan(tensor_get(dtype, want, i)) && isnan(tensor_get(dtype, got, i))))
            return i;
    }
    return n;
}

static void check_shape(report *r, const krn_table *table, int64_t rows, int64_t cols,
                        bool diagonal)
{
    int64_t n = rows * cols;
    size_t x_bytes = (size_t)n * atom_dtype_bytes(r->dtype);
    size_t space_bytes = krn_ortho_space(rows, cols);
    uint8_t *want = guarded(x_bytes), *got = guarded(x_bytes), *space = guarded(space_bytes);
    krn_ctx cx = {0};
    if (diagonal)
        fill_diagonal(r->dtype, want, rows, cols);
    else
        fill(r->dtype, want, n);
    memcpy(got, want, x_bytes);
    krn_ref_table(r->dtype)->ortho(&cx, want, rows, cols, space);
    memset(space, 0xff, space_bytes);
    table->ortho(&cx, got, rows, cols, space);
    int64_t wrong = first_other(r->dtype, want, got, n);
    if (wrong < n)
        report_fail(r, NULL, false, "ortho %lldx%lld: element %lld is %.9g, ref says %.9g",
                    (long long)rows, (long long)cols, (long long)wrong,
                    tensor_get(r->dtype, got, wrong), tensor_get(r->dtype, want, wrong));
    if (!is_whole(got, x_bytes) || !is_whole(space, space_bytes))
        report_fail(r, NULL, false, "ortho %lldx%lld: wrote outside", (long long)rows,
                    (long long)cols);
    r->checked++;
    free(want);
    free(got);
    free(space);
}

void check_ortho(report *r, const krn_table *table)
{
    static const int64_t shapes[][2] = {{1, 1},    {1, 9},     {9, 1},     {7, 130},   {64, 64},
                                        {65, 127}, {130, 70},  {68, 180},  {200, 129}, {132, 140},
                                        {20, 600}, {128, 384}, {250, 260}, {300, 200}};
    if (!table->ortho) {
        report_fail(r, NULL, false, "the table has no ortho");
        return;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (!r->work_max || shapes[i][0] * shapes[i][1] <= r->work_max)
            check_shape(r, table, shapes[i][0], shapes[i][1], false);
    }
    check_shape(r, table, 24, 20, true);
}

void check_ortho_parts(report *r, const krn_table *table, int64_t rows, int64_t cols)
{
    const krn_host_table *host = krn_cpu_host_table();
    const krn_muon_step step = {.scale = 1, .lr = 0.02, .moments = ATOM_F32};
    size_t n = (size_t)(rows * cols), x_bytes = n * atom_dtype_bytes(r->dtype);
    uint8_t *whole = guarded(x_bytes), *parts = guarded(x_bytes), *m = guarded(n * 4);
    uint8_t *master = guarded(n * 4), *space = guarded(krn_muon_space(rows, cols));
    uint8_t *sums = guarded((size_t)rows * 8), *ortho_space = guarded(krn_ortho_space(rows, cols));
    atom_threads *threads = NULL;
    krn_ctx cx = {0};
    ATOM_ASSERT(atom_threads_open(THREADS, &threads) == ATOM_OK);
    fill(r->dtype, whole, (int64_t)n);
    memcpy(parts, whole, x_bytes);
    memset(m, 0, n * 4);
    memset(master, 0, n * 4);
    host->muon(threads, &step, r->dtype, whole, (float *)(void *)master, m, rows, cols, space);
    memset(m, 0, n * 4);
    memset(master, 0, n * 4);
    host->muon_begin(threads, &step, r->dtype, parts, m, rows, cols, (double *)(void *)sums);
    table->ortho(&cx, parts, rows, cols, ortho_space);
    host->muon_end(threads, &step, r->dtype, parts, (float *)(void *)master, rows, cols);
    if (memcmp(whole, parts, x_bytes) != 0)
        report_fail(r, NULL, false, "ortho %lldx%lld: differs from muon in one piece",
                    (long long)rows, (long long)cols);
    r->checked++;
    atom_threads_close(&threads);
    uint8_t *all[] = {whole, parts, m, master, space, sums, ortho_space};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}
