/* The GPT-2 builder and its presets: names, order, counts, places, and what a bad config says. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"
#include "tests/lib/random_gpt2.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static graph *build_preset(const char *name, atom_dtype dtype, int64_t B, int64_t T)
{
    graph_config c;
    graph *g = NULL;
    assert_int_equal(graph_preset_get(name, &c), ATOM_OK);
    assert_int_equal(graph_gpt2_build(&c, dtype, B, T, &g), ATOM_OK);
    return g;
}

static void counts_of_presets(void **state)
{
    (void)state;
    /* V C + P C + L (12 C^2 + 13 C) + 2 C by hand; the first four are OpenAI's published models. */
    static const struct {
        const char *name;
        uint64_t params;
        uint32_t layers, head_width;
    } want[] = {
        {"gpt2-124m", 124439808, 12, 64},   {"gpt2-350m", 354823168, 24, 64},
        {"gpt2-774m", 774030080, 36, 64},   {"gpt2-1558m", 1557611200, 48, 64},
        {"gpt3-125m", 125226240, 12, 64},   {"gpt3-350m", 355871744, 24, 64},
        {"gpt3-760m", 760300032, 24, 96},   {"gpt3-1.3b", 1315723264, 24, 128},
        {"gpt3-2.7b", 2651553280, 32, 80},  {"gpt3-6.7b", 6658404352, 32, 128},
        {"gpt3-13b", 12853386240, 40, 128}, {"gpt3-175b", 174604259328, 96, 128},
    };
    const char *const *names = graph_preset_names();
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        graph_config c;
        assert_string_equal(names[i], want[i].name);
        assert_int_equal(graph_preset_get(want[i].name, &c), ATOM_OK);
        assert_int_equal(graph_gpt2_check(&c), ATOM_OK);
        assert_string_equal(c.name, want[i].name);
        assert_int_equal(c.width, c.heads * want[i].head_width);
        graph *g = build_preset(want[i].name, ATOM_BF16, 1, 1024), *fused = NULL;
        assert_int_equal(g->param_elements, want[i].params);
        assert_int_equal(graph_gpt2_params(&c), want[i].params);
        /* 10 nodes a block without dropout, and embed, ln_f, lm_head, loss; gelu and
         * loss fuse away */
        assert_int_equal(g->n_nodes, want[i].layers * 10 + 4);
        assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
        assert_int_equal(fused->n_nodes, want[i].layers * 9 + 3);
        graph_close(&g);
        assert_null(g);
        graph_close(&fused);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* A head of its own is a parameter more, behind ln_f, and nothing is shared. */
static void untied_head(void **state)
{
    graph_config c;
    graph *g = NULL;
    (void)state;
    assert_int_equal(graph_preset_get("gpt2-124m", &c), ATOM_OK);
    c.untied = true;
    assert_int_equal(graph_gpt2_params(&c), 124439808 + 50257 * 768);
    assert_int_equal(graph_gpt2_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_int_equal(g->param_elements, graph_gpt2_params(&c));
    assert_string_equal(g->params[g->n_params - 1].name, "lm_head.weight");
    assert_false(g->params[0].shared || g->params[g->n_params - 1].shared);
    graph_close(&g);
}

static void unknown_preset_suggests(void **state)
{
    (void)state;
    graph_config c;
    assert_int_equal(graph_preset_get("gpt2-125m", &c), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "did you mean gpt2-124m?"));
    assert_int_equal(graph_preset_get("an entirely different thing", &c), ATOM_E_USAGE);
}

static void canonical_order(void **state)
{
    (void)state;
    static const char *const first[] = {
        "wte.weight",
        "wpe.weight",
        "h.0.ln_1.weight",
        "h.0.ln_1.bias",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias",
        "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias",
        "h.0.ln_2.weight",
        "h.0.ln_2.bias",
        "h.0.mlp.c_fc.weight",
        "h.0.mlp.c_fc.bias",
        "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias",
        "h.1.ln_1.weight",
    };
    graph *g = build_preset("gpt2-124m", ATOM_F32, 2, 64);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        assert_string_equal(g->params[i].name, first[i]);
    assert_int_equal(g->n_params, 2 + 12 * 12 + 2);
    assert_string_equal(g->params[g->n_params - 2].name, "ln_f.weight");
    uint64_t elements = 0, end = 0;
    for (uint32_t i = 0; i < g->n_params; i++) {
        const graph_param *p = &g->params[i];
        assert_int_equal(p->offset % GRAPH_PARAM_ALIGN, 0);
        assert_true(p->offset >= end && p->offset < end + GRAPH_PARAM_ALIGN);
        end = p->offset + p->elements;
        elements += p->elements;
        assert_true(p->decay == (p->rank == 2) && p->shared == (i == 0));
        assert_true(i == 0 || p->first_node >= g->params[i - 1].first_node);
    }
    assert_int_equal(elements, g->param_elements);
    assert_true(end <= g->param_extent && g->param_extent < end + GRAPH_PARAM_ALIGN);
    assert_int_equal(g->params[0].first_node, 0);
    assert_int_equal(g->params[0].last_node, g->n_nodes - 2);
    graph_close(&g);
}

