/*
 * Templates by name, for models that bring none: their source in Jinja.
 *
 *   chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n                       Qwen, SmolLM2
 *   llama3   <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
 *   mistral  [INST] USER [/INST] ASSISTANT</s>                        roles take turns
 *   plain    ### User:\nTEXT\n\n, ### Assistant:\nTEXT and the end-of-text token
 *
 * A chat begins with the tokenizer's start token. An answer is the text of a message of the
 * assistant and what ends it. No system message is put in where there is none. Tools, calls of them
 * and messages that are no text are refused when a chat has them.
 */
#ifndef ATOM_TEXT_BUILTIN_H
#define ATOM_TEXT_BUILTIN_H

#include "atom/text/chat.h"
#include "atom/text/special.h"

/* In place of a template's own words; NULL: as they are. "\n", "\t" and "\\" are read as such,
 * {start} and {end} are the tokenizer's tokens. */
typedef struct text_builtin_words {
    const char *prefix[TEXT_ROLES]; /* before the text of a message, by role */
    const char *suffix;             /* behind a message of the user, the system or a tool */
    const char *answer_end;         /* behind a message of the assistant; counts as its part */
} text_builtin_words;
bool text_builtin_changed(const text_builtin_words *w); /* is any of them given? */

/* ATOM_E_USAGE: no such name; ATOM_E_FORMAT: the tokenizer lacks a token of it. source:
 * atom_free. */
ATOM_MUST atom_status text_builtin_source(const char *name, const text_specials *specials,
                                          const text_builtin_words *words, char **source);

#endif
