/*
 * Owns causal attention in fp32, forward and backward: plain products, no tensor cores, so nothing
 * is rounded between; every chip that the toolkit knows. One idea: the tile loops of the bf16
 * kernels with 16 x 16 threads: thread (y, x) has rows y, y+16, .. and columns x, x+16, .. of each
 * product; scores go through shared memory. Refuses heads wider than 256.
 *
 * Source: as attention.cu and attention_bwd.cu.
 */
#include "kernels/cuda/attention.cuh"

enum { SIDE = 16, THREADS = SIDE * SIDE };

/* ROWS x COLUMNS tiles of scores; a row of a tile in shared memory is STRIDE floats, so that 8
 * rows that are next to each other have their 16 bytes in different banks. */
template <int W> struct f32_shape {
    enum {
        ROWS = W <= 64 ? 32 : 16,
        COLUMNS = W <= 64    ? 32
                  : W <= 128 ? 16
                             : 8,
        STRIDE = W + 4,
        LINE = COLUMNS + 1,
        M = ROWS / SIDE,
        N = (COLUMNS + SIDE - 1) / SIDE,
        OUT = W / SIDE, /* elements of a row of sums per thread */
        FWD_FLOATS = (ROWS + COLUMNS) * STRIDE + ROWS * LINE + 3 * ROWS,
        BWD_FLOATS = 2 * (ROWS + COLUMNS) * STRIDE + 2 * ROWS * LINE + 2 * (ROWS + COLUMNS)
    };
};

/* Rows of a head into shared memory, zeros where there are none. */
template <int W, int N>
static __device__ __forceinline__ void load_rows(float *tile, const float *from, int64_t stride,
                                                 int there, int D)
{
    for (int i = (int)threadIdx.x; i < N * W; i += THREADS) {
        int row = i / W, d = i % W;
        tile[row * f32_shape<W>::STRIDE + d] = row < there && d < D ? from[row * stride + d] : 0.0f;
    }
}

/* x[i][j] = row y + 16 i of left times row x + 16 j of right. */
template <int W>
static __device__ __forceinline__ void product(float x[f32_shape<W>::M][f32_shape<W>::N],
                                               const float *left, const float *right)
{
    typedef f32_shape<W> shape;
    int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < shape::M; i++) {
#pragma unroll
        for (int j = 0; j < shape::N; j++)
            x[i][j] = 0.0f;
    }
    if (tx >= shape::COLUMNS) /* 16 columns or more: never */
        return;
#pragma unroll 2
    for (int d = 0; d < W; d += 4) {
        float a[shape::M][4], b[4];
#pragma unroll
        for (int i = 0; i < shape::M; i++)
            krn_load_pack(left + (ty + SIDE * i) * shape::STRIDE + d, a[i]);
#pragma unroll
        for (int j = 0; j < shape::N; j++) {
            krn_load_pack(right + (tx + SIDE * j) * shape::STRIDE + d, b);
#pragma unroll
            for (int i = 0; i < shape::M; i++) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    x[i][j] = krn_fma(a[i][e], b[e], x[i][j]);
            }
        }
    }
}

/* sums[i][j] += row y + 16 i of p times column x + 16 j of right. */
template <int W>
static __device__ __forceinline__ void add_sums(float sums[f32_shape<W>::M][f32_shape<W>::OUT],
                                                const float *p, const float *right)
{
    typedef f32_shape<W> shape;
    int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll 4
    for (int c = 0; c < shape::COLUMNS; c++) {
        float a[shape::M];
#pragma unroll
        for (int i = 0; i < shape::M; i++)
            a[i] = p[(ty + SIDE * i) * shape::LINE + c];
#pragma unroll
        for (int j = 0; j < shape::OUT; j++) {
            float b = right[c * shape::STRIDE + tx + SIDE * j];
#pragma unroll
            for (int i = 0; i < shape::M; i++)
                sums[i][j] = krn_fma(a[i], b, sums[i][j]);
        }
    }
}

/* Makes a row's scores probabilities: SIDE lanes of one warp have a row. stat: [top, sum, shrink]
 * per row. Row `row + i` is query t. */
