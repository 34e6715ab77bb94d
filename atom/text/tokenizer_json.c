/*
 * Owns tokenizer.json, in and out. One idea: reading checks everything that the rest of the folder
 * relies on (all bytes have a token, merges make known tokens, one end-of-text token) and turns
 * GPT-2's printable alphabet into raw bytes; writing turns it back. Refuses, by name, models and
 * steps that atom does not have, so that a text is never split in another way than the file says.
 */
#include "atom/text/tokenizer.h"

#include "atom/base/env.h"
#include "atom/base/mem.h"
#include "atom/text/json_file.h"
#include "atom/text/tokenizer_inner.h"

#include <jansson.h>
#include <string.h>

enum { FILE_BYTES_MAX = 256 << 20 };

typedef struct reading {
    const char *name;   /* of the file, for messages */
    json_t *vocab;      /* borrowed: model.vocab */
    json_t *added;      /* borrowed: added_tokens, may be NULL */
    const char **texts; /* [t->vocab] content per id, borrowed; NULL: a hole */
    text_tokenizer *t;
} reading;

/* ---- GPT-2's alphabet: byte b is shown as code point b, or as U+0100 + its place among the rest
 * ---- */

static uint32_t byte_code_point(uint8_t byte)
{
    uint32_t id = text_byte_id(byte);
    return id < 188 ? byte : 0x100 + id - 188;
}

/* Writes 1 or 2 bytes. */
static size_t put_shown(uint8_t byte, char *out)
{
    uint32_t cp = byte_code_point(byte);
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    return 2;
}

/* Bytes of a shown token, or false if it has other characters. out may be NULL: then it only
 * counts. */
static bool take_shown(const char *text, char *out, size_t *bytes)
{
    size_t n = 0;
    for (const uint8_t *s = (const uint8_t *)text; *s; n++) {
        uint32_t cp = *s++;
        if (cp >= 0x80) {
            if (cp > 0xdf)
                return false;
            cp = (cp & 0x1f) << 6 | (*s++ & 0x3f);
        }
        uint8_t byte;
        if (cp >= 0x100 && cp < 0x100 + 68)
            byte = text_id_byte(188 + cp - 0x100);
        else if (cp < 0x100 && text_byte_id((uint8_t)cp) < 188)
            byte = (uint8_t)cp;
        else
            return false;
        if (out)
            out[n] = (char)byte;
    }
    *bytes = n;
    return true;
}

/* ---- reading ---- */

static atom_status wrong(const reading *r, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: %s; is it a complete tokenizer.json?", r->name, what);
}

static atom_status unsupported(const reading *r, const char *key, const char *what)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: \"%s\" is %s; atom reads byte-level BPE with GPT-2's pre-tokenizer",
                     r->name, key, what);
}

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "without a type";
}

static bool is_byte_level(const json_t *object)
{
    return json_is_object(object) && strcmp(type_of(object), "ByteLevel") == 0;
}

static bool absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static bool empty_text(const json_t *value)
{
    return absent(value) || (json_is_string(value) && json_string_length(value) == 0);
}

static atom_status check_steps(const reading *r, const json_t *root)
{
    const json_t *step = json_object_get(root, "normalizer");
    if (!absent(step))
        return unsupported(r, "normalizer", type_of(step));
    step = json_object_get(root, "pre_tokenizer");
    if (!is_byte_level(step))
        return unsupported(r, "pre_tokenizer", absent(step) ? "absent" : type_of(step));
    if (!json_is_false(json_object_get(step, "add_prefix_space")))
        return unsupported(r, "pre_tokenizer.add_prefix_space", "true or absent");
    const json_t *regex = json_object_get(step, "use_regex");
    if (regex && !json_is_true(regex))
        return unsupported(r, "pre_tokenizer.use_regex", "false");
    step = json_object_get(root, "post_processor");
    if (!absent(step) && !is_byte_level(step))
        return unsupported(r, "post_processor", type_of(step));
    step = json_object_get(root, "decoder");
    if (!is_byte_level(step))
        return unsupported(r, "decoder", absent(step) ? "absent" : type_of(step));
    return ATOM_OK;
}

static atom_status check_model(const reading *r, const json_t *model)
{
    const json_t *dropout = json_object_get(model, "dropout");
    if (!json_is_object(model))
        return wrong(r, "\"model\" is missing");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (type && strcmp(type, "BPE") != 0)
        return unsupported(r, "model", type);
    if (!absent(dropout) && json_number_value(dropout) != 0)
        return unsupported(r, "model.dropout", "not zero");
    if (!empty_text(json_object_get(model, "continuing_subword_prefix")))
        return unsupported(r, "model.continuing_subword_prefix", "not empty");
    if (!empty_text(json_object_get(model, "end_of_word_suffix")))
        return unsupported(r, "model.end_of_word_suffix", "not empty");
    if (json_is_true(json_object_get(model, "ignore_merges")))
        return unsupported(r, "model.ignore_merges", "true");
    if (!json_is_object(json_object_get(model, "vocab")))
        return wrong(r, "\"model.vocab\" is missing");
    if (!json_is_array(json_object_get(model, "merges")))
        return wrong(r, "\"model.merges\" is missing");
    return ATOM_OK;
}

