/*
 * Model files of llm.c: GPT-2 as its train_gpt2 reads it with -e.
 *
 *   256 x i32: 20240326, version (3: F32, 5: BF16), positions, vocabulary, layers, heads, width,
 *              vocabulary padded to a multiple of 128; zeros
 *   wte [padded, C]  wpe [T, C], then each for all layers in a row: ln_1 w b, c_attn w b, c_proj w
 *   b, ln_2 w b, mlp c_fc w b, mlp c_proj w b; then ln_f w b. Matrices are [out, in].
 *
 * Thread: no shared state. Errors: ATOM_E_UNSUPPORTED for what llm.c has no number for: other
 * families, other widths of the MLP, another epsilon; ATOM_E_RESOURCE.
 * Source: llm.c train_gpt2.py, write_model; docs/design/files.md#llmc.
 */
#ifndef ATOM_FILE_LLMC_H
#define ATOM_FILE_LLMC_H

#include "atom/base/dtype.h"
#include "atom/file/vector.h"
#include "atom/graph/models.h"

/* ATOM_OK where llm.c can run this model; `what` names it in the message. */
ATOM_MUST atom_status file_llmc_check(const char *what, const graph_config *config);
/* The parameters of g (of config) from the canonical vector; dtype is F32 or BF16. The file is
 * there whole or not at all. */
ATOM_MUST atom_status file_llmc_write(const char *path, const graph_config *config, const graph *g,
                                      file_vector vector, atom_dtype dtype);

#endif