template <int W>
static __device__ __forceinline__ void fwd_softmax(float *p, float *stat, int first, int key,
                                                   const attend_job &job, const attend_mask &mask,
                                                   const attend_span &span, uint64_t line)
{
    typedef f32_shape<W> shape;
    int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < shape::M; i++) {
        int row = ty + SIDE * i, t = first + row, seen = attend_first(span, t);
        float x[shape::N], old = stat[3 * row], top = old, sum = 0.0f;
#pragma unroll
        for (int j = 0; j < shape::N; j++) {
            int c = tx + SIDE * j;
            bool sees = c < shape::COLUMNS && key + c <= t && key + c >= seen;
            x[j] = sees ? p[row * shape::LINE + c] : 0.0f;
            if (job.cap_in != 0.0f)
                x[j] = job.cap_out * tanhf(x[j] * job.cap_in);
            x[j] = sees ? x[j] * job.scale : -INFINITY;
            top = fmaxf(top, x[j]);
        }
#pragma unroll
        for (int away = SIDE / 2; away; away /= 2)
            top = fmaxf(top, krn_shuffle_xor(top, away));
        float base = top == -INFINITY ? 0.0f : top; /* no key seen yet */
#pragma unroll
        for (int j = 0; j < shape::N; j++) {
            int c = tx + SIDE * j;
            x[j] = expf(x[j] - base);
            sum += x[j];
            if (c < shape::COLUMNS) {
                bool keep = !mask.on || attend_keep(mask, line + (uint64_t)t * (uint64_t)job.T +
                                                              (uint64_t)(key + c));
                p[row * shape::LINE + c] = keep ? x[j] : 0.0f;
            }
        }
#pragma unroll
        for (int away = SIDE / 2; away; away /= 2)
            sum += krn_shuffle_xor(sum, away);
        if (tx == 0) {
            float shrink = expf(old - base);
            stat[3 * row] = top;
            stat[3 * row + 1] = krn_fma(stat[3 * row + 1], shrink, sum);
            stat[3 * row + 2] = shrink;
        }
    }
}

template <int W> __global__ void __launch_bounds__(THREADS, 2) attend_fwd_plain(attend_job job)
{
    typedef f32_shape<W> shape;
    KRN_SHARED_DYNAMIC(shared);
    float *q = (float *)shared, *kv = q + shape::ROWS * shape::STRIDE;
    float *p = kv + shape::COLUMNS * shape::STRIDE, *stat = p + shape::ROWS * shape::LINE;
    int blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    int first = (blocks - 1 - (int)(blockIdx.x % (unsigned)blocks)) * shape::ROWS;
    int64_t line = blockIdx.x / (unsigned)blocks, b = line / job.H, stride = attend_stride(job);
    int head = (int)(line % job.H), shared_head = head / (job.H / job.K);
    int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
    const float *in = (const float *)job.qkv;
    const float *keys = in + attend_at(job, b, 1, shared_head);
    const float *values = in + attend_at(job, b, 2, shared_head);
    int end = first + shape::ROWS < job.T ? first + shape::ROWS : job.T;
    attend_mask mask = attend_mask_of(job);
    attend_span span = attend_span_of(job, b);
    uint64_t element = (uint64_t)line * (uint64_t)job.T * (uint64_t)job.T;
    float out[shape::M][shape::OUT] = {};

    load_rows<W, shape::ROWS>(q, in + attend_at(job, b, 0, head) + first * stride, stride,
                              job.T - first, job.D);
    if (tx == 0) {
        for (int row = ty; row < shape::ROWS; row += SIDE) {
            stat[3 * row] = -INFINITY;
            stat[3 * row + 1] = 0.0f;
        }
    }
    int from = attend_first(span, first) / shape::COLUMNS * shape::COLUMNS;
    for (int key = from; key < end; key += shape::COLUMNS) {
        load_rows<W, shape::COLUMNS>(kv, keys + key * stride, stride, job.T - key, job.D);
        krn_sync();
        float x[shape::M][shape::N];
        product<W>(x, q, kv);
#pragma unroll
        for (int i = 0; i < shape::M; i++) {
#pragma unroll
            for (int j = 0; j < shape::N; j++) {
                if (tx + SIDE * j < shape::COLUMNS)
                    p[(ty + SIDE * i) * shape::LINE + tx + SIDE * j] = x[i][j];
            }
        }
        krn_sync(); /* nobody reads K any more */
        load_rows<W, shape::COLUMNS>(kv, values + key * stride, stride, job.T - key, job.D);
        fwd_softmax<W>(p, stat, first, key, job, mask, span, element);
        krn_sync();
#pragma unroll
        for (int i = 0; i < shape::M; i++) {
            float shrink = stat[3 * (ty + SIDE * i) + 2];
#pragma unroll
            for (int j = 0; j < shape::OUT; j++)
                out[i][j] *= shrink;
        }
        add_sums<W>(out, p, kv);
        krn_sync(); /* nobody reads V and p any more */
    }
    float *y = (float *)job.out + attend_y_at(job, b, head);
#pragma unroll
    for (int i = 0; i < shape::M; i++) {
        int row = ty + SIDE * i, t = first + row;
        if (t >= job.T)
            continue;
        float sum = stat[3 * row + 1];
        float factor = krn_div(mask.on ? job.drop.scale : 1.0f, sum);
        if (tx == 0)
            job.lse[line * job.T + t] = stat[3 * row] + logf(sum);
#pragma unroll
        for (int j = 0; j < shape::OUT; j++) {
            if (tx + SIDE * j < job.D)
                y[t * attend_y_stride(job) + tx + SIDE * j] = out[i][j] * factor;
        }
    }
}

