/*
 * Owns the tables of the CUDA backend: every launcher of cuda.h, per dtype, as a krn_table. One
 * idea: made from ops.def like any backend's; portable, so that the tests' shim hands out this very
 * table under another name. An op whose launchers are not linked in has no entry.
 */
#include "kernels/cuda/table.h"

#include "kernels/cuda/cuda.h"
#include "kernels/fix_dtype.h"

#include <stddef.h>

/* Launchers that this build may lack. */
#define OP(name, ...)                                                                              \
    extern __typeof__(krn_cuda_##name##_fwd) krn_cuda_##name##_fwd __attribute__((weak));          \
    extern __typeof__(krn_cuda_##name##_bwd) krn_cuda_##name##_bwd __attribute__((weak));
#include "atom/base/ops.def"
#undef OP
extern __typeof__(krn_cuda_attention_workspace) krn_cuda_attention_workspace __attribute__((weak));

#define OP(name, ...)                                                                              \
    KRN_FIX_OP(krn_cuda_, name, f32, ATOM_F32)                                                     \
    KRN_FIX_OP(krn_cuda_, name, bf16, ATOM_BF16)
#include "atom/base/ops.def"
#undef OP

static uint64_t workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act)
{
    if (op == ATOM_OP_embed)
        return krn_cuda_embed_workspace(backward, dim);
    if (op == ATOM_OP_layernorm)
        return krn_cuda_layernorm_workspace(backward, dim);
    if (op == ATOM_OP_rmsnorm)
        return krn_cuda_rmsnorm_workspace(backward, dim);
    if (op == ATOM_OP_headnorm)
        return krn_cuda_headnorm_workspace(backward, dim);
    if (op == ATOM_OP_dora)
        return krn_cuda_dora_workspace(backward, dim);
    if (op == ATOM_OP_attention && krn_cuda_attention_workspace)
        return krn_cuda_attention_workspace(backward, dim, act);
    if (op == ATOM_OP_classifier)
        return krn_cuda_classifier_workspace(backward, dim, act);
    if (op == ATOM_OP_linear || op == ATOM_OP_linear_gelu)
        return krn_cuda_linear_workspace(backward, dim, act, op == ATOM_OP_linear_gelu);
    return op == ATOM_OP_lora ? krn_cuda_lora_workspace() : 0;
}

KRN_FIX_WORKSPACE(workspace, f32, ATOM_F32)
KRN_FIX_WORKSPACE(workspace, bf16, ATOM_BF16)
KRN_FIX_SUMS(krn_cuda_, f32, ATOM_F32)
KRN_FIX_SUMS(krn_cuda_, bf16, ATOM_BF16)
KRN_FIX_UPDATE(krn_cuda_update, f32, ATOM_F32)
KRN_FIX_UPDATE(krn_cuda_update, bf16, ATOM_BF16)
KRN_FIX_ORTHO(krn_cuda_ortho, f32, ATOM_F32)
KRN_FIX_ORTHO(krn_cuda_ortho, bf16, ATOM_BF16)

static void fill_f32(krn_table *t)
{
    t->round = round_f32;
    t->sumsq = sumsq_f32;
    t->settle = settle_f32;
    t->update = update_f32;
    t->ortho = ortho_f32;
    t->workspace = workspace_f32;
#define OP(name, ...)                                                                              \
    t->fwd[ATOM_OP_##name] = krn_cuda_##name##_fwd ? name##_fwd_f32 : NULL;                        \
    t->bwd[ATOM_OP_##name] = krn_cuda_##name##_bwd ? name##_bwd_f32 : NULL;
#include "atom/base/ops.def"
#undef OP
}

static void fill_bf16(krn_table *t)
{
    t->round = round_bf16;
    t->sumsq = sumsq_bf16;
    t->settle = settle_bf16;
    t->update = update_bf16;
    t->ortho = ortho_bf16;
    t->workspace = workspace_bf16;
#define OP(name, ...)                                                                              \
    t->fwd[ATOM_OP_##name] = krn_cuda_##name##_fwd ? name##_fwd_bf16 : NULL;                       \
    t->bwd[ATOM_OP_##name] = krn_cuda_##name##_bwd ? name##_bwd_bf16 : NULL;
#include "atom/base/ops.def"
#undef OP
}

void krn_cuda_table_fill(krn_table *table, atom_dtype dtype, const char *backend, const char *isa)
{
    *table =
        (krn_table){.backend = backend,
                    .dtype = dtype,
                    .isa = isa,
                    .copy = krn_cuda_copy,
                    .can = KRN_CAN_GROUPED | KRN_CAN_NO_PLACES | KRN_CAN_WINDOW | KRN_CAN_APART,
                    .head_dim_max = KRN_CUDA_HEAD_DIM_MAX};
    if (dtype == ATOM_F32)
        fill_f32(table);
    else
        fill_bf16(table);
}
