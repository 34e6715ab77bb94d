/*
 * Inside of a tokenizer, shared by tokenizer.c, tokenizer_json.c and encode.c only.
 */
#ifndef ATOM_TEXT_TOKENIZER_INNER_H
#define ATOM_TEXT_TOKENIZER_INNER_H

#include "atom/text/charsmap.h"
#include "atom/text/pattern.h"
#include "atom/text/tokenizer.h"
#include "atom/text/unigram.h"

#include <jansson.h>
#include <string.h>

/* A slot of the merge table: open addressing, the pair's rank is its place in `merges`. */
typedef struct text_pair_slot {
    uint64_t pair; /* a << 32 | b; TEXT_NO_PAIR: free */
    uint32_t rank;
} text_pair_slot;

static const uint64_t TEXT_NO_PAIR = UINT64_MAX;
static const uint32_t TEXT_NO_RANK = UINT32_MAX;
static const uint32_t TEXT_NO_ID = UINT32_MAX;

/* What a Unigram tokenizer does to a text before it is cut, in the file's order. */
typedef enum text_normal_kind {
    TEXT_NORMAL_NFC,
    TEXT_NORMAL_NFKC,
    TEXT_NORMAL_NFD,
    TEXT_NORMAL_NFKD,
    TEXT_NORMAL_NO_MARKS,
    TEXT_NORMAL_LOWER,
    TEXT_NORMAL_REPLACE,
    TEXT_NORMAL_CHARSMAP,
    TEXT_NORMAL_STRIP_LEFT,
    TEXT_NORMAL_STRIP_RIGHT,
    TEXT_NORMAL_RUNS_TO_METASPACE, /* two and more spaces */
    TEXT_NORMAL_RUNS_TO_SPACE,
} text_normal_kind;
enum { TEXT_NORMAL_STEPS_MAX = 8, TEXT_REPLACE_BYTES = 16 };

typedef struct text_normal_step {
    text_normal_kind kind;
    char from[TEXT_REPLACE_BYTES], as[TEXT_REPLACE_BYTES]; /* of a replacement */
} text_normal_step;

/* How text becomes pieces, for tokenizers of others. Zero and GPT-2's pattern: as GPT-2. */
typedef struct text_recipe {
    text_stages stages; /* none: metaspace */
    bool nfc;
    bool ignore_merges;
    /* Characters instead of bytes; a space stands for U+2581 in pieces and in text. Characters
     * without a token become bytes. */
    bool metaspace;
    /* The normalizer makes U+2581 of spaces, before added tokens of "normalized" are looked for. */
    bool replaces_spaces;
    bool prepend;         /* a space before the text */
    bool prepend_every;   /* ... and before each part between added tokens */
    bool prepend_missing; /* ... but not where there is one */
    bool hard_split;      /* pieces end before each space */
    bool drop_first;      /* the first token loses its spaces on the way back */
    bool unigram, fallback;
    bool words; /* white space parts a text, and is lost */
    text_normal_step normal[TEXT_NORMAL_STEPS_MAX];
    uint32_t normal_n;
    text_charsmap *charsmap; /* owned by the tokenizer */
} text_recipe;

/* An added token; its text is its piece. */
typedef struct text_added {
    uint32_t id;
    bool normalized; /* looked for in normalised text */
    bool skip;       /* special: found, but ordinary text in documents */
    uint8_t manner;  /* TEXT_TAKES_LEFT and the like */
    char *text;      /* owned */
    size_t bytes;
} text_added;

/* A table of ids by what they stand for: open addressing over ids; TEXT_NO_ID: free. */
typedef struct text_id_table {
    uint32_t *ids; /* [mask + 1] */
    uint32_t mask;
} text_id_table;

struct text_tokenizer {
    uint32_t vocab;
    uint32_t start, end;
    bool leads; /* start stands in front of every text */
    text_recipe recipe;
    char *source; /* of a tokenizer of others: its tokenizer.json, written back as it was */
    uint64_t source_bytes;
    text_added *added; /* longest first; none if all of them are special */
    uint32_t added_n;
    uint8_t added_first[256];  /* by first byte: 1 if one is looked for in text, 2 in normal text */
    text_id_table whole;       /* by piece; with ignore_merges or metaspace */
    uint8_t (*joins)[128 / 8]; /* [128] metaspace: may class b follow class a inside a token? */
    uint32_t byte_ids[256];    /* metaspace: of the byte tokens <0x00>.. */
    uint64_t *piece_ends; /* [vocab]: piece of id i is bytes[piece_ends[i-1] .. piece_ends[i]) */
    char *piece_bytes;
    uint8_t *special; /* [vocab]: 1 for end-of-text and other control tokens, 2 for added tokens
                         that are text */
    uint8_t *manners; /* [vocab] of added tokens; NULL: all 0 */
    text_unigram *unigram;
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

static inline uint32_t text_bytes_hash(const char *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u ^ n;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3u;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Id of the ordinary token with these bytes, or TEXT_NO_ID. Needs t->whole. */
static inline uint32_t text_whole_id(const text_tokenizer *t, const char *bytes, size_t n)
{
    for (uint32_t i = text_bytes_hash(bytes, n);; i++) {
        uint32_t id = t->whole.ids[i & t->whole.mask];
        if (id == TEXT_NO_ID)
            return TEXT_NO_ID;
        size_t piece_bytes;
        const char *piece = text_tokenizer_piece(t, id, &piece_bytes);
        if (piece_bytes == n && memcmp(piece, bytes, n) == 0)
            return id;
    }
}

/* Classes of characters for `joins`: ASCII is itself, all others are one. */
enum { TEXT_CLASS_OTHER = 0x7f };
static inline uint32_t text_class(uint8_t byte)
{
    return byte < 0x80 ? byte : TEXT_CLASS_OTHER;
}
static inline bool text_joins(const text_tokenizer *t, uint32_t a, uint32_t b)
{
    return t->joins[a][b / 8] >> b % 8 & 1;
}

/* The first added token in text[*at ..), the longest there, and its place; NULL and *at = bytes if
 * there is none. Special ones are passed over, and what they cover. */
const text_added *text_added_find(const text_tokenizer *t, bool normalized, const char *text,
                                  size_t bytes, size_t *at);

/* Fills t->whole, and t->joins of a metaspace tokenizer, from pieces and merges. */
ATOM_MUST atom_status text_tokenizer_index_pieces(text_tokenizer *t);

/* Reads normalizer, pre_tokenizer, post_processor, decoder and the switches of the model. *begin
 * and *finish are the names of the tokens that a template puts around a text, or NULL (borrowed
 * from root). name: of the file. On errors, too, out->charsmap is the caller's. */
ATOM_MUST atom_status text_steps_read(const json_t *root, const char *name, text_recipe *out,
                                      const char **begin, const char **finish);

/* Fills the merge table from t->merges; a pair that occurs twice has its later rank. */
ATOM_MUST atom_status text_tokenizer_index(text_tokenizer *t);

#endif
