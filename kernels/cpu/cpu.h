/*
 * The CPU backend's inner contract: which file provides which entry, and how one binary serves every
 * x86-64.
 *
 * kernels/cpu/isa/ holds the vector code; each file there is compiled three times, for baseline
 * x86-64, AVX2 + FMA, and AVX-512 (F BW VL DQ). A file writes its functions as KRN_ISA(name), which
 * becomes name_base, name_avx2 or name_avx512, and uses isa/vec.h, which gives one vector type of
 * the native width. Bits may differ between instruction sets, never between thread counts. AdamW,
 * Muon, rounding and sums of squares are the same bits on all (kernels.h).
 *
 * kernels/cpu/ itself is compiled once, for baseline x86-64, and picks what to call at run time.
 *
 * Entries are per dtype: krn_cpu_<op>_<fwd|bwd>_<f32|bf16>. In isa/ they are static behind one body
 * with a constant dtype argument, and appear in a table per instruction set (krn_cpu_vec).
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

typedef enum krn_cpu_isa { KRN_CPU_BASE, KRN_CPU_AVX2, KRN_CPU_AVX512, KRN_CPU_ISA_N } krn_cpu_isa;

/* The best of this machine, or what the environment variable ATOM_ISA (base, avx2, avx512) asks for
 * if the machine has it. The answer never changes within a process. */
krn_cpu_isa krn_cpu_isa_best(void);
/* Whether this machine can run it. */
int krn_cpu_isa_can(krn_cpu_isa isa);
const char *krn_cpu_isa_name(krn_cpu_isa isa); /* "base", "avx2", "avx512" */

/* Entries that isa/ provides: element-wise ops, embedding, norms, rope, and the host's loops. [0]
 * is fp32, [1] bf16; ops of the matmul family are NULL here. */
typedef struct krn_cpu_vec {
    krn_fn fwd[2][ATOM_OP_N];
    krn_fn bwd[2][ATOM_OP_N];
    krn_round_fn round[2];
    krn_sumsq_fn sumsq[2];
    krn_settle_fn settle[2];
    krn_adamw_fn adamw;
    krn_muon_fn muon;
    krn_muon_begin_fn muon_begin;
    krn_muon_end_fn muon_end;
    /* a[i] = b[i] + s c[i] with stores past the caches: the machine's bandwidth, for
     * kernels/bench.c */
    void (*triad)(atom_threads *threads, float *a, const float *b, const float *c, uint64_t n);
} krn_cpu_vec;
extern const krn_cpu_vec krn_cpu_vec_base, krn_cpu_vec_avx2, krn_cpu_vec_avx512;
const krn_cpu_vec *krn_cpu_vec_get(krn_cpu_isa isa);

/* Row blocks of layer norm's backward, one partial sum of dw and db each: a function of N only. */
enum { KRN_NORM_BLOCKS_MAX = 64, KRN_NORM_ROWS_MIN = 8 };
static inline int64_t krn_norm_block_rows(int64_t n)
{
    int64_t rows = (n + KRN_NORM_BLOCKS_MAX - 1) / KRN_NORM_BLOCKS_MAX;
    return rows < KRN_NORM_ROWS_MIN ? KRN_NORM_ROWS_MIN : rows;
}

/* Places whose sines and cosines rope makes for T rows:
 * whole blocks of places that count from 0. */
enum { KRN_ROPE_BLOCK = 64 };
static inline int64_t krn_rope_places(int64_t T)
{
    return ((T + KRN_ROPE_BLOCK - 1) / KRN_ROPE_BLOCK + 1) * KRN_ROPE_BLOCK;
}

/* Scratch of the ops in krn_cpu_vec. */
uint64_t krn_cpu_vec_workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX]);

/*
 * Provided by the matmul family (matmul_table.c): fills in table->fwd/bwd of linear, linear_gelu,
 * attention, cross_entropy and classifier for table->dtype, and says what scratch they need.
 * Called once per dtype, before any kernel runs. An entry left NULL is "unsupported".
 */
void krn_cpu_matmul_entries(krn_table *table, krn_cpu_isa isa);
uint64_t krn_cpu_matmul_workspace(atom_dtype dtype, atom_op op, int backward,
                                  const int64_t dim[KRN_DIM_MAX]);

/* Fills `table` for one dtype and instruction set; krn_cpu_table() does it for the best one. Tests
 * use it to reach the others. */
void krn_cpu_table_fill(krn_table *table, atom_dtype dtype, krn_cpu_isa isa);

#endif
