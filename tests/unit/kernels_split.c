/*
 * fp32 linear layers are as exact as fp32 multiply-adds, whatever the machine multiplies with
 * (kernels/cpu/isa/split.h): their error against f64 stays below that of a chain of fmaf(), for
 * sums longer than a block, odd sizes, and values of very different size.
 */
#include "atom/base/mem.h"
#include "kernels/kernels.h"
#include "tests/lib/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct layer {
    int64_t N, I, O;
    float *x, *w, *y, *dy, *dx, *dw;
} layer;

static float *floats(int64_t n)
{
    float *x = aligned_alloc(256, ((size_t)n * 4 + 255) / 256 * 256);
    assert_non_null(x);
    memset(x, 0, (size_t)n * 4);
    return x;
}

static uint32_t draw(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* `spread`: powers of two between the smallest and the largest. */
static void fill(float *x, int64_t n, int spread)
{
    for (int64_t i = 0; i < n; i++) {
        float u = (float)draw() / 4294967296.0f - 0.5f;
        x[i] = ldexpf(u, spread ? (int)(draw() % (uint32_t)spread) - spread / 2 : 0);
    }
}

static layer layer_open(int64_t N, int64_t I, int64_t O, int spread)
{
    layer l = {N,
               I,
               O,
               floats(N * I),
               floats(O * I),
               floats(N * O),
               floats(N * O),
               floats(N * I),
               floats(O * I)};
    fill(l.x, N * I, spread);
    fill(l.w, O * I, spread);
    fill(l.dy, N * O, spread);
    return l;
}

static void layer_close(layer *l)
{
    float *all[] = {l->x, l->w, l->y, l->dy, l->dx, l->dw};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void run(atom_threads *threads, layer *l)
{
    const krn_table *t = krn_cpu_table(ATOM_F32);
    krn_step step = {.loss_scale = 1.0f, .train = 1};
    krn_args args = {.dim = {l->N, l->I, l->O}};
    for (int backward = 0; backward < 2; backward++) {
        uint64_t bytes = t->workspace(ATOM_OP_linear, backward, args.dim);
        krn_ctx cx = {.threads = threads, .workspace_bytes = bytes, .step = &step};
        cx.workspace = floats((int64_t)(bytes / 4) + 64);
        args.buf[0] = l->x;
        args.buf[1] = l->w;
        args.buf[3] = backward ? NULL : l->y;
        args.buf[4] = l->dy;
        args.buf[5] = l->dx;
        args.buf[6] = l->dw;
        (backward ? t->bwd : t->fwd)[ATOM_OP_linear](&cx, &args);
        free(cx.workspace);
    }
}

typedef struct matrix {
    const float *at;
    int64_t row, col;
} matrix;

/* Errors of c[m,n], and of a chain of fmaf, against the sum in f64, by norm. */
static void expect_exact(const float *c, matrix a, matrix b, int64_t m, int64_t n, int64_t k)
{
    double ours = 0.0, chain = 0.0, norm = 0.0;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            float plain = 0.0f;
            for (int64_t e = 0; e < k; e++) {
                float x = a.at[i * a.row + e * a.col], y = b.at[e * b.row + j * b.col];
                sum += (double)x * (double)y;
                plain = fmaf(x, y, plain);
            }
            ours += ((double)c[i * n + j] - sum) * ((double)c[i * n + j] - sum);
            chain += ((double)plain - sum) * ((double)plain - sum);
            norm += sum * sum;
        }
    }
    assert_true(norm > 0.0);
    assert_true(sqrt(ours) <= 1.05 * sqrt(chain) + 1e-7 * sqrt(norm));
}

static void errors_are_those_of_fp32(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{70, 100, 130}, {33, 1700, 65}, {1100, 96, 40}, {1, 32, 1}};
    atom_threads *threads = NULL;
    assert_int_equal(atom_threads_open(2, &threads), ATOM_OK);
    for (int spread = SANITIZED ? 40 : 0; spread <= 40; spread += 20) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            int64_t N = sizes[s][0], I = sizes[s][1], O = sizes[s][2];
            layer l = layer_open(N, I, O, spread);
            run(threads, &l);
            expect_exact(l.y, (matrix){l.x, I, 1}, (matrix){l.w, 1, I}, N, O, I);
            expect_exact(l.dx, (matrix){l.dy, O, 1}, (matrix){l.w, I, 1}, N, I, O);
            expect_exact(l.dw, (matrix){l.dy, 1, O}, (matrix){l.x, I, 1}, O, I, N);
            layer_close(&l);
        }
    }
    atom_threads_close(&threads);
}

/* Whole numbers of up to 24 bits come out without any error; what is not finite stays so. */
static void whole_numbers_are_exact(void **state)
{
    (void)state;
    atom_threads *threads = NULL;
    assert_int_equal(atom_threads_open(1, &threads), ATOM_OK);
    layer l = layer_open(40, 1, 50, 0);
    for (int64_t i = 0; i < l.N; i++)
        l.x[i] = (float)(draw() % 4095u);
    for (int64_t i = 0; i < l.O; i++)
        l.w[i] = (float)(draw() % 4095u);
    run(threads, &l);
    for (int64_t i = 0; i < l.N * l.O; i++)
        assert_true(l.y[i] == l.x[i / l.O] * l.w[i % l.O]);
    l.x[3] = INFINITY;
    l.x[4] = NAN;
    run(threads, &l);
    assert_false(isfinite(l.y[3 * l.O]) || isfinite(l.y[4 * l.O]));
    assert_true(isfinite(l.y[5 * l.O]));
    layer_close(&l);
    atom_threads_close(&threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_those_of_fp32),
        cmocka_unit_test(whole_numbers_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
