/*
 * Owns the products of Muon on the device, with exactly the bits of ref (kernels.h): every sum runs
 * over k in ascending order from 0 in one fp32 register, so neither tensor cores nor a split of k are
 * allowed, and the fp32 units are the limit. Products of two operands are exact, so a fused operation
 * changes no bit of a sum; what follows a sum is not fused.
 *
 * One idea: X is kept both ways, [s][l] and [l][s]. Then the operands of all three products lie with
 * k as the row (A and B are symmetric, with equal bits on both sides), and one loop serves them:
 *
 *   gram     A = op(X X')           of T = X' with itself
 *   square   B = op(b A + c A A)    of A with itself
 *   apply    X = op(a X + B X)      of B with X; writes both X and T
 *
 * Of A and B only tiles on the diagonal and above are computed; the others are their images. The
 * memory of x serves as the second X until the last product writes the result there.
 *
 * A tile of 128 x 128 takes 8 x 8 sums per thread: 64 fused operations for 4 loads of 16 bytes from
 * shared memory, without bank conflicts; the next 16 rows wait in registers meanwhile. Of 1160
 * instructions of its loop 1024 are sums (sm_89, sm_90), so 88 percent of the fp32 peak are the
 * most that it can reach; 75 to 85 are an estimate for s >= 4096 that no card has timed yet.
 * Refuses lines of 2^21 and more.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum {
    THREADS = 256,
    DEPTH = 16, /* k at a time */
    LARGE = 128,
    SMALL = 64,
    TURN = 32, /* of pack */
    LINE_END = 1 << 21
};
static_assert(KRN_MUON_STEPS % 2 == 1, "the last product reads from space and writes to x");

enum product_kind { GRAM, SQUARE, APPLY };

/* out[m][n] = what the kind makes of the sums over k of left[k][m] right[k][n], and of plain[m][n]. */
struct product {
    const krn_bf16 *left, *right, *plain;
    void *straight, *turned; /* [m][n], and the same as [n][m]; NULL: not wanted */
    int m, n, k;
};

static __device__ __forceinline__ float operand(float x)
{
    float rounded = krn_from_bits(krn_bf16_pair(x, 0.0f) << 16);
    return fabsf(rounded) < KRN_MUON_TINY ? 0.0f : rounded;
}

/* ---- four elements of a line, of which the first `there` are inside; WHOLE: all or none ---- */

template <bool WHOLE> static __device__ __forceinline__ uint2 fetch4(const krn_bf16 *at, int there)
{
    uint2 bits = {0, 0};
    if constexpr (WHOLE) {
        if (there > 0)
            bits = *(const uint2 *)at;
    } else {
        bits.x |= there > 0 ? (uint32_t)at[0].bits : 0;
        bits.x |= there > 1 ? (uint32_t)at[1].bits << 16 : 0;
        bits.y |= there > 2 ? (uint32_t)at[2].bits : 0;
        bits.y |= there > 3 ? (uint32_t)at[3].bits << 16 : 0;
    }
    return bits;
}

static __device__ __forceinline__ float4 floats_of(uint2 bits)
{
    float4 x;
    x.x = krn_from_bits(bits.x << 16);
    x.y = krn_from_bits(bits.x & 0xffff0000u);
    x.z = krn_from_bits(bits.y << 16);
    x.w = krn_from_bits(bits.y & 0xffff0000u);
    return x;
}

/* x[] are operands: bf16 holds them exactly. */
static __device__ __forceinline__ void put_whole(float *at, const float x[4])
{
    krn_store_pack(at, x);
}
static __device__ __forceinline__ void put_whole(krn_bf16 *at, const float x[4])
{
    uint2 bits;
    bits.x = krn_bits(x[0]) >> 16 | (krn_bits(x[1]) & 0xffff0000u);
    bits.y = krn_bits(x[2]) >> 16 | (krn_bits(x[3]) & 0xffff0000u);
    *(uint2 *)at = bits;
}
static __device__ __forceinline__ void put_one(float *at, float x)
{
    *at = x;
}
static __device__ __forceinline__ void put_one(krn_bf16 *at, float x)
{
    at->bits = (uint16_t)(krn_bits(x) >> 16);
}

template <bool WHOLE, typename Out>
static __device__ __forceinline__ void put4(Out *at, const float x[4], int there)
{
    if constexpr (WHOLE) {
        if (there > 0)
            put_whole(at, x);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i < there)
                put_one(at + i, x[i]);
        }
    }
}

