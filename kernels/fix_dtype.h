/*
 * Entries of a backend's table (kernels.h) out of kernels that take their dtype as an argument: each
 * macro defines functions that fix it. Internal to the backends; thread and errors are the kernels'.
 */
#ifndef KERNELS_FIX_DTYPE_H
#define KERNELS_FIX_DTYPE_H

#include "kernels/kernels.h"

/* NAME_fwd_SUFFIX and NAME_bwd_SUFFIX, of PREFIX NAME_fwd and PREFIX NAME_bwd. */
#define KRN_FIX_OP(prefix, name, suffix, dtype)                                                    \
    static void name##_fwd_##suffix(krn_ctx *cx, const krn_args *args)                             \
    {                                                                                              \
        prefix##name##_fwd(cx, args, dtype);                                                       \
    }                                                                                              \
    static void name##_bwd_##suffix(krn_ctx *cx, const krn_args *args)                             \
    {                                                                                              \
        prefix##name##_bwd(cx, args, dtype);                                                       \
    }

/* round_SUFFIX, sumsq_SUFFIX and settle_SUFFIX, of PREFIX round and so on. */
#define KRN_FIX_SUMS(prefix, suffix, dtype)                                                        \
    static void round_##suffix(krn_ctx *cx, void *dst, const float *src, uint64_t n)               \
    {                                                                                              \
        prefix##round(cx, dst, src, n, dtype);                                                     \
    }                                                                                              \
    static void sumsq_##suffix(krn_ctx *cx, double *out, const void *x, uint64_t n)                \
    {                                                                                              \
        prefix##sumsq(cx, out, x, n, dtype);                                                       \
    }                                                                                              \
    static void settle_##suffix(krn_ctx *cx, void *dst, float *src, double *norms, uint64_t n)     \
    {                                                                                              \
        prefix##settle(cx, dst, src, norms, n, dtype);                                             \
    }

/* update_SUFFIX, of `update`. */
#define KRN_FIX_UPDATE(update, suffix, dtype)                                                      \
    static void update_##suffix(krn_ctx *cx, const krn_adamw_step *step, void *wire,               \
                                const void *grad, float *master, void *m, void *v, uint64_t n)     \
    {                                                                                              \
        update(cx, step, dtype, wire, grad, master, m, v, n);                                      \
    }

/* ortho_SUFFIX, of `ortho`, whose last argument is the dtype. */
#define KRN_FIX_ORTHO(ortho, suffix, dtype)                                                        \
    static void ortho_##suffix(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space)      \
    {                                                                                              \
        ortho(cx, x, rows, cols, space, dtype);                                                    \
    }

/* workspace_SUFFIX, of `workspace`, whose last argument is the dtype. */
#define KRN_FIX_WORKSPACE(workspace, suffix, dtype)                                                \
    static uint64_t workspace_##suffix(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX])   \
    {                                                                                              \
        return workspace(op, backward, dim, dtype);                                                \
    }

#endif
