/* config.json and weights of Llama's kin: both spellings of transformers, class defaults, what is
 * refused by name, names with and without prefix, q k v and gate up in their places. */
#include "atom/file/hfdir.h"
#include "atom/file/hfweights.h"
#include "atom/file/safetensors.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static atom_status parse(const char *text, graph_config *c)
{
    memset(c, 0xee, sizeof *c);
    return file_config_parse("c.json", text, strlen(text), c);
}

/* Llama-3.2-1B as transformers 4 has it, and the same as 5 writes it. */
static void llama3_both_ways(void **state)
{
    static const char *const texts[] = {
        "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":"
        "0.0,\"bos_token_id\":128000,\"eos_token_id\":[128001,128008,128009],\"head_dim\":64,"
        "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,"
        "\"intermediate_size\":8192,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
        "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":16,"
        "\"num_key_value_heads\":8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":{"
        "\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"rope_theta\":"
        "500000.0,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"vocab_size\":128256}",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":2048,\"intermediate_size\":8192,"
        "\"max_position_embeddings\":131072,\"model_type\":\"llama\",\"num_attention_heads\":32,"
        "\"num_hidden_layers\":16,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"
        "\"rope_parameters\":{\"rope_theta\":500000.0,\"factor\":32.0,\"high_freq_factor\":4.0,"
        "\"low_freq_factor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":"
        "\"llama3\"},\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"vocab_size\":128256}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        graph_config c;
        if (parse(texts[i], &c) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_int_equal(c.family, GRAPH_LLAMA);
        assert_int_equal(c.kv_heads, 8);
        assert_int_equal(c.head_dim, 64);
        assert_int_equal(graph_model_params(&c), 1235814400);
        assert_false(c.untied || c.qkv_bias || c.o_bias || c.mlp_bias);
        assert_true(c.rope.theta == 5e5f && c.rope.factor == 32 && c.rope.low == 1 &&
                    c.rope.high == 4 && c.rope.original == 8192);
        assert_true(c.epsilon == 1e-5f && c.window == 0);
    }
}

static void class_defaults(void **state)
{
    graph_config c;
    (void)state;
    assert_int_equal(parse("{\"model_type\":\"llama\"}", &c), ATOM_OK);
    assert_true(c.kv_heads == 32 && c.head_dim == 128 && c.untied && c.rope.theta == 1e4f);
    assert_int_equal(parse("{\"model_type\":\"mistral\"}", &c), ATOM_OK);
    assert_true(c.kv_heads == 8 && c.window == 4096);
    assert_int_equal(parse("{\"model_type\":\"mistral\",\"sliding_window\":null}", &c), ATOM_OK);
    assert_int_equal(c.window, 0);
    assert_int_equal(parse("{\"model_type\":\"phi3\",\"use_sliding_window\":false}", &c), ATOM_OK);
    assert_int_equal(parse("{\"model_type\":\"qwen2\",\"sliding_window\":64}", &c), ATOM_OK);
    assert_true(c.window == 0 && c.qkv_bias && !c.o_bias);
    assert_int_equal(
        parse("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":64}", &c),
        ATOM_OK);
    assert_true(c.window == 64 && c.window_layers == 28);
    assert_int_equal(parse("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
                           "\"num_hidden_layers\":28}",
                           &c),
                     ATOM_OK);
    assert_int_equal(c.window, 0);
    assert_int_equal(parse("{\"model_type\":\"qwen3\",\"use_sliding_window\":true,"
                           "\"num_hidden_layers\":2,"
                           "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
                           &c),
                     ATOM_OK);
    assert_true(c.window == 4096 && c.window_layers == 1);
    assert_int_equal(parse("{\"model_type\":\"qwen2\",\"use_sliding_window\":true,"
                           "\"num_hidden_layers\":1,\"layer_types\":[\"full_attention\"]}",
                           &c),
                     ATOM_OK);
    assert_int_equal(c.window, 0);
    assert_int_equal(parse("{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":1024,"
                           "\"num_attention_heads\":16,\"num_key_value_heads\":8}",
                           &c),
                     ATOM_OK);
    assert_true(c.family == GRAPH_QWEN3 && c.head_dim == 128 && c.kv_heads == 8);
    assert_int_equal(
        parse("{\"model_type\":\"qwen3\",\"head_dim\":null,\"attention_bias\":true}", &c), ATOM_OK);
    assert_true(c.head_dim == 128 && c.o_bias && c.qkv_bias);
    assert_int_equal(parse("{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\","
                           "\"factor\":2}}",
                           &c),
                     ATOM_OK);
    assert_true(c.rope.factor == 2 && c.rope.original == 0);
}

/* Granite-3.1-2B and SmolLM3-3B as their directories have it, less what is nobody's business. */
static void granite_and_smollm3(void **state)
{
    static const char granite[] =
        "{\"architectures\":[\"GraniteForCausalLM\"],\"attention_bias\":false,"
        "\"attention_multiplier\":0.015625,\"embedding_multiplier\":12.0,\"hidden_size\":2048,"
        "\"intermediate_size\":8192,\"logits_scaling\":8.0,\"max_position_embeddings\":131072,"
        "\"mlp_bias\":false,\"model_type\":\"granite\",\"num_attention_heads\":32,"
        "\"num_hidden_layers\":40,\"num_key_value_heads\":8,\"residual_multiplier\":0.22,"
        "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":5000000.0,"
        "\"tie_word_embeddings\":true,\"vocab_size\":49155}";
    static const char smollm3[] =
        "{\"architectures\":[\"SmolLM3ForCausalLM\"],\"hidden_size\":2048,"
        "\"intermediate_size\":11008,\"max_position_embeddings\":65536,\"max_window_layers\":28,"
        "\"model_type\":\"smollm3\",\"no_rope_layer_interval\":4,\"no_rope_layers\":[1,1,1,0,1,1,"
        "1,0],\"num_attention_heads\":16,\"num_hidden_layers\":8,\"num_key_value_heads\":4,"
        "\"rms_norm_eps\":1e-06,\"rope_theta\":5000000.0,\"sliding_window\":null,"
        "\"use_sliding_window\":false,\"layer_types\":[\"full_attention\",\"full_attention\","
        "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
        "\"full_attention\",\"full_attention\"],\"vocab_size\":128256}";
    graph_config c, again;
    char *text = NULL;
    (void)state;
    if (parse(granite, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.family == GRAPH_GRANITE && c.embedding_scale == 12 && c.residual_scale == 0.22f &&
                c.attention_scale == 0.015625f && c.logits_divisor == 8 && !c.untied);
    assert_int_equal(graph_model_params(&c), 2533531648);
    assert_int_equal(file_config_text(&c, NULL, NULL, &text), ATOM_OK);
    assert_int_equal(parse(text, &again), ATOM_OK);
    assert_memory_equal(&again, &c, sizeof c);
    atom_free(text);
    if (parse(smollm3, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.family == GRAPH_SMOLLM3 && c.nope_every == 4 && !c.untied && c.window == 0);
    for (c.nope_every = 0; c.nope_every < c.layers + 3; c.nope_every++) { /* or more than layers */
        assert_int_equal(file_config_text(&c, smollm3, NULL, &text), ATOM_OK);
        assert_int_equal(parse(text, &again), ATOM_OK);
        assert_int_equal(again.nope_every, c.nope_every);
        atom_free(text);
    }
    assert_int_equal(parse("{\"model_type\":\"smollm3\"}", &c), ATOM_OK);
    assert_true(c.nope_every == 4 && c.kv_heads == 4 && c.head_dim == 128 && !c.untied);
    assert_int_equal(parse("{\"model_type\":\"granite\"}", &c), ATOM_OK);
    assert_true(c.attention_scale == 1 && c.kv_heads == 32 && c.untied);
}

/* Phi-3-mini-4k, its own code and all, and Phi-4-mini's LongRoPE; OLMo-2-7B and 32B. */
static void phi3_and_olmo2(void **state)
{
    static const char phi3[] =
        "{\"architectures\":[\"Phi3ForCausalLM\"],\"auto_map\":{\"AutoConfig\":"
        "\"configuration_phi3.Phi3Config\",\"AutoModelForCausalLM\":\"modeling_phi3."
        "Phi3ForCausalLM\"},"
        "\"embd_pdrop\":0.0,\"hidden_act\":\"silu\",\"hidden_size\":3072,\"intermediate_size\":"
        "8192,"
        "\"max_position_embeddings\":4096,\"model_type\":\"phi3\",\"num_attention_heads\":32,"
        "\"num_hidden_layers\":32,\"num_key_value_heads\":32,\"original_max_position_embeddings\":"
        "4096,"
        "\"resid_pdrop\":0.0,\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":10000.0,"
        "\"sliding_window\":2047,\"tie_word_embeddings\":false,\"vocab_size\":32064}";
    graph_config c;
    (void)state;
    if (parse(phi3, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.family == GRAPH_PHI3 && c.window == 2047 && c.window_layers == 0);
    assert_int_equal(graph_model_params(&c), 3821079552);
    assert_int_equal(parse("{\"model_type\":\"phi3\"}", &c), ATOM_OK);
    assert_true(c.window == 0 && c.kv_heads == 32 && c.epsilon == 1e-5f && c.untied);
    assert_int_equal(parse("{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"longrope\","
                           "\"long_factor\":[1.0],\"short_factor\":[1.0]}}",
                           &c),
                     ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "has no original_max_position_embeddings"));
    assert_int_equal(parse("{\"model_type\":\"phi3\",\"embd_pdrop\":0.1}", &c), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "embd_pdrop"));
    assert_int_equal(parse("{\"model_type\":\"olmo2\",\"attention_bias\":true}", &c), ATOM_OK);
    assert_true(c.kv_heads == 32 && c.o_bias && c.epsilon == 1e-5f && c.untied);
    assert_int_equal(parse("{\"model_type\":\"olmo2\",\"num_key_value_heads\":8}", &c),
                     ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "num_key_value_heads is 8 of 32"));
}

/* YaRN as Qwen3's files have it; dynamic is the plain one up to the longest sequence. */
static void yarn_and_dynamic(void **state)
{
    graph_config c, again;
    char *text = NULL;
    (void)state;
    assert_int_equal(parse("{\"model_type\":\"qwen3\",\"max_position_embeddings\":40960,"
                           "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                           "\"original_max_position_embeddings\":32768}}",
                           &c),
                     ATOM_OK);
    assert_true(c.rope.yarn && c.rope.factor == 4 && c.rope.original == 32768 && c.rope.low == 1 &&
                c.rope.high == 32 && c.rope.gain == 1.13862944f);
    /* as it is up to channel floor(64 ln(32768 / 64 pi) / ln 1e4) = 35, divided from 60 on */
    assert_true(atom_rope_frequency(&c.rope, 35, 128) == (float)pow(1e4, -70 / 128.0));
    assert_true(atom_rope_frequency(&c.rope, 36, 128) < (float)pow(1e4, -72 / 128.0));
    assert_true(atom_rope_frequency(&c.rope, 59, 128) > (float)(pow(1e4, -118 / 128.0) / 4));
    assert_true(atom_rope_frequency(&c.rope, 60, 128) == (float)(pow(1e4, -120 / 128.0) / 4));
    assert_int_equal(file_config_text(&c, NULL, NULL, &text), ATOM_OK);
    assert_int_equal(parse(text, &again), ATOM_OK);
    assert_memory_equal(&c.rope, &again.rope, sizeof c.rope);
    atom_free(text);
    /* beside the rope's keys, where transformers 5 looks first */
    assert_int_equal(parse("{\"model_type\":\"qwen3\",\"original_max_position_embeddings\":1024,"
                           "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}}",
                           &c),
                     ATOM_OK);
    assert_true(c.rope.original == 1024);
    static const char dynamic[] =
        "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}}";
    assert_int_equal(parse(dynamic, &c), ATOM_OK);
    assert_true(c.rope.factor == 1 && c.rope.original == 0 && c.rope.gain == 0);
    assert_int_equal(file_config_text(&c, dynamic, NULL, &text), ATOM_OK);
    assert_non_null(strstr(text, "dynamic"));
    atom_free(text);
}

/* What a small Phi-4-mini turns at both lengths. */
static void long_and_partial(void **state)
{
    graph_config c, again;
    char *made = NULL;
    graph *g = NULL;
    char text[] = "{\"model_type\":\"phi3\",\"hidden_size\":48,\"num_attention_heads\":3,"
                  "\"num_hidden_layers\":1,\"intermediate_size\":8,\"vocab_size\":20,"
                  "\"max_position_embeddings\":64,\"original_max_position_embeddings\":8,"
                  "\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"longrope\","
                  "\"short_factor\":[1,1.5,2,2,2,2],\"long_factor\":[1,4,5,6,7,8.5]}}";
    (void)state;
    if (parse(text, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.rope.width == 12 && c.long_rope.original == 8 && c.rope.original == 0 &&
                c.rope.gain == (float)sqrt(2)); /* of 1 + ln(64 / 8) / ln 8 */
    assert_true(graph_model_reach(&c, 1) == 8 && graph_model_reach(&c, 9) == 64);
    for (int64_t T = 8; T <= 9; T++) {
        assert_int_equal(graph_model_build(&c, ATOM_F32, 1, T, &g), ATOM_OK);
        for (uint32_t n = 0; n < g->n_nodes; n++) {
            if (g->nodes[n].op == ATOM_OP_rope)
                assert_true(g->nodes[n].rope.width == 12 &&
                            g->nodes[n].rope.divisors[5] == (T == 8 ? 2 : 8.5f));
        }
        graph_close(&g);
    }
    assert_int_equal(file_config_text(&c, NULL, NULL, &made), ATOM_OK);
    if (parse(made, &again) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_memory_equal(&c.rope, &again.rope, sizeof c.rope);
    assert_memory_equal(&c.long_rope, &again.long_rope, sizeof c.long_rope);
    atom_free(made);
    memcpy(strstr(text, "8.5"), "0.0", 3);
    assert_int_equal(parse(text, &c), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "long_factor must be an array of 6 numbers"));
}

/* Phi-3's files have one tensor where others have three, or two. */
static void packed_as_files_have_it(void **state)
{
    static const char text[] =
        "{\"model_type\":\"phi3\",\"hidden_size\":12,\"num_attention_heads\":2,"
        "\"intermediate_size\":10,\"num_hidden_layers\":1,\"vocab_size\":20}";
    graph_config c;
    graph *g = NULL;
    file_slice *slices = NULL;
    uint32_t n = 0;
    (void)state;
    assert_int_equal(parse(text, &c), ATOM_OK);
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    assert_int_equal(file_slices(g, &slices, &n), ATOM_OK);
    assert_int_equal(n, g->n_params);
    for (uint32_t i = 0; i < n; i++)
        assert_string_equal(slices[i].name, g->params[i].name);
    atom_free(slices);
    graph_close(&g);
}

#define LLAMA(rest) "{\"model_type\":\"llama\"," rest "}"

/* Keys of others that change nothing. */
static void neutral_keys(void **state)
{
    graph_config c;
    (void)state;
    assert_int_equal(
        parse(LLAMA("\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":5e5,"
                    "\"rope_type\":\"default\","
                    "\"partial_rotary_factor\":1.0},\"final_logit_softcapping\":null,"
                    "\"embedding_multiplier\":1.0,\"is_causal\":true,\"num_experts\":0,"
                    "\"rms_norm_eps\":1e-5,\"norm_eps\":1e-3,\"per_layer_config\":{},\"use_qk_"
                    "norm\":false,\"resid_"
                    "pdrop\":0.0,\"no_rope_layers\":[],\"sliding_window\":null,"
                    "\"auto_map\":{\"AutoConfig\":\"c.MyConfig\",\"AutoTokenizer\":[null,"
                    "\"t.T\"],\"AutoModel\":\"m.LlamaModel\",\"AutoModelForCausalLM\":"
                    "\"them/model--modeling_llama.LlamaForCausalLM\"}"),
              &c),
        ATOM_OK);
    assert_true(c.rope.theta == 5e5f && c.rope.factor == 1);
    /* a window that is no shorter than any text, and one that the file itself switches off */
    assert_int_equal(parse(LLAMA("\"max_position_embeddings\":64,\"sliding_window\":64"), &c),
                     ATOM_OK);
    assert_int_equal(parse(LLAMA("\"use_sliding_window\":false,\"sliding_window\":8"), &c),
                     ATOM_OK);
    assert_int_equal(c.window, 0);
    assert_int_equal(
        parse(LLAMA("\"num_hidden_layers\":1,\"layer_types\":[\"full_attention\"]"), &c), ATOM_OK);
}

static void refused_by_name(void **state)
{
    static const struct {
        const char *text;
        atom_status status;
        const char *message;
    } cases[] = {
        {"{\"model_type\":\"gemma\"}", ATOM_E_UNSUPPORTED, "model_type: 'gemma'"},
        {"{\"model_type\":\"qwen2_moe\"}", ATOM_E_UNSUPPORTED, "model_type: 'qwen2_moe'"},
        {LLAMA("\"architectures\":[\"LlamaForSequenceClassification\"]"), ATOM_E_UNSUPPORTED,
         "architectures: 'LlamaForSequenceClassification'"},
        {LLAMA("\"architectures\":[\"MistralForCausalLM\"]"), ATOM_E_UNSUPPORTED,
         "only LlamaForCausalLM is"},
        {LLAMA("\"hidden_act\":\"gelu\""), ATOM_E_UNSUPPORTED, "hidden_act: 'gelu'"},
        {LLAMA("\"quantization_config\":{\"bits\":4}"), ATOM_E_UNSUPPORTED, "dequantise"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"ntk\",\"factor\":2}"), ATOM_E_UNSUPPORTED,
         "rope_type: 'ntk'"},
        {LLAMA("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2,"
               "\"original_max_position_embeddings\":16}"),
         ATOM_E_UNSUPPORTED, "'dynamic' depends on the length of the text from 16 tokens on"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\"}"), ATOM_E_FORMAT, "has no factor"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0.5}"), ATOM_E_FORMAT,
         "must be at least 1"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}"),
         ATOM_E_UNSUPPORTED, "truncate"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"mscale\":1}"),
         ATOM_E_UNSUPPORTED, "'mscale' is not known to rope_type 'yarn'"},
        {LLAMA("\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"beta_slow\":40}"), ATOM_E_FORMAT,
         "beta_slow is 40"},
        {LLAMA("\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"beta_fast\":4}"),
         ATOM_E_UNSUPPORTED, "'beta_fast' is not known to rope_type 'linear'"},
        {"{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.04}", ATOM_E_FORMAT,
         "partial_rotary_factor: 3 of"},
        {"{\"model_type\":\"phi3\",\"partial_rotary_factor\":0.01}", ATOM_E_FORMAT,
         "at least two of the 96"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"llama3\"}"), ATOM_E_FORMAT, "has no factor"},
        {LLAMA("\"rope_scaling\":{\"factor\":4}"), ATOM_E_FORMAT, "no rope_type that uses it"},
        {LLAMA("\"rope_scaling\":{},\"rope_parameters\":{\"rope_type\":\"ntk\",\"factor\":2}"),
         ATOM_E_UNSUPPORTED, "rope_type: 'ntk'"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"default\"},\"rope_parameters\":{\"rope_type\":"
               "\"linear\",\"factor\":2}"),
         ATOM_E_FORMAT, "contradict"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"default\",\"type\":\"yarn\"}"), ATOM_E_FORMAT,
         "and type the same"},
        {LLAMA("\"rope_theta\":5e5,\"rope_parameters\":{\"rope_theta\":1e4}"), ATOM_E_FORMAT,
         "rope_theta is 500000 outside of rope_parameters but 10000 inside"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":5e5}"),
         ATOM_E_FORMAT, "rope_theta is missing outside of rope_scaling"},
        {LLAMA("\"rope_theta\":\"5e5\",\"rope_parameters\":{\"rope_theta\":1e4}"), ATOM_E_FORMAT,
         "rope_theta must be a number from 0 to 3.40282e+38, but it is the text \"5e5\""},
        {LLAMA("\"rope_theta\":5e5,\"rope_parameters\":{\"rope_theta\":[]}"), ATOM_E_FORMAT,
         "but it is a list"},
        {LLAMA("\"rope_theta\":-1,\"rope_parameters\":{\"rope_theta\":1e4}"), ATOM_E_FORMAT,
         "but it is -1"},
        {"{\"model_type\":\"phi3\",\"partial_rotary_factor\":true,\"rope_parameters\":"
         "{\"partial_rotary_factor\":0.5}}",
         ATOM_E_FORMAT, "but it is true"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1},"
               "\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":2}"),
         ATOM_E_FORMAT, "contradict"},
        {LLAMA("\"rope_parameters\":{\"partial_rotary_factor\":0.5}"), ATOM_E_UNSUPPORTED,
         "partial_rotary_factor"},
        {LLAMA("\"rope_parameters\":{\"mrope_section\":[1]}"), ATOM_E_UNSUPPORTED,
         "'mrope_section' is not known to rope_type 'default'"},
        {LLAMA("\"attn_logit_softcapping\":50.0"), ATOM_E_UNSUPPORTED, "attn_logit_softcapping"},
        {LLAMA("\"embedding_multiplier\":12"), ATOM_E_UNSUPPORTED, "embedding_multiplier"},
        {LLAMA("\"no_rope_layers\":[1,0]"), ATOM_E_UNSUPPORTED, "no_rope_layers"},
        {LLAMA("\"use_qk_norm\":true"), ATOM_E_UNSUPPORTED, "use_qk_norm"},
        {LLAMA("\"num_experts\":8"), ATOM_E_UNSUPPORTED, "num_experts"},
        {LLAMA("\"alibi\":true"), ATOM_E_UNSUPPORTED, "alibi"},
        {LLAMA("\"dropout\":0.1"), ATOM_E_UNSUPPORTED, "dropout"},
        {LLAMA("\"scale_emb\":12"), ATOM_E_UNSUPPORTED, "scale_emb"},
        {LLAMA("\"is_causal\":false"), ATOM_E_UNSUPPORTED, "is_causal"},
        {"{\"model_type\":\"gpt2\",\"is_causal\":false}", ATOM_E_UNSUPPORTED, "is_causal"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":64,\"hidden_size\":32}", ATOM_E_FORMAT,
         "n_embd and hidden_size are names of one number"},
        {LLAMA("\"per_layer_config\":{\"1\":{\"skip\":[\"self_attn\"]}}"), ATOM_E_UNSUPPORTED,
         "per_layer_config: layers that differ"},
        {"{\"model_type\":\"gpt2\",\"per_layer_config\":{\"0\":{\"layer_norm_epsilon\":1e-3}}}",
         ATOM_E_UNSUPPORTED, "per_layer_config"},
        {LLAMA("\"transformers_weights\":\"other.safetensors\""), ATOM_E_UNSUPPORTED,
         "transformers_weights"},
        {LLAMA("\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"yarn\","
               "\"factor\":2,"
               "\"original_max_position_embeddings\":32}"),
         ATOM_E_FORMAT, "original_max_position_embeddings is 64 beside the rope's keys but 32"},
        {"{\"model_type\":\"phi3\",\"num_hidden_layers\":2,\"sliding_window\":8,\"layer_types\":"
         "[\"full_attention\",\"sliding_attention\"]}",
         ATOM_E_UNSUPPORTED,
         "layer_types: in models of this model_type all layers have the window"},
        {"{\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":50.0}", ATOM_E_UNSUPPORTED,
         "attn_logit_softcapping"},
        {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":"
         "8}}",
         ATOM_E_FORMAT, "rope_parameters must hold an object for full_attention"},
        {LLAMA("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4},\"rope_parameters\":"
               "{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":3}"),
         ATOM_E_FORMAT, "contradict"},
        {LLAMA("\"layer_norm_eps\":1e-3"), ATOM_E_FORMAT, "did you mean rms_norm_eps?"},
        {LLAMA("\"rope_scaling\":7"), ATOM_E_FORMAT, "rope_scaling must be an object"},
        {LLAMA("\"rope_parameters\":{\"full_attention\":{}}"), ATOM_E_UNSUPPORTED,
         "each type of layer"},
        {LLAMA("\"rope_theta\":\"big\""), ATOM_E_FORMAT, "rope_theta must be a number"},
        {LLAMA("\"partial_rotary_factor\":0.5"), ATOM_E_UNSUPPORTED, "partial_rotary_factor"},
        {LLAMA("\"num_key_value_heads\":5"), ATOM_E_FORMAT, "num_key_value_heads 5"},
        {LLAMA("\"num_attention_heads\":7"), ATOM_E_FORMAT, "set head_dim"},
        {LLAMA("\"tie_word_embeddings\":1"), ATOM_E_FORMAT, "must be true or false"},
        {LLAMA("\"attention_bias\":\"yes\""), ATOM_E_FORMAT, "attention_bias must be true"},
        {"{\"model_type\":\"mistral\",\"layer_types\":[]}", ATOM_E_FORMAT, "each of the 32 layers"},
        {"{\"model_type\":\"mistral\",\"num_hidden_layers\":2,\"layer_types\":"
         "[\"sliding_attention\",\"full_attention\"]}",
         ATOM_E_UNSUPPORTED, "after sliding_attention"},
        {"{\"model_type\":\"mistral\",\"num_hidden_layers\":1,\"layer_types\":[\"linear\"]}",
         ATOM_E_UNSUPPORTED, "only full_attention"},
        {LLAMA("\"sliding_window\":128"), ATOM_E_UNSUPPORTED, "sliding_window"},
        {"{\"model_type\":\"mistral\",\"use_sliding_window\":false}", ATOM_E_UNSUPPORTED,
         "no such switch"},
        {LLAMA(
             "\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"]"),
         ATOM_E_UNSUPPORTED, "layer_types"},
        {LLAMA("\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\"]"), ATOM_E_FORMAT,
         "each of the 2 layers"},
        {LLAMA("\"num_hidden_layers\":1,\"layer_types\":[\"linear_attention\"]"),
         ATOM_E_UNSUPPORTED, "layer_types"},
        {"{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"layer_types\":[\"linear_attention\"]"
         "}",
         ATOM_E_UNSUPPORTED, "only full_attention"},
        {"{\"model_type\":\"smollm3\",\"use_sliding_window\":true,\"sliding_window\":64}",
         ATOM_E_UNSUPPORTED, "sliding_window"},
        {LLAMA("\"auto_map\":{\"AutoModelForCausalLM\":\"modeling_x.XForCausalLM\"}"),
         ATOM_E_UNSUPPORTED, "auto_map: 'modeling_x.XForCausalLM'"},
        {LLAMA("\"auto_map\":{\"AutoModel\":\"modeling_x.MistralModel\"}"), ATOM_E_UNSUPPORTED,
         "auto_map: 'modeling_x.MistralModel'"},
        {LLAMA("\"auto_map\":{\"AutoModelForCausalLM\":7}"), ATOM_E_UNSUPPORTED, "auto_map"},
        {LLAMA("\"auto_map\":\"x\""), ATOM_E_FORMAT, "auto_map must be an object"},
        {"{\"model_type\":\"gpt2\",\"auto_map\":{\"AutoModelForCausalLM\":\"m.MyGPT\"}}",
         ATOM_E_UNSUPPORTED, "auto_map: 'm.MyGPT'"},
        {"{\"model_type\":\"smollm3\",\"num_hidden_layers\":3,\"no_rope_layers\":[0,1,1]}",
         ATOM_E_UNSUPPORTED, "every n-th layer"},
        {"{\"model_type\":\"smollm3\",\"num_hidden_layers\":3,\"no_rope_layers\":[1,1]}",
         ATOM_E_FORMAT, "each of the 3 layers"},
        {"{\"model_type\":\"smollm3\",\"num_hidden_layers\":1,\"no_rope_layers\":[2]}",
         ATOM_E_FORMAT, "other than 0 and 1"},
        {"{\"model_type\":\"granite\",\"residual_multiplier\":0}", ATOM_E_FORMAT,
         "residual_multiplier is 0"},
        {"{\"model_type\":\"granite\",\"no_rope_layer_interval\":4}", ATOM_E_UNSUPPORTED,
         "no_rope_layer_interval"},
        {LLAMA("\"head_dim\":63"), ATOM_E_FORMAT, "head_dim is 63"},
        {LLAMA("\"num_hidden_layers\":0"), ATOM_E_FORMAT, "num_hidden_layers"},
        {LLAMA("\"num_key_values_heads\":4"), ATOM_E_FORMAT, "did you mean num_key_value_heads?"},
        {LLAMA("\"rms_norm_epsilon\":1e-5"), ATOM_E_FORMAT, "did you mean rms_norm_eps?"},
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

