/*
 * Owns layernorm and its backward. One idea: a block takes a row, each thread keeps its packs of
 * the row in registers (up to PACKS of 16 bytes), so memory is read once; mean first, then the
 * variance about it. Backward goes through a fixed share of rows per block, keeps the sums of dw
 * and db of its columns in registers over all of them and leaves one part per block (finish.cuh).
 * Rows that are too wide or not made of whole packs go element by element, same structure. Refuses
 * atomics.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/finish.cuh"

enum { THREADS_MAX = KRN_ROW_THREADS_MAX, PARTS_MAX = 512 };

/* The packs of a row, W elements each: thread i has packs i, i + threads, ... b: NULL adds nothing. */
template <typename A, int W, int PACKS>
__global__ void __launch_bounds__(THREADS_MAX)
    norm_fwd(A *y, float *means, float *rstds, const A *x, const A *w, const A *b, int64_t C,
             float eps)
{
    KRN_SHARED(float, scratch, 64);
    int packs = (int)(C / W), threads = (int)blockDim.x;
    int64_t row = (int64_t)blockIdx.x * C;
    float v[PACKS][W];
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = p * threads + (int)threadIdx.x;
        if (at < packs) {
            krn_load_w<A, W>(x + row + (int64_t)at * W, v[p]);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum += v[p][i];
        }
    }
    float mean = krn_block_sum(sum, scratch) / (float)C;
    sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (p * threads + (int)threadIdx.x < packs) {
#pragma unroll
            for (int i = 0; i < W; i++)
                sum = krn_fma(v[p][i] - mean, v[p][i] - mean, sum);
        }
    }
    float var = krn_block_sum(sum, scratch + 32) / (float)C;
    float rstd = krn_div(1.0f, krn_sqrt(var + eps));
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = p * threads + (int)threadIdx.x;
        if (at < packs) {
            float scale[W], shift[W] = {};
            krn_load_w<A, W>(w + (int64_t)at * W, scale);
            if (b)
                krn_load_w<A, W>(b + (int64_t)at * W, shift);
#pragma unroll
            for (int i = 0; i < W; i++)
                v[p][i] = krn_fma((v[p][i] - mean) * rstd, scale[i], shift[i]);
            krn_store_w<A, W>(y + row + (int64_t)at * W, v[p]);
        }
    }
    if (threadIdx.x == 0) {
        means[blockIdx.x] = mean;
        rstds[blockIdx.x] = rstd;
    }
}

/* Any C: three passes over the row, which stays in the caches. */
template <typename A>
__global__ void __launch_bounds__(THREADS_MAX)
    norm_fwd_any(A *y, float *means, float *rstds, const A *x, const A *w, const A *b, int64_t C,
                 float eps)
{
    KRN_SHARED(float, scratch, 64);
    const A *in = x + (int64_t)blockIdx.x * C;
    A *out = y + (int64_t)blockIdx.x * C;
    float sum = 0.0f;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x)
        sum += krn_float(in[c]);
    float mean = krn_block_sum(sum, scratch) / (float)C;
    sum = 0.0f;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
        float away = krn_float(in[c]) - mean;
        sum = krn_fma(away, away, sum);
    }
    float var = krn_block_sum(sum, scratch + 32) / (float)C;
    float rstd = krn_div(1.0f, krn_sqrt(var + eps));
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
        float z = (krn_float(in[c]) - mean) * rstd;
        krn_put(out + c, krn_fma(z, krn_float(w[c]), b ? krn_float(b[c]) : 0.0f));
    }
    if (threadIdx.x == 0) {
        means[blockIdx.x] = mean;
        rstds[blockIdx.x] = rstd;
    }
}

/* What a block of backward works on. */
struct norm_d {
    const void *x, *w, *dy;
    const float *mean, *rstd;
    void *dx;     /* or NULL */
    float *parts; /* [blocks][2C]: dw, then db */
    int64_t N, C, rows;
};

