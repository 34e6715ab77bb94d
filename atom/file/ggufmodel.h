/*
 * A model as GGUF: its numbers under llama.cpp's keys, its tensors under llama.cpp's names. The
 * tokenizer's part is not here (atom/train/export_tokens.c).
 *
 * Matrices take `type`; vectors, norms and positions stay F32; with Q8_0, matrices whose rows are
 * no multiple of 32 are F16. Architecture "llama" (Llama, Mistral) rotates neighbours where Hugging
 * Face rotates halves, so rows of q and k are put in that order. Source: facts/formats.md 7.2, 7.3.
 */
#ifndef ATOM_FILE_GGUFMODEL_H
#define ATOM_FILE_GGUFMODEL_H

#include "atom/file/gguf.h"
#include "atom/file/vector.h"
#include "atom/graph/models.h"

/* "llama", "qwen2", "qwen3", "gpt2". */
const char *file_gguf_architecture(const graph_config *config);
/* Metadata of the model, all but the tokenizer's. */
void file_gguf_put_model(file_gguf *w, const graph_config *config, file_gguf_type type);
/* Declares all tensors of g, begins the file and writes them from the canonical vector. */
ATOM_MUST atom_status file_gguf_put_tensors(file_gguf *w, const graph_config *config,
                                            const graph *g, file_gguf_type type,
                                            file_vector vector);

#endif