/* Scores x and products d become the mask's P and dS in shared memory. row, column: numbers of the
 * tile's first; stats: [lse, delta] of the queries of the tile. */
template <int W, bool KEYS>
static __device__ __forceinline__ void
bwd_slopes(float *p, float *slope, float x[f32_shape<W>::M][f32_shape<W>::N],
           float d[f32_shape<W>::M][f32_shape<W>::N], const float *stats, int row, int column,
           const attend_job &job, const attend_mask &mask, const attend_span &span, uint64_t line)
{
    typedef f32_shape<W> shape;
    constexpr int QUERIES = KEYS ? shape::COLUMNS : shape::ROWS;
    int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < shape::M; i++) {
#pragma unroll
        for (int j = 0; j < shape::N; j++) {
            int r = ty + SIDE * i, c = tx + SIDE * j, query = KEYS ? c : r;
            if (c >= shape::COLUMNS)
                continue;
            int t = KEYS ? column + c : row + r, key = KEYS ? row + r : column + c;
            bool keep =
                !mask.on || attend_keep(mask, line + (uint64_t)t * (uint64_t)job.T + (uint64_t)key);
            float factor = !keep ? 0.0f : mask.on ? job.drop.scale : 1.0f;
            bool sees = key <= t && key >= attend_first(span, t);
            float bend = 1.0f;
            if (job.cap_in != 0.0f) {
                float turn = tanhf(x[i][j] * job.cap_in);
                x[i][j] = job.cap_out * turn;
                bend = krn_fma(-turn, turn, 1.0f);
            }
            float one = sees ? expf(krn_fma(x[i][j], job.scale, -stats[query])) : 0.0f;
            p[r * shape::LINE + c] = one * factor;
            slope[r * shape::LINE + c] =
                one * krn_fma(d[i][j], factor, -stats[QUERIES + query]) * bend;
        }
    }
}

template <int W>
static __device__ __forceinline__ void
bwd_store(const attend_job &job, float *line, int first,
          const float sums[f32_shape<W>::M][f32_shape<W>::OUT], float factor)
{
    typedef f32_shape<W> shape;
    int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < shape::M; i++) {
        int t = first + ty + SIDE * i;
        if (t >= job.T)
            continue;
        float *to = line + t * attend_stride(job);
#pragma unroll
        for (int j = 0; j < shape::OUT; j++) {
            int d = tx + SIDE * j;
            if (d < job.D)
                to[d] = job.add ? krn_fma(sums[i][j], factor, to[d]) : sums[i][j] * factor;
        }
    }
}

/* lse and delta of n queries from t on; those that do not exist get P = 0. */
static __device__ __forceinline__ void load_stats(float *stats, const attend_job &job, int64_t line,
                                                  int t, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        stats[i] = t + i < job.T ? job.lse[line * job.T + t + i] : INFINITY;
        stats[n + i] = t + i < job.T ? job.delta[line * job.T + t + i] : 0.0f;
    }
}

