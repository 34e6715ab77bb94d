/* Llama and its kin as graphs: published parameter counts, names,
 * order, text, refusals; the table of families. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static graph_config small(graph_family family)
{
    graph_config c;
    graph_family_defaults(family, &c);
    c.vocab_size = 50;
    c.positions = 32;
    c.width = 24;
    c.layers = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = 10;
    c.inner = 36;
    strcpy(c.name, "small");
    return c;
}

static void counts_of_published_models(void **state)
{
    (void)state;
    static const struct {
        graph_family family;
        int64_t C, F, L, H, K, D, V;
        bool untied;
        uint64_t params;
    } want[] = {
        {GRAPH_LLAMA, 576, 1536, 30, 9, 3, 64, 49152, false, 134515008},       /* SmolLM2-135M */
        {GRAPH_LLAMA, 2048, 8192, 16, 32, 8, 64, 128256, false, 1235814400},   /* Llama-3.2-1B */
        {GRAPH_LLAMA, 4096, 14336, 32, 32, 8, 128, 128256, true, 8030261248},  /* Llama-3.1-8B */
        {GRAPH_LLAMA, 4096, 11008, 32, 32, 32, 128, 32000, true, 6738415616},  /* Llama-2-7B */
        {GRAPH_MISTRAL, 4096, 14336, 32, 32, 8, 128, 32000, true, 7241732096}, /* v0.1 */
        {GRAPH_QWEN2, 896, 4864, 24, 14, 2, 64, 151936, false, 494032768},     /* Qwen2.5-0.5B */
        {GRAPH_QWEN3, 1024, 3072, 28, 16, 8, 128, 151936, false, 596049920},   /* Qwen3-0.6B */
        {GRAPH_QWEN3, 4096, 12288, 36, 32, 8, 128, 151936, true, 8190735360},  /* Qwen3-8B */
        {GRAPH_SMOLLM3, 2048, 11008, 36, 16, 4, 128, 128256, false, 3075098624},
        {GRAPH_GRANITE, 2048, 8192, 40, 32, 8, 64, 49155, false, 2533531648},  /* 3.1-2B */
        {GRAPH_PHI3, 3072, 8192, 32, 32, 32, 96, 32064, true, 3821079552},     /* Phi-3-mini-4k */
        {GRAPH_PHI3, 5120, 17920, 40, 40, 10, 128, 100352, true, 14659507200}, /* Phi-4 */
        {GRAPH_OLMO2, 4096, 11008, 32, 32, 32, 128, 100352, true, 7298617344}, /* OLMo-2-7B */
        {GRAPH_OLMO3, 4096, 11008, 32, 32, 32, 128, 100278, true, 7298011136}, /* Olmo-3-7B */
        {GRAPH_GEMMA2, 2304, 9216, 26, 8, 4, 256, 256000, false, 2614341888},  /* Gemma-2-2B */
        {GRAPH_GEMMA3, 1152, 6912, 26, 4, 1, 256, 262144, false, 999885952},   /* Gemma-3-1B */
        {GRAPH_GEMMA3, 2560, 10240, 34, 8, 4, 256, 262208, false, 3880263168}, /* 4B's text */
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        graph_config c;
        graph *g = NULL;
        graph_family_defaults(want[i].family, &c);
        c.width = want[i].C;
        c.inner = want[i].F;
        c.layers = want[i].L;
        c.heads = want[i].H;
        c.kv_heads = want[i].K;
        c.head_dim = want[i].D;
        c.vocab_size = want[i].V;
        c.untied = want[i].untied;
        c.rope.theta = 1e4f; /* OLMo 3 has no default */
        assert_int_equal(graph_model_params(&c), want[i].params);
        assert_int_equal(graph_model_build(&c, ATOM_BF16, 1, 128, &g), ATOM_OK);
        assert_int_equal(g->param_elements, want[i].params);
        graph_close(&g);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static void presets_are_the_published_models(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t params;
    } want[] = {
        {"smollm2-135m", 134515008},  {"smollm2-360m", 361821120},  {"smollm2-1.7b", 1711376384},
        {"llama-2-7b", 6738415616},   {"llama-3.2-1b", 1235814400}, {"llama-3.2-3b", 3212749824},
        {"llama-3.1-8b", 8030261248}, {"mistral-7b", 7248023552},   {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-3b", 3085938688},   {"qwen2.5-7b", 7615616512},
        {"qwen3-0.6b", 596049920},    {"qwen3-1.7b", 1720574976},   {"qwen3-8b", 8190735360},
        {"gemma-3-270m", 268098176},  {"gemma-3-1b", 999885952},    {"gemma-3-4b", 3880263168},
        {"gemma-2-2b", 2614341888},   {"gemma-2-9b", 9241705984},   {"pythia-70m", 70426624},
        {"pythia-160m", 162322944},   {"pythia-410m", 405334016},   {"pythia-1.4b", 1414647808},
    };
    const char *const *names = graph_preset_names() + 12; /* behind the GPTs */
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        graph_config c;
        assert_string_equal(names[i], want[i].name);
        assert_int_equal(graph_preset_get(want[i].name, &c), ATOM_OK);
        assert_int_equal(graph_model_check(&c), ATOM_OK);
        assert_int_equal(graph_model_params(&c), want[i].params);
    }
    assert_null(names[sizeof want / sizeof *want]);
}

