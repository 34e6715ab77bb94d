/*
 * Owns the ref tables and the sizes of ref's scratch. One idea: a kernel takes its dtype as an
 * argument, and the wrappers that fix it are made from ops.def, so an op without a ref kernel does
 * not link.
 */
#include "kernels/ref/ref.h"

#include "kernels/fix_dtype.h"

#include <string.h>

#define OP(name, ...)                                                                              \
    KRN_FIX_OP(ref_, name, f32, ATOM_F32)                                                          \
    KRN_FIX_OP(ref_, name, bf16, ATOM_BF16)                                                        \
    KRN_FIX_OP(ref_, name, f64, ATOM_F64)
#include "atom/base/ops.def"
#undef OP

uint64_t ref_workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])
{
    int64_t doubles = 0;
    if (op == ATOM_OP_linear_gelu && backward)
        doubles = dim[0] * dim[2]; /* du[N,O] */
    else if (op == ATOM_OP_attention)
        doubles = dim[0] * dim[1] * dim[2] * (backward ? 3 * dim[3] : 1); /* dqkv, or score[T] */
    else if (op == ATOM_OP_cross_entropy)
        doubles = dim[0] * dim[1]; /* dlogits[N,V] */
    else if (op == ATOM_OP_classifier)
        doubles = dim[0] * dim[2];
    return (uint64_t)doubles * sizeof(double);
}

static void ref_settle(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n,
                       atom_dtype dtype)
{
    ref_round(cx, dst, src, n, dtype);
    ref_sumsq(cx, norms, dst, n, dtype);
    memset(src, 0, n * sizeof(float));
}

static void update(krn_ctx *cx, const krn_adamw_step *step, atom_dtype dtype, void *wire,
                   const void *grad, float *master, void *m, void *v, uint64_t n)
{
    if (wire != grad)
        memcpy(wire, grad, n * atom_dtype_bytes(dtype));
    ref_adamw(cx->threads, step, dtype, wire, master, m, v, n);
}
KRN_FIX_SUMS(ref_, f32, ATOM_F32)
KRN_FIX_SUMS(ref_, bf16, ATOM_BF16)
KRN_FIX_UPDATE(update, f32, ATOM_F32)
KRN_FIX_UPDATE(update, bf16, ATOM_BF16)
KRN_FIX_ORTHO(ref_ortho, f32, ATOM_F32)
KRN_FIX_ORTHO(ref_ortho, bf16, ATOM_BF16)

/* What the tables have in common; sums and updates are made in what models are trained in. */
#define COMMON(type)                                                                               \
    .backend = "ref", .copy = krn_copy_host, .dtype = type, .isa = "scalar",                       \
    .workspace = ref_workspace,                                                                    \
    .can = KRN_CAN_GROUPED | KRN_CAN_NO_PLACES | KRN_CAN_WINDOW | KRN_CAN_APART
#define SUMS(suffix)                                                                               \
    .round = round_##suffix, .sumsq = sumsq_##suffix, .settle = settle_##suffix,                   \
    .update = update_##suffix, .ortho = ortho_##suffix

static const krn_table tables[] = {
    {
        COMMON(ATOM_F32),
        SUMS(f32),
#define OP(name, ...) .fwd[ATOM_OP_##name] = name##_fwd_f32, .bwd[ATOM_OP_##name] = name##_bwd_f32,
#include "atom/base/ops.def"
#undef OP
    },
    {
        COMMON(ATOM_BF16),
        SUMS(bf16),
#define OP(name, ...)                                                                              \
    .fwd[ATOM_OP_##name] = name##_fwd_bf16, .bwd[ATOM_OP_##name] = name##_bwd_bf16,
#include "atom/base/ops.def"
#undef OP
    },
    {
        COMMON(ATOM_F64),
#define OP(name, ...) .fwd[ATOM_OP_##name] = name##_fwd_f64, .bwd[ATOM_OP_##name] = name##_bwd_f64,
#include "atom/base/ops.def"
#undef OP
    },
};

const krn_table *krn_ref_table(atom_dtype dtype)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (tables[i].dtype == dtype)
            return &tables[i];
    }
    return NULL;
}

const krn_host_table *krn_ref_host_table(void)
{
    static const krn_host_table table = {
        .adamw = ref_adamw,
        .muon = ref_muon,
        .muon_begin = ref_muon_begin,
        .muon_end = ref_muon_end,
        .round = {[ATOM_F32] = round_f32, [ATOM_BF16] = round_bf16},
        .sumsq = {[ATOM_F32] = sumsq_f32, [ATOM_BF16] = sumsq_bf16},
    };
    return &table;
}
