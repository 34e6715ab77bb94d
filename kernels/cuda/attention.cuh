/*
 * What the attention kernels share: where the rows of a head lie, which keys a query sees, tiles of
 * bf16 rows in shared memory, fragments from them, and the dropout bits of a fragment.
 *
 * A tile is `rows` rows of W elements (W: D rounded up to a width that kernels exist for; the rest
 * is zeros), in chunks of 8 elements = 16 bytes. Eight rows that are next to each other have the
 * same chunk in eight different groups of banks: for W of whole 128 bytes the chunk's place is
 * exchanged by the row's number, else a row is one chunk longer than an even number of them. So
 * neither the matrix loads nor the copies into the tile meet a bank conflict.
 *
 * Names: rows are what a block keeps, columns what it walks over. In the forward pass and for dq
 * rows are queries and columns keys; for dk and dv it is the other way round ("KEYS").
 */
#ifndef KERNELS_CUDA_ATTENTION_CUH
#define KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum {
    ATTEND_WIDEST = KRN_CUDA_HEAD_DIM_MAX,
    ATTEND_THREADS = 128,
    ATTEND_WARPS = ATTEND_THREADS / 32
};

/* What a block may have on every card from 7.5 on (64 KiB), and on consumer cards (99 KiB). */
enum { ATTEND_F32_BYTES_MAX = 64 << 10, ATTEND_BYTES_MAX = 99 << 10 };

#define ATTEND_LOG2E 1.44269504088896341f

/* One call of the op, by value to every kernel. */
struct attend_job {
    const void *qkv, *dy;
    void *out;          /* y, or dqkv */
    float *lse, *delta; /* [B,H,T]; delta: dy y, backward only */
    int T, H, K, D;
    int window;  /* 0: all; else < T */
    float scale; /* of the scores */
    /* x becomes cap_out tanh(cap_in x) before it is scaled; cap_in 0: it stays */
    float cap_in, cap_out;
    bool packed; /* rows of heads are whole chunks at multiples of 16 bytes */
    bool add;    /* dqkv is added to */
    krn_dropout drop;
    const krn_step *step;
};

static inline attend_job attend_job_of(krn_ctx *cx, const krn_args *args)
{
    const int64_t *dim = args->dim;
    ATOM_ASSERT(dim[1] < INT32_MAX / 2 && dim[3] <= ATTEND_WIDEST);
    ATOM_ASSERT((dim[2] + 2 * krn_kv_heads(dim, 2, 4)) * dim[3] < INT32_MAX / 256);
    attend_job job = {};
    job.qkv = args->buf[0];
    job.T = (int)dim[1];
    job.H = (int)dim[2];
    job.K = (int)krn_kv_heads(dim, 2, 4);
    job.D = (int)dim[3];
    job.window = dim[5] < dim[1] ? (int)dim[5] : 0;
    job.scale = (float)krn_attention_scale(args->scale, dim[3]);
    job.cap_in = args->cap > 0 ? job.scale / args->cap : 0.0f;
    job.cap_out = args->cap / job.scale;
    job.packed = dim[3] % 8 == 0;
    job.add = args->flags & KRN_ADD_D_IN0;
    job.drop = krn_dropout_make(args);
    job.step = cx->step;
    return job;
}

/* Elements from one token to the next, in qkv and in y. */
static __device__ __forceinline__ int64_t attend_stride(const attend_job &job)
{
    return (int64_t)(job.H + 2 * job.K) * job.D;
}
static __device__ __forceinline__ int64_t attend_y_stride(const attend_job &job)
{
    return (int64_t)job.H * job.D;
}
/* First element of token 0 in sample b. which: 0 q (head: of H), 1 k, 2 v (head: of K). */
static __device__ __forceinline__ int64_t attend_at(const attend_job &job, int64_t b, int which,
                                                    int head)
{
    int place = which == 0 ? head : job.H + (which - 1) * job.K + head;
    return b * job.T * attend_stride(job) + (int64_t)place * job.D;
}
static __device__ __forceinline__ int64_t attend_y_at(const attend_job &job, int64_t b, int head)
{
    return b * job.T * attend_y_stride(job) + (int64_t)head * job.D;
}

