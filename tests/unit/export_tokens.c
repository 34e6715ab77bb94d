/* What a GGUF file says of a tokenizer that is exported into it, as llama.cpp reads it. Source: docs/design/files.md#gguf. */
#include "atom/base/log.h"
#include "atom/export/export.h"
#include "tests/lib/metaspace.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/said.h"

enum { V = 12 }; /* ids 9 and 11 have no token */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false"
#define BYTE_LEVEL BYTES "}"
#define NO_REGEX BYTES ", \"use_regex\": false}"
#define SEQUENCE(a, b) "{\"type\": \"Sequence\", \"pretokenizers\": [" a ", " b "]}"
#define SPLIT(regex)                                                                               \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"Isolated\"}"
#define NUMBERS(n)                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" n                      \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define LLAMA3 SEQUENCE(SPLIT(NUMBERS("\\\\p{N}{1,3}")), NO_REGEX)

/* A tokenizer of bytes' texts, with ends of several kinds. */
static const char TOKENS[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"<|endoftext|>\", \"special\": true},"
    "{\"id\": 4, \"content\": \"<|im_end|>\", \"special\": true},"
    "{\"id\": 5, \"content\": \"<stop>\", \"special\": true},"
    "{\"id\": 6, \"content\": \"<|tool|>\", \"special\": false},"
    "{\"id\": 7, \"content\": \"<|think\", \"special\": false},"
    "{\"id\": 8, \"content\": \"<halt>\", \"special\": true}], \"pre_tokenizer\": " BYTE_LEVEL ", "
    "\"decoder\": " BYTE_LEVEL ", "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<0x41>\": 10}, "
    "\"merges\": [\"a b\"]}}";

static json_t *tokens_json(void)
{
    json_t *root = json_loads(TOKENS, 0, NULL);
    assert_non_null(root);
    return root;
}

/* What one directory's files say; NULL: no such file. */
typedef struct said {
    json_t *root; /* tokenizer.json */
    const char *settings, *generation, *config;
    int64_t vocab; /* 0: V */
} said;

/* As a file of no tensors; the caller closes *in. */
static atom_status written(const said *d, file_gguf_in **in)
{
    scratch s;
    file_gguf *w = NULL;
    scratch_open(&s);
    assert_int_equal(json_dump_file(d->root, scratch_path(&s, "tokenizer.json"), 0), 0);
    if (d->settings)
        scratch_write(&s, "tokenizer_config.json", d->settings, strlen(d->settings));
    if (d->generation)
        scratch_write(&s, "generation_config.json", d->generation, strlen(d->generation));
    assert_int_equal(file_gguf_create(scratch_path(&s, "x.gguf"), NULL, &w), ATOM_OK);
    atom_status st = export_tokens(w, s.dir, d->config, d->vocab ? d->vocab : V);
    if (st == ATOM_OK) {
        assert_int_equal(file_gguf_begin(w), ATOM_OK);
        assert_int_equal(file_gguf_finish(w), ATOM_OK);
        assert_int_equal(file_gguf_open(scratch_path(&s, "x.gguf"), in), ATOM_OK);
    }
    file_gguf_close(&w);
    scratch_close(&s);
    return st;
}

static void is_text(const file_gguf_in *in, const char *key, const char *want)
{
    char *text = file_gguf_text(in, key);
    if (!text)
        fail_msg("there is no %s", key);
    assert_string_equal(text, want);
    atom_free(text);
}

static void is_texts(const file_gguf_in *in, const char *key, const char *const *want, uint64_t n)
{
    const file_gguf_value *v = file_gguf_find(in, key);
    if (!v)
        fail_msg("there is no %s", key);
    assert_int_equal(v->item, FILE_GGUF_VALUE_TEXT);
    assert_int_equal(v->n, n);
    const uint8_t *at = v->at;
    for (uint64_t i = 0, bytes; i < n; i++) {
        const char *text = file_gguf_next_text(&at, &bytes);
        assert_int_equal(bytes, strlen(want[i]));
        assert_memory_equal(text, want[i], bytes);
    }
}

/* n = 0: the key is not there. */
static void is_i32s(const file_gguf_in *in, const char *key, const int32_t *want, uint64_t n)
{
    const file_gguf_value *v = file_gguf_find(in, key);
    if (!v != !n)
        fail_msg("%s is%s there", key, v ? "" : " not");
    if (!n)
        return;
    assert_int_equal(v->item, FILE_GGUF_VALUE_I32);
    assert_int_equal(v->n, n);
    assert_memory_equal(v->at, want, 4 * n);
}

/* -1: the key is not there. */
static void is_id(const file_gguf_in *in, const char *key, int64_t want)
{
    const file_gguf_value *v = file_gguf_find(in, key);
    if (v)
        assert_int_equal(v->type, FILE_GGUF_VALUE_U32);
    if (file_gguf_int(in, key, -1) != want)
        fail_msg("%s is %lld, not %lld", key, (long long)file_gguf_int(in, key, -1),
                 (long long)want);
}

/* llama.cpp stops at eos_token_id, eom_token_id and texts that it knows; eos_token_ids lists all. */
static void every_end_is_written(void **state)
{
    static const struct {
        const char *settings, *generation, *config;
        int eos, eom;
        uint64_t n;
        int32_t ends[4];
    } cases[] = {
        {"{\"eos_token\": \"<|im_end|>\"}",
         "{\"eos_token_id\": [3, 4, 5]}",
         "{\"eos_token_id\": 8}",
         4,
         5,
         3,
         {4, 3, 5}},
        {"{\"eos_token\": {\"content\": \"<stop>\"}}",
         "{\"eos_token_id\": [7, 8]}",
         "{}",
         5,
         7,
         3,
         {5, 7, 8}},
        {NULL, NULL, "{\"eos_token_id\": [5, 3]}", 5, -1, 2, {5, 3}},
        {NULL, "{\"eos_token_id\": 8}", "{\"eos_token_id\": 3}", 3, 8, 2, {3, 8}},
        /* none that the model has: config.json counts */
        {NULL, "{\"eos_token_id\": [99, 12, -1]}", "{\"eos_token_id\": [3, 8]}", 3, 8, 2, {3, 8}},
        {NULL, "{\"pad_token_id\": 3}", "{\"eos_token_id\": [8, 8, 5]}", 8, 5, 2, {8, 5}},
        {NULL, "{\"eos_token_id\": [4, 3]}", NULL, 4, -1, 2, {4, 3}},
        {"{\"eos_token\": \"<stop>\"}",
         "{\"eos_token_id\": 5}",
         "{\"eos_token_id\": 8}",
         5,
         -1,
         0,
         {0}},
        {"{\"eos_token\": \"<none>\"}", "{}", "{\"eos_token_id\": 12}", -1, -1, 0, {0}}};
    (void)state;
    json_t *root = tokens_json();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_gguf_in *in = NULL;
        const said d = {root, cases[i].settings, cases[i].generation, cases[i].config, 0};
        assert_int_equal(written(&d, &in), ATOM_OK);
        is_id(in, "tokenizer.ggml.eos_token_id", cases[i].eos);
        is_id(in, "tokenizer.ggml.eom_token_id", cases[i].eom);
        is_id(in, "tokenizer.ggml.eot_token_id", -1); /* llama.cpp would put it behind turns */
        is_i32s(in, "tokenizer.ggml.eos_token_ids", cases[i].ends, cases[i].n);
        file_gguf_in_close(&in);
    }
    json_decref(root);
}

