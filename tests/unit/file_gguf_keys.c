/* Keys of GGUF files: those that change a model are not passed over, and neither is one whose value cannot be. */
#include "tests/unit/file_gguf_common.h"

#include "tests/lib/said.h"

#include <jansson.h>
#include <math.h>

/* One number in a file, behind the name and type of its key, or behind those of a tensor. */
static void change(scratch *s, const char *name, size_t behind, const void *number, size_t bytes)
{
    char *data = NULL;
    uint64_t n;
    assert_int_equal(atom_file_read(scratch_path(s, "x.gguf"), 1 << 24, &data, &n), ATOM_OK);
    char *at = memmem(data, n, name, strlen(name));
    assert_non_null(at);
    memcpy(at + strlen(name) + behind, number, bytes);
    scratch_write(s, "x.gguf", data, n);
    atom_free(data);
}

/* A model's file, to which keys may be added before it is finished. */
static file_gguf *begin_model(const fixture *f, const char *path)
{
    file_gguf *w = NULL;
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &f->config, FILE_GGUF_F32), ATOM_OK);
    return w;
}

/* Finishes it; what its reader says of it. */
static atom_status finish_model(const fixture *f, const char *path, file_gguf *w, graph_config *c)
{
    assert_int_equal(
        file_gguf_put_tensors(w, &f->config, f->g, FILE_GGUF_F32, file_vector_memory(f->vector)),
        ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    return file_gguf_read_model(path, c, NULL);
}

/* A model's file with one more key; what its reader says of it. */
static atom_status with_key(const fixture *f, const char *path, const char *rest, double value,
                            bool flag, graph_config *c)
{
    char key[96];
    file_gguf *w = begin_model(f, path);
    snprintf(key, sizeof key, "%s.%s", file_gguf_architecture(&f->config), rest);
    if (flag)
        file_gguf_put_bool(w, key, value > 0);
    else
        file_gguf_put_f32(w, key, (float)value);
    return finish_model(f, path, w, c);
}

/* Keys that change the mathematics of a model are not passed over. */
static void keys_that_count(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        bool flag, fine;
    } cases[] = {
        {"attention.scale", 0.7, false, false},       {"attention.scale", 0, false, true},
        {"logit_scale", 0.5, false, false},           {"logit_scale", 1, false, true},
        {"residual_scale", 0.3, false, false},        {"embedding_scale", 12, false, false},
        {"attn_logit_softcapping", 50, false, false}, {"final_logit_softcapping", 30, false, false},
        {"attention.clamp_kqv", 8, false, false},     {"attention.max_alibi_bias", 8, false, false},
        {"attention.causal", 0, true, false},         {"attention.causal", 1, true, true},
        {"use_parallel_residual", 1, true, false},    {"use_parallel_residual", 0, true, true},
        {"rope.scaling.finetuned", 0, true, true}};
    scratch s;
    fixture f;
    graph_config c;
    scratch_open(&s);
    uint64_t seed = 1;
    for (fixture_open(&f, seed);
         f.config.family != GRAPH_LLAMA || f.config.rope.factor != 1 ||
         f.config.rope.original > 0 || f.config.rope.divisors[0] > 0 || f.config.long_rope.original;
         fixture_open(&f, ++seed))
        fixture_close(&f);
    const char *path = scratch_path(&s, "x.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atom_status st = with_key(&f, path, cases[i].key, cases[i].value, cases[i].flag, &c);
        assert_int_equal(st, cases[i].fine ? ATOM_OK : ATOM_E_UNSUPPORTED);
        if (!cases[i].fine)
            assert_non_null(strstr(atom_fail_message(), cases[i].key));
    }
    /* as llama.cpp: linear where no type is said, under either name */
    assert_int_equal(with_key(&f, path, "rope.scaling.factor", 4, false, &c), ATOM_OK);
    assert_true(c.rope.factor == 4);
    assert_int_equal(with_key(&f, path, "rope.scale_linear", 2, false, &c), ATOM_OK);
    assert_true(c.rope.factor == 2);
    /* and none where the type says that there is none */
    file_gguf *w = NULL;
    char key[96];
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    assert_int_equal(file_gguf_put_model(w, &f.config, FILE_GGUF_F32), ATOM_OK);
    snprintf(key, sizeof key, "%s.rope.scaling.type", file_gguf_architecture(&f.config));
    file_gguf_put_text(w, key, "none");
    snprintf(key, sizeof key, "%s.rope.scaling.factor", file_gguf_architecture(&f.config));
    file_gguf_put_f32(w, key, 4);
    assert_int_equal(
        file_gguf_put_tensors(w, &f.config, f.g, FILE_GGUF_F32, file_vector_memory(f.vector)),
        ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_OK);
    assert_true(c.rope.factor == 1);
    /* a factor below 1 is one, too */
    f.config.rope.factor = 0.5f;
    write_model(&f, FILE_GGUF_F32, path);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_OK);
    assert_true(c.rope.factor == 0.5f);
    fixture_close(&f);
    scratch_close(&s);
}

