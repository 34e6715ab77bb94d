/*
 * Owns the tokenizer of a GGUF file as the text of a tokenizer.json: the way back of
 * export_tokens.c. One idea: the file has tokens with types, and merges or scores; what is missing,
 * the steps around them, follows from the name of the pre-tokenizer. Refuses names that atom has no
 * pattern for.
 *
 * "llama" (byte fallback) has scores and no merges: a token's are its cuts into two known tokens,
 * the best score first, as transformers converts SentencePiece.
 */
#include "atom/export/export.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/file/ggufread.h"
#include "atom/text/claims.h"
#include "atom/text/pattern.h"
#include "atom/text/template_files.h"
#include "atom/text/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };
/* Of a token that is cut; and of squares of all of them, so that no file takes for ever. */
enum { CUT_BYTES_MAX = 1024, CUT_WORK_MAX = 1 << 28 };

typedef struct importing {
    const file_gguf_in *f;
    char *kind, *pre; /* tokenizer.ggml.model, .pre */
    bool metaspace;   /* kind is "llama" */
    bool takers;      /* added tokens take the white space behind them */
    uint64_t n;
    char **texts;
    int32_t *types;
    float *scores;
    json_t *vocab, *merges, *added;
} importing;

static atom_status wrong(const importing *in, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: tokenizer.ggml: %s", in->f->path, what);
}

/* --- the arrays ------------------------------------------------------------------------------ */

/* An array of n numbers of 4 bytes into out; none there: left as it is. */
static atom_status take_numbers(const importing *in, const char *key, uint32_t item, void *out)
{
    const file_gguf_value *v = file_gguf_find(in->f, key);
    if (!v)
        return ATOM_OK;
    if (v->type != FILE_GGUF_VALUE_ARRAY || v->item != item || v->n != in->n)
        return atom_fail(ATOM_E_FORMAT, "%s: %s is not an array of one number for each token",
                         in->f->path, key);
    memcpy(out, v->at, v->n * 4);
    return ATOM_OK;
}

static atom_status take_tokens(importing *in)
{
    const file_gguf_value *v = file_gguf_find(in->f, "tokenizer.ggml.tokens");
    if (!v || v->type != FILE_GGUF_VALUE_ARRAY || v->item != FILE_GGUF_VALUE_TEXT || v->n == 0 ||
        v->n > TEXT_VOCAB_MAX)
        return wrong(in, "tokens is missing or not a list of texts");
    in->texts = atom_alloc(v->n, sizeof *in->texts);
    in->types = atom_alloc(v->n, sizeof *in->types);
    in->scores = atom_alloc(v->n, sizeof *in->scores);
    if (!in->texts || !in->types || !in->scores)
        return atom_fail_memory("a vocabulary", v->n * 16);
    in->n = v->n;
    const uint8_t *at = v->at;
    for (uint64_t i = 0; i < in->n; i++) {
        uint64_t bytes;
        const char *text = file_gguf_next_text(&at, &bytes);
        if (bytes == 0 || memchr(text, 0, bytes))
            return wrong(in, "a token is empty or has a zero byte");
        in->texts[i] = atom_strndup(text, bytes);
        if (!in->texts[i])
            return atom_fail_memory("a token", bytes);
        in->types[i] = NORMAL;
    }
    ATOM_TRY(take_numbers(in, "tokenizer.ggml.token_type", FILE_GGUF_VALUE_I32, in->types));
    return take_numbers(in, "tokenizer.ggml.scores", FILE_GGUF_VALUE_F32, in->scores);
}

static json_t *added_entry(const importing *in, uint64_t id)
{
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
    const char *text = in->texts[id];
    bool takes = in->takers;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        takes = takes && strcmp(text, plain[i]) != 0;
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", text,
                     "single_word", 0, "lstrip", 0, "rstrip", (int)takes, "normalized", 0,
                     "special", (int)(in->types[id] != USER));
}

static bool is_added(int32_t type)
{
    return type == CONTROL || type == USER || type == UNKNOWN;
}

/* Added tokens from here on need no place in the vocabulary: whoever reads the file gives them the ids
 * that follow on it. */
static uint64_t tail_of(const importing *in)
{
    uint64_t first = in->n;
    while (first > 0 && is_added(in->types[first - 1]))
        first--;
    for (uint64_t i = 0; i < first; i++) {
        if (in->types[i] == UNUSED)
            return in->n; /* a hole: they would get other ids */
    }
    return in->metaspace ? in->n : first;
}

