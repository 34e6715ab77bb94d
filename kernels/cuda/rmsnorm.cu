/*
 * Owns rmsnorm and headnorm and their backward. One idea: two layouts of the same rows. Wide rows
 * (rmsnorm) take a block each, as layernorm's do (norm.cu): packs of 16 bytes wait in registers
 * between the sum and its use; their backward reads rows ahead (teams.cuh). Heads take a group of
 * lanes, a pack per lane, and a block goes through the heads of a token; v passes. In backward a
 * block goes through a fixed share of tokens, keeps the sums of its columns of dw in registers and
 * leaves one part (finish.cuh). What is not made of whole packs, or too wide, goes element by
 * element, a block per row of either op. Refuses atomics.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/teams.cuh"

enum { THREADS_MAX = KRN_ROW_THREADS_MAX, HEAD_THREADS = 256, PARTS_MAX = 512 };

/* Sizes and places of either op; rmsnorm: one head of all channels per token, and no values. */
struct rms_job {
    const void *x, *dy;
    const void *w, *wk; /* of q and of k; never indexed, so that all stays in parameters */
    void *y, *dx;       /* dx may be NULL */
    float *rstd;
    float *parts; /* [blocks][weights][C] */
    int64_t N, C, rows;
    int q_heads, heads, all; /* with wq; normed; of a token */
    int weights;
    int lanes;               /* of a head: 1, 2, 4, .. 32 */
    int team, teams, stages; /* rmsnorm's backward: teams.cuh */
    float share;             /* 1 / C */
    float eps, lift;
};

static __device__ __forceinline__ float rstd_of(float sum, float C, float eps)
{
    return krn_div(1.0f, krn_sqrt(krn_div(sum, C) + eps));
}

/* ---- rows over blocks: thread i has packs i, i + threads, ... ---- */

template <typename A, int W, int PACKS>
__global__ void __launch_bounds__(THREADS_MAX) row_fwd(rms_job job)
{
    KRN_SHARED(float, scratch, 32);
    int packs = (int)(job.C / W), threads = (int)blockDim.x;
    const A *x = (const A *)job.x + (int64_t)blockIdx.x * job.C;
    A *y = (A *)job.y + (int64_t)blockIdx.x * job.C;
    float v[PACKS][W], sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = p * threads + (int)threadIdx.x;
        if (at < packs) {
            krn_load_pack(x + (int64_t)at * W, v[p]);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum = krn_fma(v[p][i], v[p][i], sum);
        }
    }
    float rstd = rstd_of(krn_block_sum(sum, scratch), (float)job.C, job.eps);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = p * threads + (int)threadIdx.x;
        if (at < packs) {
            float scale[W];
            krn_load_pack((const A *)job.w + (int64_t)at * W, scale);
#pragma unroll
            for (int i = 0; i < W; i++)
                v[p][i] = v[p][i] * rstd * (scale[i] + job.lift);
            krn_store_pack(y + (int64_t)at * W, v[p]);
        }
    }
    if (threadIdx.x == 0)
        job.rstd[blockIdx.x] = rstd;
}

/* One pack's share of dw and of the sum of d z; d = dy w, z = x rstd. */
template <typename A, int W>
static __device__ __forceinline__ float gather(float dw[W], uint4 xs, uint4 dys, uint4 ws,
                                               float lift, float rstd, float sum)
{
    float v[W], d[W], scale[W];
    krn_unpack(xs, (const A *)nullptr, v);
    krn_unpack(dys, (const A *)nullptr, d);
    krn_unpack(ws, (const A *)nullptr, scale);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float z = v[i] * rstd;
        dw[i] = krn_fma(d[i], z, dw[i]);
        sum = krn_fma(d[i] * (scale[i] + lift), z, sum);
    }
    return sum;
}

