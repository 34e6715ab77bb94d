/*
 * GGUF files (version 3, little-endian), as llama.cpp reads them: a streaming writer.
 *
 *     file_gguf_create(path, sink, &w);                   sink: writes the file; NULL: plain writes
 *     file_gguf_put_*(w, key, value);                     metadata, any number, keys once each
 *     file_gguf_declare(w, name, type, rank, dims);       tensors, in the order of their data
 *     file_gguf_begin(w);
 *     for each tensor: file_gguf_write(w, numbers, n);    f32 in pieces of whole rows; encoded here
 *     file_gguf_finish(w);                                fsync, rename
 *     file_gguf_close(&w);                                removes the temporary unless finished
 *
 * dims are as in PyTorch, slowest first; the file has them the other way round. An error while
 * metadata is put is kept and given by begin.
 *
 * Ownership: what create returns, close frees. Thread: one. Errors: ATOM_E_RESOURCE for memory and
 * full disks, ATOM_E_FORMAT for names that the format cannot carry.
 * Source: ggml docs/gguf.md; docs/design/files.md#gguf. Q8_0: ggml-quants, quantize_row_q8_0_ref.
 */
#ifndef ATOM_FILE_GGUF_H
#define ATOM_FILE_GGUF_H

#include "atom/file/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum file_gguf_type {
    FILE_GGUF_F32 = 0,
    FILE_GGUF_F16 = 1,
    FILE_GGUF_Q8_0 = 8, /* blocks of 32: an f16 scale and 32 signed bytes */
    FILE_GGUF_BF16 = 30
} file_gguf_type;

enum { FILE_GGUF_NAME_MAX = 64, FILE_GGUF_Q8_BLOCK = 32, FILE_GGUF_ALIGN = 32 };

typedef struct file_gguf file_gguf;

/* The sink must outlive it. */
ATOM_MUST atom_status file_gguf_create(const char *path, const file_sink *sink, file_gguf **out);
void file_gguf_close(file_gguf **w);

void file_gguf_put_u32(file_gguf *w, const char *key, uint32_t value);
void file_gguf_put_f32(file_gguf *w, const char *key, float value);
void file_gguf_put_bool(file_gguf *w, const char *key, bool value);
void file_gguf_put_text(file_gguf *w, const char *key, const char *value);
/* Arrays: n elements follow by file_gguf_add_*. */
void file_gguf_put_texts(file_gguf *w, const char *key, uint64_t n);
void file_gguf_add_text(file_gguf *w, const char *bytes, size_t n);
void file_gguf_put_i32s(file_gguf *w, const char *key, const int32_t *values, uint64_t n);
void file_gguf_put_f32s(file_gguf *w, const char *key, const float *values, uint64_t n);

ATOM_MUST atom_status file_gguf_declare(file_gguf *w, const char *name, file_gguf_type type,
                                        uint32_t rank, const uint64_t *dims);
ATOM_MUST atom_status file_gguf_begin(file_gguf *w);
/* n elements of the present tensor; whole blocks of its type but for its end. */
ATOM_MUST atom_status file_gguf_write(file_gguf *w, const float *x, uint64_t n);
ATOM_MUST atom_status file_gguf_finish(file_gguf *w);

/* n numbers in the form that a tensor of this type has; n a multiple of 32 for
 * Q8_0. Returns bytes. */
uint64_t file_gguf_bytes(file_gguf_type type, uint64_t n);
/* Returns how many finite numbers are too large for the type, so that nothing finite is left of them: of
 * Q8_0 a block with its scale. */
uint64_t file_gguf_encode(file_gguf_type type, const float *x, uint64_t n, void *out);

#endif
