/*
 * Matrix products for the other CUDA kernels: one call, row-major, over cuBLASLt (blas.c); the
 * tests' shim has a scalar twin (tests/shim/blas.cpp).
 *
 *   d[m,n] = op(a)[m,k] op(b)[k,n] (+ d)      sums in f32, one rounding to d's dtype
 *
 * lda, ldb, ldd: elements from one stored row to the next. a_turned: a is stored [k,m]; b_turned: b
 * is stored [n,k] (a weight w[O,I] is b turned for x w'). a and b have the dtype ab; d is f32 or
 * ab. add: d is read, added before the one rounding. No overlap.
 *
 * workspace: krn_cuda_matmul_workspace() bytes, 256-byte aligned, may be shared by products that
 * follow each other on the stream. Errors: launch.cuh.
 */
#ifndef KERNELS_CUDA_BLAS_H
#define KERNELS_CUDA_BLAS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct krn_matmul {
    int64_t m, n, k;
    const void *a, *b;
    void *d;
    int64_t lda, ldb, ldd;
    int a_turned, b_turned, add;
    atom_dtype ab, d_dtype;
} krn_matmul;

void krn_cuda_matmul(krn_ctx *cx, const krn_matmul *mm, void *workspace);
uint64_t krn_cuda_matmul_workspace(void);

#ifdef __cplusplus
}
#endif

#endif
