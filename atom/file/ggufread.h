/*
 * GGUF files (versions 2 and 3, little-endian): a strict reader.
 *
 * As with safetensors the header is a claim that is checked in full before a tensor is touched:
 * every length with overflow in mind, no duplicate keys or names, no tensors that overlap or leave
 * the file; reads are preads inside proven bounds, or come through a source. The whole header stays
 * in memory (the tokenizer is in it), and values point into it.
 *
 * Ownership: what open returns, close frees. Thread: an open reader may be read from several, but
 * with a source from one at a time.
 * Errors: ATOM_E_FORMAT names file and key or tensor; ATOM_E_UNSUPPORTED for types of numbers that
 * atom does not have, when they are read; ATOM_E_RESOURCE.
 * Source: ggml docs/gguf.md; docs/design/files.md#gguf.
 */
#ifndef ATOM_FILE_GGUFREAD_H
#define ATOM_FILE_GGUFREAD_H

#include "atom/file/gguf.h"
#include "atom/file/source.h"

/* Types of values, as in the file. */
enum {
    FILE_GGUF_VALUE_U8 = 0,
    FILE_GGUF_VALUE_I8 = 1,
    FILE_GGUF_VALUE_U16 = 2,
    FILE_GGUF_VALUE_I16 = 3,
    FILE_GGUF_VALUE_U32 = 4,
    FILE_GGUF_VALUE_I32 = 5,
    FILE_GGUF_VALUE_F32 = 6,
    FILE_GGUF_VALUE_BOOL = 7,
    FILE_GGUF_VALUE_TEXT = 8,
    FILE_GGUF_VALUE_ARRAY = 9,
    FILE_GGUF_VALUE_U64 = 10,
    FILE_GGUF_VALUE_I64 = 11,
    FILE_GGUF_VALUE_F64 = 12
};

typedef struct file_gguf_value {
    char *key;
    uint32_t type, item; /* item: of an array */
    uint64_t n;          /* items of an array, bytes of a text, else 1 */
    const uint8_t *at;   /* the items, the text or the number, as in the file */
    uint64_t bytes;      /* of all that */
} file_gguf_value;

typedef struct file_gguf_in_tensor {
    char name[FILE_GGUF_NAME_MAX];
    uint32_t type;    /* file_gguf_type, or another of ggml's */
    uint32_t rank;    /* 1 .. 4 */
    uint64_t dims[4]; /* slowest first */
    uint64_t elements, bytes;
    uint64_t offset; /* of the first byte, from the start of the file */
} file_gguf_in_tensor;

typedef struct file_gguf_in {
    char *path;
    int fd;
    uint8_t *header;
    uint64_t file_bytes;
    uint32_t n_values, n_tensors;
    file_gguf_value *values;      /* by key */
    file_gguf_in_tensor *tensors; /* by name */
    const file_source *source;
    void *reader; /* the source's; NULL: plain reads */
} file_gguf_in;

/* Does a file begin as one? */
bool file_gguf_is(const void *head, size_t bytes);
/* The same of a path; false where it cannot be read. */
bool file_gguf_is_file(const char *path);

ATOM_MUST atom_status file_gguf_open(const char *path, file_gguf_in **out);
/* From now on tensors come through `source` (NULL-safe), if that wants this file; once. */
ATOM_MUST atom_status file_gguf_through(file_gguf_in *f, const file_source *source);
/* From memory: the first `bytes` of a file of file_bytes. *more: it goes on behind them, and the
 * call failed for that alone. fd of the result is -1. */
ATOM_MUST atom_status file_gguf_parse(const char *path, const void *data, uint64_t bytes,
                                      uint64_t file_bytes, bool *more, file_gguf_in **out);
void file_gguf_in_close(file_gguf_in **file);

/* NULL if there is none. */
const file_gguf_value *file_gguf_find(const file_gguf_in *f, const char *key);
const file_gguf_in_tensor *file_gguf_find_tensor(const file_gguf_in *f, const char *name);
/* Of a key that is there and of that kind (whole numbers of any width), else `fallback`. */
int64_t file_gguf_int(const file_gguf_in *f, const char *key, int64_t fallback);
double file_gguf_real(const file_gguf_in *f, const char *key, double fallback);
/* A text in fresh memory (atom_free), or NULL: none there, or no memory. */
char *file_gguf_text(const file_gguf_in *f, const char *key);
/* Has every key that is asked for here a value of the kind that it must have (ggufkinds.c)? Whoever asks for keys
 * calls it before. */
ATOM_MUST atom_status file_gguf_check_kinds(const file_gguf_in *f);
/* Walks the texts of an array: *at starts as value->at; gives the bytes of one and moves on. */
const char *file_gguf_next_text(const uint8_t **at, uint64_t *bytes);

/* "Q4_K", "F16"; "?" for numbers that ggml has not. */
const char *file_gguf_type_name(uint32_t type);
/* `count` elements from `first` on, as f32. Q8_0: both multiples of 32. */
ATOM_MUST atom_status file_gguf_read_f32(const file_gguf_in *f, const file_gguf_in_tensor *t,
                                         uint64_t first, uint64_t count, float *out);

#endif
