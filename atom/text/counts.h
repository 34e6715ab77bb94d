/*
 * What `data prepare` says about the data it made: dataset.json beside the shards, and warnings.
 */
#ifndef ATOM_TEXT_COUNTS_H
#define ATOM_TEXT_COUNTS_H

#include "atom/text/input.h"
#include "atom/text/prepare.h"

/* dir/dataset.json: what is in the shards, and how it came there. */
ATOM_MUST atom_status text_counts_write(const text_prepare_report *r, const text_prepare_options *o,
                                        const text_tokenizer *t, const char *dir);
/* What somebody should know who did not ask for it. */
void text_counts_say(const text_prepare_report *r, const text_prepare_options *o);
/* The same of how it was split, once that is known. */
void text_counts_say_split(const text_prepare_report *r, const text_prepare_options *o);

/* Adds what an item counted; its key, if it is the first. */
void text_counts_unseen(text_unseen *sum, const text_unseen *more);
/* Adds n messages of a line that the template shows nothing of. */
void text_counts_hidden(text_empty *e, uint64_t n, const char *name, uint64_t line);
/* Adds the empty texts of a block that was walked. */
void text_counts_empty(text_empty *e, const text_block *b);
/* Adds the block's file, if it is a .txt that looks like JSON lines. */
void text_counts_objects(text_empty *e, const text_block *b);
/* Those of its files that were empty, in place of what is in e. */
void text_counts_empty_files(text_empty *e, const text_input *in);

#endif