/* No two rows have a name in common, and the lists say each name once. */
static void rows_are_told_apart(void **state)
{
    char all[GRAPH_FAMILY_LIST_MAX], gguf[GRAPH_FAMILY_LIST_MAX];
    (void)state;
    graph_family_list(false, all);
    graph_family_list(true, gguf);
    assert_memory_equal(all, "gpt2, llama, mistral, qwen2", 27);
    assert_null(strstr(gguf, "mistral"));
    assert_null(strstr(all, "atom_graph"));
    assert_null(strstr(strstr(all, " and ") + 5, ","));
    for (graph_family f = 0; f < GRAPH_FAMILY_N; f++) {
        graph_config c;
        const graph_traits *a = graph_family_traits(f);
        graph_family_defaults(f, &c);
        assert_int_equal(c.family, f);
        assert_true(f == GRAPH_OWN || strstr(all, a->name));
        assert_true(!a->gguf || strstr(gguf, a->gguf));
        for (graph_family e = 0; e < f; e++) {
            const graph_traits *b = graph_family_traits(e);
            assert_string_not_equal(a->name, b->name);
            assert_string_not_equal(a->class_name, b->class_name);
            assert_string_not_equal(a->body_name, b->body_name);
        }
    }
}

static void order_and_names(void **state)
{
    (void)state;
    static const char *const first[] = {"embed_tokens.weight",
                                        "layers.0.input_layernorm.weight",
                                        "layers.0.self_attn.qkv_proj.weight",
                                        "layers.0.self_attn.q_norm.weight",
                                        "layers.0.self_attn.k_norm.weight",
                                        "layers.0.self_attn.o_proj.weight",
                                        "layers.0.post_attention_layernorm.weight",
                                        "layers.0.mlp.gate_up_proj.weight",
                                        "layers.0.mlp.down_proj.weight",
                                        "layers.1.input_layernorm.weight"};
    graph_config c = small(GRAPH_QWEN3);
    graph *g = NULL, *fused = NULL, *back = NULL;
    char *text = NULL;
    c.window = 5;
    c.window_layers = 1;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 2, 8, &g), ATOM_OK);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        assert_string_equal(g->params[i].name, first[i]);
    assert_string_equal(g->params[g->n_params - 1].name, "lm_head.weight");
    assert_int_equal(g->params[2].dims[0], (4 + 2 * 2) * 10);
    assert_false(g->params[0].shared);
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    assert_int_equal(graph_print(fused, &text), ATOM_OK);
    assert_non_null(strstr(text, "heads=4 kv_heads=2 theta=0x271p4 factor=0x1p0"));
    assert_non_null(strstr(text, "layers.1.self_attn op=attention"));
    assert_non_null(strstr(text, " window=5"));
    assert_true(strstr(text, " window=5") > strstr(text, "layers.1.self_attn op=attention"));
    assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
    assert_int_equal(graph_hash(back), graph_hash(fused));
    atom_free(text);
    graph_close(&g);
    graph_close(&fused);
    graph_close(&back);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static bool has_node(const graph *g, const char *name, atom_op op)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op && strcmp(g->nodes[i].name, name) == 0)
            return true;
    return false;
}

