/*
 * The numbers in the names of a split's shards. fineweb_train_000003.bin is shard 3 of the series fineweb_train;
 * a series may begin with any number (llm.c's training shards begin with 1) and goes on without a gap. Names
 * without a number, such as train.bin or train_wiki.bin, belong to no series.
 *
 * Thread: any. Errors: ATOM_E_FORMAT names the files.
 */
#ifndef ATOM_TEXT_NAMES_H
#define ATOM_TEXT_NAMES_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_numbered {
    const char *name; /* of the file, without its directory; borrowed */
    size_t series;    /* that many bytes of the name are its series'; 0: it has none */
    uint64_t number;
} text_numbered;

/* name: one that text_is_shard accepts. */
text_numbered text_shard_number(const char *name);
/* Are both of no series, or of the same one? */
bool text_same_series(const text_numbered *a, const text_numbered *b);
/* Sorts the shards of a split, and refuses a number that is missing between two others, or there twice. */
ATOM_MUST atom_status text_numbers_check(const char *dir, text_numbered *shards, size_t n);

#endif
