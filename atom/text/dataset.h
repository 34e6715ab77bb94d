/*
 * Token data sets: a directory of shards, and the order in which training reads them.
 *
 *   DIR/train_000000.bin ...   tokens to train on     DIR/tokenizer.json   (optional)
 *   DIR/val_000000.bin ...     tokens to evaluate on  DIR/dataset.json     (optional, counts)
 *   DIR/train_000000.mask ...  which of them count as targets (optional, mask.h)
 *   DIR/train_000000.begins .. where documents begin (optional, mask.h)
 *
 * Shards have llm.c's format, or are nanoGPT's train.bin and val.bin (shard.h). The shards of one
 * split, in the order of their names, are one stream of N tokens. Window w of length T covers
 * tokens [w*T, w*T + T + 1): T inputs and, one further, T targets. There are (N-1)/T windows.
 */
#ifndef ATOM_TEXT_DATASET_H
#define ATOM_TEXT_DATASET_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum text_split { TEXT_TRAIN, TEXT_VAL } text_split;
const char *text_split_name(text_split split); /* "train", "val" */

/* The shards of one split, open for reading. Immutable: any thread may read. */
typedef struct text_shards text_shards;

/* "train_000000.bin", "fineweb_train_000001.bin", "tiny_shakespeare_train.bin", "train.bin". */
bool text_is_shard(const char *name, text_split split);

/* Names of files in a directory; text_file_list_free. */
typedef struct text_file_list {
    uint32_t n;
    char **name;
} text_file_list;
/* Those of a data set but the tokenizer: shards of both splits with what lies beside them, by name,
 * and dataset.json last. There may be none. ATOM_E_FORMAT: no directory. */
ATOM_MUST atom_status text_dataset_files(const char *dir, text_file_list *out);
void text_file_list_free(text_file_list *list);
/* May a file of this name be one of those? */
bool text_is_dataset_file(const char *name);

/* Are there shards of this split in dir? Does its dataset.json count tokens of this split? */
bool text_shards_exist(const char *dir, text_split split);
bool text_shards_counted(const char *dir, text_split split);

/*
 * Opens and checks every shard of a split: magic, version, exact size, one token width. vocab: ids
 * must be below it; each id is checked when it is read. Also accepts names like x_train_000001.bin
 * and x_train.bin. The first ids are read here. Errors: ATOM_E_FORMAT with the file, what is wrong
 * and what to do; also when there are no shards, or when `atom data prepare` was interrupted in
 * this directory.
 */
ATOM_MUST atom_status text_shards_open(const char *dir, text_split split, uint32_t vocab,
                                       text_shards **out);
void text_shards_close(text_shards **s);

const char *text_shards_dir(const text_shards *s);
uint64_t text_shards_tokens(const text_shards *s);
uint32_t text_shards_count(const text_shards *s);       /* files */
uint32_t text_shards_token_bytes(const text_shards *s); /* 2 or 4 */
uint64_t text_shards_windows(const text_shards *s, uint32_t sequence_len);
/* Tokens behind the last window, where they are more than a twentieth of all; else 0. */
static inline uint64_t text_shards_rest(const text_shards *s, uint32_t sequence_len)
{
    uint64_t all = text_shards_tokens(s),
             used = text_shards_windows(s, sequence_len) * sequence_len;
    return used && all - 1 - used > all / 20 ? all - 1 - used : 0;
}
/* The length of the sequences that documents were packed into (packer.h); 0: they were not. */
uint32_t text_shards_packed(const text_shards *s);
/* Reads shards and compares them with the hashes in their headers. ATOM_E_FORMAT: one is damaged.
 * all: every one; else only what takes a second or two: all of a data set of up to 1 GiB, and of larger
 * ones the files with holes, as copies have that were interrupted. */
ATOM_MUST atom_status text_shards_verify(const text_shards *s, bool all);
/* Warns if fewer tokens are here than were prepared, as after a copy that was interrupted, and, where nothing says
 * how many were, if names are of several series (names.h). */
void text_shards_warn(const text_shards *s);
/* A hash of every shard's name, length and mask, to notice that the data changed between runs. */
uint64_t text_shards_hash(const text_shards *s);
/* A hash of their tokens, from their headers (shard.h); 0 where a header does not say it. */
uint64_t text_shards_contents(const text_shards *s);

/* Tokens [first, first + n) of the stream. ATOM_E_FORMAT for an id >= vocab or a
 * file that shrank. */
ATOM_MUST atom_status text_shards_read(const text_shards *s, uint64_t first, uint32_t n,
                                       int32_t *tokens);

/* marks [n]: 1 for tokens [first, first + n) that count as targets, 0 for those that a mask takes
 * out. */
void text_shards_marks(const text_shards *s, uint64_t first, uint32_t n, uint8_t *marks);
bool text_shards_masked(const text_shards *s); /* is there a mask? */

/* begins [n]: 1 for those of tokens [first, first + n) with which a document begins: as .begins
 * says it, and where there is none, those that are `start`, the tokenizer's start. */
void text_shards_begins(const text_shards *s, uint64_t first, uint32_t n, const int32_t *tokens,
                        uint32_t start, uint8_t *begins);

/*
 * `count` windows in the order of the file, from window `first`: for evaluation.
 *   tokens, targets  i32 [count, T]; a target that does not count is -1
 */
ATOM_MUST atom_status text_windows_read(const text_shards *s, uint32_t sequence_len, uint64_t first,
                                        uint32_t count, int32_t *tokens, int32_t *targets);

/* Of those windows, whose tokens are given: where each token's document begins, i32 [count, T]; 0
 * for one that began before its window. */
void text_windows_starts(const text_shards *s, uint32_t sequence_len, uint64_t first,
                         uint32_t count, uint32_t start, const int32_t *tokens, int32_t *starts);

/*
 * The order of training: sample number i (from 0; the only state, save it to resume) is window
 * perm(epoch)(i mod W) with epoch = i / W and W the number of windows. perm is a keyed permutation
 * (Feistel network over Philox, cycle walking): O(1) memory, any sample at once. A plain value;
 * borrows its shards.
 */
typedef struct text_sampler {
    const text_shards *shards;
    uint64_t seed;
    uint64_t windows;
    uint32_t sequence_len;
    uint32_t half_bits;
} text_sampler;

/* ATOM_E_FORMAT if the stream has no window of sequence_len + 1 tokens. */
ATOM_MUST atom_status text_sampler_make(const text_shards *s, uint32_t sequence_len, uint64_t seed,
                                        text_sampler *out);
/* Window of a sample. Pure. */
uint64_t text_sampler_window(const text_sampler *sampler, uint64_t sample);
/* Samples first .. first + count - 1: tokens, targets i32 [count, T]. Any thread. */
ATOM_MUST atom_status text_sampler_read(const text_sampler *sampler, uint64_t first, uint32_t count,
                                        int32_t *tokens, int32_t *targets);
/* As text_windows_starts, of those samples. */
void text_sampler_starts(const text_sampler *sampler, uint64_t first, uint32_t count,
                         uint32_t start, const int32_t *tokens, int32_t *starts);

#endif
