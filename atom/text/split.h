/*
 * The pre-tokenizer: text to pieces under a sequence of known patterns (pattern.h), with PCRE2 (JIT).
 */
#ifndef ATOM_TEXT_SPLIT_H
#define ATOM_TEXT_SPLIT_H

#include "atom/base/status.h"
#include "atom/text/pattern.h"

#include <stddef.h>

/* One per thread. */
typedef struct text_splitter text_splitter;
ATOM_MUST atom_status text_splitter_open(const text_stages *stages, text_splitter **out);
void text_splitter_close(text_splitter **s);

/* Starts on a text of valid UTF-8, which must stay where it is. */
void text_splitter_begin(text_splitter *s, const char *text, size_t bytes);
/* Next piece as text[*start, *end); *end == *start at the end. Pieces follow without gaps. */
ATOM_MUST atom_status text_splitter_next(text_splitter *s, size_t *start, size_t *end);

/*
 * The last place p in (0, bytes) where a text can be cut by the rule; 0 if there is none.
 */
size_t text_cut_last(text_cut rule, const char *text, size_t bytes);
/* The first such place at or after `from` (> 0); `bytes` if there is none. */
size_t text_cut_next(text_cut rule, const char *text, size_t bytes, size_t from);

#endif
