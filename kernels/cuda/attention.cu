/*
 * Owns causal attention's forward pass in bf16, and the entries of the op. One idea: a block keeps
 * a tile of queries and walks over the keys up to the diagonal; a warp has whole rows of the
 * scores in the registers of its products, so the online softmax needs two shuffles, and the
 * probabilities turn into the next product's left operand without leaving the registers. The next
 * K and V are copied while these two are worked on (W up to 64), or in turn: V's tile arrives while
 * the scores are made, the next K's while they meet V. The walk begins at the first key that the
 * block's first query sees (window, document); what it skips is neither copied nor multiplied.
 * Refuses heads wider than 256.
 *
 * 128 threads and up to 255 registers: two blocks per multiprocessor, 8 warps; shared memory leaves
 * room for two everywhere (48 KiB at W 64 and at W 128; sm_86, sm_89 and sm_120 have 100). W 64,
 * one warp, 32 queries x 64 keys away from the diagonal: about 740 instructions, of which 128 are
 * products (6.4 clocks of a Hopper multiprocessor's quarter each: 820), 32 matrix loads (4 clocks
 * of the multiprocessor each, four warps at a time: 512) and 64 exponentials per lane (8 clocks of
 * a quarter each: 512). With dropout the random numbers (20 instructions per element) cost more
 * than the products. Measured on an H200 at T 1024: 223 TFLOP/s of 16 x 12 heads, 205 of 4 x 25;
 * with two barriers and a test of the cap per tile it was 168.
 *
 * Source: FlashAttention-2 (Dao 2023), algorithm 1 and section 3.3.
 */
#include "kernels/cuda/attention.cuh"

/*
 * Tiles of the forward pass: 16 ROW_TILES rows per warp, KEYS keys at once. HOLD: the queries stay
 * in registers. BUFFERS 2: the next keys and values arrive while a block works on these, and it
 * meets one barrier per tile; with 1 they arrive in turn. EXTRA: kernels that know dropout and
 * capped scores; the others have neither the code nor the registers for them.
 */
template <int W, bool EXTRA> struct fwd_shape {
    enum {
        ROW_TILES = W <= 128 ? 2 : 1,
        KEYS = W <= 64 && !EXTRA ? 64
               : W <= 80         ? 48
               : W <= 128        ? 32
                                 : 16,
        HOLD = W <= 64 && !EXTRA,
        BUFFERS = W <= 64 ? 2 : 1,
        ROWS = ATTEND_WARPS * 16 * ROW_TILES,
        TILE = attend_tile<W>::STRIDE * KEYS,
        BYTES = attend_tile<W>::bytes(ROWS + 2 * BUFFERS * KEYS)
    };
};

/* One warp's rows on their way through the keys. */
template <int W, bool EXTRA> struct fwd_state {
    typedef fwd_shape<W, EXTRA> shape;
    enum { M = shape::ROW_TILES, N = shape::KEYS / 8 };
    uint32_t held[shape::HOLD ? M : 1][shape::HOLD ? W / 16 : 1][4]; /* queries */
    float out[M][W / 8][4];
    float score[M][N][4];
    /* Of rows g and g + 8: what the exponents are relative to, and this lane's share of the sum. */
    float top[M][2], sum[M][2];
};

template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_begin(fwd_state<W, EXTRA> &s, const krn_bf16 *q, int row)
{
#pragma unroll
    for (int m = 0; m < fwd_state<W, EXTRA>::M; m++) {
        s.top[m][0] = s.top[m][1] = -INFINITY;
        s.sum[m][0] = s.sum[m][1] = 0.0f;
#pragma unroll
        for (int n = 0; n < W / 8; n++)
            s.out[m][n][0] = s.out[m][n][1] = s.out[m][n][2] = s.out[m][n][3] = 0.0f;
        if constexpr (fwd_shape<W, EXTRA>::HOLD) {
#pragma unroll
            for (int step = 0; step < W / 16; step++)
                attend_left<W>(s.held[m][step], q, row + 16 * m, step);
        }
    }
}