/* A row's statistics, and the means of d and d z over it. */
struct norm_row {
    float mean, rstd, mean_d, mean_dz;
};

/* dx of one pack: rstd (d - mean(d) - z mean(d z)), d = dy w, z = (x - mean) rstd. */
template <typename A, int W, bool ADD>
static __device__ __forceinline__ void norm_dx(A *to, const A *w, uint4 x, uint4 dy, norm_row row)
{
    float v[W], d[W], scale[W], old[W];
    krn_unpack(x, w, v);
    krn_unpack(dy, w, d);
    krn_load_pack(w, scale);
    if constexpr (ADD)
        krn_load_pack(to, old);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float z = (v[i] - row.mean) * row.rstd;
        float inner = krn_fma(-z, row.mean_dz, krn_fma(d[i], scale[i], -row.mean_d));
        d[i] = ADD ? krn_fma(row.rstd, inner, old[i]) : row.rstd * inner;
    }
    krn_store_pack(to, d);
}

/* x and dy wait in registers as they came, between the reductions and dx. */
template <typename A, int W, int PACKS, bool ADD>
__global__ void __launch_bounds__(THREADS_MAX) norm_bwd(norm_d job)
{
    KRN_SHARED(float, scratch, 128);
    int packs = (int)(job.C / W), threads = (int)blockDim.x;
    const A *x = (const A *)job.x, *dy = (const A *)job.dy, *w = (const A *)job.w;
    A *dx = (A *)job.dx;
    float dw[PACKS][W], db[PACKS][W];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            dw[p][i] = db[p][i] = 0.0f;
    }
    int64_t first = (int64_t)blockIdx.x * job.rows;
    int64_t end = first + job.rows < job.N ? first + job.rows : job.N;
    for (int64_t n = first; n < end; n++) {
        float mean = job.mean[n], rstd = job.rstd[n], sum = 0.0f, sum_z = 0.0f;
        uint4 xs[PACKS], dys[PACKS];
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int at = p * threads + (int)threadIdx.x;
            if (at < packs) {
                xs[p] = krn_load16(x + n * job.C + (int64_t)at * W);
                dys[p] = krn_load16(dy + n * job.C + (int64_t)at * W);
            }
        }
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int at = p * threads + (int)threadIdx.x;
            if (at < packs) {
                float v[W], d[W], scale[W];
                krn_unpack(xs[p], x, v);
                krn_unpack(dys[p], x, d);
                krn_load_pack(w + (int64_t)at * W, scale);
#pragma unroll
                for (int i = 0; i < W; i++) {
                    float z = (v[i] - mean) * rstd;
                    dw[p][i] = krn_fma(d[i], z, dw[p][i]);
                    db[p][i] += d[i];
                    sum = krn_fma(d[i], scale[i], sum);
                    sum_z = krn_fma(d[i] * scale[i], z, sum_z);
                }
            }
        }
        if (!dx)
            continue;
        float *turn = scratch + (n & 1) * 64;
        float mean_d = krn_block_sum(sum, turn) / (float)job.C;
        float mean_dz = krn_block_sum(sum_z, turn + 32) / (float)job.C;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int64_t at = (int64_t)(p * threads + (int)threadIdx.x) * W;
            if (at < job.C)
                norm_dx<A, W, ADD>(dx + n * job.C + at, w + at, xs[p], dys[p],
                                   norm_row{mean, rstd, mean_d, mean_dz});
        }
    }
    float *part = job.parts + (int64_t)blockIdx.x * 2 * job.C;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = p * threads + (int)threadIdx.x;
        if (at < packs) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                part[(int64_t)at * W + i] = dw[p][i];
                part[job.C + (int64_t)at * W + i] = db[p][i];
            }
        }
    }
}

