/*
 * One file of tokens in llm.c's format, little-endian:
 *
 *   int32 [256]  header: [0] magic, [1] version, [2] token count, [3] and [4] a hash, the rest 0
 *   tokens       uint16 (magic 20240520, version 1) or uint32 (magic 20240801, version 7)
 *
 * uint32 is used when the vocabulary has more than 65,536 ids. The size must be exact. The hash (FNV-1a
 * of the tokens' bytes, low word first) is atom's own and tells data sets apart that are called alike;
 * llm.c reads nothing behind the count, and its files have 0 there, as those of older atoms do.
 *
 * nanoGPT's files are read, too: exactly "train.bin" or "val.bin", uint16 without a header. A file
 * of that name that begins as one of llm.c's is one of llm.c's: as uint16 it would begin with token
 * 55,432, which GPT-2 does not have.
 */
#ifndef ATOM_TEXT_SHARD_H
#define ATOM_TEXT_SHARD_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TEXT_SHARD_HEADER_BYTES = 1024,
    TEXT_SHARD_MAGIC_U16 = 20240520,
    TEXT_SHARD_VERSION_U16 = 1,
    TEXT_SHARD_MAGIC_U32 = 20240801,
    TEXT_SHARD_VERSION_U32 = 7,
    TEXT_SHARD_TOKENS_MAX = 100000000
};

typedef struct text_shard_info {
    uint64_t tokens;
    uint32_t token_bytes;  /* 2 or 4 */
    uint32_t header_bytes; /* before the first token; 0: nanoGPT's */
    uint64_t contents;     /* hash of the tokens, as the header says; 0: it does not */
} text_shard_info;

/* Is this the start of a shard? For tools that look at a file's first bytes. */
bool text_shard_is(const void *head, size_t bytes);
/* Checks a header of 1,024 bytes against the file's size. name is used in messages. */
ATOM_MUST atom_status text_shard_parse(const void *head, uint64_t file_bytes, const char *name,
                                       text_shard_info *out);
/* The same for nanoGPT's, which have no header. */
ATOM_MUST atom_status text_shard_parse_raw(uint64_t file_bytes, const char *name,
                                           text_shard_info *out);
/* Is this a path that nanoGPT's files have? */
bool text_shard_is_raw_name(const char *path);
/* Opens, checks the header and the size. ATOM_E_FORMAT otherwise. */
ATOM_MUST atom_status text_shard_probe(const char *path, text_shard_info *out);

/* The same as text_shard_probe, and reads all of it: ATOM_E_FORMAT where its tokens are not those that its header has a
 * hash of. A header without one is believed. */
ATOM_MUST atom_status text_shard_verify(const char *path);

/* Are there places in the file where nothing was ever written? They read as token 0. */
bool text_shard_has_hole(const char *path);

/* As text_shard_probe, and leaves the file open in *fd. */
ATOM_MUST atom_status text_shard_open(const char *path, int *fd, text_shard_info *out);

/* Shortens a shard of llm.c's format, and its mask and begins, to its first `tokens` tokens; on
 * disk when it returns. */
ATOM_MUST atom_status text_shard_cut(const char *path, uint64_t tokens);

/*
 * Writes one split as DIR/<split>_000000.bin, _000001 ..., shard_tokens (0: TEXT_SHARD_TOKENS_MAX)
 * each. Buffered. Files are complete (header, size, fsync) after text_shard_writer_end only.
 */
typedef struct text_shard_writer text_shard_writer;
ATOM_MUST atom_status text_shard_writer_open(const char *dir, const char *split, uint32_t vocab,
                                             uint32_t shard_tokens, text_shard_writer **out);
ATOM_MUST atom_status text_shard_writer_put(text_shard_writer *w, const uint32_t *ids, size_t n);
/* The same, with marks [n]: 0 for tokens that do not count as targets. A file with such tokens gets
 * a mask (mask.h). */
ATOM_MUST atom_status text_shard_writer_put_marked(text_shard_writer *w, const uint32_t *ids,
                                                   const uint8_t *marks, size_t n);
/* The next token is the first of a document; start: the tokenizer's start. A writer that is told so
 * before each document writes a .begins (mask.h) where it is needed. */
void text_shard_writer_begin(text_shard_writer *w, uint32_t start);
/* Finishes the last file. Nothing may be put afterwards. */
ATOM_MUST atom_status text_shard_writer_end(text_shard_writer *w);
void text_shard_writer_close(text_shard_writer **w);
uint64_t text_shard_writer_tokens(const text_shard_writer *w);
uint32_t text_shard_writer_shards(const text_shard_writer *w);

#endif