/* dx = rstd (d - z mean(d z)) of one pack; before: what dx was. */
template <typename A, int W, bool ADD>
static __device__ __forceinline__ void put_dx(A *to, uint4 xs, uint4 dys, uint4 ws, uint4 before,
                                              float lift, float rstd, float mean)
{
    float v[W], d[W], scale[W], old[W];
    krn_unpack(xs, to, v);
    krn_unpack(dys, to, d);
    krn_unpack(ws, to, scale);
    if constexpr (ADD)
        krn_unpack(before, to, old);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float inner = krn_fma(-(v[i] * rstd), mean, d[i] * (scale[i] + lift));
        d[i] = ADD ? krn_fma(rstd, inner, old[i]) : rstd * inner;
    }
    krn_store_pack(to, d);
}

/* The rows of this thread's team, from row n of the block's on. Pointers as in norm.cu. */
template <typename A, int W, int PACKS, bool ADD>
static __device__ __forceinline__ void team_rows(const rms_job *job, krn_ahead *ahead,
                                                 float *scratch, int n, float dw[PACKS][W])
{
    constexpr bool EARLY = ADD && PACKS < 4; /* dx is read ahead as well */
    constexpr int TENSORS = EARLY ? 3 : 2;
    int64_t first = (int64_t)blockIdx.x * job->rows, offset = first * job->C + ahead->column;
    const A *w = (const A *)job->w + ahead->column;
    A *dx = job->dx ? (A *)job->dx + offset : nullptr;
    const A *from[3] = {(const A *)job->x + offset, (const A *)job->dy + offset, dx};
    const float *rstds = job->rstd + first;
    uint4 ws[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (ahead->column + p * ahead->step < ahead->C)
            ws[p] = krn_load16(w + p * ahead->step);
    }
    krn_ahead_begin<A, TENSORS, PACKS>(ahead, from, n);
    float next = n < ahead->end ? rstds[n] : 0.0f;
    int turn = 0;
    for (int base = 0; base < ahead->end; base += ahead->teams, n += ahead->teams, turn ^= 1) {
        uint4 got[TENSORS][PACKS];
        float rstd = next, sum[1] = {0.0f};
        if (n + ahead->teams < ahead->end)
            next = rstds[n + ahead->teams];
        krn_ahead_take<A, TENSORS, PACKS>(ahead, got, from, n);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            if (krn_ahead_there(ahead, n, p))
                sum[0] = gather<A, W>(dw[p], got[0][p], got[1][p], ws[p], job->lift, rstd, sum[0]);
        }
        if (!dx)
            continue;
        krn_team_sums<1>(sum, scratch, turn, job->team);
        float mean = sum[0] * job->share;
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            A *to = dx + (n * ahead->C + p * ahead->step);
            if (krn_ahead_there(ahead, n, p))
                put_dx<A, W, ADD>(to, got[0][p], got[1][p], ws[p],
                                  ADD && !EARLY ? krn_load16(to) : got[TENSORS - 1][p], job->lift,
                                  rstd, mean);
        }
    }
}

template <typename A, int W, int PACKS, bool ADD>
__global__ void __launch_bounds__(THREADS_MAX, PACKS == 1 ? 2 : 1) row_bwd(rms_job job)
{
    KRN_SHARED_DYNAMIC(space);
    int64_t left = job.N - (int64_t)blockIdx.x * job.rows;
    int team = (int)threadIdx.x / job.team;
    krn_ahead ahead = {};
    ahead.slots = space + KRN_TEAM_SCRATCH_BYTES + threadIdx.x * 16;
    ahead.C = (int)job.C;
    ahead.end = (int)(job.rows < left ? job.rows : left);
    ahead.column = (int)threadIdx.x % job.team * W;
    ahead.step = job.team * W;
    ahead.teams = job.teams;
    ahead.stages = job.stages;
    float dw[PACKS][W];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            dw[p][i] = 0.0f;
    }
    team_rows<A, W, PACKS, ADD>(&job, &ahead, (float *)space, team, dw);
    if constexpr (PACKS == 1)
        krn_team_fold<W>(dw[0], (float *)(space + KRN_TEAM_SCRATCH_BYTES), job.team, job.teams);
    if (team != 0)
        return;
    float *part = job.parts + (int64_t)blockIdx.x * job.C + ahead.column;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if (ahead.column + p * ahead.step < ahead.C)
            krn_store_w<float, W>(part + p * ahead.step, dw[p]);
    }
}