/* ---- tiles ---- */

/* How the threads of a block share a tile: in loads, each has 4 columns of PIECES rows; in sums, the
 * warps lie as 4 x 2 and the lanes as 4 x 8, each with 4 x 4 elements in EDGE x EDGE places. */
template <int TILE> struct share {
    enum {
        ACROSS = TILE / 4,       /* threads that load one row */
        ROWS = THREADS / ACROSS, /* rows between two pieces */
        PIECES = DEPTH / ROWS,
        EDGE = TILE / 64,
        EACH = 4 * EDGE,
        PACKS = DEPTH * TILE / 4 /* of 4 floats, in a tile of one operand */
    };
    static __device__ __forceinline__ int row(int place)
    {
        return krn_warp() / 2 * (TILE / 4) + place * 16 + krn_lane() / 8 * 4;
    }
    static __device__ __forceinline__ int column(int place)
    {
        return krn_warp() % 2 * (TILE / 2) + place * 32 + krn_lane() % 8 * 4;
    }
};

template <int TILE, bool WHOLE>
static __device__ __forceinline__ void fetch(const krn_bf16 *at, int64_t down, int there, int rows,
                                             uint2 out[share<TILE>::PIECES])
{
#pragma unroll
    for (int i = 0; i < share<TILE>::PIECES; i++)
        out[i] = fetch4<WHOLE>(at + i * down, i * share<TILE>::ROWS < rows ? there : 0);
}

/* to: this thread's pack of the first row it loads. */
template <int TILE>
static __device__ __forceinline__ void settle(float4 *to, const uint2 in[share<TILE>::PIECES])
{
#pragma unroll
    for (int i = 0; i < share<TILE>::PIECES; i++)
        to[i * THREADS] = floats_of(in[i]);
}

static __device__ __forceinline__ void spread(float4 pack, float out[4])
{
    out[0] = pack.x;
    out[1] = pack.y;
    out[2] = pack.z;
    out[3] = pack.w;
}

/* left, right: this thread's first pack in each tile. */
template <int TILE>
static __device__ __forceinline__ void multiply(const float4 *left, const float4 *right,
                                                float sum[share<TILE>::EACH][share<TILE>::EACH])
{
    using S = share<TILE>;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float a[S::EACH], b[S::EACH];
#pragma unroll
        for (int i = 0; i < S::EDGE; i++) {
            spread(left[k * (TILE / 4) + i * 4], a + 4 * i);
            spread(right[k * (TILE / 4) + i * 8], b + 4 * i);
        }
#pragma unroll
        for (int i = 0; i < S::EACH; i++) {
#pragma unroll
            for (int j = 0; j < S::EACH; j++)
                sum[i][j] = krn_fma(a[i], b[j], sum[i][j]);
        }
    }
}

/* sum of the tile at row0, column0; shared: two tiles of each operand. */
template <int TILE, bool WHOLE>
static __device__ __forceinline__ void sum_tile(const product &p, int row0, int column0,
                                                float4 *shared,
                                                float sum[share<TILE>::EACH][share<TILE>::EACH])
{
    using S = share<TILE>;
    int first = (int)threadIdx.x / S::ACROSS, across = (int)threadIdx.x % S::ACROSS * 4;
    int left_there = p.m - row0 - across, right_there = p.n - column0 - across;
    const krn_bf16 *left = p.left + (int64_t)first * p.m + row0 + across;
    const krn_bf16 *right = p.right + (int64_t)first * p.n + column0 + across;
    int64_t left_down = (int64_t)S::ROWS * p.m, right_down = (int64_t)S::ROWS * p.n;
    uint2 a[S::PIECES], b[S::PIECES];
    float4 *now = shared, *next = shared + 2 * S::PACKS;

    fetch<TILE, WHOLE>(left, left_down, left_there, p.k - first, a);
    fetch<TILE, WHOLE>(right, right_down, right_there, p.k - first, b);
    settle<TILE>(now + threadIdx.x, a);
    settle<TILE>(now + S::PACKS + threadIdx.x, b);
    krn_sync();
    for (int k = DEPTH; k - DEPTH < p.k; k += DEPTH) {
        left += S::PIECES * left_down;
        right += S::PIECES * right_down;
        if (k < p.k) {
            fetch<TILE, WHOLE>(left, left_down, left_there, p.k - k - first, a);
            fetch<TILE, WHOLE>(right, right_down, right_there, p.k - k - first, b);
        }
        multiply<TILE>(now + S::row(0) / 4, now + S::PACKS + S::column(0) / 4, sum);
        if (k < p.k) {
            settle<TILE>(next + threadIdx.x, a);
            settle<TILE>(next + S::PACKS + threadIdx.x, b);
        }
        krn_sync();
        float4 *old = now;
        now = next;
        next = old;
    }
}

