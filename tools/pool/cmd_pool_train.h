/*
 * What atom pool create and atom pool join share: how a member's run (atom/pool/run.h) is shown,
 * stopped by a signal and summed up. Thread: the main thread only.
 */
#ifndef TOOLS_POOL_CMD_POOL_TRAIN_H
#define TOOLS_POOL_CMD_POOL_TRAIN_H

#include "tools/progress.h"

typedef struct pool_show {
    const char *dir;
    bool json, quiet;
    int64_t max_steps;       /* of this member now; 0: the pool's */
    pool_run *run;           /* NULL while it opens */
    pool_run_status *status; /* room for a look */
    train_progress progress; /* file NULL: not yet */
    double shown_seconds;
    double pace_seconds; /* when the pool stood at pace_step: what its end is reckoned from */
    uint64_t pace_step;
} pool_show;

pool_hooks pool_show_hooks(pool_show *show);
/* Trains show->run, then closes it; says how it ended. ATOM_E_INTERRUPTED after a signal. */
ATOM_MUST atom_status pool_show_train(pool_show *show);
/* Closes the run, wherever it stands. */
void pool_show_close(pool_show *show);

#endif