/* Every token into the vocabulary, or the added ones, or both. */
static atom_status sort_tokens(importing *in)
{
    uint64_t tail = tail_of(in);
    for (uint64_t i = 0; i < in->n; i++) {
        int32_t type = in->types[i];
        bool added = is_added(type);
        if (type == UNUSED)
            continue;
        if (json_object_get(in->vocab, in->texts[i]))
            return wrong(in, "a token appears twice");
        if (added && json_array_append_new(in->added, added_entry(in, i)) < 0)
            return wrong(in, "a token is not UTF-8");
        if (i < tail &&
            json_object_set_new(in->vocab, in->texts[i], json_integer((json_int_t)i)) < 0)
            return wrong(in, "a token is not UTF-8");
    }
    return ATOM_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

static atom_status copy_merges(importing *in)
{
    const file_gguf_value *v = file_gguf_find(in->f, "tokenizer.ggml.merges");
    if (!v || v->type != FILE_GGUF_VALUE_ARRAY || v->item != FILE_GGUF_VALUE_TEXT)
        return wrong(in, "merges is missing or not a list of texts");
    const uint8_t *at = v->at;
    for (uint64_t i = 0; i < v->n; i++) {
        uint64_t bytes;
        const char *text = file_gguf_next_text(&at, &bytes);
        if (json_array_append_new(in->merges, json_stringn(text, bytes)) < 0)
            return wrong(in, "a merge is not UTF-8");
    }
    return ATOM_OK;
}

typedef struct cut {
    float score;
    uint32_t made, left, right;
} cut;

static int best_first(const void *a, const void *b)
{
    const cut *x = a, *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

static bool find_normal(const importing *in, const char *text, size_t bytes, uint32_t *id)
{
    const json_t *value = json_object_getn(in->vocab, text, bytes);
    *id = value ? (uint32_t)json_integer_value(value) : 0;
    return value && in->types[*id] == NORMAL;
}

/* All cuts of token i. */
static atom_status add_cuts(const importing *in, uint32_t i, cut **cuts, size_t *n, size_t *room)
{
    const char *text = in->texts[i];
    size_t bytes = strlen(text);
    for (size_t k = 1; k < bytes; k++) {
        cut c = {.score = in->scores[i], .made = i};
        if (((uint8_t)text[k] & 0xc0u) == 0x80u || !find_normal(in, text, k, &c.left) ||
            !find_normal(in, text + k, bytes - k, &c.right))
            continue;
        ATOM_TRY(atom_grow(cuts, *n, room, sizeof **cuts));
        (*cuts)[(*n)++] = c;
    }
    return ATOM_OK;
}

static atom_status make_merges(importing *in)
{
    cut *cuts = NULL;
    size_t n = 0, room = 0;
    uint64_t work = 0;
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < in->n; i++) {
        size_t bytes = strlen(in->texts[i]);
        if (in->types[i] != NORMAL || bytes > CUT_BYTES_MAX)
            continue;
        work += bytes * bytes;
        if (work > CUT_WORK_MAX)
            ATOM_TRY_CLEAN(wrong(in, "its tokens are too long to be cut"));
        ATOM_TRY_CLEAN(add_cuts(in, i, &cuts, &n, &room));
    }
    if (n)
        qsort(cuts, n, sizeof *cuts, best_first);
    for (size_t i = 0; i < n; i++) {
        json_t *pair = json_pack("[s, s]", in->texts[cuts[i].left], in->texts[cuts[i].right]);
        if (json_array_append_new(in->merges, pair) < 0)
            ATOM_TRY_CLEAN(atom_fail_memory("merges", n * sizeof *cuts));
    }
cleanup:
    atom_free(cuts);
    return st;
}

/* --- the steps around ------------------------------------------------------------------------ */

/* {"type": "ByteLevel", ...} */
static json_t *byte_level(bool regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", (int)regex);
}

static json_t *stage_json(const text_pattern *p)
{
    if (p == text_pattern_gpt2())
        return byte_level(true);
    if (p == text_pattern_digits(true))
        return json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1);
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", p->regex,
                     "behavior", "Isolated", "invert", 0);
}

/* NULL: no such one, or no memory. */
static json_t *pre_tokenizer(const importing *in)
{
    text_stages stages = {0};
    if (!text_stages_find(in->pre, &stages))
        return NULL;
    bool gpt2 = stages.at[stages.n - 1] == text_pattern_gpt2();
    if (gpt2 && stages.n == 1)
        return byte_level(true);
    json_t *steps = json_array();
    for (uint32_t i = 0; i < stages.n; i++)
        if (json_array_append_new(steps, stage_json(stages.at[i])))
            goto fail;
    if (!gpt2 && json_array_append_new(steps, byte_level(false)))
        goto fail;
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
fail:
    json_decref(steps);
    return NULL;
}

