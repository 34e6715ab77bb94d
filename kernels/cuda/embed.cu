/*
 * Owns the embedding. Forward: one pack per thread; without wpe, no positions. Backward of wte: a
 * block owns a range of tokens and a tile of columns; it goes through the positions in segments,
 * each warp collects its share of the positions whose token is in the range, in ascending order,
 * and then a warp per token adds its rows in that order. So every row has one writer and one order,
 * without atomics and without a sort. Backward of wpe: a thread per place and pack goes through the
 * rows of that place in ascending order; with documents apart (krn_step.starts) it leaps from one
 * document's row to the next one's. Token ids are in range: the data reader refuses others.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, SHARE = 512, SEGMENT = WARPS * SHARE, RANGES = 512 };

template <typename A, int W>
__global__ void __launch_bounds__(THREADS)
    embed_fwd(A *x, const int32_t *tokens, const A *wte, const A *wpe, int64_t N, int64_t T,
              int64_t C, const krn_step *step)
{
    int64_t pack = (int64_t)blockIdx.x * THREADS + threadIdx.x, packs = C / W;
    if (pack >= N * packs)
        return;
    int64_t n = pack / packs, c = pack % packs * W;
    float word[W], place[W];
    krn_load_w<A, W>(wte + (int64_t)tokens[n] * C + c, word);
    if (wpe) {
        const int32_t *starts = step ? step->starts : NULL;
        krn_load_w<A, W>(wpe + (n % T - (starts ? starts[n] : 0)) * C + c, place);
#pragma unroll
        for (int i = 0; i < W; i++)
            word[i] += place[i];
    }
    krn_store_w<A, W>(x + n * C + c, word);
}

/* Adds the rows of one token, in the order of the lists, to its row of dwte. One warp. */
template <typename A, int W>
static __device__ __forceinline__ void add_rows(float *to, const A *dx, int64_t C, bool mine,
                                                uint32_t token, const uint32_t *list_token,
                                                const uint32_t *list_place, const int *list_n)
{
    float sum[W];
    bool any = false;
#pragma unroll
    for (int i = 0; i < W; i++)
        sum[i] = 0.0f;
    for (int warp = 0; warp < WARPS; warp++) {
        for (int at = 0; at < list_n[warp]; at += 32) {
            int e = at + krn_lane();
            bool hit = e < list_n[warp] && list_token[warp * SHARE + e] == token;
            uint32_t hits = krn_ballot(hit);
            any = any || hits;
#pragma unroll 4
            for (; hits; hits &= hits - 1) {
                int which = krn_popcount((hits & (0u - hits)) - 1u);
                float v[W];
                if (!mine)
                    continue;
                krn_load_w<A, W>(dx + (int64_t)list_place[warp * SHARE + at + which] * C, v);
#pragma unroll
                for (int i = 0; i < W; i++)
                    sum[i] += v[i];
            }
        }
    }
    if (!any || !mine)
        return;
#pragma unroll
    for (int i = 0; i < W; i++)
        to[i] += sum[i];
}

template <typename A, int W>
__global__ void __launch_bounds__(THREADS)
    embed_d_tokens(float *dwte, const int32_t *tokens, const A *dx, int64_t N, int64_t C, int64_t V,
                   int64_t range)
{
    KRN_SHARED(uint32_t, list_token, SEGMENT);
    KRN_SHARED(uint32_t, list_place, SEGMENT);
    KRN_SHARED(int, list_n, WARPS);
    int64_t first = (int64_t)blockIdx.x * range;
    uint32_t words = (uint32_t)(first + range < V ? range : V - first);
    int64_t column = ((int64_t)blockIdx.y * 32 + krn_lane()) * W;
    bool mine = column < C;
    int warp = krn_warp();
    for (int64_t segment = 0; segment < N; segment += SEGMENT) {
        int count = 0;
        for (int i = 0; i < SHARE; i += 32) {
            int64_t n = segment + warp * SHARE + i + krn_lane();
            uint32_t token = n < N ? (uint32_t)((int64_t)tokens[n] - first) : 0xffffffffu;
            bool hit = token < words;
            uint32_t hits = krn_ballot(hit);
            if (hit) {
                int at = warp * SHARE + count + krn_popcount(hits & ((1u << krn_lane()) - 1u));
                list_token[at] = token;
                list_place[at] = (uint32_t)n;
            }
            count += krn_popcount(hits);
        }
        if (krn_lane() == 0)
            list_n[warp] = count;
        krn_sync();
        for (uint32_t token = (uint32_t)warp; token < words; token += WARPS)
            add_rows<A, W>(dwte + (first + token) * C + column, dx + column, C, mine, token,
                           list_token, list_place, list_n);
        krn_sync();
    }
}