/* ---- heads over groups of lanes: lane i of a group has pack i ---- */

/* The same sum in all lanes of a group; order: halves of the group. */
static __device__ __forceinline__ float group_sum(float x, int lanes)
{
    for (int away = lanes >> 1; away; away >>= 1)
        x += krn_shuffle_xor(x, away);
    return x;
}

template <typename A, int W> __global__ void __launch_bounds__(HEAD_THREADS) head_fwd(rms_job job)
{
    int groups = (int)blockDim.x / job.lanes, group = (int)threadIdx.x / job.lanes;
    int at = ((int)threadIdx.x & (job.lanes - 1)) * W, D = (int)job.C;
    int64_t token = (int64_t)blockIdx.x * job.all * D;
    for (int base = 0; base < job.all; base += groups) {
        int head = base + group;
        bool mine = head < job.all && at < D;
        int64_t place = token + (int64_t)head * D + at;
        float v[W], scale[W], sum = 0.0f;
        if (mine) {
            krn_load_pack((const A *)job.x + place, v);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum = krn_fma(v[i], v[i], sum);
        }
        float rstd = rstd_of(group_sum(sum, job.lanes), (float)D, job.eps);
        if (!mine)
            continue;
        if (head < job.heads) {
            krn_load_pack((const A *)(head < job.q_heads ? job.w : job.wk) + at, scale);
#pragma unroll
            for (int i = 0; i < W; i++)
                v[i] = v[i] * rstd * (scale[i] + job.lift);
            if (at == 0)
                job.rstd[(int64_t)blockIdx.x * job.heads + head] = rstd;
        }
        krn_store_pack((A *)job.y + place, v);
    }
}

/* dx of v: dy. */
template <typename A, int W, bool ADD>
static __device__ __forceinline__ void pass_pack(A *to, const A *from)
{
    float d[W], old[W];
    krn_load_pack(from, d);
    if constexpr (ADD) {
        krn_load_pack(to, old);
#pragma unroll
        for (int i = 0; i < W; i++)
            d[i] += old[i];
    }
    krn_store_pack(to, d);
}

/* Adds up what the groups of a warp have, then writes the sums of the warps, in ascending order. */
template <int W>
static __device__ __forceinline__ void leave_part(float *part, float dw[2][W], float *fold,
                                                  int lanes, int D)
{
    int at = ((int)threadIdx.x & (lanes - 1)) * W;
#pragma unroll
    for (int which = 0; which < 2; which++) {
#pragma unroll
        for (int i = 0; i < W; i++) {
            for (int away = 16; away >= lanes; away >>= 1)
                dw[which][i] += krn_shuffle_xor(dw[which][i], away);
            if (krn_lane() < lanes && at < D)
                fold[(krn_warp() * 2 + which) * D + at + i] = dw[which][i];
        }
    }
    krn_sync();
    for (int c = (int)threadIdx.x; c < 2 * D; c += (int)blockDim.x) {
        float sum = fold[c];
        for (int warp = 1; warp < krn_warps(); warp++)
            sum += fold[warp * 2 * D + c];
        part[c] = sum;
    }
}

