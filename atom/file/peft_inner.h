/*
 * What the files of peft.h share among themselves: peft.c, peft_targets.c, peft_weights.c,
 * peft_copies.c, peft_merge.c.
 */
#ifndef ATOM_FILE_PEFT_INNER_H
#define ATOM_FILE_PEFT_INNER_H

#include "atom/file/hfweights.h"
#include "atom/file/peft.h"

#include <jansson.h>

#define FILE_LORA_ALL "all-linear"
/* What to do about an adapter that is not supported. */
#define FILE_LORA_MERGE_IT                                                                         \
    "merge the adapter with PEFT, model.merge_and_unload().save_pretrained(dir), and name that "   \
    "directory as the model"

/* peft_targets.c: the patterns of an adapter_config.json whose keys have the right types. */
ATOM_MUST atom_status file_lora_check_patterns(const char *path, const json_t *config);
/* What "all-linear" stands for, as a list of names that PEFT chooses the same modules by. */
ATOM_MUST atom_status file_lora_all_names(const graph *base, json_t **out);
/* Which parameters of base are trained whole (modules_to_save): trained[base->n_params]. */
ATOM_MUST atom_status file_lora_saved(const graph *base, const file_lora *lora, uint8_t *trained);

enum { FILE_LORA_NAME_MAX = FILE_NAME_MAX + 96 };

/* peft_targets.c: what PEFT calls a tensor of an adapter; name: "layers.0.mlp.up_proj.lora_A.weight". */
void file_lora_tensor_name(const graph *g, const char *name, char out[FILE_LORA_NAME_MAX]);

typedef struct adapter_part {
    graph_target target;
    float *A, *B;     /* [rank, in], [rows, rank] */
    float *magnitude; /* DoRA: [rows]; else NULL */
    double *factor;   /* DoRA: magnitude over the norm of W + scale B A, once measured */
} adapter_part;

/* A tensor of a module that is trained whole: read from the file where it is used. */
typedef struct adapter_saved {
    file_slice slice;
    const file_tensor *tensor;
    float *turned; /* of a slice that is stored transposed or by heads: all of it, as it is here */
} adapter_saved;

struct file_adapter {
    file_lora lora;
    const graph *base;
    file_safetensors *file;
    adapter_part *parts; /* ascending (param, first) */
    uint32_t n;
    adapter_saved *saved;
    uint32_t n_saved;
    file_vector under; /* file_adapter_over */
};

/* peft_weights.c: its parts, without numbers. */
ATOM_MUST atom_status file_adapter_targets(file_adapter *a);
/* peft_copies.c: how many tensors of the file are copies of weights of the model in model_dir.
 * ATOM_E_UNSUPPORTED: one of them differs. */
ATOM_MUST atom_status file_adapter_check_copies(const file_adapter *a, const char *model_dir,
                                                uint32_t *n);
/* Elements [at, at + n) of it. */
ATOM_MUST atom_status file_adapter_saved_read(const file_adapter *a, const adapter_saved *s,
                                              uint64_t at, uint64_t n, float *to);

#endif
