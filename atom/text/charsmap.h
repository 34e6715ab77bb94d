/*
 * SentencePiece's precompiled normalisation: what characters become, as a double-array trie.
 *
 * Applied as the `tokenizers` library does: to a grapheme of fewer than six bytes as a whole by the
 * shortest beginning of it that the trie has, else to each of its characters.
 */
#ifndef ATOM_TEXT_CHARSMAP_H
#define ATOM_TEXT_CHARSMAP_H

#include "atom/text/normalize.h"

/* Immutable once made. */
typedef struct text_charsmap text_charsmap;

/* From base64. ATOM_E_FORMAT: it is cut off, or no such map; the message starts with name. */
ATOM_MUST atom_status text_charsmap_read(const char *base64, const char *name, text_charsmap **out);
void text_charsmap_close(text_charsmap **m);
/* n->text becomes the map of a valid UTF-8 text. */
ATOM_MUST atom_status text_charsmap_apply(const text_charsmap *m, text_normal *n, const char *text,
                                          size_t bytes);

#endif
