/*
 * A template's source as tokens: text, and the words and signs inside of its tags. White space
 * around tags is removed here, with trim_blocks and lstrip_blocks on, as transformers has them.
 *
 * Tokens live in the heap and point into the source there. Errors: heap.h, with the line.
 */
#ifndef ATOM_TEXT_JINJA_LEX_H
#define ATOM_TEXT_JINJA_LEX_H

#include "atom/text/jinja/value.h"

typedef enum jinja_token_kind {
    JINJA_T_END,
    JINJA_T_DATA,        /* text outside of tags */
    JINJA_T_BLOCK_BEGIN, /* {% */
    JINJA_T_BLOCK_END,
    JINJA_T_PRINT_BEGIN, /* {{ */
    JINJA_T_PRINT_END,
    JINJA_T_NAME,
    JINJA_T_STRING, /* its quotes and escapes undone */
    JINJA_T_INT,
    JINJA_T_REAL,
    JINJA_T_SIGN, /* at: the sign itself, one or two characters and a 0 */
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    uint32_t line;
    const char *at; /* names and signs end with a 0 */
    size_t n;
    int64_t i;
    double r;
} jinja_token;

typedef struct jinja_tokens {
    jinja_token *items; /* the last one is JINJA_T_END */
    size_t n, capacity;
} jinja_tokens;

/* source: valid UTF-8. */
ATOM_MUST atom_status jinja_lex(jinja_heap *h, const char *source, size_t bytes, jinja_tokens *out);

#endif
