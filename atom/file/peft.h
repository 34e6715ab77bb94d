/*
 * LoRA adapters as PEFT's directories: adapter_config.json and adapter_model.safetensors, both
 * ways.
 *
 * A target is a module of the model as files name it ("layers.0.self_attn.q_proj"), which PEFT's
 * target_modules choose by the end of their names or by a pattern, and layers_to_transform and
 * exclude_modules narrow down; the graph fuses some of them, so a target is a run of rows of a
 * parameter (graph_target). rank_pattern and alpha_pattern give some targets a rank and an alpha of
 * their own. modules_to_save are trained whole, and stand in the adapter's file under their names.
 *
 * Tensors are called "base_model.model." + the module's full name + ".lora_A.weight" [rank, in] and
 * ".lora_B.weight" [out, rank]; what the module adds is (scale) B A x with scale = lora_alpha / r,
 * or / sqrt(r) with use_rslora. With use_dora each row of W + scale B A is then given the length
 * that ".lora_magnitude_vector" [out] says.
 *
 * Ownership: texts belong to the struct; file_lora_free. Thread: no shared state.
 * Errors: ATOM_E_FORMAT names file and key or tensor; ATOM_E_UNSUPPORTED kinds of adapters that
 * atom has not; ATOM_E_USAGE a target that the model has not.
 * Source: docs/design/files.md#adapters; Hu et al. 2021; Liu et al. 2024 (DoRA).
 */
#ifndef ATOM_FILE_PEFT_H
#define ATOM_FILE_PEFT_H

#include "atom/file/hfdir.h"
#include "atom/file/vector.h"
#include "atom/graph/models.h"

typedef struct file_lora {
    int64_t rank; /* r; 0: there is no adapter */
    double alpha, dropout;
    bool rslora, dora;
    bool asked;            /* by a run's keys, of which each must choose something */
    char *targets;         /* for people: names with commas between, a pattern, or "all-linear" */
    char *base;            /* base_model_name_or_path; NULL: not said */
    struct json_t *config; /* all keys, checked: which modules, and patterns of ranks and alphas */
} file_lora;
void file_lora_free(file_lora *lora);
/* Of targets without a pattern of their own. */
graph_lora_config file_lora_settings(const file_lora *lora);

/* A new adapter as a run's keys have it. Texts may be NULL but for targets. */
typedef struct file_lora_keys {
    int64_t r;    /* -1: no adapter, all of the model is trained */
    double alpha; /* -1: twice r */
    double dropout;
    bool rslora, dora;
    char *targets; /* names with commas between, "all-linear", or a pattern of whole names */
    char *save;    /* modules_to_save: names with commas between */
    char *layers;  /* layers_to_transform: "0,2,8-15" */
    char *ranks;   /* rank_pattern: "q_proj=16,v_proj=4" */
    char *alphas;  /* alpha_pattern */
} file_lora_keys;
/* keys->r is above 0; base may be NULL. ATOM_E_USAGE names the key. file_lora_free it. */
ATOM_MUST atom_status file_lora_make(const file_lora_keys *keys, const char *base, file_lora *out);
/* Would both train the same modules, scaled the same? */
bool file_lora_alike(const file_lora *a, const file_lora *b);
/* Do they name the same modules that are trained whole? */
bool file_lora_saves_alike(const file_lora *a, const file_lora *b);

/* Has the directory an adapter_config.json? */
bool file_lora_is_dir(const char *dir);
ATOM_MUST atom_status file_lora_parse(const char *path, const char *text, size_t bytes,
                                      file_lora *out);
/* dir/adapter_config.json */
ATOM_MUST atom_status file_lora_read(const char *dir, file_lora *out);
/*
 * Where modules_to_save name the embedding or the head of a model in which they are one, PEFT (0.14)
 * trains a copy of what is named and leaves the other as it is. Then the head of config gets a
 * parameter of its own, which the model's files have in the embedding; else nothing happens. Before
 * the graph of the model is built. ATOM_E_UNSUPPORTED: ensure_weight_tying, which later PEFT has.
 */
