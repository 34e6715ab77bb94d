/*
 * Tokenizers: text to token ids and back, on raw bytes.
 *
 * One object, four kinds: bytes (id = byte, end-of-text 256, vocabulary 257); byte-level BPE under
 * a known pattern (pattern.h; GPT-2: Radford et al. 2019, section 2.2; also Llama-3's, Qwen's,
 * SmolLM's); BPE of characters with metaspaces and byte fallback (Llama-2, Mistral); and Unigram
 * (unigram.h; T5, XLM-R, llm-jp), which may lose white space and unknown characters. All are
 * kept as tokenizer.json, the Hugging Face format. Ids, splits and merges equal those of the
 * `tokenizers` library. atom makes the first two kinds itself (GPT-2's pattern); a file with any
 * more than that is written back byte for byte.
 *
 * A document is ordinary text: "<|endoftext|>" inside it is encoded as those 13 characters and
 * never becomes the end-of-text token; no special token is ever read out of a text. Added tokens
 * that are not special are. decode(encode(x)) == x for any valid UTF-8 x, NUL bytes included, but:
 * with a normalizer it is NFC(x), and metaspaces come back as spaces.
 *
 * Ids are 0 .. vocab-1. A vocabulary read from a file may have holes; those ids decode to nothing.
 */
#ifndef ATOM_TEXT_TOKENIZER_H
#define ATOM_TEXT_TOKENIZER_H

#include "atom/base/status.h"
#include "atom/text/pattern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_END_OF_TEXT "<|endoftext|>"

enum {
    TEXT_BYTES_VOCAB = 257,  /* the bytes tokenizer, and the smallest bpe:N */
    TEXT_VOCAB_MAX = 1 << 24 /* ids above this are refused */
};

/* Immutable once made; may be read by any number of threads. */
typedef struct text_tokenizer text_tokenizer;

/* One merge: tokens a and b, next to each other, become token `made`. Earlier merges go first. */
typedef struct text_merge {
    uint32_t a, b, made;
} text_merge;

/* The bytes tokenizer. */
ATOM_MUST atom_status text_tokenizer_bytes(text_tokenizer **out);

/*
 * A BPE tokenizer from n merges as text_bpe_train makes them: ids 0..255 are the bytes in GPT-2's
 * order (text_byte_id), merge i makes token 256 + i, end-of-text is the last id.
 */
ATOM_MUST atom_status text_tokenizer_bpe(const text_merge *merges, uint32_t n,
                                         text_tokenizer **out);

/* Id of a byte in GPT-2's order: '!' is 0. The inverse of text_id_byte. */
uint32_t text_byte_id(uint8_t byte);
uint8_t text_id_byte(uint32_t id);

/*
 * Reads tokenizer.json. Errors: ATOM_E_FORMAT (not JSON, duplicate or missing keys, a merge of
 * unknown tokens, a missing byte, no end-of-text token), ATOM_E_UNSUPPORTED (a model, pre-tokenizer
 * or normalizer that atom does not have, by name). Messages start with the file's name.
 */
ATOM_MUST atom_status text_tokenizer_load(const char *path, text_tokenizer **out);
/* The same from memory; name stands for the file in messages. */
ATOM_MUST atom_status text_tokenizer_parse(const char *json, size_t bytes, const char *name,
                                           text_tokenizer **out);

/* Writes tokenizer.json whole or not at all. Load gives back an equal tokenizer. */
ATOM_MUST atom_status text_tokenizer_save(const text_tokenizer *t, const char *path);
/* Writes dir/tokenizer.json and dir/tokenizer_config.json, for a Hugging Face model directory. */
ATOM_MUST atom_status text_tokenizer_save_model(const text_tokenizer *t, const char *dir);

void text_tokenizer_close(text_tokenizer **t);

uint32_t text_tokenizer_vocab(const text_tokenizer *t); /* largest id + 1 */
/* The tokens around a document: `start` before it, `end` after it. Where both are the same (GPT-2:
 * end-of-text) it stands before the document only. */
