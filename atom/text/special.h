/*
 * Special tokens looked for in text: the control tokens of a tokenizer and its other added ones,
 * and the white space around them that belongs to them.
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
    bool late;        /* is one looked for only in what others leave? */
} text_specials;

ATOM_MUST atom_status text_specials_init(text_specials *s, const text_tokenizer *t);
void text_specials_fini(text_specials *s);
/* The one that text starts with, or TEXT_NOT_SPECIAL; *used: its bytes. The longest one; but one that
 * is normalized only where no other one begins before its end. */
uint32_t text_special_at(const text_specials *s, const char *text, size_t bytes, size_t *used);
/* What a token takes of the text: [*from, *to) is its name, and becomes that and white space, from
 * `floor` on, where the token before ended. ATOM_E_FORMAT if atom cannot tell, as `tokenizers` does,
 * whether the token stands there. */
ATOM_MUST atom_status text_special_take(const text_specials *s, uint32_t id, const char *text,
                                        size_t bytes, size_t floor, size_t *from, size_t *to);
/* Is there one of exactly this name? */
bool text_special_named(const text_specials *s, const char *name);

#endif
