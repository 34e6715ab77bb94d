/*
 * Hugging Face model directories: config.json and model*.safetensors of the families of models.h,
 * both ways; pytorch_model*.bin are read, too.
 *
 * Weights live in one canonical f32 vector laid out by the graph (graph_param.offset). GPT-2 files
 * store the four linear weights of a block as [in, out] (Conv1D), atom as [out, in]: they are
 * transposed here, tensor by tensor, through a small buffer. Other families store q, k and v (gate
 * and up) apart: each is a run of rows of one parameter here.
 *
 * Ownership: texts returned are freed with atom_free. Thread: no shared state.
 * Errors: ATOM_E_FORMAT names the file and the key or tensor; ATOM_E_UNSUPPORTED for legal models
 * that atom cannot train; ATOM_E_USAGE for a model that is not there; ATOM_E_RESOURCE. Source:
 * docs/design/files.md#model-directories.
 */
#ifndef ATOM_FILE_HFDIR_H
#define ATOM_FILE_HFDIR_H

#include "atom/file/vector.h"
#include "atom/graph/models.h"

/* --- config.json ----------------------------------------------------------------------------- */

/* Text of a config.json -> numbers; `path` is for messages. Absent keys get the
 * defaults of the family's class. graph_config_free it. */
ATOM_MUST atom_status file_config_parse(const char *path, const char *text, size_t bytes,
                                        graph_config *config);
/* Reads a file; *source (may be NULL) gets its text, for file_config_write to keep unknown keys. */
ATOM_MUST atom_status file_config_read(const char *path, graph_config *config, char **source);
/* The tokens around a document, as config.json has them (bos_token_id, eos_token_id); -1: not known. GPT-2
 * has one token for both, as have the tokenizers that atom makes; those of Llama have two. */
typedef struct file_ends {
    int64_t start, end;
} file_ends;

/*
 * The text of a config.json that transformers 4 and 5 load. source: an imported config.json whose
 * other keys are kept, or NULL. ends: of the tokenizer, or NULL; what is not known is as in source.
 */
ATOM_MUST atom_status file_config_text(const graph_config *config, const char *source,
                                       const file_ends *ends, char **text);
/* Writes config.json and generation_config.json into dir. */
ATOM_MUST atom_status file_config_write(const char *dir, const graph_config *config,
                                        const char *source, const file_ends *ends);
/* The same for weights of another type than F32: torch_dtype and dtype say which. */
ATOM_MUST atom_status file_config_write_as(const char *dir, const graph_config *config,
                                           const char *source, const file_ends *ends,
                                           atom_dtype dtype);
/* Into dir/buffers.safetensors, what a config.json of somebody's own model needs beside it where there
 * are no weights (which hold it, too); where the model has no buffers, such a file is removed. */
ATOM_MUST atom_status file_buffers_write(const char *dir, const graph_config *config);
/* What the buffers of one model may have in all, and such a file. */
#define FILE_BUFFERS_BYTES_MAX ((uint64_t)1 << 28)
#define FILE_BUFFERS_FILE_MAX (FILE_BUFFERS_BYTES_MAX + ((uint64_t)1 << 24))

/* --- a model as users name it ---------------------------------------------------------------- */

typedef enum file_model_kind {
    FILE_MODEL_PRESET, /* numbers from a name: random start */
    FILE_MODEL_CONFIG, /* a config.json: random start */
    FILE_MODEL_DIR,    /* a directory: its weights, if it has any */
    FILE_MODEL_GGUF,   /* a GGUF file: its weights */
    FILE_MODEL_PT2     /* what torch.export wrote: its weights */
} file_model_kind;

typedef struct file_model {
    file_model_kind kind;
    graph_config config;
    char *dir;        /* DIR: where; GGUF, PT2: the file, which the readers of weights take, too */
    char *source;     /* CONFIG, DIR: text of config.json; else NULL */
    bool has_weights; /* DIR: weights or an index of them are there */
    char *adapter;    /* a LoRA adapter that belongs to it (peft.h), or NULL */
} file_model;

/* "gpt2-124m", "runs/a/checkpoint-100", "tiny.json"; an adapter's directory is its base model, with
 * the adapter. Free with file_model_free. */
ATOM_MUST atom_status file_model_resolve(const char *spec, file_model *out);
void file_model_free(file_model *model);

/* Those of tokenizer, chat template and generation settings that the model in `from` has into `to`,
 * byte for byte, in place of what is there. */
ATOM_MUST atom_status file_model_copy(const char *from, const char *to);
/* One file of that name, if it is there. */
ATOM_MUST atom_status file_model_copy_one(const char *from, const char *to, const char *name);

/* --- weights --------------------------------------------------------------------------------- */

/*
 * All parameters of g from model.safetensors, else from pytorch_model.bin (torchfile.h), or from the
 * shards of its index, into vector[g->param_extent]; gaps between parameters are left alone. F32, F16 and BF16, names with or
 * without prefix; buffers are skipped (those of somebody's own model must be the model's); a copy of
 * a tied head must equal the embedding.
 * Missing, extra and misshapen tensors are refused by name. Warns of values that are not finite.
 */
ATOM_MUST atom_status file_weights_read(const char *dir, const graph *g, float *vector);
ATOM_MUST atom_status file_weights_read_to(const char *dir, const graph *g, file_vector vector);
bool file_weights_exist(const char *dir);
/* Fails with ATOM_E_USAGE: where the directory's weights are looked for, what is there instead, and
 * `more`, what else to do. */
atom_status file_weights_missing(const char *dir, const char *more);
/*
 * The same, for those who only pass them on: the directory is checked and stays open, and the
 * vector reads from its files (get alone; ranges without gaps). Needs memory for the largest
 * tensor that is transposed; for all of them where it is a GGUF file. g must outlive it, and
 * source, through which one file at a time is read (NULL: none). dtype: that of the embedding; F32
 * of a GGUF file.
 */
typedef struct file_weights file_weights;
ATOM_MUST atom_status file_weights_open(const char *dir, const graph *g, const file_source *source,
                                        file_weights **out);
void file_weights_close(file_weights **w);
file_vector file_weights_vector(file_weights *w);
atom_dtype file_weights_dtype(const file_weights *w);
/*
 * dir/model.safetensors with the names transformers writes, in F32, BF16 or F16, rounded to nearest
 * even; or, where that is larger than shard_bytes, shards of at most so much (but for tensors that are
 * larger alone) and their index. Removes what an older save left.
 */
ATOM_MUST atom_status file_weights_write_as(const char *dir, const graph *g, file_vector vector,
                                            atom_dtype dtype, uint64_t shard_bytes);
/* The same in F32, in shards as large as those of transformers 4. */
ATOM_MUST atom_status file_weights_write(const char *dir, const graph *g, const float *vector);
#define FILE_SHARD_BYTES ((uint64_t)5000000000)
/* Is this parameter stored transposed (Conv1D)? By its name, without prefix. */
bool file_param_transposed(const graph_param *param);

#endif
