/*
 * Timing single calls on a device whose memory is not the host's. Inner header of atom/train.
 *
 * Thread: one caller. Errors: the device's. Owner: measure_device is closed by who opened it.
 */
#ifndef ATOM_PLAN_MEASURE_H
#define ATOM_PLAN_MEASURE_H

#include "atom/plan/device.h"
#include "swap/calls.h"

typedef struct measure_device measure_device;

ATOM_MUST atom_status measure_device_open(const train_workbench *bench, measure_device **out);
void measure_device_close(measure_device **m);

/* Median seconds of one call. host: its buffers' content, as many bytes as the call says; NULL
 * where it has none. */
ATOM_MUST atom_status measure_device_call(measure_device *m, const krn_table *table,
                                          const swap_call *call, void *const host[KRN_BUF_MAX],
                                          double *seconds);

ATOM_MUST atom_status measure_device_memory(measure_device *m, double *bytes_per_second);

#endif