/* An id of the vocabulary or of added_tokens, checked. */
static atom_status read_id(const reading *r, const char *content, const json_t *value, uint32_t *id)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;
    if (n < 0 || n >= TEXT_VOCAB_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: token \"%.40s\" has no id in 0..%d", r->name, content,
                         TEXT_VOCAB_MAX - 1);
    *id = (uint32_t)n;
    return ATOM_OK;
}

/* Size of the vocabulary: the largest id + 1; checks that the ids are not far apart. */
static atom_status measure(reading *r)
{
    const char *content;
    json_t *value;
    size_t i, tokens = json_object_size(r->vocab) + json_array_size(r->added);
    uint32_t id = 0, max = 0;
    atom_status st = ATOM_OK;
    json_object_foreach(r->vocab, content, value)
    {
        ATOM_TRY(read_id(r, content, value, &id));
        max = id > max ? id : max;
    }
    json_array_foreach(r->added, i, value)
    {
        content = json_string_value(json_object_get(value, "content"));
        if (!content || !*content)
            return wrong(r, "an entry of \"added_tokens\" has no content");
        ATOM_TRY(read_id(r, content, json_object_get(value, "id"), &id));
        if (!json_is_true(json_object_get(value, "special")))
            return unsupported(r, content, "an added token that is not special");
        max = id > max ? id : max;
    }
    if (max >= 2 * tokens + 1024)
        return wrong(r, "the ids of the vocabulary have large gaps");
    r->t->vocab = max + 1;
fail:
    return st;
}

static atom_status claim(reading *r, const char *content, uint32_t id)
{
    if (r->texts[id] && strcmp(r->texts[id], content) != 0)
        return atom_fail(ATOM_E_FORMAT, "%s: tokens \"%.40s\" and \"%.40s\" have the same id %u",
                         r->name, r->texts[id], content, id);
    r->texts[id] = content;
    return ATOM_OK;
}

/* Who has which id; marks special tokens; finds end-of-text. */
static atom_status read_ids(reading *r)
{
    const char *content;
    json_t *value;
    size_t i;
    atom_status st = ATOM_OK;
    text_tokenizer *t = r->t;
    json_object_foreach(r->vocab, content, value)
    {
        ATOM_TRY(claim(r, content, (uint32_t)json_integer_value(value)));
    }
    t->end = TEXT_NO_ID;
    json_array_foreach(r->added, i, value)
    {
        content = json_string_value(json_object_get(value, "content"));
        uint32_t id = (uint32_t)json_integer_value(json_object_get(value, "id"));
        const json_t *same = json_object_get(r->vocab, content);
        if (same && json_integer_value(same) != (json_int_t)id)
            return atom_fail(ATOM_E_FORMAT, "%s: token \"%.40s\" has two ids, %u and %lld", r->name,
                             content, id, (long long)json_integer_value(same));
        ATOM_TRY(claim(r, content, id));
        t->special[id] = 1;
        if (strcmp(content, TEXT_END_OF_TEXT) == 0)
            t->end = id;
    }
    if (t->end == TEXT_NO_ID)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: there is no added token " TEXT_END_OF_TEXT
                         ", which atom puts between documents; add it",
                         r->name);
fail:
    return st;
}

static atom_status read_pieces(reading *r)
{
    text_tokenizer *t = r->t;
    uint64_t total = 0, at = 0;
    for (uint32_t id = 0; id < t->vocab; id++)
        total += r->texts[id] ? strlen(r->texts[id]) : 0;
    t->piece_bytes = atom_alloc(total + 1, 1);
    if (!t->piece_bytes)
        return atom_fail_memory("token pieces", total);
    for (uint32_t b = 0; b < 256; b++)
        t->byte_ids[b] = TEXT_NO_ID;
    for (uint32_t id = 0; id < t->vocab; id++) {
        const char *content = r->texts[id] ? r->texts[id] : "";
        size_t n = 0;
        if (t->special[id])
            memcpy(t->piece_bytes + at, content, n = strlen(content));
        else if (!take_shown(content, t->piece_bytes + at, &n))
            return unsupported(r, content, "not written in GPT-2's byte alphabet");
        if (n == 1 && !t->special[id])
            t->byte_ids[(uint8_t)t->piece_bytes[at]] = id;
        at += n;
        t->piece_ends[id] = at;
    }
    for (uint32_t b = 0; b < 256; b++)
        if (t->byte_ids[b] == TEXT_NO_ID)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: no token for byte 0x%02x; train it with the full byte alphabet",
                             r->name, b);
    return ATOM_OK;
}

