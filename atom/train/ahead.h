/*
 * When a step may guess that its gradient will not be clipped, and so update behind its backward
 * (swap/tape.h, SWAP_TAPE_AHEAD). A right guess hides the disk's work behind all of the step, not
 * behind forward only; a wrong one costs about a step. Pure; no clock, no files. As with branch
 * predictors, what happened lately stands for what comes, and who was wrong waits longer.
 *
 * Errors: none.
 */
#ifndef ATOM_TRAIN_AHEAD_H
#define ATOM_TRAIN_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

typedef enum train_update_ahead {
    TRAIN_AHEAD_AUTO, /* where it is faster, and lately no gradient came near the limit */
    TRAIN_AHEAD_NEVER,
    TRAIN_AHEAD_ALWAYS /* every step, for tests */
} train_update_ahead;

typedef struct train_ahead {
    train_update_ahead mode;
    bool possible; /* the plan has the tapes, and with auto they are faster */
    double limit;  /* max_grad_norm */
    uint32_t calm; /* steps in a row whose norm was well below the limit */
    uint32_t wait; /* so many are asked for before a guess; 0: the first time's */
    uint32_t row;  /* right guesses since the last wrong one */
    uint64_t right, wrong;
} train_ahead;

enum { TRAIN_AHEAD_WAIT = 4, TRAIN_AHEAD_WAIT_MAX = 64 };

/* Does the next step guess? */
bool train_ahead_next(const train_ahead *ahead);
/* After a step that made this norm: did it guess, and was it clipped? */
void train_ahead_saw(train_ahead *ahead, double norm, bool guessed, bool clipped);

#endif
