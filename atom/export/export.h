/*
 * Writes models for other programs: Hugging Face directories, GGUF files for llama.cpp, model
 * files for llm.c.
 *
 * It reads a model directory (a checkpoint, or any of Hugging Face's) tensor by tensor, so it needs
 * memory only for the largest tensor. What it writes is complete or not there at all. Names begin
 * with export_, and with import_ for the opposite direction. Thread: one.
 * Errors: ATOM_E_UNSUPPORTED for what the other program has no name for; else as hfdir.h.
 */
#ifndef ATOM_EXPORT_EXPORT_H
#define ATOM_EXPORT_EXPORT_H

#include "atom/file/ggufread.h"
#include "atom/file/hfdir.h"
#include "atom/file/peft.h"
#include "atom/text/tokenizer.h"

/* dir, with the LoRA adapter of a directory merged in (NULL: none) -> path. If there is no tokenizer.json,
 * or dir is a GGUF file without a tokenizer, the file has no tokenizer, and a note says so. ATOM_E_USAGE
 * where path is there, unless it is to be replaced. */
ATOM_MUST atom_status export_gguf(const char *dir, const char *adapter, file_gguf_type type,
                                  const char *path, bool replace);

/*
 * dir -> a new directory `output` that transformers loads: weights in dtype (ATOM_DTYPE_N: as they
 * are), in shards of shard_bytes, unknown keys of config.json kept, tokenizer files copied.
 * ATOM_E_USAGE where output is there and not empty.
 */
ATOM_MUST atom_status export_hf(const char *dir, const char *adapter, atom_dtype dtype,
                                uint64_t shard_bytes, const char *output);

/* A new directory `output` that is there whole or not at all: fill writes into a temporary one,
 * which it makes. Errors as above, and fill's. */
typedef atom_status export_fill(void *context, const char *dir);
ATOM_MUST atom_status export_directory(const char *output, export_fill *fill, void *context);

/* dir -> path: a model file of llm.c (GPT-2 only) in F32 or BF16; ATOM_DTYPE_N: as they are, F16 as
 * F32. replace: as above. */
ATOM_MUST atom_status export_llmc(const char *dir, const char *adapter, atom_dtype dtype,
                                  const char *path, bool replace);

/* export_tokens.c: the tokenizer of dir as metadata, for a vocabulary of V; `config` is the text of
 * config.json. Refuses steps that text_tokenizer_parse does not know, and more tokens than V. */
ATOM_MUST atom_status export_tokens(file_gguf *w, const char *dir, const char *config, int64_t V);

/* copy_tokens.c: the tokenizer of another GGUF file, as it stands there. *any: it has one. */
ATOM_MUST atom_status export_tokens_copy(file_gguf *w, const char *path, bool *any);

/* import_tokens.c: the other way: a tokenizer.json of what a GGUF file says, atom_free it; NULL
 * where it says nothing. The same as a tokenizer. */
ATOM_MUST atom_status import_tokens(const file_gguf_in *file, char **json);
ATOM_MUST atom_status import_tokenizer(const char *path, text_tokenizer **out);
/* The tokenizer of a model with weights, wherever it is kept: an adapter's own goes first.
 * ATOM_E_FORMAT where there is none, or one of more tokens than the model has. */
ATOM_MUST atom_status import_model_tokenizer(const file_model *model, text_tokenizer **out);
/* Does llama.cpp take whole words of the vocabulary before merging, where the pre-tokenizer has this name? */
bool import_ignores_merges(const char *pre);
/* A GGUF file's chat template in Jinja, with the one for tools where it has one; atom_free it; NULL
 * where it has none. */
ATOM_MUST atom_status import_template(const char *path, char **jinja);

#endif
