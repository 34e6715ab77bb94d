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
 * Two blocks of 4 warps per multiprocessor for W up to 128, 50 KiB of shared memory at W 64. W 64,
 * one warp, away from the diagonal: dk and dv of 32 keys x 16 queries are about 240 instructions,
 * of which 64 are products (410 clocks of a Hopper multiprocessor's quarter) and 16 matrix loads
 * (256); dq of 32 queries x 32 keys about 400, 96 of them products (614) and 24 loads (384). So the
 * products bound both, and the two products too many of seven are the next largest cost. Measured
 * on an H200 at T 1024 (counted as 5 products): 171 TFLOP/s of 16 x 12 heads, 164 of 4 x 25; with
 * three times as many instructions in the loop it was 100.
 *
 * Sources: FlashAttention-2 (Dao 2023), algorithm 2; delta: FlashAttention (Dao et al. 2022), 3.1.
 */
#include "kernels/cuda/attention.cuh"

/*
 * Tiles: 16 ROW_TILES rows per warp; COLUMNS at once, of which STEP are in registers. Where sums of
 * W elements do not fit into a warp's registers, SPLIT warps have the same rows and share W. HOLD:
 * the rows stay in registers as left operands, so only the columns are read from shared memory.
 * EXTRA: kernels that know dropout and capped scores; the others have neither the code nor the
 * registers for them.
 */
template <int W, bool KEYS, bool EXTRA> struct bwd_shape {
    enum {
        ROW_TILES = W <= 64 ? 2 : 1,
        SPLIT = W > 128 && KEYS ? 2 : 1,
        HOLD = EXTRA ? !KEYS && W > 64 && W <= 128 : W <= 128,
        COLUMNS = (W <= 64 ? 32 : 16) * (HOLD ? 2 : 1),
        STEP = !KEYS && (W <= 64 || (HOLD && !EXTRA)) ? 32 : 16,
        ROWS = ATTEND_WARPS * 16 * ROW_TILES / SPLIT,
        SUMS = W / SPLIT, /* elements of a row of sums that one warp has */
        M = ROW_TILES,
        N = STEP / 8,
        TILE = attend_tile<W>::STRIDE * COLUMNS,
        BUFFERS =
            HOLD ? 1 : 2, /* of columns beside the rows; held rows leave the second their place */
        BYTES =
            attend_tile<W>::bytes(2 * ROWS + 2 * BUFFERS * COLUMNS) + (KEYS ? 4 * COLUMNS * 4 : 0)
    };
};

/* What a block sees: two tiles of rows, and of columns the first row in memory. */
struct bwd_side {
    const krn_bf16 *one, *two; /* rows: q dy, columns: k v; KEYS the other way */
    int64_t one_stride, two_stride;
};

template <typename S, bool KEYS> struct bwd_state {
    float one[S::M][S::SUMS / 8][4];            /* dq, or dk */
    float two[KEYS ? S::M : 1][S::SUMS / 8][4]; /* dv */
    /* Of rows g and g + 8: -lse in powers of two, and -delta. */
    float under[KEYS ? 1 : S::M][2], less[KEYS ? 1 : S::M][2];
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

/* Minus lse in powers of two; queries that do not exist get P = 0. */
static __device__ __forceinline__ float under_at(const attend_job &job, int64_t line, int t)
{
    return t < job.T ? job.lse[line * job.T + t] * -ATTEND_LOG2E : -INFINITY;
}
/* Minus delta. */
static __device__ __forceinline__ float less_at(const attend_job &job, int64_t line, int t)
{
    return t < job.T ? -job.delta[line * job.T + t] : 0.0f;
}

/* The rows of a warp as left operands: read once (HOLD), or where they are needed. */
template <int W, typename S> struct bwd_left {
    const krn_bf16 *tile;
    int row;
    uint32_t held[S::HOLD ? S::M : 1][S::HOLD ? W / 16 : 1][4];

    __device__ __forceinline__ void hold(void)
    {
        if constexpr (S::HOLD) {
#pragma unroll
            for (int m = 0; m < S::M; m++) {
#pragma unroll
                for (int step = 0; step < W / 16; step++)
                    attend_left<W>(held[m][step], tile, row + 16 * m, step);
            }
        }
    }
    __device__ __forceinline__ void get(uint32_t a[4], int m, int step) const
    {
        if constexpr (S::HOLD) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = held[m][step][i];
        } else
            attend_left<W>(a, tile, row + 16 * m, step);
    }
};

/* x += rows of `left` times columns of `right`, over W elements. */
template <int W, typename S>
static __device__ __forceinline__ void bwd_product(float x[][S::N][4], const bwd_left<W, S> &left,
                                                   const krn_bf16 *right, int column)
{
#pragma unroll
    for (int step = 0; step < W / 16; step++) {
        uint32_t a[S::M][4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
            left.get(a[m], m, step);
#pragma unroll
        for (int n = 0; n < S::N; n += 2) {
            uint32_t b[4];
            attend_right<W>(b, right, column + 8 * n, step);
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                krn_mma(x[m][n], a[m], b);
                krn_mma(x[m][n + 1], a[m], b + 2);
            }
        }
    }
}

/* sums += x times the rows column .. of `right`; first: of the elements that this warp sums. */
template <int W, typename S>
static __device__ __forceinline__ void bwd_sum(float sums[][S::SUMS / 8][4],
                                               const float x[][S::N][4], const krn_bf16 *right,
                                               int column, int first)
{
#pragma unroll
    for (int n = 0; n < S::N; n += 2) {
        uint32_t a[S::M][4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
            attend_round(a[m], x[m][n], x[m][n + 1]);
#pragma unroll
        for (int step = 0; step < S::SUMS / 16; step++) {
            uint32_t b[4];
            attend_right_rows<W>(b, right, column + 8 * n, first / 16 + step);
#pragma unroll
            for (int m = 0; m < S::M; m++) {
                krn_mma(sums[m][2 * step], a[m], b);
                krn_mma(sums[m][2 * step + 1], a[m], b + 2);
            }
        }
    }
}

/* What a warp needs to know of the columns it meets. */
struct bwd_place {
    int row, column;           /* numbers of the warp's first row, of the step's first column */
    uint64_t line;             /* dropout: element of query 0, key 0 of the head */
    const float *under, *less; /* KEYS: of the step's columns, in shared memory */
    float scale2, kept;        /* kept: 1/(1-p) */
    float cap_in, cap_out;     /* the job's */
    bool apart;                /* there are windows or documents */
};

/* Where the sums of the scores and of dP begin: the first at nothing, the second at -delta, which
 * saves a subtraction per element; with dropout dP is scaled first, so there it begins at nothing. */
template <typename S, bool KEYS, bool EXTRA>
static __device__ __forceinline__ void bwd_begin(float p[][S::N][4], float d[][S::N][4],
                                                 const bwd_state<S, KEYS> &s, const bwd_place &at)
{
    int t = krn_lane() % 4;
#pragma unroll
    for (int n = 0; n < S::N; n++) {
        float2 less = {};
        if constexpr (KEYS && !EXTRA)
            less = *(const float2 *)(at.less + 8 * n + 2 * t);
#pragma unroll
        for (int m = 0; m < S::M; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                p[m][n][e] = 0.0f;
                d[m][n][e] = EXTRA  ? 0.0f
                             : KEYS ? (e % 2 ? less.y : less.x)
                                    : s.less[KEYS ? 0 : m][e / 2];
            }
        }
    }
}

/* Scores of keys that a query does not see become -inf, and P so 0. */
template <typename S, bool KEYS>
static __device__ __forceinline__ void bwd_hide(float p[][S::N][4], const attend_span &span,
                                                const bwd_place &at)
{
    int g = krn_lane() / 4, t = krn_lane() % 4;
    /* Some key of the step lies behind some query. */
    bool edge = KEYS ? at.row + 16 * S::M - 1 > at.column : at.column + 8 * S::N - 1 > at.row;
    /* Some key of the step lies before what some query sees. */
    bool early = at.apart && (KEYS ? at.row < attend_first(span, at.column + 8 * S::N - 1)
                                   : at.column < attend_first(span, at.row + 16 * S::M - 1));
    if (!edge && !early)
        return;
#pragma unroll
    for (int n = 0; n < S::N; n++) {
#pragma unroll
        for (int m = 0; m < S::M; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int r = at.row + 16 * m + g + e / 2 * 8, c = at.column + 8 * n + 2 * t + e % 2;
                if (KEYS ? r > c : c > r)
                    p[m][n][e] = -INFINITY;
            }
        }
    }
    if (!early)
        return;
#pragma unroll
    for (int n = 0; n < S::N; n++) {
#pragma unroll
        for (int m = 0; m < S::M; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int r = at.row + 16 * m + g + e / 2 * 8, c = at.column + 8 * n + 2 * t + e % 2;
                if (KEYS ? r < attend_first(span, c) : c < attend_first(span, r))
                    p[m][n][e] = -INFINITY;
            }
        }
    }
}

