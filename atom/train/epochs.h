/*
 * num_train_epochs: the length of training in passes over the data instead of steps.
 *
 * N passes over W windows (text/dataset.h) are floor(N W / (B C)) steps of C micro-batches of B, at
 * least 1; the passes follow one another without a gap, so that N may be a fraction.
 */
#ifndef ATOM_TRAIN_EPOCHS_H
#define ATOM_TRAIN_EPOCHS_H

#include "atom/train/config.h"

/*
 * Where config says num_train_epochs: counts the windows of its data at its (or its model's) length
 * and sets max_steps; else does nothing. Before trainer_open, which looks at max_steps alone.
 * Errors: those of the model and the data; ATOM_E_USAGE where they make fewer than one step or too many.
 */
ATOM_MUST atom_status train_epochs_resolve(train_config *config);

#endif
