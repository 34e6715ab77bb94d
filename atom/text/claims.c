/*
 * Owns the comparison of a tokenizer with the settings beside it. One idea: transformers lets tokenizer_config.json change
 * what tokenizer.json says, and atom follows tokenizer.json alone, so where they differ the model may have learned other
 * ids, and somebody should hear. Refuses nothing.
 */
#include "atom/text/claims.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/text/tokenizer_inner.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SETTINGS_BYTES_MAX = 16 << 20 };

#define MAKE_EQUAL                                                                                 \
    "atom follows tokenizer.json, transformers may not; this makes them equal: python3 -c \"from " \
    "transformers import AutoTokenizer as T; T.from_pretrained('%s').save_pretrained('%s')\""

static bool is_class(const json_t *settings, const char *start)
{
    const char *name = json_string_value(json_object_get(settings, "tokenizer_class"));
    return name && strncmp(name, start, strlen(start)) == 0;
}

/* These classes put a start token there wherever nobody says no. */
static void check_start(const text_tokenizer *t, const char *dir, const json_t *settings)
{
    const json_t *says = json_object_get(settings, "add_bos_token");
    bool usual = is_class(settings, "LlamaTokenizer") || is_class(settings, "GemmaTokenizer");
    if (!says && usual && !text_tokenizer_leads(t))
        atom_log(
            ATOM_LOG_WARN,
            "%s/tokenizer_config.json has a tokenizer_class that puts a start token in front of "
            "a text where add_bos_token is absent, but tokenizer.json puts no token; " MAKE_EQUAL,
            dir, dir, dir);
    if (!json_is_boolean(says) || json_is_true(says) == text_tokenizer_leads(t))
        return;
    atom_log(
        ATOM_LOG_WARN,
        "%s/tokenizer_config.json has add_bos_token %s, but tokenizer.json puts %s in front of "
        "a text; " MAKE_EQUAL,
        dir, json_is_true(says) ? "true" : "false",
        json_is_true(says) ? "no token" : "a start token", dir, dir);
}

/* Of bytes, transformers sets it where the pre-tokenizer is one ByteLevel, and takes it for false where it is absent, as
 * it is here; of metaspaces only Llama's class obeys it. */
static void check_space(const text_tokenizer *t, const char *dir, const json_t *settings)
{
    const json_t *says = json_object_get(settings, "add_prefix_space");
    const text_recipe *r = &t->recipe;
    bool obeyed = r->metaspace ? !r->unigram && is_class(settings, "LlamaTokenizer")
                               : r->stages.n == 1 && r->stages.at[0] == text_pattern_gpt2();
    if (!obeyed || !json_is_boolean(says) || json_is_true(says) == r->prepend)
        return;
    atom_log(
        ATOM_LOG_WARN,
        "%s/tokenizer_config.json has add_prefix_space %s, but tokenizer.json puts %s in front "
        "of a text; " MAKE_EQUAL,
        dir, json_is_true(says) ? "true" : "false", r->prepend ? "a space" : "no space", dir, dir);
}

static bool has_added(const text_tokenizer *t, uint32_t id, const char *content)
{
    size_t n;
    const char *piece = text_tokenizer_piece(t, id, &n);
    if (!text_tokenizer_special(t, id))
        return false;
    return !text_tokenizer_control(t, id) ||
           (n == strlen(content) && memcmp(piece, content, n) == 0);
}

static void warn_of_missing(const char *dir, const char *file, const char *content,
                            unsigned long id)
{
    atom_log(
        ATOM_LOG_WARN,
        "%s/%s has the added token \"%.40s\" with the id %lu, which tokenizer.json has not, so "
        "its name is ordinary text here; " MAKE_EQUAL,
        dir, file, content, id, dir, dir);
}

/* The older file of names and ids, which transformers reads where the settings list none. */
static void check_older(const text_tokenizer *t, const char *dir, const json_t *settings,
                        json_t *older)
{
    const char *content;
    json_t *id;
    if (json_object_get(settings, "added_tokens_decoder"))
        return;
    json_object_foreach(older, content, id)
    {
        double n = json_number_value(id);
        if (!json_is_number(id) || n < 0 || n > UINT32_MAX ||
            (n < TEXT_VOCAB_MAX && has_added(t, (uint32_t)n, content)))
            continue;
        warn_of_missing(dir, "added_tokens.json", content, (unsigned long)n);
        return;
    }
}

/* The switch of the two files' entries of one token that differs, or NULL. */
static const char *other_switch(const text_tokenizer *t, uint32_t id, const json_t *entry)
{
    static const struct {
        const char *key;
        uint32_t manner;
    } switches[] = {
        {"lstrip", TEXT_TAKES_LEFT}, {"rstrip", TEXT_TAKES_RIGHT}, {"single_word", TEXT_ALONE}};
    uint32_t manner = text_tokenizer_manner(t, id);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (json_is_true(json_object_get(entry, switches[i].key)) !=
            ((manner & switches[i].manner) != 0))
            return switches[i].key;
    return NULL;
}

/* The first that is not there, or is found in another way, is enough. */
static void check_added(const text_tokenizer *t, const char *dir, const json_t *settings)
{
    json_t *added = json_object_get(settings, "added_tokens_decoder"), *value;
    const char *key;
    json_object_foreach(added, key, value)
    {
        const char *content = json_string_value(json_object_get(value, "content"));
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        if (!content || *end)
            continue;
        bool there = id < TEXT_VOCAB_MAX && has_added(t, (uint32_t)id, content);
        const char *other = there ? other_switch(t, (uint32_t)id, value) : NULL;
        if (there && !other)
            continue;
        if (there)
            atom_log(ATOM_LOG_WARN,
                     "%s/tokenizer_config.json has %s %s for the added token \"%.40s\", and "
                     "tokenizer.json has %s; " MAKE_EQUAL,
                     dir, other, json_is_true(json_object_get(value, other)) ? "true" : "false",
                     content, json_is_true(json_object_get(value, other)) ? "false" : "true", dir,
                     dir);
        else
            warn_of_missing(dir, "tokenizer_config.json", content, id);
        return;
    }
}

/* *root: NULL where there is none, or it is no JSON, which is refused where a chat template is looked for. */
static atom_status read_settings(const char *dir, const char *name, json_t **root)
{
    char *path = atom_path_join(dir, name), *text = NULL;
    uint64_t bytes = 0;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    if (path && atom_path_exists(path))
        st = atom_file_read(path, SETTINGS_BYTES_MAX, &text, &bytes);
    *root = text ? json_loadb(text, (size_t)bytes, JSON_DECODE_INT_AS_REAL, NULL) : NULL;
    atom_free(text);
    atom_free(path);
    return st;
}

atom_status text_claims_check(const text_tokenizer *t, const char *dir)
{
    json_t *settings = NULL, *older = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(read_settings(dir, "tokenizer_config.json", &settings));
    ATOM_TRY_CLEAN(read_settings(dir, "added_tokens.json", &older));
    check_start(t, dir, settings);
    check_space(t, dir, settings);
    check_added(t, dir, settings);
    check_older(t, dir, settings, older);
cleanup:
    json_decref(settings);
    json_decref(older);
    return st;
}
