/*
 * Owns tokenizer.json as metadata of GGUF. One idea: every id of the vocabulary gets a text and a
 * type; what llama.cpp calls the pre-tokenizer follows from the pattern in the file. Refuses
 * patterns that llama.cpp has no name for. Source: docs/design/files.md#gguf.
 *
 * Tokenizers with byte fallback (Llama 2, Mistral) are "llama" there and need scores: the merge
 * that makes a token gives its place, so that the best score is the first merge.
 */
#include "atom/export/export.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/export/ends.h"
#include "atom/text/pattern.h"
#include "atom/text/steps.h"
#include "atom/text/template_files.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { JSON_BYTES_MAX = 1 << 28 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };

typedef struct vocabulary {
    int64_t n;
    const char **texts; /* of the tree; NULL: no such id */
    int32_t *types;
    float *scores;
} vocabulary;

/* *root is NULL where there is no such file. */
static atom_status load(const char *dir, const char *name, size_t flags, json_t **root)
{
    char *path = atom_path_join(dir, name), *text = NULL;
    uint64_t bytes = 0;
    json_error_t error;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    *root = NULL;
    if (path && atom_path_exists(path)) {
        st = atom_file_read(path, JSON_BYTES_MAX, &text, &bytes);
        if (st == ATOM_OK)
            *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | flags, &error);
        if (st == ATOM_OK && !json_is_object(*root))
            st = atom_fail(ATOM_E_FORMAT, "%s: not a JSON object", path);
    }
    if (st != ATOM_OK) {
        json_decref(*root);
        *root = NULL;
    }
    atom_free(text);
    atom_free(path);
    return st;
}

/* --- the pattern ----------------------------------------------------------------------------- */

typedef struct splitting {
    text_stages stages;
    bool unknown;
} splitting;

static void look_at(const json_t *pre, splitting *s)
{
    const char *type = json_string_value(json_object_get(pre, "type"));
    const char *regex =
        json_string_value(json_object_get(json_object_get(pre, "pattern"), "Regex"));
    const json_t *all = json_object_get(pre, "pretokenizers");
    const text_pattern *p = NULL;
    if (!type)
        return;
    for (size_t i = 0; strcmp(type, "Sequence") == 0 && i < json_array_size(all); i++)
        look_at(json_array_get(all, i), s);
    if (strcmp(type, "Digits") == 0)
        p = text_pattern_digits(json_is_true(json_object_get(pre, "individual_digits")));
    if (strcmp(type, "Split") == 0) {
        p = regex ? text_pattern_find(regex) : NULL;
        s->unknown = s->unknown || !p;
    }
    if (strcmp(type, "ByteLevel") == 0 && !json_is_false(json_object_get(pre, "use_regex")))
        p = text_pattern_gpt2();
    if (p && s->stages.n == TEXT_STAGES_MAX)
        s->unknown = true;
    else if (p)
        s->stages.at[s->stages.n++] = p;
}

static atom_status find_pre(const char *dir, const json_t *root, const char **name)
{
    splitting s = {0};
    look_at(json_object_get(root, "pre_tokenizer"), &s);
    *name = s.unknown ? NULL : text_stages_name(&s.stages);
    if (*name)
        return ATOM_OK;
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s/tokenizer.json: atom does not know llama.cpp's name for this "
                     "pre-tokenizer; use llama.cpp's convert_hf_to_gguf.py on this directory",
                     dir);
}

/* --- the tokens ------------------------------------------------------------------------------ */

static bool looks_like_control(const char *text)
{
    size_t n = strlen(text);
    return n > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + n - 2, "|>", 2) == 0;
}

static void set(vocabulary *v, json_int_t id, const char *text, int32_t type)
{
    if (id < 0 || id >= v->n || !text)
        return;
    v->texts[id] = text;
    v->types[id] = type;
}

/* GGUF has no word for it. */
static void warn_of_takers(const char *dir, const json_t *root)
{
    const json_t *added = json_object_get(root, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *one = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(one, "content"));
        bool left = json_is_true(json_object_get(one, "lstrip"));
        if (!text || (!left && !json_is_true(json_object_get(one, "rstrip"))))
            continue;
        atom_log(
            ATOM_LOG_WARN,
            "%s/tokenizer.json: white space beside the token \"%.40s\" belongs to it (%s), which "
            "GGUF cannot express, so llama.cpp may give such texts other ids",
            dir, text, left ? "lstrip" : "rstrip");
        return;
    }
}

