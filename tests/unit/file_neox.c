/* GPT-NeoX in files: a config.json as transformers 4 and 5 write it, q, k and v of each head together, masks of old
 * checkpoints, adapters, GGUF, and what is refused by name. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "atom/file/hfweights.h"
#include "atom/file/peft.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static atom_status parse(const char *text, graph_config *c)
{
    memset(c, 0xee, sizeof *c);
    return file_config_parse("c.json", text, strlen(text), c);
}

#define NEOX(rest) "{\"model_type\":\"gpt_neox\"," rest "}"
#define ROPE(rest) "\"rope_parameters\":{\"rope_type\":\"default\"," rest "}"

/* Pythia 160M, as it was published. */
static const char pythia[] =
    "{\"architectures\":[\"GPTNeoXForCausalLM\"],\"bos_token_id\":0,\"eos_token_id\":0,"
    "\"hidden_act\":\"gelu\",\"hidden_size\":768,\"initializer_range\":0.02,\"intermediate_size\":"
    "3072,\"layer_norm_eps\":1e-05,\"max_position_embeddings\":2048,\"model_type\":\"gpt_neox\","
    "\"num_attention_heads\":12,\"num_hidden_layers\":12,\"rotary_emb_base\":10000,\"rotary_pct\":"
    "0.25,\"tie_word_embeddings\":false,\"torch_dtype\":\"float16\",\"transformers_version\":"
    "\"4.24.0\",\"use_cache\":true,\"use_parallel_residual\":true,\"vocab_size\":50304}";

