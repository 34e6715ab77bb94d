/* OLMo 3 in files: a config.json as transformers 4 and 5 write it, GGUF both ways, and what is refused by name. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/ggufmodel.h"
#include "atom/file/hfdir.h"
#include "tests/scratch.h"

#include <math.h>
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

#define OLMO3(rest) "{\"model_type\":\"olmo3\",\"num_hidden_layers\":8," rest "}"
#define YARN                                                                                       \
    "\"rope_type\":\"yarn\",\"factor\":8,\"attention_factor\":1.25,\"beta_fast\":32,"              \
    "\"beta_slow\":1,\"original_max_position_embeddings\":8192"
#define LLAMA(rest) "{\"model_type\":\"llama\"," rest "}"
#define LINEAR "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4}"
#define DEFAULT "\"rope_type\":\"default\""

/* The 7B model of 2025, but fewer layers. */
static const char v4[] =
    "{\"architectures\":[\"Olmo3ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,"
    "\"eos_token_id\":100257,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":"
    "0.02,\"intermediate_size\":11008,\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
    "\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\","
    "\"sliding_attention\",\"full_attention\"],\"max_position_embeddings\":65536,\"model_type\":"
    "\"olmo3\",\"num_attention_heads\":32,\"num_hidden_layers\":8,\"num_key_value_heads\":32,"
    "\"pad_token_id\":100277,\"rms_norm_eps\":1e-06,\"rope_scaling\":{" YARN "},\"rope_theta\":"
    "500000,\"sliding_window\":4096,\"tie_word_embeddings\":false,\"vocab_size\":100278}";

