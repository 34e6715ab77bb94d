/*
 * Hands out the matmul family: which entries an instruction set has, and how much scratch each
 * needs.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"

void krn_cpu_matmul_entries(krn_table *table, krn_cpu_isa isa)
{
    static const krn_cpu_matmul *const sets[KRN_CPU_ISA_N] = {
        &krn_cpu_matmul_base, &krn_cpu_matmul_avx2, &krn_cpu_matmul_avx512};
    const krn_cpu_matmul *m = sets[isa];
    int d = table->dtype == ATOM_F32 ? 0 : 1;
    table->fwd[ATOM_OP_linear] = m->linear_fwd[d];
    table->bwd[ATOM_OP_linear] = m->linear_bwd[d];
    table->fwd[ATOM_OP_linear_gelu] = m->linear_gelu_fwd[d];
    table->bwd[ATOM_OP_linear_gelu] = m->linear_gelu_bwd[d];
    table->fwd[ATOM_OP_attention] = m->attention_fwd[d];
    table->bwd[ATOM_OP_attention] = m->attention_bwd[d];
    table->fwd[ATOM_OP_cross_entropy] = m->cross_entropy_fwd[d];
    table->bwd[ATOM_OP_cross_entropy] = m->cross_entropy_bwd[d];
    table->fwd[ATOM_OP_classifier] = m->classifier_fwd[d];
    table->bwd[ATOM_OP_classifier] = m->classifier_bwd[d];
}

uint64_t krn_cpu_matmul_workspace(atom_dtype dtype, atom_op op, int backward,
                                  const int64_t dim[KRN_DIM_MAX])
{
    switch (op) {
    case ATOM_OP_linear:
        return krn_cpu_linear_workspace(dtype, 0, backward, dim);
    case ATOM_OP_linear_gelu:
        return krn_cpu_linear_workspace(dtype, 1, backward, dim);
    case ATOM_OP_attention:
        return krn_cpu_attention_workspace(backward, dim);
    case ATOM_OP_classifier:
        return krn_cpu_classifier_workspace(dtype, backward, dim);
    default:
        return 0;
    }
}
