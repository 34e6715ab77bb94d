/*
 * A saved model, ready to say what tokens cost: what the two measures of `atom eval` share
 * (evaluate.c, choices.c). It is the trainer's own evaluation: the same graph, kernels and tape,
 * swapped through the device where its memory is capped, so numbers are those of training. Of the host
 * it takes the wire copy (2 or 4 bytes for each parameter), tokens, losses and boundaries of a pass, and
 * windows of files.
 *
 * Where the device's memory is capped, several micro-batches make one pass through the sub-models, so
 * that weights are fetched once for all of them. Neither losses nor the order of their sums depend on
 * how many these are.
 *
 * Zero it, then model, load, use the engine, close; close takes half-open ones.
 * Ownership: texts of the configuration are borrowed until close. Thread: one caller.
 * Errors: ATOM_E_USAGE for a model without weights; those of workbench, plan and weights.
 */
#ifndef ATOM_GENERATE_EVALUATOR_H
#define ATOM_GENERATE_EVALUATOR_H

#include "atom/train/engine.h"

typedef struct eval_model {
    plan_workbench *bench;
    part_profile *profile;
    part_plan *plan;
    train_engine *engine; /* NULL until loaded */
    file_odd odd;         /* of the weights */
} eval_model;

/* The graph [B,T] of a model that has weights. config->trains must be false. */
ATOM_MUST atom_status eval_model_open(eval_model *e, const plan_workbench_config *config);
/* Its plan, memory and weights. device_memory 0: what is free of the device; apart: samples may hold several
 * documents (train_engine_starts), which the backend must know (KRN_CAN_APART); micro_batches: how many
 * will be evaluated. e->plan->micro_batches of them are evaluated in one pass, at most; for how many are
 * chosen see docs/design/engine.md#memory. */
ATOM_MUST atom_status eval_model_load(eval_model *e, uint64_t device_memory, bool apart,
                                      uint64_t micro_batches);
void eval_model_close(eval_model *e);

/* How many micro-batches of so many tokens (`each`) make a pass at most: as many as have hide_tokens, but no
 * more than have 32,768 tokens, than 64 and than there are; one at least. */
uint32_t eval_pass_most(double hide_tokens, uint64_t each, uint64_t micro_batches);

/* Is a plan better than another one with fewer or more micro-batches? Fewer bytes over the link for each
 * micro-batch are. Seconds, which come from guessed rates, only count where they differ by more than 2 %. */
bool eval_plan_is_better(const part_plan *plan, const part_plan *than);

#endif