template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_scores(fwd_state<W, EXTRA> &s, const krn_bf16 *q,
                                                  const krn_bf16 *k, int row)
{
    constexpr int M = fwd_state<W, EXTRA>::M, N = fwd_state<W, EXTRA>::N;
    constexpr bool HOLD = fwd_shape<W, EXTRA>::HOLD;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < N; n++)
            s.score[m][n][0] = s.score[m][n][1] = s.score[m][n][2] = s.score[m][n][3] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < W / 16; step++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            if constexpr (!HOLD)
                attend_left<W>(a[m], q, row + 16 * m, step);
        }
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            attend_right<W>(b, k, 8 * n, step);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint32_t *left = HOLD ? s.held[HOLD ? m : 0][HOLD ? step : 0] : a[m];
                krn_mma(s.score[m][n], left, b);
                krn_mma(s.score[m][n + 1], left, b + 2);
            }
        }
    }
}

template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_cap(fwd_state<W, EXTRA> &s, const attend_job &job)
{
#pragma unroll
    for (int m = 0; m < fwd_state<W, EXTRA>::M; m++) {
#pragma unroll
        for (int n = 0; n < fwd_state<W, EXTRA>::N; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.score[m][n][e] = job.cap_out * tanhf(s.score[m][n][e] * job.cap_in);
        }
    }
}

/* Scores of keys that a query does not see: behind it, or (early) before its window or document,
 * which is looked up again where it is needed: no registers for it in the loop. row, key: first of
 * the warp's queries, first of the tile's keys. */
template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_hide(fwd_state<W, EXTRA> &s, const attend_job &job,
                                                int64_t line, int row, int key, bool early)
{
    constexpr int M = fwd_state<W, EXTRA>::M, N = fwd_state<W, EXTRA>::N;
    int g = krn_lane() / 4, t = krn_lane() % 4;
    if (!early && key + 8 * N - 1 <= row)
        return;
    attend_span span = {};
    if (early)
        span = attend_span_of(job, line / job.H);
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = row + 16 * m + g + 8 * half, first = early ? attend_first(span, query) : 0;
#pragma unroll
            for (int n = 0; n < N; n++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int at = key + 8 * n + 2 * t + e;
                    if (at > query || at < first)
                        s.score[m][n][2 * half + e] = -INFINITY;
                }
            }
        }
    }
}

/* Exponents relative to a row's old top may grow to this many powers of two before the row gets a
 * new one: most tiles then leave what was summed before as it is. */
#define FWD_SLACK 8.0f

/* Scores become probabilities relative to the row's top, which is at most FWD_SLACK below its
 * largest score so far; where the top moves, what was summed before shrinks. A row that has seen no
 * key yet stays at nothing. */
template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_softmax(fwd_state<W, EXTRA> &s, float scale2)
{
    constexpr int M = fwd_state<W, EXTRA>::M, N = fwd_state<W, EXTRA>::N;
    float shrink[M][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = s.score[m][0][2 * half], old = s.top[m][half];
#pragma unroll
            for (int n = 0; n < N; n++)
                top = fmaxf(top, fmaxf(s.score[m][n][2 * half], s.score[m][n][2 * half + 1]));
            top = fmaxf(top, krn_shuffle_xor(top, 1));
            top = fmaxf(top, krn_shuffle_xor(top, 2));
            bool moves = top > old && (top - old) * scale2 > FWD_SLACK;
            moved |= moves;
            top = moves ? top : old;
            float base = top == -INFINITY ? 0.0f : top, under = -base * scale2, sum = 0.0f;
            shrink[m][half] = moves ? krn_exp2_fast((old - base) * scale2) : 1.0f;
            s.top[m][half] = top;
#pragma unroll
            for (int n = 0; n < N; n++) {
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    s.score[m][n][e] = krn_exp2_fast(krn_fma(s.score[m][n][e], scale2, under));
                    sum += s.score[m][n][e];
                }
            }
            s.sum[m][half] = krn_fma(s.sum[m][half], shrink[m][half], sum);
        }
    }
    if (!krn_ballot(moved))
        return;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < W / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.out[m][n][e] *= shrink[m][e / 2];
        }
    }
}

