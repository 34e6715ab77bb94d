/*
 * Owns the tests of Muon on one matrix: every host table against ref, bit for bit, as a whole and
 * in parts around ref's products, over shapes around vectors, blocks and squares, on one to three
 * threads; ref's momentum and its orthogonalised step against the definition in f64, without any
 * rounding; and what such a step is for, singular values near one.
 */
#include "tests/ops/checkop.h"

#include "atom/base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, GUARD = 64 };

typedef struct matrix {
    atom_dtype wire, moments;
    int64_t rows, cols;
} matrix;

/* What a table works on; each array stands in front of GUARD bytes that nobody may touch. */
typedef struct state {
    uint8_t *wire, *master, *m, *space, *sums;
    size_t wire_bytes, master_bytes, m_bytes, space_bytes, sums_bytes;
} state;

static float normal(uint32_t node, int64_t i)
{
    atom_rng_key key = {.seed = 17, .node = node};
    return (float)atom_rng_normal(key, (uint64_t)i);
}

static uint8_t *guarded(size_t bytes)
{
    uint8_t *p = aligned_alloc(256, (bytes + GUARD + 255) & ~(size_t)255);
    ATOM_ASSERT(p);
    memset(p, 0, bytes);
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

static state state_open(const matrix *x)
{
    size_t n = (size_t)(x->rows * x->cols);
    state s = {.wire_bytes = n * atom_dtype_bytes(x->wire),
               .master_bytes = n * 4,
               .m_bytes = n * atom_dtype_bytes(x->moments),
               .space_bytes = krn_muon_space(x->rows, x->cols),
               .sums_bytes = (size_t)x->rows * sizeof(double)};
    s.wire = guarded(s.wire_bytes);
    s.master = guarded(s.master_bytes);
    s.m = guarded(s.m_bytes);
    s.space = guarded(s.space_bytes);
    s.sums = guarded(s.sums_bytes);
    memset(s.space, 0x7f, s.space_bytes); /* nothing may count on zeros: as floats, 3e38 */
    memset(s.sums, 0x7f, s.sums_bytes);
    for (size_t i = 0; i < n; i++)
        ((float *)(void *)s.master)[i] = 0.1f * normal(1, (int64_t)i);
    return s;
}

static void state_close(state *s)
{
    free(s->wire);
    free(s->master);
    free(s->m);
    free(s->space);
    free(s->sums);
}

/* A matrix with an odd number of rows begins amid the words of one draw. */
static krn_muon_step step_of(const matrix *x, int number)
{
    return (krn_muon_step){.scale = number == 2 ? 0.37f : 1.0f,
                           .momentum = 0.95f,
                           .lr = 0.02,
                           .decay = number == 2 ? 0 : 0.1,
                           .moments = x->moments,
                           .rng = {.seed = 11, .step = (uint32_t)number, .node = KRN_RNG_MOMENTS},
                           .first = ((uint64_t)5 << 34) + 3 * KRN_DRAW_ALIGN +
                                    (uint64_t)(x->rows % 2 * 5)};
}

/* Some gradients are zero, tiny (about as KRN_MUON_TINY, once normed) or large beside the others. */
static float gradient(int number, int64_t i)
{
    static const float factors[] = {1, 0, 1e-19f, 30};
    return 0.1f * normal(30 + (uint32_t)number, i) * factors[i % 13 == 5 ? i / 13 % 4 : 0];
}

static void put_gradient(const matrix *x, int number, state *s)
{
    for (int64_t i = 0; i < x->rows * x->cols; i++)
        tensor_put(x->wire, s->wire, i, (double)gradient(number, i));
}

static void begin(const krn_host_table *table, atom_threads *threads, const krn_muon_step *step,
                  const matrix *x, state *s)
{
    table->muon_begin(threads, step, x->wire, s->wire, s->m, x->rows, x->cols,
                      (double *)(void *)s->sums);
}

/* In parts: with ref's products in the middle. */
static void run_steps(const krn_host_table *table, atom_threads *threads, const matrix *x,
                      bool parts, state *s)
{
    float *master = (float *)(void *)s->master;
    for (int number = 1; number <= STEPS; number++) {
        krn_muon_step step = step_of(x, number);
        put_gradient(x, number, s);
        if (parts) {
            begin(table, threads, &step, x, s);
            krn_ref_table(x->wire)->ortho(NULL, s->wire, x->rows, x->cols, s->space);
            table->muon_end(threads, &step, x->wire, s->wire, master, x->rows, x->cols);
        } else {
            table->muon(threads, &step, x->wire, s->wire, master, s->m, x->rows, x->cols, s->space);
        }
    }
}

static const char *difference(const state *a, const state *b)
{
    if (memcmp(a->wire, b->wire, a->wire_bytes) != 0)
        return "wire differs from ref";
    if (memcmp(a->master, b->master, a->master_bytes) != 0)
        return "master differs from ref";
    if (memcmp(a->m, b->m, a->m_bytes) != 0)
        return "momentum differs from ref";
    bool whole = is_whole(b->wire, b->wire_bytes) && is_whole(b->master, b->master_bytes) &&
                 is_whole(b->m, b->m_bytes) && is_whole(b->space, b->space_bytes) &&
                 is_whole(b->sums, b->sums_bytes);
    return whole ? NULL : "wrote outside";
}

static void check_same(report *r, const char *what, const matrix *x, int threads, const state *want,
                       const state *got)
{
    const char *wrong = difference(want, got);
    if (wrong)
        report_fail(r, NULL, false, "muon%s %s, momentum %s, %lldx%lld, %d threads: %s", what,
                    atom_dtype_name(x->wire), atom_dtype_name(x->moments), (long long)x->rows,
                    (long long)x->cols, threads, wrong);
    r->checked++;
}

static void check_matrix(report *r, const krn_host_table *table, atom_threads *const threads[3],
                         const matrix *x)
{
    state want = state_open(x);
    run_steps(krn_ref_host_table(), NULL, x, false, &want);
    for (int t = 0; t < 6; t++) {
        bool parts = t % 2;
        state got = state_open(x);
        run_steps(table, threads[t / 2], x, parts, &got);
        check_same(r, parts ? " in parts" : "", x, t / 2 + 1, &want, &got);
        state_close(&got);
    }
    state_close(&want);
}

/* X as begin leaves it: what ortho would do to it hides much. And each row's sum, since the norm that
 * is made of them hides their last bits. */
static void check_begin(report *r, const krn_host_table *table, atom_threads *const threads[3],
                        const matrix *x)
{
    const krn_muon_step step = step_of(x, 2);
    state want = state_open(x);
    put_gradient(x, 2, &want);
    begin(krn_ref_host_table(), NULL, &step, x, &want);
    for (int t = 0; t < 3; t++) {
        state got = state_open(x);
        put_gradient(x, 2, &got);
        begin(table, threads[t], &step, x, &got);
        check_same(r, "'s begin", x, t + 1, &want, &got);
        if (memcmp(want.sums, got.sums, want.sums_bytes) != 0)
            report_fail(r, NULL, false, "muon's begin %lldx%lld: a row's sum differs from ref",
                        (long long)x->rows, (long long)x->cols);
        state_close(&got);
    }
    state_close(&want);
}

/* --- the definition, in f64 ------------------------------------------------------------------ */

/* c[m,n] = a[m,k] b[k,n] */
static void multiply(const double *a, const double *b, double *c, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (int64_t e = 0; e < k; e++)
            sum += a[i / n * k + e] * b[e * n + i % n];
        c[i] = sum;
    }
}

