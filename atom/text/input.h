/*
 * Text files as a sequence of blocks, each a few lines of JSONL or a piece of a .txt between safe
 * cuts, so that blocks can be encoded by themselves, in parallel, with the ids that the whole would
 * give.
 */
#ifndef ATOM_TEXT_INPUT_H
#define ATOM_TEXT_INPUT_H

#include "atom/base/status.h"
#include "atom/text/chat.h"
#include "atom/text/pattern.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_block {
    const char *name; /* of the file, and what its numbers count; owned by the input */
    char *data;       /* owned; free with text_block_fini */
    size_t bytes;
    uint64_t file_bytes; /* of the file, that were read for it; fewer if it is packed */
    uint64_t first_byte; /* place of data[0] in the file, unpacked */
    uint64_t first_line; /* its line, element or row, from 1 */
    bool lines;          /* JSONL: whole lines; else a piece of one document */
    bool starts;         /* .txt: the document's first piece */
    uint64_t empty_n;    /* texts without a byte that a walk left out */
    uint64_t empty_line; /* of the first of them */
} text_block;
void text_block_fini(text_block *b);

typedef struct text_input text_input;

/* More than this between two places where cutting does no harm is refused, so that a small packed
 * file cannot fill the memory. */
enum { TEXT_UNCUT_MAX = 1 << 30 };

/*
 * Checks that every file is there and of a known kind: .txt, .jsonl, .ndjson, .json (an array of
 * objects, or lines), .csv (records.h), or one of these as .gz or .zst (unpack.h); or .parquet
 * (parquet.h). block_bytes is a lower bound; 0: 1 MiB.
 */
ATOM_MUST atom_status text_input_open(const char *const *paths, uint32_t n, size_t block_bytes,
                                      text_input **out);
void text_input_close(text_input **in);
/* Warns of a file that is named twice, whose texts come twice, too. NULL-safe. */
void text_input_say_twice(const text_input *in);
/* Does each of its lines or rows hold an object: is it JSONL or Parquet, by its name? */
bool text_input_is_lines(const char *path);
bool text_input_has_records(const text_input *in); /* is any of the files no .txt? */
uint64_t text_input_bytes(const text_input *in);   /* of all files, as they are on disk */
/* How a .txt may be cut; at first TEXT_CUT_BEFORE_NEWLINE. TEXT_CUT_NONE: each is one block. */
void text_input_cut(text_input *in, text_cut cut);
/* How many files so far had not a single byte in them; *first: one of them. */
uint64_t text_input_empty(const text_input *in, const char **first);
/* The next block; b->data == NULL at the end. */
ATOM_MUST atom_status text_input_next(text_input *in, text_block *b);

/* One document: a chat if messages_n > 0, else a text, or one piece of a text if it does not
 * `start` one. Valid UTF-8. Borrowed for the call. */
typedef struct text_document {
    const char *text;
    size_t bytes;
    const text_message *messages;
    size_t messages_n;
    const json_t *tools, *documents, *variables; /* of a chat; NULL: none */
    const char *unused;                          /* a key beside it that is not read; NULL: none */
    bool starts;
    uint64_t line; /* of the file `name` */
    const char *name;
} text_document;
typedef atom_status (*text_document_fn)(void *ctx, const text_document *d);
/*
 * Calls fn for each document (or piece) of a block. Empty ones are left out and counted in b. format: of
 * JSONL lines. Errors name the file and the line, or the byte for a .txt.
 */
ATOM_MUST atom_status text_block_walk(text_block *b, text_format format, text_document_fn fn,
                                      void *ctx);

/*
 * The same for the lines of a JSONL block as they are: fn is called with each value (borrowed for
 * the call) until it sets *stop, which is false before. Errors as above, and fn's.
 */
typedef atom_status (*text_object_fn)(void *ctx, const json_t *value, uint64_t line, bool *stop);
ATOM_MUST atom_status text_block_objects(const text_block *b, text_object_fn fn, void *ctx,
                                         bool *stop);

#endif
