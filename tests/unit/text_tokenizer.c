/* Tokenizers: whatever goes in comes out, files are checked, special text stays text. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/bpe_train.h"
#include "atom/text/split.h"
#include "atom/text/tokenizer.h"
#include "tests/lib/count_jansson.h"
#include "tests/lib/random_text.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static text_tokenizer *small_bpe(void)
{
    random_text r = {.seed = 21};
    static char text[20004];
    size_t n = random_words(&r, text, 10000);
    n += random_utf8(&r, text + n, 10000);
    text_words *words = NULL;
    text_tokenizer *t = NULL;
    assert_int_equal(text_words_open(&words), ATOM_OK);
    assert_int_equal(text_words_add(words, text, n, NULL), ATOM_OK);
    assert_int_equal(text_bpe_train(words, 700, NULL, NULL, &t), ATOM_OK);
    text_words_close(&words);
    return t;
}

static void round_trip(text_encoder *e, const text_tokenizer *t, const char *text, size_t n)
{
    text_ids ids = {0};
    char *back = NULL;
    size_t bytes = 0;
    assert_int_equal(text_encode(e, text, n, &ids, NULL), ATOM_OK);
    for (size_t i = 0; i < ids.n; i++) /* a document makes no special token */
        assert_true(ids.ids[i] < text_tokenizer_vocab(t) && ids.ids[i] != text_tokenizer_end(t));
    assert_int_equal(text_decode(t, ids.ids, ids.n, false, &back, &bytes), ATOM_OK);
    assert_int_equal(bytes, n);
    assert_memory_equal(back, text, n);
    atom_free(back);
    text_ids_fini(&ids);
}

static void any_text_comes_back(void **state)
{
    (void)state;
    static char text[5004];
    text_tokenizer *both[2] = {0};
    assert_int_equal(text_tokenizer_bytes(&both[0]), ATOM_OK);
    both[1] = small_bpe();
    for (int k = 0; k < 2; k++) {
        random_text r = {.seed = 22};
        text_encoder *e = NULL;
        assert_int_equal(text_encoder_open(both[k], &e), ATOM_OK);
        for (int i = 0; i < 400; i++)
            round_trip(e, both[k], text, random_utf8(&r, text, random_below(&r, 5000)));
        for (uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 61)
            if (c < 0xd800 || c >= 0xe000)
                round_trip(e, both[k], text, put_char(c, text));
        static const char *const special[] = {"", TEXT_END_OF_TEXT, "a " TEXT_END_OF_TEXT "\n\n",
                                              "<|endoftext|", "\0\0"};
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            round_trip(e, both[k], special[i], i == 4 ? 2 : strlen(special[i]));
        text_encoder_close(&e);
        text_tokenizer_close(&both[k]);
    }
}

static void bytes_are_bytes(void **state)
{
    (void)state;
    text_tokenizer *t = NULL;
    text_encoder *e = NULL;
    text_ids ids = {0};
    assert_int_equal(text_tokenizer_bytes(&t), ATOM_OK);
    assert_int_equal(text_tokenizer_vocab(t), 257);
    assert_int_equal(text_tokenizer_end(t), 256);
    assert_string_equal(text_tokenizer_kind(t), "bytes");
    assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
    assert_int_equal(text_encode(e, "A\u00e9", 3, &ids, NULL), ATOM_OK);
    static const uint32_t want[] = {0x41, 0xc3, 0xa9, 256};
    assert_memory_equal(ids.ids, want, sizeof want - 4);
    char *text = NULL;
    size_t n = 0;
    assert_int_equal(text_decode(t, want, 4, true, &text, &n), ATOM_OK);
    assert_string_equal(text, "A\u00e9" TEXT_END_OF_TEXT);
    atom_free(text);
    assert_int_equal(text_decode(t, want, 4, false, &text, &n), ATOM_OK);
    assert_string_equal(text, "A\u00e9");
    atom_free(text);
    static const uint32_t wrong[] = {257};
    assert_int_equal(text_decode(t, wrong, 1, false, &text, &n), ATOM_E_FORMAT);
    text_ids_fini(&ids);
    text_encoder_close(&e);
    text_tokenizer_close(&t);
    for (uint32_t i = 0; i < 256; i++)
        assert_int_equal(text_byte_id(text_id_byte(i)), i);
    assert_int_equal(text_byte_id('!'), 0);
    assert_int_equal(text_byte_id(' '), 220); /* as in GPT-2's vocabulary */
}

