/*
 * Configuration of `atom train`: the plain struct and its one option table. Defaults are those of
 * the `pretrain` preset; `sft` has others for what it names
 * (docs/design/files.md#names-and-defaults).
 *
 * Ownership: texts belong to the struct; train_config_free. Thread: none of its own. Errors:
 * options.h.
 */
#ifndef ATOM_TRAIN_CONFIG_H
#define ATOM_TRAIN_CONFIG_H

#include "atom/options/options.h"
#include "atom/plan/workbench.h"

typedef enum train_scheduler {
    TRAIN_CONSTANT,
    TRAIN_LINEAR,
    TRAIN_COSINE,
    TRAIN_WSD
} train_scheduler;
typedef enum train_report_to { TRAIN_REPORT_NONE, TRAIN_REPORT_TENSORBOARD } train_report_to;
typedef enum train_packing {
    TRAIN_PACKING_AUTO, /* apart with preset sft, across else */
    TRAIN_PACKING_ACROSS,
    TRAIN_PACKING_APART
} train_packing;
typedef enum train_init { TRAIN_INIT_AUTO, TRAIN_INIT_RANDOM } train_init;
typedef enum train_preset { TRAIN_PRETRAIN, TRAIN_SFT } train_preset;
typedef enum train_execute {
    TRAIN_EXECUTE_AUTO,
    TRAIN_EXECUTE_GENERATED,
    TRAIN_EXECUTE_INTERPRETED
} train_execute;

typedef struct train_config {
    /* what */
    char *model; /* preset name, directory or config.json */
    char *data;  /* directory with train_*.bin, val_*.bin, tokenizer.json */
    char *output_dir;
    char *resume_from_checkpoint; /* path, "auto", "none" */
    bool overwrite;
    int32_t init; /* train_init: where the first weights come from */

    /* where */
    char *device;            /* "auto", "cpu", "cuda", "cuda:N" */
    int64_t devices;         /* that share the micro-batches of a step: 1 .. 8 */
    uint64_t device_memory;  /* bytes, of each; 0: no budget */
    uint64_t host_memory;    /* bytes; 0: what the machine has */
    int32_t optimizer_state; /* plan_state */
    int32_t store;           /* store_kind: how the disk is reached */
    char *store_dir;         /* where the optimizer's state goes when on disk; NULL: output_dir */
    uint64_t link_bandwidth; /* bytes per second and direction; 0: not throttled */
    int64_t threads;         /* -1: all cores */
    int32_t dtype;           /* plan_dtype */
    int32_t moments_dtype;   /* atom_dtype: ATOM_F32 or ATOM_BF16 */
    int32_t optimizer;       /* graph_optimizer: of the hidden matrices */

    /* batch and length */
    int64_t micro_batch_size;
    int64_t gradient_accumulation_steps;
    int64_t sequence_len; /* -1: the model's positions */
    int64_t max_steps;
    int32_t packing;         /* train_packing */
    double num_train_epochs; /* 0: max_steps counts; else it is computed from it (epochs.h) */

    /* optimizer */
    int32_t preset; /* train_preset: the defaults below */
    double learning_rate;
    int32_t lr_scheduler; /* train_scheduler */
    double min_lr_ratio;  /* where the schedule ends; -1: 0.1 for cosine, 0 for linear */
    double decay_ratio;   /* wsd: the last part of max_steps, in which the rate falls */
    int64_t warmup_steps; /* -1: 2 % of max_steps, 3 % with sft */
    double weight_decay, adam_beta1, adam_beta2, adam_epsilon;
    double muon_momentum;
    double max_grad_norm; /* 0: no clipping */
    double dropout;       /* -1: what the model's configuration says */
    int64_t seed;

    /* LoRA */
    file_lora_keys lora;
    char *adapter; /* directory of an adapter to go on with; NULL: none */

    /* as if the model were spread over hosts */
    char *compress_boundaries; /* plan_workbench_config; NULL: as the checkpoint says, else none */
    char *at;

    /* log, evaluate, save */
    int64_t logging_steps;
    int32_t report_to;  /* train_report_to */
    int64_t eval_steps; /* 0: never */
    int64_t eval_batches;
    int64_t save_steps;       /* 0: only the last step */
    int64_t save_total_limit; /* 0: keep all */
    uint64_t save_rate;       /* bytes per second, while it trains; 0: no cap */
    int32_t save_dtype;       /* atom_dtype of a checkpoint's weights */

    /* plan and execution */
    char *plan;           /* file; NULL: search or cache */
    char *profile;        /* file; NULL: measure or cache */
    int32_t recompute;    /* plan_recompute */
    int32_t updates;      /* plan_updates */
    int32_t update_ahead; /* train_update_ahead */
    int32_t execute;      /* train_execute */
    char *trace;          /* file; NULL: none */

    /* command line only */
    bool json;
    bool quiet;
    bool dry_run;
    bool print_config;
} train_config;

extern const opt_command train_command;

/* Words after `atom train`. *parsed is optional. Checks what spans several keys. */
ATOM_MUST atom_status train_config_parse(int argc, char **argv, train_config *config,
                                         opt_parsed *parsed);
/* All defaults (required keys stay NULL). For tests and the library's callers. */
ATOM_MUST atom_status train_config_defaults(train_config *config);
/* After opt_parse (train_config_parse does it): the preset's defaults, epochs or steps, overwrite
 * or resume, and train_config_check. */
ATOM_MUST atom_status train_config_settle(train_config *config, opt_parsed *parsed);
/* What spans several keys: warmup <= max_steps, ... */
ATOM_MUST atom_status train_config_check(const train_config *config);
void train_config_free(train_config *config);

/* The words for optimizer and lr_scheduler. */
const char *train_config_optimizer(const train_config *config);
const char *train_config_scheduler(const train_config *config);
/* warmup_steps with "auto" resolved. */
int64_t train_config_warmup(const train_config *config);
/* ATOM_E_USAGE where the learning rate would not reach its peak; max_steps is known. */
ATOM_MUST atom_status train_config_check_warmup(const train_config *c);
/* min_lr_ratio, with "auto" resolved. */
double train_config_min_lr_ratio(const train_config *config);

#endif