/* Capped scores (bend: the slope of the cap). */
template <typename S>
static __device__ __forceinline__ void bwd_cap(float p[][S::N][4], float bend[][S::N][4],
                                               const bwd_place &at)
{
#pragma unroll
    for (int n = 0; n < S::N; n++) {
#pragma unroll
        for (int m = 0; m < S::M; m++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                bend[m][n][e] = 1.0f;
                if (at.cap_in != 0.0f) {
                    float t = tanhf(p[m][n][e] * at.cap_in);
                    p[m][n][e] = at.cap_out * t;
                    bend[m][n][e] = krn_fma(-t, t, 1.0f);
                }
            }
        }
    }
}

/* Scores become P with the mask, dP becomes dS; without EXTRA delta has been subtracted already. */
template <typename S, bool KEYS, bool EXTRA>
static __device__ __forceinline__ void
bwd_slopes(float p[][S::N][4], float d[][S::N][4], const float bend[][S::N][4],
           const bwd_state<S, KEYS> &s, const attend_mask &mask, int T, const bwd_place &at)
{
    int t = krn_lane() % 4;
#pragma unroll
    for (int n = 0; n < S::N; n++) {
        float2 under = {}, less = {};
        if constexpr (KEYS) {
            under = *(const float2 *)(at.under + 8 * n + 2 * t);
            if constexpr (EXTRA)
                less = *(const float2 *)(at.less + 8 * n + 2 * t);
        }
#pragma unroll
        for (int m = 0; m < S::M; m++) {
            uint32_t keeps = 15;
            if (EXTRA && mask.on)
                keeps = attend_keeps_4<KEYS>(mask, at.line, T, at.row + 16 * m, at.column + 8 * n);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float lower = KEYS ? (e % 2 ? under.y : under.x) : s.under[KEYS ? 0 : m][e / 2];
                float one = krn_exp2_fast(krn_fma(p[m][n][e], at.scale2, lower));
                if constexpr (EXTRA) {
                    float minus = KEYS ? (e % 2 ? less.y : less.x) : s.less[KEYS ? 0 : m][e / 2];
                    bool keep = keeps >> e & 1;
                    float slope = keep ? d[m][n][e] * at.kept : 0.0f;
                    p[m][n][e] = keep ? one : 0.0f;
                    d[m][n][e] = one * (slope + minus) * bend[m][n][e];
                } else {
                    p[m][n][e] = one;
                    d[m][n][e] = one * d[m][n][e];
                }
            }
        }
    }
}

