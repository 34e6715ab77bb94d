/* The tokenizer of a GGUF file as a tokenizer.json: what llama.cpp does with the file, the library must do with that. */
#include "atom/export/export.h"
#include "tests/lib/metaspace.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

typedef struct gguf_tokens {
    const char *name, *kind, *pre; /* NULL: no such key */
    uint32_t n;
    const char *texts[12];
    int32_t types[12];
    float scores[12];
    const char *merge;              /* the only one */
    int bos, add_bos, space;        /* -1: no such key */
    const char *jinja, *with_tools; /* or NULL */
    uint32_t lacking;               /* so many tokens at the end have no type */
} gguf_tokens;

static const gguf_tokens GPT2 = {.kind = "gpt2",
                                 .pre = "gpt-2",
                                 .n = 6,
                                 .texts = {"a", "b", "ab", "<?>", "<|end|>", "<mine>"},
                                 .types = {NORMAL, NORMAL, NORMAL, UNKNOWN, CONTROL, USER},
                                 .merge = "a b",
                                 .bos = -1,
                                 .add_bos = -1,
                                 .space = -1};

static void put(file_gguf *w, const gguf_tokens *t)
{
    bool llama = t->kind && strcmp(t->kind, "llama") == 0;
    if (t->name)
        file_gguf_put_text(w, "general.name", t->name);
    if (t->kind)
        file_gguf_put_text(w, "tokenizer.ggml.model", t->kind);
    if (t->pre)
        file_gguf_put_text(w, "tokenizer.ggml.pre", t->pre);
    file_gguf_put_texts(w, "tokenizer.ggml.tokens", t->n);
    for (uint32_t i = 0; i < t->n; i++)
        file_gguf_add_text(w, t->texts[i], strlen(t->texts[i]));
    file_gguf_put_i32s(w, "tokenizer.ggml.token_type", t->types, t->n - t->lacking);
    if (llama)
        file_gguf_put_f32s(w, "tokenizer.ggml.scores", t->scores, t->n);
    if (t->merge) {
        file_gguf_put_texts(w, "tokenizer.ggml.merges", 1);
        file_gguf_add_text(w, t->merge, strlen(t->merge));
    }
    if (t->bos >= 0)
        file_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)t->bos);
    file_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 4);
    if (t->add_bos >= 0)
        file_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", t->add_bos != 0);
    if (t->space >= 0)
        file_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", t->space != 0);
    if (t->jinja)
        file_gguf_put_text(w, "tokenizer.chat_template", t->jinja);
    if (t->with_tools)
        file_gguf_put_text(w, "tokenizer.chat_template.tool_use", t->with_tools);
}

static const char *gguf_of(scratch *s, const gguf_tokens *t)
{
    const char *path = scratch_path(s, "x.gguf");
    file_gguf *w = NULL;
    assert_int_equal(file_gguf_create(path, NULL, &w), ATOM_OK);
    put(w, t);
    assert_int_equal(file_gguf_begin(w), ATOM_OK);
    assert_int_equal(file_gguf_finish(w), ATOM_OK);
    file_gguf_close(&w);
    return path;
}

/* *root: json_decref it; NULL where there is none. */
static atom_status imported(const gguf_tokens *t, json_t **root)
{
    scratch s;
    file_gguf_in *in = NULL;
    char *text = NULL;
    scratch_open(&s);
    assert_int_equal(file_gguf_open(gguf_of(&s, t), &in), ATOM_OK);
    atom_status st = import_tokens(in, &text);
    *root = text ? json_loads(text, 0, NULL) : NULL;
    assert_true(!text == !*root);
    file_gguf_in_close(&in);
    atom_free(text);
    scratch_close(&s);
    return st;
}

/* Is the part of this key what the text says? */
static void is_json(const json_t *root, const char *key, const char *want)
{
    json_t *wanted = json_loads(want, JSON_DECODE_ANY, NULL);
    assert_non_null(wanted);
    if (!json_equal(json_object_get(root, key), wanted)) {
        char *text = json_dumps(json_object_get(root, key), JSON_ENCODE_ANY);
        fail_msg("%s: %s is not %s", key, text ? text : "nothing", want);
    }
    json_decref(wanted);
}

#define LEVEL(regex)                                                                               \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "              \
    "\"use_regex\": " regex "}"
#define SEQUENCE(a, b) "{\"type\": \"Sequence\", \"pretokenizers\": [" a ", " b "]}"
#define SPLIT(n)                                                                                   \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"               \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" n "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"      \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, \"behavior\": \"Isolated\", \"invert\": "      \
    "false}"
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}"

