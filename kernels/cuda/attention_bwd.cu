/*
 * Owns causal attention's backward pass in bf16. One idea: one kernel in two roles. A block keeps a
 * tile of rows and walks over columns, makes the scores and dP of 16 or 32 columns at a time in
 * registers, and turns P and dS there into left operands. With queries as rows it sums dq over the
 * keys; with keys as rows (KEYS) it sums dk and dv over the queries, and over the query heads that
 * share the key head. Scores are made twice that way, 7 products instead of 5, but each sum stays
 * with one warp in a fixed order: no atomics, no partial sums in memory. Both walks end where
 * windows and documents end. Refuses to store P.
 *
 *   P = exp(q k scale - lse)   dP = dy v    dS = P (mask dP - delta)    delta = dy y
 *   dq = scale dS k            dk = scale dS' q                         dv = (P mask)' dy
 *
 * Predicted, never measured (clocks as in attention.cu). Two blocks of 4 warps per multiprocessor
 * for W up to 128, 49 KiB of shared memory at W 64. W 64, one warp: dk and dv of 32 keys x 16
 * queries: 64 products (410 clocks of an H100's quarter), 32 matrix loads (512): bound by shared
 * memory; dq of 32 queries x 32 keys: 96 products (610), 40 loads (640). Counted as 5 products:
 * 25-30 % of an H100's peak, 50-55 % of sm_89's, where the two products too many are the cost.
 *
 * Sources: FlashAttention-2 (Dao 2023), algorithm 2; delta: FlashAttention (Dao et al. 2022), 3.1.
 */
#include "kernels/cuda/attention.cuh"

/*
 * Tiles: 16 ROW_TILES rows per warp; COLUMNS at once, of which STEP are in registers. Where sums of
 * W elements do not fit into a warp's registers, SPLIT warps have the same rows and share W. HOLD:
 * the rows stay in registers as left operands, so only the columns are read from shared memory.
 */
template <int W, bool KEYS> struct bwd_shape {
    enum {
        ROW_TILES = W <= 64 ? 2 : 1,
        SPLIT = W > 128 && KEYS ? 2 : 1,
        COLUMNS = W <= 64 ? 32 : 16,
        STEP = W <= 64 && !KEYS ? 32 : 16,
        HOLD = !KEYS && W > 64 && W <= 128,
        ROWS = ATTEND_WARPS * 16 * ROW_TILES / SPLIT,
        SUMS = W / SPLIT, /* elements of a row of sums that one warp has */
        TILE = attend_tile<W>::STRIDE * COLUMNS,
        BYTES = attend_tile<W>::bytes(2 * ROWS + 4 * COLUMNS) + (KEYS ? 4 * COLUMNS * 4 : 0)
    };
};

/* What a block sees: two tiles of rows, and of columns the first row in memory. */
struct bwd_side {
    const krn_bf16 *one, *two; /* rows: q dy, columns: k v; KEYS the other way */
    int64_t one_stride, two_stride;
};

template <int W, bool KEYS> struct bwd_state {
    enum { M = bwd_shape<W, KEYS>::ROW_TILES, N = bwd_shape<W, KEYS>::STEP / 8 };
    enum { SUMS = bwd_shape<W, KEYS>::SUMS };
    float one[M][SUMS / 8][4];                          /* dq, or dk */
    float two[KEYS ? M : 1][SUMS / 8][4];               /* dv */
    float lse[KEYS ? 1 : M][2], delta[KEYS ? 1 : M][2]; /* of rows g and g + 8 */
};

/* Where a head's queries or keys begin. */
static __device__ __forceinline__ bwd_side queries_of(const attend_job &job, int64_t b, int head)
{
    return bwd_side{(const krn_bf16 *)job.qkv + attend_at(job, b, 0, head),
                    (const krn_bf16 *)job.dy + attend_y_at(job, b, head), attend_stride(job),
                    attend_y_stride(job)};
}
static __device__ __forceinline__ bwd_side keys_of(const attend_job &job, int64_t b, int head)
{
    return bwd_side{(const krn_bf16 *)job.qkv + attend_at(job, b, 1, head),
                    (const krn_bf16 *)job.qkv + attend_at(job, b, 2, head), attend_stride(job),
                    attend_stride(job)};
}

