/*
 * The matmul family: linear, linear_gelu, attention, cross_entropy, classifier. Their code is in
 * isa/ (vector parts, per instruction set) and gemm.c (products); matmul_table.c hands it out.
 */
#ifndef KERNELS_CPU_MATMUL_H
#define KERNELS_CPU_MATMUL_H

#include "kernels/kernels.h"

#include <stdbool.h>

/* [0] fp32, [1] bf16. */
typedef struct krn_cpu_matmul {
    krn_fn linear_fwd[2], linear_bwd[2];
    krn_fn linear_gelu_fwd[2], linear_gelu_bwd[2];
    krn_fn attention_fwd[2], attention_bwd[2];
    krn_fn cross_entropy_fwd[2], cross_entropy_bwd[2];
    krn_fn classifier_fwd[2], classifier_bwd[2];
} krn_cpu_matmul;
extern const krn_cpu_matmul krn_cpu_matmul_base, krn_cpu_matmul_avx2, krn_cpu_matmul_avx512;

/* This machine has AMX bf16 tiles and the system lets us use them (amx_permission.c); never changes. */
bool krn_amx_usable(void);

/* Scratch bytes; where no dtype is asked for, enough for either. The same on all machines. */
uint64_t krn_cpu_linear_workspace(atom_dtype dtype, int gelu, int backward,
                                  const int64_t dim[KRN_DIM_MAX]);
uint64_t krn_cpu_attention_workspace(int backward, const int64_t dim[KRN_DIM_MAX]);
uint64_t krn_cpu_classifier_workspace(atom_dtype dtype, int backward,
                                      const int64_t dim[KRN_DIM_MAX]);

/* Carves 256-byte aligned pieces off a workspace. With base NULL it only counts. */
typedef struct krn_carve {
    char *base;
    uint64_t used;
} krn_carve;
static inline void *krn_carve_take(krn_carve *c, uint64_t bytes)
{
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += (bytes + 255) & ~(uint64_t)255;
    return piece;
}

#endif