/* ---- what becomes of the sums ---- */

template <product_kind KIND> static __device__ __forceinline__ float made(float sum, float plain)
{
    if constexpr (KIND == GRAM)
        return operand(sum);
    else if constexpr (KIND == SQUARE)
        return operand(KRN_MUON_B * plain + KRN_MUON_C * sum);
    else
        return operand(KRN_MUON_A * plain + sum);
}

/* Four rows from r of four columns from c. */
template <product_kind KIND, bool WHOLE, typename Out>
static __device__ __forceinline__ void put_block(const product &p, int r, int c, bool image,
                                                 float x[4][4])
{
    int across = p.n - c, down = p.m - r;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float plain[4] = {0, 0, 0, 0};
        if (KIND != GRAM && i < down)
            spread(floats_of(fetch4<WHOLE>(p.plain + (int64_t)(r + i) * p.n + c, across)), plain);
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[i][j] = made<KIND>(x[i][j], plain[j]);
        if (p.straight && i < down)
            put4<WHOLE>((Out *)p.straight + (int64_t)(r + i) * p.n + c, x[i], across);
    }
    if (!p.turned || !image)
        return;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float column[4] = {x[0][j], x[1][j], x[2][j], x[3][j]};
        if (j < across)
            put4<WHOLE>((Out *)p.turned + (int64_t)(c + j) * p.m + r, column, down);
    }
}

/* Tile `index` on or above the diagonal: column by column. */
static __device__ __forceinline__ void tile_of(unsigned index, int *row, int *column)
{
    unsigned c = (unsigned)((krn_sqrt(8.0f * (float)index + 1.0f) - 1.0f) * 0.5f);
    while (c * (c + 1) / 2 > index)
        c--;
    while ((c + 1) * (c + 2) / 2 <= index)
        c++;
    *row = (int)(index - c * (c + 1) / 2);
    *column = (int)c;
}

template <int TILE, product_kind KIND, bool WHOLE, typename Out>
__global__ void __launch_bounds__(THREADS, TILE == LARGE ? 2 : 4) multiply_tiles(product p)
{
    using S = share<TILE>;
    KRN_SHARED(float4, shared, 4 * S::PACKS);
    int row = (int)blockIdx.y, column = (int)blockIdx.x;
    if (KIND != APPLY)
        tile_of(blockIdx.x, &row, &column);
    float sum[S::EACH][S::EACH] = {};
    sum_tile<TILE, WHOLE>(p, row * TILE, column * TILE, shared, sum);
    bool image = KIND == APPLY || row != column;
#pragma unroll
    for (int i = 0; i < S::EDGE; i++) {
#pragma unroll
        for (int j = 0; j < S::EDGE; j++) {
            float block[4][4];
#pragma unroll
            for (int e = 0; e < 16; e++)
                block[e / 4][e % 4] = sum[4 * i + e / 4][4 * j + e % 4];
            put_block<KIND, WHOLE, Out>(p, row * TILE + S::row(i), column * TILE + S::column(j),
                                        image, block);
        }
    }
}

/* straight[rows][cols] = op(x), and turned[cols][rows] the same. */
template <typename A>
__global__ void __launch_bounds__(THREADS)
    pack(const A *x, krn_bf16 *straight, krn_bf16 *turned, int rows, int cols)
{
    KRN_SHARED(float, tile, TURN *(TURN + 1));
    int row0 = (int)blockIdx.x * TURN, column0 = (int)blockIdx.y * TURN;
    int here = (int)threadIdx.x % TURN, from = (int)threadIdx.x / TURN;
    for (int i = from; i < TURN; i += THREADS / TURN) {
        int r = row0 + i, c = column0 + here;
        if (r >= rows || c >= cols)
            continue;
        float value = operand(krn_float(x[(int64_t)r * cols + c]));
        tile[i * (TURN + 1) + here] = value;
        put_one(straight + (int64_t)r * cols + c, value);
    }
    krn_sync();
    for (int i = from; i < TURN; i += THREADS / TURN) {
        int r = row0 + here, c = column0 + i;
        if (r < rows && c < cols)
            put_one(turned + (int64_t)c * rows + r, tile[here * (TURN + 1) + i]);
    }
}

