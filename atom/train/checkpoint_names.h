/*
 * Names of checkpoints in an output_dir, for those who write them (checkpoint.h has the rest). Inner
 * header of atom/train. Thread: whoever writes the directory.
 */
#ifndef ATOM_TRAIN_CHECKPOINT_NAMES_H
#define ATOM_TRAIN_CHECKPOINT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* "output_dir/checkpoint-STEP", or with ".tmp" behind it while it is written; atom_free. NULL: no
 * memory. */
char *train_checkpoint_path(const char *output_dir, int64_t step, bool unfinished);

/* Removes whole checkpoints but the newest `limit` (0: all stay), and never that of step `saved`. What
 * cannot be removed stays, with a warning. */
void train_checkpoints_limit(const char *output_dir, int64_t limit, int64_t saved);

/* Removes what a process that was killed has left half-written. A member's steps jump, so it may never
 * come to that step again, whose name would be reused. */
void train_checkpoints_tidy(const char *output_dir);

#endif
