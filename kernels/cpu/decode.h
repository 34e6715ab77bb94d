/*
 * The decode kernels of each instruction set; their code is in isa/row.c and isa/attend.c. Inner
 * header of kernels/cpu.
 */
#ifndef KERNELS_CPU_DECODE_H
#define KERNELS_CPU_DECODE_H

#include "kernels/cpu/cpu.h"
#include "kernels/decode.h"

/* By instruction set; krn_cpu_decode_table() gives the best one's. */
const krn_decode_table *krn_cpu_decode_table_of(atom_dtype dtype, krn_cpu_isa isa);

/* [0] fp32, [1] bf16: isa/row.c. */
extern const krn_decode_table krn_cpu_decode_base[2], krn_cpu_decode_avx2[2],
    krn_cpu_decode_avx512[2];

uint64_t krn_cpu_row_workspace(int64_t I);
uint64_t krn_cpu_attend_workspace(const atom_threads *threads, int64_t positions, int64_t D);

/* New tokens that share one pass over the keys. */
enum { KRN_ATTEND_ROWS = 4 };

/* Floats of one thread's scratch: scores [rows][positions], then queries [rows][D]. */
static inline int64_t krn_attend_scratch(int64_t positions, int64_t D)
{
    return KRN_ATTEND_ROWS * (krn_attend_room(positions) + krn_attend_room(D));
}

#endif
