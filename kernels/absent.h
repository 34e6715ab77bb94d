/*
 * Which ops have no CUDA launcher yet. Who makes a krn_table of CUDA sets their entries to NULL.
 */
#ifndef KERNELS_ABSENT_H
#define KERNELS_ABSENT_H

#include "kernels/kernels.h"

#include <stdbool.h>

bool krn_cuda_absent(atom_op op);

#endif