/* A space in front of every text, as llama.cpp has it with "llama" unless the file says no. */
static bool prefixes(const importing *in)
{
    return in->metaspace && file_gguf_int(in->f, "tokenizer.ggml.add_space_prefix", 1) != 0;
}

static json_t *normalizer(const importing *in)
{
    if (prefixes(in))
        return json_pack("{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}", "type", "Sequence",
                         "normalizers", "type", "Prepend", "prepend", "\xe2\x96\x81", "type",
                         "Replace", "pattern", "String", " ", "content", "\xe2\x96\x81");
    if (in->metaspace)
        return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                         "content", "\xe2\x96\x81");
    return strncmp(in->pre, "qwen", 4) == 0 ? json_pack("{s:s}", "type", "NFC") : json_null();
}

/* The token before every document, where the file asks for one. */
static json_t *post_processor(const importing *in)
{
    const int64_t usual = in->metaspace ? 1 : -1; /* llama.cpp's */
    uint64_t id = (uint64_t)file_gguf_int(in->f, "tokenizer.ggml.bos_token_id", usual);
    bool fallback = in->metaspace || strcmp(in->pre, "llama-bpe") == 0;
    if (!file_gguf_int(in->f, "tokenizer.ggml.add_bos_token", fallback) || id >= in->n)
        return in->metaspace ? json_null() : byte_level(true);
    const char *name = in->texts[id];
    return json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[I], s:[s]}}}",
                     "type", "TemplateProcessing", "single", "SpecialToken", "id", name, "type_id",
                     0, "Sequence", "id", "A", "type_id", 0, "pair", "special_tokens", name, "id",
                     name, "ids", (json_int_t)id, "tokens", name);
}

static json_t *decoder(const importing *in)
{
    if (!in->metaspace)
        return byte_level(true);
    if (!prefixes(in))
        return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}", "type", "Sequence",
                         "decoders", "type", "Replace", "pattern", "String", "\xe2\x96\x81",
                         "content", " ", "type", "ByteFallback", "type", "Fuse");
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}", "type",
                     "Sequence", "decoders", "type", "Replace", "pattern", "String", "\xe2\x96\x81",
                     "content", " ", "type", "ByteFallback", "type", "Fuse", "type", "Strip",
                     "content", " ", "start", 1, "stop", 0);
}

bool import_ignores_merges(const char *pre)
{
    return strcmp(pre, "llama-bpe") == 0 || strcmp(pre, "tekken") == 0;
}

static json_t *model_json(const importing *in)
{
    const char *unknown = NULL;
    for (uint64_t i = 0; i < in->n && !unknown; i++)
        unknown = in->types[i] == UNKNOWN ? in->texts[i] : NULL;
    return json_pack(
        "{s:s, s:n, s:s?, s:n, s:n, s:b, s:b, s:b, s:O, s:O}", "type", "BPE", "dropout",
        "unk_token", unknown, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
        (int)in->metaspace, "byte_fallback", (int)in->metaspace, "ignore_merges",
        !in->metaspace && import_ignores_merges(in->pre), "vocab", in->vocab, "merges", in->merges);
}

static atom_status make_text(const importing *in, char **text)
{
    json_t *pre = in->metaspace ? json_null() : pre_tokenizer(in);
    if (!pre)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tokenizer.ggml.pre: atom has no pre-tokenizer '%.40s'", in->f->path,
                         in->pre);
    json_t *root = json_pack("{s:s, s:n, s:n, s:O, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                             "truncation", "padding", "added_tokens", in->added, "normalizer",
                             normalizer(in), "pre_tokenizer", pre, "post_processor",
                             post_processor(in), "decoder", decoder(in), "model", model_json(in));
    return atom_json_text(root, JSON_INDENT(2), "", text);
}

/* What no key says: llama.cpp knows it of Phi-3 by the model's name. */
static bool has_takers(const file_gguf_in *f)
{
    char *name = file_gguf_text(f, "general.name");
    bool phi3 = name && (strcasestr(name, "phi-3") || strcasestr(name, "phi3"));
    atom_free(name);
    return phi3;
}

