/*
 * Unigram models (Kudo 2018; SentencePiece): the cut of a text into tokens whose scores sum highest.
 *
 * Scores, ties, unknown characters and byte fallback are those of the `tokenizers` library, but for
 * control tokens, which no text ever makes. A space stands for U+2581, as in pieces.
 */
#ifndef ATOM_TEXT_UNIGRAM_H
#define ATOM_TEXT_UNIGRAM_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t;

/* Immutable once made; may be read by any number of threads. */
typedef struct text_unigram text_unigram;

/* Reads "unk_id" and the scores of "vocab" of a model: name is the file's. *vocab is a fresh object of
 * ids by piece. ATOM_E_FORMAT: an entry is no pair of a text and a number. */
ATOM_MUST atom_status text_unigram_read(const struct json_t *model, const char *name,
                                        struct json_t **vocab, text_unigram **out);
/* Adds a token by its text; byte: the byte that it stands for, or -1. Of two equal ones the later
 * counts. */
ATOM_MUST atom_status text_unigram_add(text_unigram *u, const char *text, size_t bytes, uint32_t id,
                                       int byte);
void text_unigram_close(text_unigram **u);

/* Scratch of one thread; zero it first. */
typedef struct text_unigram_scratch {
    struct text_unigram_node *nodes;
    size_t n;
    size_t unknown, first; /* of the last text: characters that became the unknown token, and where
                              the first of them is */
} text_unigram_scratch;
void text_unigram_scratch_fini(text_unigram_scratch *s);

/* The ids of valid UTF-8; ids has room for `bytes`. fallback: unknown characters become bytes. */
ATOM_MUST atom_status text_unigram_encode(const text_unigram *u, text_unigram_scratch *s,
                                          bool fallback, const char *text, size_t bytes,
                                          uint32_t *ids, uint32_t *n);

#endif
