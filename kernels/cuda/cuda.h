/*
 * The launchers that the .cu files expose, and what they ask of each other. The registry (table.c)
 * makes the krn_table of a dtype from them; the tests' shim makes another from the same sources.
 *
 * krn_cuda_<op>_fwd / _bwd: buffers, dims and meaning as kernels.h, act ATOM_F32 or ATOM_BF16.
 * All pointers, krn_ctx.step and workspace too, are device memory. They only enqueue work on
 * krn_ctx.native_stream and return; they may be called while the stream is captured.
 *
 * Thread: any, one at a time per context. Errors: launch.cuh.
 */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/kernels.h"

enum { KRN_CUDA_HEAD_DIM_MAX = 256 }; /* the widest head that attention takes */

#ifdef __cplusplus
extern "C" {
#endif

#define OP(name, ...)                                                                              \
    void krn_cuda_##name##_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act);                 \
    void krn_cuda_##name##_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act);
#include "atom/base/ops.def"
#undef OP

/* Scratch bytes per file: a pure function of direction, dims and dtype. Ops without one need 0. */
uint64_t krn_cuda_embed_workspace(int backward, const int64_t dim[KRN_DIM_MAX]);
uint64_t krn_cuda_layernorm_workspace(int backward, const int64_t dim[KRN_DIM_MAX]);
uint64_t krn_cuda_rmsnorm_workspace(int backward, const int64_t dim[KRN_DIM_MAX]);
uint64_t krn_cuda_headnorm_workspace(int backward, const int64_t dim[KRN_DIM_MAX]);
uint64_t krn_cuda_attention_workspace(int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act);
uint64_t krn_cuda_classifier_workspace(int backward, const int64_t dim[KRN_DIM_MAX],
                                       atom_dtype act);
uint64_t krn_cuda_linear_workspace(int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act,
                                   int gelu);

uint64_t krn_cuda_lora_workspace(void);
uint64_t krn_cuda_dora_workspace(int backward, const int64_t dim[KRN_DIM_MAX]);

/* gradients.cu: exactly the bits of ref. dst and x are of `wire`. */
void krn_cuda_round(krn_ctx *cx, void *dst, const float *src, uint64_t n, atom_dtype wire);
void krn_cuda_sumsq(krn_ctx *cx, double *out, const void *x, uint64_t n, atom_dtype act);
void krn_cuda_settle(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n,
                     atom_dtype wire);
void krn_cuda_copy(krn_ctx *cx, void *dst, const void *src, uint64_t bytes);

/* adamw.cu: exactly the bits of ref_adamw. step is read at the call. */
void krn_cuda_adamw(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                    float *master, void *m, void *v, uint64_t n);
void krn_cuda_update(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                     const void *grad, float *master, void *m, void *v, uint64_t n);

/* muon.cu: exactly the bits of ref_ortho. */
void krn_cuda_ortho(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space,
                    atom_dtype dtype);

/* sums.cu: out[o] += sum over n of x act[N,O], in an order that depends on N and O alone.
 * workspace of krn_cuda_column_sums_workspace bytes, 256-byte aligned: the bias gradient where the
 * matmul library has no epilogue for it. */
void krn_cuda_column_sums(krn_ctx *cx, void *workspace, float *out, const void *x, int64_t N,
                          int64_t O, atom_dtype act);
uint64_t krn_cuda_column_sums_workspace(int64_t N, int64_t O);

/* elementwise.cu: du = dy * gelu'(u), the first half of linear_gelu's backward. */
void krn_cuda_gelu_slope(krn_ctx *cx, void *du, const void *dy, const void *u, int64_t n,
                         atom_dtype act);

#ifdef __cplusplus
}
#endif

#endif