static uint32_t find(const reading *r, const char *content)
{
    const json_t *id = json_object_get(r->vocab, content);
    return id ? (uint32_t)json_integer_value(id) : TEXT_NO_ID;
}

/* "a b" (to 0.19) or ["a", "b"] (from 0.20): fresh "a\0b" and where b is; NULL if it is neither. */
static char *merge_parts(const json_t *entry, const char **b, bool *no_memory)
{
    const char *first = json_string_value(json_is_array(entry) ? json_array_get(entry, 0) : entry);
    const char *second = json_string_value(json_array_get(entry, 1));
    *no_memory = false;
    if (!first || (json_is_array(entry) && (json_array_size(entry) != 2 || !second)))
        return NULL;
    size_t cut = json_is_array(entry) ? strlen(first) : strcspn(first, " ");
    if (!json_is_array(entry)) {
        if (!first[cut])
            return NULL;
        second = first + cut + 1;
        if (strchr(second, ' '))
            return NULL;
    }
    size_t tail = strlen(second);
    char *parts = atom_alloc(cut + tail + 2, 1);
    *no_memory = !parts;
    if (parts) {
        memcpy(parts, first, cut);
        memcpy(parts + cut + 1, second, tail);
        *b = parts + cut + 1;
    }
    return parts;
}

static atom_status read_merges(reading *r, const json_t *merges)
{
    text_tokenizer *t = r->t;
    size_t n = json_array_size(merges);
    if (n >= TEXT_VOCAB_MAX)
        return wrong(r, "there are too many merges");
    t->merges_n = (uint32_t)n;
    t->merges = atom_alloc(n + 1, sizeof *t->merges);
    if (!t->merges)
        return atom_fail_memory("merges", n * sizeof *t->merges);
    for (size_t i = 0; i < n; i++) {
        const char *b = NULL;
        bool no_memory;
        char *parts = merge_parts(json_array_get(merges, i), &b, &no_memory);
        if (no_memory)
            return atom_fail_memory("a merge", 64);
        if (!parts)
            return atom_fail(ATOM_E_FORMAT, "%s: model.merges[%zu] is not a pair of tokens",
                             r->name, i);
        text_merge m = {.a = find(r, parts), .b = find(r, b)};
        memmove(parts + (b - parts) - 1, b, strlen(b) + 1);
        m.made = find(r, parts);
        bool known = m.a != TEXT_NO_ID && m.b != TEXT_NO_ID && m.made != TEXT_NO_ID;
        atom_free(parts);
        if (!known)
            return atom_fail(ATOM_E_FORMAT,
                             "%s: model.merges[%zu] uses or makes a token that is not in the "
                             "vocabulary",
                             r->name, i);
        t->merges[i] = m;
    }
    return ATOM_OK;
}

static atom_status read_all(reading *r, const json_t *root)
{
    atom_status st = ATOM_OK;
    text_tokenizer *t = r->t;
    json_t *model = json_object_get(root, "model");
    if (!json_is_object(root))
        return wrong(r, "it is not a JSON object");
    ATOM_TRY(check_model(r, model));
    ATOM_TRY(check_steps(r, root));
    r->vocab = json_object_get(model, "vocab");
    r->added = json_object_get(root, "added_tokens");
    ATOM_TRY(measure(r));
    r->texts = atom_alloc(t->vocab, sizeof *r->texts);
    t->special = atom_alloc(t->vocab, 1);
    t->piece_ends = atom_alloc(t->vocab, sizeof *t->piece_ends);
    if (!r->texts || !t->special || !t->piece_ends)
        return atom_fail_memory("a vocabulary", (uint64_t)t->vocab * 17);
    ATOM_TRY(read_ids(r));
    ATOM_TRY(read_pieces(r));
    ATOM_TRY(read_merges(r, json_object_get(model, "merges")));
    ATOM_TRY(text_tokenizer_index(t));
    t->bytes_only = t->merges_n == 0;
    for (uint32_t b = 0; b < 256; b++)
        t->bytes_only = t->bytes_only && t->byte_ids[b] == b;
fail:
    return st;
}

