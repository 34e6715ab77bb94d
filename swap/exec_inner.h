/*
 * What the files of the executor share: exec.c hands instructions to streams, exec_work.c does what
 * they say. Inner header of swap/.
 */
#ifndef SWAP_EXEC_INNER_H
#define SWAP_EXEC_INNER_H

#include "swap/exec.h"

/* An instruction that was issued; lives until the end of the run. */
typedef struct swap_launch {
    struct swap_exec *exec;
    const swap_instr *in;
    krn_step step;
} swap_launch;

struct swap_exec {
    swap_exec_config c;
    char *arenas[SWAP_DEVICES_MAX], *slab;
    swap_disk *disk; /* NULL: everything is in the slab */
    swap_cow *cow;   /* NULL: nobody reads the state while it changes */
    dev_stream *lanes[SWAP_LANES_MAX];
    /* instrs_max for each device: where an instruction of that number starts and ends, if it is on
     * that device */
    dev_event **starts[SWAP_DEVICES_MAX], **ends[SWAP_DEVICES_MAX];
    swap_launch *launches;
    swap_span *spans;
    uint32_t n_spans;
    swap_step step;
    const swap_instr *first_update, *last_update; /* of the tape that runs; NULL: it has none */
    bool draining;                                /* what runs is the drain tape */
    float clip_scale;                             /* of the gradients that wait on the host */
    double grad_norm;
    swap_host_time host; /* of the last run */
    bool dead;
};

/* Where a range of an instruction of that device is. */
static inline void *swap_exec_at(const swap_exec *exec, uint32_t device, swap_range range)
{
    return (range.space == SWAP_DEVICE ? exec->arenas[device] : exec->slab) + range.offset;
}

/* exec_work.c: what instructions on a compute stream and on streams of the host do. arg: their
 * swap_launch. */
void swap_work_compute(krn_ctx *cx, void *arg);
atom_status swap_work_host(void *arg);

#endif