/* SmolLM3: every n-th layer does not turn q and k. */
static void layers_without_rope(void **state)
{
    graph_config c = small(GRAPH_SMOLLM3);
    graph *g = NULL;
    (void)state;
    c.layers = 5;
    for (c.nope_every = 0; c.nope_every < 7; c.nope_every++) {
        assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
        for (int i = 0; i < 5; i++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%d.self_attn.rope", i);
            assert_int_equal(has_node(g, name, ATOM_OP_rope),
                             c.nope_every == 0 || (i + 1) % c.nope_every != 0);
        }
        graph_close(&g);
    }
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Granite: nodes for multipliers that are not 1, the attention's in the attention. */
static void multipliers(void **state)
{
    graph_config c = small(GRAPH_GRANITE);
    graph *g = NULL, *back = NULL;
    char *text = NULL;
    (void)state;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        assert_int_not_equal(g->nodes[i].op, ATOM_OP_scale);
        assert_true(g->nodes[i].scale == (g->nodes[i].op == ATOM_OP_attention ? 1 : 0));
    }
    graph_close(&g);
    c.embedding_scale = 12;
    c.residual_scale = 0.25f;
    c.attention_scale = 0.125f;
    c.logits_divisor = 8;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_true(has_node(g, "embed.scale", ATOM_OP_scale));
    assert_true(has_node(g, "layers.1.self_attn.o_proj.scale", ATOM_OP_scale));
    assert_true(has_node(g, "layers.1.mlp.down_proj.scale", ATOM_OP_scale));
    assert_true(has_node(g, "norm.scale", ATOM_OP_scale));
    assert_int_equal(graph_print(g, &text), ATOM_OK);
    assert_non_null(strstr(text, "layers.0.self_attn op=attention"));
    assert_non_null(strstr(text, "kv_heads=2 scale=0x1p-3"));
    assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
    assert_int_equal(graph_hash(back), graph_hash(g));
    atom_free(text);
    graph_close(&g);
    graph_close(&back);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* OLMo 2: no norm before attention and MLP, one behind each, and one of all of q and all of k. */
static void norms_behind(void **state)
{
    static const char *const first[] = {"embed_tokens.weight",
                                        "layers.0.self_attn.qkv_proj.weight",
                                        "layers.0.self_attn.q_norm.weight",
                                        "layers.0.self_attn.k_norm.weight",
                                        "layers.0.self_attn.o_proj.weight",
                                        "layers.0.post_attention_layernorm.weight",
                                        "layers.0.mlp.gate_up_proj.weight",
                                        "layers.0.mlp.down_proj.weight",
                                        "layers.0.post_feedforward_layernorm.weight",
                                        "layers.1.self_attn.qkv_proj.weight"};
    graph_config c = small(GRAPH_OLMO2);
    graph *g = NULL;
    (void)state;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "num_key_value_heads is 2 of 4"));
    c.kv_heads = 4;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        assert_string_equal(g->params[i].name, first[i]);
    assert_int_equal(g->params[2].dims[0], 40);
    assert_int_equal(g->param_elements, graph_model_params(&c));
    graph_close(&g);
}

static const graph_node *node_of(const graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i].name, name) == 0)
            return &g->nodes[i];
    fail_msg("no node is called %s", name);
    return NULL;
}

