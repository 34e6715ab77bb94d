/*
 * Chat templates: how the messages of a chat become tokens, and which of them are answers.
 *
 * A template is Jinja (jinja/jinja.h): the model's own, executed, or one that atom has by name
 * (builtin.h). atom does not guess: for a model without a template the user has to name one.
 *
 * Names of special tokens in a template become their ids; what messages, tools and documents say
 * never does, whatever it holds. Text between two special tokens is encoded as one, as transformers
 * does with a rendered template. No token is put in that the template does not write.
 */
#ifndef ATOM_TEXT_TEMPLATE_H
#define ATOM_TEXT_TEMPLATE_H

#include "atom/base/status.h"
#include "atom/text/answers.h"
#include "atom/text/builtin.h"
#include "atom/text/chat.h"
#include "atom/text/keys.h"
#include "atom/text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* What the user asks for. */
typedef struct text_template_request {
    const char *name;         /* NULL or "auto": the model's own; else a name of builtin.h */
    const char *jinja;        /* the model's own, in place of what lies in tokenizer_dir */
    text_builtin_words words; /* of a template by name; with the model's own they are refused */
    const char *variables;    /* a JSON object (variables.h); NULL: none */
} text_template_request;

/* Immutable; any thread may render. Borrows the tokenizer. */
typedef struct text_template text_template;

/*
 * tokenizer_dir may be NULL. Opens also where the model has no template; rendering a chat then
 * fails. ATOM_E_USAGE for another name, words with the model's own, or variables that it does not
 * have; ATOM_E_FORMAT if a template
 * cannot be run, with its line and what to do, or if the tokenizer lacks a token of a named one.
 */
ATOM_MUST atom_status text_template_open(const text_tokenizer *t, const char *tokenizer_dir,
                                         const text_template_request *request, text_template **out);
void text_template_close(text_template **t);
/* "chatml" and so on; "own": the model's; "none". */
const char *text_template_name(const text_template *t);
/* In Jinja; NULL: there is none. */
const char *text_template_source(const text_template *t);

/* Writes it to dir/chat_template.jinja, with its variables set: with the data, so that a model that
 * is trained on them answers as it was taught. There must be one. */
ATOM_MUST atom_status text_template_save(const text_template *t, const char *dir);

/* Ids with a mark each: 1 for those of answers. Zero it first. */
typedef struct text_marked {
    text_ids ids;
    uint8_t *marks; /* [ids.n] */
    size_t marks_capacity;
    text_answers answers; /* scratch; counts answers */
    text_unseen unseen;   /* counts messages */
} text_marked;
void text_marked_fini(text_marked *m);
/* A mark for each id from `from` on. */
ATOM_MUST atom_status text_marked_set(text_marked *m, size_t from, bool counts);

/*
 * Appends a chat. ATOM_E_FORMAT says what the template refuses, without the place of the chat; out
 * is then of no use.
 */
ATOM_MUST atom_status text_template_render(const text_template *t, text_encoder *e,
                                           const text_conversation *chat, text_marked *out);
/* The same up to where an answer begins; no marks. */
ATOM_MUST atom_status text_template_prompt(const text_template *t, text_encoder *e,
                                           const text_conversation *chat, text_marked *out);
/* The token that ends an answer to a chat; the tokenizer's end where none does (then ends is false). */
ATOM_MUST atom_status text_template_stop(const text_template *t, text_encoder *e,
                                         const text_conversation *chat, uint32_t *stop, bool *ends);

#endif