ATOM_MUST atom_status file_lora_untie(const file_lora *lora, graph_config *config);
/* By the adapter_config.json of a directory; NULL: there is no adapter. */
ATOM_MUST atom_status file_adapter_untie(const char *dir, graph_config *config);
/* Warns if the adapter in `dir` was made for a model that is here, too, and is another one than `model`: a
 * directory or a file that the user has named. */
ATOM_MUST atom_status file_adapter_warn(const char *dir, const char *model);
/* The targets of a model without adapters, ascending, with their ranks and scales. ATOM_E_USAGE: a
 * name that no module ends in, with those that there are. Free with atom_free. */
ATOM_MUST atom_status file_lora_targets(const graph *base, const file_lora *lora,
                                        graph_target **out, uint32_t *n);
/* The model with adapters; fused. */
ATOM_MUST atom_status file_lora_graph(const graph *base, const file_lora *lora, graph **out);

/* adapter_config.json alone. */
ATOM_MUST atom_status file_lora_write_config(const char *dir, const file_lora *lora,
                                             const graph *base);
/*
 * Both files of an adapter into dir, in F32. g: made by file_lora_graph from base; from: the
 * trained parameters of g, those of modules_to_save among them.
 */
ATOM_MUST atom_status file_lora_write(const char *dir, const file_lora *lora, const graph *base,
                                      const graph *g, file_vector from);

/* An adapter in memory (but for modules_to_save, which are read where they are used), for a model
 * without adapters; base must outlive it. */
typedef struct file_adapter file_adapter;
/* model_dir: where base's weights are; copies of embedding and head beside the adapter are passed over
 * where they equal those. NULL: there may be none. */
ATOM_MUST atom_status file_adapter_open(const char *dir, const graph *base, const char *model_dir,
                                        file_adapter **out);
void file_adapter_close(file_adapter **a);
/* Its weights to where g, made from the same base, has them. ATOM_E_USAGE names what differs. */
ATOM_MUST atom_status file_adapter_put(const file_adapter *a, const graph *g, file_vector to);
/* DoRA: the lengths of rows, from the model's weights; before file_adapter_over. Nothing happens for
 * other adapters. */
ATOM_MUST atom_status file_adapter_measure(file_adapter *a, const char *model_dir);
/* The base's vector with the adapter merged in: what get reads, and what put writes, has it added.
 * Valid as long as the adapter; one at a time. */
file_vector file_adapter_over(file_adapter *a, file_vector base);

/* A new DoRA adapter: its lengths of rows are those of the model's weights. Nothing happens for other
 * adapters. g: made by file_lora_graph from base. */
ATOM_MUST atom_status file_lora_start(const file_lora *lora, const graph *base,
                                      const char *model_dir, const graph *g, file_vector to);

/* Base's vector for whoever reads a model's files, in a graph that file_lora_graph made of it: what is
 * frozen is put where g has it, and what is trained of the base, too, if `whole`. */
typedef struct file_lora_base {
    const graph *base, *g;
    file_vector to;
    uint64_t *place; /* by parameter of base: its offset in g; UINT64_MAX: it is left out */
} file_lora_base;
ATOM_MUST atom_status file_lora_base_open(const graph *base, const graph *g, bool whole,
                                          file_vector to, file_lora_base *out);
void file_lora_base_close(file_lora_base *b);
/* Elements [first, first + n) of base's vector. */
ATOM_MUST atom_status file_lora_base_put(const file_lora_base *b, uint64_t first, uint64_t n,
                                         const float *from);

/* Where the model's tokenizer is: beside its adapter, if that has one; else beside the model. */
const char *file_lora_tokenizer_dir(const file_model *model);
/* file_weights_read_to of the model's directory, with its adapter, if it has one, merged in. */
ATOM_MUST atom_status file_merged_read(const file_model *model, const graph *g, file_vector to);

#endif
