/*
 * The matmul family's entries of one instruction set, for isa/matmul.c.
 */
#ifndef KERNELS_CPU_ISA_MATMUL_H
#define KERNELS_CPU_ISA_MATMUL_H

#include "kernels/cpu/isa/vec.h"
#include "kernels/kernels.h"

#define KRN_MATMUL_ENTRIES(op)                                                                     \
    void KRN_ISA(krn_cpu_##op##_fwd_f32)(krn_ctx * cx, const krn_args *args);                      \
    void KRN_ISA(krn_cpu_##op##_fwd_bf16)(krn_ctx * cx, const krn_args *args);                     \
    void KRN_ISA(krn_cpu_##op##_bwd_f32)(krn_ctx * cx, const krn_args *args);                      \
    void KRN_ISA(krn_cpu_##op##_bwd_bf16)(krn_ctx * cx, const krn_args *args);
KRN_MATMUL_ENTRIES(linear)
KRN_MATMUL_ENTRIES(linear_gelu)
KRN_MATMUL_ENTRIES(attention)
KRN_MATMUL_ENTRIES(cross_entropy)
KRN_MATMUL_ENTRIES(classifier)
#undef KRN_MATMUL_ENTRIES

#endif
