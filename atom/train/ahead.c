/*
 * Owns the decision to guess. One idea: some calm steps are needed before the first guess, and
 * twice as many after each wrong one, so that a run that is often clipped loses next to nothing.
 * Refuses to stop while its guesses are right: to begin and to end costs time too.
 */
#include "atom/train/ahead.h"

static const double CALM = 0.8; /* of the limit */

static uint32_t wanted(const train_ahead *a)
{
    return a->wait ? a->wait : TRAIN_AHEAD_WAIT;
}

bool train_ahead_next(const train_ahead *a)
{
    if (!a->possible || a->mode == TRAIN_AHEAD_NEVER)
        return false;
    return a->mode == TRAIN_AHEAD_ALWAYS || a->row > 0 || a->calm >= wanted(a);
}

void train_ahead_saw(train_ahead *a, double norm, bool guessed, bool clipped)
{
    a->calm = norm <= CALM * a->limit ? a->calm + (a->calm < UINT32_MAX) : 0;
    if (!guessed)
        return;
    if (!clipped) {
        a->right++;
        if (++a->row >= TRAIN_AHEAD_WAIT_MAX) {
            a->row = TRAIN_AHEAD_WAIT_MAX;
            a->wait = 0; /* long ago */
        }
        return;
    }
    a->wrong++;
    a->wait = 2 * wanted(a);
    a->wait = a->wait < TRAIN_AHEAD_WAIT_MAX ? a->wait : TRAIN_AHEAD_WAIT_MAX;
    a->row = a->calm = 0;
}
