/*
 * Training of byte-level BPE (Sennrich et al. 2016, algorithm 1, on bytes; Radford et al. 2019).
 *
 * Words (pieces of GPT-2's pre-tokenizer) are counted in a table; merges are then found with pair
 * counts that are kept up to date and a heap. The most frequent pair is merged first, ties go to
 * the smallest (a, b). The result depends on the counts only: not on order, threads or chunks. One
 * difference to other trainers: a word longer than TEXT_WORD_BYTES_MAX is counted in parts.
 */
#ifndef ATOM_TEXT_BPE_TRAIN_H
#define ATOM_TEXT_BPE_TRAIN_H

#include "atom/base/status.h"
#include "atom/text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

enum { TEXT_WORD_BYTES_MAX = 1024 };

/* A table of words and how often each occurred. One thread at a time. */
typedef struct text_words text_words;
ATOM_MUST atom_status text_words_open(text_words **out);
void text_words_close(text_words **w);
/* Counts the words of a document or of a piece between safe cuts (split.h). Valid UTF-8 only, else
 * ATOM_E_FORMAT with the offset in the message and in *bad_byte (may be NULL). */
ATOM_MUST atom_status text_words_add(text_words *w, const char *text, size_t bytes,
                                     size_t *bad_byte);
/* Adds all of from's counts to w. */
ATOM_MUST atom_status text_words_merge(text_words *w, const text_words *from);

/* done and total count merges. */
typedef void (*text_train_progress)(void *ctx, uint32_t done, uint32_t total);

/*
 * Trains until the vocabulary (256 bytes + merged tokens + end-of-text) has `vocab` entries, or
 * until no pair is left: then the tokenizer is smaller, which text_tokenizer_vocab tells. progress
 * may be NULL. Errors: ATOM_E_USAGE if vocab < 257 or > TEXT_VOCAB_MAX; ATOM_E_RESOURCE.
 */
ATOM_MUST atom_status text_bpe_train(const text_words *w, uint32_t vocab,
                                     text_train_progress progress, void *ctx, text_tokenizer **out);

#endif