/* ---- which block does what ---- */

/* Bytes of keys and values, or of queries and dy, that stay in the second cache of a large card
 * while the blocks of one section read them again and again. The tests of the shim set it to less,
 * so that small cases have several sections. */
#ifndef KRN_SECTION_BYTES
#define KRN_SECTION_BYTES (16 << 20)
#endif

/* Lines (heads of samples) that form a section. Sections are of about the same size. */
static inline int attend_section(const attend_job &job, int64_t lines)
{
    int64_t line_bytes = (int64_t)job.T * job.D * 2 * (int64_t)sizeof(uint16_t);
    int64_t most = KRN_SECTION_BYTES / line_bytes > 1 ? KRN_SECTION_BYTES / line_bytes : 1;
    int64_t sections = (lines + most - 1) / most;
    return (int)((lines + sections - 1) / sections);
}

/*
 * The line of a block of a grid, and which of the line's tiles it has. Within a section, the first tiles of
 * all lines come first, then the second ones. Callers number the tiles from the one with the most
 * work down, so that the blocks that start last are short, and multiprocessors end together.
 */
struct attend_turn {
    int64_t line;
    int tile;
};

static __device__ __forceinline__ attend_turn attend_turn_of(unsigned block, unsigned section,
                                                             unsigned lines, unsigned tiles)
{
    unsigned first = block / (section * tiles) * section, rest = block - first * tiles;
    unsigned here = lines - first < section ? lines - first : section;
    attend_turn turn;
    turn.line = first + rest % here;
    turn.tile = (int)(rest / here);
    return turn;
}

/* ---- which keys a query sees ---- */

/*
 * Query t of a sample sees the keys attend_first(t) .. t: the window's, of its own document.
 * attend_first never falls as t grows, so a tile's first and last query say which tiles of the
 * other side it meets, and which of those need a look at every element. Whether documents are apart
 * is known on the device only (krn_step.starts), so it costs no second set of kernels.
 */
struct attend_span {
    const int32_t *starts; /* of the sample; NULL: it is one document */
    int T, window;
};

static __device__ __forceinline__ attend_span attend_span_of(const attend_job &job, int64_t b)
{
    const int32_t *starts = job.step ? job.step->starts : NULL;
    attend_span span;
    span.starts = starts ? starts + b * job.T : NULL;
    span.T = job.T;
    span.window = job.window;
    return span;
}

/* Queries that do not exist see what the last one sees. */
static __device__ __forceinline__ int attend_first(const attend_span &span, int t)
{
    t = t < span.T ? t : span.T - 1;
    int first = span.window ? t - span.window + 1 : 0, start = span.starts ? span.starts[t] : 0;
    return first > start ? first : start;
}

/* The first query from `from` on that does not see `key` any more, or T; `from` sees it. Whole
 * warps: 32 queries are looked at together. */
static __device__ __forceinline__ int attend_end(const attend_span &span, int from, int key)
{
    int end = span.window && key + span.window < span.T ? key + span.window : span.T;
    if (!span.starts)
        return end;
    while (from < end) {
        int step = (end - from + 31) / 32, t = from + krn_lane() * step;
        int seen = krn_popcount(krn_ballot(t < end && attend_first(span, t) <= key));
        if (seen == 0)
            return from;
        int next = from + seen * step;
        from += (seen - 1) * step + 1;
        end = next < end ? next : end;
    }
    return end;
}

/* ---- tiles ---- */