template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_drop(fwd_state<W, EXTRA> &s, const attend_mask &mask,
                                                uint64_t line, int T, int row, int key)
{
#pragma unroll
    for (int m = 0; m < fwd_state<W, EXTRA>::M; m++) {
#pragma unroll
        for (int n = 0; n < fwd_state<W, EXTRA>::N; n++) {
            uint32_t keeps = attend_keeps_4<false>(mask, line, T, row + 16 * m, key + 8 * n);
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.score[m][n][e] = keeps >> e & 1 ? s.score[m][n][e] : 0.0f;
        }
    }
}

template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_values(fwd_state<W, EXTRA> &s, const krn_bf16 *v)
{
    constexpr int M = fwd_state<W, EXTRA>::M, N = fwd_state<W, EXTRA>::N;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            attend_round(a[m], s.score[m][n], s.score[m][n + 1]);
#pragma unroll
        for (int step = 0; step < W / 16; step++) {
            uint32_t b[4];
            attend_right_rows<W>(b, v, 8 * n, step);
#pragma unroll
            for (int m = 0; m < M; m++) {
                krn_mma(s.out[m][2 * step], a[m], b);
                krn_mma(s.out[m][2 * step + 1], a[m], b + 2);
            }
        }
    }
}

/* y and lse of the warp's rows. line: the row of y of query 0; stats: of lse. */
template <int W, bool EXTRA>
static __device__ __forceinline__ void fwd_store(const fwd_state<W, EXTRA> &s,
                                                 const attend_job &job, krn_bf16 *line,
                                                 float *stats, int row, float factor)
{
    int g = krn_lane() / 4, t = krn_lane() % 4;
#pragma unroll
    for (int m = 0; m < fwd_state<W, EXTRA>::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = s.sum[m][half];
            sum += krn_shuffle_xor(sum, 1);
            sum += krn_shuffle_xor(sum, 2);
            int at = row + 16 * m + g + 8 * half;
            if (at >= job.T)
                continue;
            float share = krn_div(factor, sum);
            if (t == 0)
                stats[at] = krn_fma(s.top[m][half], job.scale, logf(sum));
            krn_bf16 *to = line + at * attend_y_stride(job);
#pragma unroll
            for (int n = 0; n < W / 8; n++) {
                int d = 8 * n + 2 * t;
                float x = s.out[m][n][2 * half] * share, y = s.out[m][n][2 * half + 1] * share;
                if (job.packed) {
                    if (d < job.D)
                        *(uint32_t *)(to + d) = krn_bf16_pair(x, y);
                } else {
                    if (d < job.D)
                        krn_put(to + d, x);
                    if (d + 1 < job.D)
                        krn_put(to + d + 1, y);
                }
            }
        }
    }
}

