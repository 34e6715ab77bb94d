/*
 * Placeholder until the matmul family lands: no entries.
 */
#include "kernels/cpu/cpu.h"

void krn_cpu_matmul_entries(krn_table *table, krn_cpu_isa isa)
{
    (void)table;
    (void)isa;
}

uint64_t krn_cpu_matmul_workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])
{
    (void)op;
    (void)backward;
    (void)dim;
    return 0;
}
