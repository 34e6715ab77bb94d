/*
 * The tokens that end what a model writes, where there are several, as metadata of GGUF. Inner header of
 * atom/export.
 */
#ifndef ATOM_EXPORT_ENDS_H
#define ATOM_EXPORT_ENDS_H

#include "atom/export/export.h"

#include <jansson.h>

/*
 * Writes what goes beyond eos_token_id, whose value is `eos` (-1: none): all ends as
 * tokenizer.ggml.eos_token_ids, and of those that llama.cpp does not know by their texts the first one as
 * its eom_token_id. Others are said, because llama.cpp would write on behind them. generation and config
 * may be NULL; the first of them that names an id below V counts, as for transformers. texts [V]; dir is used
 * in messages.
 * Source: llama.cpp, llama-vocab.cpp (special_eog_ids); ollama, which reads eos_token_ids.
 */
ATOM_MUST atom_status export_ends(file_gguf *w, const char *dir, const json_t *generation,
                                  const json_t *config, const char *const *texts, int64_t V,
                                  int64_t eos);

#endif
