/*
 * The entries of isa/, for isa/table.c: krn_cpu_<op>_<fwd|bwd>_<f32|bf16> with the instruction
 * set's suffix.
 */
#ifndef KERNELS_CPU_ISA_KERNELS_H
#define KERNELS_CPU_ISA_KERNELS_H

#include "kernels/cpu/isa/vec.h"
#include "kernels/kernels.h"

#define KRN_VEC_ENTRIES(op)                                                                        \
    void KRN_ISA(krn_cpu_##op##_fwd_f32)(krn_ctx * cx, const krn_args *args);                      \
    void KRN_ISA(krn_cpu_##op##_fwd_bf16)(krn_ctx * cx, const krn_args *args);                     \
    void KRN_ISA(krn_cpu_##op##_bwd_f32)(krn_ctx * cx, const krn_args *args);                      \
    void KRN_ISA(krn_cpu_##op##_bwd_bf16)(krn_ctx * cx, const krn_args *args);
KRN_VEC_ENTRIES(embed)
KRN_VEC_ENTRIES(dropout)
KRN_VEC_ENTRIES(layernorm)
KRN_VEC_ENTRIES(gelu)
KRN_VEC_ENTRIES(add)
KRN_VEC_ENTRIES(dropout_add)
KRN_VEC_ENTRIES(rmsnorm)
KRN_VEC_ENTRIES(headnorm)
KRN_VEC_ENTRIES(rope)
KRN_VEC_ENTRIES(swiglu)
KRN_VEC_ENTRIES(geglu)
KRN_VEC_ENTRIES(lora)
KRN_VEC_ENTRIES(rownorm)
KRN_VEC_ENTRIES(dora)
KRN_VEC_ENTRIES(gelu_erf)
KRN_VEC_ENTRIES(relu)
KRN_VEC_ENTRIES(relu2)
KRN_VEC_ENTRIES(silu)
KRN_VEC_ENTRIES(scale)
KRN_VEC_ENTRIES(compress)
KRN_VEC_ENTRIES(maxout)
#undef KRN_VEC_ENTRIES

void KRN_ISA(krn_cpu_round_f32)(krn_ctx *cx, void *dst, const float *src, uint64_t n);
void KRN_ISA(krn_cpu_round_bf16)(krn_ctx *cx, void *dst, const float *src, uint64_t n);
void KRN_ISA(krn_cpu_settle_f32)(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n);
void KRN_ISA(krn_cpu_settle_bf16)(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n);
void KRN_ISA(krn_cpu_sumsq_f32)(krn_ctx *cx, double *out, const void *x, uint64_t n);
void KRN_ISA(krn_cpu_sumsq_bf16)(krn_ctx *cx, double *out, const void *x, uint64_t n);
void KRN_ISA(krn_cpu_adamw)(atom_threads *threads, const krn_adamw_step *step,
                            atom_dtype wire_dtype, void *wire, float *master, void *m, void *v,
                            uint64_t n);
void KRN_ISA(krn_cpu_muon)(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                           void *wire, float *master, void *m, int64_t rows, int64_t cols,
                           void *space);
void KRN_ISA(krn_cpu_muon_begin)(atom_threads *threads, const krn_muon_step *step,
                                 atom_dtype wire_dtype, void *wire, void *m, int64_t rows,
                                 int64_t cols, double *sums);
void KRN_ISA(krn_cpu_muon_end)(atom_threads *threads, const krn_muon_step *step,
                               atom_dtype wire_dtype, void *wire, float *master, int64_t rows,
                               int64_t cols);

void KRN_ISA(krn_cpu_triad)(atom_threads *threads, float *a, const float *b, const float *c,
                            uint64_t n);

#endif
