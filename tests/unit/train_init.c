/* First weights are the same on however many threads, and wherever a range begins. */
#include "atom/train/init.h"

#include "atom/base/mem.h"
#include "atom/graph/models.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void ranges_on_threads(void **state)
{
    (void)state;
    graph_config config = {.vocab_size = 257,
                           .positions = 64,
                           .width = 96,
                           .inner = 384,
                           .layers = 2,
                           .heads = 3,
                           .epsilon = 1e-5f,
                           .init_std = 0.02f};
    graph *g = NULL;
    atom_threads *threads = NULL;
    assert_int_equal(graph_gpt2_build(&config, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_int_equal(atom_threads_open(3, &threads), ATOM_OK);
    uint64_t n = g->param_extent;
    assert_true(n > 100000); /* many slices */
    float *alone = atom_alloc(n, sizeof *alone), *shared = atom_alloc(n, sizeof *shared);
    train_init_weights(g, 7, alone);
    static const uint64_t each[] = {UINT64_MAX, 70001, 8192, 100};
    for (int k = 0; k < 4; k++) {
        memset(shared, 0xff, n * sizeof *shared);
        for (uint64_t at = 0; at < n; at += n - at < each[k] ? n - at : each[k])
            train_init_range(g, 7, at, n - at < each[k] ? n - at : each[k], threads, shared + at);
        assert_memory_equal(alone, shared, n * sizeof *shared);
    }
    uint64_t equal = 0; /* no numbers are drawn twice */
    for (uint64_t i = 8192; i < n; i++)
        equal += alone[i] == alone[i - 8192] && alone[i] != 0 && alone[i] != 1;
    assert_true(equal < n / 1000);
    train_init_weights(g, 8, shared);
    assert_memory_not_equal(alone, shared, n * sizeof *shared);
    atom_free(alone);
    atom_free(shared);
    atom_threads_close(&threads);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