/* What its reader says of a model's file with two more numbers; a pattern below 0: without that key. */
static atom_status with_window(const fixture *f, const char *path, uint32_t window, int pattern,
                               graph_config *c)
{
    char key[96];
    const char *arch = file_gguf_architecture(&f->config);
    file_gguf *w = begin_model(f, path);
    snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
    file_gguf_put_u32(w, key, window);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
    if (pattern >= 0)
        file_gguf_put_u32(w, key, (uint32_t)pattern);
    return finish_model(f, path, w, c);
}

/* A window is used or refused, and so are layers without one. */
static void windows(void **state)
{
    (void)state;
    static const struct {
        graph_family family;
        uint32_t window;
        int pattern;
        const char *says; /* NULL: fine */
    } cases[] = {{GRAPH_LLAMA, 8, -1, NULL},
                 {GRAPH_LLAMA, 8, 0, NULL},
                 {GRAPH_LLAMA, 0, 2, NULL},
                 {GRAPH_LLAMA, 8, 2, "llama.attention.sliding_window_pattern: for models"},
                 {GRAPH_LLAMA, 8, 1, "llama.attention.sliding_window_pattern: for models"},
                 {GRAPH_GPT2, 0, -1, NULL},
                 {GRAPH_GPT2, 8, -1, "knows no sliding window for models of architecture gpt2"}};
    scratch s;
    graph_config c;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        uint64_t seed = 1;
        for (fixture_open(&f, seed); f.config.family != cases[i].family || f.config.window;
             fixture_open(&f, ++seed))
            fixture_close(&f);
        atom_status st =
            with_window(&f, scratch_path(&s, "x.gguf"), cases[i].window, cases[i].pattern, &c);
        assert_int_equal(st, cases[i].says ? ATOM_E_UNSUPPORTED : ATOM_OK);
        if (cases[i].says)
            assert_non_null(strstr(atom_fail_message(), cases[i].says));
        else
            assert_int_equal(c.window, cases[i].window);
        fixture_close(&f);
    }
    scratch_close(&s);
}

/* A key of another kind is not taken for one that is not there. */
static void kinds_of_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        bool flag;
        const char *says;
    } cases[] = {{"attention.sliding_window", 8, false, "it must be a whole number"},
                 {"rope.scaling.factor", 1, true, "it must be a real number"},
                 {"rope.scaling.factor", NAN, false, "is not a finite number"},
                 {"rope.scaling.type", 2, false, "it must be a text"},
                 {"attention.causal", 0, false, "it must be true or false"},
                 {"expert_count", 1, true, "it must be a whole number"}};
    scratch s;
    fixture f;
    graph_config c;
    uint64_t seed = 1;
    scratch_open(&s);
    for (fixture_open(&f, seed); f.config.family != GRAPH_LLAMA || f.config.rope.factor != 1 ||
                                 f.config.rope.original > 0 || f.config.window;
         fixture_open(&f, ++seed))
        fixture_close(&f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(with_key(&f, scratch_path(&s, "x.gguf"), cases[i].key, cases[i].value,
                                  cases[i].flag, &c),
                         ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), cases[i].key));
        assert_non_null(strstr(atom_fail_message(), cases[i].says));
    }
    fixture_close(&f);
    scratch_close(&s);
}

