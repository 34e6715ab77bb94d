/* Which parameters Muon trains, and as which matrices: by hand for the families, fused or not, and
 * for the layers that AdamW keeps. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* "name:96+32+32 name:64 ..." of what Muon trains, in canonical order. */
static void told(const graph *g, char text[1024])
{
    int n = 0;
    text[0] = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        int64_t rows[GRAPH_MATRICES_MAX], all = 0;
        uint32_t count = graph_matrices(g, (int32_t)p, rows);
        if (count)
            n += snprintf(text + n, 1024 - (size_t)n, "%s%s", n ? " " : "", g->params[p].name);
        for (uint32_t i = 0; i < count; i++) {
            n += snprintf(text + n, 1024 - (size_t)n, "%c%lld", i ? '+' : ':', (long long)rows[i]);
            all += rows[i];
        }
        assert_true(!count || all == g->params[p].dims[0]);
    }
}

static void check(graph_config *c, const char *want)
{
    graph *plain = NULL, *fused = NULL;
    char text[1024];
    c->vocab_size = 50;
    c->positions = 16;
    c->layers = 1;
    c->init_std = 0.02f;
    strcpy(c->name, "model");
    assert_int_equal(graph_model_build(c, ATOM_F32, 2, 8, &plain), ATOM_OK);
    told(plain, text);
    assert_string_equal(text, ""); /* AdamW unless it is said */
    graph_set_optimizer(plain, GRAPH_MUON);
    told(plain, text);
    assert_string_equal(text, want);
    assert_int_equal(graph_fuse(plain, &fused), ATOM_OK);
    told(fused, text);
    assert_string_equal(text, want);
    graph_close(&plain);
    graph_close(&fused);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* The head is the embedding, which is shared. */
static void of_gpt2(void **state)
{
    (void)state;
    graph_config c = {.width = 12, .heads = 3, .inner = 40, .epsilon = 1e-5f};
    check(&c, "h.0.attn.c_attn.weight:12+12+12 h.0.attn.c_proj.weight:12 h.0.mlp.c_fc.weight:40 "
              "h.0.mlp.c_proj.weight:12");
    c.attn_pdrop = c.resid_pdrop = c.embd_pdrop = 0.1f;
    check(&c, "h.0.attn.c_attn.weight:12+12+12 h.0.attn.c_proj.weight:12 h.0.mlp.c_fc.weight:40 "
              "h.0.mlp.c_proj.weight:12");
}

/* Grouped heads, norms and turns between the product and attention, and a head of its own. */
static void of_llamas(void **state)
{
    (void)state;
    for (int untied = 0; untied < 2; untied++) {
        for (graph_family family = GRAPH_LLAMA; family < GRAPH_OWN; family++) {
            graph_config c;
            graph_family_defaults(family, &c);
            c.width = 20;
            c.heads = 6;
            bool whole = graph_family_traits(family)->qk_norm == GRAPH_QK_NORM_WHOLE;
            if (graph_family_traits(family)->neox)
                continue;               /* of_neox */
            c.kv_heads = whole ? 6 : 2; /* one norm of all of q, one of all of k */
            c.rope.theta = 1e4f;
            c.head_dim = 4;
            c.inner = 30;
            c.untied = untied;
            c.window = c.window_layers = 0;
            check(&c,
                  whole
                      ? "layers.0.self_attn.qkv_proj.weight:24+24+24 "
                        "layers.0.self_attn.o_proj.weight:20 "
                        "layers.0.mlp.gate_up_proj.weight:30+30 layers.0.mlp.down_proj.weight:20"
                      : "layers.0.self_attn.qkv_proj.weight:24+8+8 "
                        "layers.0.self_attn.o_proj.weight:20 "
                        "layers.0.mlp.gate_up_proj.weight:30+30 layers.0.mlp.down_proj.weight:20");
        }
    }
}

/* Two branches from one place change nothing. */
static void of_neox(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        graph_config c;
        graph_family_defaults(GRAPH_NEOX, &c);
        c.width = 24;
        c.heads = c.kv_heads = 6;
        c.head_dim = 4;
        c.inner = 30;
        c.untied = kind & 1;
        c.parallel = kind & 2;
        check(&c, "layers.0.attention.query_key_value.weight:24+24+24 "
                  "layers.0.attention.dense.weight:24 layers.0.mlp.dense_h_to_4h.weight:30 "
                  "layers.0.mlp.dense_4h_to_h.weight:24");
    }
}

/* Both factors of an adapter, on a part of a layer; what is frozen is nobody's. */
static void of_adapters(void **state)
{
    (void)state;
    graph_config c = {.width = 12,
                      .heads = 3,
                      .inner = 40,
                      .layers = 1,
                      .vocab_size = 50,
                      .positions = 16,
                      .epsilon = 1e-5f,
                      .init_std = 0.02f,
                      .name = "model"};
    const graph_lora_config lora = {.rank = 2, .scale = 1};
    graph *plain = NULL, *adapted = NULL, *fused = NULL;
    char text[1024];
    assert_int_equal(graph_model_build(&c, ATOM_F32, 2, 8, &plain), ATOM_OK);
    int32_t p = 0;
    while (strcmp(plain->params[p].name, "h.0.attn.c_attn.weight") != 0)
        p++;
    const graph_target targets[] = {{.param = p, .rows = 12, .name = "q"},
                                    {.param = p, .first = 24, .rows = 12, .name = "v"}};
    assert_int_equal(graph_lora(plain, &lora, targets, 2, &adapted), ATOM_OK);
    told(adapted, text);
    assert_string_equal(text, "");
    graph_set_optimizer(adapted, GRAPH_MUON);
    assert_int_equal(graph_fuse(adapted, &fused), ATOM_OK);
    for (int i = 0; i < 2; i++) {
        told(i ? fused : adapted, text);
        assert_string_equal(
            text, "q.lora_A.weight:2 q.lora_B.weight:12 v.lora_A.weight:2 v.lora_B.weight:12");
    }
    assert_int_equal(graph_matrix_elements(adapted), adapted->trained_elements);
    graph_close(&plain);
    graph_close(&adapted);
    graph_close(&fused);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* A scale between the head and the loss does not make a hidden layer of it. */
static void of_scaled_logits(void **state)
{
    (void)state;
    static const char text[] = "atom_graph 1\n"
                               "graph g dtype=fp32 B=2 T=3 optimizer=muon\n"
                               "param e dims=11,5 init=zero\n"
                               "param a dims=7,5 init=zero\n"
                               "param b dims=5,7 init=zero\n"
                               "param h dims=11,5 init=zero\n"
                               "input tokens kind=i32 dims=2,3\n"
                               "input targets kind=i32 dims=2,3\n"
                               "node embed op=embed in=tokens params=e\n"
                               "node x op=linear in=embed params=a\n"
                               "node r op=relu in=x\n"
                               "node y op=linear in=r params=b\n"
                               "node head op=linear in=y params=h\n"
                               "node s op=scale in=head scale=0x1p-1\n"
                               "node loss op=cross_entropy in=s,targets\n";
    graph *g = NULL;
    char is[1024];
    if (graph_parse(text, strlen(text), &g) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    told(g, is);
    assert_string_equal(is, "a:7 b:5");
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_gpt2),          cmocka_unit_test(of_neox),
        cmocka_unit_test(of_llamas),        cmocka_unit_test(of_adapters),
        cmocka_unit_test(of_scaled_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
