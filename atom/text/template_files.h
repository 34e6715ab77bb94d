/*
 * The files beside a tokenizer that are for chats: the model's own template, and the names of its
 * special tokens.
 *
 * Source: transformers' PreTrainedTokenizerBase (chat_template.jinja with
 * additional_chat_templates/tool_use.jinja, chat_template.json, tokenizer_config.json,
 * special_tokens_map.json).
 */
#ifndef ATOM_TEXT_TEMPLATE_FILES_H
#define ATOM_TEXT_TEMPLATE_FILES_H

#include "atom/base/status.h"

#include <jansson.h>

typedef struct text_template_files {
    char *source;     /* of the template, owned; NULL: there is none */
    char *with_tools; /* of the one named tool_use, owned; NULL: the same */
    char *where;      /* the file that source is from, owned */
    json_t *names;    /* {"bos_token": "<s>", ...}; NULL: no file says them */
} text_template_files;
void text_template_files_fini(text_template_files *b);

/* Makes one template of the two: source with with_tools where a chat has tools, which then is NULL.
 * */
ATOM_MUST atom_status text_template_files_join(text_template_files *b);

/* Zero it first. Files that are not there are passed over. ATOM_E_FORMAT: one is not what it should
 * be, by its name. */
ATOM_MUST atom_status text_template_files_read(const char *dir, text_template_files *out);

#endif
