/*
 * Owns Muon on one matrix. One idea: only the transposed X is kept, [l][s] with s <= l, because it
 * serves as either operand of both products: A = T' T, and T becomes a T + T B; squares are
 * symmetric, so half of them is computed. The bits are fixed by kernels.h and equal to ref's on every
 * instruction set: products of bf16 operands are exact, and tile_mul() sums over k in ascending
 * order. Refuses to go through gemm.h, whose orders differ between machines.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/tile.h"

#include <math.h>

enum {
    BLOCK_M = 96,  /* rows of a task */
    BLOCK_N = 128, /* columns */
    BLOCK_K = 256, /* of both operands at a time */
    LINES = 8      /* rows of the matrix of an element-wise task */
};

typedef struct muon_job {
    const krn_muon_step *step;
    atom_dtype dtype;
    void *wire;
    float *master;
    void *m;
    int64_t rows, cols, s, l, line;
    float *t, *next; /* [l][line] */
    float *a, *b;    /* [s][line] */
    double *sums;    /* of each row of the matrix */
    float inv, keep, rate;
} muon_job;

KRN_INLINE float operand(float x)
{
    float rounded = atom_bf16_to_f32(atom_f32_to_bf16(x));
    return fabsf(rounded) < KRN_MUON_TINY ? 0.0f : rounded;
}

/* --- element-wise loops, LINES rows of the matrix at a time ---------------------------------- */

