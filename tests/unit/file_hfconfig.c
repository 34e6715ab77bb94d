/* config.json of GPT-2: keys taken, refused and kept. */
#include "atom/file/hfdir.h"

#include "atom/base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static atom_status parse(const char *text, graph_config *c)
{
    memset(c, 0xee, sizeof *c);
    return file_config_parse("c.json", text, strlen(text), c);
}

/* What the Hub's gpt2 says, and what transformers 5 writes. */
static void config_accepted(void **state)
{
    static const char *const old =
        "{\"activation_function\":\"gelu_new\",\"architectures\":[\"GPT2LMHeadModel\"],"
        "\"attn_pdrop\":0.1,\"bos_token_id\":50256,\"embd_pdrop\":0.1,\"eos_token_id\":50256,"
        "\"initializer_range\":0.02,\"layer_norm_epsilon\":1e-05,\"model_type\":\"gpt2\","
        "\"n_ctx\":1024,\"n_embd\":768,\"n_head\":12,\"n_layer\":12,\"n_positions\":1024,"
        "\"resid_pdrop\":0.1,\"summary_activation\":null,\"summary_first_dropout\":0.1,"
        "\"summary_proj_to_labels\":true,\"task_specific_params\":{\"text-generation\":"
        "{\"do_sample\":true,\"max_length\":50}},\"vocab_size\":50257}";
    static const char *const new =
        "{\"model_type\":\"gpt2\",\"dtype\":\"bfloat16\",\"n_embd\":40,\"n_layer\":3,\"n_head\":5,"
        "\"n_inner\":71,\"n_positions\":33,\"vocab_size\":97,\"resid_pdrop\":0,\"embd_pdrop\":0.0,"
        "\"attn_pdrop\":0.25,\"layer_norm_epsilon\":0.001,\"tie_word_embeddings\":true,"
        "\"scale_attn_weights\":true,\"reorder_and_upcast_attn\":false,\"add_cross_attention\":"
        "false,"
        "\"activation_function\":\"gelu_pytorch_tanh\",\"_name_or_path\":\"/tmp/my/tiny-model\"}";
    graph_config c;
    (void)state;
    assert_int_equal(parse(old, &c), ATOM_OK);
    assert_int_equal(c.vocab_size, 50257);
    assert_int_equal(c.positions, 1024);
    assert_int_equal(c.width, 768);
    assert_int_equal(c.inner, 3072);
    assert_int_equal(c.layers, 12);
    assert_int_equal(c.heads, 12);
    assert_true(c.epsilon == 1e-5f && c.init_std == 0.02f && c.resid_pdrop == 0.1f);
    assert_string_equal(c.name, "gpt2");
    assert_int_equal(parse(new, &c), ATOM_OK);
    assert_int_equal(c.inner, 71);
    assert_int_equal(c.positions, 33);
    assert_true(c.resid_pdrop == 0 && c.attn_pdrop == 0.25f && c.epsilon == 0.001f);
    assert_string_equal(c.name, "tiny-model");
    /* Others' keys may be anything but a slip of ours. */
    assert_int_equal(parse("{\"model_type\":\"gpt2\",\"n_embd\":48,\"n_embed\":1,\"n_special\":0,"
                           "\"predict_special_tokens\":true,\"use_cache\":true,\"mine\":[1]}",
                           &c),
                     ATOM_OK);
    assert_int_equal(c.width, 48);
    assert_int_equal(parse("{\"architectures\":[\"GPT2LMHeadModel\"]}", &c), ATOM_OK);
    assert_int_equal(c.vocab_size, 50257);
    assert_int_equal(parse("{\"model_type\":\"gpt2\",\"n_ctx\":64}", &c), ATOM_OK);
    assert_int_equal(c.positions, 64);
    assert_int_equal(parse("{\"model_type\":\"gpt2\",\"num_hidden_layers\":2}", &c), ATOM_OK);
    assert_int_equal(c.layers, 2);
}

#define GPT2(rest) "{\"model_type\":\"gpt2\"," rest "}"