/* Gemma 3: norms around, whose weights start at 0 and are added to 1; a gate of gelu; every second
 * layer here sees everything and has the scaled rope; the root of C as each dtype has it. */
static void norms_around(void **state)
{
    static const char *const first[] = {"embed_tokens.weight",
                                        "layers.0.input_layernorm.weight",
                                        "layers.0.self_attn.qkv_proj.weight",
                                        "layers.0.self_attn.q_norm.weight",
                                        "layers.0.self_attn.k_norm.weight",
                                        "layers.0.self_attn.o_proj.weight",
                                        "layers.0.post_attention_layernorm.weight",
                                        "layers.0.pre_feedforward_layernorm.weight",
                                        "layers.0.mlp.gate_up_proj.weight",
                                        "layers.0.mlp.down_proj.weight",
                                        "layers.0.post_feedforward_layernorm.weight",
                                        "layers.1.input_layernorm.weight"};
    graph_config c = small(GRAPH_GEMMA3);
    graph *g = NULL, *back = NULL;
    char *text = NULL;
    (void)state;
    c.full_every = 2;
    c.window = 5;
    c.rope.factor = 8;
    c.query_scalar = 16;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        assert_string_equal(g->params[i].name, first[i]);
    assert_int_equal(g->param_elements, graph_model_params(&c));
    assert_int_equal(g->params[1].init, GRAPH_INIT_ZERO);
    assert_true(node_of(g, "norm")->lift == 1 &&
                node_of(g, "layers.0.self_attn.qk_norm")->lift == 1);
    assert_int_equal(node_of(g, "layers.0.mlp.act")->op, ATOM_OP_geglu);
    const graph_node *local = node_of(g, "layers.0.self_attn");
    const graph_node *full = node_of(g, "layers.1.self_attn");
    assert_true(local->window == 5 && full->window == 0 && full->scale == 0.25f);
    local = node_of(g, "layers.0.self_attn.rope");
    full = node_of(g, "layers.1.self_attn.rope");
    assert_true(local->rope.theta == 1e4f && local->rope.factor == 1);
    assert_true(full->rope.theta == 1e6f && full->rope.factor == 8);
    assert_true(node_of(g, "embed.scale")->scale == sqrtf(24));
    assert_true(node_of(g, "loss")->cap == 0 && node_of(g, "layers.0.self_attn")->cap == 0);
    assert_int_equal(graph_print(g, &text), ATOM_OK);
    assert_non_null(strstr(text, " lift=0x1p0"));
    assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
    assert_int_equal(graph_hash(back), graph_hash(g));
    atom_free(text);
    graph_close(&back);
    graph_close(&g);
    assert_int_equal(graph_model_build(&c, ATOM_BF16, 1, 8, &g), ATOM_OK);
    assert_true(node_of(g, "embed.scale")->scale == 4.90625f);
    graph_close(&g);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Gemma 2: soft caps, in the text and through fusion; no norms of q and k; one rope. */
static void soft_caps(void **state)
{
    graph_config c = small(GRAPH_GEMMA2);
    graph *g = NULL, *fused = NULL, *back = NULL;
    char *text = NULL;
    (void)state;
    c.window = 5;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_int_equal(g->param_elements, graph_model_params(&c));
    assert_string_equal(g->params[3].name, "layers.0.self_attn.o_proj.weight");
    assert_true(node_of(g, "layers.1.self_attn")->cap == 50 && node_of(g, "loss")->cap == 30);
    assert_true(node_of(g, "layers.0.self_attn")->window == 5 &&
                node_of(g, "layers.1.self_attn")->window == 0);
    assert_true(node_of(g, "layers.0.self_attn.rope")->rope.theta == 1e4f);
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    assert_int_equal(fused->nodes[fused->n_nodes - 1].op, ATOM_OP_classifier);
    assert_true(fused->nodes[fused->n_nodes - 1].cap == 30);
    assert_int_equal(graph_print(fused, &text), ATOM_OK);
    assert_non_null(strstr(text, " cap=0x"));
    assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
    assert_int_equal(graph_hash(back), graph_hash(fused));
    atom_free(text);
    graph_close(&back);
    graph_close(&fused);
    graph_close(&g);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

/* Phi-3: what files keep together is known to every rewrite, and to the text. */
static void packed_everywhere(void **state)
{
    graph_config c = small(GRAPH_PHI3);
    graph_lora_config lora = {.rank = 1, .scale = 1};
    graph_target target = {.name = "t", .rows = 8};
    graph *g = NULL, *fused = NULL, *adapted = NULL, *back = NULL;
    char *text = NULL;
    (void)state;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    target.param = g->nodes[2].params[0];
    assert_int_equal(graph_fuse(g, &fused), ATOM_OK);
    assert_int_equal(graph_lora(g, &lora, &target, 1, &adapted), ATOM_OK);
    assert_int_equal(graph_print(fused, &text), ATOM_OK);
    assert_int_equal(graph_parse(text, strlen(text), &back), ATOM_OK);
    assert_true(g->packed && fused->packed && adapted->packed && back->packed);
    atom_free(text);
    graph_close(&g);
    graph_close(&fused);
    graph_close(&adapted);
    graph_close(&back);
    c.family = GRAPH_LLAMA;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_false(g->packed);
    graph_close(&g);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static void refused(graph_config c, int64_t T, atom_status status, const char *about)
{
    graph *g = NULL;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, T, &g), status);
    if (!strstr(atom_fail_message(), about))
        fail_msg("\"%s\" is not in: %s", about, atom_fail_message());
    assert_null(g);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    graph_config c = small(GRAPH_MISTRAL), bad;
    c.window = 16;
    assert_int_equal(graph_model_usual(&c), 32);
    refused((bad = c, bad.window_layers = -1, bad), 8, ATOM_E_FORMAT, "max_window_layers");
    refused((bad = c, bad.full_every = -1, bad), 8, ATOM_E_FORMAT, "sliding_window_pattern is -1");
    refused((bad = c, bad.local_theta = 1, bad), 8, ATOM_E_FORMAT, "rope_local_base_freq is 1");
    refused((bad = c, bad.attn_cap = -1, bad), 8, ATOM_E_FORMAT, "attn_logit_softcapping is -1");
    refused((bad = c, bad.query_scalar = -1, bad), 8, ATOM_E_FORMAT, "query_pre_attn_scalar");
    refused(c, 33, ATOM_E_USAGE, "max_position_embeddings");
    refused((bad = c, bad.kv_heads = 3, bad), 8, ATOM_E_FORMAT, "num_key_value_heads 3");
    refused((bad = c, bad.head_dim = 9, bad), 8, ATOM_E_FORMAT, "head_dim is 9");
    refused((bad = c, bad.epsilon = 0, bad), 8, ATOM_E_FORMAT, "rms_norm_eps");
    refused((bad = c, bad.rope.theta = 1, bad), 8, ATOM_E_FORMAT, "rope_theta");
    refused((bad = c, bad.rope.original = 8, bad), 8, ATOM_E_FORMAT, "low_freq_factor");
    refused((bad = c, bad.nope_every = -1, bad), 8, ATOM_E_FORMAT, "no_rope_layer_interval");
    refused((bad = c, bad.residual_scale = -1, bad), 8, ATOM_E_FORMAT, "residual_multiplier is -1");
    refused((bad = c, bad.inner = 0, bad), 8, ATOM_E_FORMAT, "intermediate_size");
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_published_models),
        cmocka_unit_test(presets_are_the_published_models),
        cmocka_unit_test(rows_are_told_apart),
        cmocka_unit_test(order_and_names),
        cmocka_unit_test(layers_without_rope),
        cmocka_unit_test(multipliers),
        cmocka_unit_test(norms_behind),
        cmocka_unit_test(norms_around),
        cmocka_unit_test(soft_caps),
        cmocka_unit_test(packed_everywhere),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
