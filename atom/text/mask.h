/*
 * Which tokens of a shard count as targets: X.mask beside the shard X.bin, one bit per token.
 * A shard without a mask counts all its tokens. Little-endian:
 *
 *   8 bytes  "atommask"            u64  tokens, as the shard has
 *   u32      version, 1            u64  hash of the bits (atom_hash)
 *   u32      0                     bits, token i is bit i % 8 of byte i / 8; those behind the end 0
 */
#ifndef ATOM_TEXT_MASK_H
#define ATOM_TEXT_MASK_H

#include "atom/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TEXT_MASK_HEADER_BYTES = 32, TEXT_MASK_VERSION = 1 };

/* "x.mask" of "x.bin"; free with atom_free. NULL without memory. */
char *text_mask_path(const char *shard_path);
/* "x.begins": where documents begin, in the same format: a 1 for the first token of each. A shard
 * has one where that cannot be told from its tokens: a document begins with another token than the
 * tokenizer's start, or has that token inside. */
char *text_begins_path(const char *shard_path);

/* Writes bits [(tokens + 7) / 8] to path; on disk when it returns. */
ATOM_MUST atom_status text_mask_write(const char *path, const uint8_t *bits, uint64_t tokens);

/*
 * The bits of a whole mask, checked against the shard's count of tokens and their hash, in fresh
 * memory (atom_free). ATOM_E_FORMAT: another shard's mask, damaged, another version.
 */
ATOM_MUST atom_status text_mask_read(const char *path, uint64_t tokens, uint8_t **bits,
                                     uint64_t *hash);
/* The same for a file in memory: *bits points into data. name is used in messages. */
ATOM_MUST atom_status text_mask_parse(const void *data, uint64_t bytes, uint64_t tokens,
                                      const char *name, const uint8_t **bits, uint64_t *hash);

#endif