static atom_status open_import(importing *in)
{
    ATOM_TRY(file_gguf_check_kinds(in->f));
    in->kind = file_gguf_text(in->f, "tokenizer.ggml.model");
    in->pre = file_gguf_text(in->f, "tokenizer.ggml.pre");
    in->pre = in->pre ? in->pre : atom_strdup("default");
    in->vocab = json_object();
    in->merges = json_array();
    in->added = json_array();
    if (!in->vocab || !in->merges || !in->added || !in->pre)
        return atom_fail_memory("a tokenizer", 4096);
    in->metaspace = in->kind && strcmp(in->kind, "llama") == 0;
    in->takers = has_takers(in->f);
    if (in->kind && !in->metaspace && strcmp(in->kind, "gpt2") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tokenizer.ggml.model: '%.40s' is not supported; gpt2 and llama are",
                         in->f->path, in->kind);
    return ATOM_OK;
}

atom_status import_tokens(const file_gguf_in *file, char **json)
{
    importing in = {.f = file};
    atom_status st;
    *json = NULL;
    ATOM_TRY_CLEAN(open_import(&in));
    if (!in.kind)
        goto cleanup;
    ATOM_TRY_CLEAN(take_tokens(&in));
    ATOM_TRY_CLEAN(sort_tokens(&in));
    ATOM_TRY_CLEAN(in.metaspace ? make_merges(&in) : copy_merges(&in));
    ATOM_TRY_CLEAN(make_text(&in, json));
cleanup:
    for (uint64_t i = 0; i < in.n; i++)
        atom_free(in.texts[i]);
    atom_free(in.texts);
    atom_free(in.types);
    atom_free(in.scores);
    atom_free(in.kind);
    atom_free(in.pre);
    json_decref(in.vocab);
    json_decref(in.merges);
    json_decref(in.added);
    return st;
}

atom_status import_tokenizer(const char *path, text_tokenizer **out)
{
    file_gguf_in *f = NULL;
    char *json = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(file_gguf_open(path, &f));
    ATOM_TRY_CLEAN(import_tokens(f, &json));
    *out = NULL;
    if (json)
        ATOM_TRY_CLEAN(text_tokenizer_parse(json, strlen(json), path, out));
cleanup:
    file_gguf_in_close(&f);
    atom_free(json);
    return st;
}

atom_status import_model_tokenizer(const file_model *model, text_tokenizer **out)
{
    const char *dir = file_lora_tokenizer_dir(model);
    char *path = atom_path_join(dir, "tokenizer.json");
    text_tokenizer *t = NULL;
    atom_status st = ATOM_OK;
    if (!path)
        return atom_fail_memory("a path", 256);
    if (model->kind == FILE_MODEL_GGUF && dir == model->dir)
        st = import_tokenizer(dir, &t);
    else if (!atom_path_exists(path))
        st = atom_fail(ATOM_E_FORMAT,
                       "%s has no tokenizer.json; copy it there from the data that the model was "
                       "trained on",
                       dir);
    else
        st = text_tokenizer_load(path, &t);
    if (st == ATOM_OK && !t)
        st = atom_fail(ATOM_E_FORMAT,
                       "%s has no tokenizer; export the model again from a directory that has a "
                       "tokenizer.json",
                       dir);
    if (st == ATOM_OK && text_tokenizer_vocab(t) > (uint64_t)model->config.vocab_size)
        st = atom_fail(ATOM_E_FORMAT,
                       "%s has %u tokens, but the model only %lld (vocab_size in config.json); "
                       "they do not belong together",
                       path, text_tokenizer_vocab(t), (long long)model->config.vocab_size);
    if (st == ATOM_OK && model->kind != FILE_MODEL_GGUF)
        st = text_claims_check(t, dir);
    if (st == ATOM_OK)
        *out = t;
    else
        text_tokenizer_close(&t);
    atom_free(path);
    return st;
}

atom_status import_template(const char *path, char **jinja)
{
    file_gguf_in *f = NULL;
    text_template_files b = {0};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(file_gguf_open(path, &f));
    ATOM_TRY_CLEAN(file_gguf_check_kinds(f));
    b.source = file_gguf_text(f, "tokenizer.chat_template");
    b.with_tools = b.source ? file_gguf_text(f, "tokenizer.chat_template.tool_use") : NULL;
    ATOM_TRY_CLEAN(text_template_files_join(&b));
    *jinja = b.source;
    b.source = NULL;
cleanup:
    text_template_files_fini(&b);
    file_gguf_in_close(&f);
    return st;
}