static void config_both_ways(void **state)
{
    graph_config c, again, preset;
    char *text = NULL;
    (void)state;
    if (parse(pythia, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.family == GRAPH_NEOX && c.parallel && !c.tanh_gelu && c.untied);
    assert_true(c.qkv_bias && c.o_bias && c.rope.width == 16 && c.rope.theta == 1e4f);
    assert_int_equal(graph_preset_get("pythia-160m", &preset), ATOM_OK);
    memcpy(preset.name, c.name, sizeof c.name);
    assert_memory_equal(&preset, &c, sizeof c);
    assert_int_equal(file_config_text(&c, pythia, NULL, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"rotary_pct\": 0.25"));
    assert_non_null(strstr(text, "\"rotary_emb_base\": 10000"));
    assert_non_null(strstr(text, "\"hidden_act\": \"gelu\""));
    assert_null(strstr(text, "rms_norm_eps"));
    assert_null(strstr(text, "num_key_value_heads"));
    assert_int_equal(parse(text, &again), ATOM_OK);
    assert_memory_equal(&again, &c, sizeof c);
    atom_free(text);
}

static void configs_that_are_read(void **state)
{
    graph_config c;
    char *text = NULL;
    (void)state;
    /* GPT-NeoX-20B: what is absent is as in its class */
    if (parse(
            NEOX("\"attention_probs_dropout_prob\":0,\"hidden_dropout_prob\":0,\"use_cache\":true,"
                 "\"hidden_act\":\"gelu_fast\""),
            &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.parallel && c.rope.theta == 1e4f); /* which the file does not say */
    assert_true(c.tanh_gelu && c.width == 6144 && c.layers == 44 && c.rope.width == 24);
    assert_int_equal(graph_model_params(&c), 20554567680u);
    c.epsilon = 1e-6f; /* what is written is the model's own */
    c.init_std = 0.01f;
    assert_int_equal(file_config_text(&c, NULL, &(file_ends){2, 3}, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"layer_norm_eps\": 1e-6"));
    assert_non_null(strstr(text, "\"initializer_range\": 0.01"));
    assert_non_null(strstr(text, "\"bos_token_id\": 2"));
    assert_non_null(strstr(text, "\"eos_token_id\": 3"));
    atom_free(text);
    /* the name of the activation stays */
    assert_int_equal(file_config_text(&c, NEOX("\"hidden_act\":\"gelu_fast\""), NULL, &text),
                     ATOM_OK);
    assert_non_null(strstr(text, "gelu_fast"));
    atom_free(text);
    /* transformers 5, whole heads: without a number it would be a quarter again */
    assert_int_equal(
        parse(
            NEOX(ROPE(
                "\"rope_theta\":500,\"partial_rotary_factor\":1.0") ","
                                                                    "\"use_parallel_residual\":"
                                                                    "false,\"attention_bias\":"
                                                                    "false,"
                                                                    "\"hidden_dropout\":0.1,"
                                                                    "\"attention_dropout\":0.2,"
                                                                    "\"classifier_dropout\":0.1,"
                                                                    "\"tie_word_embeddings\":true"),
            &c),
        ATOM_OK);
    assert_true(c.rope.width == 0 && c.rope.theta == 500 && !c.parallel && !c.untied);
    assert_true(!c.qkv_bias && !c.o_bias && c.mlp_bias);
    assert_true(c.resid_pdrop == 0.1f && c.embd_pdrop == 0.1f && c.attn_pdrop == 0.2f);
    assert_int_equal(file_config_text(&c, NULL, NULL, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"rotary_pct\": 1.0"));
    graph_config again;
    assert_int_equal(parse(text, &again), ATOM_OK);
    assert_memory_equal(&again, &c, sizeof c);
    atom_free(text);
    assert_int_equal(parse(NEOX("\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"), &c),
                     ATOM_OK);
    assert_true(c.rope.factor == 2 && c.rope.width == 24);
    assert_int_equal(parse(NEOX("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2}"), &c),
                     ATOM_OK); /* which for Phi-3 is another word for LongRoPE */
    assert_true(c.rope.yarn == 1 && c.rope.factor == 2 && c.long_rope.original == 0);
    assert_int_equal(parse(NEOX("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2},"
                                "\"rotary_pct\":0.5"),
                           &c),
                     ATOM_OK);
    assert_int_equal(c.rope.width, 48);
    assert_int_equal(file_config_text(&c,
                                      NEOX("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}"),
                                      NULL, &text),
                     ATOM_OK);
    assert_non_null(strstr(text, "\"rotary_pct\": 0.5"));
    atom_free(text);
}

static void configs_that_are_refused(void **state)
{
    static const struct {
        const char *text;
        atom_status status;
        const char *about;
    } cases[] = {
        {NEOX("\"hidden_act\":\"relu\""), ATOM_E_UNSUPPORTED, "hidden_act: 'relu'"},
        {NEOX("\"hidden_act\":\"quick_gelu\""), ATOM_E_UNSUPPORTED, "hidden_act: 'quick_gelu'"},
        {NEOX("\"hidden_size\":100,\"num_attention_heads\":12"), ATOM_E_FORMAT,
         "hidden_size 100 is not a multiple of num_attention_heads 12"},
        {NEOX("\"num_key_value_heads\":8"), ATOM_E_UNSUPPORTED, "num_key_value_heads is 8"},
        {NEOX("\"head_dim\":64"), ATOM_E_UNSUPPORTED, "head_dim is 64"},
        {NEOX("\"rms_norm_eps\":1e-6"), ATOM_E_FORMAT, "did you mean layer_norm_eps"},
        {NEOX("\"layer_norm_epsilon\":1e-6"), ATOM_E_FORMAT, "did you mean layer_norm_eps"},
        {NEOX("\"layer_norm_eps\":2"), ATOM_E_FORMAT, "layer_norm_eps is 2"},
        {NEOX("\"hidden_dropout\":1"), ATOM_E_FORMAT, "hidden_dropout is 1"},
        {NEOX("\"use_paralel_residual\":false"), ATOM_E_FORMAT, "use_parallel_residual"},
        {NEOX("\"use_parallel_residual\":0"), ATOM_E_FORMAT, "use_parallel_residual must be true"},
        {NEOX("\"use_parallel_residual\":null"), ATOM_E_FORMAT, "use_parallel_residual is null"},
        {NEOX("\"rotary_pct\":0"), ATOM_E_FORMAT, "rotary_pct is 0; it must"},
        {NEOX("\"rotary_pct\":1.5"), ATOM_E_FORMAT, "rotary_pct is 1.5; it must"},
        {NEOX("\"rotary_pct\":0.01"), ATOM_E_FORMAT, "two of the 96 channels"},
        {NEOX("\"rotary_pct\":0.14"), ATOM_E_FORMAT, "rotary_pct: 13 of 96 channels"},
        {NEOX("\"rotary_pct\":\"a\""), ATOM_E_FORMAT, "rotary_pct"},
        {NEOX("\"partial_rotary_factor\":0.5"), ATOM_E_FORMAT,
         "partial_rotary_factor differs from rotary_pct, which is 0.25"},
        {NEOX("\"rope_theta\":500"), ATOM_E_FORMAT, "rope_theta differs from rotary_emb_base"},
        {NEOX("\"rotary_pct\":0.5," ROPE("\"partial_rotary_factor\":0.25")), ATOM_E_FORMAT,
         "rotary_pct is 0.5"},
        {NEOX("\"rotary_emb_base\":500," ROPE("\"rope_theta\":1e4")), ATOM_E_FORMAT,
         "rotary_emb_base is 500"},
        {NEOX("\"sliding_window\":64"), ATOM_E_UNSUPPORTED, "sliding_window"},
        {NEOX("\"hidden_dropout_prob\":0.1"), ATOM_E_UNSUPPORTED, "hidden_dropout_prob"},
        {NEOX("\"attention_probs_dropout_prob\":0.1"), ATOM_E_UNSUPPORTED, "attention_probs_"},
        {NEOX("\"clip_qkv\":8"), ATOM_E_UNSUPPORTED, "clip_qkv"},
        {NEOX("\"use_qk_norm\":true"), ATOM_E_UNSUPPORTED, "use_qk_norm"},
        {NEOX("\"quantization_config\":{\"bits\":4}"), ATOM_E_UNSUPPORTED, "quantization_config"},
        {"{\"model_type\":\"llama\",\"use_parallel_residual\":true}", ATOM_E_UNSUPPORTED,
         "use_parallel_residual"},
        {"{\"model_type\":\"llama\",\"rotary_pct\":0.5}", ATOM_E_UNSUPPORTED, "rotary_pct"},
    };
    graph_config c;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].text, &c) != cases[i].status)
            fail_msg("%s: %s", cases[i].text, atom_fail_message());
        if (!strstr(atom_fail_message(), cases[i].about))
            fail_msg("\"%s\" is not in: %s", cases[i].about, atom_fail_message());
    }
}