/* ---- weights ---- */

static const char SMALL[] =
    "{\"model_type\":\"qwen3\",\"mine\":[1],\"hidden_size\":12,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":6,\"intermediate_size\":10,\"num_hidden_layers\":2,"
    "\"vocab_size\":20,\"max_position_embeddings\":16,\"attention_bias\":true,"
    "\"eos_token_id\":[3,4]}";

static graph *small(graph_config *c)
{
    graph *g = NULL;
    assert_int_equal(parse(SMALL, c), ATOM_OK);
    assert_int_equal(graph_model_build(c, ATOM_F32, 1, 8, &g), ATOM_OK);
    return g;
}

static float *numbers(const graph *g)
{
    float *x = atom_alloc(g->param_extent, sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < g->param_extent; i++)
        x[i] = (float)i / 7;
    return x;
}

static void written_and_read(void **state)
{
    graph_config c;
    graph *g = small(&c);
    float *x = numbers(g), *y = atom_alloc(g->param_extent, sizeof *y);
    scratch files;
    const char *dir = scratch_open(&files)->dir;
    char *path = atom_path_join(dir, "model.safetensors"), *text = NULL;
    file_safetensors *file = NULL;
    (void)state;
    assert_int_equal(file_config_write(dir, &c, SMALL, &(file_ends){6, 7}), ATOM_OK);
    assert_int_equal(file_weights_write(dir, g, x), ATOM_OK);
    assert_int_equal(file_weights_read(dir, g, y), ATOM_OK);
    for (uint32_t i = 0; i < g->n_params; i++)
        assert_memory_equal(x + g->params[i].offset, y + g->params[i].offset,
                            g->params[i].elements * sizeof *x);
    /* 3 and 2 of one, each where transformers looks for it */
    assert_int_equal(file_st_open(path, &file), ATOM_OK);
    const file_tensor *k = file_st_find(file, "model.layers.1.self_attn.k_proj.weight");
    const file_tensor *up = file_st_find(file, "model.layers.0.mlp.up_proj.weight");
    assert_non_null(k);
    assert_non_null(up);
    assert_non_null(file_st_find(file, "lm_head.weight"));
    assert_non_null(file_st_find(file, "model.layers.1.self_attn.q_norm.weight"));
    assert_non_null(file_st_find(file, "model.layers.1.self_attn.v_proj.bias"));
    assert_null(file_st_find(file, "model.layers.1.self_attn.qkv_proj.weight"));
    assert_int_equal(k->dims[0], 12);
    for (uint32_t i = 0; i < g->n_params; i++) {
        float first;
        const graph_param *p = &g->params[i];
        const file_tensor *t = strcmp(p->name, "layers.1.self_attn.qkv_proj.weight") == 0 ? k
                               : strcmp(p->name, "layers.0.mlp.gate_up_proj.weight") == 0 ? up
                                                                                          : NULL;
        if (!t)
            continue;
        assert_int_equal(file_st_read_f32(file, t, 0, 1, &first), ATOM_OK);
        assert_true(first == x[p->offset + (t == k ? 24u : 10u) * 12]);
    }
    file_st_close(&file);
    uint64_t bytes;
    atom_free(path);
    path = atom_path_join(dir, "config.json");
    assert_int_equal(atom_file_read(path, 1 << 20, &text, &bytes), ATOM_OK);
    assert_non_null(strstr(text, "\"mine\""));
    assert_non_null(strstr(text, "\"eos_token_id\": [")); /* theirs stays */
    assert_non_null(strstr(text, "\"bos_token_id\": 6"));
    assert_non_null(strstr(text, "\"rope_parameters\": {"));
    atom_free(text);
    atom_free(path);
    atom_free(x);
    atom_free(y);
    graph_close(&g);
    scratch_close(&files);
}