/* Grid: blocks of queries of every head of every sample (attend_turn). */
template <int W, bool EXTRA>
__global__ void __launch_bounds__(ATTEND_THREADS, 2) attend_fwd(attend_job job, unsigned section)
{
    typedef fwd_shape<W, EXTRA> shape;
    constexpr int KEYS = shape::KEYS, TILE = shape::TILE;
    constexpr bool TWO = shape::BUFFERS == 2;
    KRN_SHARED_DYNAMIC(shared);
    krn_bf16 *q = (krn_bf16 *)shared, *k = q + shape::ROWS * attend_tile<W>::STRIDE,
             *v = k + shape::BUFFERS * TILE;
    int blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    attend_turn turn =
        attend_turn_of(blockIdx.x, section, gridDim.x / (unsigned)blocks, (unsigned)blocks);
    int first = (blocks - 1 - turn.tile) * shape::ROWS; /* most keys first */
    int64_t line = turn.line, b = line / job.H;
    int head = (int)(line - b * job.H), shared_head = head / (job.H / job.K);
    int64_t stride = attend_stride(job);
    const krn_bf16 *in = (const krn_bf16 *)job.qkv;
    const krn_bf16 *keys = in + attend_at(job, b, 1, shared_head);
    const krn_bf16 *values = in + attend_at(job, b, 2, shared_head);
    int end = first + shape::ROWS < job.T ? first + shape::ROWS : job.T;
    int row = first + krn_warp() * 16 * shape::ROW_TILES; /* the warp's first */

    attend_load<W, shape::ROWS>(q, in + attend_at(job, b, 0, head) + first * stride, stride,
                                job.T - first, job.D, job.packed);
    krn_copy_commit();
    attend_span span = attend_span_of(job, b);
    int from = attend_first(span, first) / KEYS * KEYS;
    int seen = attend_first(span, row); /* by the warp's first query, and by its last */
    int late = attend_first(span, row + 16 * shape::ROW_TILES - 1);
    auto load = [&](krn_bf16 *tile, const krn_bf16 *side, int key) {
        attend_load<W, KEYS>(tile, side + key * stride, stride, job.T - key, job.D, job.packed);
    };
    load(k, keys, from);
    if (TWO)
        load(v, values, from);
    krn_copy_commit();
    attend_mask mask = {};
    if constexpr (EXTRA)
        mask = attend_mask_of(job);
    fwd_state<W, EXTRA> s;
    krn_copy_wait<1>();
    krn_sync();
    fwd_begin<W, EXTRA>(s, q, row - first);
    float scale2 = job.scale * ATTEND_LOG2E;
    int buffer = 0;
#pragma unroll 1
    for (int key = from; key < end; key += KEYS) {
        bool near = row < job.T && key < row + 16 * shape::ROW_TILES && key + KEYS > seen;
        int next = key + KEYS;
        const krn_bf16 *k_here = k + buffer * TILE, *v_here = v + buffer * TILE;
        krn_copy_wait<0>();
        krn_sync(); /* K (TWO: and V) is there; nobody reads the last V any more */
        if (TWO) {
            buffer ^= 1;
            if (next < end) {
                load(k + buffer * TILE, keys, next);
                load(v + buffer * TILE, values, next);
            }
        } else
            load(v, values, key);
        krn_copy_commit();
        if (near) {
            fwd_scores<W, EXTRA>(s, q, k_here, row - first);
            if (EXTRA && job.cap_in != 0.0f)
                fwd_cap<W, EXTRA>(s, job);
            fwd_hide<W, EXTRA>(s, job, line, row, key, key < late);
            fwd_softmax<W, EXTRA>(s, scale2);
            if (EXTRA && mask.on)
                fwd_drop<W, EXTRA>(s, mask, (uint64_t)line * (uint64_t)job.T * (uint64_t)job.T,
                                   job.T, row, key);
        }
        if (!TWO) {
            krn_copy_wait<0>();
            krn_sync(); /* V is there; nobody reads K any more */
            if (next < end)
                load(k, keys, next);
            krn_copy_commit();
        }
        if (near)
            fwd_values<W, EXTRA>(s, v_here);
    }
    if (row < job.T)
        fwd_store<W, EXTRA>(s, job, (krn_bf16 *)job.out + attend_y_at(job, b, head),
                            job.lse + line * job.T, row, EXTRA && mask.on ? job.drop.scale : 1.0f);
}

/* delta[b,h,t] = dy y, 8 lanes per row. Rows lie in the order b, t, h. */
enum { DELTA_THREADS = 256, DELTA_LANES = 8, DELTA_ROWS = DELTA_THREADS / DELTA_LANES };

