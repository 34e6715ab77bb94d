/*
 * The pre-tokenizers' patterns that atom knows, sequences of them, and where a text can be cut under
 * each. In a sequence every pattern sees the pieces of the one before, each as a text of its own.
 *
 * A pattern is text of the `tokenizers` library's regular expressions. text_pattern_spell turns one
 * into PCRE2's: \s and \S are written out, because PCRE2's \s also takes U+180E.
 */
#ifndef ATOM_TEXT_PATTERN_H
#define ATOM_TEXT_PATTERN_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a text may be cut so that its parts, encoded each by itself, give the ids of the whole. */
typedef enum text_cut {
    TEXT_CUT_BEFORE_NEWLINE, /* before a newline that a visible ASCII character follows, no digit */
    TEXT_CUT_AFTER_NEWLINE,  /* after a newline that a visible ASCII character follows */
    TEXT_CUT_AS_NEXT,        /* as the next pattern of the sequence says: a match of this one has no
                                newline and no visible ASCII character but digits, and what stands
                                around it does not matter */
    TEXT_CUT_NONE,
} text_cut;

typedef struct text_pattern {
    const char *name;  /* "gpt-2", "llama-bpe", "qwen2", ...: llama.cpp's names; NULL: none */
    const char *regex; /* as in tokenizer.json, unescaped */
    const char *runs;  /* what is run instead: the same matches in linear time; NULL: regex */
    text_cut cut;
    bool gaps; /* does not cover every text: what stands between matches is a piece, too */
} text_pattern;

const text_pattern *text_pattern_gpt2(void);
/* What a Digits step does: numbers, or each digit, by themselves. */
const text_pattern *text_pattern_digits(bool single);
/* The pattern with this regex, or NULL if atom does not know it. */
const text_pattern *text_pattern_find(const char *regex);

enum { TEXT_STAGES_MAX = 8 };
typedef struct text_stages {
    const text_pattern *at[TEXT_STAGES_MAX];
    uint32_t n;
} text_stages;
/* llama.cpp's name, or NULL. */
const char *text_stages_name(const text_stages *s);
/* Is there a sequence of this name? */
bool text_stages_find(const char *name, text_stages *out);
text_cut text_stages_cut(const text_stages *s);

/* The pattern for PCRE2, in fresh memory; NULL: no memory. Free with atom_free. */
ATOM_MUST char *text_pattern_spell(const text_pattern *p);

#endif
