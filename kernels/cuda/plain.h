/*
 * Small kernels that are no op's own (plain.cu). All pointers are device memory where nothing else
 * is said; work is enqueued on the context's stream.
 *
 * Thread, errors: as cuda.h.
 */
#ifndef KERNELS_CUDA_PLAIN_H
#define KERNELS_CUDA_PLAIN_H

#include "kernels/cuda/blas.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Any product of blas.h, slowly, without a workspace: what the library refuses. Leaves aux and
 * sums. At most 2^21 columns. */
unsigned krn_cuda_plain_matmul(krn_ctx *cx, const krn_matmul *mm);

/* dst[i] += src[i] */
void krn_cuda_add_to(krn_ctx *cx, float *dst, const float *src, int64_t n);

/* This build has code for the current card. Starts the card. */
bool krn_cuda_code_there(void);

/* dst[i] = src[i]; src is mapped host memory. */
void krn_cuda_put_starts(krn_ctx *cx, int32_t *dst, const int32_t *src, uint64_t n);

/* *block = *step: step is host memory and read at the call. */
void krn_cuda_put_step(krn_ctx *cx, krn_step *block, const krn_step *step);

#ifdef __cplusplus
}
#endif

#endif
