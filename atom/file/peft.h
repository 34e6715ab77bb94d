/*
 * LoRA adapters as PEFT's directories: adapter_config.json and adapter_model.safetensors, both
 * ways.
 *
 * A target is a module of the model as files name it ("layers.0.self_attn.q_proj"), which PEFT's
 * target_modules choose by the end of their names; the graph fuses some of them, so a target is a
 * run of rows of a parameter (graph_target). Tensors are called "base_model.model." + the module's
 * full name + ".lora_A.weight" [rank, in] and ".lora_B.weight" [out, rank]; what the module adds is
 * (scale) B A x with scale = lora_alpha / r, or / sqrt(r) with use_rslora.
 *
 * Ownership: texts belong to the struct; file_lora_free. Thread: no shared state.
 * Errors: ATOM_E_FORMAT names file and key or tensor; ATOM_E_UNSUPPORTED kinds of adapters that
 * atom has not; ATOM_E_USAGE a target that the model has not.
 * Source: docs/design/files.md#adapters; Hu et al. 2021.
 */
#ifndef ATOM_FILE_PEFT_H
#define ATOM_FILE_PEFT_H

#include "atom/file/hfdir.h"
#include "atom/file/vector.h"
#include "atom/graph/models.h"

typedef struct file_lora {
    int64_t rank; /* r; 0: there is no adapter */
    double alpha, dropout;
    bool rslora;
    char *targets; /* names with commas between, or "all-linear" */
    char *base;    /* base_model_name_or_path; NULL: not said */
} file_lora;
void file_lora_free(file_lora *lora);
graph_lora_config file_lora_settings(const file_lora *lora);

/* Has the directory an adapter_config.json? */
bool file_lora_is_dir(const char *dir);
ATOM_MUST atom_status file_lora_parse(const char *path, const char *text, size_t bytes,
                                      file_lora *out);
/* dir/adapter_config.json */
ATOM_MUST atom_status file_lora_read(const char *dir, file_lora *out);
/* The targets of a model without adapters, ascending. ATOM_E_USAGE: a name that no module ends in,
 * with those that there are. Free with atom_free. */
ATOM_MUST atom_status file_lora_targets(const graph *base, const char *names, graph_target **out,
                                        uint32_t *n);
/* The model with adapters; fused. */
ATOM_MUST atom_status file_lora_graph(const graph *base, const file_lora *lora, graph **out);

/*
 * Both files of an adapter into dir, in F32. g: made by file_lora_graph from base; from: the
 * trained parameters of g.
 */
ATOM_MUST atom_status file_lora_write(const char *dir, const file_lora *lora, const graph *base,
                                      const graph *g, file_vector from);

/* An adapter in memory, for a model without adapters; base must outlive it. */
typedef struct file_adapter file_adapter;
ATOM_MUST atom_status file_adapter_open(const char *dir, const graph *base, file_adapter **out);
void file_adapter_close(file_adapter **a);
/* Its weights to where g, made from the same base, has them. ATOM_E_USAGE names what differs. */
ATOM_MUST atom_status file_adapter_put(const file_adapter *a, const graph *g, file_vector to);
/* The base's vector with the adapter merged in: what get reads, and what put writes, has it added.
 * Valid as long as the adapter; one at a time. */
file_vector file_adapter_over(file_adapter *a, file_vector base);

/* Where the model's tokenizer is: beside its adapter, if that has one; else beside the model. */
const char *file_lora_tokenizer_dir(const file_model *model);
/* file_weights_read_to of the model's directory, with its adapter, if it has one, merged in. */
ATOM_MUST atom_status file_merged_read(const file_model *model, const graph *g, file_vector to);

#endif
