/*
 * Training a whole model on this machine: open brings model, data, plan, memory and code together,
 * run steps, close gives everything back. Hooks tell the caller what goes on; a seam (seam.h) lets
 * somebody else take part.
 *
 * Thread: one caller. Errors: status.h; the message says which key, file or device and what to do.
 */
#ifndef ATOM_TRAIN_TRAINER_H
#define ATOM_TRAIN_TRAINER_H

#include "atom/plan/workbench.h"
#include "atom/train/checkpoint.h"
#include "atom/train/config.h"
#include "atom/train/products.h"
#include "atom/train/seam.h"
#include "codegen/lower.h"

typedef struct train_report {
    int64_t step, max_steps;
    double loss, grad_norm, learning_rate;
    double seconds, tokens_per_second; /* of this step */
    double mfu;                        /* 0: unknown peak */
    int64_t tokens_seen;
    bool validation; /* loss is of the validation split */
} train_report;

typedef struct train_summary {
    int64_t first_step, steps;                      /* first step of this run; last finished step */
    double first_loss, final_loss, validation_loss; /* NaN where there is none */
    double predicted_step_seconds, median_step_seconds;
    double predicted_ahead_seconds;   /* of a step whose updates run ahead; 0: none do */
    int64_t ahead_steps, ahead_wrong; /* guesses that they may, right and wrong */
    double tokens_per_second;         /* of the median step; shared: the mean */
    double mean_tokens_per_second;    /* in all `seconds`; shared: of what was trained here */
    uint64_t device_peak_bytes, device_budget_bytes, host_peak_bytes;
    uint64_t host_plan_bytes, model_state_bytes, param_bytes, largest_visit_bytes;
    uint32_t sub_models;
    uint32_t devices;
    double busy_seconds[DEV_STREAM_N]; /* of several devices the mean */
    uint64_t bytes_copied[DEV_STREAM_N];
    /* Compute idle, by the stream that it waited for (swap/stall.h). */
    double waited_seconds[DEV_STREAM_N];
    double seconds;                           /* of all steps of this run */
    double issue_seconds, launch_seconds;     /* the host's of all steps (swap_host_time) */
    double save_seconds, save_waited_seconds; /* of checkpoints written meanwhile; updates waited */
    uint64_t save_copied_bytes;               /* for them, by copy-on-write: in all */
    uint64_t spare_bytes, spare_peak_bytes;   /* host memory for that, beside host_plan_bytes */
    const char *execute;                      /* "generated", "interpreted" */
    char *checkpoint;                         /* the last one saved; owned by the trainer */
    plan_boundaries boundaries;               /* n 0: none */
    bool interrupted;
} train_summary;

typedef struct trainer trainer;

typedef struct train_hooks {
    /* every step and every evaluation, after it was logged; NULL: nobody listens */
    void (*report)(void *ctx, const train_report *report);
    plan_progress_fn progress;                 /* while profiling, pinning, loading */
    void (*note)(void *ctx, const char *text); /* one line for people: what was decided and why */
    /* asked between steps; true: save and stop (a signal came). NULL: never */
    bool (*stop)(void *ctx);
    /* A plan was found that fits this host (trainer_plan, trainer_seam_on_disk): fetch the data that
     * config names. NULL: it is there */
    atom_status (*data)(void *ctx, const trainer *t);
    bool save_nothing;        /* the last step is not saved either: measurements */
    double save_patience_s;   /* how long a last checkpoint that failed is tried again; 0: 600 */
    const train_seam *seam;   /* NULL: nobody takes part */
    const train_plans *plans; /* NULL: every plan is made here */
    void *ctx;
} train_hooks;

/*
 * Everything before the first step: model, data, profile, plan, memory, code, weights or
 * checkpoint. Refuses an output_dir that holds a run unless resuming or overwriting. The config is
 * borrowed.
 */
ATOM_MUST atom_status trainer_open(const train_config *config, const train_hooks *hooks,
                                   trainer **out);
/* Steps to max_steps. ATOM_E_INTERRUPTED after a stop that saved; ATOM_E_DIVERGED on a loss that is
 * not finite; ATOM_E_RESOURCE where the last checkpoint found no room for hooks.save_patience_s. Whatever
 * else could not be written is only noted. The summary is filled as far as it went, also on error. */
ATOM_MUST atom_status trainer_run(trainer *t, train_summary *summary);
void trainer_close(trainer **t);
const train_config *trainer_config(const trainer *t);
const plan_workbench *trainer_workbench(const trainer *t);
const part_plan *trainer_plan(const trainer *t);
/* Where the plan is from: "file", "cache" (a profile of an earlier run), "measured", "pool". */
const char *trainer_plan_origin(const trainer *t);
const gen_lowered *trainer_lowered(const trainer *t);
const part_profile *trainer_profile(const trainer *t);

/* For somebody who takes part, between trainer_open and trainer_run: the master weights,
 * trainer_floats of them. Call trainer_weights_changed after changing them. */
file_vector trainer_weights(trainer *t);
uint64_t trainer_floats(const trainer *t);
ATOM_MUST atom_status trainer_weights_changed(trainer *t);
/* True: memory is short, and whoever takes part keeps on disk what it can. */
bool trainer_seam_on_disk(const trainer *t);
/* For somebody who makes the steps (train_seam.shared), after trainer_open: Muon's products on this
 * run's card. *out is NULL where the host has to make them: without a card, without Muon, with updates:
 * host, or without room. Close it before the trainer. */
ATOM_MUST atom_status trainer_products_open(trainer *t, train_products **out);
/* What a checkpoint takes on the disk, but for headers and small files. */
uint64_t trainer_checkpoint_bytes(const trainer *t);
/* A checkpoint is being written meanwhile. */
bool trainer_is_saving(const trainer *t);
/* How far the run is. marks: the pool.json of the checkpoint it went on from, or NULL. */
typedef struct trainer_place {
    int64_t step;
    uint64_t samples, tokens, sequence; /* sequence: tokens of a sample */
    uint64_t data_hash;                 /* of the training data: text_shards_hash */
    uint64_t data_contents;             /* text_shards_contents; 0: nobody knows */
    const char *marks;
} trainer_place;
trainer_place trainer_where(const trainer *t);
/* Which model is under the adapters of a LoRA run: a hash of all its values, in whatever files they
 * lie. It guards against mistakes, not against attacks: anybody could make another model with this
 * hash. "" where all weights are trained. */
const char *trainer_base(const trainer *t, char text[TRAIN_BASE_BYTES]);
/* Writes config.json (and generation_config.json) of the model as it is trained into dir, and its
 * buffers (file_buffers_write). */
ATOM_MUST atom_status trainer_describe(const trainer *t, const char *dir);

#endif