/* Rounds and stores, or adds and rounds, the warp's sums. line: row 0 in memory. */
template <typename S>
static __device__ __forceinline__ void bwd_store(const attend_job &job, krn_bf16 *line, int row,
                                                 int first, const float sums[][S::SUMS / 8][4],
                                                 float factor)
{
    int g = krn_lane() / 4, t = krn_lane() % 4;
#pragma unroll
    for (int m = 0; m < S::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = row + 16 * m + g + 8 * half;
            if (at >= job.T)
                continue;
            krn_bf16 *to = line + at * attend_stride(job);
#pragma unroll
            for (int n = 0; n < S::SUMS / 8; n++) {
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

/* block: this one's number among `grid` of its role. */
template <int W, bool KEYS, bool EXTRA>
static __device__ __forceinline__ void bwd_role(const attend_job &job, unsigned section,
                                                unsigned block, unsigned grid)
{
    typedef bwd_shape<W, KEYS, EXTRA> shape;
    constexpr int M = shape::M, C = shape::COLUMNS;
    KRN_SHARED_DYNAMIC(shared);
    krn_bf16 *left = (krn_bf16 *)shared, *left2 = left + shape::ROWS * attend_tile<W>::STRIDE;
    krn_bf16 *right = left2 + shape::ROWS * attend_tile<W>::STRIDE; /* [one, two] */
    krn_bf16 *second = shape::HOLD ? left : right + 2 * shape::TILE;
    /* KEYS: [2][under, less][C] */
    float *stats = (float *)(right + shape::BUFFERS * 2 * shape::TILE);

    int blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    int heads = KEYS ? job.K : job.H, group = job.H / job.K;
    attend_turn turn = attend_turn_of(block, section, grid / (unsigned)blocks, (unsigned)blocks);
    int64_t line = turn.line, b = line / heads;
    int head = (int)(line - b * heads); /* of keys (KEYS), or of queries */
    int first = (KEYS ? turn.tile : blocks - 1 - turn.tile) * shape::ROWS; /* most columns first */
    int warp = krn_warp();
    int row = first + warp / shape::SPLIT * 16 * M, sums_at = warp % shape::SPLIT * shape::SUMS;

    bwd_side rows = KEYS ? keys_of(job, b, head) : queries_of(job, b, head);
    attend_load<W, shape::ROWS>(left, rows.one + first * rows.one_stride, rows.one_stride,
                                job.T - first, job.D, job.packed);
    attend_load<W, shape::ROWS>(left2, rows.two + first * rows.two_stride, rows.two_stride,
                                job.T - first, job.D, job.packed);
    krn_copy_commit();

    /* Columns: KEYS: of each head of the group the queries from `first` on that see one of the
     * rows; else the keys that the first row sees .. the diagonal. */
    attend_span span = attend_span_of(job, b);
    int last = (first + shape::ROWS > job.T ? job.T : first + shape::ROWS) - 1;
    int from = (KEYS ? first : attend_first(span, first)) / C * C;
    int end = KEYS ? attend_end(span, last, last) : last + 1;
    int query_head = KEYS ? head * group : head, query_heads = KEYS ? group : 1;
    bwd_side columns = KEYS ? queries_of(job, b, query_head) : keys_of(job, b, head / group);
    auto load =
        [&](int i, int c,
            int buffer) { /* i: which head of the group */
                          krn_bf16 *to = buffer ? second : right;
                          attend_load<W, C>(to, columns.one + (c * columns.one_stride + i * job.D),
                                            columns.one_stride, job.T - c, job.D, job.packed);
                          attend_load<W, C>(to + shape::TILE,
                                            columns.two + (c * columns.two_stride + i * job.D),
                                            columns.two_stride, job.T - c, job.D, job.packed);
                          krn_copy_commit();
        };
    float stat = 0.0f; /* KEYS: one number of the next tile per thread */
    auto load_stat = [&](int i, int c) {
        int64_t query_line = b * job.H + query_head + i;
        int t = c + (int)threadIdx.x % C;
        if ((int)threadIdx.x < 2 * C)
            stat =
                (int)threadIdx.x < C ? under_at(job, query_line, t) : less_at(job, query_line, t);
    };
    auto store_stat = [&](int buffer) {
        if ((int)threadIdx.x < 2 * C)
            stats[buffer * 2 * C + (int)threadIdx.x] = stat;
    };

    load(0, from, 0);
    bwd_state<shape, KEYS> s;
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
                s.under[m][half] = under_at(job, line, t);
                s.less[m][half] = less_at(job, line, t);
            }
        }
    }
    if constexpr (KEYS) {
        load_stat(0, from);
        store_stat(0);
    }
    attend_mask mask = {};
    if constexpr (EXTRA)
        mask = attend_mask_of(job);
    bwd_place at;
    at.row = row;
    at.scale2 = job.scale * ATTEND_LOG2E;
    at.cap_in = job.cap_in;
    at.cap_out = job.cap_out;
    at.kept = EXTRA && mask.on ? job.drop.scale : 1.0f;
    at.apart = span.starts || span.window;

    bwd_left<W, shape> mine, mine2;
    mine.tile = left;
    mine2.tile = left2;
    mine.row = mine2.row = row - first;
    krn_copy_wait<1>();
    krn_sync();
    mine.hold();
    mine2.hold();
    int tiles = (end - from + C - 1) / C * query_heads, buffer = 0;
    int i = 0, c = from; /* of the tile that is worked on: head of the group, first column */
    int next_i = 0, next_c = from;
#pragma unroll 1
    for (; tiles > 0; tiles--) {
        krn_copy_wait<0>();
        krn_sync(); /* the tile is there; nobody reads the one before (or the rows) any more */
        next_c += C;
        if (next_c >= end) {
            next_c = from;
            next_i++;
        }
        if (tiles > 1) {
            load(next_i, next_c, buffer ^ 1);
            if constexpr (KEYS)
                load_stat(next_i, next_c);
        }
        const krn_bf16 *one = buffer ? second : right, *two = one + shape::TILE;
        at.line = (uint64_t)(b * job.H + query_head + i) * (uint64_t)job.T * (uint64_t)job.T;
#pragma unroll(W == 128 ? C / shape::STEP : 1)
        for (int step = 0; step < C; step += shape::STEP) {
            at.column = c + step;
            at.under = stats + buffer * 2 * C + step;
            at.less = at.under + C;
            /* Some query of the step sees some key of the warp. */
            if (row >= job.T || (KEYS ? at.column + shape::STEP <= row : at.column >= row + 16 * M))
                continue;
            if (at.apart && (KEYS ? attend_first(span, at.column) >= row + 16 * M
                                  : at.column + shape::STEP <= attend_first(span, row)))
                continue;
            float p[M][shape::N][4], d[M][shape::N][4], bend[EXTRA ? M : 1][shape::N][4];
            bwd_begin<shape, KEYS, EXTRA>(p, d, s, at);
            bwd_product<W, shape>(p, mine, one, step);
            bwd_product<W, shape>(d, mine2, two, step);
            if constexpr (EXTRA)
                bwd_cap<shape>(p, bend, at);
            bwd_hide<shape, KEYS>(p, span, at);
            bwd_slopes<shape, KEYS, EXTRA>(p, d, bend, s, mask, job.T, at);
            if constexpr (KEYS)
                bwd_sum<W, shape>(s.two, p, two, step, sums_at);
            bwd_sum<W, shape>(s.one, d, one, step, sums_at);
        }
        buffer ^= 1;
        i = next_i;
        c = next_c;
        if constexpr (KEYS) {
            if (tiles > 1)
                store_stat(buffer);
        }
    }
    krn_bf16 *out = (krn_bf16 *)job.out;
    bwd_store<shape>(job, out + attend_at(job, b, KEYS ? 1 : 0, head), row, sums_at, s.one,
                     job.scale);
    if constexpr (KEYS)
        bwd_store<shape>(job, out + attend_at(job, b, 2, head), row, sums_at, s.two, at.kept);
}