static void config_refused(void **state)
{
    static const struct {
        const char *text;
        atom_status status;
        const char *message;
    } cases[] = {
        {"", ATOM_E_FORMAT, "c.json:"},
        {"[]", ATOM_E_FORMAT, "not a JSON object"},
        {"{}", ATOM_E_FORMAT, "model_type is missing"},
        {"{\"model_type\":\"gpt2\",", ATOM_E_FORMAT, "c.json:1:"},
        {GPT2("\"n_layer\":1,\"n_layer\":2"), ATOM_E_FORMAT, "duplicate"},
        {"{\"model_type\":\"mamba\"}", ATOM_E_UNSUPPORTED, "model_type: 'mamba' is not supported"},
        {"{\"model_type\":3}", ATOM_E_UNSUPPORTED, "model_type"},
        {"{\"architectures\":[\"BertModel\"]}", ATOM_E_UNSUPPORTED, "architectures: 'BertModel'"},
        {GPT2("\"activation_function\":\"relu\""), ATOM_E_UNSUPPORTED,
         "activation_function: 'relu'"},
        {GPT2("\"tie_word_embeddings\":1"), ATOM_E_FORMAT, "must be true or false"},
        {GPT2("\"scale_attn_weights\":false"), ATOM_E_UNSUPPORTED, "scale_attn_weights: false"},
        {GPT2("\"scale_attn_by_inverse_layer_idx\":true"), ATOM_E_UNSUPPORTED,
         "scale_attn_by_inverse_layer_idx: true"},
        {GPT2("\"reorder_and_upcast_attn\":true"), ATOM_E_UNSUPPORTED, "reorder_and_upcast_attn"},
        {GPT2("\"add_cross_attention\":true"), ATOM_E_UNSUPPORTED, "add_cross_attention"},
        {GPT2("\"quantization_config\":{\"bits\":4}"), ATOM_E_UNSUPPORTED, "quantization_config"},
        {GPT2("\"pruned_heads\":{\"0\":[1]}"), ATOM_E_UNSUPPORTED, "pruned_heads"},
        {GPT2("\"scale_attn_weights\":1"), ATOM_E_FORMAT, "must be true or false"},
        {GPT2("\"n_layer\":0"), ATOM_E_FORMAT, "n_layer"},
        {GPT2("\"n_layer\":1.5"), ATOM_E_FORMAT, "n_layer"},
        {GPT2("\"n_layer\":null"), ATOM_E_FORMAT, "n_layer is null"},
        {GPT2("\"tie_word_embeddings\":null"), ATOM_E_FORMAT, "tie_word_embeddings is null"},
        {GPT2("\"scale_attn_weights\":null"), ATOM_E_FORMAT, "scale_attn_weights is null"},
        {GPT2("\"n_layer\":\"12\""), ATOM_E_FORMAT, "n_layer"},
        {GPT2("\"n_layer\":9000000000000000000"), ATOM_E_FORMAT, "n_layer"},
        {GPT2("\"n_embd\":9000000000000000000"), ATOM_E_FORMAT, "n_embd"},
        {GPT2("\"n_head\":5"), ATOM_E_FORMAT, "n_head"},
        {GPT2("\"resid_pdrop\":1.5"), ATOM_E_FORMAT, "resid_pdrop"},
        {GPT2("\"resid_pdrop\":\"no\""), ATOM_E_FORMAT, "resid_pdrop must be a number"},
        {GPT2("\"layer_norm_epsilon\":-1"), ATOM_E_FORMAT, "layer_norm_epsilon"},
        {GPT2("\"n_embed\":64"), ATOM_E_FORMAT, "unknown key 'n_embed'"},
        {GPT2("\"n_layers\":2"), ATOM_E_FORMAT, "did you mean n_layer?"},
        {GPT2("\"layer_norm_eps\":1e-6"), ATOM_E_FORMAT, "did you mean layer_norm_epsilon?"},
    };
    graph_config c;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        atom_status st = parse(cases[i].text, &c);
        if (st != cases[i].status || !strstr(atom_fail_message(), cases[i].message) ||
            strncmp(atom_fail_message(), "c.json:", 7) != 0)
            fail_msg("%s: %s: %s", cases[i].text, atom_status_name(st), atom_fail_message());
    }
}

/* Each is said to be nothing that this model has, unless it says that there is nothing. */
static void keys_of_others(void **state)
{
    static const char *const keys[] = {"attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "query_pre_attn_scalar",
                                       "rope_local_base_freq",
                                       "sliding_window_pattern",
                                       "use_bidirectional_attention",
                                       "hidden_activation",
                                       "embedding_multiplier",
                                       "residual_multiplier",
                                       "attention_multiplier",
                                       "logits_scaling",
                                       "logit_scale",
                                       "no_rope_layer_interval",
                                       "use_qk_norm",
                                       "qk_layernorm",
                                       "clip_qkv",
                                       "rotary_pct",
                                       "num_local_experts",
                                       "num_experts",
                                       "n_routed_experts",
                                       "alibi",
                                       "use_alibi",
                                       "qk_norm",
                                       "use_parallel_residual",
                                       "parallel_attn",
                                       "scale_emb",
                                       "hidden_dropout",
                                       "dropout",
                                       "resid_pdrop",
                                       "embd_pdrop"};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[2000];
        graph_config c = {0};
        snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"%s\":8}", keys[i]);
        assert_int_equal(parse(text, &c), ATOM_E_UNSUPPORTED);
        if (!strstr(atom_fail_message(), keys[i]))
            fail_msg("%s: %s", keys[i], atom_fail_message());
        snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"%s\":null}", keys[i]);
        assert_int_equal(parse(text, &c), ATOM_OK);
        graph_config_free(&c);
    }
}

