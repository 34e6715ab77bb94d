/*
 * Documents into sequences of one length, so that none which fits into a sequence is cut.
 *
 * A packer writes one split of a data set. With length 0 documents are written as they come.
 *
 * Otherwise: training reads windows of `length` tokens at fixed places (dataset.h). A packer
 * fills such windows with whole documents (best fit) and pads them with the tokenizer's start token,
 * which is never learned there. A longer document is cut every `length` tokens; its parts
 * follow each other, and whole documents fill up the last one. At the end stands one more token, the last
 * window's last target. The order of documents changes, by nothing but their lengths and their order.
 */
#ifndef ATOM_TEXT_PACKER_H
#define ATOM_TEXT_PACKER_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_packed {
    uint64_t cut;     /* documents longer than a sequence */
    uint64_t padding; /* tokens */
    uint64_t targets; /* tokens that count */
    uint64_t tokens;  /* all, with the padding */
    uint32_t shards;
} text_packed;

typedef struct text_packer text_packer;
typedef struct text_packer_config {
    const char *dir, *split; /* of the shards (shard.h) */
    uint32_t vocab, length;
    uint32_t start; /* the tokenizer's */
    /* That token also says that a text ends, so where a text is followed by padding, the first token
     * of that is learned. */
    bool start_ends;
} text_packer_config;
ATOM_MUST atom_status text_packer_open(const text_packer_config *config, text_packer **out);
void text_packer_close(text_packer **p);

/* What is put next belongs to a new document, a chat or a text. */
ATOM_MUST atom_status text_packer_begin(text_packer *p, bool chat);
/* Ids of the document that began last; marks [n] of a chat that count as targets, NULL: all count. */
ATOM_MUST atom_status text_packer_put(text_packer *p, const uint32_t *ids, const uint8_t *marks,
                                      size_t n);
/* Writes what is left, and finishes the shards. Nothing may be put afterwards. */
ATOM_MUST atom_status text_packer_end(text_packer *p);
text_packed text_packer_counts(const text_packer *p);

#endif