atom_status text_tokenizer_parse(const char *json, size_t bytes, const char *name,
                                 text_tokenizer **out)
{
    json_error_t error;
    reading r = {.name = name};
    json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root && text_json_starved(&error))
        return atom_fail_memory(name, bytes);
    if (!root)
        return atom_fail(ATOM_E_FORMAT, "%s:%d:%d: %s", name, error.line, error.column, error.text);
    r.t = atom_alloc(1, sizeof *r.t);
    atom_status st = r.t ? read_all(&r, root) : atom_fail_memory("a tokenizer", sizeof *r.t);
    atom_free(r.texts);
    json_decref(root);
    if (st == ATOM_OK)
        *out = r.t;
    else
        text_tokenizer_close(&r.t);
    return st;
}

atom_status text_tokenizer_load(const char *path, text_tokenizer **out)
{
    char *json = NULL;
    uint64_t bytes = 0;
    atom_status st = atom_file_read(path, FILE_BYTES_MAX, &json, &bytes);
    if (st == ATOM_OK)
        st = text_tokenizer_parse(json, bytes, path, out);
    atom_free(json);
    return st;
}

/* ---- writing ---- */

/* The token as the file shows it: special tokens as they are, others in GPT-2's alphabet. */
static char *shown(const text_tokenizer *t, uint32_t id)
{
    size_t n, at = 0;
    const char *piece = text_tokenizer_piece(t, id, &n);
    char *text = atom_alloc(2 * n + 1, 1);
    for (size_t i = 0; text && i < n; i++) {
        if (t->special[id])
            text[at++] = piece[i];
        else
            at += put_shown((uint8_t)piece[i], text + at);
    }
    return text;
}

static json_t *write_vocab(const text_tokenizer *t)
{
    json_t *vocab = json_object();
    for (uint32_t id = 0; vocab && id < t->vocab; id++) {
        char *text = shown(t, id);
        if (text && *text == 0) {
            atom_free(text);
            continue;
        }
        if (!text || json_object_set_new(vocab, text, json_integer(id))) {
            json_decref(vocab);
            vocab = NULL;
        }
        atom_free(text);
    }
    return vocab;
}

/* "a b" strings: the form that every version of the library reads. */
static json_t *write_merges(const text_tokenizer *t)
{
    json_t *merges = json_array();
    for (uint32_t i = 0; merges && i < t->merges_n; i++) {
        char *a = shown(t, t->merges[i].a), *b = shown(t, t->merges[i].b);
        char *text = a && b ? atom_format("%s %s", a, b) : NULL;
        if (!text || json_array_append_new(merges, json_string(text))) {
            json_decref(merges);
            merges = NULL;
        }
        atom_free(text);
        atom_free(a);
        atom_free(b);
    }
    return merges;
}

static json_t *write_added(const text_tokenizer *t)
{
    json_t *added = json_array();
    for (uint32_t id = 0; added && id < t->vocab; id++) {
        if (!t->special[id])
            continue;
        char *text = shown(t, id);
        json_t *entry = text ? json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)id,
                                         "content", text, "single_word", 0, "lstrip", 0, "rstrip",
                                         0, "normalized", 0, "special", 1)
                             : NULL;
        if (!entry || json_array_append_new(added, entry)) {
            json_decref(added);
            added = NULL;
        }
        atom_free(text);
    }
    return added;
}

static json_t *byte_level(bool prefix, bool trim)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                     "trim_offsets", trim, "use_regex", 1);
}

/* NULL if there is no memory. (json_pack with "o" takes the values over, and fails on a NULL one.)
 */
static json_t *write_all(const text_tokenizer *t)
{
    json_t *model = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", 0, "vocab", write_vocab(t), "merges", write_merges(t));
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", write_added(t), "normalizer",
                     "pre_tokenizer", byte_level(false, true), "post_processor",
                     byte_level(true, false), "decoder", byte_level(true, true), "model", model);
}

atom_status text_tokenizer_save(const text_tokenizer *t, const char *path)
{
    return text_json_save(write_all(t), path);
}

atom_status text_tokenizer_save_model(const text_tokenizer *t, const char *dir)
{
    char *path = atom_path_join(dir, "tokenizer.json");
    char *config = atom_path_join(dir, "tokenizer_config.json");
    atom_status st = ATOM_OK;
    if (!path || !config) {
        st = atom_fail_memory("a path", strlen(dir));
        goto fail;
    }
    ATOM_TRY(text_tokenizer_save(t, path));
    st = text_json_save(json_pack("{s:s, s:s, s:s, s:b, s:b}", "tokenizer_class",
                                  "PreTrainedTokenizerFast", "bos_token", TEXT_END_OF_TEXT,
                                  "eos_token", TEXT_END_OF_TEXT, "add_prefix_space", 0,
                                  "clean_up_tokenization_spaces", 0),
                        config);
fail:
    atom_free(path);
    atom_free(config);
    return st;
}