static void numbers_that_cannot_be(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    graph_config c;
    file_gguf_in *in = NULL;
    uint64_t seed = 1, offset = 36;
    const float gain = -1;
    scratch_open(&s);
    for (fixture_open(&f, seed);
         !(f.config.rope.yarn && f.config.rope.gain > 0 && f.config.width % FILE_GGUF_Q8_BLOCK);
         fixture_open(&f, ++seed))
        fixture_close(&f);
    write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
    change(&s, "rope.scaling.attn_factor", 4, &gain, sizeof gain);
    assert_int_equal(file_gguf_read_model(scratch_path(&s, "x.gguf"), &c, NULL), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "attn_factor is -1; it must be above 0"));
    write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
    change(&s, "blk.0.attn_norm.weight", 4 + 8 + 4, &offset, sizeof offset);
    assert_int_equal(file_gguf_open(scratch_path(&s, "x.gguf"), &in), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "'blk.0.attn_norm.weight' is not aligned"));
    const uint32_t q8 = FILE_GGUF_Q8_0, version = 4;
    write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
    change(&s, "blk.0.attn_norm.weight", 4 + 8, &q8, sizeof q8);
    assert_true(f.config.width % FILE_GGUF_Q8_BLOCK != 0);
    assert_int_equal(file_gguf_open(scratch_path(&s, "x.gguf"), &in), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "rows that are not whole blocks"));
    write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
    change(&s, "GGUF", 0, &version, sizeof version);
    assert_int_equal(file_gguf_open(scratch_path(&s, "x.gguf"), &in), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "GGUF version 4"));
    file_gguf *w = NULL;
    assert_int_equal(file_gguf_create(scratch_path(&s, "x.gguf"), NULL, &w), ATOM_OK);
    file_gguf_put_u32(w, "general.alignment", 48);
    assert_int_equal(file_gguf_begin(w), ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    assert_int_equal(file_gguf_open(scratch_path(&s, "x.gguf"), &in), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "alignment must be a power of two"));
    fixture_close(&f);
    scratch_close(&s);
}

/* Rows of a head in another order cannot be taken from blocks that cross heads. */
static void blocks_across_heads(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    char *data = NULL;
    uint64_t bytes, seed = 1, rows = 0;
    scratch_open(&s);
    for (fixture_open(&f, seed);; fixture_open(&f, ++seed)) {
        rows = (uint64_t)(f.config.heads * f.config.head_dim);
        if (graph_family_traits(f.config.family)->gguf_pairs && f.config.qkv_bias &&
            f.config.head_dim % FILE_GGUF_Q8_BLOCK && rows % FILE_GGUF_Q8_BLOCK == 0)
            break;
        fixture_close(&f);
        assert_true(seed < 5000);
    }
    write_model(&f, FILE_GGUF_F32, scratch_path(&s, "x.gguf"));
    assert_int_equal(atom_file_read(scratch_path(&s, "x.gguf"), 1 << 24, &data, &bytes), ATOM_OK);
    char *type = memmem(data, bytes, "blk.0.attn_q.bias", 17);
    assert_non_null(type);
    type[17 + 4 + 8] = FILE_GGUF_Q8_0; /* behind rank and rows; its numbers no longer matter */
    scratch_write(&s, "x.gguf", data, bytes);
    assert_int_equal(
        file_gguf_read_weights(scratch_path(&s, "x.gguf"), f.g, file_vector_memory(f.got)),
        ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "'blk.0.attn_q.bias' has blocks across heads"));
    atom_free(data);
    fixture_close(&f);
    scratch_close(&s);
}

