/*
 * Makes text that somebody else may have written safe for a terminal: messages contain keys of
 * files and words of members, and a terminal would obey control characters in them. Thread: any.
 */
#ifndef ATOM_BASE_PRINTABLE_H
#define ATOM_BASE_PRINTABLE_H

/* Puts '?' in the place of each control character (C0 but line breaks and tabs, DEL, and C1 in
 * UTF-8). */
void atom_make_printable(char *text);

#endif
