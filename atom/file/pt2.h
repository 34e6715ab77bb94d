/*
 * Models as torch.export writes them (.pt2): a zip of JSON and raw tensors, from which no pickle
 * has to be read. The operators of the exported graph are recognised and translated into atom's
 * own. The names of the parameters in the user's state_dict are kept, and its buffers unchanged, so
 * that the user's program can load checkpoints again.
 *
 *     exported = torch.export.export(model, (torch.zeros(2, T, dtype=torch.long),))
 *     torch.export.save(exported, "model.pt2")
 *
 * T is the longest sequence, unless a table of positions determines it. Supported are decoder models of
 * embeddings, layer and RMS norms, linear products, causal attention with grouped heads, rotary
 * embedding, GELU, ReLU, SiLU, SwiGLU, dropout, residual sums and scaling by a number, however they
 * are spelled (pt2_*.c).
 * The first result must be the logits of all positions, or the loss.
 *
 * Ownership: see hfdir.h. Thread: no shared state. Errors: ATOM_E_FORMAT names file and entry;
 * ATOM_E_UNSUPPORTED names the operator and the line of the user's program that called it.
 * Source: the files themselves; docs/design/files.md#torchexport. Archives of torch 2.9 and later.
 */
#ifndef ATOM_FILE_PT2_H
#define ATOM_FILE_PT2_H

#include "atom/file/vector.h"
#include "atom/graph/models.h"

bool file_pt2_is_file(const char *path);
/* The model with its buffers, without its weights. Free with graph_config_free. */
ATOM_MUST atom_status file_pt2_read_model(const char *path, graph_config *config);
/* The weights of a graph that graph_model_build made of it, into vector[g->param_extent]. */
ATOM_MUST atom_status file_pt2_read_weights(const char *path, const graph *g, file_vector vector);

#endif
