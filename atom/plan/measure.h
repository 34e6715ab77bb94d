/*
 * Measuring: a whole profile, and single calls on a device whose memory is not the host's. Inner header of
 * atom/plan.
 *
 * Thread: one caller. Errors: the device's. Ownership: whoever opened it closes it.
 */
#ifndef ATOM_PLAN_MEASURE_H
#define ATOM_PLAN_MEASURE_H

#include "atom/plan/device.h"
#include "swap/calls.h"

/* plan_profile_measure() where the machine's rates are known from a profile of another graph; NULL: they
 * are measured. */
ATOM_MUST atom_status plan_measure_profile(plan_workbench *bench, const part_device *rates,
                                           plan_progress_fn progress, void *ctx,
                                           part_profile **out);
/* What the rates depend on besides the machine: over how much memory, and on which types. */
uint64_t plan_measure_rates_key(const plan_workbench *bench);

typedef struct plan_measure plan_measure;

ATOM_MUST atom_status plan_measure_open(const plan_workbench *bench, plan_measure **out);
void plan_measure_close(plan_measure **m);

/* Median seconds of one call. host: its buffers' content, as many bytes as the call says; NULL
 * where it has none. */
ATOM_MUST atom_status plan_measure_call(plan_measure *m, const krn_table *table,
                                        const swap_call *call, void *const host[KRN_BUF_MAX],
                                        double *seconds);

ATOM_MUST atom_status plan_measure_memory(plan_measure *m, double *bytes_per_second);

/* Median seconds of the table's ortho on a matrix of *rows x *cols, or on a smaller one of about that
 * shape where it would take too long: then they become its sizes. */
ATOM_MUST atom_status plan_measure_ortho(plan_measure *m, const krn_table *table, int64_t *rows,
                                         int64_t *cols, double *seconds);

#endif
