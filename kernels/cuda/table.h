/*
 * The CUDA backend's table, made from the launchers of cuda.h.
 *
 * Thread: any. Errors: none; dtype is ATOM_F32 or ATOM_BF16.
 */
#ifndef KERNELS_CUDA_TABLE_H
#define KERNELS_CUDA_TABLE_H

#include "kernels/kernels.h"

/* backend and isa ("sm_90") are borrowed and must live as long as the table. */
void krn_cuda_table_fill(krn_table *table, atom_dtype dtype, const char *backend, const char *isa);

#endif
