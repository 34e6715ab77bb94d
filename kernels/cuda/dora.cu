/*
 * Owns rownorm and dora on the device (kernels/ref/dora.c has the mathematics). One idea: rownorm
 * takes a few rows to a block, so that a is read once for them; dora goes over rows in packs of 16
 * bytes and makes the quotient m / n where it stands, and its sums over rows are parts of blocks
 * (finish.cuh). Columns that are not whole packs go element by element. Refuses atomics.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/finish.cuh"

enum { THREADS = 256, NORMS = 4, SUM_WARPS = 8, PARTS_MAX = 64 };

/* ---- rownorm ---- */

struct norm_job {
    float *n;
    const void *w, *a, *b; /* w: of its first row */
    int64_t O, I, R;
    float scale;
};

/* Rows from NORMS blockIdx.x on; the last one again where fewer are left. */
template <typename A> __global__ void __launch_bounds__(THREADS) row_norms(norm_job job)
{
    KRN_SHARED(float, scratch, 32 * NORMS);
    const A *w = (const A *)job.w, *a = (const A *)job.a, *b = (const A *)job.b;
    int64_t row[NORMS];
    float square[NORMS];
#pragma unroll
    for (int k = 0; k < NORMS; k++) {
        int64_t o = (int64_t)blockIdx.x * NORMS + k;
        row[k] = o < job.O ? o : job.O - 1;
        square[k] = 0.0f;
    }
    for (int64_t i = threadIdx.x; i < job.I; i += THREADS) {
        float sum[NORMS] = {};
        for (int64_t r = 0; r < job.R; r++) {
            float low = krn_float(a[r * job.I + i]);
#pragma unroll
            for (int k = 0; k < NORMS; k++)
                sum[k] = krn_fma(krn_float(b[row[k] * job.R + r]), low, sum[k]);
        }
#pragma unroll
        for (int k = 0; k < NORMS; k++) {
            float whole = krn_fma(job.scale, sum[k], krn_float(w[row[k] * job.I + i]));
            square[k] = krn_fma(whole, whole, square[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < NORMS; k++) {
        float total = krn_block_sum(square[k], scratch + 32 * k);
        if (threadIdx.x == 0)
            job.n[row[k]] = krn_sqrt(total);
    }
}

template <typename A> static void run_norms(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t O = args->dim[0], I = args->dim[1];
    norm_job job = {
        (float *)buf[3], (const A *)buf[0] + args->dim[3] * I, buf[1], buf[2], O, I, args->dim[2],
        args->scale};
    krn_launch(cx, row_norms<A>, krn_grid((O + NORMS - 1) / NORMS), THREADS, 0, job);
}

/* ---- dora, row by row ---- */

struct dora_job {
    const void *x, *m, *c; /* backward: x is dy and c is NULL. c may be NULL: 0 */
    const float *n;
    void *y;
    int64_t W, O, first; /* columns, those that change, and the first of them */
};

/* A block takes a row, a thread every THREADS-th pack of P. ADD: to what y has. */
template <typename A, int P, bool ADD>
__global__ void __launch_bounds__(THREADS) dora_rows(dora_job job)
{
    int64_t at = (int64_t)blockIdx.x * job.W;
    const A *x = (const A *)job.x + at, *c = (const A *)job.c, *m = (const A *)job.m;
    A *y = (A *)job.y + at;
    for (int64_t w = (int64_t)threadIdx.x * P; w < job.W; w += THREADS * P) {
        float v[P], bias[P] = {}, length[P], old[P];
        int64_t o = w - job.first;
        krn_load_w<A, P>(x + w, v);
        if (ADD)
            krn_load_w<A, P>(y + w, old);
        bool inside = o >= 0 && o < job.O;
        if (inside) {
            krn_load_w<A, P>(m + o, length);
            if (c)
                krn_load_w<A, P>(c + w, bias);
        }
#pragma unroll
        for (int i = 0; i < P; i++) {
            float n = inside ? job.n[o + i] : 0.0f;
            float f = n > 0.0f ? krn_div(length[i], n) : 0.0f;
            if (ADD)
                v[i] = inside ? krn_fma(v[i], f, old[i]) : v[i] + old[i];
            else if (inside)
                v[i] = krn_fma(v[i] - bias[i], f, bias[i]);
        }
        krn_store_w<A, P>(y + w, v);
    }
}

template <typename A> static void run_rows(krn_ctx *cx, int64_t N, dora_job job, bool add)
{
    constexpr int P = krn_pack<A>::N;
    bool whole = job.W % P == 0 && job.O % P == 0 && job.first % P == 0;
    krn_launch(cx,
               whole ? (add ? dora_rows<A, P, true> : dora_rows<A, P, false>)
                     : (add ? dora_rows<A, 1, true> : dora_rows<A, 1, false>),
               krn_grid(N), THREADS, 0, job);
}

template <typename A> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    dora_job job = {buf[0], buf[2],       buf[3],       (const float *)buf[1],
                    buf[4], args->dim[1], args->dim[2], args->dim[3]};
    run_rows<A>(cx, args->dim[0], job, false);
}

/* ---- dm and dc ---- */

struct sums_job {
    const void *x, *m, *c, *dy;
    const float *n;
    float *parts; /* [parts][2 O]: dm, then dc */
    int64_t N, W, O, first, rows;
};

/* 32 columns a block and `rows` rows, whose every SUM_WARPS-th is a warp's. */
template <typename A> __global__ void __launch_bounds__(SUM_WARPS * 32) dora_sums(sums_job job)
{
    KRN_SHARED(float, fold, 2 * SUM_WARPS * 32);
    int64_t o = (int64_t)blockIdx.x * 32 + krn_lane(), column = job.first + o;
    int64_t begin = (int64_t)blockIdx.y * job.rows;
    int64_t end = begin + job.rows < job.N ? begin + job.rows : job.N;
    const A *x = (const A *)job.x, *dy = (const A *)job.dy, *c = (const A *)job.c;
    bool there = o < job.O;
    float bias = there && c ? krn_float(c[column]) : 0.0f, product = 0.0f, sum = 0.0f;
    if (there) {
        for (int64_t n = begin + krn_warp(); n < end; n += SUM_WARPS) {
            float d = krn_float(dy[n * job.W + column]);
            product = krn_fma(d, krn_float(x[n * job.W + column]) - bias, product);
            sum += d;
        }
    }
    fold[threadIdx.x] = product;
    fold[SUM_WARPS * 32 + threadIdx.x] = sum;
    krn_sync();
    if (krn_warp() != 0 || !there)
        return;
    for (int warp = 1; warp < SUM_WARPS; warp++) {
        product += fold[warp * 32 + krn_lane()];
        sum += fold[(SUM_WARPS + warp) * 32 + krn_lane()];
    }
    float n = job.n[o];
    float inverse = n > 0.0f ? krn_div(1.0f, n) : 0.0f;
    float f = n > 0.0f ? krn_div(krn_float(((const A *)job.m)[o]), n) : 0.0f;
    float *part = job.parts + (int64_t)blockIdx.y * 2 * job.O;
    part[o] = product * inverse;
    part[job.O + o] = sum * (1.0f - f);
}

uint64_t krn_cuda_dora_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    return backward ? (uint64_t)(krn_parts(dim[0], PARTS_MAX) * 2 * dim[2]) * sizeof(float) : 0;
}

template <typename A> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t N = args->dim[0], W = args->dim[1], O = args->dim[2], first = args->dim[3];
    const float *n = (const float *)buf[1];
    if (buf[6])
        run_rows<A>(cx, N, dora_job{buf[5], buf[2], nullptr, n, buf[6], W, O, first},
                    args->flags & KRN_ADD_D_IN0);
    if (!buf[8] && !buf[9])
        return;
    sums_job job = {buf[0],
                    buf[2],
                    buf[3],
                    buf[5],
                    n,
                    (float *)cx->workspace,
                    N,
                    W,
                    O,
                    first,
                    krn_rows_per_part(N, PARTS_MAX)};
    krn_launch(cx, dora_sums<A>, krn_grid((O + 31) / 32, krn_parts(N, PARTS_MAX)), SUM_WARPS * 32,
               0, job);
    krn_finish(cx, (float *)buf[8], buf[9] ? (float *)buf[9] + first : nullptr, job.parts,
               krn_parts(N, PARTS_MAX), 2 * O, O);
}

/* ---- launchers ---- */

void krn_cuda_rownorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_norms<float> : run_norms<krn_bf16>)(cx, args);
}

void krn_cuda_rownorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (void)cx, (void)args, (void)act; /* a constant has no gradient: nobody calls this */
}

void krn_cuda_dora_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_fwd<float> : run_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_dora_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_bwd<float> : run_bwd<krn_bf16>)(cx, args);
}
