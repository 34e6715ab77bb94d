/*
 * Checkpoints: Hugging Face model directories plus our state.
 *
 *   output_dir/checkpoint-120/
 *     config.json generation_config.json model.safetensors   what transformers loads (F32 masters,
 *                                                          or rounded to `dtype`)
 *     adapter_config.json adapter_model.safetensors          of a LoRA run, in place of the first
 *     tokenizer.json tokenizer_config.json                   when the data set has a tokenizer
 *     optimizer.safetensors                                  exp_avg.NAME and exp_avg_sq.NAME of what
 *                                                          AdamW trains, momentum_buffer.NAME of
 *                                                          what Muon trains, F32 or BF16, atom's
 *                                                          layout; master.NAME where weights are
 *                                                          rounded above
 *     atom_state.json                                        step, data position, seed; versioned
 *     trainer_state.json                                     what plotting scripts read
 *     pool.json                                              of a run in a pool: how far the pool is in it
 *
 * A checkpoint is written under a temporary name, synced and renamed: it is there whole or not at
 * all. Errors: ATOM_E_RESOURCE for a full disk (nothing old is touched), ATOM_E_FORMAT for a
 * damaged one.
 */
#ifndef ATOM_TRAIN_CHECKPOINT_H
#define ATOM_TRAIN_CHECKPOINT_H

#include "atom/file/hfdir.h"
#include "atom/file/peft.h"
#include "atom/graph/graph.h"
#include "atom/plan/workbench.h"
#include "atom/train/mark.h"

enum { TRAIN_STATE_VERSION = 1, TRAIN_BASE_BYTES = 33 };

typedef struct train_state {
    int64_t step;    /* finished steps */
    int64_t samples; /* position in the order of training (text/dataset.h) */
    int64_t tokens_seen;
    uint64_t seed, data_hash, data_contents; /* text_shards_hash, text_shards_contents */
    /* Of the weights and the moments in the checkpoint's files (mark.h); 0: an older atom's. */
    uint64_t weights_mark, moments_mark;
    train_sum weights_sum, moments_sum; /* of all their numbers; n is 0: an older atom's */
    int64_t micro_batch, sequence, micro_batches, max_steps;
    double loss; /* of that step; NaN if unknown */
    /* How it was trained, to tell what changes; NaN and "": the checkpoint does not say. */
    double learning_rate, weight_decay, max_grad_norm;
    double adam_beta1, adam_beta2, adam_epsilon, muon_momentum;
    double warmup_steps, min_lr_ratio, decay_ratio; /* with max_steps and the above: the schedule */
    double embd_pdrop, attn_pdrop, resid_pdrop;     /* of the model; adapters have no config.json */
    char lr_scheduler[16], dtype[8], optimizer[8], packing[8];
    char compress_boundaries[ATOM_CODEC_TEXT_BYTES], at[PLAN_AT_BYTES]; /* "": none, and nowhere */
    char base[TRAIN_BASE_BYTES]; /* trainer_base, of the model under adapters; "": unknown */
} train_state;

typedef struct train_checkpoint {
    const graph *g;
    const graph_config *config;
    const char *source;    /* an imported config.json whose unknown keys are kept, or NULL */
    const char *data;      /* data set directory whose tokenizer travels along, or NULL */
    const char *model_dir; /* where training started from: its tokenizer files travel along where
                              the tokenizer is the same, its settings for generation also where only
                              the tokens are; or NULL */
    file_ends ends;        /* of the data set's tokenizer */
    file_vector master, m, v;
    const char *pool;   /* text of pool.json, of a run in a pool (pool.h); or NULL */
    atom_dtype dtype;   /* of the weights that transformers loads; what is resumed from is exact */
    atom_dtype moments; /* load: what the file's are in; saved are g->moments */
    const graph *base;  /* a LoRA run: the model without adapters; NULL: all of it is trained */
    const file_lora *lora; /* with base: the adapters, whose directory a checkpoint then is (F32) */
    train_state state;
} train_checkpoint;

/* Saves output_dir/checkpoint-STEP, then removes the oldest beyond `limit` (0: keep all).
 * *path is what was written; free with atom_free. */
ATOM_MUST atom_status train_checkpoint_save(const char *output_dir, const train_checkpoint *c,
                                            int64_t limit, char **path);

/* Reads weights, moments and state of a checkpoint directory into the vectors of c. Files that are not
 * those that were saved are refused: of another step, another run, or another model, or damaged. */
ATOM_MUST atom_status train_checkpoint_load(const char *path, train_checkpoint *c);

/* What saving writes, but for headers and small files. */
uint64_t train_checkpoint_bytes(const train_checkpoint *c);
/* Whole checkpoints in output_dir. */
uint32_t train_checkpoint_count(const char *output_dir);

/* The name of a checkpoint-STEP in output_dir that is not one of ours, or only a part of one; NULL: none.
 * Free with atom_free. */
char *train_checkpoint_foreign(const char *output_dir);

/* The name of a checkpoint in output_dir whose step is written with zeros in front (checkpoint-040), so that it
 * does not count, and is above that of all that do; NULL: none. Free with atom_free. */
char *train_checkpoint_padded(const char *output_dir);

/* The name of a file or link in output_dir where a checkpoint of one of the steps after+1 .. last would be
 * written, which could not take its place; NULL: there is none. *link: whether it is a link, to whatever.
 * Free with atom_free. */
char *train_checkpoint_blocked(const char *output_dir, int64_t after, int64_t last, bool *link);

/* The step that the directory's name says, or -1 where it is not a checkpoint-STEP. */
int64_t train_checkpoint_step(const char *path);

/* The newest whole checkpoint of output_dir, or NULL in *path when there is none. */
ATOM_MUST atom_status train_checkpoint_newest(const char *output_dir, char **path);

/* The state that belongs to a generation of the disk tier, in output_dir/optimizer-N.json: written
 * before the step is committed there, so that the committed one is always described. */
ATOM_MUST atom_status train_disk_state_write(const char *output_dir, uint32_t generation,
                                             const train_state *state);
ATOM_MUST atom_status train_disk_state_find(const char *output_dir, uint32_t generation,
                                            train_state *state); /* whatever its step */
ATOM_MUST atom_status train_disk_state_read(const char *output_dir, uint32_t generation,
                                            int64_t step, train_state *state);

/* atom_state.json, or under another name; trainer_state.json. */
ATOM_MUST atom_status train_state_write(const char *dir, const char *name,
                                        const train_state *state);
ATOM_MUST atom_status train_trainer_state_write(const char *dir, const train_state *state);
/* atom_state.json alone (`atom inspect`). */
ATOM_MUST atom_status train_state_read(const char *path, train_state *state);
/* The same from memory; path is for messages. */
ATOM_MUST atom_status train_state_parse(const char *path, const char *text, size_t bytes,
                                        train_state *state);

#endif