/* lse in powers of two; queries that do not exist get P = 0. */
static __device__ __forceinline__ float lse2_at(const attend_job &job, int64_t line, int t)
{
    return t < job.T ? job.lse[line * job.T + t] * ATTEND_LOG2E : INFINITY;
}
static __device__ __forceinline__ float delta_at(const attend_job &job, int64_t line, int t)
{
    return t < job.T ? job.delta[line * job.T + t] : 0.0f;
}

/* The rows of a warp as left operands: read once (HOLD), or where they are needed. */
template <int W, bool KEYS> struct bwd_left {
    enum { M = bwd_state<W, KEYS>::M, HOLD = bwd_shape<W, KEYS>::HOLD };
    const krn_bf16 *tile;
    int row;
    uint32_t held[HOLD ? M : 1][HOLD ? W / 16 : 1][4];

    __device__ __forceinline__ void hold(void)
    {
        if constexpr (HOLD) {
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int step = 0; step < W / 16; step++)
                    attend_left<W>(held[m][step], tile, row + 16 * m, step);
            }
        }
    }
    __device__ __forceinline__ void get(uint32_t a[4], int m, int step) const
    {
        if constexpr (HOLD) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = held[m][step][i];
        } else
            attend_left<W>(a, tile, row + 16 * m, step);
    }
};

/* x = rows of `left` times columns of `right`, over W elements. */
template <int W, bool KEYS>
static __device__ __forceinline__ void bwd_product(float x[][bwd_state<W, KEYS>::N][4],
                                                   const bwd_left<W, KEYS> &left,
                                                   const krn_bf16 *right, int column)
{
    constexpr int M = bwd_state<W, KEYS>::M, N = bwd_state<W, KEYS>::N;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < N; n++)
            x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < W / 16; step++) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            left.get(a[m], m, step);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            attend_right<W>(b, right, column + 8 * n, step);
#pragma unroll
            for (int m = 0; m < M; m++) {
                krn_mma(x[m][n], a[m], b);
                krn_mma(x[m][n + 1], a[m], b + 2);
            }
        }
    }
}

/* sums += x times the rows column .. of `right`; first: of the elements that this warp sums. */
template <int W, bool KEYS>
static __device__ __forceinline__ void bwd_sum(float sums[][bwd_state<W, KEYS>::SUMS / 8][4],
                                               const float x[][bwd_state<W, KEYS>::N][4],
                                               const krn_bf16 *right, int column, int first)
{
    constexpr int M = bwd_state<W, KEYS>::M, N = bwd_state<W, KEYS>::N;
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            attend_round(a[m], x[m][n], x[m][n + 1]);
#pragma unroll
        for (int step = 0; step < bwd_state<W, KEYS>::SUMS / 16; step++) {
            uint32_t b[4];
            attend_right_rows<W>(b, right, column + 8 * n, first / 16 + step);
#pragma unroll
            for (int m = 0; m < M; m++) {
                krn_mma(sums[m][2 * step], a[m], b);
                krn_mma(sums[m][2 * step + 1], a[m], b + 2);
            }
        }
    }
}

/* What a warp needs to know of the columns it meets. */
struct bwd_place {
    int row, column;          /* numbers of the warp's first row, of the step's first column */
    uint64_t line;            /* dropout: element of query 0, key 0 of the head */
    const float *lse, *delta; /* KEYS: of the step's columns, in shared memory */
    float scale2, kept;       /* kept: 1/(1-p) */
    float cap_in, cap_out;    /* the job's */
};

