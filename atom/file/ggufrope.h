/*
 * The rotary embedding in GGUF, both ways, as llama.cpp has it: keys rope.* of an architecture, the
 * tensor rope_freqs.weight of Llama 3's frequencies, and rope_factors_short.weight and
 * rope_factors_long.weight of LongRoPE's.
 *
 * What llama.cpp multiplies turned channels by: rope.scaling.attn_factor, and with YaRN also
 * 1 + 0.1 ln(rope.scaling.factor).
 *
 * Ownership: none. Thread: no shared state. Errors: ATOM_E_FORMAT and ATOM_E_UNSUPPORTED name the
 * file and the key or tensor. Source: docs/design/files.md#gguf.
 */
#ifndef ATOM_FILE_GGUFROPE_H
#define ATOM_FILE_GGUFROPE_H

#include "atom/file/gguf.h"
#include "atom/file/ggufread.h"
#include "atom/graph/models.h"

/* ATOM_E_UNSUPPORTED: llama.cpp computes another embedding from any keys. */
ATOM_MUST atom_status file_gguf_check_rope(const graph_config *c);
void file_gguf_put_rope(file_gguf *w, const graph_config *c);
/* Its tensors: in front of all others, in this order. */
ATOM_MUST atom_status file_gguf_declare_rope(file_gguf *w, const graph_config *c);
ATOM_MUST atom_status file_gguf_write_rope(file_gguf *w, const graph_config *c);

/* c has its family, head_dim and positions. */
ATOM_MUST atom_status file_gguf_take_rope(const file_gguf_in *f, const char *arch, graph_config *c);
/* Is this tensor one of those? */
bool file_gguf_is_rope(const char *tensor);

#endif
