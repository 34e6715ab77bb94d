/*
 * ref: the scalar specification of every kernel. Other backends are tested against it.
 *
 * Rules that hold for all of ref, and that the others follow within the limits of tests/ops:
 * - Arithmetic and sums are f64. A value is rounded exactly where it is stored into a buffer of
 *   krn_args, and nowhere else: once to act (in, out, d_in), once to f32 (statistics, losses).
 * - KRN_ADD_D_IN*: round(existing + new), one rounding. d_params: f32, round(existing + sum).
 * - d_in and d_params that are NULL are skipped. Rows with target < 0 give zero gradients.
 * - What backward reads of forward (mean, rstd, lse, u, y) is the stored, rounded value.
 * Sums run in ascending index order and never cross tasks, so bits do not depend on threads.
 *
 * The act dtype is a parameter of every kernel here: F32, BF16, or F64, in which all float tensors
 * (statistics, losses and accumulators too) are f64: the tests differentiate that one numerically.
 *
 * Allocates nothing; big scratch is cx->workspace (ref_workspace), small scratch is on the stack.
 */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "atom/base/assert.h"
#include "atom/base/rng.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

enum { REF_BLOCK = 64 }; /* columns that one inner loop sums at once, on the stack */

static inline double ref_get(atom_dtype dtype, const void *x, int64_t i)
{
    if (dtype == ATOM_F32)
        return ((const float *)x)[i];
    if (dtype == ATOM_BF16)
        return atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
    return ((const double *)x)[i];
}

/* f64 to bf16 in one rounding (to nearest even): to odd at f32 first,
 * which loses no information. */
atom_bf16 ref_f64_to_bf16(double value);

static inline void ref_put(atom_dtype dtype, void *x, int64_t i, double value)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = (float)value;
    else if (dtype == ATOM_BF16)
        ((atom_bf16 *)x)[i] = ref_f64_to_bf16(value);
    else
        ((double *)x)[i] = value;
}

/* Writes, or adds and rounds once. */
static inline void ref_put_or_add(atom_dtype dtype, void *x, int64_t i, double value, bool add)
{
    ref_put(dtype, x, i, add ? ref_get(dtype, x, i) + value : value);
}

/* Of statistics, losses and parameter gradients. */
static inline atom_dtype ref_stat_dtype(atom_dtype act)
{
    return act == ATOM_F64 ? ATOM_F64 : ATOM_F32;
}

/* One row range of a kernel; `i` counts from 0 to the count given to ref_parallel. */
typedef struct ref_job {
    krn_ctx *cx;
    const krn_args *args;
    atom_dtype act;
    atom_dtype stat;
    void (*row)(const struct ref_job *job, int64_t i);
    int64_t rows, task_rows;
} ref_job;

/* Calls row(job, i) for all i < rows, split over cx->threads (NULL: one thread). */
void ref_parallel(krn_ctx *cx, const krn_args *args, atom_dtype act, int64_t rows,
                  void (*row)(const ref_job *job, int64_t i));

/*
 * sum[j] = start[j] + sum over k < depth of a[k a_step] * b[k b_step + j b_col], j < n <=
 * REF_BLOCK, k ascending. a and b have their own dtypes; start is sum's content on entry.
 */
void ref_dot_block(double *sum, int64_t n, int64_t depth, atom_dtype a_dtype, const void *a,
                   int64_t a_at, int64_t a_step, atom_dtype b_dtype, const void *b, int64_t b_at,
                   int64_t b_step, int64_t b_col);

/* Random keep-or-drop of one element, times 1/(1-p); 1 where there is no dropout. */
typedef struct ref_dropout {
    atom_rng_key key;
    uint32_t threshold;
    double scale;
    bool on;
} ref_dropout;
ref_dropout ref_dropout_make(const krn_ctx *cx, const krn_args *args);
double ref_dropout_factor(const ref_dropout *d, int64_t element);

/* cap tanh(x / cap), and its slope where that is y; cap 0: x, and 1. */
double ref_capped(double x, float cap);
double ref_cap_slope(double y, float cap);
double ref_gelu(double x);
double ref_gelu_slope(double x);
/* log(sum(exp(x[0..n)))) of f64 values. */
double ref_log_sum_exp(const double *x, int64_t n);

/* linear.c: the backward products of y = x w', shared with classifier: row n of dx = dy w, and row
 * o of dw += dy' x. dy[rows,out] has its own dtype; x, w, dx are act, dw is f32. */
void ref_linear_d_in(const ref_job *job, int64_t n, int64_t in, int64_t out, atom_dtype dy_dtype,
                     const void *dy, const void *w, void *dx, bool add);
void ref_linear_d_weight(const ref_job *job, int64_t o, int64_t rows, int64_t in, int64_t out,
                         atom_dtype dy_dtype, const void *dy, const void *x, void *dw);

/* The kernels: ref_<op>_fwd and ref_<op>_bwd for every row of ops.def; buffers as in kernels.h. */
#define OP(name, ...)                                                                              \
    void ref_##name##_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act);                      \
    void ref_##name##_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act);
#include "atom/base/ops.def"
#undef OP

uint64_t ref_workspace(atom_op op, int backward, const int64_t dim[KRN_DIM_MAX]);

/* muon.c */
void ref_muon(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype, void *wire,
              float *master, void *m, int64_t rows, int64_t cols, void *space);
void ref_muon_begin(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                    void *wire, void *m, int64_t rows, int64_t cols, double *sums);
void ref_muon_end(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                  void *wire, float *master, int64_t rows, int64_t cols);
void ref_ortho(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space, atom_dtype dtype);
/* adamw.c */
void ref_adamw(atom_threads *threads, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
               float *master, void *m, void *v, uint64_t n);
void ref_round(krn_ctx *cx, void *dst, const float *src, uint64_t n, atom_dtype wire);
void ref_sumsq(krn_ctx *cx, double *out, const void *x, uint64_t n, atom_dtype act);

#endif