static void wrong_utf8_keeps_the_list(void **state)
{
    (void)state;
    text_tokenizer *t = small_bpe();
    text_encoder *e = NULL;
    text_ids ids = {0};
    size_t bad = 99;
    assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
    assert_int_equal(text_encode(e, "the lord", 8, &ids, NULL), ATOM_OK);
    size_t n = ids.n;
    assert_int_equal(text_encode(e, "the \xc3(", 6, &ids, &bad), ATOM_E_FORMAT);
    assert_int_equal(bad, 4);
    assert_int_equal(ids.n, n);
    assert_non_null(strstr(atom_fail_message(), "byte 4"));
    text_ids_fini(&ids);
    text_encoder_close(&e);
    text_tokenizer_close(&t);
}

static void check_pieces(text_splitter *s, const char *const *pieces, size_t most)
{
    char text[200] = "";
    size_t start, end, at = 0;
    for (size_t i = 0; i < most && pieces[i]; i++)
        strcat(text, pieces[i]);
    text_splitter_begin(s, text, strlen(text));
    for (size_t i = 0; i < most && pieces[i]; i++, at = end) {
        assert_int_equal(text_splitter_next(s, &start, &end), ATOM_OK);
        assert_int_equal(start, at);
        assert_int_equal(end - start, strlen(pieces[i]));
        assert_memory_equal(text + start, pieces[i], end - start);
    }
    assert_int_equal(text_splitter_next(s, &start, &end), ATOM_OK);
    assert_int_equal(start, end);
}

/* Pieces computed with other engines (formats.md 11), and U+180E, which PCRE2 alone
 * calls a space. */