template <typename A>
__global__ void __launch_bounds__(DELTA_THREADS)
    attend_delta(attend_job job, const A *y, int64_t rows)
{
    constexpr int N = krn_pack<A>::N;
    int64_t at = (int64_t)blockIdx.x * DELTA_ROWS + threadIdx.x / DELTA_LANES;
    int lane = (int)threadIdx.x % DELTA_LANES;
    const A *dy = (const A *)job.dy;
    float sum = 0.0f;
    if (at < rows && job.packed) {
        for (int d = lane * N; d < job.D; d += DELTA_LANES * N) {
            float one[N], two[N];
            krn_load_pack(y + at * job.D + d, one);
            krn_load_pack(dy + at * job.D + d, two);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum = krn_fma(one[i], two[i], sum);
        }
    } else if (at < rows) {
        for (int d = lane; d < job.D; d += DELTA_LANES)
            sum = krn_fma(krn_float(y[at * job.D + d]), krn_float(dy[at * job.D + d]), sum);
    }
#pragma unroll
    for (int away = DELTA_LANES / 2; away; away /= 2)
        sum += krn_shuffle_xor(sum, away);
    if (at < rows && lane == 0) {
        int64_t h = at % job.H, t = at / job.H % job.T, b = at / job.H / job.T;
        job.delta[(b * job.H + h) * job.T + t] = sum;
    }
}

template <int W, bool EXTRA> static void run_fwd(krn_ctx *cx, const attend_job &job, int64_t B)
{
    typedef fwd_shape<W, EXTRA> shape;
    static_assert((int)shape::BYTES <= (int)ATTEND_BYTES_MAX, "too much shared memory");
    int64_t blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    krn_launch(cx, attend_fwd<W, EXTRA>, krn_grid(B * job.H * blocks), ATTEND_THREADS, shape::BYTES,
               job, (unsigned)attend_section(job, B * job.H));
}

template <bool EXTRA> static void run_widths(krn_ctx *cx, const attend_job &job, int64_t B)
{
    (job.D <= 64    ? run_fwd<64, EXTRA>
     : job.D <= 80  ? run_fwd<80, EXTRA>
     : job.D <= 96  ? run_fwd<96, EXTRA>
     : job.D <= 128 ? run_fwd<128, EXTRA>
                    : run_fwd<256, EXTRA>)(cx, job, B);
}

void krn_cuda_attention_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    attend_job job = attend_job_of(cx, args);
    int64_t B = args->dim[0];
    job.out = args->buf[1];
    job.lse = (float *)args->buf[2];
    if (act == ATOM_F32) {
        attend_fwd_f32(cx, job, B);
        return;
    }
    (job.drop.on || job.cap_in != 0.0f ? run_widths<true> : run_widths<false>)(cx, job, B);
}

uint64_t krn_cuda_attention_workspace(int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act)
{
    (void)act;
    return backward ? (uint64_t)(dim[0] * dim[1] * dim[2]) * sizeof(float) : 0;
}

void krn_cuda_attention_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    attend_job job = attend_job_of(cx, args);
    int64_t B = args->dim[0], rows = B * job.T * job.H;
    dim3 grid = krn_grid((rows + DELTA_ROWS - 1) / DELTA_ROWS);
    const void *y = args->buf[1];
    job.lse = (float *)args->buf[2];
    job.delta = (float *)cx->workspace;
    job.dy = args->buf[3];
    job.out = args->buf[4];
    if (!job.out)
        return;
    if (act == ATOM_F32) {
        krn_launch(cx, attend_delta<float>, grid, DELTA_THREADS, 0, job, (const float *)y, rows);
        attend_bwd_f32(cx, job, B);
    } else {
        krn_launch(cx, attend_delta<krn_bf16>, grid, DELTA_THREADS, 0, job, (const krn_bf16 *)y,
                   rows);
        attend_bwd_bf16(cx, job, B);
    }
}
