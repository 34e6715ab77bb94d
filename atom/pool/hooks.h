/*
 * How a program hears of its member's run in a pool (run.h), and stops it. Thread: hooks are called
 * on the thread that opens and trains.
 */
#ifndef ATOM_POOL_HOOKS_H
#define ATOM_POOL_HOOKS_H

#include "atom/train/trainer.h"
#include "gossip/pool/pool.h"

typedef enum pool_phase {
    POOL_PHASE_TRAINING, /* the weights are here, steps begin */
    POOL_PHASE_RESTING,  /* nothing is computed for a while: limits, the user, too few members */
    POOL_PHASE_LEAVING,  /* the last step is saved; goodbyes */
} pool_phase;

/* How the caller hears of it, and stops it. Any may be NULL. */
typedef struct pool_hooks {
    void *ctx;
    void (*note)(void *ctx, const char *text); /* one line for people: what was decided, and why */
    plan_progress_fn progress;                 /* while profiling, pinning, loading */
    void (*report)(void *ctx, const train_report *report); /* every step and every evaluation */
    /* While this host looks for members, fetches, or waits for the pool's weights: a few times a
     * second. False: give up. */
    gsp_pool_watch *watch;
    bool (*stop)(void *ctx); /* asked between steps and while waiting; true: save and end */
    void (*phase)(void *ctx, pool_phase phase);
} pool_hooks;

/* The same, with functions that do nothing in place of those that are NULL; hooks NULL: all. */
pool_hooks pool_hooks_whole(const pool_hooks *hooks);
/* printf to the note of whole hooks; longer than 600 bytes is cut. */
void pool_note(const pool_hooks *hooks, const char *fmt, ...) ATOM_PRINTF(2, 3);

#endif
