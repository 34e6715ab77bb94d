/*
 * Owns the matmul family's table of one instruction set. No code of its own.
 */
#include "kernels/cpu/isa/matmul.h"

#include "kernels/cpu/matmul.h"

#define PAIR(op, way)                                                                              \
    .op##_##way = {KRN_ISA(krn_cpu_##op##_##way##_f32), KRN_ISA(krn_cpu_##op##_##way##_bf16)}

const krn_cpu_matmul KRN_ISA(krn_cpu_matmul) = {
    PAIR(linear, fwd),        PAIR(linear, bwd),        PAIR(linear_gelu, fwd),
    PAIR(linear_gelu, bwd),   PAIR(attention, fwd),     PAIR(attention, bwd),
    PAIR(cross_entropy, fwd), PAIR(cross_entropy, bwd), PAIR(classifier, fwd),
    PAIR(classifier, bwd),
};