/* The files of Qwen normalise texts, those of Llama 3 and Mistral's tekken take whole words first. */
static void names_become_pre_tokenizers(void **state)
{
    static const struct {
        const char *name, *pre, *normalizer;
        bool words;
    } cases[] = {
        {"gpt-2", LEVEL("true"), "null", false},
        {"smollm", SEQUENCE(DIGITS, LEVEL("true")), "null", false},
        {"qwen2", SEQUENCE(SPLIT("\\\\p{N}"), LEVEL("false")), "{\"type\": \"NFC\"}", false},
        {"llama-bpe", SEQUENCE(SPLIT("\\\\p{N}{1,3}"), LEVEL("false")), "null", true},
        {"qwen35", NULL, "{\"type\": \"NFC\"}", false},
        {"tekken", NULL, "null", true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root;
        gguf_tokens t = GPT2;
        t.pre = cases[i].name;
        assert_int_equal(imported(&t, &root), ATOM_OK);
        if (cases[i].pre)
            is_json(root, "pre_tokenizer", cases[i].pre);
        is_json(root, "normalizer", cases[i].normalizer);
        is_json(root, "decoder", LEVEL("true"));
        is_json(json_object_get(root, "model"), "ignore_merges", cases[i].words ? "true" : "false");
        is_json(json_object_get(root, "model"), "byte_fallback", "false");
        json_decref(root);
    }
}

static void unknown_kinds_are_refused(void **state)
{
    (void)state;
    json_t *root;
    gguf_tokens t = GPT2;
    t.pre = "of-tomorrow";
    assert_int_equal(imported(&t, &root), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "'of-tomorrow'"));
    t.pre = NULL; /* llama.cpp's "default" is none of the patterns */
    assert_int_equal(imported(&t, &root), ATOM_E_UNSUPPORTED);
    t = GPT2;
    t.kind = "t5";
    assert_int_equal(imported(&t, &root), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "'t5'"));
    t.kind = NULL;
    assert_int_equal(imported(&t, &root), ATOM_OK);
    assert_null(root);
    t = GPT2;
    t.lacking = 1;
    assert_int_equal(imported(&t, &root), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "token_type"));
    t = GPT2;
    t.texts[1] = "a";
    assert_int_equal(imported(&t, &root), ATOM_E_FORMAT);
}

#define ADDED(id, text, special)                                                                   \
    "{\"id\": " id ", \"content\": \"" text "\", \"single_word\": false, \"lstrip\": false, "      \
    "\"rstrip\": false, \"normalized\": false, \"special\": " special "}"

/* Added tokens behind all others get the ids that follow; with a hole before them they must say theirs. */
static void kinds_become_added_tokens(void **state)
{
    static const char added[] = "[" ADDED("3", "<?>", "true") ", " ADDED(
        "4", "<|end|>", "true") ", " ADDED("5", "<mine>", "false") "]";
    (void)state;
    json_t *root;
    gguf_tokens t = GPT2;
    assert_int_equal(imported(&t, &root), ATOM_OK);
    is_json(root, "added_tokens", added);
    is_json(json_object_get(root, "model"), "vocab", "{\"a\": 0, \"b\": 1, \"ab\": 2}");
    is_json(json_object_get(root, "model"), "merges", "[\"a b\"]");
    is_json(json_object_get(root, "model"), "unk_token", "\"<?>\"");
    json_decref(root);
    t.types[1] = UNUSED;
    assert_int_equal(imported(&t, &root), ATOM_OK);
    is_json(root, "added_tokens", added);
    is_json(json_object_get(root, "model"), "vocab",
            "{\"a\": 0, \"ab\": 2, \"<?>\": 3, \"<|end|>\": 4, \"<mine>\": 5}");
    json_decref(root);
}

/* Which of three added tokens take the white space behind them: "010" is the second. */
static void takers_are(const gguf_tokens *t, const char *want)
{
    json_t *root;
    assert_int_equal(imported(t, &root), ATOM_OK);
    const json_t *added = json_object_get(root, "added_tokens");
    assert_int_equal(json_array_size(added), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *takes = json_object_get(json_array_get(added, i), "rstrip");
        assert_int_equal(json_is_true(takes), want[i] == '1');
    }
    json_decref(root);
}

/* llama.cpp knows it by the name of the model: those of Phi-3 do, but for three. */
static void tokens_of_phi3_take_spaces(void **state)
{
    (void)state;
    gguf_tokens t = GPT2;
    t.name = "Mine";
    takers_are(&t, "000");
    t.name = "Phi3";
    takers_are(&t, "111");
    t.name = "PHI-3 mini";
    t.texts[3] = "<unk>";
    t.texts[4] = "<|endoftext|>";
    takers_are(&t, "001");
    t.name = NULL;
    takers_are(&t, "000");
}

/* What `post_processor` puts in front: NULL: nothing. */
static void begins_with(const gguf_tokens *t, const char *want)
{
    json_t *root;
    assert_int_equal(imported(t, &root), ATOM_OK);
    const json_t *post = json_object_get(root, "post_processor");
    const json_t *first = json_array_get(json_object_get(post, "single"), 0);
    const json_t *name = json_object_get(json_object_get(first, "SpecialToken"), "id");
    if (want) {
        assert_non_null(name);
        assert_string_equal(json_string_value(name), want);
        const json_t *entry = json_object_get(json_object_get(post, "special_tokens"), want);
        int64_t id = json_integer_value(json_array_get(json_object_get(entry, "ids"), 0));
        assert_string_equal(t->texts[id], want);
    } else {
        assert_null(name);
    }
    json_decref(root);
}