template <typename A, int W, bool ADD>
__global__ void __launch_bounds__(HEAD_THREADS) head_bwd(rms_job job)
{
    KRN_SHARED(float, fold, HEAD_THREADS * 2 * W); /* a lane of each warp and pack: 2 W sums */
    int groups = (int)blockDim.x / job.lanes, group = (int)threadIdx.x / job.lanes;
    int at = ((int)threadIdx.x & (job.lanes - 1)) * W, D = (int)job.C;
    int heads = job.dx ? job.all : job.heads;
    float dw[2][W];
#pragma unroll
    for (int i = 0; i < W; i++)
        dw[0][i] = dw[1][i] = 0.0f;
    int64_t first = (int64_t)blockIdx.x * job.rows;
    int64_t end = first + job.rows < job.N ? first + job.rows : job.N;
    for (int64_t n = first; n < end; n++) {
        for (int base = 0; base < heads; base += groups) {
            int head = base + group;
            bool mine = head < job.heads && at < D, key = head >= job.q_heads;
            int64_t place = (n * job.all + head) * D + at;
            const A *w = (const A *)(key ? job.wk : job.w) + at;
            float rstd = 0.0f, sum = 0.0f;
            uint4 xs, dys, ws;
            if (mine) {
                rstd = job.rstd[n * job.heads + head];
                xs = krn_load16((const A *)job.x + place);
                dys = krn_load16((const A *)job.dy + place);
                ws = krn_load16(w);
                sum = key ? gather<A, W>(dw[1], xs, dys, ws, job.lift, rstd, sum)
                          : gather<A, W>(dw[0], xs, dys, ws, job.lift, rstd, sum);
            }
            if (!job.dx)
                continue;
            float mean = group_sum(sum, job.lanes) / (float)D;
            if (mine)
                put_dx<A, W, ADD>((A *)job.dx + place, xs, dys, ws,
                                  ADD ? krn_load16((A *)job.dx + place) : xs, job.lift, rstd, mean);
            else if (head < heads && at < D)
                pass_pack<A, W, ADD>((A *)job.dx + place, (const A *)job.dy + place);
        }
    }
    leave_part<W>(job.parts + (int64_t)blockIdx.x * 2 * D, dw, fold, job.lanes, D);
}

/* ---- element by element, either op ---- */

template <typename A> __global__ void __launch_bounds__(THREADS_MAX) any_fwd(rms_job job)
{
    KRN_SHARED(float, scratch, 64);
    for (int head = 0; head < job.all; head++) {
        int64_t at = ((int64_t)blockIdx.x * job.all + head) * job.C;
        const A *x = (const A *)job.x + at, *w = (const A *)(head < job.q_heads ? job.w : job.wk);
        A *y = (A *)job.y + at;
        bool normed = head < job.heads;
        float sum = 0.0f;
        for (int64_t c = threadIdx.x; c < job.C; c += blockDim.x)
            sum = krn_fma(krn_float(x[c]), krn_float(x[c]), sum);
        sum = krn_block_sum(sum, scratch + (head & 1) * 32);
        float rstd = rstd_of(sum, (float)job.C, job.eps);
        for (int64_t c = threadIdx.x; c < job.C; c += blockDim.x)
            krn_put(y + c, normed ? krn_float(x[c]) * rstd * (krn_float(w[c]) + job.lift)
                                  : krn_float(x[c]));
        if (normed && threadIdx.x == 0)
            job.rstd[(int64_t)blockIdx.x * job.heads + head] = rstd;
    }
}