KRN_INLINE float read_one(atom_dtype dtype, const void *x, int64_t i)
{
    return dtype == ATOM_F32 ? ((const float *)x)[i] : atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

KRN_INLINE void put_momentum(atom_dtype moments, const muon_job *j, int64_t i, float value)
{
    uint64_t e = j->step->first + (uint64_t)i;
    if (moments == ATOM_F32) {
        ((float *)j->m)[i] = value;
        return;
    }
    uint32_t word = atom_rng_u32(j->step->rng, e / 2);
    ((atom_bf16 *)j->m)[i] = atom_f32_to_bf16_drawn(value, e % 2 ? word >> 16 : word & 0xffff);
}

/* Element (row, 0) of the matrix in T, and the way to (row, 1). */
KRN_INLINE float *line_of(const muon_job *j, int64_t row, int64_t *step)
{
    bool tall = j->rows > j->cols;
    *step = tall ? 1 : j->line;
    return j->t + (tall ? row * j->line : row);
}

KRN_INLINE void momentum_row(atom_dtype wire, atom_dtype moments, const muon_job *j, int64_t row)
{
    const krn_muon_step *s = j->step;
    int64_t step;
    float *t = line_of(j, row, &step);
    double sum = 0;
    for (int64_t c = 0; c < j->cols; c++) {
        int64_t i = row * j->cols + c;
        float g = s->scale * read_one(wire, j->wire, i);
        float m = s->momentum * read_one(moments, j->m, i) + g;
        float u = s->momentum * m + g;
        put_momentum(moments, j, i, m);
        t[c * step] = u;
        sum += (double)u * (double)u;
    }
    j->sums[row] = sum;
}

static void momentum_task(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const muon_job *j = ctx;
    int64_t from = (int64_t)index * LINES, to = krn_min(from + LINES, j->rows);
    bool half = j->step->moments == ATOM_BF16;
    for (int64_t row = from; row < to; row++) {
        if (j->dtype == ATOM_F32 && !half)
            momentum_row(ATOM_F32, ATOM_F32, j, row);
        else if (j->dtype == ATOM_F32)
            momentum_row(ATOM_F32, ATOM_BF16, j, row);
        else if (!half)
            momentum_row(ATOM_BF16, ATOM_F32, j, row);
        else
            momentum_row(ATOM_BF16, ATOM_BF16, j, row);
    }
}

static void divide_task(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const muon_job *j = ctx;
    int64_t from = (int64_t)index * LINES, to = krn_min(from + LINES, j->l);
    for (int64_t k = from; k < to; k++) {
        for (int64_t c = 0; c < j->s; c++)
            j->t[k * j->line + c] = operand(j->t[k * j->line + c] * j->inv);
    }
}

static void apply_task(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const muon_job *j = ctx;
    int64_t from = (int64_t)index * LINES, to = krn_min(from + LINES, j->rows), step;
    for (int64_t row = from; row < to; row++) {
        const float *t = line_of(j, row, &step);
        for (int64_t c = 0; c < j->cols; c++) {
            int64_t i = row * j->cols + c;
            float p = j->keep * j->master[i] - j->rate * t[c * step];
            j->master[i] = p;
            if (j->dtype == ATOM_F32)
                ((float *)j->wire)[i] = p;
            else
                ((atom_bf16 *)j->wire)[i] = atom_f32_to_bf16(p);
        }
    }
}

/* --- products -------------------------------------------------------------------------------- */

typedef struct spot {
    int64_t m0, m, n0, n;
} spot;

/* Task `index` of those that cover [m][s]; false: below the diagonal of a symmetric product. */
KRN_INLINE bool spot_of(const muon_job *j, int64_t m, bool symmetric, uint32_t index, spot *at)
{
    int64_t across = krn_ceil_div(j->s, BLOCK_N);
    at->m0 = (int64_t)index / across * BLOCK_M;
    at->n0 = (int64_t)index % across * BLOCK_N;
    at->m = krn_min(BLOCK_M, m - at->m0);
    at->n = krn_min(BLOCK_N, j->s - at->n0);
    return !symmetric || at->n0 + at->n > at->m0;
}

static int64_t spots(const muon_job *j, int64_t m)
{
    return krn_ceil_div(m, BLOCK_M) * krn_ceil_div(j->s, BLOCK_N);
}

/* sums[BLOCK_M][BLOCK_N] = rows at->m0 .. of a, with the strides of whole, times columns at->n0 ..
 * of whole.b; the columns of the last vector may be more than there are. */
KRN_INLINE void multiply(const muon_job *j, const tile_job *whole, const spot *at, float *sums)
{
    int64_t n = krn_ceil_div(at->n, VF_LANES) * VF_LANES;
    for (int64_t k = 0; k < whole->k; k += BLOCK_K) {
        tile_job t = *whole;
        t.a += at->m0 * t.a_row + k * t.a_col;
        t.b += k * j->line + at->n0;
        t.ldb = j->line;
        t.c = sums;
        t.ldc = BLOCK_N;
        t.k = krn_min(BLOCK_K, whole->k - k);
        t.add = k > 0;
        tile_mul(&t, at->m, n);
    }
}

/* One tile of a symmetric [s][s] product, and its mirror image: to = op(sums), or with `plain`
 * op(b plain + c sums). */
KRN_INLINE void symmetric_tile(const muon_job *j, const tile_job *whole, uint32_t index,
                               const float *plain, float *to)
{
    _Alignas(64) float sums[BLOCK_M * BLOCK_N];
    spot at;
    if (!spot_of(j, j->s, true, index, &at))
        return;
    multiply(j, whole, &at, sums);
    for (int64_t r = at.m0; r < at.m0 + at.m; r++) {
        for (int64_t c = r > at.n0 ? r : at.n0; c < at.n0 + at.n; c++) {
            float x = sums[(r - at.m0) * BLOCK_N + c - at.n0];
            if (plain)
                x = KRN_MUON_B * plain[r * j->line + c] + KRN_MUON_C * x;
            to[r * j->line + c] = to[c * j->line + r] = operand(x);
        }
    }
}

/* A = op(T' T) */
static void gram_task(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const muon_job *j = ctx;
    tile_job whole = {.a = j->t, .a_row = 1, .a_col = j->line, .b = j->t, .k = j->l};
    symmetric_tile(j, &whole, index, NULL, j->a);
}

/* B = op(b A + c A A) */
static void square_task(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const muon_job *j = ctx;
    tile_job whole = {.a = j->a, .a_row = j->line, .a_col = 1, .b = j->a, .k = j->s};
    symmetric_tile(j, &whole, index, j->a, j->b);
}

/* next = op(a T + T B) */
static void update_task(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const muon_job *j = ctx;
    _Alignas(64) float sums[BLOCK_M * BLOCK_N];
    spot at;
    (void)spot_of(j, j->l, false, index, &at);
    multiply(j, &(tile_job){.a = j->t, .a_row = j->line, .a_col = 1, .b = j->b, .k = j->s}, &at,
             sums);
    for (int64_t r = at.m0; r < at.m0 + at.m; r++) {
        for (int64_t c = at.n0; c < at.n0 + at.n; c++)
            j->next[r * j->line + c] = operand(KRN_MUON_A * j->t[r * j->line + c] +
                                               sums[(r - at.m0) * BLOCK_N + c - at.n0]);
    }
}

static void iterate(atom_threads *threads, muon_job *j)
{
    krn_each(threads, spots(j, j->s), gram_task, j);
    krn_each(threads, spots(j, j->s), square_task, j);
    krn_each(threads, spots(j, j->l), update_task, j);
    float *old = j->t;
    j->t = j->next;
    j->next = old;
}

void KRN_ISA(krn_cpu_muon)(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                           void *wire, float *master, void *m, int64_t rows, int64_t cols,
                           void *space)
{
    int64_t s = krn_muon_short(rows, cols), l = krn_muon_long(rows, cols);
    int64_t line = krn_muon_line(rows, cols);
    muon_job j = {.step = step,
                  .dtype = wire_dtype,
                  .wire = wire,
                  .master = master,
                  .m = m,
                  .rows = rows,
                  .cols = cols,
                  .s = s,
                  .l = l,
                  .line = line,
                  .t = space,
                  .keep = (float)(1 - step->lr * step->decay),
                  .rate = (float)(step->lr * 0.2 * sqrt((double)l))};
    j.next = j.t + l * line;
    j.a = j.next + l * line;
    j.b = j.a + line * line;
    j.sums = (double *)(void *)(j.b + line * line);
    krn_each(threads, krn_ceil_div(rows, LINES), momentum_task, &j);
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += j.sums[r];
    j.inv = (float)(1 / fmax(sqrt(sum), KRN_MUON_NORM_MIN));
    krn_each(threads, krn_ceil_div(l, LINES), divide_task, &j);
    for (int i = 0; i < KRN_MUON_STEPS; i++)
        iterate(threads, &j);
    krn_each(threads, krn_ceil_div(rows, LINES), apply_task, &j);
}
