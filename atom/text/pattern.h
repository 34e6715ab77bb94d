/*
 * The pre-tokenizers' patterns that atom knows, and where a text can be cut under each.
 *
 * A pattern is text of the `tokenizers` library's regular expressions. text_pattern_spell turns one
 * into PCRE2's: \s and \S are written out, because PCRE2's \s also takes U+180E.
 */
#ifndef ATOM_TEXT_PATTERN_H
#define ATOM_TEXT_PATTERN_H

#include "atom/base/status.h"

#include <stddef.h>

/* Where a text may be cut so that its parts, encoded each by itself, give the ids of the whole. */
typedef enum text_cut {
    TEXT_CUT_BEFORE_NEWLINE, /* before a newline that a visible ASCII character follows */
    TEXT_CUT_AFTER_NEWLINE,  /* after such a newline */
    TEXT_CUT_NONE,
} text_cut;

typedef struct text_pattern {
    const char *name;  /* "gpt-2", "llama-bpe", "qwen2", ...: llama.cpp's names; "": none */
    const char *regex; /* as in tokenizer.json, unescaped */
    text_cut cut;
} text_pattern;

extern const text_pattern text_patterns[];
const text_pattern *text_pattern_gpt2(void);
/* The pattern with this regex, or NULL if atom does not know it. */
const text_pattern *text_pattern_find(const char *regex);

/* The pattern for PCRE2, in fresh memory; NULL: no memory. Free with atom_free. */
ATOM_MUST char *text_pattern_spell(const text_pattern *p);

#endif