static void config_both_ways(void **state)
{
    graph_config c, again;
    char *text = NULL;
    (void)state;
    if (parse(v4, &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_true(c.family == GRAPH_OLMO3 && c.window == 4096 && c.full_every == 4 && c.untied);
    assert_true(c.rope.yarn == 1 && c.rope.factor == 8 && c.rope.gain == 1.25f &&
                c.rope.theta == 5e5f && c.local_theta == 5e5f);
    assert_int_equal(file_config_text(&c, v4, NULL, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"sliding_attention\": {"));
    assert_null(strstr(text, "rope_local_base_freq"));
    assert_null(strstr(text, "sliding_window_pattern"));
    assert_int_equal(parse(text, &again), ATOM_OK);
    assert_memory_equal(&again, &c, sizeof c);
    atom_free(text);
    assert_int_equal(
        parse(OLMO3("\"layer_types\":null,\"rope_parameters\":{\"full_attention\":{" YARN
                    ",\"rope_theta\":7e4},\"sliding_attention\":{" DEFAULT ",\"rope_theta\":7e4}}"),
              &c),
        ATOM_OK);
    assert_true(c.full_every == 4 && c.rope.yarn == 1 && c.rope.theta == 7e4f &&
                c.local_theta == 7e4f && c.rope.original == 8192);
    /* a window that hides nothing */
    if (parse("{\"model_type\":\"phi3\",\"num_hidden_layers\":1,\"max_position_embeddings\":64,"
              "\"sliding_window\":64,\"layer_types\":[\"full_attention\"]}",
              &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    if (parse(LLAMA("\"rope_theta\":10000," LINEAR ",\"rope_parameters\":{\"rope_theta\":1e4,"
                    "\"rope_type\":\"linear\",\"factor\":4,\"beta_fast\":null}"),
              &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    if (parse(LLAMA("\"rope_theta\":1e4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4,"
                    "\"rope_theta\":null,"
                    "\"beta_slow\":null},\"rope_parameters\":{\"rope_theta\":1e4,\"rope_type\":"
                    "\"linear\",\"factor\":4}"),
              &c) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

/* A layer with a window turns as if nothing were scaled. */
static void windows_are_not_scaled(void **state)
{
    graph_config c;
    graph *g = NULL;
    int64_t seen = 0;
    (void)state;
    assert_int_equal(parse(v4, &c), ATOM_OK);
    c.width = c.heads = c.kv_heads = 2;
    c.head_dim = c.inner = c.vocab_size = 4;
    assert_int_equal(graph_model_build(&c, ATOM_F32, 1, 8, &g), ATOM_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const graph_node *n = &g->nodes[i];
        bool full = (seen + 1) % 4 == 0;
        if (n->op == ATOM_OP_rope)
            assert_true(n->rope.theta == 5e5f && n->rope.yarn == full &&
                        n->rope.factor == (full ? 8 : 1));
        if (n->op != ATOM_OP_attention)
            continue;
        assert_int_equal(n->window, full ? 0 : 4096);
        seen++;
    }
    assert_int_equal(seen, 8);
    graph_close(&g);
}

static void configs_that_are_refused(void **state)
{
    static const struct {
        const char *text;
        atom_status status;
        const char *about;
    } cases[] = {
        {OLMO3("\"vocab_size\":9"), ATOM_E_FORMAT, "rope_theta is missing"},
        {OLMO3("\"rope_parameters\":{\"full_attention\":{" DEFAULT ",\"rope_theta\":1e4},"
               "\"sliding_attention\":{" DEFAULT "}}"),
         ATOM_E_FORMAT, "rope_theta is missing"},
        {OLMO3("\"rope_theta\":1e4,\"rope_parameters\":{\"full_attention\":{" DEFAULT "},"
               "\"sliding_attention\":{" DEFAULT "}}"),
         ATOM_E_FORMAT, "rope_theta is missing"},
        {OLMO3("\"rope_parameters\":{\"full_attention\":{" DEFAULT ",\"rope_theta\":1e4}}"),
         ATOM_E_FORMAT, "rope_theta is missing"},
        {OLMO3("\"rope_parameters\":{\"full_attention\":{" DEFAULT ",\"rope_theta\":1e4},"
               "\"sliding_attention\":{" DEFAULT ",\"rope_theta\":500}}"),
         ATOM_E_UNSUPPORTED, "rope_theta is 500 for layers with a window and 10000 for the others"},
        {OLMO3("\"rope_parameters\":{\"full_attention\":{" DEFAULT ",\"rope_theta\":1e4},"
               "\"sliding_attention\":{" YARN ",\"rope_theta\":1e4}}"),
         ATOM_E_UNSUPPORTED, "sliding_attention: rope_type"},
        {LLAMA(LINEAR
               ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"linear\",\"factor\":4}"),
         ATOM_E_FORMAT, "rope_scaling and rope_parameters contradict each other"},
        {LLAMA("\"rope_theta\":1e4," LINEAR ",\"rope_parameters\":{\"rope_theta\":5e5,"
               "\"rope_type\":\"linear\",\"factor\":4}"),
         ATOM_E_FORMAT, "rope_theta is 10000 outside of rope_parameters but 500000 inside"},
        {LLAMA("\"rope_scaling\":{\"rope_theta\":1e4,\"rope_type\":\"linear\",\"factor\":4},"
               "\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"linear\",\"factor\":4}"),
         ATOM_E_FORMAT, "rope_scaling and rope_parameters contradict each other"},
        {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4},\"rope_"
         "parameters\":"
         "{\"partial_rotary_factor\":0.5,\"rope_type\":\"linear\",\"factor\":4}}",
         ATOM_E_FORMAT, "rope_scaling and rope_parameters contradict each other"},
        {OLMO3("\"rope_theta\":5e5,\"rope_scaling\":{\"full_attention\":{" YARN
               "},\"sliding_attention\":{" DEFAULT "}}"),
         ATOM_E_UNSUPPORTED, "must be called rope_parameters"},
        {"{\"model_type\":\"gemma3_text\",\"rope_scaling\":{\"full_attention\":{" DEFAULT
         "},\"sliding_attention\":{" DEFAULT "}}}",
         ATOM_E_UNSUPPORTED, "must be called rope_parameters"},
        {LLAMA("\"rope_theta\":1e4,\"original_max_position_embeddings\":null,\"rope_scaling\":{"
               "\"rope_type\":"
               "\"yarn\",\"factor\":4},\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,"
               "\"original_max_position_embeddings\":32}"),
         ATOM_E_FORMAT, "rope_scaling and rope_parameters contradict each other"},
        {LLAMA("\"original_max_position_embeddings\":64,\"rope_scaling\":{\"rope_type\":\"yarn\","
               "\"factor\":4,"
               "\"original_max_position_embeddings\":null},\"rope_parameters\":{\"rope_type\":"
               "\"yarn\",\"factor\":4,"
               "\"original_max_position_embeddings\":32}"),
         ATOM_E_FORMAT, "original_max_position_embeddings is 64 beside the rope's keys but 32"},
        {OLMO3("\"rope_parameters\":{" YARN ",\"rope_theta\":1e4}"), ATOM_E_FORMAT,
         "an object for full_attention and one for sliding_attention"},
        {OLMO3("\"rope_theta\":1e4,\"num_key_value_heads\":8"), ATOM_E_UNSUPPORTED,
         "fewer key heads than heads are not supported"},
        {OLMO3("\"rope_theta\":1e4,\"sliding_window_pattern\":4"), ATOM_E_UNSUPPORTED,
         "layer_types says which layers have a window"},
        {OLMO3("\"rope_theta\":1e4,\"rope_local_base_freq\":1e4"), ATOM_E_UNSUPPORTED,
         "rope_local_base_freq"},
        {OLMO3("\"rope_theta\":1e4,\"layer_types\":[\"full_attention\",\"sliding_attention\","
               "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\","
               "\"full_attention\",\"full_attention\"]"),
         ATOM_E_UNSUPPORTED, "only full_attention at every n-th layer"},
    };
    graph_config c;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].text, &c), cases[i].status);
        if (!strstr(atom_fail_message(), cases[i].about))
            fail_msg("\"%s\" is not in: %s", cases[i].about, atom_fail_message());
    }
}

/* --- GGUF ------------------------------------------------------------------------------------ */

enum { NONE, NUMBERS, REAL, TEXT, TEXTS };
static const char pattern_key[] = "olmo2.attention.sliding_window_pattern";

static void put_pattern(file_gguf *w, int kind, const int32_t *layers, uint64_t n)
{
    if (kind == NUMBERS)
        file_gguf_put_i32s(w, pattern_key, layers, n);
    if (kind == REAL)
        file_gguf_put_f32(w, pattern_key, 4);
    if (kind == TEXT)
        file_gguf_put_text(w, pattern_key, "4");
    if (kind == TEXTS)
        file_gguf_put_texts(w, pattern_key, n);
    for (uint64_t i = 0; kind == TEXTS && i < n; i++)
        file_gguf_add_text(w, layers[i] ? "1" : "", layers[i] ? 1 : 0);
}

/* `layers`: what says which layers have a window, as `kind`. */
static void write_gguf(const graph_config *c, const char *path, int kind, const int32_t *layers,
                       uint64_t n, float local)
{
    graph *g = NULL;
    file_gguf *w = NULL;
    assert_int_equal(graph_model_build(c, ATOM_F32, 1, 1, &g), ATOM_OK);
    float *vector = atom_alloc(g->param_extent, sizeof(float));
    assert_non_null(vector);
    for (uint64_t i = 0; i < g->param_extent; i++)
        vector[i] = 1;
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    if (file_gguf_put_model(w, c, FILE_GGUF_F32) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    put_pattern(w, kind, layers, n);
    if (local > 0)
        file_gguf_put_f32(w, "olmo2.rope.freq_base_swa", local);
    assert_int_equal(file_gguf_put_tensors(w, c, g, FILE_GGUF_F32, file_vector_memory(vector)),
                     ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    atom_free(vector);
    graph_close(&g);
}

enum { TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_ARRAY = 9 };

/* Makes the list of numbers one of n things of another type: of truths of a byte each, as llama.cpp's own
 * script writes it. */
static void retype(scratch *s, const char *name, char type, uint64_t n)
{
    char *data = NULL;
    uint64_t bytes;
    assert_int_equal(atom_file_read(scratch_path(s, name), 1 << 24, &data, &bytes), ATOM_OK);
    char *at = memmem(data, bytes, pattern_key, sizeof pattern_key - 1);
    assert_non_null(at);
    at += sizeof pattern_key - 1;
    assert_true(at[0] == TYPE_ARRAY && at[4] == TYPE_I32);
    at[4] = type;
    at[8] = (char)n;
    scratch_write(s, name, data, bytes);
    atom_free(data);
}

static graph_config small(void)
{
    graph_config c;
    assert_int_equal(parse(v4, &c), ATOM_OK);
    c.width = c.heads = c.kv_heads = 2;
    c.head_dim = c.inner = c.vocab_size = 4;
    return c;
}

static void gguf_both_ways(void **state)
{
    static const int32_t right[8] = {1, 1, 1, 0, 1, 1, 1, 0}, truths[2] = {0x010101, 0x010101};
    graph_config c = small(), got;
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *path = scratch_path(&s, "x.gguf");
    for (int with = 0; with < 3; with++) {
        write_gguf(&c, path, with ? NUMBERS : NONE, with == 2 ? truths : right, with == 2 ? 2 : 8,
                   with ? 5e5f : 0);
        if (with == 2)
            retype(&s, "x.gguf", TYPE_BOOL, 8);
        if (file_gguf_read_model(path, &got, NULL) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_true(got.family == GRAPH_OLMO3 && got.window == 4096 && got.full_every == 4);
        assert_true(got.rope.yarn == 1 && got.rope.factor == 8 &&
                    fabsf(got.rope.gain - 1.25f) < 1e-6f);
        assert_true(got.local_theta == 5e5f && got.query_scalar == 0);
    }
    /* without windows it is what OLMo 2 is */
    c = small();
    c.family = GRAPH_OLMO2;
    c.window = c.full_every = 0;
    c.local_theta = 0;
    write_gguf(&c, path, NONE, NULL, 0, 0);
    assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_OK);
    assert_true(got.family == GRAPH_OLMO2 && got.full_every == 0 && got.local_theta == 0);
    scratch_close(&s);
}

static void gguf_that_is_refused(void **state)
{
    static const int32_t other[8] = {1, 1, 1, 0, 1, 1, 0, 0}, right[8] = {1, 1, 1, 0, 1, 1, 1, 0};
    graph_config c = small(), got;
    file_gguf *w = NULL;
    (void)state;
    scratch s;
    scratch_open(&s);
    const char *path = scratch_path(&s, "x.gguf");
    for (uint64_t n = 7; n <= 8; n++) {
        write_gguf(&c, path, NUMBERS, other, n, 0);
        assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_E_UNSUPPORTED);
        assert_non_null(strstr(atom_fail_message(), "only every 4th layer without a window"));
    }
    for (int kind = REAL; kind <= TEXTS; kind++) {
        write_gguf(&c, path, kind, right, 8, 0);
        assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_E_UNSUPPORTED);
        assert_non_null(strstr(atom_fail_message(), "only every 4th layer without a window"));
    }
    write_gguf(&c, path, NUMBERS, right, 8, 0);
    retype(&s, "x.gguf", TYPE_F32, 8);
    assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "only every 4th layer without a window"));
    write_gguf(&c, path, NONE, NULL, 0, 1e4f);
    assert_int_equal(file_gguf_read_model(path, &got, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "rope.freq_base_swa"));
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    graph_config has[4] = {c, c, c, c};
    static const char *const says[4] = {"a tied head", "attention_bias", "rope_type 'llama3'",
                                        "attention_bias"};
    has[0].untied = false;
    has[1].qkv_bias = has[1].o_bias = true;
    has[2].rope = (atom_rope){.theta = 5e5f, .factor = 8, .low = 1, .high = 4, .original = 8};
    has[3].family = GRAPH_OLMO2;
    has[3].qkv_bias = has[3].o_bias = true;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(file_gguf_put_model(w, &has[i], FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
        if (!strstr(atom_fail_message(), says[i]))
            fail_msg("%s", atom_fail_message());
    }
    c.full_every = 3;
    assert_int_equal(file_gguf_put_model(w, &c, FILE_GGUF_F32), ATOM_E_UNSUPPORTED);
    assert_non_null(
        strstr(atom_fail_message(), "this model has layer_types, which llama.cpp does not"));
    assert_non_null(strstr(atom_fail_message(), "olmo3"));
    file_gguf_close(&w);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_both_ways),         cmocka_unit_test(windows_are_not_scaled),
        cmocka_unit_test(configs_that_are_refused), cmocka_unit_test(gguf_both_ways),
        cmocka_unit_test(gguf_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
