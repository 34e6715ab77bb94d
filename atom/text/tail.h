/*
 * Validation data from the end of the token stream, for inputs of few documents.
 */
#ifndef ATOM_TEXT_TAIL_H
#define ATOM_TEXT_TAIL_H

#include "atom/base/status.h"
#include "atom/text/prepare.h"
#include "atom/text/tokenizer.h"

/*
 * Moves about `fraction` of the tokens of dir's train shards to val shards. The cut is the first
 * good place after the exact one: a document's start, else before a token that starts with a
 * newline, else before one that starts a character. Val starts with an end-of-text token. Updates
 * the counts; a document that is cut counts in both.
 */
ATOM_MUST atom_status text_tail_split(const char *dir, const text_tokenizer *t, double fraction,
                                      text_part_counts *train, text_part_counts *val);

#endif