static void config_written(void **state)
{
    static const char *const source =
        "{\"model_type\":\"gpt2\",\"mine\":{\"x\":[1,2.5,0.1]},\"third\":0.3333333333333333,"
        "\"eos_token_id\":7,\"transformers_version\":\"5.0.0\",\"n_layer\":99}";
    static const char *const keys[] = {"\"architectures\"",
                                       "\"model_type\": \"gpt2\"",
                                       "\"n_ctx\": 33",
                                       "\"n_positions\": 33",
                                       "\"torch_dtype\": \"float32\"",
                                       "\n  \"dtype\": \"float32\"",
                                       "\"tie_word_embeddings\": true",
                                       "\"n_inner\": 71",
                                       "\"activation_function\": \"gelu_new\"",
                                       "\"embd_pdrop\": 0.1",
                                       "\"layer_norm_epsilon\": 1e-5",
                                       "\"eos_token_id\": 7",
                                       "\"bos_token_id\": null",
                                       "\"transformers_version\": \"5.0.0\"",
                                       "\"third\": 0.3333333333333333",
                                       "\"x\": [",
                                       "\"n_layer\": 3"};
    graph_config c = {.name = "tiny",
                      .vocab_size = 97,
                      .positions = 33,
                      .width = 40,
                      .layers = 3,
                      .heads = 5,
                      .inner = 71,
                      .epsilon = 1e-5f,
                      .init_std = 0.02f,
                      .embd_pdrop = 0.1f,
                      .attn_pdrop = 0.25f,
                      .resid_pdrop = 0.0f};
    graph_config d;
    char *text = NULL;
    (void)state;
    assert_int_equal(file_config_text(&c, source, NULL, &text), ATOM_OK);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!strstr(text, keys[i]))
            fail_msg("no %s in %s", keys[i], text);
    }
    assert_int_equal(parse(text, &d), ATOM_OK);
    assert_string_equal(d.name, c.name);
    assert_int_equal(d.vocab_size, c.vocab_size);
    assert_int_equal(d.positions, c.positions);
    assert_int_equal(d.width, c.width);
    assert_int_equal(d.layers, c.layers);
    assert_int_equal(d.heads, c.heads);
    assert_int_equal(d.inner, c.inner);
    assert_false(d.untied);
    assert_true(d.epsilon == c.epsilon && d.init_std == c.init_std &&
                d.embd_pdrop == c.embd_pdrop && d.attn_pdrop == c.attn_pdrop &&
                d.resid_pdrop == c.resid_pdrop);
    atom_free(text);
    c.inner = 160;
    assert_int_equal(file_config_text(&c, NULL, &(file_ends){95, 96}, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"n_inner\": null"));
    assert_non_null(strstr(text, "\"eos_token_id\": 96"));
    assert_non_null(strstr(text, "\"bos_token_id\": 95"));
    atom_free(text);
    c.untied = true;
    assert_int_equal(file_config_text(&c, source, NULL, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"tie_word_embeddings\": false"));
    assert_int_equal(parse(text, &d), ATOM_OK);
    assert_true(d.untied);
    atom_free(text);
}

/* No damaged config.json crashes, and what is accepted passes the graph's own check. */
static void config_mutations(void **state)
{
    static const char base[] =
        GPT2("\"n_embd\":40,\"n_head\":5,\"n_inner\":null,\"vocab_size\":97,"
             "\"layer_norm_epsilon\":1e-05,\"attn_pdrop\":0.1,"
             "\"tie_word_embeddings\":true,\"architectures\":[\"GPT2Model\"]");
    static const char alphabet[] = "{}[]\":,0123456789-.eE\\ntrufalse";
    uint64_t seed = 7;
    uint32_t accepted = 0;
    (void)state;
    for (int round = 0; round < 50000; round++) {
        char text[sizeof base];
        graph_config c;
        memcpy(text, base, sizeof base);
        for (int k = 0; k < 2; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % (sizeof base - 1)] = alphabet[(seed >> 20) % (sizeof alphabet - 1)];
        }
        if (file_config_parse("m", text, sizeof base - 1, &c) == ATOM_OK) {
            accepted++;
            assert_int_equal(graph_gpt2_check(&c), ATOM_OK);
        }
    }
    assert_true(accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_accepted),  cmocka_unit_test(config_refused),
        cmocka_unit_test(keys_of_others),   cmocka_unit_test(config_written),
        cmocka_unit_test(config_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