/* It knows these by their texts, so the one key that is left goes to another. */
static void known_ends_need_no_key(void **state)
{
    static const char *const known[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",  "<|eom_id|>",
        "<|return|>", "<|call|>",   "<EOT>",   "_<EOT>",        "<|end_of_text|>"};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        file_gguf_in *in = NULL;
        json_t *root = tokens_json();
        json_t *one = json_array_get(json_object_get(root, "added_tokens"), 1);
        json_object_set_new(one, "content", json_string(known[i]));
        if (strcmp(known[i], "<|endoftext|>") == 0)
            json_array_remove(json_object_get(root, "added_tokens"), 0);
        const said d = {root, NULL, NULL, "{\"eos_token_id\": [5, 4, 8]}", 0};
        assert_int_equal(written(&d, &in), ATOM_OK);
        is_id(in, "tokenizer.ggml.eom_token_id", 8);
        file_gguf_in_close(&in);
        json_decref(root);
    }
}

/* A name in tokenizer_config.json goes first, then config.json, then generation_config.json. */
static void special_ids_have_their_keys(void **state)
{
    (void)state;
    file_gguf_in *in = NULL;
    said d = {
        tokens_json(), "{\"pad_token\": \"<|im_end|>\", \"bos_token\": {\"content\": \"<halt>\"}}",
        "{\"bos_token_id\": 0, \"sep_token_id\": 1, \"mask_token_id\": 2}",
        "{\"pad_token_id\": 3, \"unk_token_id\": 7, \"mask_token_id\": 6, \"eos_token_id\": 5}", 0};
    assert_int_equal(written(&d, &in), ATOM_OK);
    is_id(in, "tokenizer.ggml.bos_token_id", 8);
    is_id(in, "tokenizer.ggml.eos_token_id", 5);
    is_id(in, "tokenizer.ggml.padding_token_id", 4);
    is_id(in, "tokenizer.ggml.unknown_token_id", 7);
    is_id(in, "tokenizer.ggml.seperator_token_id", 1); /* llama.cpp's spelling */
    is_id(in, "tokenizer.ggml.mask_token_id", 6);
    file_gguf_in_close(&in);
    json_decref(d.root);
}