/* The blocks of one role. */
struct bwd_part {
    unsigned blocks, section;
};

template <int W, bool KEYS, bool EXTRA>
static bwd_part bwd_part_of(const attend_job &job, int64_t B)
{
    typedef bwd_shape<W, KEYS, EXTRA> shape;
    static_assert((int)shape::BYTES <= (int)ATTEND_BYTES_MAX, "too much shared memory");
    static_assert((int)shape::COLUMNS <= (int)shape::ROWS,
                  "the second buffer is larger than the rows");
    static_assert(2 * (int)shape::COLUMNS <= (int)ATTEND_THREADS,
                  "a thread has one number of a tile");
    int64_t blocks = (job.T + shape::ROWS - 1) / shape::ROWS, lines = B * (KEYS ? job.K : job.H);
    return bwd_part{krn_grid(lines * blocks).x, (unsigned)attend_section(job, lines)};
}

/* Blocks of keys first; those of queries start as multiprocessors run out of them. */
template <int W, bool EXTRA>
__global__ void __launch_bounds__(ATTEND_THREADS, 2)
    attend_bwd(attend_job job, bwd_part keys, bwd_part queries)
{
    if (blockIdx.x < keys.blocks)
        bwd_role<W, true, EXTRA>(job, keys.section, blockIdx.x, keys.blocks);
    else
        bwd_role<W, false, EXTRA>(job, queries.section, blockIdx.x - keys.blocks, queries.blocks);
}