static void take_vocabulary(vocabulary *v, const json_t *root, bool metaspace)
{
    const json_t *model = json_object_get(root, "model"),
                 *added = json_object_get(root, "added_tokens");
    const char *unknown = json_string_value(json_object_get(model, "unk_token")), *text;
    json_t *id;
    json_object_foreach((json_t *)json_object_get(model, "vocab"), text, id)
    {
        bool byte = metaspace && strlen(text) == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
        bool is_unknown = unknown && strcmp(text, unknown) == 0;
        set(v, json_integer_value(id), text, byte ? BYTE : is_unknown ? UNKNOWN : NORMAL);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *one = json_array_get(added, i);
        text = json_string_value(json_object_get(one, "content"));
        if (!text || (unknown && strcmp(text, unknown) == 0))
            continue;
        bool control = json_is_true(json_object_get(one, "special")) || looks_like_control(text);
        set(v, json_integer_value(json_object_get(one, "id")), text, control ? CONTROL : USER);
    }
}

/* "a b" of a merge, whichever way it is written; free with atom_free. */
static char *merge_text(const json_t *merge)
{
    const char *a = json_string_value(json_array_get(merge, 0));
    const char *b = json_string_value(json_array_get(merge, 1));
    if (json_is_string(merge))
        return atom_strdup(json_string_value(merge));
    return atom_format("%s %s", a ? a : "", b ? b : "");
}

static atom_status put_merges(file_gguf *w, const json_t *merges)
{
    file_gguf_put_texts(w, "tokenizer.ggml.merges", json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        char *text = merge_text(json_array_get(merges, i));
        if (!text)
            return atom_fail_memory("a merge", 64);
        file_gguf_add_text(w, text, strlen(text));
        atom_free(text);
    }
    return ATOM_OK;
}

/* Minus the place of the first merge that makes a token; others come after all of them. */
static atom_status take_scores(vocabulary *v, const json_t *root)
{
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    size_t n = json_array_size(merges);
    for (int64_t i = 0; i < v->n; i++)
        v->scores[i] = v->types[i] == NORMAL ? -(float)(n + 1) : 0;
    for (size_t i = n; i-- > 0;) {
        char *text = merge_text(json_array_get(merges, i)),
             *space = text ? strchr(text, ' ') : NULL;
        if (!text)
            return atom_fail_memory("a merge", 64);
        if (space)
            memmove(space, space + 1, strlen(space));
        const json_t *made = json_object_get(vocab, text);
        json_int_t id = made ? json_integer_value(made) : -1;
        if (id >= 0 && id < v->n && v->types[id] == NORMAL)
            v->scores[id] = -(float)i;
        atom_free(text);
    }
    return ATOM_OK;
}

static void put_tokens(file_gguf *w, const vocabulary *v)
{
    char hole[32];
    file_gguf_put_texts(w, "tokenizer.ggml.tokens", (uint64_t)v->n);
    for (int64_t i = 0; i < v->n; i++) {
        snprintf(hole, sizeof hole, "[PAD%lld]", (long long)i);
        const char *text = v->texts[i] ? v->texts[i] : hole;
        file_gguf_add_text(w, text, strlen(text));
    }
    file_gguf_put_i32s(w, "tokenizer.ggml.token_type", v->types, (uint64_t)v->n);
}

/* --- what stands beside ---------------------------------------------------------------------- */

/* A number below V, or the first of a list of them; -1: neither. */
static json_int_t id_in(const json_t *config, const char *word, int64_t V)
{
    char key[32];
    snprintf(key, sizeof key, "%s_token_id", word);
    const json_t *id = json_object_get(config, key);
    id = json_is_array(id) ? json_array_get(id, 0) : id;
    return json_is_integer(id) && json_integer_value(id) < V ? json_integer_value(id) : -1;
}

/* Of the added token that tokenizer_config.json gives this part to; -1: of none. */
static json_int_t id_by_name(const json_t *root, const json_t *settings, const char *word,
                             int64_t V)
{
    char key[32];
    const json_t *added = json_object_get(root, "added_tokens"), *one;
    size_t i;
    snprintf(key, sizeof key, "%s_token", word);
    const json_t *entry = json_object_get(settings, key);
    const char *name =
        json_string_value(json_is_object(entry) ? json_object_get(entry, "content") : entry);
    json_array_foreach(added, i, one)
    {
        const char *text = json_string_value(json_object_get(one, "content"));
        const json_t *id = json_object_get(one, "id");
        if (name && text && strcmp(name, text) == 0 && json_is_integer(id) &&
            json_integer_value(id) < V)
            return json_integer_value(id);
    }
    return -1;
}