/* --- weights --------------------------------------------------------------------------------- */

enum { H = 3, D = 4, C = H * D };

static graph_config small(bool untied)
{
    graph_config c;
    assert_int_equal(
        parse(NEOX("\"hidden_size\":12,\"num_attention_heads\":3,\"vocab_size\":9,"
                   "\"num_hidden_layers\":2,\"intermediate_size\":7,\"rotary_pct\":0.5"),
              &c),
        ATOM_OK);
    c.untied = untied;
    return c;
}

static graph *build(const graph_config *c)
{
    graph *g = NULL;
    assert_int_equal(graph_model_build(c, ATOM_F32, 1, 8, &g), ATOM_OK);
    return g;
}

/* Every number another. */
static float *counted(const graph *g)
{
    float *vector = atom_alloc(g->param_extent, sizeof *vector);
    assert_non_null(vector);
    for (uint64_t i = 0; i < g->param_extent; i++)
        vector[i] = (float)i;
    return vector;
}

static const graph_param *param_of(const graph *g, const char *name)
{
    for (uint32_t p = 0; p < g->n_params; p++)
        if (strcmp(g->params[p].name, name) == 0)
            return &g->params[p];
    fail_msg("there is no %s", name);
    return NULL;
}

/* Row (h 3 + part) D + d of the file is row (part H + h) D + d here. */
static void check_order(const file_safetensors *f, const char *name, uint64_t width,
                        const float *ours)
{
    float x[3 * C * C];
    const file_tensor *t = file_st_find(f, name);
    assert_non_null(t);
    assert_int_equal(t->elements, 3 * C * width);
    assert_int_equal(file_st_read_f32(f, t, 0, t->elements, x), ATOM_OK);
    for (uint64_t h = 0; h < H; h++)
        for (uint64_t part = 0; part < 3; part++)
            for (uint64_t i = 0; i < D * width; i++)
                assert_true(x[(h * 3 + part) * D * width + i] ==
                            ours[(part * H + h) * D * width + i]);
}