static double *doubles(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    ATOM_ASSERT(x);
    return x;
}

/* Five quintic steps on x[rows,cols], normed; whichever way it lies: (X X') X is X (X' X). */
static void orthogonalise(double *x, int64_t rows, int64_t cols)
{
    double *turned = doubles(rows * cols), *a = doubles(rows * rows), *aa = doubles(rows * rows);
    double *next = doubles(rows * cols), norm = 0;
    for (int64_t i = 0; i < rows * cols; i++)
        norm += x[i] * x[i];
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] /= sqrt(norm);
    for (int step = 0; step < 5; step++) {
        for (int64_t i = 0; i < rows * cols; i++)
            turned[i % cols * rows + i / cols] = x[i];
        multiply(x, turned, a, rows, rows, cols);
        multiply(a, a, aa, rows, rows, rows);
        for (int64_t i = 0; i < rows * rows; i++)
            a[i] = -4.7750 * a[i] + 2.0315 * aa[i];
        multiply(a, x, next, rows, cols, rows);
        for (int64_t i = 0; i < rows * cols; i++)
            x[i] = 3.4445 * x[i] + next[i];
    }
    free(turned);
    free(a);
    free(aa);
    free(next);
}

/* All steps of run_steps in f64: master and momentum. */
static void definition(const matrix *x, double *master, double *m)
{
    int64_t n = x->rows * x->cols;
    double *u = doubles(n), scale = 0.2 * sqrt((double)krn_muon_long(x->rows, x->cols));
    for (int number = 1; number <= STEPS; number++) {
        krn_muon_step s = step_of(x, number);
        for (int64_t i = 0; i < n; i++) {
            double g = (double)s.scale * (double)gradient(number, i);
            m[i] = 0.95 * m[i] + g;
            u[i] = 0.95 * m[i] + g;
        }
        orthogonalise(u, x->rows, x->cols);
        for (int64_t i = 0; i < n; i++)
            master[i] = (1 - s.lr * s.decay) * master[i] - s.lr * scale * u[i];
    }
    free(u);
}

