/*
 * Opening and closing what blas.c keeps per process: the library's handle and the algorithms that
 * were chosen on this card.
 *
 * Thread: the device's driving thread opens and closes, with the card current; krn_cuda_matmul runs
 * on the compute stream's thread.
 */
#ifndef KERNELS_CUDA_BLAS_LT_H
#define KERNELS_CUDA_BLAS_LT_H

#include "kernels/cuda/blas.h"

#include <stdbool.h>
#include <stddef.h>

/* identity: the card's name and architecture; the library's version is added here. Counted: each
 * open needs its close. A second card in one process is refused. */
ATOM_MUST atom_status krn_cuda_blas_open(const char *identity);
void krn_cuda_blas_close(void);
/* The first product that failed since the last call, as text in `out`; false: none did. */
bool krn_cuda_blas_failed(char *out, size_t bytes);
/* Of everything chosen so far (docs/design/engine.md#the-same-bits: plans carry it). */

#endif