static void known_pieces(void **state)
{
    (void)state;
    static const char *const cases[][14] = {
        {"Hello", " ", " world", "\n\n ", " I", "'", "VE", " 12345", " caf\u00e9s", "!!", "\n"},
        {"\u6211\u662f", " 3", ".", "14\u00bd", "\r\n\t", " x"},
        {"it", "'s", " we", "'ll", "'", "S"},
        {"a", "\u180e", "b", "\u2003", "\u2003", "c", "\u3000"},
        {"x", " \n", "\n", "y", "  "},
        {"a", "\u180e!", "b", " \u180e", " ", " c"},
    };
    text_splitter *s = NULL;
    assert_int_equal(text_splitter_open(&(text_stages){{text_pattern_gpt2()}, 1}, &s), ATOM_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_pieces(s, cases[c], 14);
    text_splitter_close(&s);
}

/* As the tokenizers library cuts them. */
static void known_pieces_of_sequences(void **state)
{
    (void)state;
    static const char *const cases[][16] = {
        {"deepseek-v3", "#include", " ", "123", "45", " ", "\u4e2d\u6587\u304b\u306a", "ab", "\n",
         "1", "\x01\x01", " !?\r\n", " x"},
        {"deepseek-llm", "a", " ", " b", "1", "2", " ", "\n", "  ", "\u4e2d", "x", "'", "s", " ."},
        {"deepseek-coder", "a", " ", " b", "1", "2", " ", "\n", " ", " ", "\u4e2d", "x", "'", "s",
         " .", "$"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        text_stages stages = {0};
        text_splitter *s = NULL;
        assert_true(text_stages_find(cases[c][0], &stages));
        assert_int_equal(text_splitter_open(&stages, &s), ATOM_OK);
        check_pieces(s, cases[c] + 1, 15);
        text_splitter_close(&s);
    }
}

/* Every safe cut gives the ids of the whole. */
static void cuts_are_safe(void **state)
{
    (void)state;
    text_tokenizer *t = small_bpe();
    text_encoder *e = NULL;
    random_text r = {.seed = 23};
    uint32_t cuts = 0;
    assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
    for (int i = 0; i < 400; i++) {
        char text[304];
        size_t n = 0;
        while (n < 300 - 8) {
            static const char some[] = "\n\n\r\t  ab1!'s\n.";
            n += random_below(&r, 8) ? put_char((uint8_t)some[random_below(&r, 15)], text + n)
                                     : put_char(random_char(&r), text + n);
        }
        text_ids whole = {0}, parts = {0};
        assert_int_equal(text_encode(e, text, n, &whole, NULL), ATOM_OK);
        size_t last = 0;
        for (size_t at = 1; (at = text_cut_next(TEXT_CUT_BEFORE_NEWLINE, text, n, at)) < n; at++) {
            parts.n = 0;
            assert_int_equal(text_encode(e, text, at, &parts, NULL), ATOM_OK);
            assert_int_equal(text_encode(e, text + at, n - at, &parts, NULL), ATOM_OK);
            assert_int_equal(parts.n, whole.n);
            assert_memory_equal(parts.ids, whole.ids, whole.n * sizeof *whole.ids);
            last = at;
            cuts++;
        }
        assert_int_equal(text_cut_last(TEXT_CUT_BEFORE_NEWLINE, text, n), last);
        text_ids_fini(&whole);
        text_ids_fini(&parts);
    }
    assert_true(cuts > 1000);
    text_encoder_close(&e);
    text_tokenizer_close(&t);
}

/* Ends of pieces, behind those that are there. */
static size_t piece_ends(text_splitter *s, const char *text, size_t from, size_t to, size_t *ends,
                         size_t n)
{
    size_t start, end, at = 0;
    text_splitter_begin(s, text + from, to - from);
    for (;;) {
        assert_int_equal(text_splitter_next(s, &start, &end), ATOM_OK);
        assert_int_equal(start, at);
        if (start == end)
            return n;
        ends[n++] = from + end;
        at = end;
    }
}

/* Of every sequence that has a name; and its name is found again. */
static void cuts_of_sequences_are_safe(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2",          "llama-bpe",  "qwen2",  "qwen35",
                                        "gpt-4o",         "tekken",     "smollm", "deepseek-llm",
                                        "deepseek-coder", "deepseek-v3"};
    static const char some[] = "\n\n\n\r\t  ab1!'s\n.#/";
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        text_stages stages = {0};
        text_splitter *s = NULL;
        random_text r = {.seed = 29};
        uint32_t cuts = 0;
        assert_true(text_stages_find(names[k], &stages));
        assert_string_equal(text_stages_name(&stages), names[k]);
        assert_int_equal(text_splitter_open(&stages, &s), ATOM_OK);
        for (int i = 0; i < 400; i++) {
            char text[304];
            size_t n = 0, whole[304], parts[304];
            while (n < 300 - 8)
                n += random_below(&r, 8) ? put_char((uint8_t)some[random_below(&r, 18)], text + n)
                                         : put_char(random_char(&r), text + n);
            size_t whole_n = piece_ends(s, text, 0, n, whole, 0);
            text_cut rule = text_stages_cut(&stages);
            for (size_t at = 1; (at = text_cut_next(rule, text, n, at)) < n; at++, cuts++) {
                size_t parts_n =
                    piece_ends(s, text, at, n, parts, piece_ends(s, text, 0, at, parts, 0));
                assert_int_equal(parts_n, whole_n);
                assert_memory_equal(parts, whole, whole_n * sizeof *whole);
            }
        }
        assert_true(cuts > 1000);
        text_splitter_close(&s);
    }
}

static void files_come_back(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (int k = 0; k < 2; k++) {
        text_tokenizer *t = NULL, *back = NULL;
        if (k)
            t = small_bpe();
        else
            assert_int_equal(text_tokenizer_bytes(&t), ATOM_OK);
        assert_int_equal(text_tokenizer_save(t, scratch_path(&s, "t.json")), ATOM_OK);
        assert_int_equal(text_tokenizer_load(scratch_path(&s, "t.json"), &back), ATOM_OK);
        assert_true(text_tokenizer_equal(t, back));
        assert_string_equal(text_tokenizer_kind(t), text_tokenizer_kind(back));
        text_tokenizer_close(&back);
        assert_int_equal(text_tokenizer_save_model(t, s.dir), ATOM_OK);
        assert_int_equal(text_tokenizer_load(scratch_path(&s, "tokenizer.json"), &back), ATOM_OK);
        assert_true(text_tokenizer_equal(t, back));
        assert_true(atom_path_exists(scratch_path(&s, "tokenizer_config.json")));
        text_tokenizer_close(&back);
        text_tokenizer_close(&t);
    }
    scratch_close(&s);
}

