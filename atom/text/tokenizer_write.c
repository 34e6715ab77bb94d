/*
 * Owns writing of tokenizer.json. One idea: what came from a file goes back as it was; what atom made
 * is shown in GPT-2's printable alphabet. Refuses nothing.
 */
#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/text/tokenizer_inner.h"

#include <string.h>

/* Byte b is shown as code point b, or as U+0100 + its place among the rest. */
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
        json_t *entry =
            text ? json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", text,
                             "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized",
                             text_tokenizer_manner(t, id) == TEXT_LATE, "special", 1)
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

/* NULL if there is no memory. (json_pack with "o" takes the values over, and fails on
 * a NULL one.) */
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
    if (t->source)
        return atom_file_write(path, t->source, t->source_bytes);
    return atom_json_save(write_all(t), JSON_INDENT(2), "\n", path);
}

atom_status text_tokenizer_save_model(const text_tokenizer *t, const char *dir)
{
    char *path = atom_path_join(dir, "tokenizer.json");
    char *config = atom_path_join(dir, "tokenizer_config.json");
    atom_status st = ATOM_OK;
    if (!path || !config)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(dir)));
    ATOM_TRY_CLEAN(text_tokenizer_save(t, path));
    size_t begin_bytes, end_bytes;
    const char *begin = text_tokenizer_piece(t, t->start, &begin_bytes);
    const char *end = text_tokenizer_piece(t, t->end, &end_bytes);
    st = atom_json_save(json_pack("{s:s, s:s%, s:s%, s:b, s:b}", "tokenizer_class",
                                  "PreTrainedTokenizerFast", "bos_token", begin, begin_bytes,
                                  "eos_token", end, end_bytes, "add_prefix_space", 0,
                                  "clean_up_tokenization_spaces", 0),
                        JSON_INDENT(2), "\n", config);
cleanup:
    atom_free(path);
    atom_free(config);
    return st;
}
