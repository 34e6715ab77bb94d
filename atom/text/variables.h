/*
 * Variables of chat templates that somebody sets beside a chat: enable_thinking, date_string and
 * whatever else a template looks at; tools and documents for chats that bring none.
 *
 * A JSON object, as transformers' chat_template_kwargs. Names that a template does not have are
 * refused, since they would change nothing, and so are those that are set for every chat anyway
 * (messages, add_generation_prompt, the names of tokens), and null, which leaving out says better.
 */
#ifndef ATOM_TEXT_VARIABLES_H
#define ATOM_TEXT_VARIABLES_H

#include "atom/text/jinja/jinja.h"

/* ATOM_E_USAGE: it is no JSON object. *out: json_decref. */
ATOM_MUST atom_status text_variables_parse(const char *text, json_t **out);
/* variables may be NULL. st: of a refusal. */
ATOM_MUST atom_status text_variables_check(const json_t *variables, const text_jinja *t,
                                           atom_status st);
/* The template with them as what it takes where nothing else is said, in Jinja; atom_free. */
ATOM_MUST atom_status text_variables_settle(const json_t *variables, const char *source,
                                            char **out);

#endif