static void check_read(const char *dir, const graph *g, const float *want)
{
    file_weights *w = NULL;
    float *got = atom_alloc(g->param_extent, sizeof *got);
    assert_non_null(got);
    memcpy(got, want, g->param_extent * sizeof *got);
    for (uint32_t p = 0; p < g->n_params; p++)
        memset(got + g->params[p].offset, 0, g->params[p].elements * sizeof *got);
    if (file_weights_read(dir, g, got) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_memory_equal(got, want, g->param_extent * sizeof *got);
    if (file_weights_open(dir, g, NULL, &w) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    file_vector v = file_weights_vector(w);
    for (uint32_t p = 0; p < g->n_params; p++)
        for (uint64_t at = 0, n; at < g->params[p].elements; at += n) {
            n = g->params[p].elements - at < 17 ? g->params[p].elements - at : 17;
            assert_int_equal(v.get(v.ctx, g->params[p].offset + at, n, got), ATOM_OK);
            assert_memory_equal(got, want + g->params[p].offset + at, n * sizeof *got);
        }
    file_weights_close(&w);
    atom_free(got);
}

static void heads_change_places(void **state)
{
    static const char layer[] = "layers.1.attention.query_key_value", prefix[] = "gpt_neox.";
    char name[128];
    (void)state;
    for (int untied = 0; untied < 2; untied++) {
        graph_config c = small(untied);
        graph *g = build(&c);
        float *vector = counted(g);
        file_safetensors *f = NULL;
        scratch s;
        scratch_open(&s);
        assert_int_equal(file_weights_write(s.dir, g, vector), ATOM_OK);
        assert_int_equal(file_st_open(scratch_path(&s, "model.safetensors"), &f), ATOM_OK);
        assert_true((file_st_find(f, "embed_out.weight") != NULL) == untied);
        assert_non_null(file_st_find(f, "gpt_neox.embed_in.weight"));
        assert_non_null(file_st_find(f, "gpt_neox.final_layer_norm.bias"));
        snprintf(name, sizeof name, "%s%s.weight", prefix, layer);
        check_order(f, name, C, vector + param_of(g, name + strlen(prefix))->offset);
        snprintf(name, sizeof name, "%s%s.bias", prefix, layer);
        check_order(f, name, 1, vector + param_of(g, name + strlen(prefix))->offset);
        check_read(s.dir, g, vector);
        file_st_close(&f);
        atom_free(vector);
        graph_close(&g);
        scratch_close(&s);
    }
}

static void copy_file(const file_safetensors *f, const char *path, const char *const *more,
                      uint32_t n_more)
{
    static float data[3 * C * C];
    static const uint8_t mask[4] = {1, 0, 1, 1};
    static const uint64_t square[4] = {1, 1, 2, 2};
    file_st_writer *w = NULL;
    uint32_t i;
    assert_int_equal(file_st_create(path, &w), ATOM_OK);
    for (i = 0; i < f->n_tensors; i++) {
        const file_tensor *t = &f->tensors[i];
        bool head =
            strcmp(t->name, "embed_out.weight") == 0; /* the module's name in newer versions */
        assert_int_equal(
            file_st_declare(w, head ? "lm_head.weight" : t->name, t->dtype, t->rank, t->dims),
            ATOM_OK);
    }
    for (i = 0; i < n_more; i++)
        assert_int_equal(file_st_declare(w, more[i], FILE_BOOL, 4, square), ATOM_OK);
    assert_int_equal(file_st_begin(w), ATOM_OK);
    while (file_st_next(w, &i)) {
        if (i >= f->n_tensors) {
            assert_int_equal(file_st_write(w, mask, sizeof mask), ATOM_OK);
            continue;
        }
        assert_true(f->tensors[i].bytes <= sizeof data);
        assert_int_equal(file_st_read(f, &f->tensors[i], 0, f->tensors[i].bytes, data), ATOM_OK);
        assert_int_equal(file_st_write(w, data, f->tensors[i].bytes), ATOM_OK);
    }
    assert_int_equal(file_st_finish(w), ATOM_OK);
    file_st_writer_close(&w);
}

/* What checkpoints of 2022 carry beside the weights is passed over; nothing else is. */
static void masks_are_passed_over(void **state)
{
    static const char *const masks[] = {"gpt_neox.layers.0.attention.bias",
                                        "gpt_neox.layers.1.attention.masked_bias",
                                        "gpt_neox.layers.1.attention.rotary_emb.inv_freq"};
    static const char *const other[] = {"gpt_neox.layers.0.attention.dense.mask"};
    graph_config c = small(true);
    graph *g = build(&c);
    float *vector = counted(g);
    file_safetensors *f = NULL;
    scratch from, to;
    (void)state;
    scratch_open(&from);
    scratch_open(&to);
    assert_int_equal(file_weights_write(from.dir, g, vector), ATOM_OK);
    assert_int_equal(file_st_open(scratch_path(&from, "model.safetensors"), &f), ATOM_OK);
    copy_file(f, scratch_path(&to, "model.safetensors"), masks, 3);
    check_read(to.dir, g, vector);
    copy_file(f, scratch_path(&to, "model.safetensors"), other, 1);
    assert_int_equal(file_weights_read(to.dir, g, vector), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "attention.dense.mask' is not part of the model"));
    file_st_close(&f);
    atom_free(vector);
    graph_close(&g);
    scratch_close(&from);
    scratch_close(&to);
}

/* A head of its own here, which the files have in the embedding: both ways of reading find it. */
static void head_in_the_embedding(void **state)
{
    graph_config c = small(false);
    graph *tied = build(&c);
    float *vector = counted(tied);
    scratch s;
    (void)state;
    scratch_open(&s);
    assert_int_equal(file_weights_write(s.dir, tied, vector), ATOM_OK);
    c.untied = c.tied_files = true;
    graph *g = build(&c);
    float *want = counted(g);
    for (uint32_t p = 0; p < g->n_params; p++) {
        bool head = strcmp(g->params[p].name, "embed_out.weight") == 0;
        const graph_param *from = param_of(tied, head ? "embed_in.weight" : g->params[p].name);
        memcpy(want + g->params[p].offset, vector + from->offset, from->elements * sizeof *want);
    }
    check_read(s.dir, g, want);
    atom_free(want);
    atom_free(vector);
    graph_close(&g);
    graph_close(&tied);
    scratch_close(&s);
}

/* --- adapters -------------------------------------------------------------------------------- */

static void adapters_have_the_files_order(void **state)
{
    static const char CONFIG[] =
        "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"use_dora\":true,\"target_modules\":["
        "\"query_key_value\",\"embed_out\"],\"modules_to_save\":[\"1.attention.query_key_value\","
        "\"embed_in\"],\"layers_to_transform\":[0],\"layers_pattern\":\"layers\"}";
    static const char B[] = "layers.0.attention.query_key_value.lora_B.weight",
                      M[] = "layers.0.attention.query_key_value.lora_magnitude_vector",
                      W[] = "layers.1.attention.query_key_value.weight";
    graph_config c = small(true);
    graph *base = build(&c), *g = NULL;
    file_lora lora = {0};
    file_adapter *a = NULL;
    file_safetensors *f = NULL;
    scratch s;
    (void)state;
    scratch_open(&s);
    if (file_lora_parse("a.json", CONFIG, strlen(CONFIG), &lora) != ATOM_OK ||
        file_lora_graph(base, &lora, &g) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    float *vector = counted(g), *got = counted(g);
    for (uint32_t p = 0; p < g->n_params; p++)
        if (!g->params[p].frozen)
            memset(got + g->params[p].offset, 0, g->params[p].elements * sizeof *got);
    assert_int_equal(file_lora_write(s.dir, &lora, base, g, file_vector_memory(vector)), ATOM_OK);
    assert_int_equal(file_st_open(scratch_path(&s, "adapter_model.safetensors"), &f), ATOM_OK);
    check_order(f, "base_model.model.gpt_neox.layers.0.attention.query_key_value.lora_B.weight", 2,
                vector + param_of(g, B)->offset);
    check_order(
        f, "base_model.model.gpt_neox.layers.0.attention.query_key_value.lora_magnitude_vector", 1,
        vector + param_of(g, M)->offset);
    check_order(f, "base_model.model.gpt_neox.layers.1.attention.query_key_value.weight", C,
                vector + param_of(g, W)->offset);
    file_st_close(&f);
    if (file_adapter_open(s.dir, base, NULL, &a) != ATOM_OK ||
        file_adapter_put(a, g, file_vector_memory(got)) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_memory_equal(got, vector, g->param_extent * sizeof *got);
    file_adapter_close(&a);
    file_lora_free(&lora);
    atom_free(vector);
    atom_free(got);
    graph_close(&g);
    graph_close(&base);
    scratch_close(&s);
}

/* The head has its own name in adapters, too. */
static void heads_of_adapters(void **state)
{
    static const char HEAD[] =
        "{\"peft_type\":\"LORA\",\"r\":2,\"target_modules\":[\"embed_out\"]}";
    graph_config c = small(true);
    graph *base = build(&c);
    graph_target *targets = NULL;
    file_lora lora = {0};
    uint32_t n = 0;
    (void)state;
    assert_int_equal(file_lora_parse("a.json", HEAD, strlen(HEAD), &lora), ATOM_OK);
    assert_int_equal(file_lora_targets(base, &lora, &targets, &n), ATOM_OK);
    assert_true(n == 1 && strcmp(targets[0].name, "embed_out") == 0);
    atom_free(targets);
    graph_close(&base);
    c.untied = false;
    base = build(&c);
    assert_int_equal(file_lora_targets(base, &lora, &targets, &n), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "in this model embed_out is the embedding"));
    graph_close(&base);
    file_lora_free(&lora);
}

/* --- GGUF ------------------------------------------------------------------------------------ */

static void write_gguf(const graph_config *c, const graph *g, const char *path, const float *vector)
{
    file_gguf *w = NULL;
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    if (file_gguf_put_model(w, c, FILE_GGUF_F32) != ATOM_OK ||
        file_gguf_put_tensors(w, c, g, FILE_GGUF_F32,
                              file_vector_memory((float *)(uintptr_t)vector)) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
}

static void gguf_both_ways(void **state)
{
    scratch s;
    (void)state;
    scratch_open(&s);
    const char *path = scratch_path(&s, "x.gguf");
    for (int kind = 0; kind < 4; kind++) {
        graph_config c = small(true), got;
        c.parallel = kind & 1;
        c.tanh_gelu = kind & 2;
        c.rope.width = kind == 3 ? 0 : 2;
        c.rope.theta = 500;
        graph *g = build(&c);
        float *vector = counted(g);
        write_gguf(&c, g, path, vector);
        if (file_gguf_read_model(path, &got, NULL) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_memory_equal(&got, &c, sizeof c);
        check_read(path, g, vector);
        atom_free(vector);
        graph_close(&g);
    }
    scratch_close(&s);
}

static void spoil(scratch *s, const char *name, const char *from, const char *to)
{
    char *data = NULL;
    uint64_t bytes;
    assert_int_equal(atom_file_read(scratch_path(s, name), 1 << 24, &data, &bytes), ATOM_OK);
    char *at = memmem(data, bytes, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    scratch_write(s, name, data, bytes);
    atom_free(data);
}

static void gguf_that_is_refused(void **state)
{
    static const char *const says[] = {"a tied head", "attention_bias false",
                                       "attention_bias false", "rope_type 'llama3'",
                                       "rope_type 'longrope'"};
    graph_config c = small(true), has[5] = {c, c, c, c, c}, got;
    file_gguf *w = NULL;
    scratch s;
    (void)state;
    scratch_open(&s);
    const char *path = scratch_path(&s, "x.gguf");
    has[0].untied = false;
    has[1].qkv_bias = false;
    has[2].o_bias = false;
    has[3].rope = (atom_rope){.theta = 5e5f, .factor = 8, .low = 1, .high = 4, .original = 8};
    has[4].long_rope.original = 8;
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(file_gguf_put_model(w, &has[i], FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
        if (!strstr(atom_fail_message(), says[i]))
            fail_msg("%s", atom_fail_message());
    }
    file_gguf_close(&w);
    graph *g = build(&c);
    float *vector = counted(g);
    write_gguf(&c, g, path, vector);
    spoil(&s, "x.gguf", "use_parallel_residual", "use_parallel_residuum");
    assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "gptneox.use_parallel_residual is missing"));
    c.tanh_gelu = true;
    write_gguf(&c, g, path, vector);
    spoil(&s, "x.gguf", "gelu_pytorch_tanh", "gelu_pytorch_tank");
    assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "gptneox.hidden_act: 'gelu_pytorch_tank'"));
    atom_free(vector);
    graph_close(&g);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_both_ways),
        cmocka_unit_test(configs_that_are_read),
        cmocka_unit_test(configs_that_are_refused),
        cmocka_unit_test(heads_change_places),
        cmocka_unit_test(masks_are_passed_over),
        cmocka_unit_test(head_in_the_embedding),
        cmocka_unit_test(adapters_have_the_files_order),
        cmocka_unit_test(heads_of_adapters),
        cmocka_unit_test(gguf_both_ways),
        cmocka_unit_test(gguf_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