template <int W, bool KEYS>
__global__ void __launch_bounds__(THREADS, 2) attend_bwd_plain(attend_job job)
{
    typedef f32_shape<W> shape;
    constexpr int C = shape::COLUMNS;
    KRN_SHARED_DYNAMIC(shared);
    float *left = (float *)shared, *left2 = left + shape::ROWS * shape::STRIDE;
    float *right = left2 + shape::ROWS * shape::STRIDE, *right2 = right + C * shape::STRIDE;
    float *p = right2 + C * shape::STRIDE, *slope = p + shape::ROWS * shape::LINE;
    float *stats = slope + shape::ROWS * shape::LINE;

    int blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    int index = (int)(blockIdx.x % (unsigned)blocks);
    int heads = KEYS ? job.K : job.H, group = job.H / job.K;
    int64_t line = blockIdx.x / (unsigned)blocks, b = line / heads;
    int head = (int)(line % heads);
    int first = (KEYS ? index : blocks - 1 - index) * shape::ROWS;
    int64_t stride = attend_stride(job), y_stride = attend_y_stride(job);
    const float *qkv = (const float *)job.qkv, *dy = (const float *)job.dy;
    attend_mask mask = attend_mask_of(job);
    float one[shape::M][shape::OUT] = {}, two[shape::M][shape::OUT] = {};

    load_rows<W, shape::ROWS>(left, qkv + attend_at(job, b, KEYS ? 1 : 0, head) + first * stride,
                              stride, job.T - first, job.D);
    if (KEYS)
        load_rows<W, shape::ROWS>(left2, qkv + attend_at(job, b, 2, head) + first * stride, stride,
                                  job.T - first, job.D);
    else
        load_rows<W, shape::ROWS>(left2, dy + attend_y_at(job, b, head) + first * y_stride,
                                  y_stride, job.T - first, job.D);
    if (!KEYS)
        load_stats(stats, job, line, first, shape::ROWS);
    attend_span span = attend_span_of(job, b);
    int last = (first + shape::ROWS > job.T ? job.T : first + shape::ROWS) - 1;
    int from = (KEYS ? first : attend_first(span, first)) / C * C;
    int end = KEYS ? attend_end(span, last, last) : last + 1;
    for (int h = 0; h < (KEYS ? group : 1); h++) {
        int query_head = KEYS ? head * group + h : head;
        int64_t query_line = b * job.H + query_head;
        for (int c = from; c < end; c += C) {
            int there = job.T - c;
            krn_sync(); /* nobody reads the last columns any more */
            if (KEYS) {
                load_rows<W, C>(right, qkv + attend_at(job, b, 0, query_head) + c * stride, stride,
                                there, job.D);
                load_rows<W, C>(right2, dy + attend_y_at(job, b, query_head) + c * y_stride,
                                y_stride, there, job.D);
                load_stats(stats, job, query_line, c, C);
            } else {
                load_rows<W, C>(right, qkv + attend_at(job, b, 1, head / group) + c * stride,
                                stride, there, job.D);
                load_rows<W, C>(right2, qkv + attend_at(job, b, 2, head / group) + c * stride,
                                stride, there, job.D);
            }
            krn_sync();
            float x[shape::M][shape::N], d[shape::M][shape::N];
            product<W>(x, left, right);
            product<W>(d, left2, right2);
            bwd_slopes<W, KEYS>(p, slope, x, d, stats, first, c, job, mask, span,
                                (uint64_t)query_line * (uint64_t)job.T * (uint64_t)job.T);
            krn_sync();
            add_sums<W>(one, slope, right);
            if (KEYS)
                add_sums<W>(two, p, right2);
        }
    }
    float *out = (float *)job.out;
    bwd_store<W>(job, out + attend_at(job, b, KEYS ? 1 : 0, head), first, one, job.scale);
    if (KEYS)
        bwd_store<W>(job, out + attend_at(job, b, 2, head), first, two, 1.0f);
}

template <int W> static void run_fwd(krn_ctx *cx, const attend_job &job, int64_t B)
{
    typedef f32_shape<W> shape;
    int64_t blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    krn_launch(cx, attend_fwd_plain<W>, krn_grid(B * job.H * blocks), THREADS,
               shape::FWD_FLOATS * sizeof(float), job);
}

template <int W> static void run_bwd(krn_ctx *cx, const attend_job &job, int64_t B)
{
    typedef f32_shape<W> shape;
    int64_t blocks = (job.T + shape::ROWS - 1) / shape::ROWS;
    size_t bytes = shape::BWD_FLOATS * sizeof(float);
    static_assert(shape::BWD_FLOATS * (int)sizeof(float) <= (int)ATTEND_F32_BYTES_MAX,
                  "too much shared memory");
    krn_launch(cx, attend_bwd_plain<W, true>, krn_grid(B * job.K * blocks), THREADS, bytes, job);
    krn_launch(cx, attend_bwd_plain<W, false>, krn_grid(B * job.H * blocks), THREADS, bytes, job);
}

void attend_fwd_f32(krn_ctx *cx, const attend_job &job, int64_t B)
{
    (job.D <= 64    ? run_fwd<64>
     : job.D <= 96  ? run_fwd<96>
     : job.D <= 128 ? run_fwd<128>
                    : run_fwd<256>)(cx, job, B);
}

void attend_bwd_f32(krn_ctx *cx, const attend_job &job, int64_t B)
{
    (job.D <= 64    ? run_bwd<64>
     : job.D <= 96  ? run_bwd<96>
     : job.D <= 128 ? run_bwd<128>
                    : run_bwd<256>)(cx, job, B);
}
