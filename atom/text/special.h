/*
 * Special tokens looked for in text: the control tokens of a tokenizer and its other added ones.
 *
 * Immutable once made; borrows the tokenizer.
 */
#ifndef ATOM_TEXT_SPECIAL_H
#define ATOM_TEXT_SPECIAL_H

#include "atom/text/tokenizer.h"

#include <stdbool.h>

static const uint32_t TEXT_NOT_SPECIAL = UINT32_MAX;

typedef struct text_specials {
    const text_tokenizer *tokenizer;
    uint32_t *ids;
    size_t n, capacity;
    bool begins[256]; /* does one begin with this byte? */
} text_specials;

ATOM_MUST atom_status text_specials_init(text_specials *s, const text_tokenizer *t);
void text_specials_fini(text_specials *s);
/* The longest one that text starts with, or TEXT_NOT_SPECIAL; *used: its bytes. */
uint32_t text_special_at(const text_specials *s, const char *text, size_t bytes, size_t *used);
/* Is there one of exactly this name? */
bool text_special_named(const text_specials *s, const char *name);

#endif
