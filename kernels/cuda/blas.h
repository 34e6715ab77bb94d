/*
 * Matrix products for the other CUDA kernels: one call, row-major. On the card it is cuBLASLt
 * (blas.c), in the tests a scalar twin (tests/shim/blas.c).
 *
 *   d[m,n] = scale op(a)[m,k] op(b)[k,n] (+ bias[n]) (+ d)
 *
 * Sums are f32; one rounding, to d's dtype.
 *
 * lda, ldb, ldd: elements from one stored row to the next. a_turned: a is stored [k,m]; b_turned: b
 * is stored [n,k] (a weight w[O,I] is b turned for x w'). a and b have the dtype ab; d is f32 or
 * ab. add: d is read, added before the one rounding. No overlap.
 *
 * Epilogues that the library may or may not offer. The call does what it can and says what it left
 * to the caller:
 *   aux   gelu: aux[m,n] (ldd) = the product with bias, d = gelu(aux). Left: KRN_LEFT_GELU, and
 *         then aux holds the product and d nothing yet. d has the dtype ab; add is 0
 *   sums  sums[m] f32 += op(a)[m,k] summed over k (the bias gradient beside dw = dy' x). Left:
 *         KRN_LEFT_SUMS. sums is only asked for with a_turned
 *
 * What is left depends on shapes and dtypes, never on addresses or on what ran before.
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
    const void *bias; /* ab; or NULL */
    void *aux;        /* ab; or NULL */
    float *sums;      /* or NULL */
    float scale;      /* 0: 1 */
} krn_matmul;

enum { KRN_LEFT_GELU = 1, KRN_LEFT_SUMS = 2 };

/* Returns KRN_LEFT_* bits; 0 where neither aux nor sums was asked for. */
unsigned krn_cuda_matmul(krn_ctx *cx, const krn_matmul *mm, void *workspace);
uint64_t krn_cuda_matmul_workspace(void);

#ifdef __cplusplus
}
#endif

#endif
