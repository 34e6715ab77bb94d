/*
 * Owns layernorm and its backward. One idea: a warp, or a block for a wide row, takes a row, each
 * thread keeps its packs of the row in registers (up to PACKS of 16 bytes), so memory is read once;
 * mean first, then the variance about it. Backward gives each block a fixed share of rows, which its
 * teams read ahead (teams.cuh); the sums of dw and db stay in registers over all of them, and a block
 * leaves one part of them (finish.cuh). Rows that are too wide or not made of whole packs go element
 * by element, same structure. Refuses atomics.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/teams.cuh"

enum { THREADS_MAX = KRN_ROW_THREADS_MAX, WARP_ROWS = 8, WARP_PACKS = 8 };

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

/* Rows of few packs: a warp takes a row, lane i has packs i, i + 32, ... as they came. No barrier,
 * so many rows are under way on each multiprocessor. */
template <typename A, int W, int PACKS>
__global__ void __launch_bounds__(WARP_ROWS * 32)
    norm_fwd_warp(A *y, float *means, float *rstds, const A *x, const A *w, const A *b, int64_t N,
                  int C, float share, float eps)
{
    int64_t row = (int64_t)blockIdx.x * WARP_ROWS + krn_warp();
    int first = krn_lane() * W;
    if (row >= N)
        return;
    uint4 xs[PACKS];
    float v[W], sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (first + p * 32 * W < C)
            xs[p] = krn_load16(x + row * C + first + p * 32 * W);
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (first + p * 32 * W < C) {
            krn_unpack(xs[p], x, v);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum += v[i];
        }
    }
    float mean = krn_warp_sum(sum) * share;
    sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (first + p * 32 * W < C) {
            krn_unpack(xs[p], x, v);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum = krn_fma(v[i] - mean, v[i] - mean, sum);
        }
    }
    float rstd = krn_div(1.0f, krn_sqrt(krn_warp_sum(sum) * share + eps));
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = first + p * 32 * W;
        if (at < C) {
            float scale[W], shift[W] = {};
            krn_unpack(xs[p], x, v);
            krn_load_pack(w + at, scale);
            if (b)
                krn_load_pack(b + at, shift);
#pragma unroll
            for (int i = 0; i < W; i++)
                v[i] = krn_fma((v[i] - mean) * rstd, scale[i], shift[i]);
            krn_store_pack(y + row * C + at, v);
        }
    }
    if (krn_lane() == 0) {
        means[row] = mean;
        rstds[row] = rstd;
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
    float share; /* 1 / C */
    int team, teams, stages;
};

/* A row's statistics, and the means of d and d z over it. */
struct norm_row {
    float mean, rstd, mean_d, mean_dz;
};

/* One pack's share of dw, db and of the sums of d and d z: d = dy w, z = (x - mean) rstd. */
template <typename A, int W>
static __device__ __forceinline__ void norm_gather(float sums[2 * W], float sum[2], uint4 w,
                                                   uint4 x, uint4 dy, const norm_row *row)
{
    float v[W], d[W], scale[W];
    krn_unpack(x, (const A *)nullptr, v);
    krn_unpack(dy, (const A *)nullptr, d);
    krn_unpack(w, (const A *)nullptr, scale);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float z = (v[i] - row->mean) * row->rstd, scaled = d[i] * scale[i];
        sums[i] = krn_fma(d[i], z, sums[i]);
        sums[W + i] += d[i];
        sum[0] += scaled;
        sum[1] = krn_fma(scaled, z, sum[1]);
    }
}

/* dx of one pack: rstd (d - mean(d) - z mean(d z)). */
template <typename A, int W, bool ADD>
static __device__ __forceinline__ void norm_dx(A *to, uint4 w, uint4 x, uint4 dy, uint4 before,
                                               const norm_row *row)
{
    float v[W], d[W], scale[W], old[W];
    krn_unpack(x, to, v);
    krn_unpack(dy, to, d);
    krn_unpack(w, to, scale);
    if constexpr (ADD)
        krn_unpack(before, to, old);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float z = (v[i] - row->mean) * row->rstd;
        float inner = krn_fma(-z, row->mean_dz, krn_fma(d[i], scale[i], -row->mean_d));
        d[i] = ADD ? krn_fma(row->rstd, inner, old[i]) : row->rstd * inner;
    }
    krn_store_pack(to, d);
}

