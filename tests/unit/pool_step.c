/*
 * The step of a pool that sums gradients: the clip factor is that of torch's clip_grad_norm_,
 * max / (norm + 1e-6), also where only the 1e-6 makes the difference; what is not finite changes
 * nothing.
 */
#include "atom/base/mem.h"
#include "atom/pool/step.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 128 };

static krn_adamw_step taken; /* what AdamW was told */
static unsigned calls;

static void note_step(atom_threads *threads, const krn_adamw_step *step, atom_dtype wire_dtype,
                      void *wire, float *master, void *m, void *v, uint64_t n)
{
    (void)threads, (void)wire_dtype, (void)wire, (void)master, (void)m, (void)v;
    assert_int_equal(n, N);
    taken = *step;
    calls++;
}

static atom_status make(double max_norm, float gradient, double *norm)
{
    static const krn_host_table host = {.adamw = note_step};
    const swap_param param = {.elements = N};
    const pool_update u = {.schedule = {.peak = 1e-3, .end = 1e-3, .max_steps = 10},
                           .beta1 = 0.9,
                           .beta2 = 0.99,
                           .epsilon = 1e-8,
                           .max_grad_norm = max_norm,
                           .params = &param,
                           .n_params = 1,
                           .host = &host};
    float x[N] = {gradient}, weights[N], m[N], v[N];
    double rate;
    calls = 0;
    return pool_step_make(&u, 1, N, x, weights, m, v, norm, &rate);
}

static float scale(double max_norm, float gradient)
{
    double norm = -1;
    assert_int_equal(make(max_norm, gradient, &norm), ATOM_OK);
    assert_int_equal(calls, 1);
    assert_true(norm == (double)fabsf(gradient));
    return taken.scale;
}

static void the_norm_is_clipped_as_torch_does(void **unused)
{
    (void)unused;
    assert_true(scale(1, 3) == (float)(1 / (3 + 1e-6)));
    assert_true(scale(1, 3) != (float)(1 / 3.0));
    assert_true(scale(0.5, -2) == (float)(0.5 / (2 + 1e-6)));
    assert_true(scale(2, 1) == 1);
    assert_true(scale(0, 1e9f) == 1); /* 0: not clipped */
}

/* Below the maximum by less than 1e-6, and where norm and 1e-6 are alike. */
static void a_millionth_decides(void **unused)
{
    (void)unused;
    const float below = 0.9999995f;
    assert_true(scale(1, below) == (float)(1 / ((double)below + 1e-6)));
    assert_true(scale(1, below) < 1);
    assert_true(scale(1.5e-6, 1e-6f) == (float)(1.5e-6 / ((double)1e-6f + 1e-6)));
    assert_true(scale(3e-6, 1e-6f) == 1);
}

static void what_is_not_finite_changes_nothing(void **unused)
{
    double norm = -1;
    (void)unused;
    assert_int_equal(make(1, NAN, &norm), ATOM_E_DIVERGED);
    assert_int_equal(make(1, INFINITY, &norm), ATOM_E_DIVERGED);
    assert_int_equal(calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_norm_is_clipped_as_torch_does),
        cmocka_unit_test(a_millionth_decides),
        cmocka_unit_test(what_is_not_finite_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
