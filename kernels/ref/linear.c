/*
 * linear and linear_gelu. y = x w' + b: sum over i, add b, round once to act. linear_gelu: u =
 * that, rounded and saved; y = gelu(u as stored), rounded. Backward of linear_gelu: du = dy
 * gelu'(u) stays f64 in the workspace (fast backends may round du to act before the products; the
 * limits allow it). dx = dy w,  dw += dy' x,  db += sum_n dy.
 */
#include "kernels/ref/ref.h"

static int64_t block_width(int64_t at, int64_t end)
{
    return end - at < REF_BLOCK ? end - at : REF_BLOCK;
}

/* u: NULL in linear. */
static void product_row(const ref_job *job, int64_t n, void *y, void *u)
{
    const krn_args *args = job->args;
    int64_t I = args->dim[1], O = args->dim[2];
    for (int64_t o0 = 0; o0 < O; o0 += REF_BLOCK) {
        int64_t width = block_width(o0, O);
        double sum[REF_BLOCK] = {0};
        ref_dot_block(sum, width, I, job->act, args->buf[0], n * I, 1, job->act, args->buf[1],
                      o0 * I, 1, I);
        for (int64_t j = 0; j < width; j++) {
            int64_t at = n * O + o0 + j;
            if (args->buf[2])
                sum[j] += ref_get(job->act, args->buf[2], o0 + j);
            if (!u) {
                ref_put(job->act, y, at, sum[j]);
                continue;
            }
            ref_put(job->act, u, at, sum[j]);
            ref_put(job->act, y, at, ref_gelu(ref_get(job->act, u, at)));
        }
    }
}

static void linear_row(const ref_job *job, int64_t n)
{
    product_row(job, n, job->args->buf[3], NULL);
}

static void linear_gelu_row(const ref_job *job, int64_t n)
{
    product_row(job, n, job->args->buf[3], job->args->buf[4]);
}

void ref_linear_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], linear_row);
}

void ref_linear_gelu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], linear_gelu_row);
}

void ref_linear_d_in(const ref_job *job, int64_t n, int64_t in, int64_t out, atom_dtype dy_dtype,
                     const void *dy, const void *w, void *dx, bool add)
{
    for (int64_t i0 = 0; i0 < in; i0 += REF_BLOCK) {
        int64_t width = block_width(i0, in);
        double sum[REF_BLOCK] = {0};
        ref_dot_block(sum, width, out, dy_dtype, dy, n * out, 1, job->act, w, i0, in, 1);
        for (int64_t j = 0; j < width; j++)
            ref_put_or_add(job->act, dx, n * in + i0 + j, sum[j], add);
    }
}

void ref_linear_d_weight(const ref_job *job, int64_t o, int64_t rows, int64_t in, int64_t out,
                         atom_dtype dy_dtype, const void *dy, const void *x, void *dw)
{
    for (int64_t i0 = 0; i0 < in; i0 += REF_BLOCK) {
        int64_t width = block_width(i0, in);
        double sum[REF_BLOCK] = {0};
        ref_dot_block(sum, width, rows, dy_dtype, dy, o, out, job->act, x, i0, in, 1);
        for (int64_t j = 0; j < width; j++)
            ref_put_or_add(job->stat, dw, o * in + i0 + j, sum[j], true);
    }
}

/* Where backward finds its buffers: linear_gelu has u in front of dy, and du in place of dy. */
typedef struct linear_d {
    atom_dtype dy_dtype;
    const void *dy;
    void *dx, *dw, *db;
} linear_d;

static linear_d linear_d_of(const ref_job *job, bool gelu)
{
    void *const *buf = job->args->buf + (gelu ? 1 : 0);
    return (linear_d){.dy_dtype = gelu ? ATOM_F64 : job->act,
                      .dy = gelu ? job->cx->workspace : buf[4],
                      .dx = buf[5],
                      .dw = buf[6],
                      .db = buf[7]};
}

static void d_in_row(const ref_job *job, const linear_d *d, int64_t n)
{
    const krn_args *args = job->args;
    if (d->dx)
        ref_linear_d_in(job, n, args->dim[1], args->dim[2], d->dy_dtype, d->dy, args->buf[1], d->dx,
                        args->flags & KRN_ADD_D_IN0);
}

static void d_param_row(const ref_job *job, const linear_d *d, int64_t o)
{
    const krn_args *args = job->args;
    int64_t N = args->dim[0], I = args->dim[1], O = args->dim[2];
    if (d->dw)
        ref_linear_d_weight(job, o, N, I, O, d->dy_dtype, d->dy, args->buf[0], d->dw);
    if (d->db) {
        double sum = 0.0;
        for (int64_t n = 0; n < N; n++)
            sum += ref_get(d->dy_dtype, d->dy, n * O + o);
        ref_put_or_add(job->stat, d->db, o, sum, true);
    }
}

static void linear_d_in_row(const ref_job *job, int64_t n)
{
    linear_d d = linear_d_of(job, false);
    d_in_row(job, &d, n);
}

static void linear_d_param_row(const ref_job *job, int64_t o)
{
    linear_d d = linear_d_of(job, false);
    d_param_row(job, &d, o);
}

void ref_linear_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], linear_d_in_row);
    ref_parallel(cx, args, act, args->dim[2], linear_d_param_row);
}

/* Row n of du goes to the workspace first; its reader in this pass is this row alone. */
static void linear_gelu_d_in_row(const ref_job *job, int64_t n)
{
    const krn_args *args = job->args;
    int64_t O = args->dim[2];
    double *du = job->cx->workspace;
    for (int64_t at = n * O; at < (n + 1) * O; at++)
        du[at] = ref_get(job->act, args->buf[5], at) *
                 ref_gelu_slope(ref_get(job->act, args->buf[4], at));
    linear_d d = linear_d_of(job, true);
    d_in_row(job, &d, n);
}

static void linear_gelu_d_param_row(const ref_job *job, int64_t o)
{
    linear_d d = linear_d_of(job, true);
    d_param_row(job, &d, o);
}

void ref_linear_gelu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], linear_gelu_d_in_row);
    ref_parallel(cx, args, act, args->dim[2], linear_gelu_d_param_row);
}