/* The weights of pack p. Many packs leave no registers to keep them. */
template <typename A, int W, int PACKS>
static __device__ __forceinline__ uint4 weights_of(const A *w, const uint4 kept[PACKS], int p,
                                                   int step)
{
    return PACKS < 4 ? kept[p] : krn_load16(w + p * step);
}

/* The rows of this thread's team, from row n of the block's on; sums[p]: W of dw, W of db. x, dy, dx
 * and w point to this thread's first pack, mean and rstd to the block's first row. */
template <typename A, int W, int PACKS, bool ADD>
static __device__ __forceinline__ void norm_rows(const norm_d *job, krn_ahead *ahead,
                                                 float *scratch, int n, float sums[PACKS][2 * W])
{
    constexpr bool EARLY = ADD && PACKS < 4; /* dx is read ahead as well */
    constexpr int TENSORS = EARLY ? 3 : 2;
    int64_t first = (int64_t)blockIdx.x * job->rows, offset = first * job->C + ahead->column;
    const A *w = (const A *)job->w + ahead->column;
    A *dx = job->dx ? (A *)job->dx + offset : nullptr;
    const A *from[3] = {(const A *)job->x + offset, (const A *)job->dy + offset, dx};
    const float *means = job->mean + first, *rstds = job->rstd + first;
    uint4 kept[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (PACKS < 4 && ahead->column + p * ahead->step < ahead->C)
            kept[p] = krn_load16(w + p * ahead->step);
    }
    krn_ahead_begin<A, TENSORS, PACKS>(ahead, from, n);
    float mean = n < ahead->end ? means[n] : 0.0f, rstd = n < ahead->end ? rstds[n] : 0.0f;
    int turn = 0;
    for (int base = 0; base < ahead->end; base += ahead->teams, n += ahead->teams, turn ^= 1) {
        uint4 got[TENSORS][PACKS];
        norm_row row = {mean, rstd, 0.0f, 0.0f};
        if (n + ahead->teams < ahead->end) {
            mean = means[n + ahead->teams];
            rstd = rstds[n + ahead->teams];
        }
        krn_ahead_take<A, TENSORS, PACKS>(ahead, got, from, n);
        float sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (krn_ahead_there(ahead, n, p))
                norm_gather<A, W>(sums[p], sum, weights_of<A, W, PACKS>(w, kept, p, ahead->step),
                                  got[0][p], got[1][p], &row);
        }
        if (!dx)
            continue;
        krn_team_sums<2>(sum, scratch, turn, job->team);
        row.mean_d = sum[0] * job->share;
        row.mean_dz = sum[1] * job->share;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            A *to = dx + (n * ahead->C + p * ahead->step);
            if (krn_ahead_there(ahead, n, p))
                norm_dx<A, W, ADD>(to, weights_of<A, W, PACKS>(w, kept, p, ahead->step), got[0][p],
                                   got[1][p], ADD && !EARLY ? krn_load16(to) : got[TENSORS - 1][p],
                                   &row);
        }
    }
}

