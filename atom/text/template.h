/*
 * Chat templates: how the messages of a chat become tokens, and which of them are answers.
 *
 *   chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n                       Qwen, SmolLM2
 *   llama3   <|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>
 *   mistral  [INST] USER [/INST] ASSISTANT</s>                        roles take turns
 *   plain    ### User:\nTEXT\n\n, ### Assistant:\nTEXT and the end-of-text token
 *
 * A chat stands behind the tokenizer's start token, as every document does. Names of special tokens
 * in a template become their ids; the text of messages never does, whatever it holds. Text between
 * two special tokens is encoded as one, as transformers does with a rendered template. No system
 * message is put in where there is none.
 *
 * An answer is a message of the assistant and the token that ends it, as Axolotl and others count.
 */
#ifndef ATOM_TEXT_TEMPLATE_H
#define ATOM_TEXT_TEMPLATE_H

#include "atom/base/status.h"
#include "atom/text/chat.h"
#include "atom/text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* What the user asks for. NULL strings: the template's own. "\n", "\t" and "\\" are read as such,
 * {start} and {end} are the tokenizer's tokens. */
typedef struct text_template_request {
    const char *name;               /* NULL or "auto": by the tokenizer */
    const char *prefix[TEXT_ROLES]; /* before the text of a message, by role */
    const char *suffix;             /* behind a message of the user, the system or a tool */
    const char *jinja; /* with auto: the chat_template to recognise, in place of tokenizer_dir's */
    const char *answer_end; /* behind a message of the assistant; counts as its part */
} text_template_request;

/* Immutable; any thread may render. Borrows the tokenizer. */
typedef struct text_template text_template;

/*
 * auto: by words of the chat_template in chat_template.jinja or tokenizer_config.json of
 * tokenizer_dir (may be NULL), else chatml, llama3 or mistral if the tokenizer has their tokens,
 * else plain. ATOM_E_USAGE for another name; ATOM_E_FORMAT if the tokenizer lacks a token of the
 * template.
 */
ATOM_MUST atom_status text_template_open(const text_tokenizer *t, const char *tokenizer_dir,
                                         const text_template_request *request, text_template **out);
void text_template_close(text_template **t);
const char *text_template_name(const text_template *t); /* the one that was chosen */

/* Ids with a mark each: 1 for those of answers. Zero it first. */
typedef struct text_marked {
    text_ids ids;
    uint8_t *marks; /* [ids.n] */
    size_t marks_capacity;
    char *run; /* scratch */
    size_t run_capacity;
} text_marked;
void text_marked_fini(text_marked *m);

/*
 * Appends a chat, without the start token. ATOM_E_FORMAT says what is wrong with the order of the
 * messages, without the place; out is then of no use.
 */
ATOM_MUST atom_status text_template_render(const text_template *t, text_encoder *e,
                                           const text_message *messages, size_t n,
                                           text_marked *out);

#endif
