/*
 * From text files to a data set directory (dataset.h), and a summary of such a directory.
 *
 * Input: .txt (one document per file), .jsonl or .ndjson (one JSON object per line, a text or a
 * chat, see chat.h; blank lines are skipped), .json (an array of such objects) and .csv (a header
 * with their keys), also as .gz or .zst. Each document is encoded whole;
 * a text is preceded by the end-of-text token, as llm.c does, and a chat begins as its template
 * says. Documents are written one after the other; the trainer's `packing` decides whether attention
 * sees across them. Files are read in blocks, so memory does not grow with them.
 *
 * Chats are rendered with a template (template.h). Unless loss_all, only their answers count as
 * targets: masks beside the shards (mask.h) say which tokens do. Texts count whole.
 *
 * Everything is written under DIR/a hidden name (staging.h) and moved into place at the end,
 * dataset.json last.
 */
#ifndef ATOM_TEXT_PREPARE_H
#define ATOM_TEXT_PREPARE_H

#include "atom/base/status.h"
#include "atom/base/threads.h"
#include "atom/text/chat.h"
#include "atom/text/plain.h"
#include "atom/text/template.h"

#include <stdbool.h>
#include <stdint.h>

/* phase: "count words" (bytes), "train tokenizer" (merges), "encode" (bytes). From the calling
 * thread, some ten times per second at most. */
typedef void (*text_progress)(void *ctx, const char *phase, uint64_t done, uint64_t total);

typedef struct text_prepare_options {
    const char *const *inputs;
    uint32_t inputs_n;
    const char *tokenizer; /* "bytes", "bpe:N", or the path of a tokenizer.json */
    const char *output_dir;
    double val_fraction; /* [0, 0.5]; 0: no validation split */
    bool force;          /* replace a data set that is already there */
    text_format format;  /* of JSONL lines */
    /* Pack documents into sequences of so many tokens (packer.h); 0: do not. */
    uint32_t sequence_len;
    text_template_request template;
    bool loss_all;        /* every token of a chat is a target */
    const char *of_chats; /* a key that was set for chats: an error where there are none; or NULL */
    text_special_rule special_tokens; /* in texts; messages of chats never become special tokens */
    atom_threads *threads;            /* NULL: the calling thread only */
    text_progress progress;           /* may be NULL */
    void *progress_ctx;
} text_prepare_options;

enum { TEXT_SPLIT_DOCUMENTS_MIN = 20, TEXT_PACK_MIN = 8, TEXT_PACK_MAX = 1 << 20 };

typedef enum text_val_split {
    TEXT_VAL_NONE,
    TEXT_VAL_DOCUMENTS, /* whole documents, spread evenly: 20 documents and more */
    TEXT_VAL_TAIL,      /* the end of the token stream, cut before a line */
} text_val_split;
const char *text_val_split_name(text_val_split split); /* "none", "documents", "tail" */

typedef struct text_part_counts {
    uint64_t tokens; /* with the end-of-text tokens */
    uint64_t documents;
    uint32_t shards;
} text_part_counts;

/* Texts that somebody should hear of, such as those without a byte: lines, rows, elements, and whole files. */
typedef struct text_empty {
    uint64_t n;
    char first[200]; /* "FILE:LINE", or "FILE" */
} text_empty;

typedef struct text_prepare_report {
    text_part_counts train, val;
    text_val_split val_split;
    uint32_t vocab;
    /* N of bpe:N, else vocab; vocab < vocab_asked: the text has no more pairs. */
    uint32_t vocab_asked;
    uint64_t text_bytes;
    uint64_t chats;         /* documents that are chats */
    uint64_t targets;       /* tokens that count, of both splits */
    uint64_t answers;       /* of chats whose template has no {% generation %} */
    uint64_t rough_answers; /* of these, marked by their own text alone (answers.h) */
    const char *template;   /* of the chats; NULL without any */
    text_unseen unseen;     /* keys of messages that the template does not show */
    text_empty hidden;      /* messages that the template shows nothing of */
    text_unseen unused;     /* keys beside chats that are not read; counts chats */
    text_named named;       /* names of special tokens in texts */
    text_unknown unknown;   /* characters without a token, which the data has lost */
    text_empty empty;       /* left out */
    text_empty objects;     /* .txt files whose lines are JSON objects */
    uint64_t cut, padding; /* with sequence_len: documents that are longer, and tokens (packer.h) */
    double train_tokenizer_seconds;
    double encode_seconds;
} text_prepare_report;

/*
 * Errors: ATOM_E_USAGE (tokenizer spec, val_fraction, unknown kind of input, variables without a
 * chat, output_dir already holds a data set or is in use by another prepare); ATOM_E_FORMAT
 * (missing input, bad UTF-8 with file and byte, JSON errors as "file:line: what", no text at all);
 * ATOM_E_RESOURCE (memory, disk full). On error nothing of an existing data set is lost. report may
 * be NULL.
 */
ATOM_MUST atom_status text_prepare(const text_prepare_options *options,
                                   text_prepare_report *report);

typedef struct text_summary {
    text_part_counts train, val;
    uint32_t vocab;         /* of tokenizer.json; 0 if there is none */
    uint32_t end_of_text;   /* its id; 0 if there is no tokenizer */
    uint32_t token_bytes;   /* 2 or 4 */
    uint32_t id_max;        /* largest id in the shards */
    uint64_t targets;       /* tokens that count, of both splits: all without masks */
    bool masked;            /* is there a mask? */
    const char *tokenizer;  /* "bytes", "bpe", or "none" */
    double bytes_per_token; /* of text, over all of the data; 0 without a tokenizer */
    char preview[1024];     /* first 200 characters of train, decoded; valid UTF-8 */
} text_summary;

/* Reads every token of the directory (checks all ids and masks). Documents are counted by their
 * start tokens; what dataset.json says goes before that where it has the same tokens, because in
 * chats such a token may also end an answer. Errors as text_shards_open. */
ATOM_MUST atom_status text_inspect(const char *dir, text_summary *out);

#endif
