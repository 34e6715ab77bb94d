/*
 * Unicode normal forms (UAX 15), marks, cases, and the spaces of metaspace tokenizers.
 */
#ifndef ATOM_TEXT_NORMALIZE_H
#define ATOM_TEXT_NORMALIZE_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Grown as needed; zero it first. One per thread. */
typedef struct text_normal {
    char *text; /* the last result */
    size_t bytes, capacity;
    int32_t *points; /* scratch of utf8proc */
    size_t points_capacity;
} text_normal;
void text_normal_fini(text_normal *n);

/*
 * n->text becomes the NFC of a valid UTF-8 text. False in *changed: the text is NFC already and
 * n->text was not written. Errors: ATOM_E_RESOURCE.
 */
ATOM_MUST atom_status text_normal_nfc(text_normal *n, const char *text, size_t bytes,
                                      bool *changed);

typedef enum text_form { TEXT_NFC, TEXT_NFKC, TEXT_NFD, TEXT_NFKD } text_form;
/* n->text becomes that form of a valid UTF-8 text. */
ATOM_MUST atom_status text_normal_form(text_normal *n, text_form form, const char *text,
                                       size_t bytes);

/* Does valid UTF-8 begin with a combining mark? */
bool text_is_mark(const char *text, size_t bytes);
/* n->text becomes the text without its combining marks (general category M). */
ATOM_MUST atom_status text_normal_no_marks(text_normal *n, const char *text, size_t bytes);
/* ... in lower case, character by character: a final sigma is one like the others. */
ATOM_MUST atom_status text_normal_lower(text_normal *n, const char *text, size_t bytes);
/* ... with `as` for each `from`, which is not empty, from left to right. */
ATOM_MUST atom_status text_normal_replace(text_normal *n, const char *text, size_t bytes,
                                          const char *from, const char *as);

/* n->text gets more text behind it. */
ATOM_MUST atom_status text_normal_append(text_normal *n, const char *text, size_t bytes);
/* Runs of two and more plain spaces become `as`. */
ATOM_MUST atom_status text_normal_runs(text_normal *n, const char *text, size_t bytes,
                                       const char *as);
/* Bytes of the character of Unicode's White_Space that text starts with; 0: it is none. */
size_t text_space_at(const char *text, size_t bytes);
/* Takes such characters off the ends. */
void text_strip(const char **text, size_t *bytes, bool left, bool right);
/* Widens [*from, *to) by such characters beside it, to the left down to `floor`. */
void text_widen(const char *text, size_t bytes, size_t floor, bool left, bool right, size_t *from,
                size_t *to);

/*
 * n->text becomes the text with U+2581 as a space, after a space of its own if prepend; if missing,
 * only where the text does not start with one.
 */
ATOM_MUST atom_status text_normal_spaces(text_normal *n, const char *text, size_t bytes,
                                         bool prepend, bool missing);

#endif