static void every_id_has_a_text_and_a_kind(void **state)
{
    static const char *const texts[V] = {"a",          "b",      "<?>",      "<|endoftext|>",
                                         "<|im_end|>", "<stop>", "<|tool|>", "<|think",
                                         "<halt>",     "[PAD9]", "<0x41>",   "[PAD11]"};
    static const int32_t types[V] = {NORMAL,  NORMAL, UNKNOWN, CONTROL, CONTROL, CONTROL,
                                     CONTROL, USER,   CONTROL, UNUSED,  NORMAL,  UNUSED};
    static const char *const merges[] = {"a b", "b a"};
    (void)state;
    file_gguf_in *in = NULL;
    said d = {.root = tokens_json()};
    json_t *model = json_object_get(d.root, "model"),
           *added = json_object_get(d.root, "added_tokens");
    json_object_set_new(model, "unk_token", json_string("<?>"));
    json_object_del(json_object_get(model, "vocab"), "ab");
    json_object_set_new(json_object_get(model, "vocab"), "<?>", json_integer(2));
    json_array_append_new(json_object_get(model, "merges"), json_pack("[s, s]", "b", "a"));
    json_array_append_new(added,
                          json_pack("{s:i, s:s, s:b}", "id", 2, "content", "<?>", "special", 1));
    assert_int_equal(written(&d, &in), ATOM_OK);
    is_text(in, "tokenizer.ggml.model", "gpt2");
    is_texts(in, "tokenizer.ggml.tokens", texts, V);
    is_i32s(in, "tokenizer.ggml.token_type", types, V);
    is_texts(in, "tokenizer.ggml.merges", merges, 2);
    assert_null(file_gguf_find(in, "tokenizer.ggml.scores"));
    file_gguf_in_close(&in);
    json_object_set_new(model, "type", json_string("Unigram"));
    assert_int_equal(written(&d, &in), ATOM_E_UNSUPPORTED);
    json_decref(d.root);
}

