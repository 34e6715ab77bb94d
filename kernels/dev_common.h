/*
 * What all devices share: the budget. Inner header of kernels/.
 *
 * Thread: the device's driving thread. Nothing here allocates.
 */
#ifndef KERNELS_DEV_COMMON_H
#define KERNELS_DEV_COMMON_H

#include "kernels/device.h"

/* Counts atom_align(bytes) against the budget,
 * or refuses with the bytes missing (ATOM_E_RESOURCE). */
ATOM_MUST atom_status dev_budget_take(dev *d, uint64_t bytes);
void dev_budget_give(dev *d, uint64_t bytes);
/* The same for pinned host memory, which has no budget of its own. */
void dev_host_take(dev *d, uint64_t bytes);
void dev_host_give(dev *d, uint64_t bytes);

#endif