static const gguf_tokens LLAMA = {
    .kind = "llama",
    .n = 10,
    .texts = {"<?>", "<s>", "</s>", "<0x41>", "a", "b", "ab", "aba", "ba", "\u2581"},
    .types = {UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL},
    .scores = {0, 0, 0, 0, -9, -9, -2, -3, -1, -9},
    .bos = -1,
    .add_bos = -1,
    .space = -1};

/* llama.cpp puts the start token in front with "llama" and "llama-bpe", unless the file says otherwise. */
static void the_start_token_comes_back(void **state)
{
    (void)state;
    gguf_tokens t = GPT2;
    t.bos = 4;
    begins_with(&t, NULL);
    t.add_bos = 1;
    begins_with(&t, "<|end|>");
    t.bos = 5;
    begins_with(&t, "<mine>");
    t.bos = -1;
    begins_with(&t, NULL);
    t.bos = 5;
    t.add_bos = -1;
    t.pre = "llama-bpe";
    begins_with(&t, "<mine>");
    t.add_bos = 0;
    begins_with(&t, NULL);
    t = LLAMA;
    begins_with(&t, "<s>");
    t.bos = 2;
    begins_with(&t, "</s>");
    t.add_bos = 0;
    begins_with(&t, NULL);
}

#define REPLACE(from, to)                                                                          \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" from "\"}, \"content\": \"" to "\"}"
#define BYTES REPLACE("\u2581", " ") ", {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"

/* The best score is merged first, and of equal ones the pair whose left part, then whose right part, has
 * the smaller id, as transformers converts SentencePiece. */
static void scores_become_merges(void **state)
{
    (void)state;
    json_t *root;
    gguf_tokens t = LLAMA;
    assert_int_equal(imported(&t, &root), ATOM_OK);
    const json_t *model = json_object_get(root, "model");
    is_json(model, "merges", "[[\"b\", \"a\"], [\"a\", \"b\"], [\"a\", \"ba\"], [\"ab\", \"a\"]]");
    is_json(model, "byte_fallback", "true");
    is_json(model, "fuse_unk", "true");
    is_json(model, "ignore_merges", "false");
    is_json(model, "unk_token", "\"<?>\"");
    is_json(model, "vocab",
            "{\"<?>\": 0, \"<s>\": 1, \"</s>\": 2, \"<0x41>\": 3, \"a\": 4, \"b\": 5, \"ab\": 6, "
            "\"aba\": 7, "
            "\"ba\": 8, \"\u2581\": 9}");
    is_json(root, "pre_tokenizer", "null");
    json_decref(root);
    t.scores[6] = t.scores[7] = t.scores[8] = -1;
    t.types[4] = NORMAL;
    assert_int_equal(imported(&t, &root), ATOM_OK);
    is_json(json_object_get(root, "model"), "merges",
            "[[\"a\", \"b\"], [\"a\", \"ba\"], [\"b\", \"a\"], [\"ab\", \"a\"]]");
    json_decref(root);
    t.types[8] = USER; /* no part of a merge, and made by none */
    assert_int_equal(imported(&t, &root), ATOM_OK);
    is_json(json_object_get(root, "model"), "merges", "[[\"a\", \"b\"], [\"ab\", \"a\"]]");
    json_decref(root);
}

static void the_space_in_front_comes_back(void **state)
{
    static const char with[] = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
                               "\"prepend\": \"\u2581\"}, " REPLACE(" ", "\u2581") "]}";
    static const char strip[] =
        "{\"type\": \"Sequence\", \"decoders\": [" BYTES
        ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}";
    (void)state;
    for (int space = -1; space <= 1; space++) {
        json_t *root;
        gguf_tokens t = LLAMA;
        t.space = space;
        assert_int_equal(imported(&t, &root), ATOM_OK);
        is_json(root, "normalizer", space ? with : REPLACE(" ", "\u2581"));
        is_json(root, "decoder",
                space ? strip : "{\"type\": \"Sequence\", \"decoders\": [" BYTES "]}");
        json_decref(root);
    }
}

static void templates_come_back(void **state)
{
    (void)state;
    scratch s;
    char *jinja = NULL;
    gguf_tokens t = GPT2;
    scratch_open(&s);
    t.with_tools = "t"; /* of no use without the other */
    assert_int_equal(import_template(gguf_of(&s, &t), &jinja), ATOM_OK);
    assert_null(jinja);
    t.jinja = "d";
    assert_int_equal(import_template(gguf_of(&s, &t), &jinja), ATOM_OK);
    assert_string_equal(jinja, "{% if tools %}\nt{%+ else %}\nd{%+ endif %}");
    atom_free(jinja);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_pre_tokenizers),
        cmocka_unit_test(unknown_kinds_are_refused),
        cmocka_unit_test(kinds_become_added_tokens),
        cmocka_unit_test(tokens_of_phi3_take_spaces),
        cmocka_unit_test(the_start_token_comes_back),
        cmocka_unit_test(scores_become_merges),
        cmocka_unit_test(the_space_in_front_comes_back),
        cmocka_unit_test(templates_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
