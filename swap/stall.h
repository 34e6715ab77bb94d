/*
 * What compute waited for: explains every gap in the compute stream by the instructions that held
 * up the next one, and traces these back through their own waits.
 */
#ifndef SWAP_STALL_H
#define SWAP_STALL_H

#include "swap/exec.h"

typedef struct swap_stalls {
    double busy_seconds;                 /* compute stream running */
    double waited_seconds[DEV_STREAM_N]; /* gaps, by the stream whose work was being waited for;
                                            DEV_COMPUTE: none (issue, launch, start-up), or that
                                            of another device */
    double step_seconds;                 /* first start to last end */
} swap_stalls;

/* spans: of a run of this tape (swap_exec_spans). Of several devices the mean. Adds up to
 * step_seconds. Pure. */
swap_stalls swap_stalls_of(const swap_tape *tape, const swap_span *spans);

#endif