/* Small shards: read back, and each save leaves nothing of the one before. */
static void written_in_shards(void **state)
{
    static const uint64_t sizes[] = {500, 2000, 1 << 30, 1};
    graph_config c;
    graph *g = small(&c);
    float *x = numbers(g), *y = atom_alloc(g->param_extent, sizeof *y);
    scratch files;
    const char *dir = scratch_open(&files)->dir;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bool single = sizes[i] == 1 << 30;
        memset(y, 0, g->param_extent * sizeof *y);
        assert_int_equal(file_weights_write_as(dir, g, file_vector_memory(x), ATOM_F32, sizes[i]),
                         ATOM_OK);
        assert_int_equal(atom_path_exists(scratch_path(&files, "model.safetensors")), single);
        assert_int_equal(atom_path_exists(scratch_path(&files, "model.safetensors.index.json")),
                         !single);
        assert_int_equal(atom_path_exists(scratch_path(&files, "model-00001-of-00033.safetensors")),
                         sizes[i] == 1); /* a tensor each */
        assert_int_equal(file_weights_read(dir, g, y), ATOM_OK);
        for (uint32_t p = 0; p < g->n_params; p++)
            assert_memory_equal(x + g->params[p].offset, y + g->params[p].offset,
                                g->params[p].elements * sizeof *x);
    }
    atom_free(x);
    atom_free(y);
    graph_close(&g);
    scratch_close(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yarn_and_dynamic),        cmocka_unit_test(long_and_partial),
        cmocka_unit_test(llama3_both_ways),        cmocka_unit_test(class_defaults),
        cmocka_unit_test(granite_and_smollm3),     cmocka_unit_test(phi3_and_olmo2),
        cmocka_unit_test(packed_as_files_have_it), cmocka_unit_test(neutral_keys),
        cmocka_unit_test(refused_by_name),         cmocka_unit_test(written_and_read),
        cmocka_unit_test(written_in_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
