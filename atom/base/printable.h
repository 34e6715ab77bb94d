/*
 * Text that somebody else may have written, made fit for a terminal: a file's key or a member's
 * words stand in messages, and control characters in them would be obeyed. Thread: any.
 */
#ifndef ATOM_BASE_PRINTABLE_H
#define ATOM_BASE_PRINTABLE_H

/* Puts '?' in the place of each control character (C0 but line breaks and tabs, DEL, and C1 in
 * UTF-8). */
void atom_make_printable(char *text);

#endif