template <int W> struct attend_tile {
    enum { TURNS = W % 64 == 0, STRIDE = TURNS ? W : W + 8, CHUNKS = W / 8 };
    static __device__ __forceinline__ int at(int row, int chunk)
    {
        return row * STRIDE + (TURNS ? chunk ^ (row & 7) : chunk) * 8;
    }
    static constexpr int bytes(int rows)
    {
        return rows * STRIDE * (int)sizeof(krn_bf16);
    }
};

/* A chunk of a row that is not made of whole chunks: n of its elements exist. */
static __device__ __forceinline__ uint4 attend_gather(const krn_bf16 *from, int n)
{
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = 2 * i < n ? from[2 * i].bits : 0u;
        uint32_t high = 2 * i + 1 < n ? from[2 * i + 1].bits : 0u;
        word[i] = low | high << 16;
    }
    uint4 bits;
    bits.x = word[0];
    bits.y = word[1];
    bits.z = word[2];
    bits.w = word[3];
    return bits;
}

/*
 * Starts the copy of ROWS rows; `there` of them (at least one) exist, the rest becomes zeros. The
 * caller commits, waits, and meets a barrier. LANES threads have a row: whole chunks each.
 */
template <int W, int ROWS>
static __device__ __forceinline__ void attend_load(krn_bf16 *tile, const krn_bf16 *from,
                                                   int64_t stride, int there, int D, bool packed)
{
    typedef attend_tile<W> tiles;
    constexpr int LANES = tiles::CHUNKS & -tiles::CHUNKS, AT_ONCE = ATTEND_THREADS / LANES;
    int row0 = (int)threadIdx.x / LANES, chunk0 = (int)threadIdx.x % LANES;
    if (!packed) {
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < ROWS * tiles::CHUNKS; i += ATTEND_THREADS) {
            int row = i / tiles::CHUNKS, chunk = i % tiles::CHUNKS;
            int n = row < there ? D - chunk * 8 : 0;
            krn_store16(tile + tiles::at(row, chunk),
                        attend_gather(from + (n > 0 ? row * stride + chunk * 8 : 0), n));
        }
        return;
    }
    const krn_bf16 *line = from + (row0 * (int)stride + chunk0 * 8);
#pragma unroll
    for (int r = 0; r < ROWS; r += AT_ONCE) {
        int row = r + row0;
        if (ROWS % AT_ONCE != 0 && row >= ROWS)
            break;
#pragma unroll
        for (int c = 0; c < tiles::CHUNKS; c += LANES) {
            bool real = row < there && (c + chunk0) * 8 < D;
            krn_copy16_async(tile + tiles::at(row, c + chunk0), real ? line + c * 8 : from, real);
        }
        line += AT_ONCE * stride;
    }
}

/* ---- fragments (prim.cuh says which lane has what) ---- */

/* Left operand: rows row .. row+15, elements 16 step .. 16 step + 15. */
template <int W>
static __device__ __forceinline__ void attend_left(uint32_t a[4], const krn_bf16 *tile, int row,
                                                   int step)
{
    int lane = krn_lane();
    krn_load_matrices<false>(a, tile + attend_tile<W>::at(row + lane % 16, 2 * step + lane / 16));
}
/* Right operand where the product sums over elements: its columns are rows row .. row+15 of the
 * tile; b[0..1] the first eight, b[2..3] the others. */