/* The kinds of a tokenizer with byte fallback. */
static void bytes_are_their_own_kind(void **state)
{
    (void)state;
    file_gguf_in *in = NULL;
    int32_t types[METASPACE_N];
    for (int i = 0; i < METASPACE_N; i++)
        types[i] = i >= METASPACE_SPACE ? NORMAL : i >= 3 ? BYTE : i > 0 ? CONTROL : UNKNOWN;
    const said d = {.root = metaspace_json(METASPACE_REPLACE, "null"), .vocab = METASPACE_N};
    assert_int_equal(written(&d, &in), ATOM_OK);
    is_text(in, "tokenizer.ggml.model", "llama");
    is_text(in, "tokenizer.ggml.pre", "default");
    is_i32s(in, "tokenizer.ggml.token_type", types, METASPACE_N);
    assert_null(file_gguf_find(in, "tokenizer.ggml.merges"));
    file_gguf_in_close(&in);
    json_decref(d.root);
}

/* Two merges may make the same token; it is made where the first of them stands. */
static void the_first_merge_gives_the_score(void **state)
{
    (void)state;
    file_gguf_in *in = NULL;
    float score;
    const said d = {.root = metaspace_json(METASPACE_REPLACE, "null"), .vocab = METASPACE_N + 1};
    json_t *model = json_object_get(d.root, "model"), *merges = json_object_get(model, "merges");
    json_object_set_new(json_object_get(model, "vocab"), "bc", json_integer(METASPACE_N));
    json_array_append_new(merges, json_string("b c")); /* the fourth */
    json_array_append_new(merges, json_string("a bc"));
    assert_int_equal(written(&d, &in), ATOM_OK);
    const file_gguf_value *scores = file_gguf_find(in, "tokenizer.ggml.scores");
    assert_non_null(scores);
    assert_int_equal(scores->n, METASPACE_N + 1);
    memcpy(&score, scores->at + sizeof score * METASPACE_ABC, sizeof score);
    assert_true(score == -1);
    memcpy(&score, scores->at + sizeof score * METASPACE_N, sizeof score);
    assert_true(score == -3);
    file_gguf_in_close(&in);
    json_decref(d.root);
}

/* A wrong name would split words in another way; what has no name is refused. */
static void pre_tokenizers_have_names(void **state)
{
    static const struct {
        const char *json, *name;
    } cases[] = {
        {BYTE_LEVEL, "gpt-2"},
        {BYTES ", \"use_regex\": true}", "gpt-2"},
        {SEQUENCE("{\"type\": \"Digits\", \"individual_digits\": true}", BYTE_LEVEL), "smollm"},
        {SEQUENCE("{\"type\": \"Digits\", \"individual_digits\": false}", BYTE_LEVEL), NULL},
        {SEQUENCE(SPLIT(NUMBERS("\\\\p{N}")), NO_REGEX), "qwen2"},
        {SEQUENCE(SPLIT(NUMBERS("\\\\p{N}")), BYTE_LEVEL), NULL},
        {LLAMA3, "llama-bpe"},
        {SEQUENCE(SPLIT("\\\\p{L}"), BYTE_LEVEL), NULL},
        {NO_REGEX, NULL}};
    (void)state;
    json_t *root = tokens_json();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_gguf_in *in = NULL;
        const said d = {.root = root};
        json_t *pre = json_loads(cases[i].json, 0, NULL);
        assert_non_null(pre);
        json_object_set_new(root, "pre_tokenizer", pre);
        if (!cases[i].name) {
            assert_int_equal(written(&d, &in), ATOM_E_UNSUPPORTED);
            assert_true(strstr(atom_fail_message(), "pre-tokenizer") ||
                        strstr(atom_fail_message(), "pre_tokenizer"));
            continue;
        }
        assert_int_equal(written(&d, &in), ATOM_OK);
        is_text(in, "tokenizer.ggml.pre", cases[i].name);
        file_gguf_in_close(&in);
    }
    json_decref(root);
}

#define BEGINS                                                                                     \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<stop>\"}}, "   \
    "{\"Sequence\": {\"id\": \"A\"}}]}"
