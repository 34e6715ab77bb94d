/*
 * A saved model, ready to say what tokens cost: what the two measures of `atom eval` share
 * (evaluate.c, choices.c). It is the trainer's own evaluation: the same graph, kernels and tape,
 * swapped through the device where its memory is capped, so numbers are those of training.
 *
 * Zero it, then model, load, use the engine (micro-batch 0), close; close takes half-open ones.
 * Ownership: texts of the configuration are borrowed until close. Thread: one caller.
 * Errors: ATOM_E_USAGE for a model without weights; those of workbench, plan and weights.
 */
#ifndef ATOM_GENERATE_EVALUATOR_H
#define ATOM_GENERATE_EVALUATOR_H

#include "atom/train/engine.h"

typedef struct train_evaluator {
    train_workbench *bench;
    part_profile *profile;
    part_plan *plan;
    train_engine *engine; /* NULL until loaded */
} train_evaluator;

/* The graph [B,T] of a model that has weights. config->trains must be false. */
ATOM_MUST atom_status train_evaluator_model(train_evaluator *e, const train_bench_config *config);
/* Its plan, memory and weights. device_memory 0: all of the device; apart: samples may hold several
 * documents (train_engine_starts), which the backend must know (KRN_CAN_APART). */
ATOM_MUST atom_status train_evaluator_load(train_evaluator *e, uint64_t device_memory, bool apart);
void train_evaluator_close(train_evaluator *e);

#endif
