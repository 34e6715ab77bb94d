/*
 * UTF-8: checking, and making bytes fit to print. RFC 3629: no surrogates, no overlong forms,
 * nothing above U+10FFFF.
 */
#ifndef ATOM_TEXT_UTF8_H
#define ATOM_TEXT_UTF8_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Offset of the first byte of the first wrong sequence; `bytes` if all is well. */
size_t text_utf8_check(const char *text, size_t bytes);

/* Like check, but a sequence cut off by the end of the text is not wrong: returns its offset in
 * *cut (else *cut = bytes). For text that arrives in blocks. */
size_t text_utf8_check_part(const char *text, size_t bytes, size_t *cut);

/* How many characters, and the one that text starts with. Valid UTF-8. */
size_t text_utf8_characters(const char *text, size_t bytes);
uint32_t text_utf8_first(const char *text, size_t bytes);

/* Offset of character number `chars` (from 0) or `bytes` if there are not so many.
 * Valid text only. */
size_t text_utf8_offset(const char *text, size_t bytes, size_t chars);

/* Bytes of the white space that text starts with, as Python's str.isspace has it; 0: none. */
size_t text_utf8_blank(const char *text, size_t bytes);
/* Takes white space off the ends, as Python's str.strip. */
void text_utf8_trim(const char **text, size_t *bytes, bool left, bool right);

/*
 * A copy in which each wrong part is U+FFFD, one per maximal prefix of a character (as Python, Rust
 * and the WHATWG do). NUL added, not counted. Free with atom_free.
 */
ATOM_MUST atom_status text_utf8_repair(const char *text, size_t bytes, char **out,
                                       size_t *out_bytes);

#endif
