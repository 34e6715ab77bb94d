/*
 * Inside of a tokenizer, shared by tokenizer.c, tokenizer_json.c and encode.c only.
 */
#ifndef ATOM_TEXT_TOKENIZER_INNER_H
#define ATOM_TEXT_TOKENIZER_INNER_H

#include "atom/text/tokenizer.h"

/* A slot of the merge table: open addressing, the pair's rank is its place in `merges`. */
typedef struct text_pair_slot {
    uint64_t pair; /* a << 32 | b; TEXT_NO_PAIR: free */
    uint32_t rank;
} text_pair_slot;

static const uint64_t TEXT_NO_PAIR = UINT64_MAX;
static const uint32_t TEXT_NO_RANK = UINT32_MAX;
static const uint32_t TEXT_NO_ID = UINT32_MAX;

struct text_tokenizer {
    uint32_t vocab;
    uint32_t end;
    uint32_t byte_ids[256];
    uint64_t *piece_ends; /* [vocab]: piece of id i is bytes[piece_ends[i-1] .. piece_ends[i]) */
    char *piece_bytes;
    uint8_t *special; /* [vocab]: 1 for end-of-text and other control tokens */
    text_merge *merges;
    uint32_t merges_n;
    text_pair_slot *slots; /* [slots_mask + 1] */
    uint32_t slots_mask;
    bool bytes_only; /* no merges, id = byte */
};

static inline uint64_t text_pair(uint32_t a, uint32_t b)
{
    return (uint64_t)a << 32 | b;
}

static inline uint32_t text_pair_hash(uint64_t pair)
{
    return (uint32_t)((pair * 0x9e3779b97f4a7c15u) >> 32);
}

/* Rank of the merge of a and b, or TEXT_NO_RANK. */
static inline uint32_t text_pair_rank(const text_tokenizer *t, uint32_t a, uint32_t b)
{
    uint64_t pair = text_pair(a, b);
    for (uint32_t i = text_pair_hash(pair);; i++) {
        const text_pair_slot *slot = &t->slots[i & t->slots_mask];
        if (slot->pair == pair)
            return slot->rank;
        if (slot->pair == TEXT_NO_PAIR)
            return TEXT_NO_RANK;
    }
}

/* Fills the merge table from t->merges; a pair that occurs twice has its later rank. */
ATOM_MUST atom_status text_tokenizer_index(text_tokenizer *t);

#endif
