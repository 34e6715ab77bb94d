/*
 * Hands out the decode kernels and says what scratch they need. No code of its own.
 */
#include "kernels/cpu/decode.h"

uint64_t krn_cpu_row_workspace(int64_t I)
{
    return (uint64_t)I * sizeof(float); /* x in f32 */
}

uint64_t krn_cpu_attend_workspace(const atom_threads *threads, int64_t positions, int64_t D)
{
    uint64_t workers = threads ? atom_threads_slots(threads) : 1;
    return workers * (uint64_t)krn_attend_scratch(positions, D) * sizeof(float);
}

const krn_decode_table *krn_cpu_decode_table_of(atom_dtype dtype, krn_cpu_isa isa)
{
    static const krn_decode_table *const sets[KRN_CPU_ISA_N] = {
        krn_cpu_decode_base, krn_cpu_decode_avx2, krn_cpu_decode_avx512};
    if (dtype != ATOM_F32 && dtype != ATOM_BF16)
        return NULL;
    return &sets[isa][dtype];
}

const krn_decode_table *krn_cpu_decode_table(atom_dtype dtype)
{
    return krn_cpu_decode_table_of(dtype, krn_cpu_isa_best());
}
