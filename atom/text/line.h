/*
 * What stands beside a text or a chat in its line. Inner header of atom/text.
 */
#ifndef ATOM_TEXT_LINE_H
#define ATOM_TEXT_LINE_H

#include "atom/text/chat.h"

/* Is the key there, and not null? Tables have nulls where other rows have values. */
bool text_line_has(const json_t *root, const char *key);

/* Refuses preferences, whatever the format. Errors: those of text_fail_line. */
ATOM_MUST atom_status text_line_check(const json_t *root, const char *name, uint64_t line);
/* Refuses pictures and sounds beside a text. */
ATOM_MUST atom_status text_line_check_media(const json_t *root, const char *name, uint64_t line);
/* Refuses these, and parts of a chat under keys that are not read in this format. */
ATOM_MUST atom_status text_line_check_chat(const json_t *root, text_format format, const char *name,
                                           uint64_t line);
/* Is it a key that chats of this format are made of? */
bool text_line_reads(const char *key, text_format format);

#endif