template <typename A, int W>
static __device__ __forceinline__ void add_row(float sum[W], const A *from)
{
    float v[W];
    krn_load_w<A, W>(from, v);
#pragma unroll
    for (int i = 0; i < W; i++)
        sum[i] += v[i];
}

/* The rows of one sample at `place` of their documents. dx: of row 0. After row t the next such row
 * is at least place + 1 on; from a row at another place of its document it is known where that
 * document has (or, when it is past, no document before t + place + 1 can have) one. */
template <typename A, int W>
static __device__ __forceinline__ void add_apart(float sum[W], const A *dx, const int32_t *starts,
                                                 int64_t T, int64_t C, int64_t place)
{
    for (int64_t t = place; t < T;) {
        int64_t at = t - starts[t];
        if (at == place)
            add_row<A, W>(sum, dx + t * C);
        t += at < place ? place - at : place + 1;
    }
}

/* dwpe[p] += sum of dx[n] over the rows n at place p. */
template <typename A, int W>
__global__ void __launch_bounds__(THREADS)
    embed_d_places(float *dwpe, const A *dx, int64_t B, int64_t T, int64_t C, const krn_step *step)
{
    int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W;
    if (at >= T * C)
        return;
    const int32_t *starts = step ? step->starts : NULL;
    float sum[W];
#pragma unroll
    for (int i = 0; i < W; i++)
        sum[i] = 0.0f;
    if (starts) {
        for (int64_t b = 0; b < B; b++)
            add_apart<A, W>(sum, dx + b * T * C + at % C, starts + b * T, T, C, at / C);
    } else {
#pragma unroll 4
        for (int64_t b = 0; b < B; b++)
            add_row<A, W>(sum, dx + b * T * C + at);
    }
#pragma unroll
    for (int i = 0; i < W; i++)
        dwpe[at + i] += sum[i];
}

static int64_t blocks_of(int64_t threads)
{
    return (threads + THREADS - 1) / THREADS;
}

template <typename A, int W> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t N = args->dim[0] * args->dim[1], T = args->dim[1], C = args->dim[2];
    krn_launch(cx, embed_fwd<A, W>, krn_grid(blocks_of(N * (C / W))), THREADS, 0, (A *)buf[3],
               (const int32_t *)buf[0], (const A *)buf[1], (const A *)buf[2], N, T, C, cx->step);
}

template <typename A, int W> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t B = args->dim[0], T = args->dim[1], C = args->dim[2], V = args->dim[3];
    int64_t range = (V + RANGES - 1) / RANGES, tile = 32 * W;
    if (buf[6])
        krn_launch(cx, embed_d_tokens<A, W>,
                   krn_grid((V + range - 1) / range, (C + tile - 1) / tile), THREADS, 0,
                   (float *)buf[6], (const int32_t *)buf[0], (const A *)buf[4], B * T, C, V, range);
    if (buf[7])
        krn_launch(cx, embed_d_places<A, W>, krn_grid(blocks_of(T * C / W)), THREADS, 0,
                   (float *)buf[7], (const A *)buf[4], B, T, C, cx->step);
}

void krn_cuda_embed_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bool whole = args->dim[2] % (act == ATOM_F32 ? 4 : 8) == 0;
    if (act == ATOM_F32)
        (whole ? run_fwd<float, 4> : run_fwd<float, 1>)(cx, args);
    else
        (whole ? run_fwd<krn_bf16, 8> : run_fwd<krn_bf16, 1>)(cx, args);
}

void krn_cuda_embed_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    bool whole = args->dim[2] % (act == ATOM_F32 ? 4 : 8) == 0;
    if (act == ATOM_F32)
        (whole ? run_bwd<float, 4> : run_bwd<float, 1>)(cx, args);
    else
        (whole ? run_bwd<krn_bf16, 8> : run_bwd<krn_bf16, 1>)(cx, args);
}