/* ---- launches ---- */

static int64_t tiles_of(product_kind kind, const product *p, int64_t tile)
{
    int64_t down = (p->m + tile - 1) / tile, across = (p->n + tile - 1) / tile;
    return kind == APPLY ? down * across : across * (across + 1) / 2;
}

/* Large tiles read less, small ones leave fewer multiprocessors idle at the end: rounds times area,
 * a small tile being a fifth dearer (an estimate). The choice does not change bits. */
static bool large_is_faster(product_kind kind, const product *p)
{
    int64_t at_once = krn_multiprocessors();
    int64_t large = (tiles_of(kind, p, LARGE) + at_once - 1) / at_once;
    int64_t small = (tiles_of(kind, p, SMALL) + at_once - 1) / at_once;
    return large * 20 <= small * 6;
}

template <int TILE, product_kind KIND, bool WHOLE, typename Out>
static void launch_tiles(krn_ctx *cx, const product *p)
{
    dim3 grid = KIND == APPLY ? krn_grid((p->n + TILE - 1) / TILE, (p->m + TILE - 1) / TILE)
                              : krn_grid(tiles_of(KIND, p, TILE));
    krn_launch(cx, multiply_tiles<TILE, KIND, WHOLE, Out>, grid, THREADS, 0, *p);
}

/* whole: all lines and addresses are those of packs. */
template <product_kind KIND, typename Out>
static void launch(krn_ctx *cx, bool whole, const product &p)
{
    if (!whole)
        launch_tiles<SMALL, KIND, false, Out>(cx, &p);
    else if (large_is_faster(KIND, &p))
        launch_tiles<LARGE, KIND, true, Out>(cx, &p);
    else
        launch_tiles<SMALL, KIND, true, Out>(cx, &p);
}

struct ortho_space {
    krn_bf16 *x, *t; /* [s][l], [l][s] */
    krn_bf16 *a, *b; /* [s][s] */
};

static ortho_space divide(void *space, int64_t s, int64_t l)
{
    ortho_space at;
    int64_t x_bytes = (2 * s * l + 255) / 256 * 256, a_bytes = (2 * s * s + 255) / 256 * 256;
    char *from = (char *)space;
    at.x = (krn_bf16 *)from;
    at.t = (krn_bf16 *)(from + x_bytes);
    at.a = (krn_bf16 *)(from + 2 * x_bytes);
    at.b = (krn_bf16 *)(from + 2 * x_bytes + a_bytes);
    return at;
}

template <typename A>
static void ortho(krn_ctx *cx, A *x, int64_t rows, int64_t cols, const ortho_space *at)
{
    int s = (int)krn_muon_short(rows, cols), l = (int)krn_muon_long(rows, cols);
    bool tall = rows > cols, whole = s % 4 == 0 && l % 4 == 0 && (uintptr_t)x % 16 == 0;
    krn_bf16 *now = at->x, *next = (krn_bf16 *)x;
    krn_launch(cx, pack<A>, krn_grid((rows + TURN - 1) / TURN, (cols + TURN - 1) / TURN), THREADS,
               0, x, tall ? at->t : at->x, tall ? at->x : at->t, rows, cols);
    for (int step = 1; step <= KRN_MUON_STEPS; step++) {
        launch<GRAM, krn_bf16>(cx, whole, {at->t, at->t, nullptr, at->a, at->a, s, s, l});
        launch<SQUARE, krn_bf16>(cx, whole, {at->a, at->a, at->a, at->b, at->b, s, s, s});
        if (step < KRN_MUON_STEPS)
            launch<APPLY, krn_bf16>(cx, whole, {at->b, now, now, next, at->t, s, l, s});
        else
            launch<APPLY, A>(cx, whole,
                             {at->b, now, now, tall ? nullptr : x, tall ? x : nullptr, s, l, s});
        krn_bf16 *old = now;
        now = next;
        next = old;
    }
}

void krn_cuda_ortho(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space, atom_dtype dtype)
{
    int64_t s = krn_muon_short(rows, cols), l = krn_muon_long(rows, cols);
    ATOM_ASSERT(s > 0 && l < LINE_END);
    ortho_space at = divide(space, s, l);
    if (dtype == ATOM_F32)
        ortho(cx, (float *)x, rows, cols, &at);
    else
        ortho(cx, (krn_bf16 *)x, rows, cols, &at);
}