/* llama.cpp turns nothing in a Granite that says so; of other models the key says only how they were made. */
static void granite_may_turn_nothing(void **state)
{
    (void)state;
    scratch s;
    fixture f;
    graph_config c;
    uint64_t seed = 1;
    scratch_open(&s);
    for (fixture_open(&f, seed); f.config.family != GRAPH_GRANITE; fixture_open(&f, ++seed))
        fixture_close(&f);
    const char *path = scratch_path(&s, "x.gguf"), *key = "rope.scaling.finetuned";
    assert_int_equal(with_key(&f, path, key, 1, true, &c), ATOM_OK);
    assert_int_equal(with_key(&f, path, key, 0, true, &c), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "granite.rope.scaling.finetuned is false"));
    fixture_close(&f);
    scratch_close(&s);
}

/* Two keys that every file has; without them nobody knows the number, or what the file is. */
static void keys_that_must_be_there(void **state)
{
    (void)state;
    static const struct {
        const char *key, *says;
        atom_status want;
    } cases[] = {{"norm_rms_epsilon", "epsilon is missing", ATOM_E_FORMAT},
                 {"general.type", NULL, ATOM_OK}};
    scratch s;
    fixture f;
    graph_config c;
    char *data = NULL;
    uint64_t bytes, seed = 1;
    scratch_open(&s);
    for (fixture_open(&f, seed); f.config.family == GRAPH_GPT2; fixture_open(&f, ++seed))
        fixture_close(&f);
    const char *path = scratch_path(&s, "x.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model(&f, FILE_GGUF_F32, path);
        assert_int_equal(atom_file_read(path, 1 << 24, &data, &bytes), ATOM_OK);
        char *name = memmem(data, bytes, cases[i].key, strlen(cases[i].key));
        assert_non_null(name);
        name[0] = '_';
        scratch_write(&s, "x.gguf", data, bytes);
        assert_int_equal(file_gguf_read_model(path, &c, NULL), cases[i].want);
        if (cases[i].says)
            assert_non_null(strstr(atom_fail_message(), cases[i].says));
        atom_free(data);
    }
    while (f.config.kv_heads != f.config.heads || f.config.heads == 1) {
        fixture_close(&f);
        do
            fixture_open(&f, ++seed);
        while (f.config.family == GRAPH_GPT2 && (fixture_close(&f), true));
    }
    write_model(&f, FILE_GGUF_F32, path); /* as many key heads as heads, where nothing is said */
    const uint8_t other = '_';
    change(&s, "attention.head_count_", 0, &other, 1);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_OK);
    assert_int_equal(c.kv_heads, f.config.heads);
    write_model(&f, FILE_GGUF_F32, path);
    assert_int_equal(atom_file_read(path, 1 << 24, &data, &bytes), ATOM_OK);
    char *type = memmem(data, bytes, "\x05\0\0\0\0\0\0\0model", 13);
    assert_non_null(type);
    type[8] = 'M';
    scratch_write(&s, "x.gguf", data, bytes);
    assert_int_equal(file_gguf_read_model(path, &c, NULL), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "general.type: this file is not a model"));
    atom_free(data);
    fixture_close(&f);
    scratch_close(&s);
}

