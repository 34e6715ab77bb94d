/*
 * Owns the comparison of a tokenizer with the settings beside it. One idea: transformers lets tokenizer_config.json change
 * what tokenizer.json says, and atom follows tokenizer.json alone, so where they differ the model may have learned other
 * ids, and somebody should hear. Refuses nothing.
 */
#include "atom/text/claims.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SETTINGS_BYTES_MAX = 16 << 20 };

#define MAKE_EQUAL                                                                                 \
    "atom follows tokenizer.json, transformers may not; this makes them equal: python3 -c \"from " \
    "transformers import AutoTokenizer as T; T.from_pretrained('%s').save_pretrained('%s')\""

static void check_start(const text_tokenizer *t, const char *dir, const json_t *settings)
{
    const json_t *says = json_object_get(settings, "add_bos_token");
    if (!json_is_boolean(says) || json_is_true(says) == text_tokenizer_leads(t))
        return;
    atom_log(
        ATOM_LOG_WARN,
        "%s/tokenizer_config.json has add_bos_token %s, but tokenizer.json puts %s in front of "
        "a text; " MAKE_EQUAL,
        dir, json_is_true(says) ? "true" : "false",
        json_is_true(says) ? "no token" : "a start token", dir, dir);
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

/* The first that is not there is enough. */
static void check_added(const text_tokenizer *t, const char *dir, const json_t *settings)
{
    json_t *added = json_object_get(settings, "added_tokens_decoder"), *value;
    const char *key;
    json_object_foreach(added, key, value)
    {
        const char *content = json_string_value(json_object_get(value, "content"));
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        if (!content || *end || (id < TEXT_VOCAB_MAX && has_added(t, (uint32_t)id, content)))
            continue;
        atom_log(ATOM_LOG_WARN,
                 "%s/tokenizer_config.json has the added token \"%.40s\" with the id %.20s, which "
                 "tokenizer.json has not, so its name is ordinary text here; " MAKE_EQUAL,
                 dir, content, key, dir, dir);
        return;
    }
}

atom_status text_claims_check(const text_tokenizer *t, const char *dir)
{
    char *path = atom_path_join(dir, "tokenizer_config.json"), *text = NULL;
    uint64_t bytes = 0;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    if (path && atom_path_exists(path))
        st = atom_file_read(path, SETTINGS_BYTES_MAX, &text, &bytes);
    /* one that is no JSON is refused where its chat template is looked for */
    json_t *settings = text ? json_loadb(text, (size_t)bytes, JSON_DECODE_INT_AS_REAL, NULL) : NULL;
    check_start(t, dir, settings);
    check_added(t, dir, settings);
    json_decref(settings);
    atom_free(text);
    atom_free(path);
    return st;
}
