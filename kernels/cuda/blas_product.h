/*
 * A matrix product as cuBLASLt knows it. Inner header of kernels/cuda.
 *
 * Thread: that of the compute stream. Errors: false, or the library's status.
 */
#ifndef KERNELS_CUDA_BLAS_PRODUCT_H
#define KERNELS_CUDA_BLAS_PRODUCT_H

#include "kernels/cuda/algos.h"
#include "kernels/cuda/blas.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifndef KRN_LT_WORKSPACE_BYTES /* the tests' shim takes little, to fit into small devices */
#define KRN_LT_WORKSPACE_BYTES ((uint64_t)32 << 20)
#define KRN_LT_SUMS_BYTES ((uint64_t)1 << 20)
#endif
/* Workspace of the library, and behind it where it writes sums. */
static const uint64_t KRN_LT_BYTES = KRN_LT_WORKSPACE_BYTES;

/* What makes two products the same one. */
typedef struct krn_lt_shape {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t a_turned, b_turned, add, ab, d_dtype;
    int32_t bias, aux, sums, align;
} krn_lt_shape;

typedef struct krn_lt_product {
    krn_lt_shape s;
    bool plain;
    unsigned left;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
} krn_lt_product;

krn_lt_shape krn_lt_shape_of(const krn_matmul *mm);
/* As text, for the file of algorithms. */
void krn_lt_key(const krn_lt_shape *s, char key[KRN_ALGO_KEY_MAX]);

/* left: KRN_LEFT_*, what kernels of ours will do. p->algo is the caller's to choose. */
bool krn_lt_open(krn_lt_product *p, const krn_lt_shape *s, unsigned left);
void krn_lt_close(krn_lt_product *p);
/* Addresses of one call. `sums` is where BGRADB writes. */
bool krn_lt_point(krn_lt_product *p, const krn_matmul *mm, float *sums);
/* Queues the product with p's algorithm; d may be scratch instead of mm's. */
cublasStatus_t krn_lt_multiply(cublasLtHandle_t handle, krn_lt_product *p, const krn_matmul *mm,
                               void *d, void *workspace, cudaStream_t stream);

#endif