/* A file of nothing but the list of tokens that end a text: numbers of that type, or one that is no list. */
static atom_status list_of_ends(uint32_t type, uint32_t width, bool list, const int64_t *ends,
                                uint64_t n, json_t *root)
{
    static const char KEY[] = "tokenizer.ggml.eos_token_ids";
    const uint64_t counts[2] = {0, 1}, length = sizeof KEY - 1;
    const uint32_t version = 3, kind = list ? FILE_GGUF_VALUE_ARRAY : type;
    char data[512] = "GGUF", *at = data + 4;
    file_gguf_in *f = NULL;
    bool more = false;
    at = mempcpy(at, &version, 4);
    at = mempcpy(at, counts, sizeof counts);
    at = mempcpy(at, &length, 8);
    at = mempcpy(at, KEY, length);
    at = mempcpy(at, &kind, 4);
    if (list)
        at = mempcpy(mempcpy(at, &type, 4), &n, 8);
    for (uint64_t i = 0; i < n; i++)
        at = mempcpy(at, &ends[i], width);
    uint64_t bytes = (uint64_t)(at - data);
    if (file_gguf_parse("x.gguf", data, bytes, bytes, &more, &f) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    atom_status st = file_gguf_set_ends(f, 100, root);
    file_gguf_in_close(&f);
    return st;
}

/* Whole numbers of any width, without those that the model does not have; nothing else. */
static void lists_of_ends(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, width;
        bool list, fine;
    } cases[] = {{FILE_GGUF_VALUE_U8, 1, true, true},   {FILE_GGUF_VALUE_I8, 1, true, true},
                 {FILE_GGUF_VALUE_U16, 2, true, true},  {FILE_GGUF_VALUE_I16, 2, true, true},
                 {FILE_GGUF_VALUE_U32, 4, true, true},  {FILE_GGUF_VALUE_I32, 4, true, true},
                 {FILE_GGUF_VALUE_U64, 8, true, true},  {FILE_GGUF_VALUE_I64, 8, true, true},
                 {FILE_GGUF_VALUE_F32, 4, true, false}, {FILE_GGUF_VALUE_BOOL, 1, true, false},
                 {FILE_GGUF_VALUE_F64, 8, true, false}, {FILE_GGUF_VALUE_U32, 4, false, false}};
    static const int64_t ends[] = {3, 70, 120, 3, -2, 100};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = json_object(), *wants = json_pack("[i,i]", 3, 70);
        atom_status st = list_of_ends(cases[i].type, cases[i].width, cases[i].list, ends,
                                      cases[i].list ? 6 : 1, root);
        assert_int_equal(st, cases[i].fine ? ATOM_OK : ATOM_E_FORMAT);
        if (cases[i].fine)
            assert_true(json_equal(json_object_get(root, "eos_token_id"), wants));
        else
            assert_non_null(strstr(atom_fail_message(), "eos_token_ids"));
        json_decref(root);
        json_decref(wants);
    }
}

/* A token that the model does not have is told; -1, in either width, says that there is none. */
static void ends_that_are_told(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, width;
        int64_t id;
        const char *says; /* NULL: nothing */
    } cases[] = {{FILE_GGUF_VALUE_I32, 4, 99, NULL},
                 {FILE_GGUF_VALUE_I32, 4, 100, "names token 100, which a model of 100 tokens"},
                 {FILE_GGUF_VALUE_I16, 2, -1, NULL},
                 {FILE_GGUF_VALUE_I32, 4, -1, NULL},
                 {FILE_GGUF_VALUE_U32, 4, -1, NULL},
                 {FILE_GGUF_VALUE_I64, 8, -1, NULL},
                 {FILE_GGUF_VALUE_I8, 1, -2, "names token -2"},
                 {FILE_GGUF_VALUE_I16, 2, -2, "names token -2"},
                 {FILE_GGUF_VALUE_U64, 8, -1, "names token 9223372036854775807"}};
    scratch s;
    scratch_open(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = json_object();
        said_begin(&s);
        atom_status st = list_of_ends(cases[i].type, cases[i].width, true, &cases[i].id, 1, root);
        unsigned told = said_times(&s, cases[i].says ? cases[i].says : "warning");
        assert_int_equal(st, ATOM_OK);
        if (told != (cases[i].says != NULL))
            fail_msg("case %zu", i);
        json_decref(root);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_count),         cmocka_unit_test(windows),
        cmocka_unit_test(kinds_of_keys),           cmocka_unit_test(blocks_across_heads),
        cmocka_unit_test(numbers_that_cannot_be),  cmocka_unit_test(granite_may_turn_nothing),
        cmocka_unit_test(keys_that_must_be_there), cmocka_unit_test(lists_of_ends),
        cmocka_unit_test(ends_that_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