/* How far apart the steps that were made are, as a part of the step. */
static void check_definition(report *r, const matrix *x, double limit)
{
    int64_t n = x->rows * x->cols;
    state s = state_open(x);
    double *master = doubles(n), *m = doubles(n), *first = doubles(n), apart = 0, moved = 0;
    for (int64_t i = 0; i < n; i++)
        first[i] = master[i] = (double)((float *)(void *)s.master)[i];
    run_steps(krn_ref_host_table(), NULL, x, false, &s);
    definition(x, master, m);
    for (int64_t i = 0; i < n; i++) {
        double is = (double)((float *)(void *)s.master)[i], kept = (1 - 0.02 * 0.1) * first[i];
        apart += (is - master[i]) * (is - master[i]);
        moved += (master[i] - kept) * (master[i] - kept);
        if (fabs(tensor_get(x->moments, s.m, i) - m[i]) > 1e-5 * (1 + fabs(m[i])))
            report_fail(r, NULL, false, "ref muon: momentum %lld is %.9g, not %.9g", (long long)i,
                        tensor_get(x->moments, s.m, i), m[i]);
    }
    if (!(sqrt(apart) <= limit * sqrt(moved)))
        report_fail(r, NULL, false, "ref muon %lldx%lld: %.2e of the step away from f64",
                    (long long)x->rows, (long long)x->cols, sqrt(apart / moved));
    r->checked++;
    state_close(&s);
    free(master);
    free(m);
    free(first);
}

/* From zero and without decay the step is rate * U, and all directions of U are about as long: the
 * mean square of U's s singular values lies near 1, where a plain gradient has lost most of them. */
