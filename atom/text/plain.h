/*
 * Plain texts, and the names of control tokens inside them, such as "<|endoftext|>" written out.
 * The caller decides whether these stay ordinary text or become the tokens.
 */
#ifndef ATOM_TEXT_PLAIN_H
#define ATOM_TEXT_PLAIN_H

#include "atom/text/special.h"

typedef enum text_special_rule {
    TEXT_SPECIAL_BYTES, /* text like any other */
    TEXT_SPECIAL_IDS,   /* the tokens, as in transformers and llama.cpp */
} text_special_rule;
const char *text_special_rule_name(text_special_rule rule); /* "bytes", "ids" */

/* Names of control tokens in texts so far. */
typedef struct text_named {
    uint64_t n;
    char first[64];
} text_named;

/* Appends the ids of a text, or of a piece of one between safe cuts. Errors: text_encode's. */
ATOM_MUST atom_status text_plain_encode(const text_specials *s, text_special_rule rule,
                                        text_encoder *e, const char *text, size_t bytes,
                                        text_ids *out, text_named *named);

#endif