#define ENDS                                                                                       \
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "            \
    "{\"SpecialToken\": {\"id\": \"<stop>\"}}]}"
#define BOTH(a, b) "{\"type\": \"Sequence\", \"processors\": [" a ", " b "]}"

/* llama.cpp's own answer is yes for llama-bpe, so it is always written. */
static void the_start_token_is_put_in_front(void **state)
{
    static const struct {
        const char *pre, *post, *settings;
        bool want;
    } cases[] = {{BYTE_LEVEL, "null", NULL, false},
                 {BYTE_LEVEL, BEGINS, NULL, true},
                 {BYTE_LEVEL, ENDS, NULL, false},
                 {BYTE_LEVEL, BOTH(BYTE_LEVEL, BEGINS), NULL, true},
                 {BYTE_LEVEL, BOTH(BYTE_LEVEL, ENDS), NULL, false},
                 {LLAMA3, BYTE_LEVEL, NULL, true},
                 {LLAMA3, BYTE_LEVEL, "{\"add_bos_token\": true}", true},
                 {LLAMA3, BYTE_LEVEL, "{\"add_bos_token\": false}", false}};
    (void)state;
    json_t *root = tokens_json();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_gguf_in *in = NULL;
        const said d = {.root = root, .settings = cases[i].settings};
        json_object_set_new(root, "pre_tokenizer", json_loads(cases[i].pre, 0, NULL));
        json_object_set_new(root, "post_processor",
                            json_loads(cases[i].post, JSON_DECODE_ANY, NULL));
        assert_int_equal(written(&d, &in), ATOM_OK);
        const file_gguf_value *v = file_gguf_find(in, "tokenizer.ggml.add_bos_token");
        assert_non_null(v);
        assert_int_equal(v->type, FILE_GGUF_VALUE_BOOL);
        assert_int_equal(*v->at, cases[i].want);
        assert_null(file_gguf_find(in, "tokenizer.ggml.add_space_prefix"));
        file_gguf_in_close(&in);
    }
    json_decref(root);
}

#define PREPEND "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"
#define METASPACE(more) "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\"" more "}"

