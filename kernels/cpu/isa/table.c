/*
 * Owns the table of one instruction set's vector entries (cpu.h).
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/kernels.h"

#define ENTRY(op, direction)                                                                       \
    [0][ATOM_OP_##op] = KRN_ISA(krn_cpu_##op##_##direction##_f32),                                 \
    [1][ATOM_OP_##op] = KRN_ISA(krn_cpu_##op##_##direction##_bf16)
#define ENTRIES(direction)                                                                         \
    {                                                                                              \
        ENTRY(embed, direction), ENTRY(dropout, direction), ENTRY(layernorm, direction),           \
            ENTRY(gelu, direction), ENTRY(add, direction), ENTRY(dropout_add, direction),          \
            ENTRY(rmsnorm, direction), ENTRY(headnorm, direction), ENTRY(rope, direction),         \
            ENTRY(swiglu, direction), ENTRY(lora, direction), ENTRY(gelu_erf, direction),          \
            ENTRY(relu, direction), ENTRY(relu2, direction), ENTRY(silu, direction),               \
            ENTRY(scale, direction), ENTRY(compress, direction), ENTRY(geglu, direction),          \
            ENTRY(rownorm, direction), ENTRY(dora, direction), ENTRY(maxout, direction),           \
    }

const krn_cpu_vec KRN_ISA(krn_cpu_vec) = {
    .fwd = ENTRIES(fwd),
    .bwd = ENTRIES(bwd),
    .round = {KRN_ISA(krn_cpu_round_f32), KRN_ISA(krn_cpu_round_bf16)},
    .sumsq = {KRN_ISA(krn_cpu_sumsq_f32), KRN_ISA(krn_cpu_sumsq_bf16)},
    .settle = {KRN_ISA(krn_cpu_settle_f32), KRN_ISA(krn_cpu_settle_bf16)},
    .adamw = KRN_ISA(krn_cpu_adamw),
    .muon = KRN_ISA(krn_cpu_muon),
    .muon_begin = KRN_ISA(krn_cpu_muon_begin),
    .muon_end = KRN_ISA(krn_cpu_muon_end),
    .triad = KRN_ISA(krn_cpu_triad),
};