/* Scores become P with the mask, dP becomes dS. */
template <int W, bool KEYS, bool DROP>
static __device__ __forceinline__ void
bwd_slopes(float p[][bwd_state<W, KEYS>::N][4], float d[][bwd_state<W, KEYS>::N][4],
           const bwd_state<W, KEYS> &s, const attend_mask &mask, const attend_span &span,
           const bwd_place &at)
{
    constexpr int M = bwd_state<W, KEYS>::M, N = bwd_state<W, KEYS>::N;
    int g = krn_lane() / 4, t = krn_lane() % 4;
    /* Some key of the step lies behind some query. */
    bool edge = KEYS ? at.row + 16 * M - 1 > at.column : at.column + 8 * N - 1 > at.row;
    /* Some key of the step lies before what some query sees. */
    bool early = KEYS ? at.row < attend_first(span, at.column + 8 * N - 1)
                      : at.column < attend_first(span, at.row + 16 * M - 1);
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 lse = {}, delta = {};
        if constexpr (KEYS) {
            lse = *(const float2 *)(at.lse + 8 * n + 2 * t);
            delta = *(const float2 *)(at.delta + 8 * n + 2 * t);
        }
#pragma unroll
        for (int m = 0; m < M; m++) {
            uint32_t keeps = 15;
            if (DROP && mask.on)
                keeps =
                    attend_keeps_4<KEYS>(mask, at.line, span.T, at.row + 16 * m, at.column + 8 * n);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float under = KEYS ? (e % 2 ? lse.y : lse.x) : s.lse[KEYS ? 0 : m][e / 2];
                float mean = KEYS ? (e % 2 ? delta.y : delta.x) : s.delta[KEYS ? 0 : m][e / 2];
                float bend = 1.0f;
                if (at.cap_in != 0.0f) {
                    float t = tanhf(p[m][n][e] * at.cap_in);
                    p[m][n][e] = at.cap_out * t;
                    bend = krn_fma(-t, t, 1.0f);
                }
                float one = krn_exp2_fast(krn_fma(p[m][n][e], at.scale2, -under));
                int r = at.row + 16 * m + g + e / 2 * 8, c = at.column + 8 * n + 2 * t + e % 2;
                if (edge && (KEYS ? r > c : c > r))
                    one = 0.0f;
                if (early && (KEYS ? r < attend_first(span, c) : c < attend_first(span, r)))
                    one = 0.0f;
                bool keep = !DROP || (keeps >> e & 1);
                float slope = DROP ? (keep ? d[m][n][e] * at.kept : 0.0f) : d[m][n][e];
                p[m][n][e] = keep ? one : 0.0f;
                d[m][n][e] = one * (slope - mean) * bend;
            }
        }
    }
}

/* Rounds and stores, or adds and rounds, the warp's sums. line: row 0 in memory. */
template <int W, bool KEYS>
static __device__ __forceinline__ void
bwd_store(const attend_job &job, krn_bf16 *line, int row, int first,
          const float sums[][bwd_state<W, KEYS>::SUMS / 8][4], float factor)
{
    int g = krn_lane() / 4, t = krn_lane() % 4;
#pragma unroll
    for (int m = 0; m < bwd_state<W, KEYS>::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = row + 16 * m + g + 8 * half;
            if (at >= job.T)
                continue;
            krn_bf16 *to = line + at * attend_stride(job);
#pragma unroll
            for (int n = 0; n < bwd_state<W, KEYS>::SUMS / 8; n++) {
                int d = first + 8 * n + 2 * t;
                float x = sums[m][n][2 * half] * factor, y = sums[m][n][2 * half + 1] * factor;
                if (d >= job.D)
                    continue;
                bool pair = job.packed || d + 1 < job.D;
                if (job.add) {
                    x = krn_float(to[d]) + x;
                    y = pair ? krn_float(to[d + 1]) + y : 0.0f;
                }
                if (job.packed)
                    *(uint32_t *)(to + d) = krn_bf16_pair(x, y);
                else {
                    krn_put(to + d, x);
                    if (pair)
                        krn_put(to + d + 1, y);
                }
            }
        }
    }
}