/* Columns of dw lie in this block's part: each thread adds to its own. */
template <typename A, bool ADD> __global__ void __launch_bounds__(THREADS_MAX) any_bwd(rms_job job)
{
    KRN_SHARED(float, scratch, 64);
    float *part = job.parts + (int64_t)blockIdx.x * job.weights * job.C;
    for (int which = 0; which < job.weights; which++) {
        for (int64_t c = threadIdx.x; c < job.C; c += blockDim.x)
            part[which * job.C + c] = 0.0f;
    }
    int64_t first = (int64_t)blockIdx.x * job.rows;
    int64_t end = first + job.rows < job.N ? first + job.rows : job.N;
    int turn = 0;
    for (int64_t row = first * job.all; row < end * job.all; row++) {
        int64_t n = row / job.all;
        int head = (int)(row - n * job.all);
        bool key = head >= job.q_heads, normed = head < job.heads;
        const A *x = (const A *)job.x + row * job.C, *dy = (const A *)job.dy + row * job.C;
        const A *w = (const A *)(key ? job.wk : job.w);
        float rstd = normed ? job.rstd[n * job.heads + head] : 0.0f, sum = 0.0f;
        for (int64_t c = threadIdx.x; normed && c < job.C; c += blockDim.x) {
            float d = krn_float(dy[c]), z = krn_float(x[c]) * rstd;
            part[key * job.C + c] = krn_fma(d, z, part[key * job.C + c]);
            sum = krn_fma(d * (krn_float(w[c]) + job.lift), z, sum);
        }
        if (!job.dx)
            continue;
        turn ^= 32;
        float mean = krn_block_sum(sum, scratch + turn) / (float)job.C;
        A *dx = (A *)job.dx + row * job.C;
        for (int64_t c = threadIdx.x; c < job.C; c += blockDim.x) {
            float d = krn_float(dy[c]), old = ADD ? krn_float(dx[c]) : 0.0f;
            if (normed) {
                d = krn_fma(-(krn_float(x[c]) * rstd), mean, d * (krn_float(w[c]) + job.lift));
                d = ADD ? krn_fma(rstd, d, old) : rstd * d;
            } else if (ADD)
                d += old;
            krn_put(dx + c, d);
        }
    }
}

/* ---- from the host ---- */

uint64_t krn_cuda_rmsnorm_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    return backward ? (uint64_t)(krn_parts(dim[0], KRN_TEAM_PARTS_MAX) * dim[1]) * sizeof(float)
                    : 0;
}

uint64_t krn_cuda_headnorm_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    return backward ? (uint64_t)(krn_parts(dim[0], PARTS_MAX) * 2 * dim[2]) * sizeof(float) : 0;
}

static rms_job rmsnorm_job(krn_ctx *cx, const krn_args *args, bool backward)
{
    void *const *buf = args->buf;
    rms_job job = {};
    job.x = buf[0];
    job.w = buf[1];
    job.y = buf[2];
    job.rstd = (float *)buf[3];
    job.dy = backward ? buf[4] : nullptr;
    job.dx = backward ? buf[5] : nullptr;
    job.parts = (float *)cx->workspace;
    job.N = args->dim[0];
    job.C = args->dim[1];
    job.q_heads = job.heads = job.all = job.weights = 1;
    job.eps = args->eps;
    job.lift = args->lift;
    return job;
}

static rms_job headnorm_job(krn_ctx *cx, const krn_args *args, bool backward)
{
    void *const *buf = args->buf;
    int H = (int)args->dim[1], K = (int)krn_kv_heads(args->dim, 1, 3);
    rms_job job = {};
    job.x = buf[0];
    job.w = buf[1];
    job.wk = buf[2];
    job.y = buf[3];
    job.rstd = (float *)buf[4];
    job.dy = backward ? buf[5] : nullptr;
    job.dx = backward ? buf[6] : nullptr;
    job.parts = (float *)cx->workspace;
    job.N = args->dim[0];
    job.C = args->dim[2];
    job.rows = krn_rows_per_part(job.N, PARTS_MAX);
    job.q_heads = H;
    job.heads = H + K;
    job.all = H + 2 * K;
    job.weights = 2;
    job.eps = args->eps;
    job.lift = args->lift;
    return job;
}

/* Lanes of a head, 0: element by element; a block has a group for every head, or all it can. */
static int head_lanes(int64_t D, int64_t W)
{
    int lanes = 1;
    while (lanes < 32 && lanes * W < D)
        lanes *= 2;
    return D % W == 0 && D <= lanes * W ? lanes : 0;
}