static const graph_param *param_named(const graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_params; i++)
        if (strcmp(g->params[i].name, name) == 0)
            return &g->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void shapes_and_initialisation(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t d0, d1; /* [out, in] */
        graph_init init;
        float std;
    } want[] = {
        {"wte.weight", 50257, 768, GRAPH_INIT_NORMAL, 0.02f},
        {"wpe.weight", 1024, 768, GRAPH_INIT_NORMAL, 0.02f},
        {"h.3.ln_1.weight", 768, 0, GRAPH_INIT_ONE, 0},
        {"h.3.ln_1.bias", 768, 0, GRAPH_INIT_ZERO, 0},
        {"h.3.attn.c_attn.weight", 2304, 768, GRAPH_INIT_NORMAL, 0.02f},
        {"h.3.attn.c_attn.bias", 2304, 0, GRAPH_INIT_ZERO, 0},
        {"h.3.attn.c_proj.weight", 768, 768, GRAPH_INIT_NORMAL, 0.02f / 4.8989795f},
        {"h.3.mlp.c_fc.weight", 3072, 768, GRAPH_INIT_NORMAL, 0.02f},
        {"h.3.mlp.c_proj.weight", 768, 3072, GRAPH_INIT_NORMAL, 0.02f / 4.8989795f},
        {"h.3.mlp.c_proj.bias", 768, 0, GRAPH_INIT_ZERO, 0},
    };
    graph *g = build_preset("gpt2-124m", ATOM_F32, 1, 8);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const graph_param *p = param_named(g, want[i].name);
        assert_int_equal(p->rank, want[i].d1 ? 2 : 1);
        assert_int_equal(p->dims[0], want[i].d0);
        assert_int_equal(p->dims[1], want[i].d1);
        assert_int_equal(p->init, want[i].init);
        assert_true(fabsf(p->init_std - want[i].std) <= 1e-8f);
    }
    graph_close(&g);
}

static void nodes_of_a_block(void **state)
{
    (void)state;
    static const char *const full[] = {
        "embed",           "embed.drop",     "h.0.ln_1",     "h.0.attn.c_attn", "h.0.attn",
        "h.0.attn.c_proj", "h.0.attn.drop",  "h.0.add_1",    "h.0.ln_2",        "h.0.mlp.c_fc",
        "h.0.mlp.gelu",    "h.0.mlp.c_proj", "h.0.mlp.drop", "h.0.add_2",       "ln_f",
        "lm_head",         "loss",
    };
    random_gpt2 r = random_gpt2_make(1);
    r.config.layers = 1;
    r.config.embd_pdrop = 0.1f;
    r.config.attn_pdrop = 0.2f;
    r.config.resid_pdrop = 0.3f;
    graph *g = NULL;
    assert_int_equal(graph_gpt2_build(&r.config, ATOM_F32, r.B, r.T, &g), ATOM_OK);
    assert_int_equal(g->n_nodes, sizeof full / sizeof *full);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *n = &g->nodes[i];
        assert_string_equal(n->name, full[i]);
        assert_int_equal(n->rng, i);
        assert_string_equal(g->tensors[n->out[0]].name, full[i]);
    }
    assert_true(g->nodes[1].p == 0.1f && g->nodes[4].p == 0.2f && g->nodes[6].p == 0.3f &&
                g->nodes[12].p == 0.3f);
    /* x is the branch, r the residual stream */
    assert_int_equal(g->nodes[7].in[0], g->nodes[6].out[0]);
    assert_int_equal(g->nodes[7].in[1], g->nodes[1].out[0]);
    assert_int_equal(g->nodes[15].params[0], 0);
    assert_int_equal(g->nodes[15].n_params, 1);
    assert_int_equal(g->loss, g->nodes[16].out[0]);
    assert_int_equal(g->nodes[16].in[1], g->targets);
    graph_close(&g);

    r.config.embd_pdrop = r.config.attn_pdrop = r.config.resid_pdrop = 0;
    assert_int_equal(graph_gpt2_build(&r.config, ATOM_F32, r.B, r.T, &g), ATOM_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        assert_true(g->nodes[i].op != ATOM_OP_dropout && g->nodes[i].p == 0);
    assert_int_equal(g->n_nodes, sizeof full / sizeof *full - 3);
    graph_close(&g);
}

