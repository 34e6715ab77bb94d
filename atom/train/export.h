/*
 * Models on their way to other programs: GGUF files for llama.cpp.
 *
 * Reads a model directory (a checkpoint, or any of Hugging Face's), writes one file with weights,
 * numbers and tokenizer. Needs 4 bytes of host memory per parameter. Thread: one.
 * Errors: ATOM_E_UNSUPPORTED for a tokenizer that llama.cpp has no name for; else as hfdir.h.
 */
#ifndef ATOM_TRAIN_EXPORT_H
#define ATOM_TRAIN_EXPORT_H

#include "atom/file/gguf.h"

/* dir -> path. Without tokenizer.json the file has no tokenizer, and a note says so. */
ATOM_MUST atom_status train_export_gguf(const char *dir, file_gguf_type type, const char *path);

/* export_tokens.c: the tokenizer of dir as metadata, for a vocabulary of V; `config` is the text of
 * config.json. */
ATOM_MUST atom_status train_export_tokens(file_gguf *w, const char *dir, const char *config,
                                          int64_t V);

#endif
