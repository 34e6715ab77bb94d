/*
 * cross_entropy and classifier. loss[n] = lse(logits[n]) - logits[n, target], f32; dlogits =
 * loss_scale * (softmax - onehot); rows with target < 0 have loss 0 and gradient 0. Backward writes
 * the loss as well. classifier: logits = x w' are not rounded and never stored as act; dlogits stay
 * f64 in the workspace (fast backends may round logits' gradient to act before the two products;
 * the limits allow it). ref keeps f64[N,V] at once, because it is the specification and not the
 * fast one.
 */
#include "kernels/ref/ref.h"

#include <math.h>

/* -1 where there is none. */
static int64_t target_at(const void *targets, int64_t n, int64_t V)
{
    int64_t target = ((const int32_t *)targets)[n];
    ATOM_ASSERT(target < V);
    return target < 0 ? -1 : target;
}

static double loss_of(const double *logits, int64_t V, int64_t target)
{
    return target < 0 ? 0.0 : ref_log_sum_exp(logits, V) - logits[target];
}

/* x f64[V]: capped logits in, gradients of those that are not capped out; returns the loss. */
static double loss_to_d(const ref_job *job, double *x, int64_t V, int64_t target)
{
    if (target < 0) {
        memset(x, 0, (size_t)V * sizeof *x);
        return 0.0;
    }
    double lse = ref_log_sum_exp(x, V), loss = lse - x[target];
    double scale = (double)job->cx->step->loss_scale;
    for (int64_t v = 0; v < V; v++)
        x[v] = scale * (exp(x[v] - lse) - (v == target ? 1.0 : 0.0)) *
               ref_cap_slope(x[v], job->args->cap);
    return loss;
}

static double *logits_row(const ref_job *job, int64_t n)
{
    int64_t V = job->args->dim[1];
    double *row = (double *)job->cx->workspace + n * V;
    for (int64_t v = 0; v < V; v++)
        row[v] = ref_capped(ref_get(job->act, job->args->buf[0], n * V + v), job->args->cap);
    return row;
}

static void loss_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t V = job->args->dim[1], target = target_at(buf[1], n, V);
    ref_put(job->stat, buf[2], n, loss_of(logits_row(job, n), V, target));
}

void ref_cross_entropy_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], loss_row);
}

static void loss_d_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t V = job->args->dim[1], target = target_at(buf[1], n, V);
    double *row = logits_row(job, n);
    ref_put(job->stat, buf[2], n, loss_to_d(job, row, V, target));
    for (int64_t v = 0; v < V && buf[4]; v++)
        ref_put_or_add(job->act, buf[4], n * V + v, row[v], job->args->flags & KRN_ADD_D_IN0);
}

void ref_cross_entropy_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], loss_d_row);
}

static double *classifier_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t C = job->args->dim[1], V = job->args->dim[2];
    double *row = (double *)job->cx->workspace + n * V;
    memset(row, 0, (size_t)V * sizeof *row);
    for (int64_t v = 0; v < V; v += REF_BLOCK)
        ref_dot_block(row + v, V - v < REF_BLOCK ? V - v : REF_BLOCK, C, job->act, buf[0], n * C, 1,
                      job->act, buf[2], v * C, 1, C);
    for (int64_t v = 0; v < V; v++)
        row[v] = ref_capped(row[v], job->args->cap);
    return row;
}

static void classifier_loss_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t V = job->args->dim[2], target = target_at(buf[1], n, V);
    ref_put(job->stat, buf[3], n, loss_of(classifier_row(job, n), V, target));
}

void ref_classifier_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], classifier_loss_row);
}

static void classifier_d_in_row(const ref_job *job, int64_t n)
{
    const krn_args *args = job->args;
    int64_t V = args->dim[2], target = target_at(args->buf[1], n, V);
    double loss = loss_to_d(job, classifier_row(job, n), V, target);
    ref_put(job->stat, args->buf[3], n, loss);
    if (args->buf[5])
        ref_linear_d_in(job, n, args->dim[1], V, ATOM_F64, job->cx->workspace, args->buf[2],
                        args->buf[5], args->flags & KRN_ADD_D_IN0);
}

static void classifier_d_weight_row(const ref_job *job, int64_t v)
{
    const krn_args *args = job->args;
    ref_linear_d_weight(job, v, args->dim[0], args->dim[1], args->dim[2], ATOM_F64,
                        job->cx->workspace, args->buf[0], args->buf[7]);
}

void ref_classifier_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], classifier_d_in_row);
    if (args->buf[7])
        ref_parallel(cx, args, act, args->dim[2], classifier_d_weight_row);
}