template <int W>
static __device__ __forceinline__ void attend_right(uint32_t b[4], const krn_bf16 *tile, int row,
                                                    int step)
{
    int lane = krn_lane();
    krn_load_matrices<false>(
        b, tile + attend_tile<W>::at(row + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
}
/* Right operand where the product sums over rows row .. row+15: its columns are elements 16 step
 * .. 16 step + 15. */
template <int W>
static __device__ __forceinline__ void attend_right_rows(uint32_t b[4], const krn_bf16 *tile,
                                                         int row, int step)
{
    int lane = krn_lane();
    krn_load_matrices<true>(b, tile + attend_tile<W>::at(row + lane % 16, 2 * step + lane / 16));
}
/* Sums of two neighbouring 16 x 8 products become a left operand, rounded to bf16. */
static __device__ __forceinline__ void attend_round(uint32_t a[4], const float x[4],
                                                    const float y[4])
{
    a[0] = krn_bf16_pair(x[0], x[1]);
    a[1] = krn_bf16_pair(x[2], x[3]);
    a[2] = krn_bf16_pair(y[0], y[1]);
    a[3] = krn_bf16_pair(y[2], y[3]);
}

/* ---- dropout ---- */

/* What decides about elements, read once per thread. */
struct attend_mask {
    krn_step step;
    uint32_t node, threshold;
    bool on;
};

static __device__ __forceinline__ attend_mask attend_mask_of(const attend_job &job)
{
    attend_mask m = {};
    if (!job.drop.on)
        return m;
    m.step = *job.step;
    m.node = job.drop.node;
    m.threshold = job.drop.threshold;
    m.on = m.step.train;
    return m;
}

/* Bit i: element 4 block + i stays. */
static __device__ __forceinline__ uint32_t attend_keeps(const attend_mask &m, uint64_t block)
{
    uint32_t word[4], bits = 0;
    krn_rng_block(&m.step, m.node, block, word);
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits |= (word[i] >= m.threshold ? 1u : 0u) << i;
    return bits;
}
static __device__ __forceinline__ bool attend_keep(const attend_mask &m, uint64_t element)
{
    return attend_keeps(m, element >> 2) >> (element & 3) & 1;
}

/*
 * Bit e: number e of this lane in the 16 x 8 product whose first row and column are given stays.
 * line: element of query 0, key 0 of the head. Where T is a multiple of 4, four numbers that are
 * drawn together lie in two (KEYS: four) lanes, which draw for each other.
 */
template <bool KEYS>
static __device__ __forceinline__ uint32_t attend_keeps_4(const attend_mask &m, uint64_t line,
                                                          int T, int row, int column)
{
    int g = krn_lane() / 4, t = krn_lane() % 4;
    if (T % 4 != 0) {
        uint32_t bits = 0;
        for (int e = 0; e < 4; e++) {
            int r = row + g + e / 2 * 8, c = column + 2 * t + e % 2;
            uint64_t at = line + (uint64_t)(KEYS ? c : r) * (uint64_t)T + (uint64_t)(KEYS ? r : c);
            bits |= (uint32_t)attend_keep(m, at) << e;
        }
        return bits;
    }
    if (KEYS) {
        int j = g % 4; /* draws for query 2t + j % 2, and keys of the half j / 2 */
        uint64_t at = line + (uint64_t)(column + 2 * t + j % 2) * (uint64_t)T +
                      (uint64_t)(row + j / 2 * 8 + g / 4 * 4);
        uint32_t all = attend_keeps(m, at >> 2) << (4 * j);
        all |= krn_shuffle_xor(all, 4);
        all |= krn_shuffle_xor(all, 8);
        all >>= j;
        return (all & 1u) | (all >> 3 & 2u) | (all >> 6 & 4u) | (all >> 9 & 8u);
    }
    int odd = t % 2; /* draws for row g + 8 odd */
    uint64_t at =
        line + (uint64_t)(row + g + 8 * odd) * (uint64_t)T + (uint64_t)(column + t / 2 * 4);
    uint32_t all = attend_keeps(m, at >> 2) << (4 * odd);
    all |= krn_shuffle_xor(all, 1);
    all >>= 2 * odd;
    return (all & 3u) | (all >> 2 & 12u);
}

/* ---- what the files offer each other ---- */

/* attention_bwd.cu and attention_f32.cu. y: the forward's output. */
void attend_fwd_f32(krn_ctx *cx, const attend_job &job, int64_t B);
void attend_bwd_f32(krn_ctx *cx, const attend_job &job, int64_t B);
void attend_bwd_bf16(krn_ctx *cx, const attend_job &job, int64_t B);

#endif