uint32_t text_tokenizer_start(const text_tokenizer *t);
uint32_t text_tokenizer_end(const text_tokenizer *t);
/* Does the tokenizer put `start` in front of every text itself, as Llama's and Gemma's do? */
bool text_tokenizer_leads(const text_tokenizer *t);
/* Where long documents may be cut before encoding. */
text_cut text_tokenizer_cut(const text_tokenizer *t);
uint32_t text_tokenizer_merges(const text_tokenizer *t);
const char *text_tokenizer_kind(const text_tokenizer *t); /* "bytes", "bpe", "unigram" */
/* Bytes of one token, owned by t; length 0 for an id that is a hole or out of range. */
const char *text_tokenizer_piece(const text_tokenizer *t, uint32_t id, size_t *bytes);
/* True if a and b give the same ids for every text. */
/* Do the tokens that both have stand for the same bytes? */
bool text_tokenizer_agrees(const text_tokenizer *a, const text_tokenizer *b);
bool text_tokenizer_equal(const text_tokenizer *a, const text_tokenizer *b);

/* A growing list of ids. Zero it first; free with text_ids_fini. */
typedef struct text_ids {
    uint32_t *ids;
    size_t n, capacity;
} text_ids;
void text_ids_fini(text_ids *list);

/* Scratch for encoding: one per thread. Borrows t, which must outlive it. */
typedef struct text_encoder text_encoder;
ATOM_MUST atom_status text_encoder_open(const text_tokenizer *t, text_encoder **out);
void text_encoder_close(text_encoder **e);

/*
 * Appends the ids of one document (or of a piece between two safe cuts, split.h) to out. No special
 * tokens are added. ATOM_E_FORMAT if the text is not UTF-8: the message says "byte N", and
 * *bad_byte, if not NULL, is that offset. On any error out keeps its old length.
 */
ATOM_MUST atom_status text_encode(text_encoder *e, const char *text, size_t bytes, text_ids *out,
                                  size_t *bad_byte);

/* The same for text behind a special token: where a tokenizer puts a space before the first text
 * only, there is none. */
ATOM_MUST atom_status text_encode_behind(text_encoder *e, const char *text, size_t bytes,
                                         text_ids *out);

/* Of the texts of a Unigram model: how many characters became the unknown token, out of how many, and
 * the first such one. */
typedef struct text_unknown {
    uint64_t n, characters;
    uint32_t first; /* code point, if n > 0 */
} text_unknown;
void text_unknown_add(text_unknown *sum, const text_unknown *more);
/* Adds what e met since the last call. */
void text_encoder_unknown(text_encoder *e, text_unknown *sum);

/* Is it a control token or an added one, never found by merging? */
bool text_tokenizer_special(const text_tokenizer *t, uint32_t id);
bool text_tokenizer_control(const text_tokenizer *t, uint32_t id); /* a control token? */

/* How an added token is looked for in a text, as its file says. */
enum {
    TEXT_TAKES_LEFT = 1,  /* lstrip: white space before it belongs to it */
    TEXT_TAKES_RIGHT = 2, /* rstrip: white space behind it does */
    TEXT_LATE = 4,        /* normalized: only in what tokens without it leave */
    TEXT_CHANGED = 8,     /* ... and there in normalised text, which may be another one */
    TEXT_ALONE = 16       /* single_word: not beside a letter or digit */
};
uint32_t text_tokenizer_manner(const text_tokenizer *t, uint32_t id); /* of these; 0: none */

/*
 * The bytes of n ids in fresh memory (NUL added, not counted); free with atom_free. End-of-text is
 * written as its name if show_end, else skipped. Ids of unknown tokens are ATOM_E_FORMAT. A list
 * cut in the middle of a character gives bytes that are not UTF-8: see text_utf8_repair.
 */
ATOM_MUST atom_status text_decode(const text_tokenizer *t, const uint32_t *ids, size_t n,
                                  bool show_end, char **text, size_t *bytes);

#endif
