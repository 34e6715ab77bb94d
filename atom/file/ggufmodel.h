/*
 * A model as GGUF: its numbers under llama.cpp's keys, its tensors under llama.cpp's names. The
 * tokenizer's part is not here (atom/export/export_tokens.c).
 *
 * Matrices take `type`; vectors, norms and positions stay F32; with Q8_0, matrices whose
 * rows are not a multiple of 32 are F16. Some architectures (graph_traits.gguf_pairs)
 * rotate neighbours where Hugging Face rotates halves, so rows of q and k are put in that order. Source: docs/design/files.md#gguf.
 */
#ifndef ATOM_FILE_GGUFMODEL_H
#define ATOM_FILE_GGUFMODEL_H

#include "atom/file/gguf.h"
#include "atom/file/ggufread.h"
#include "atom/file/hfweights.h"
#include "atom/file/vector.h"
#include "atom/graph/models.h"

/* "llama", also of a Mistral; NULL: llama.cpp has no such models. */
const char *file_gguf_architecture(const graph_config *config);
/* Metadata of the model, all but the tokenizer's. ATOM_E_UNSUPPORTED: llama.cpp has no such model. */
ATOM_MUST atom_status file_gguf_put_model(file_gguf *w, const graph_config *config,
                                          file_gguf_type type);
/* Declares all tensors of g, begins the file and writes them from the canonical vector. */
ATOM_MUST atom_status file_gguf_put_tensors(file_gguf *w, const graph_config *config,
                                            const graph *g, file_gguf_type type,
                                            file_vector vector);

/* The other way (ggufload.c): numbers of the model in a file, and all its weights into the
 * canonical vector of a graph of them. Of several families with one architecture it is the first
 * that fits: a "llama" is a Llama, whoever trained it, and a Mistral if it has a window. Refuses other
 * architectures, rotary embeddings that no config.json could say, and tensors too many, too few or
 * misshapen. */
ATOM_MUST atom_status file_gguf_take_model(const file_gguf_in *f, graph_config *config);
ATOM_MUST atom_status file_gguf_take_tensors(const file_gguf_in *f, const graph_config *config,
                                             const graph *g, file_vector vector);
/* Both from a path. *source (NULL: not wanted; atom_free it): the model as a config.json, with the tokens
 * that begin and end a text. */
ATOM_MUST atom_status file_gguf_read_model(const char *path, graph_config *config, char **source);
ATOM_MUST atom_status file_gguf_read_weights(const char *path, const graph *g, file_vector vector);
/* ggufends.c: into a config.json, the tokens of a vocabulary of V that begin and end a text. */
ATOM_MUST atom_status file_gguf_set_ends(const file_gguf_in *f, int64_t V, struct json_t *root);

/* "layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight", for FILE_GGUF_NAME_MAX
 * + 16 bytes. */
ATOM_MUST atom_status file_gguf_name(const graph_config *config, const char *name, char *out,
                                     size_t room);
/* What llama.cpp divides scores of a Gemma by the root of. */
float file_gguf_query_scalar(const graph_config *config);
/* The GELU of a GPT-NeoX whose file does not say it under this key, which is ours. */
#define FILE_GGUF_ACTIVATION "hidden_act"
bool file_gguf_tanh_gelu(const graph_config *config);
/* What the numbers of this tensor are more there: 1, of norms whose weights are added to 1. */
float file_gguf_lift(const graph_config *config, const file_slice *slice);
/* Are rows of this tensor in another order in a file of that architecture? */
bool file_gguf_turned(const graph_config *config, const char *name);

#endif