template <typename A, int W, int PACKS, bool ADD>
__global__ void __launch_bounds__(THREADS_MAX, PACKS == 1 ? 2 : 1) norm_bwd(norm_d job)
{
    KRN_SHARED_DYNAMIC(space);
    int64_t left = job.N - (int64_t)blockIdx.x * job.rows;
    int team = (int)threadIdx.x / job.team, column = (int)threadIdx.x % job.team * W;
    krn_ahead ahead = {};
    ahead.slots = space + KRN_TEAM_SCRATCH_BYTES + threadIdx.x * 16;
    ahead.C = (int)job.C;
    ahead.end = (int)(job.rows < left ? job.rows : left);
    ahead.column = column;
    ahead.step = job.team * W;
    ahead.teams = job.teams;
    ahead.stages = job.stages;
    float sums[PACKS][2 * W];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
#pragma unroll
        for (int i = 0; i < 2 * W; i++)
            sums[p][i] = 0.0f;
    }
    norm_rows<A, W, PACKS, ADD>(&job, &ahead, (float *)space, team, sums);
    if constexpr (PACKS == 1)
        krn_team_fold<2 * W>(sums[0], (float *)(space + KRN_TEAM_SCRATCH_BYTES), job.team,
                             job.teams);
    if (team != 0)
        return;
    float *part = job.parts + (int64_t)blockIdx.x * 2 * job.C + column;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (column + p * ahead.step < job.C) {
            krn_store_w<float, W>(part + p * ahead.step, sums[p]);
            krn_store_w<float, W>(part + job.C + p * ahead.step, sums[p] + W);
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

template <typename A> static void run_fwd_warps(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    void *const *buf = args->buf;
    int64_t N = args->dim[0], C = args->dim[1], packs = (C / W + 31) / 32;
    krn_launch(cx,
               packs <= 2   ? norm_fwd_warp<A, W, 2>
               : packs <= 3 ? norm_fwd_warp<A, W, 3>
               : packs <= 4 ? norm_fwd_warp<A, W, 4>
                            : norm_fwd_warp<A, W, WARP_PACKS>,
               krn_grid((N + WARP_ROWS - 1) / WARP_ROWS), WARP_ROWS * 32, 0, (A *)buf[3],
               (float *)buf[4], (float *)buf[5], (const A *)buf[0], (const A *)buf[1],
               (const A *)buf[2], N, (int)C, 1.0f / (float)C, args->eps);
}

template <typename A> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    void *const *buf = args->buf;
    int64_t N = args->dim[0], C = args->dim[1];
    krn_row s = krn_row_of(C, W);
    if (C % W == 0 && C <= WARP_PACKS * 32 * W) {
        run_fwd_warps<A>(cx, args);
        return;
    }
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
    return backward ? (uint64_t)(krn_parts(dim[0], KRN_TEAM_PARTS_MAX) * 2 * dim[1]) * sizeof(float)
                    : 0;
}

template <typename A, bool ADD> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    void *const *buf = args->buf;
    int64_t N = args->dim[0], C = args->dim[1], parts = krn_parts(N, KRN_TEAM_PARTS_MAX);
    krn_teams s = krn_teams_of(C, W, ADD ? 3 : 2, 2);
    norm_d job = {buf[0],
                  buf[1],
                  buf[6],
                  (const float *)buf[4],
                  (const float *)buf[5],
                  buf[7],
                  (float *)cx->workspace,
                  N,
                  C,
                  krn_rows_per_part(N, KRN_TEAM_PARTS_MAX),
                  1.0f / (float)C,
                  s.team,
                  s.n,
                  s.stages};
    krn_launch(cx,
               s.packs == 0   ? norm_bwd_any<A, ADD>
               : s.packs == 1 ? norm_bwd<A, W, 1, ADD>
               : s.packs == 2 ? norm_bwd<A, W, 2, ADD>
                              : norm_bwd<A, W, 4, ADD>,
               krn_grid(parts), s.threads, s.shared_bytes, job);
    if (buf[8] || buf[9])
        krn_finish(cx, (float *)buf[8], (float *)buf[9], job.parts, parts, 2 * C, C);
}

void krn_cuda_layernorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_fwd<float> : run_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_layernorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[7] && (args->flags & KRN_ADD_D_IN0))
        (act == ATOM_F32 ? run_bwd<float, true> : run_bwd<krn_bf16, true>)(cx, args);
    else
        (act == ATOM_F32 ? run_bwd<float, false> : run_bwd<krn_bf16, false>)(cx, args);
}