static unsigned head_threads(const rms_job *job)
{
    int64_t threads = ((int64_t)job->all * job->lanes + 31) / 32 * 32;
    return threads < HEAD_THREADS ? (unsigned)threads : (unsigned)HEAD_THREADS;
}

static unsigned any_threads(int64_t C)
{
    return C < 256 ? (unsigned)((C + 31) / 32 * 32) : 256u;
}

template <typename A> static void run_row_fwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    rms_job job = rmsnorm_job(cx, args, false);
    krn_row s = krn_row_of(job.C, W);
    krn_launch(cx,
               s.packs == 0   ? any_fwd<A>
               : s.packs == 1 ? row_fwd<A, W, 1>
               : s.packs == 2 ? row_fwd<A, W, 2>
                              : row_fwd<A, W, 4>,
               krn_grid(job.N), s.threads, 0, job);
}

template <typename A, bool ADD> static void run_row_bwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    rms_job job = rmsnorm_job(cx, args, true);
    krn_teams s = krn_teams_of(job.C, W, ADD ? 3 : 2, 1);
    int64_t parts = krn_parts(job.N, KRN_TEAM_PARTS_MAX);
    job.rows = krn_rows_per_part(job.N, KRN_TEAM_PARTS_MAX);
    job.share = 1.0f / (float)job.C;
    job.team = s.team;
    job.teams = s.n;
    job.stages = s.stages;
    krn_launch(cx,
               s.packs == 0   ? any_bwd<A, ADD>
               : s.packs == 1 ? row_bwd<A, W, 1, ADD>
               : s.packs == 2 ? row_bwd<A, W, 2, ADD>
                              : row_bwd<A, W, 4, ADD>,
               krn_grid(parts), s.threads, s.shared_bytes, job);
    if (args->buf[6])
        krn_finish(cx, (float *)args->buf[6], nullptr, job.parts, parts, job.C, 0);
}

template <typename A> static void run_head_fwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    rms_job job = headnorm_job(cx, args, false);
    job.lanes = head_lanes(job.C, W);
    if (job.lanes)
        krn_launch(cx, head_fwd<A, W>, krn_grid(job.N), head_threads(&job), 0, job);
    else
        krn_launch(cx, any_fwd<A>, krn_grid(job.N), any_threads(job.C), 0, job);
}

template <typename A, bool ADD> static void run_head_bwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    rms_job job = headnorm_job(cx, args, true);
    int64_t parts = krn_parts(job.N, PARTS_MAX);
    job.lanes = head_lanes(job.C, W);
    if (job.lanes)
        krn_launch(cx, head_bwd<A, W, ADD>, krn_grid(parts), head_threads(&job), 0, job);
    else
        krn_launch(cx, any_bwd<A, ADD>, krn_grid(parts), any_threads(job.C), 0, job);
    if (args->buf[7] || args->buf[8])
        krn_finish(cx, (float *)args->buf[7], (float *)args->buf[8], job.parts, parts, 2 * job.C,
                   job.C);
}

void krn_cuda_rmsnorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_row_fwd<float> : run_row_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_rmsnorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[5] && (args->flags & KRN_ADD_D_IN0))
        (act == ATOM_F32 ? run_row_bwd<float, true> : run_row_bwd<krn_bf16, true>)(cx, args);
    else
        (act == ATOM_F32 ? run_row_bwd<float, false> : run_row_bwd<krn_bf16, false>)(cx, args);
}

void krn_cuda_headnorm_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_head_fwd<float> : run_head_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_headnorm_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->flags & KRN_ADD_D_IN0)
        (act == ATOM_F32 ? run_head_bwd<float, true> : run_head_bwd<krn_bf16, true>)(cx, args);
    else
        (act == ATOM_F32 ? run_head_bwd<float, false> : run_head_bwd<krn_bf16, false>)(cx, args);
}