/* The bytes tokenizer's file as JSON, to be spoilt. */
static json_t *good_file(void)
{
    scratch s;
    text_tokenizer *t = NULL;
    scratch_open(&s);
    assert_int_equal(text_tokenizer_bytes(&t), ATOM_OK);
    assert_int_equal(text_tokenizer_save(t, scratch_path(&s, "t.json")), ATOM_OK);
    json_t *root = json_load_file(scratch_path(&s, "t.json"), 0, NULL);
    assert_non_null(root);
    text_tokenizer_close(&t);
    scratch_close(&s);
    return root;
}

static atom_status parse(const json_t *root, text_tokenizer **t)
{
    char *text = json_dumps(root, 0);
    atom_status st = text_tokenizer_parse(text, strlen(text), "t.json", t);
    atom_free(text);
    return st;
}

/* Replaces a value by its dotted path; value is JSON, NULL deletes. */
static void spoil(json_t *root, const char *path, const char *value)
{
    char name[64];
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        root = json_is_array(root) ? json_array_get(root, (size_t)atoi(name))
                                   : json_object_get(root, name);
        assert_non_null(root);
    }
    if (!value)
        json_object_del(root, path);
    else
        json_object_set_new(root, path, json_loads(value, JSON_DECODE_ANY, NULL));
}

static void spoilt_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *says;
        atom_status st;
    } cases[] = {
        {"model", NULL, "\"model\" is missing", ATOM_E_FORMAT},
        {"model.type", "\"WordPiece\"", "WordPiece", ATOM_E_UNSUPPORTED},
        {"model.type", "\"Unigram\"", "Unigram", ATOM_E_UNSUPPORTED},
        {"model.vocab", NULL, "model.vocab", ATOM_E_FORMAT},
        {"model.merges", NULL, "model.merges", ATOM_E_FORMAT},
        {"model.merges", "[\"a\"]", "merges[0] is not a pair", ATOM_E_FORMAT},
        {"model.merges", "[\"a b c\"]", "merges[0] is not a pair", ATOM_E_FORMAT},
        {"model.merges", "[[\"a\"]]", "merges[0] is not a pair", ATOM_E_FORMAT},
        {"model.merges", "[7]", "merges[0] is not a pair", ATOM_E_FORMAT},
        {"model.merges", "[\"a b\"]", "not in the vocabulary", ATOM_E_FORMAT},
        {"model.dropout", "0.5", "dropout", ATOM_E_UNSUPPORTED},
        {"model.dropout", "\"0.5\"", "dropout", ATOM_E_UNSUPPORTED},
        {"model.byte_fallback", "true", "byte_fallback", ATOM_E_UNSUPPORTED},
        {"model.end_of_word_suffix", "\"</w>\"", "suffix", ATOM_E_UNSUPPORTED},
        {"model.vocab.a", NULL, "byte 0x61", ATOM_E_UNSUPPORTED},
        {"model.vocab.a", "\"x\"", "no id", ATOM_E_FORMAT},
        {"model.vocab.a", "-1", "no id", ATOM_E_FORMAT},
        {"model.vocab.a", "16777216", "no id", ATOM_E_FORMAT},
        {"model.vocab.a", "9000000", "gaps", ATOM_E_FORMAT},
        {"model.vocab.a", "98", "same id", ATOM_E_FORMAT},
        {"model.vocab.a b", "300", "alphabet", ATOM_E_UNSUPPORTED},
        {"normalizer", "{\"type\": \"NFKC\"}", "NFKC", ATOM_E_UNSUPPORTED},
        {"normalizer", "{\"type\": \"Prepend\", \"prepend\": \"x\"}", "is Prepend;",
         ATOM_E_UNSUPPORTED},
        {"normalizer", "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}", "without a Replace",
         ATOM_E_UNSUPPORTED},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"behavior\": "
         "\"Isolated\", \"pattern\": {\"Regex\": \"(a+)+b\"}}]}",
         "unknown pattern ((a+)+b)", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
         "\"Split\", "
         "\"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}+\"}}]}",
         "unknown pattern (\\p{N}{1,3}+)", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": "
         "\"Digits\"}, "
         "{\"type\": \"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"Digits\"}, "
         "{\"type\": \"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"Digits\"}, {\"type\": "
         "\"Digits\"}]}",
         "too many steps", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}]}",
         "without a ByteLevel", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer",
         "{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"first\"}",
         "post_processor", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer", "{\"type\": \"Metaspace\"}", "Metaspace", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer", "null", "pre_tokenizer", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer.add_prefix_space", "true", "prefix", ATOM_E_UNSUPPORTED},
        {"pre_tokenizer.use_regex", "false", "regex", ATOM_E_UNSUPPORTED},
        {"post_processor", "{\"type\": \"TemplateProcessing\"}", "template", ATOM_E_UNSUPPORTED},
        {"decoder", "null", "decoder", ATOM_E_UNSUPPORTED},
        {"added_tokens", "[]", "endoftext", ATOM_E_UNSUPPORTED},
        {"added_tokens.0.id", "3", "two ids", ATOM_E_FORMAT},
        {"added_tokens.0.content", "\"<|end|>\"", "same id", ATOM_E_FORMAT},
        {"added_tokens.0.content", NULL, "content", ATOM_E_FORMAT},
        {"added_tokens.0.special", "false", "no added token", ATOM_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = good_file();
        text_tokenizer *t = NULL;
        assert_int_equal(parse(root, &t), ATOM_OK);
        text_tokenizer_close(&t);
        spoil(root, cases[i].path, cases[i].value);
        if (parse(root, &t) != cases[i].st || !strstr(atom_fail_message(), cases[i].says))
            fail_msg("%s = %s: %s", cases[i].path, cases[i].value, atom_fail_message());
        assert_null(t);
        assert_int_equal(strncmp(atom_fail_message(), "t.json", 6), 0);
        json_decref(root);
    }
}

