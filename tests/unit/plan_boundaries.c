/*
 * What stands on the boundaries between blocks: by two keys that need each other, or by the model's own
 * bottlenecks; what crosses, and what is refused.
 */
#include "atom/plan/boundaries.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

/* Four blocks of width 16. */
static graph_config model(void)
{
    graph_config config = {0};
    must(graph_preset_get("gpt2-124m", &config));
    config.vocab_size = 40;
    config.positions = 8;
    config.width = 16;
    config.heads = 2;
    config.inner = 64;
    config.layers = 4;
    return config;
}

static void are_after(const plan_boundaries *b, const char *at)
{
    char text[64] = "";
    for (uint32_t i = 0; i < b->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? "," : "",
                 b->after[i]);
    assert_string_equal(text, at);
}

static void what_is_chosen(void **state)
{
    static const struct {
        const char *codec, *at, *text;
        int64_t width; /* 0: a codec */
        bool maxout;
    } cases[] = {
        {NULL, NULL, "", 0, false},
        {"none", NULL, "", 0, false},
        {"int8", "2", "int8", 0, false},
        {"topk:0.5", "1,3", "topk:0.5", 0, false},
        {"bottleneck:8", "1,3", "bottleneck:8", 2, false},
        {"bottleneck:1.5", "3", "bottleneck:1.5", 11, false},
        {"bottleneck:16", "1", "bottleneck:16", 1, false},
        {"maxout:2", "2", "maxout:2", 8, true},
        {"maxout:16", "1,2,3", "maxout:16", 1, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const plan_workbench_config config = {.compress_boundaries = cases[i].codec,
                                              .compress_at = cases[i].at};
        const char *at = cases[i].at ? cases[i].at : "";
        graph_config m = model();
        plan_boundaries b;
        must(plan_boundaries_choose(&config, &m, &b));
        assert_string_equal(b.text, cases[i].text);
        assert_string_equal(b.at, at);
        are_after(&b, at);
        assert_int_equal(b.width, cases[i].width);
        assert_int_equal(b.maxout, cases[i].maxout);
        assert_int_equal(b.added, cases[i].width != 0);
        /* Bottlenecks are a part of the model. */
        assert_int_equal(m.bottlenecks.n, cases[i].width ? b.n : 0);
        assert_int_equal(m.bottlenecks.width, cases[i].width);
        assert_int_equal(m.bottlenecks.maxout, cases[i].maxout);
        assert_memory_equal(m.bottlenecks.after, b.after, m.bottlenecks.n * sizeof *b.after);
    }
    assert_true(plan_boundaries_learn("bottleneck:8") && plan_boundaries_learn("maxout:2"));
    assert_false(plan_boundaries_learn("int8") || plan_boundaries_learn("bottlenecks:8"));
}

static void what_is_refused(void **state)
{
    static const struct {
        const char *codec, *at, *says;
    } cases[] = {
        {NULL, "2", "at has no effect without compress_boundaries"},
        {"int8", NULL, "compress_boundaries needs at"},
        {"bottleneck:8", NULL, "compress_boundaries needs at"},
        {"int7", "2", "takes bottleneck:RATIO, maxout:K, or a codec: "},
        {"bottlenecks:8", "2", "takes bottleneck:RATIO, maxout:K, or a codec: "},
        {"bottleneck", "2", "is not a bottleneck"},
        {"bottleneck:", "2", "is not a bottleneck"},
        {"bottleneck:1", "2", "is not a bottleneck"},
        {"bottleneck:17", "2", "is not a bottleneck"},
        {"bottleneck:8x", "2", "is not a bottleneck"},
        {"bottleneck:1.01", "2", "would make nothing narrower: 16 values of 16"},
        {"maxout", "2", "is not a maxout"},
        {"maxout:1", "2", "is not a maxout"},
        {"maxout:3", "2", "is not a maxout"},
        {"maxout:32", "2", "is not a maxout"},
        {"maxout:-2", "2", "is not a maxout"},
        {"maxout:2x", "2", "is not a maxout"},
        {"int8", "", "is not a list"},
        {"int8", "0", "is not a list"},
        {"int8", "2,", "is not a list"},
        {"int8", "2;3", "is not a list"},
        {"int8", "1000001", "is not a list"},
        {"bottleneck:8", "4",
         "'4' does not fit a model of 4 blocks: boundaries can be after block 1 to 3"},
        {"bottleneck:8", "2,2", "does not fit a model of 4 blocks"},
        {"bottleneck:8", "3,1", "does not fit a model of 4 blocks"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const plan_workbench_config config = {.compress_boundaries = cases[i].codec,
                                              .compress_at = cases[i].at};
        graph_config m = model();
        plan_boundaries b;
        assert_int_equal(plan_boundaries_choose(&config, &m, &b), ATOM_E_USAGE);
        if (!strstr(atom_fail_message(), cases[i].says))
            fail_msg("%zu: not %s: %s", i, cases[i].says, atom_fail_message());
        assert_int_equal(m.bottlenecks.n, 0);
    }
}

/* A model that has bottlenecks keeps them; they may be named again, but no others. */
static void what_a_model_brings(void **state)
{
    static const struct {
        const char *codec, *at;
        bool fits;
    } cases[] = {{NULL, NULL, true},
                 {"bottleneck:8", "1,3", true},
                 {"bottleneck:4", "1,3", false},
                 {"bottleneck:8", "1", false},
                 {"bottleneck:8", "1,2", false},
                 {"maxout:8", "1,3", false},
                 {"int8", "1,3", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const plan_workbench_config config = {.compress_boundaries = cases[i].codec,
                                              .compress_at = cases[i].at};
        graph_config m = model();
        plan_boundaries b;
        m.bottlenecks = (graph_bottlenecks){.n = 2, .width = 2, .after = {1, 3}};
        atom_status st = plan_boundaries_choose(&config, &m, &b);
        assert_int_equal(st, cases[i].fits ? ATOM_OK : ATOM_E_USAGE);
        assert_int_equal(m.bottlenecks.n, 2);
        if (st != ATOM_OK) {
            assert_non_null(
                strstr(atom_fail_message(), "(bottleneck:8) of 2 values after 1,3 blocks"));
            continue;
        }
        assert_string_equal(b.text, "bottleneck:8");
        assert_string_equal(b.at, "1,3");
        are_after(&b, "1,3");
        assert_int_equal(b.width, 2);
        assert_false(b.added || b.maxout);
    }
}

/* What a token sends over all boundaries, and how many blocks the model has. */
static void what_crosses(void **state)
{
    static const struct {
        const char *codec, *at;
        atom_dtype dtype;
        uint64_t bytes, bf16;
    } cases[] = {{"bottleneck:8", "1,3", ATOM_BF16, 2 * 2 * 2, 2 * 16 * 2},
                 {"bottleneck:8", "2", ATOM_F32, 2 * 4, 16 * 2},
                 {"maxout:2", "1,2,3", ATOM_BF16, 3 * 8 * 2, 3 * 16 * 2},
                 {"int8", "1,3", ATOM_BF16, 2 * (16 + 8), 2 * 16 * 2},
                 {"int4", "2", ATOM_F32, 8 + 8, 16 * 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const plan_workbench_config config = {.compress_boundaries = cases[i].codec,
                                              .compress_at = cases[i].at};
        graph_config m = model();
        plan_boundaries b;
        graph *plain = NULL, *g = NULL;
        must(plan_boundaries_choose(&config, &m, &b));
        must(graph_model_build(&m, cases[i].dtype, 1, 8, &plain));
        must(graph_fuse(plain, &g));
        graph_close(&plain);
        uint32_t nodes = g->n_nodes;
        must(plan_boundaries_cut(&g, &b));
        assert_int_equal(b.blocks, 4);
        assert_int_equal(b.token_bytes, cases[i].bytes);
        assert_int_equal(b.token_bytes_bf16, cases[i].bf16);
        assert_int_equal(g->n_nodes > nodes, b.width == 0);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_chosen),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(what_a_model_brings),
        cmocka_unit_test(what_crosses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