/* Where the files disagree, the one of tokenizer_config.json's names goes first, as in llama.cpp's
 * converter (SpecialVocab): a chat ends with that, and config.json may list others before it. */
static atom_status put_ids(file_gguf *w, const char *dir, const json_t *root, const char *config,
                           const vocabulary *v)
{
    static const char *const words[][2] = {
        {"bos", "bos_token_id"},       {"eos", "eos_token_id"},     {"unk", "unknown_token_id"},
        {"sep", "seperator_token_id"}, {"pad", "padding_token_id"}, {"mask", "mask_token_id"}};
    json_t *settings = NULL, *generation = NULL, *ids = NULL;
    const int64_t V = v->n;
    json_int_t eos = -1;
    char key[64];
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(load(dir, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &settings));
    ATOM_TRY_CLEAN(load(dir, "generation_config.json", 0, &generation));
    ids = config ? json_loads(config, 0, NULL) : NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        json_int_t id = id_by_name(root, settings, words[i][0], V);
        id = id < 0 ? id_in(ids, words[i][0], V) : id;
        id = id < 0 ? id_in(generation, words[i][0], V) : id;
        snprintf(key, sizeof key, "tokenizer.ggml.%s", words[i][1]);
        if (id >= 0)
            file_gguf_put_u32(w, key, (uint32_t)id);
        eos = strcmp(words[i][0], "eos") == 0 ? id : eos;
    }
    ATOM_TRY_CLEAN(export_ends(w, dir, generation, ids, v->texts, V, eos));
cleanup:
    json_decref(settings);
    json_decref(generation);
    json_decref(ids);
    return st;
}

static atom_status put_template(file_gguf *w, const char *dir)
{
    text_template_files b = {0};
    ATOM_TRY(text_template_files_read(dir, &b));
    if (b.source)
        file_gguf_put_text(w, "tokenizer.chat_template", b.source);
    if (b.with_tools) {
        file_gguf_put_text(w, "tokenizer.chat_template.tool_use", b.with_tools);
        file_gguf_put_texts(w, "tokenizer.chat_templates", 1);
        file_gguf_add_text(w, "tool_use", 8);
    }
    text_template_files_fini(&b);
    return ATOM_OK;
}

/* Does a template put a special token in front of every text? */
static bool begins(const json_t *post)
{
    const char *type = json_string_value(json_object_get(post, "type"));
    const json_t *all = json_object_get(post, "processors");
    bool found = false;
    for (size_t i = 0; i < json_array_size(all) && !found; i++)
        found = begins(json_array_get(all, i));
    const json_t *first = json_array_get(json_object_get(post, "single"), 0);
    return found || (type && strcmp(type, "TemplateProcessing") == 0 &&
                     json_object_get(first, "SpecialToken"));
}

/* Does the normalizer or pre-tokenizer put a space in front of every text? */
static bool prefixes(const json_t *step)
{
    static const char *const lists[] = {"normalizers", "pretokenizers"};
    const char *type = json_string_value(json_object_get(step, "type"));
    const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
    bool found = type && strcmp(type, "Prepend") == 0;
    if (type && strcmp(type, "Metaspace") == 0)
        found = scheme ? strcmp(scheme, "never") != 0
                       : !json_is_false(json_object_get(step, "add_prefix_space"));
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const json_t *all = json_object_get(step, lists[k]);
        for (size_t i = 0; i < json_array_size(all) && !found; i++)
            found = prefixes(json_array_get(all, i));
    }
    return found;
}

/* What llama.cpp puts in front of every text: with "llama" and "llama-bpe" the start token unless it is
 * told not to, and with "llama" a space. */
static atom_status put_fronts(file_gguf *w, const char *dir, const json_t *root, bool metaspace,
                              const char *pre)
{
    json_t *settings = NULL;
    bool usual = metaspace || strcmp(pre, "llama-bpe") == 0;
    ATOM_TRY(load(dir, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &settings));
    if (json_is_false(json_object_get(settings, "add_bos_token"))) /* as of Phi-3 */
        usual = false;
    json_decref(settings);
    file_gguf_put_bool(w, "tokenizer.ggml.add_bos_token",
                       usual || begins(json_object_get(root, "post_processor")));
    if (metaspace && !prefixes(json_object_get(root, "normalizer")) &&
        !prefixes(json_object_get(root, "pre_tokenizer"))) /* as of Gemma */
        file_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    return ATOM_OK;
}

