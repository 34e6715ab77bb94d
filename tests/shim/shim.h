/*
 * What the shim offers to the programs of tests/shim: the tables made of kernels/cuda's sources.
 * One host thread at a time.
 */
#ifndef TESTS_SHIM_SHIM_H
#define TESTS_SHIM_SHIM_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda-shim", fp32 or bf16. Matrix products are scalar twins (blas.c). */
const krn_table *shim_table(atom_dtype dtype);
/* AdamW, round and sumsq of the device, in the shape of the host's. */
const krn_host_table *shim_host_table(void);
/* twisted.cu: runs a kernel that is wrong in the named way. False: there is no such kernel. */
int shim_run_twisted(const char *name);
/* Matrix and copy primitives against plain loops: how many elements are wrong. */
int shim_check_matrices(void);

#ifdef __cplusplus
}
#endif

#endif