template <int W, bool KEYS, bool DROP>
__global__ void __launch_bounds__(ATTEND_THREADS, 2) attend_bwd(attend_job job)
{
    typedef bwd_shape<W, KEYS> shape;
    constexpr int M = shape::ROW_TILES, C = shape::COLUMNS;
    KRN_SHARED_DYNAMIC(shared);
    krn_bf16 *left = (krn_bf16 *)shared, *left2 = left + shape::ROWS * attend_tile<W>::STRIDE;
    krn_bf16 *right = left2 + shape::ROWS * attend_tile<W>::STRIDE; /* [2][one, two] */
    float *stats = (float *)(right + 4 * shape::TILE);              /* KEYS: [2][lse, delta][C] */

    int blocks = (job.T + shape::ROWS - 1) / shape::ROWS,
        index = (int)(blockIdx.x % (unsigned)blocks);
    int heads = KEYS ? job.K : job.H, group = job.H / job.K;
    int64_t line = blockIdx.x / (unsigned)blocks, b = line / heads;
    int head = (int)(line % heads); /* of keys (KEYS), or of queries */
    int first = (KEYS ? index : blocks - 1 - index) * shape::ROWS; /* most columns first */
    int warp = krn_warp();
    int row = first + warp / shape::SPLIT * 16 * M, sums_at = warp % shape::SPLIT * shape::SUMS;

    bwd_side rows = KEYS ? keys_of(job, b, head) : queries_of(job, b, head);
    attend_load<W, shape::ROWS>(left, rows.one + first * rows.one_stride, rows.one_stride,
                                job.T - first, job.D, job.packed);
    attend_load<W, shape::ROWS>(left2, rows.two + first * rows.two_stride, rows.two_stride,
                                job.T - first, job.D, job.packed);

    /* Columns: KEYS: of each head of the group the queries from `first` on that see one of the
     * rows; else the keys that the first row sees .. the diagonal. */
    attend_span span = attend_span_of(job, b);
    int last = (first + shape::ROWS > job.T ? job.T : first + shape::ROWS) - 1;
    int from = (KEYS ? first : attend_first(span, first)) / C * C;
    int end = KEYS ? attend_end(span, last, last) : last + 1;
    int per_head = (end - from + C - 1) / C, tiles = KEYS ? per_head * group : per_head;
    auto load = [&](int n) {
        int query_head = KEYS ? head * group + n / per_head : head;
        int c = from + n % per_head * C;
        bwd_side columns = KEYS ? queries_of(job, b, query_head) : keys_of(job, b, head / group);
        krn_bf16 *to = right + n % 2 * 2 * shape::TILE;
        attend_load<W, C>(to, columns.one + c * columns.one_stride, columns.one_stride, job.T - c,
                          job.D, job.packed);
        attend_load<W, C>(to + shape::TILE, columns.two + c * columns.two_stride,
                          columns.two_stride, job.T - c, job.D, job.packed);
        krn_copy_commit();
    };
    float stat = 0.0f; /* KEYS: one number of the next tile per thread */
    auto load_stat = [&](int n) {
        int64_t query_line = b * job.H + head * group + n / per_head;
        int i = (int)threadIdx.x % C, c = from + n % per_head * C + i;
        if ((int)threadIdx.x < 2 * C)
            stat =
                (int)threadIdx.x < C ? lse2_at(job, query_line, c) : delta_at(job, query_line, c);
    };
    auto store_stat = [&](int n) {
        if ((int)threadIdx.x < 2 * C)
            stats[n % 2 * 2 * C + (int)threadIdx.x] = stat;
    };

    load(0);
    bwd_state<W, KEYS> s;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < shape::SUMS / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s.one[m][n][e] = 0.0f;
                if constexpr (KEYS)
                    s.two[m][n][e] = 0.0f;
            }
        }
        if constexpr (!KEYS) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int t = row + 16 * m + krn_lane() / 4 + 8 * half;
                s.lse[m][half] = lse2_at(job, line, t);
                s.delta[m][half] = delta_at(job, line, t);
            }
        }
    }
    if constexpr (KEYS) {
        load_stat(0);
        store_stat(0);
    }
    attend_mask mask = {};
    if constexpr (DROP)
        mask = attend_mask_of(job);
    bwd_place at;
    at.row = row;
    at.scale2 = job.scale * ATTEND_LOG2E;
    at.cap_in = job.cap_in;
    at.cap_out = job.cap_out;
    at.kept = DROP && mask.on ? job.drop.scale : 1.0f;

    bwd_left<W, KEYS> mine, mine2;
    mine.tile = left;
    mine2.tile = left2;
    mine.row = mine2.row = row - first;
    for (int n = 0; n < tiles; n++) {
        krn_copy_wait<0>();
        krn_sync(); /* tile n is there; nobody reads tile n - 1 any more */
        if (n + 1 < tiles) {
            load(n + 1);
            if constexpr (KEYS)
                load_stat(n + 1);
        }
        if (n == 0) {
            mine.hold();
            mine2.hold();
        }
        const krn_bf16 *one = right + n % 2 * 2 * shape::TILE, *two = one + shape::TILE;
        int64_t query_line = KEYS ? b * job.H + head * group + n / per_head : line;
        at.line = (uint64_t)query_line * (uint64_t)job.T * (uint64_t)job.T;
#pragma unroll 1
        for (int step = 0; step < C; step += shape::STEP) {
            at.column = from + n % per_head * C + step;
            at.lse = stats + n % 2 * 2 * C + step;
            at.delta = at.lse + C;
            /* Some query of the step sees some key of the warp. */
            if (row >= job.T || (KEYS ? at.column + shape::STEP <= row ||
                                            attend_first(span, at.column) >= row + 16 * M
                                      : at.column >= row + 16 * M ||
                                            at.column + shape::STEP <= attend_first(span, row)))
                continue;
            float p[M][shape::STEP / 8][4], d[M][shape::STEP / 8][4];
            bwd_product<W, KEYS>(p, mine, one, step);
            bwd_product<W, KEYS>(d, mine2, two, step);
            bwd_slopes<W, KEYS, DROP>(p, d, s, mask, span, at);
            if constexpr (KEYS)
                bwd_sum<W, KEYS>(s.two, p, two, step, sums_at);
            bwd_sum<W, KEYS>(s.one, d, one, step, sums_at);
        }
        if constexpr (KEYS) {
            if (n + 1 < tiles)
                store_stat(n + 1);
        }
    }
    krn_bf16 *out = (krn_bf16 *)job.out;
    bwd_store<W, KEYS>(job, out + attend_at(job, b, KEYS ? 1 : 0, head), row, sums_at, s.one,
                       job.scale);
    if constexpr (KEYS)
        bwd_store<W, KEYS>(job, out + attend_at(job, b, 2, head), row, sums_at, s.two, at.kept);
}

template <int W, bool KEYS> static void run_side(krn_ctx *cx, const attend_job &job, int64_t B)
{
    typedef bwd_shape<W, KEYS> shape;
    static_assert((int)shape::BYTES <= (int)ATTEND_BYTES_MAX, "too much shared memory");
    int64_t blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    krn_launch(cx, job.drop.on ? attend_bwd<W, KEYS, true> : attend_bwd<W, KEYS, false>,
               krn_grid(B * (KEYS ? job.K : job.H) * blocks), ATTEND_THREADS, shape::BYTES, job);
}

template <int W> static void run_bwd(krn_ctx *cx, const attend_job &job, int64_t B)
{
    run_side<W, true>(cx, job, B);
    run_side<W, false>(cx, job, B);
}

void attend_bwd_bf16(krn_ctx *cx, const attend_job &job, int64_t B)
{
    (job.D <= 64    ? run_bwd<64>
     : job.D <= 80  ? run_bwd<80>
     : job.D <= 96  ? run_bwd<96>
     : job.D <= 128 ? run_bwd<128>
                    : run_bwd<256>)(cx, job, B);
}
