/*
 * The word table's inside, shared by words.c and bpe_train.c.
 */
#ifndef ATOM_TEXT_WORDS_INNER_H
#define ATOM_TEXT_WORDS_INNER_H

#include "atom/text/bpe_train.h"

/* A slot of the table: open addressing; bytes == 0 means free (there is no empty word). */
typedef struct text_word {
    uint64_t start; /* in text_words.arena */
    uint32_t bytes;
    uint32_t hash;
    uint64_t count;
} text_word;

struct text_words {
    struct text_splitter *splitter; /* opened by the first add */
    text_word *slots;               /* [slots_n], a power of two */
    size_t slots_n, used;
    char *arena;
    size_t arena_n, arena_capacity;
};

#endif
