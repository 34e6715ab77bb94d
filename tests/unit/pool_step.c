/*
 * The step of a pool that sums gradients: the clip factor is that of torch's clip_grad_norm_,
 * max / (norm + 1e-6), also where only the 1e-6 makes the difference; what is not finite changes
 * nothing. With Muon each matrix is handed to its kernel.
 */
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "atom/pool/step.h"
#include "gossip/sum/reduce.h"

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
    float x[N] = {gradient}, weights[N] = {0}, m[N] = {0}, v[N] = {0};
    const pool_floats gradients = {.at = x};
    const pool_step_vectors state = {{.at = weights}, {.at = m}, {.at = v}};
    const pool_room room = {0};
    double rate;
    calls = 0;
    *norm = gsp_norm(x, N);
    return pool_step_make(&u, 1, *norm, N, &gradients, &state, &state, NULL, room, NULL, &rate);
}

typedef struct muon_call {
    krn_muon_step step;
    int64_t rows, cols;
    const float *x, *weights, *m;
    void *space;
} muon_call;
static muon_call matrices[3];
static unsigned n_matrices;

static void note_muon(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                      void *wire, float *master, void *m, int64_t rows, int64_t cols, void *space)
{
    (void)threads;
    assert_int_equal(wire_dtype, ATOM_F32);
    assert_true(n_matrices < 3);
    matrices[n_matrices++] = (muon_call){*step, rows, cols, wire, master, m, space};
}

/* Of q, k and v in one parameter each is a matrix of its own; what is no matrix is AdamW's. */
static void muon_makes_the_matrices(void **unused)
{
    static const krn_host_table host = {.adamw = note_step, .muon = note_muon};
    static const swap_param params[2] = {
        {.offset = 0, .elements = N, .decay = 1},
        {.offset = N, .elements = 96, .decay = 1, .n_matrices = 3, .rows = {4, 2, 2}, .cols = 12}};
    const pool_update u = {.schedule = {.peak = 1e-3, .end = 1e-3, .max_steps = 10},
                           .beta1 = 0.9,
                           .beta2 = 0.99,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .max_grad_norm = 1,
                           .muon_momentum = 0.95,
                           .params = params,
                           .n_params = 2,
                           .host = &host};
    static float x[2 * N] = {2}, weights[2 * N], m[2 * N], v[2 * N];
    static const uint64_t at[] = {N, N + 48, N + 72};
    char space[8];
    const pool_floats gradients = {.at = x};
    const pool_step_vectors state = {{.at = weights}, {.at = m}, {.at = v}};
    const pool_room room = {0};
    double rate;
    (void)unused;
    calls = n_matrices = 0;
    assert_int_equal(pool_step_matrix_floats(&u), 48);
    assert_int_equal(pool_step_space(&u), krn_muon_space(4, 12));
    assert_int_equal(pool_step_make(&u, 3, 2, (uint64_t)2 * N, &gradients, &state, &state, NULL,
                                    room, space, &rate),
                     ATOM_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(n_matrices, 3);
    for (int i = 0; i < 3; i++) {
        const muon_call *c = &matrices[i];
        assert_int_equal(c->rows, params[1].rows[i]);
        assert_int_equal(c->cols, 12);
        assert_ptr_equal(c->x, x + at[i]);
        assert_ptr_equal(c->weights, weights + at[i]);
        assert_ptr_equal(c->m, m + at[i]);
        assert_ptr_equal(c->space, space);
        assert_true(c->step.scale == (float)(1 / (2 + 1e-6)));
        assert_true(c->step.momentum == 0.95f && c->step.lr == rate && c->step.decay == 0.1);
        assert_int_equal(c->step.moments, ATOM_F32);
    }
}

enum { ROWS = 24, COLS = 40, VECTOR = ROWS * COLS };
typedef struct state_of_step {
    float x[VECTOR], weights[VECTOR], m[VECTOR], v[VECTOR];
} state_of_step;

static void make_one(train_products *products, atom_threads *threads, state_of_step *s)
{
    static const swap_param param = {
        .elements = VECTOR, .decay = 1, .n_matrices = 1, .rows = {ROWS}, .cols = COLS};
    const pool_update u = {.schedule = {.peak = 1e-2, .end = 1e-2, .max_steps = 10},
                           .beta1 = 0.9,
                           .beta2 = 0.99,
                           .epsilon = 1e-8,
                           .weight_decay = 0.1,
                           .max_grad_norm = 1,
                           .muon_momentum = 0.95,
                           .params = &param,
                           .n_params = 1,
                           .host = krn_cpu_host_table(),
                           .threads = threads,
                           .products = products};
    const pool_floats gradients = {.at = s->x};
    const pool_step_vectors state = {{.at = s->weights}, {.at = s->m}, {.at = s->v}};
    const pool_room room = {0};
    const uint64_t bytes = pool_step_space(&u);
    void *space = atom_pages_take(bytes);
    double rate;
    assert_int_equal(bytes, products ? ROWS * sizeof(double) : krn_muon_space(ROWS, COLS));
    assert_non_null(space);
    for (int step = 1; step <= 2; step++) {
        for (int i = 0; i < VECTOR; i++)
            s->x[i] = sinf((float)(i * step)) * 0.01f;
        assert_int_equal(pool_step_make(&u, (uint64_t)step, 3, VECTOR, &gradients, &state, &state,
                                        NULL, room, space, &rate),
                         ATOM_OK);
    }
    atom_pages_give(space, bytes);
}

/* Where a device makes the products, weights and momentum are what the host alone makes of them. */
static void a_device_makes_the_products(void **unused)
{
    static state_of_step host, card;
    const graph_config config = {.vocab_size = 64,
                                 .positions = 8,
                                 .width = 32,
                                 .layers = 1,
                                 .heads = 2,
                                 .inner = 128,
                                 .epsilon = 1e-5f};
    atom_threads *threads = NULL;
    dev *device = NULL;
    train_products *products = NULL;
    graph *g = NULL;
    (void)unused;
    assert_int_equal(graph_gpt2_build(&config, ATOM_F32, 1, 8, &g), ATOM_OK);
    graph_set_optimizer(g, GRAPH_MUON);
    assert_int_equal(atom_threads_open(2, &threads), ATOM_OK);
    assert_int_equal(
        dev_cpu_open(&(dev_cpu_config){.budget_bytes = train_products_bytes(g)}, threads, &device),
        ATOM_OK);
    assert_int_equal(train_products_open(g, &device, krn_ref_table(ATOM_F32), &products), ATOM_OK);
    assert_null(device);
    make_one(NULL, threads, &host);
    make_one(products, threads, &card);
    assert_memory_equal(card.weights, host.weights, sizeof card.weights);
    assert_memory_equal(card.m, host.m, sizeof card.m);
    assert_true(card.weights[7] != 0 && card.m[7] != 0);
    train_products_close(&products);
    graph_close(&g);
    atom_threads_close(&threads);
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
        cmocka_unit_test(muon_makes_the_matrices),
        cmocka_unit_test(a_device_makes_the_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