/* Any C. The sums of dw and db lie in this block's part: each thread adds to its own columns. */
template <typename A, bool ADD>
__global__ void __launch_bounds__(THREADS_MAX) norm_bwd_any(norm_d job)
{
    KRN_SHARED(float, scratch, 128);
    const A *w = (const A *)job.w;
    float *part = job.parts + (int64_t)blockIdx.x * 2 * job.C;
    int64_t first = (int64_t)blockIdx.x * job.rows;
    int64_t end = first + job.rows < job.N ? first + job.rows : job.N;
    for (int64_t n = first; n < end; n++) {
        const A *x = (const A *)job.x + n * job.C, *dy = (const A *)job.dy + n * job.C;
        float mean = job.mean[n], rstd = job.rstd[n], sum = 0.0f, sum_z = 0.0f;
        for (int64_t c = threadIdx.x; c < job.C; c += blockDim.x) {
            float d = krn_float(dy[c]), z = (krn_float(x[c]) - mean) * rstd;
            float dw = d * z;
            part[c] = n == first ? dw : part[c] + dw;
            part[job.C + c] = n == first ? d : part[job.C + c] + d;
            d *= krn_float(w[c]);
            sum += d;
            sum_z = krn_fma(d, z, sum_z);
        }
        if (!job.dx)
            continue;
        float *turn = scratch + (n & 1) * 64;
        float mean_d = krn_block_sum(sum, turn) / (float)job.C;
        float mean_dz = krn_block_sum(sum_z, turn + 32) / (float)job.C;
        A *dx = (A *)job.dx + n * job.C;
        for (int64_t c = threadIdx.x; c < job.C; c += blockDim.x) {
            float z = (krn_float(x[c]) - mean) * rstd;
            float inner = krn_fma(-z, mean_dz, krn_fma(krn_float(dy[c]), krn_float(w[c]), -mean_d));
            krn_put(dx + c, ADD ? krn_fma(rstd, inner, krn_float(dx[c])) : rstd * inner);
        }
    }
}

template <typename A> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    void *const *buf = args->buf;
    int64_t N = args->dim[0], C = args->dim[1];
    krn_row s = krn_row_of(C, W);
    krn_launch(cx,
               s.packs == 0   ? norm_fwd_any<A>
               : s.packs == 1 ? norm_fwd<A, W, 1>
               : s.packs == 2 ? norm_fwd<A, W, 2>
                              : norm_fwd<A, W, 4>,
               krn_grid(N), s.threads, 0, (A *)buf[3], (float *)buf[4], (float *)buf[5],
               (const A *)buf[0], (const A *)buf[1], (const A *)buf[2], C, args->eps);
}

uint64_t krn_cuda_layernorm_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    return backward ? (uint64_t)(krn_parts(dim[0], PARTS_MAX) * 2 * dim[1]) * sizeof(float) : 0;
}

template <typename A, bool ADD> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    void *const *buf = args->buf;
    int64_t N = args->dim[0], C = args->dim[1];
    norm_d job = {buf[0],
                  buf[1],
                  buf[6],
                  (const float *)buf[4],
                  (const float *)buf[5],
                  buf[7],
                  (float *)cx->workspace,
                  N,
                  C,
                  krn_rows_per_part(N, PARTS_MAX)};
    krn_row s = krn_row_of(C, W);
    krn_launch(cx,
               s.packs == 0   ? norm_bwd_any<A, ADD>
               : s.packs == 1 ? norm_bwd<A, W, 1, ADD>
               : s.packs == 2 ? norm_bwd<A, W, 2, ADD>
                              : norm_bwd<A, W, 4, ADD>,
               krn_grid(krn_parts(N, PARTS_MAX)), s.threads, 0, job);
    if (buf[8] || buf[9])
        krn_finish(cx, (float *)buf[8], (float *)buf[9], job.parts, krn_parts(N, PARTS_MAX), 2 * C,
                   C);
}

void krn_cuda_layernorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_fwd<float> : run_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_layernorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->flags & KRN_ADD_D_IN0)
        (act == ATOM_F32 ? run_bwd<float, true> : run_bwd<krn_bf16, true>)(cx, args);
    else
        (act == ATOM_F32 ? run_bwd<float, false> : run_bwd<krn_bf16, false>)(cx, args);
}
