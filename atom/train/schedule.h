/*
 * The learning rate of each step. Steps count from 1.
 *
 *   warmup:  peak * min(1, step / warmup_steps); 0 steps: none
 *   then, with p = (step - warmup) / (max - warmup) in 0 .. 1:
 *     constant  peak
 *     linear    peak - (peak - end) * p
 *     cosine    end + (peak - end) * (1 + cos(pi p)) / 2
 *     wsd       peak; in the last decay_steps a line to the end (Hu et al. 2024, MiniCPM)
 *
 * So the first step has a part of the peak and the last one the end, which may be 0: such a step changes no weight.
 * Schedulers of PyTorch and transformers count from 0: there the first step of a warmup has 0, and the last a
 * step's part of the peak. It stays so, since runs go on, and members of a pool agree, by this function.
 *
 * Pure; computed in double on the host, so equal on every device. Source:
 * docs/design/engine.md#defaults.
 */
#ifndef ATOM_TRAIN_SCHEDULE_H
#define ATOM_TRAIN_SCHEDULE_H

#include "atom/train/config.h"

typedef struct train_schedule {
    train_scheduler kind;
    double peak, end;
    int64_t warmup_steps, max_steps, decay_steps;
} train_schedule;

/* With the "auto" values of the configuration resolved. */
train_schedule train_schedule_make(const train_config *config);
/* step >= 1; past max_steps it stays at the end. */
double train_schedule_rate(const train_schedule *schedule, int64_t step);

#endif