/* With "llama" llama.cpp puts a space in front of every text, and the start token, unless the file says no. */
static void a_space_is_put_in_front(void **state)
{
    static const struct {
        const char *normalizer, *pre;
        bool space;
    } cases[] = {
        {METASPACE_REPLACE, "null", false}, /* Gemma */
        {"{\"type\": \"Sequence\", \"normalizers\": [" PREPEND ", " METASPACE_REPLACE "]}", "null",
         true},
        {"null", METASPACE(", \"prepend_scheme\": \"first\""), true},
        {"null", METASPACE(", \"prepend_scheme\": \"always\""), true},
        {"null", METASPACE(", \"prepend_scheme\": \"never\""), false},
        {"null", METASPACE(", \"prepend_scheme\": \"never\", \"add_prefix_space\": true"), false},
        {"null", METASPACE(", \"add_prefix_space\": false"), false},
        {"null", METASPACE(", \"add_prefix_space\": true"), true},
        {"null", METASPACE(""), true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_gguf_in *in = NULL;
        const said d = {.root = metaspace_json(cases[i].normalizer, cases[i].pre),
                        .vocab = METASPACE_N};
        assert_int_equal(written(&d, &in), ATOM_OK);
        const file_gguf_value *space = file_gguf_find(in, "tokenizer.ggml.add_space_prefix");
        if (!space != cases[i].space)
            fail_msg("add_space_prefix of case %zu", i);
        if (space)
            assert_int_equal(*space->at, 0);
        const file_gguf_value *bos = file_gguf_find(in, "tokenizer.ggml.add_bos_token");
        assert_non_null(bos);
        assert_int_equal(*bos->at, 1);
        file_gguf_in_close(&in);
        json_decref(d.root);
    }
}

/* GGUF has no word for them, and llama.cpp would give texts other ids than the model has learned. */
static void other_steps_are_refused(void **state)
{
    static const struct {
        const char *part, *json, *says;
    } cases[] = {
        {"normalizer", "{\"type\": \"Lowercase\"}", "Lowercase"},
        {"normalizer", PREPEND, "Prepend"},
        {"pre_tokenizer", SEQUENCE("{\"type\": \"Punctuation\"}", BYTE_LEVEL), "Punctuation"},
        {"pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}",
         "add_prefix_space"},
        {"model", "{\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}",
         "dropout"},
        {"model",
         "{\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], "
         "\"end_of_word_suffix\": \"</w>\"}",
         "end_of_word_suffix"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file_gguf_in *in = NULL;
        const said d = {.root = tokens_json()};
        json_object_set_new(d.root, cases[i].part, json_loads(cases[i].json, 0, NULL));
        assert_int_equal(written(&d, &in), ATOM_E_UNSUPPORTED);
        assert_non_null(strstr(atom_fail_message(), cases[i].says));
        assert_non_null(strstr(atom_fail_message(), "tokenizer.json"));
        json_decref(d.root);
    }
}

/* A token that the model has no row for is not left out. */
static void a_larger_tokenizer_is_refused(void **state)
{
    (void)state;
    file_gguf_in *in = NULL;
    said d = {.root = tokens_json(), .vocab = 11};
    assert_int_equal(written(&d, &in), ATOM_OK);
    file_gguf_in_close(&in);
    d.vocab = 10;
    assert_int_equal(written(&d, &in), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "has 11 tokens, but the model only 10"));
    json_object_del(json_object_get(json_object_get(d.root, "model"), "vocab"), "<0x41>");
    d.vocab = 9;
    assert_int_equal(written(&d, &in), ATOM_OK);
    file_gguf_in_close(&in);
    d.vocab = 8;
    assert_int_equal(written(&d, &in), ATOM_E_FORMAT);
    json_decref(d.root);
}

/* llama.cpp has it by the name of the pre-tokenizer. */
static void another_ignore_merges_is_said(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    atom_log_set_level(ATOM_LOG_WARN);
    for (int i = 0; i < 4; i++) {
        const bool llama3 = i & 1, says = i & 2;
        file_gguf_in *in = NULL;
        const said d = {.root = tokens_json()};
        json_object_set_new(d.root, "pre_tokenizer",
                            json_loads(llama3 ? LLAMA3 : BYTE_LEVEL, 0, NULL));
        json_object_set_new(json_object_get(d.root, "model"), "ignore_merges", json_boolean(says));
        said_begin(&s);
        assert_int_equal(written(&d, &in), ATOM_OK);
        assert_int_equal(
            said_times(&s, says ? "has ignore_merges true, but" : "has ignore_merges false, but"),
            llama3 != says);
        file_gguf_in_close(&in);
        json_decref(d.root);
    }
    atom_log_set_level(ATOM_LOG_ERROR);
    scratch_close(&s);
}

static void templates_have_their_keys(void **state)
{
    static const char *const names[] = {"tool_use"};
    (void)state;
    file_gguf_in *in = NULL;
    const said d = {
        .root = tokens_json(),
        .settings =
            "{\"add_bos_token\": false, \"chat_template\": [{\"name\": \"default\", \"template\": "
            "\"d\"}, {\"name\": \"tool_use\", \"template\": \"t\"}]}"};
    assert_int_equal(written(&d, &in), ATOM_OK);
    is_text(in, "tokenizer.chat_template", "d");
    is_text(in, "tokenizer.chat_template.tool_use", "t");
    is_texts(in, "tokenizer.chat_templates", names, 1);
    file_gguf_in_close(&in);
    json_decref(d.root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_end_is_written),
        cmocka_unit_test(known_ends_need_no_key),
        cmocka_unit_test(special_ids_have_their_keys),
        cmocka_unit_test(every_id_has_a_text_and_a_kind),
        cmocka_unit_test(bytes_are_their_own_kind),
        cmocka_unit_test(the_first_merge_gives_the_score),
        cmocka_unit_test(pre_tokenizers_have_names),
        cmocka_unit_test(the_start_token_is_put_in_front),
        cmocka_unit_test(a_space_is_put_in_front),
        cmocka_unit_test(other_steps_are_refused),
        cmocka_unit_test(a_larger_tokenizer_is_refused),
        cmocka_unit_test(another_ignore_merges_is_said),
        cmocka_unit_test(templates_have_their_keys),
    };
    atom_log_set_level(ATOM_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
