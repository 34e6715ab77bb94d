/*
 * What the two halves of the trainer share: trainer_open.c brings everything up and down, trainer.c
 * steps. Internal to atom/train.
 */
#ifndef ATOM_TRAIN_TRAINER_INNER_H
#define ATOM_TRAIN_TRAINER_INNER_H

#include "atom/text/dataset.h"
#include "atom/train/checkpoint.h"
#include "atom/train/engine.h"
#include "atom/train/metrics.h"
#include "atom/train/schedule.h"
#include "atom/train/trainer.h"

struct trainer {
    const train_config *config;
    train_hooks hooks;
    train_workbench *bench;
    part_profile *profile;
    part_plan *plan;
    train_engine *engine;
    text_shards *train, *val;
    text_sampler sampler;
    train_metrics *metrics;
    swap_trace *trace;
    train_schedule schedule;
    train_state state;
    int64_t end_token;
    uint32_t vocab; /* of the data's tokenizer; 0: unknown */
    int64_t first_step;
    double trace_seconds; /* where the next step goes in the trace */
    double *step_seconds; /* of this run, for the median */
    size_t steps_n, steps_room;
    train_summary summary;
};

/* One line for people, through the hook. */
void trainer_note(const trainer *t, const char *fmt, ...) ATOM_PRINTF(2, 3);
/* The run's present state as a checkpoint; borrows everything. */
train_checkpoint trainer_checkpoint(trainer *t);

#endif