static void random_models_are_valid(void **state)
{
    (void)state;
    bool dropped = false, plain = false;
    for (uint64_t seed = 0; seed < 500; seed++) {
        random_gpt2 r = random_gpt2_make(seed);
        graph *g = NULL;
        if (graph_gpt2_build(&r.config, ATOM_F32, r.B, r.T, &g) != ATOM_OK)
            fail_msg("seed %d: %s", (int)seed, atom_fail_message());
        assert_int_equal(g->param_elements, graph_gpt2_params(&r.config));
        assert_true(r.config.width >= 24 && r.config.width <= 72);
        dropped |= r.config.resid_pdrop > 0;
        plain |= r.config.resid_pdrop == 0;
        graph_close(&g);
    }
    assert_true(dropped && plain);
}

static void bad_configs_name_their_key(void **state)
{
    (void)state;
    graph_config good = random_gpt2_make(0).config, c;
    graph *g = NULL;
#define BAD(field, value, key)                                                                     \
    do {                                                                                           \
        c = good;                                                                                  \
        c.field = (value);                                                                         \
        assert_int_equal(graph_gpt2_check(&c), ATOM_E_FORMAT);                                     \
        assert_non_null(strstr(atom_fail_message(), key));                                         \
        assert_int_equal(graph_gpt2_build(&c, ATOM_F32, 1, 1, &g), ATOM_E_FORMAT);                 \
        assert_null(g);                                                                            \
    } while (0)
    BAD(vocab_size, 0, "vocab_size");
    BAD(vocab_size, INT64_MAX, "vocab_size");
    BAD(positions, -1, "n_positions");
    BAD(width, 0, "n_embd");
    BAD(layers, 1 << 20, "n_layer");
    BAD(heads, 0, "n_head");
    BAD(heads, good.width - 1, "n_head");
    BAD(inner, 0, "n_inner");
    BAD(epsilon, 0, "layer_norm_epsilon");
    BAD(epsilon, NAN, "layer_norm_epsilon");
    BAD(init_std, -1, "initializer_range");
    BAD(init_std, INFINITY, "initializer_range");
    BAD(embd_pdrop, 1, "embd_pdrop");
    BAD(attn_pdrop, NAN, "attn_pdrop");
    BAD(resid_pdrop, -0.1f, "resid_pdrop");
#undef BAD
    assert_int_equal(graph_gpt2_build(&good, ATOM_F32, 1, good.positions + 1, &g), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "n_positions"));
    assert_int_equal(graph_gpt2_build(&good, ATOM_F32, 0, 1, &g), ATOM_E_FORMAT);
    assert_int_equal(graph_gpt2_build(&good, ATOM_I32, 1, 1, &g), ATOM_E_FORMAT);
    assert_int_equal(graph_gpt2_build(&good, ATOM_F32, INT64_MAX, 1, &g), ATOM_E_FORMAT);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* A directory's name may become a graph's name; the text form must still carry it. */
static void names_are_cleaned(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(0);
    strcpy(r.config.name, "my model=1,2");
    graph *g = NULL;
    assert_int_equal(graph_gpt2_build(&r.config, ATOM_F32, r.B, r.T, &g), ATOM_OK);
    assert_string_equal(g->name, "my_model_1_2");
    graph_close(&g);
}

static void fail_nth(uint64_t n, const random_gpt2 *r, bool *struck)
{
    graph *g = NULL, *fused = NULL, *back = NULL;
    char *text = NULL;
    atom_mem_fail_after(n);
    atom_status st = graph_gpt2_build(&r->config, ATOM_F32, r->B, r->T, &g);
    if (st == ATOM_OK)
        st = graph_fuse(g, &fused);
    if (st == ATOM_OK)
        st = graph_print(fused, &text);
    if (st == ATOM_OK)
        st = graph_parse(text, strlen(text), &back);
    atom_mem_fail_after(0);
    *struck = st != ATOM_OK;
    if (*struck)
        assert_int_equal(st, ATOM_E_RESOURCE);
    assert_true(!*struck || !back);
    graph_close(&g);
    graph_close(&fused);
    graph_close(&back);
    atom_free(text);
    assert_int_equal(atom_mem_read().live_blocks, 0);
    assert_int_equal(atom_mem_read().live_bytes, 0);
}

static void no_memory_no_leak(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(3);
    bool struck = true;
    uint64_t n = 1;
    for (; struck; n++)
        fail_nth(n, &r, &struck);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_presets),         cmocka_unit_test(untied_head),
        cmocka_unit_test(unknown_preset_suggests),   cmocka_unit_test(canonical_order),
        cmocka_unit_test(shapes_and_initialisation), cmocka_unit_test(nodes_of_a_block),
        cmocka_unit_test(random_models_are_valid),   cmocka_unit_test(bad_configs_name_their_key),
        cmocka_unit_test(names_are_cleaned),         cmocka_unit_test(no_memory_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