/* A switch that llama.cpp has by the pre-tokenizer's name, not by a key. */
static void warn_of_merges(const char *dir, const json_t *model, const char *pre)
{
    bool says = json_is_true(json_object_get(model, "ignore_merges"));
    if (says != import_ignores_merges(pre))
        atom_log(ATOM_LOG_WARN,
                 "%s/tokenizer.json has ignore_merges %s, but llama.cpp takes it for %s where the "
                 "pre-tokenizer is '%s', so it may give some words other ids",
                 dir, says ? "true" : "false", says ? "false" : "true", pre);
}

static atom_status put_all(file_gguf *w, const char *dir, const json_t *root, vocabulary *v)
{
    const json_t *model = json_object_get(root, "model");
    bool metaspace = json_is_true(json_object_get(model, "byte_fallback"));
    const char *pre = "default";
    if (!metaspace)
        ATOM_TRY(find_pre(dir, root, &pre));
    if (!metaspace)
        warn_of_merges(dir, model, pre);
    warn_of_takers(dir, root);
    take_vocabulary(v, root, metaspace);
    file_gguf_put_text(w, "tokenizer.ggml.model", metaspace ? "llama" : "gpt2");
    file_gguf_put_text(w, "tokenizer.ggml.pre", pre);
    put_tokens(w, v);
    if (metaspace) {
        ATOM_TRY(take_scores(v, root));
        file_gguf_put_f32s(w, "tokenizer.ggml.scores", v->scores, (uint64_t)v->n);
    } else {
        ATOM_TRY(put_merges(w, json_object_get(model, "merges")));
    }
    ATOM_TRY(put_fronts(w, dir, root, metaspace, pre));
    return put_template(w, dir);
}

/* Tokens that the model has no row for would be left out. */
static atom_status check_size(const char *dir, const json_t *root, int64_t V)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *id, *one;
    const char *text;
    json_int_t last = -1;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id)
    {
        last = json_integer_value(id) > last ? json_integer_value(id) : last;
    }
    json_array_foreach((json_t *)json_object_get(root, "added_tokens"), i, one)
    {
        id = json_object_get(one, "id");
        last = json_integer_value(id) > last ? json_integer_value(id) : last;
    }
    if (last < V)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "%s/tokenizer.json has %lld tokens, but the model only %lld (vocab_size in "
                     "config.json); they do not belong together",
                     dir, (long long)last + 1, (long long)V);
}

/* What llama.cpp's own reader would refuse or misread is refused first, and what GGUF has no word for: llama.cpp would
 * split texts in another way. */
static atom_status check_json(const char *dir, const json_t *root, int64_t V)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *merges = json_object_get(model, "merges");
    const char *type = json_string_value(json_object_get(model, "type"));
    char name[PATH_MAX];
    if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(merges) || !type ||
        strcmp(type, "BPE") != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s/tokenizer.json: model '%.40s' with its vocab and merges is not "
                         "supported; only BPE is",
                         dir, type ? type : "(none)");
    snprintf(name, sizeof name, "%s/tokenizer.json", dir);
    ATOM_TRY(text_steps_check(root, name));
    return check_size(dir, root, V);
}

atom_status export_tokens(file_gguf *w, const char *dir, const char *config, int64_t V)
{
    json_t *root = NULL;
    vocabulary v = {.n = V};
    atom_status st;
    ATOM_TRY_CLEAN(load(dir, "tokenizer.json", 0, &root));
    if (!root) {
        atom_log(ATOM_LOG_WARN, "%s has no tokenizer.json, so the file will contain no tokenizer",
                 dir);
        return ATOM_OK;
    }
    ATOM_TRY_CLEAN(check_json(dir, root, V));
    v.texts = atom_alloc((size_t)V, sizeof *v.texts);
    v.types = atom_alloc((size_t)V, sizeof *v.types);
    v.scores = atom_alloc((size_t)V, sizeof *v.scores);
    if (!v.texts || !v.types || !v.scores)
        ATOM_TRY_CLEAN(atom_fail_memory("a vocabulary", (uint64_t)V * 16));
    for (int64_t i = 0; i < V; i++)
        v.types[i] = UNUSED;
    ATOM_TRY_CLEAN(put_all(w, dir, root, &v));
    ATOM_TRY_CLEAN(put_ids(w, dir, root, config, &v));
cleanup:
    json_decref(root);
    atom_free(v.texts);
    atom_free(v.types);
    atom_free(v.scores);
    return st;
}
