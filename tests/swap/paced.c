/*
 * atom_paced: the program itself on devices of the CPU that are as slow as a profile says. Whatever
 * a compute stream is given takes the seconds that the tape predicts for it, of which it sleeps
 * what computing leaves over, so that several devices do not take each other's cores. Its one idea:
 * an item is due so long after it could have begun, and that is when the one before it was due,
 * unless the stream waited for something. So a machine that wakes it up late does not make a device
 * slower, and what devices wait for each other counts. It is linked with --wrap=swap_work_compute;
 * nothing in the product knows of it. It refuses a tape without costs, which would not be paced.
 */
#include "atom/base/clock.h"
#include "kernels/cpu/device_cpu.h"
#include "swap/exec_inner.h"

#include <stdio.h>
#include <stdlib.h>

void __wrap_swap_work_compute(krn_ctx *cx, void *arg);
void __real_swap_work_compute(krn_ctx *cx, void *arg);

enum {
    AT_ONCE_NS = 200000
}; /* an item that could begin this soon after another one did not wait */

void __wrap_swap_work_compute(krn_ctx *cx, void *arg)
{
    static uint64_t due_ns[SWAP_DEVICES_MAX], end_ns[SWAP_DEVICES_MAX]; /* by their streams alone */
    const swap_launch *l = arg;
    uint32_t d = l->in->device;
    uint64_t ready_ns = l->exec->lanes[swap_lane(d, DEV_COMPUTE)]->ready_ns;
    if (l->in->cost.seconds <= 0) {
        fputs("atom_paced: the tape has no predicted costs\n", stderr);
        abort();
    }
    if (ready_ns > end_ns[d] + AT_ONCE_NS)
        due_ns[d] = ready_ns;
    due_ns[d] += (uint64_t)(1e9 * l->in->cost.seconds);
    __real_swap_work_compute(cx, arg);
    dev_sleep_until(due_ns[d]);
    end_ns[d] = atom_clock_ns();
}