static void check_lengths(report *r)
{
    const matrix x = {ATOM_F32, ATOM_F32, 48, 80};
    state s = state_open(&x);
    krn_muon_step step = step_of(&x, 2);
    double sum = 0, rate = step.lr * 0.2 * sqrt(80.0);
    memset(s.master, 0, s.master_bytes);
    for (int64_t i = 0; i < 48 * 80; i++) /* rows of lengths 1 to 1e-2 */
        ((float *)(void *)s.wire)[i] = normal(60, i) * powf(10, -2 * (float)(i / 80) / 48);
    krn_ref_host_table()->muon(NULL, &step, ATOM_F32, s.wire, (float *)(void *)s.master, s.m, 48,
                               80, s.space);
    for (int64_t i = 0; i < 48 * 80; i++)
        sum += pow((double)((float *)(void *)s.master)[i] / rate, 2);
    if (!(sum / 48 > 0.7 && sum / 48 < 1.2))
        report_fail(r, NULL, false, "ref muon: mean square of singular values %.3g", sum / 48);
    r->checked++;
    state_close(&s);
}

/* A gradient of zeros leaves the weights, but for their decay, and no NaN. */
static void check_zero(report *r, const krn_host_table *table)
{
    const matrix x = {ATOM_F32, ATOM_F32, 20, 12};
    state s = state_open(&x);
    krn_muon_step step = step_of(&x, 1);
    float keep = (float)(1 - step.lr * step.decay);
    table->muon(NULL, &step, ATOM_F32, s.wire, (float *)(void *)s.master, s.m, 20, 12, s.space);
    for (int64_t i = 0; i < 240; i++) {
        float is = ((float *)(void *)s.master)[i];
        if (is != keep * (0.1f * normal(1, i)))
            report_fail(r, NULL, false, "muon of zeros: element %lld is %g", (long long)i,
                        (double)is);
    }
    r->checked++;
    state_close(&s);
}

/* What is tiny beside the norm is no operand: it stays where it is, instead of growing in steps of
 * denormal products, which not every machine rounds alike. */
static void check_tiny(report *r, const krn_host_table *table)
{
    const matrix x = {ATOM_F32, ATOM_F32, 2, 2};
    const float gradients[4] = {1, 0, 0, 0x1p-61f};
    state s = state_open(&x);
    krn_muon_step step = step_of(&x, 2);
    float *master = (float *)(void *)s.master;
    step.scale = 1;
    memcpy(s.wire, gradients, sizeof gradients);
    memset(master, 0, s.master_bytes);
    table->muon(NULL, &step, ATOM_F32, s.wire, master, s.m, 2, 2, s.space);
    if (master[0] == 0 || master[1] != 0 || master[2] != 0 || master[3] != 0)
        report_fail(r, NULL, false, "muon of a tiny element: %g %g %g %g", (double)master[0],
                    (double)master[1], (double)master[2], (double)master[3]);
    r->checked++;
    state_close(&s);
}

void check_muon(report *r, const krn_host_table *table)
{
    static const int64_t shapes[][2] = {{1, 1},    {1, 9},    {7, 3},    {16, 16},
                                        {33, 100}, {96, 128}, {130, 65}, {97, 129},
                                        {20, 300}, {280, 31}, {5, 30011}};
    atom_threads *threads[3] = {NULL};
    for (uint32_t i = 0; i < 3; i++)
        ATOM_ASSERT(atom_threads_open(i + 1, &threads[i]) == ATOM_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int kind = 0; kind < 4; kind++) {
            const matrix x = {kind & 1 ? ATOM_BF16 : ATOM_F32, kind & 2 ? ATOM_BF16 : ATOM_F32,
                              shapes[i][0], shapes[i][1]};
            check_matrix(r, table, threads, &x);
            check_begin(r, table, threads, &x);
        }
    }
    for (int i = 0; i < 3; i++)
        atom_threads_close(&threads[i]);
    check_definition(r, &(matrix){ATOM_F32, ATOM_F32, 24, 60}, 0.02);
    check_definition(r, &(matrix){ATOM_F32, ATOM_F32, 60, 24}, 0.02);
    check_lengths(r);
    check_zero(r, table);
    check_tiny(r, table);
}
