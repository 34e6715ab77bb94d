/*
 * What lies beside a tokenizer for its chats: the model's own template, and the names of its special
 * tokens.
 *
 * Source: transformers' PreTrainedTokenizerBase (chat_template.jinja, chat_template.json,
 * tokenizer_config.json, special_tokens_map.json).
 */
#ifndef ATOM_TEXT_BESIDE_H
#define ATOM_TEXT_BESIDE_H

#include "atom/base/status.h"

#include <jansson.h>

typedef struct text_beside {
    char *source;     /* of the template, owned; NULL: there is none */
    char *with_tools; /* of the one named tool_use, owned; NULL: the same */
    char *where;      /* the file that source is from, owned */
    json_t *names;    /* {"bos_token": "<s>", ...}; NULL: no file says them */
} text_beside;
void text_beside_fini(text_beside *b);

/* Zero it first. Files that are not there are passed over. ATOM_E_FORMAT: one is not what it should
 * be, by its name. */
ATOM_MUST atom_status text_beside_read(const char *dir, text_beside *out);

#endif
