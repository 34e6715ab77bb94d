/* config.json of Gemma: as transformers 4 and 5 write it, and what is refused by name. */
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static atom_status parse(const char *text, graph_config *c)
{
    memset(c, 0xee, sizeof *c);
    return file_config_parse("c.json", text, strlen(text), c);
}

#define LLAMA(rest) "{\"model_type\":\"llama\"," rest "}"
#define GEMMA3(more)                                                                               \
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\","                   \
    "\"num_hidden_layers\":4,\"hidden_activation\":\"gelu_pytorch_tanh\"," more "}"

/* Gemma-3-1B as transformers 4 and as 5 write it, and what they may not say. */
static void gemma3_both_ways(void **state)
{
    static const char v4[] =
        "{\"architectures\":[\"Gemma3ForCausalLM\"],\"attention_bias\":false,"
        "\"attention_dropout\":0.0,\"attn_logit_softcapping\":null,\"bos_token_id\":2,"
        "\"cache_implementation\":\"hybrid\",\"eos_token_id\":[1,106],"
        "\"final_logit_softcapping\":null,\"head_dim\":256,\"hidden_activation\":"
        "\"gelu_pytorch_tanh\",\"hidden_size\":1152,\"initializer_range\":0.02,"
        "\"intermediate_size\":6912,\"max_position_embeddings\":32768,\"model_type\":"
        "\"gemma3_text\",\"num_attention_heads\":4,\"num_hidden_layers\":26,"
        "\"num_key_value_heads\":1,\"pad_token_id\":0,\"query_pre_attn_scalar\":256,"
        "\"rms_norm_eps\":1e-06,\"rope_local_base_freq\":10000,\"rope_scaling\":null,"
        "\"rope_theta\":1000000,\"sliding_window\":512,\"sliding_window_pattern\":6,"
        "\"torch_dtype\":\"bfloat16\",\"vocab_size\":262144}";
    graph_config c, preset, again;
    char *text = NULL;
    (void)state;
    if (parse(v4, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(graph_preset_get("gemma-3-1b", &preset), ATOM_OK);
    memcpy(preset.name, c.name, sizeof c.name);
    assert_memory_equal(&c, &preset, sizeof c);
    assert_int_equal(file_config_text(&c, v4, NULL, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"query_pre_attn_scalar\": 256,"));
    assert_int_equal(parse(text, &again), ATOM_OK);
    assert_memory_equal(&again, &c, sizeof c);
    atom_free(text);
    for (c.full_every = 0; c.full_every < 30; c.full_every += 1 + c.full_every / 3) {
        c.local_theta = 500;
        c.rope.factor = 8;
        c.query_scalar = 2.5f;
        assert_int_equal(file_config_text(&c, NULL, NULL, &text), ATOM_OK);
        assert_int_equal(parse(text, &again), ATOM_OK);
        for (int64_t i = 0; i < c.layers; i++)
            assert_int_equal(graph_layer_is_full(&again, i), graph_layer_is_full(&c, i));
        again.full_every = c.full_every;
        assert_memory_equal(&again, &c, sizeof c);
        atom_free(text);
    }
    assert_int_equal(
        parse(
            GEMMA3("\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
                   "\"rope_theta\":1e6},\"sliding_attention\":{\"rope_type\":\"default\","
                   "\"rope_theta\":500}},\"layer_types\":[\"sliding_attention\","
                   "\"full_attention\",\"sliding_attention\",\"full_attention\"]"),
            &c),
        ATOM_OK);
    assert_true(c.full_every == 2 && c.rope.factor == 8 && c.rope.theta == 1e6f &&
                c.local_theta == 500 && c.window == 4096);
    assert_int_equal(parse(GEMMA3("\"sliding_window\":null"), &c), ATOM_OK);
    assert_true(c.window == 0 && c.full_every == 6 && c.query_scalar == 256 && !c.untied);
}

#define GEMMA2(more)                                                                               \
    "{\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\",\"num_hidden_layers\":"  \
    "4" more "}"

/* Gemma-2-2B as transformers 4 writes it; caps that are there, null and absent. */
static void gemma2_both_ways(void **state)
{
    static const char v4[] =
        "{\"architectures\":[\"Gemma2ForCausalLM\"],\"attention_bias\":false,"
        "\"attention_dropout\":0.0,\"attn_logit_softcapping\":50.0,\"bos_token_id\":2,"
        "\"cache_implementation\":\"hybrid\",\"eos_token_id\":1,\"final_logit_softcapping\":30.0,"
        "\"head_dim\":256,\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":"
        "\"gelu_pytorch_tanh\",\"hidden_size\":2304,\"initializer_range\":0.02,"
        "\"intermediate_size\":9216,\"max_position_embeddings\":8192,\"model_type\":\"gemma2\","
        "\"num_attention_heads\":8,\"num_hidden_layers\":26,\"num_key_value_heads\":4,"
        "\"pad_token_id\":0,\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,"
        "\"rope_theta\":10000.0,\"sliding_window\":4096,\"torch_dtype\":\"float32\","
        "\"vocab_size\":256000}";
    graph_config c, preset, again;
    char *text = NULL;
    (void)state;
    if (parse(v4, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(graph_preset_get("gemma-2-2b", &preset), ATOM_OK);
    memcpy(preset.name, c.name, sizeof c.name);
    assert_memory_equal(&c, &preset, sizeof c);
    for (int i = 0; i < 3; i++) {
        c.attn_cap = i == 1 ? 0 : 12.5f;
        c.final_cap = i == 2 ? 0 : 7;
        c.full_every = i + 2;
        assert_int_equal(file_config_text(&c, NULL, NULL, &text), ATOM_OK);
        assert_null(strstr(text, "sliding_window_pattern"));
        assert_null(strstr(text, "rope_local_base_freq"));
        assert_int_equal(parse(text, &again), ATOM_OK);
        assert_memory_equal(&again, &c, sizeof c);
        atom_free(text);
    }
    assert_int_equal(parse(GEMMA2(""), &c), ATOM_OK);
    assert_true(c.attn_cap == 50 && c.final_cap == 30 && c.full_every == 2 && c.local_theta == 0);
    assert_int_equal(parse(GEMMA2(",\"final_logit_softcapping\":null"), &c), ATOM_OK);
    assert_true(c.attn_cap == 50 && c.final_cap == 0);
    assert_int_equal(parse(GEMMA3("\"final_logit_softcapping\":30.0"), &c), ATOM_OK);
    assert_true(c.attn_cap == 0 && c.final_cap == 30);
}

static void refused_by_name(void **state)
{
    static const struct {
        const char *text;
        atom_status status;
        const char *about;
    } cases[] = {
        {GEMMA3("\"hidden_act\":\"gelu\""), ATOM_E_UNSUPPORTED, "hidden_act: 'gelu'"},
        {GEMMA3("\"use_bidirectional_attention\":true"), ATOM_E_UNSUPPORTED,
         "use_bidirectional_attention"},
        {"{\"model_type\":\"gemma3\",\"text_config\":{}}", ATOM_E_UNSUPPORTED, "Gemma3ForCausalLM"},
        {GEMMA3("\"use_sliding_window\":false"), ATOM_E_UNSUPPORTED, "use_sliding_window"},
        {GEMMA3("\"query_pre_attn_scalar\":0"), ATOM_E_FORMAT, "query_pre_attn_scalar is 0"},
        {GEMMA3("\"sliding_window_pattern\":0"), ATOM_E_FORMAT, "sliding_window_pattern"},
        {GEMMA3("\"rope_local_base_freq\":1"), ATOM_E_FORMAT, "rope_local_base_freq is 1"},
        {GEMMA3("\"rope_local_base_freq\":1e4,\"rope_parameters\":{\"sliding_attention\":"
                "{\"rope_theta\":5}}"),
         ATOM_E_FORMAT, "contradict each other"},
        {GEMMA3("\"rope_local_base_freq\":{},\"rope_parameters\":{\"sliding_attention\":"
                "{\"rope_theta\":5}}"),
         ATOM_E_FORMAT, "rope_local_base_freq must be a number"},
        {GEMMA3("\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"linear\"}}"),
         ATOM_E_UNSUPPORTED, "sliding_attention: rope_type"},
        {GEMMA3("\"rope_parameters\":{\"sliding_attention\":{\"factor\":2}}"), ATOM_E_UNSUPPORTED,
         "it may not be scaled"},
        {GEMMA3("\"rope_parameters\":{\"sliding_attention\":{},\"rope_theta\":5}"), ATOM_E_FORMAT,
         "and nothing else"},
        {GEMMA3("\"sliding_window_pattern\":2,\"layer_types\":[\"full_attention\","
                "\"full_attention\",\"full_attention\",\"full_attention\"]"),
         ATOM_E_FORMAT, "layer_types and sliding_window_pattern contradict"},
        {GEMMA3("\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
                "\"full_attention\"]"),
         ATOM_E_UNSUPPORTED, "every n-th layer"},
        {GEMMA3("\"layer_types\":[\"full_attention\",\"chunked_attention\",\"full_attention\","
                "\"full_attention\"]"),
         ATOM_E_UNSUPPORTED, "only full_attention and sliding_attention"},
        {GEMMA2(",\"attn_logit_softcapping\":0"), ATOM_E_FORMAT, "attn_logit_softcapping is 0"},
        {GEMMA2(",\"final_logit_softcapping\":-1"), ATOM_E_FORMAT, "final_logit_softcapping"},
        {GEMMA2(",\"sliding_window_pattern\":6"), ATOM_E_UNSUPPORTED, "sliding_window_pattern"},
        {GEMMA2(",\"rope_local_base_freq\":6"), ATOM_E_UNSUPPORTED, "rope_local_base_freq"},
        {LLAMA("\"final_logit_softcapping\":30"), ATOM_E_UNSUPPORTED, "final_logit_softcapping"},
        {LLAMA("\"query_pre_attn_scalar\":256"), ATOM_E_UNSUPPORTED, "query_pre_attn_scalar"},
        {LLAMA("\"rope_local_base_freq\":1e4"), ATOM_E_UNSUPPORTED, "rope_local_base_freq"},
        {LLAMA("\"hidden_activation\":\"silu\""), ATOM_E_UNSUPPORTED, "hidden_activation"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph_config c;
        assert_int_equal(parse(cases[i].text, &c), cases[i].status);
        if (!strstr(atom_fail_message(), cases[i].about))
            fail_msg("\"%s\" is not in: %s", cases[i].about, atom_fail_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma3_both_ways),
        cmocka_unit_test(gemma2_both_ways),
        cmocka_unit_test(refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
