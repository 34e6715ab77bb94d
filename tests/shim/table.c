/*
 * Owns the tables of the shim: every launcher of kernels/cuda/cuda.h, per dtype, as a krn_table.
 * One idea: made from ops.def like any backend's, so an op without a CUDA kernel does not link.
 */
#include "kernels/cuda/cuda.h"
#include "tests/shim/shim.h"

/* Not yet written ones are NULL, and checked for below. */
#pragma weak krn_cuda_attention_fwd
#pragma weak krn_cuda_attention_bwd
#pragma weak krn_cuda_attention_workspace

#define OP(name, ...)                                                                              \
    static void name##_fwd_f32(krn_ctx *cx, const krn_args *args)                                  \
    {                                                                                              \
        krn_cuda_##name##_fwd(cx, args, ATOM_F32);                                                 \
    }                                                                                              \
    static void name##_bwd_f32(krn_ctx *cx, const krn_args *args)                                  \
    {                                                                                              \
        krn_cuda_##name##_bwd(cx, args, ATOM_F32);                                                 \
    }                                                                                              \
    static void name##_fwd_bf16(krn_ctx *cx, const krn_args *args)                                 \
    {                                                                                              \
        krn_cuda_##name##_fwd(cx, args, ATOM_BF16);                                                \
    }                                                                                              \
    static void name##_bwd_bf16(krn_ctx *cx, const krn_args *args)                                 \
    {                                                                                              \
        krn_cuda_##name##_bwd(cx, args, ATOM_BF16);                                                \
    }
#include "atom/base/ops.def"
#undef OP

static uint64_t workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act)
{
    if (op == ATOM_OP_layernorm)
        return krn_cuda_layernorm_workspace(backward, dim);
    if (op == ATOM_OP_attention)
        return krn_cuda_attention_workspace(backward, dim, act);
    if (op == ATOM_OP_classifier)
        return krn_cuda_classifier_workspace(backward, dim, act);
    if (op == ATOM_OP_linear || op == ATOM_OP_linear_gelu)
        return krn_cuda_linear_workspace(backward, dim, act, op == ATOM_OP_linear_gelu);
    return 0;
}

static uint64_t workspace_f32(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])
{
    return workspace(op, backward, dim, ATOM_F32);
}
static uint64_t workspace_bf16(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])
{
    return workspace(op, backward, dim, ATOM_BF16);
}

static void round_f32(krn_ctx *cx, void *dst, const float *src, uint64_t n)
{
    krn_cuda_round(cx, dst, src, n, ATOM_F32);
}
static void round_bf16(krn_ctx *cx, void *dst, const float *src, uint64_t n)
{
    krn_cuda_round(cx, dst, src, n, ATOM_BF16);
}
static void sumsq_f32(krn_ctx *cx, double *out, const void *x, uint64_t n)
{
    krn_cuda_sumsq(cx, out, x, n, ATOM_F32);
}
static void sumsq_bf16(krn_ctx *cx, double *out, const void *x, uint64_t n)
{
    krn_cuda_sumsq(cx, out, x, n, ATOM_BF16);
}
static void settle_f32(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n)
{
    krn_cuda_settle(cx, dst, src, norms, n, ATOM_F32);
}
static void settle_bf16(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n)
{
    krn_cuda_settle(cx, dst, src, norms, n, ATOM_BF16);
}

static void adamw(atom_threads *threads, const krn_adamw_step *step, atom_dtype wire_dtype,
                  void *wire, float *master, float *m, float *v, uint64_t n)
{
    krn_ctx cx = {.threads = threads};
    krn_cuda_adamw(&cx, step, wire_dtype, wire, master, m, v, n);
}

const krn_table *shim_table(atom_dtype dtype)
{
    static const krn_table f32 = {
        .backend = "cuda-shim",
        .dtype = ATOM_F32,
        .isa = "shim",
        .copy = krn_cuda_copy,
        .round = round_f32,
        .sumsq = sumsq_f32,
        .settle = settle_f32,
        .workspace = workspace_f32,
#define OP(name, ...) .fwd[ATOM_OP_##name] = name##_fwd_f32, .bwd[ATOM_OP_##name] = name##_bwd_f32,
#include "atom/base/ops.def"
#undef OP
    };
    static const krn_table bf16 = {
        .backend = "cuda-shim",
        .dtype = ATOM_BF16,
        .isa = "shim",
        .copy = krn_cuda_copy,
        .round = round_bf16,
        .sumsq = sumsq_bf16,
        .settle = settle_bf16,
        .workspace = workspace_bf16,
#define OP(name, ...)                                                                              \
    .fwd[ATOM_OP_##name] = name##_fwd_bf16, .bwd[ATOM_OP_##name] = name##_bwd_bf16,
#include "atom/base/ops.def"
#undef OP
    };
    return dtype == ATOM_F32 ? &f32 : &bf16;
}

const krn_host_table *shim_host_table(void)
{
    static const krn_host_table table = {
        .adamw = adamw,
        .round = {[ATOM_F32] = round_f32, [ATOM_BF16] = round_bf16},
        .sumsq = {[ATOM_F32] = sumsq_f32, [ATOM_BF16] = sumsq_bf16},
    };
    return &table;
}
