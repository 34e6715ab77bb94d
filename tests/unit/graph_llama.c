/* Llama, Mistral, Qwen2, Qwen3 as graphs: published parameter counts, names,
 * order, text, refusals. */
#include "atom/base/mem.h"
#include "atom/graph/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    refused(c, 33, ATOM_E_USAGE, "max_position_embeddings");
    refused((bad = c, bad.kv_heads = 3, bad), 8, ATOM_E_FORMAT, "num_key_value_heads 3");
    refused((bad = c, bad.head_dim = 9, bad), 8, ATOM_E_FORMAT, "head_dim is 9");
    refused((bad = c, bad.epsilon = 0, bad), 8, ATOM_E_FORMAT, "rms_norm_eps");
    refused((bad = c, bad.rope.theta = 1, bad), 8, ATOM_E_FORMAT, "rope_theta");
    refused((bad = c, bad.rope.original = 8, bad), 8, ATOM_E_FORMAT, "low_freq_factor");
    refused((bad = c, bad.inner = 0, bad), 8, ATOM_E_FORMAT, "intermediate_size");
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_published_models),
        cmocka_unit_test(presets_are_the_published_models),
        cmocka_unit_test(order_and_names),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