static void broken_json_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {"",     "{",       "[]", "null", "{\"a\":1,\"a\":2}",
                                        "{} x", "\"\xff\""};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text_tokenizer *t = NULL;
        assert_int_equal(text_tokenizer_parse(cases[i], strlen(cases[i]), "t.json", &t),
                         ATOM_E_FORMAT);
        assert_null(t);
    }
    text_tokenizer *t = NULL;
    static const char twice[] = "{\"model\": {\"vocab\": {\"a\": 1, \"a\": 2}}}";
    assert_int_equal(text_tokenizer_parse(twice, strlen(twice), "t.json", &t), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "duplicate"));
    assert_int_not_equal(text_tokenizer_load("/nonexistent/t.json", &t), ATOM_OK);
}

/* A file could else make a short text fill the memory, step after step. */
static void texts_do_not_grow_without_bounds(void **state)
{
    (void)state;
    static const char *const steps[][2] = {
        {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"aa\"}",
         "by a longer text"},
        {"{\"type\": \"Precompiled\", \"precompiled_charsmap\": "
         "\"BAAAAAAAAABhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYW"
         "FhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYQA=\"}",
         "more than 64 bytes"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        text_tokenizer *t = NULL;
        char file[600];
        int n = snprintf(file, sizeof file,
                         "{\"model\": {\"type\": \"Unigram\"}, \"normalizer\": %s}", steps[i][0]);
        assert_int_equal(text_tokenizer_parse(file, (size_t)n, "t.json", &t), ATOM_E_UNSUPPORTED);
        assert_non_null(strstr(atom_fail_message(), steps[i][1]));
    }
}

/* Both forms of merges mean the same; of two equal merges the later one counts, as
 * in the library. */
static void forms_of_merges(void **state)
{
    (void)state;
    static const char *const merges[] = {"[\"a b\", \"ab c\"]", "[[\"a\",\"b\"], [\"ab\",\"c\"]]",
                                         "[\"ab c\", \"a b\", \"ab c\"]"};
    for (int k = 0; k < 3; k++) {
        json_t *root = good_file();
        text_tokenizer *t = NULL;
        text_encoder *e = NULL;
        text_ids ids = {0};
        spoil(root, "model.vocab.ab", "257");
        spoil(root, "model.vocab.abc", "258");
        spoil(root, "model.merges", merges[k]);
        assert_int_equal(parse(root, &t), ATOM_OK);
        assert_string_equal(text_tokenizer_kind(t), "bpe");
        assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
        assert_int_equal(text_encode(e, "abcab", 5, &ids, NULL), ATOM_OK);
        static const uint32_t want[] = {258, 257};
        assert_int_equal(ids.n, 2);
        assert_memory_equal(ids.ids, want, sizeof want);
        text_ids_fini(&ids);
        text_encoder_close(&e);
        text_tokenizer_close(&t);
        json_decref(root);
    }
}

/* Load and encode with the n-th allocation failing, PCRE2's and jansson's among them. jansson's
 * lexer takes want of memory for a wrong token, so that status is possible too. */
static void loading_survives_want_of_memory(void **state)
{
    (void)state;
    json_t *root = good_file();
    spoil(root, "model.vocab.bb", "257"); /* a BPE file, so that there is more to want */
    spoil(root, "model.merges", "[\"b b\"]");
    char *file = json_dumps(root, 0);
    static const char text[] =
        "a bbb bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    bool done = false;
    for (uint64_t k = 1; !done; k += 1 + k / 16) {
        uint64_t before = atom_mem_read().live_blocks;
        text_tokenizer *back = NULL;
        text_encoder *e = NULL;
        text_ids ids = {0};
        atom_mem_fail_after(k);
        atom_status st = text_tokenizer_parse(file, strlen(file), "t.json", &back);
        bool loaded = st == ATOM_OK;
        if (st == ATOM_OK)
            st = text_encoder_open(back, &e);
        if (st == ATOM_OK)
            st = text_encode(e, text, sizeof text - 1, &ids, NULL);
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        if (!done && st != ATOM_E_RESOURCE && (loaded || st != ATOM_E_FORMAT))
            fail_msg("%llu: %s", (unsigned long long)k, atom_fail_message());
        assert_true(done || ids.n == 0);
        text_ids_fini(&ids);
        text_encoder_close(&e);
        text_tokenizer_close(&back);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    atom_free(file);
    json_decref(root);
}

/* A failure in the middle of a text leaves the list as it was. */
static void encoding_survives_want_of_memory(void **state)
{
    (void)state;
    static const char text[] =
        "a bbb bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    text_tokenizer *t = small_bpe();
    uint32_t failed = 0;
    for (uint64_t k = 1; k < 6; k++) {
        text_encoder *e = NULL;
        text_ids ids = {0};
        assert_int_equal(text_encoder_open(t, &e), ATOM_OK);
        atom_mem_fail_after(k);
        atom_status st = text_encode(e, text, sizeof text - 1, &ids, NULL);
        atom_mem_fail_after(0);
        failed += st != ATOM_OK;
        assert_true(st == ATOM_OK || (st == ATOM_E_RESOURCE && ids.n == 0));
        ids.n = 0;
        assert_int_equal(text_encode(e, text, sizeof text - 1, &ids, NULL), ATOM_OK);
        text_ids_fini(&ids);
        text_encoder_close(&e);
    }
    assert_true(failed >= 3 && failed < 5);
    text_tokenizer_close(&t);
}

static void saving_survives_want_of_memory(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    text_tokenizer *t = NULL, *back = NULL;
    text_merge merges[3] = {{0, 1, 256}, {256, 2, 257}, {1, 2, 258}};
    assert_int_equal(text_tokenizer_bpe(merges, 3, &t), ATOM_OK);
    bool done = false;
    for (uint64_t k = 1; !done; k += 1 + k / 16) {
        uint64_t before = atom_mem_read().live_blocks;
        atom_mem_fail_after(k);
        atom_status st = text_tokenizer_save(t, scratch_path(&s, "t.json"));
        atom_mem_fail_after(0);
        done = st == ATOM_OK;
        assert_true(done || st == ATOM_E_RESOURCE);
        assert_int_equal(atom_path_exists(scratch_path(&s, "t.json")), done);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    assert_int_equal(text_tokenizer_load(scratch_path(&s, "t.json"), &back), ATOM_OK);
    assert_true(text_tokenizer_equal(t, back));
    text_tokenizer_close(&back);
    text_tokenizer_close(&t);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_text_comes_back),
        cmocka_unit_test(bytes_are_bytes),
        cmocka_unit_test(wrong_utf8_keeps_the_list),
        cmocka_unit_test(known_pieces),
        cmocka_unit_test(known_pieces_of_sequences),
        cmocka_unit_test(cuts_are_safe),
        cmocka_unit_test(cuts_of_sequences_are_safe),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(spoilt_files_are_refused),
        cmocka_unit_test(broken_json_is_refused),
        cmocka_unit_test(texts_do_not_grow_without_bounds),
        cmocka_unit_test(forms_of_merges),
        cmocka_unit_test(loading_survives_want_of_memory),
        cmocka_unit_test(encoding_survives_want_of_memory),
        cmocka_unit_test(saving_survives_want_of_memory),
    };
    count_jansson();
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* fsync is slow elsewhere */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
