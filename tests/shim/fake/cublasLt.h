/* Of cuBLASLt only its version: the products are tests/shim/blas.c. */
#ifndef TESTS_SHIM_FAKE_CUBLASLT_H
#define TESTS_SHIM_FAKE_CUBLASLT_H

#include <stddef.h>

static inline size_t cublasLtGetVersion(void)
{
    return 0;
}

#endif
