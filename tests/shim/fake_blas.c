/* The scalar products, where they may be recorded first (fake_cuda.cpp). */
#define krn_cuda_matmul shim_matmul
#include "blas.c"
