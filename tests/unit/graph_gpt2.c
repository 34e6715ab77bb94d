/* The GPT-2 builder: names, order, counts, and what the fused form is made of. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static graph *build_preset(const char *name, atom_dtype dtype, int64_t B, int64_t T)
{
    graph_gpt2_config c;
    graph *g = NULL;
    assert_int_equal(graph_preset_get(name, &c), ATOM_OK);
    assert_int_equal(graph_gpt2_build(&c, dtype, B, T, &g), ATOM_OK);
    return g;
}

static void counts_of_presets(void **state)
{
    (void)state;
    /* By hand: V C + P C + L (12 C^2 + 13 C) + 2 C. */
    static const struct {
        const char *name;
        uint64_t params;
        uint32_t nodes;
    } want[] = {
        {"gpt2-124m", 124439808, 12 * 10 + 4},    {"gpt2-350m", 354823168, 24 * 10 + 4},
        {"gpt2-774m", 774030080, 36 * 10 + 4},    {"gpt2-1558m", 1557611200, 48 * 10 + 4},
        {"gpt3-175b", 174604259328, 96 * 10 + 4},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        graph *g = build_preset(want[i].name, ATOM_BF16, 1, 1024);
        graph_gpt2_config c;
        assert_int_equal(graph_preset_get(want[i].name, &c), ATOM_OK);
        assert_int_equal(g->param_elements, want[i].params);
        assert_int_equal(graph_gpt2_params(&c), want[i].params);
        assert_int_equal(g->n_nodes, want[i].nodes);
        graph_close(&g);
        assert_null(g);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_presets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