/* Both roles at once where that is faster (W 64, H200: by 4 % of many blocks, 25 % of few; slower at
 * 128): either way the same blocks do the same. */
template <int W, bool EXTRA> static void run_kernel(krn_ctx *cx, const attend_job &job, int64_t B)
{
    const bwd_part none = {0, 1}, keys = bwd_part_of<W, true, EXTRA>(job, B),
                   queries = bwd_part_of<W, false, EXTRA>(job, B);
    const size_t key_bytes = bwd_shape<W, true, EXTRA>::BYTES,
                 query_bytes = bwd_shape<W, false, EXTRA>::BYTES;
    if (W <= 64) {
        krn_launch(cx, attend_bwd<W, EXTRA>, krn_grid((int64_t)keys.blocks + queries.blocks),
                   ATTEND_THREADS, key_bytes > query_bytes ? key_bytes : query_bytes, job, keys,
                   queries);
        return;
    }
    krn_launch(cx, attend_bwd<W, EXTRA>, krn_grid(keys.blocks), ATTEND_THREADS, key_bytes, job,
               keys, none);
    krn_launch(cx, attend_bwd<W, EXTRA>, krn_grid(queries.blocks), ATTEND_THREADS, query_bytes, job,
               none, queries);
}

template <int W> static void run_bwd(krn_ctx *cx, const attend_job &job, int64_t B)
{
    (job.drop.on || job.cap_in != 0.0f ? run_kernel<W, true> : run_kernel<W, false>)(cx, job, B);
}

void attend_bwd_bf16(krn_ctx *cx, const attend_job &job, int64_t B)
{
    (job.D <= 64    ? run_bwd<64>
     : job.D <= 80  ? run_bwd<80>
     : job.D <= 96  ? run_bwd<96>
     : job.D <= 128 ? run_bwd<128>
                    : run_bwd<256>)(cx, job, B);
}
