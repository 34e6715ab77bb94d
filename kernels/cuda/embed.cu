/*
 * Owns the embedding. Forward: one pack per thread; without wpe, no positions. Backward of wte sorts
 * the positions by token, then by position: a block per range of tokens finds those of its range,
 * and their place behind all lower tokens by counting. Then a warp per chunk of sorted positions and
 * tile of columns adds their rows in that order, so a token that is everywhere is many warps' work.
 * The sum of a token that began in an earlier chunk waits as the chunk's head; a last kernel adds
 * the heads in order. So every row has one writer at a time and one order, without atomics. Backward
 * of wpe: a thread per place and pack goes through the rows of that place in ascending order; with
 * documents apart (krn_step.starts) it leaps from one document's row to the next one's. Token ids
 * are in range: the data reader refuses others.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

extern "C" {
#include "atom/base/mem.h"
}

enum { THREADS = 256, SORT_THREADS = 512, WARPS = SORT_THREADS / 32, RANGES = 512 };
enum { CHUNK = 32, BATCH = 4, ADD_THREADS = 128 };
enum : uint32_t { NOWHERE = 0xffffffffu };

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

/* What backward of wte keeps in the workspace: the tokens and their positions, by range and then by
 * position, a word being the token's number in its range; the same by token; the chunks' heads. */
struct embed_order {
    uint32_t *word, *place;                /* [N] */
    uint32_t *sorted_token, *sorted_place; /* [N] */
    float *heads;                          /* [chunks][C] */
};

/* This lane's tokens from begin to end that are less than `first`, and those in the range. */
static __device__ __forceinline__ void count_share(const int32_t *tokens, int begin, int end,
                                                   uint32_t first, uint32_t words, int *below,
                                                   int *inside)
{
    *below = *inside = 0;
#pragma unroll 8
    for (int n = begin + krn_lane(); n < end; n += 32) {
        uint32_t token = (uint32_t)tokens[n];
        *below += token < first;
        *inside += token - first < words;
    }
}
static __device__ __forceinline__ int sum_lanes(int x)
{
#pragma unroll
    for (int away = 16; away; away >>= 1)
        x += krn_shuffle_xor(x, away);
    return x;
}

/* Lists the positions of the range's words, in ascending order, from `at` on. */
static __device__ __forceinline__ void list_share(embed_order order, const int32_t *tokens,
                                                  int begin, int end, uint32_t first,
                                                  uint32_t words, int at)
{
#pragma unroll 4
    for (int base = begin; base < end; base += 32) {
        int n = base + krn_lane();
        uint32_t word = n < end ? (uint32_t)tokens[n] - first : words;
        uint32_t hits = krn_ballot(word < words);
        if (word < words) {
            int to = at + krn_popcount(hits & ((1u << krn_lane()) - 1u));
            order.word[to] = word;
            order.place[to] = (uint32_t)n;
        }
        at += krn_popcount(hits);
    }
}

/* Sorts entries begin .. end - 1 of one word to their places. One warp. */
static __device__ __forceinline__ void sort_word(embed_order order, int begin, int end,
                                                 uint32_t word, uint32_t first)
{
    int at = begin;
    bool any = false;
#pragma unroll 4
    for (int base = begin; base < end; base += 32) {
        int e = base + krn_lane();
        uint32_t other = e < end ? order.word[e] : 0xffffffffu;
        at += krn_popcount(krn_ballot(other < word));
        any = krn_ballot(other == word) || any;
    }
    if (!any)
        return;
#pragma unroll 4
    for (int base = begin; base < end; base += 32) {
        int e = base + krn_lane();
        bool hit = e < end && order.word[e] == word;
        uint32_t hits = krn_ballot(hit);
        if (hit) {
            int to = at + krn_popcount(hits & ((1u << krn_lane()) - 1u));
            order.sorted_token[to] = first + word;
            order.sorted_place[to] = order.place[e];
        }
        at += krn_popcount(hits);
    }
}

/* Block r sorts the positions of the words of range r, behind those of all ranges before. */
__global__ void __launch_bounds__(SORT_THREADS, 2)
    embed_sort(embed_order order, const int32_t *tokens, int64_t N, int64_t V, int64_t range)
{
    KRN_SHARED(int, below, WARPS);
    KRN_SHARED(int, inside, WARPS);
    int64_t first = (int64_t)blockIdx.x * range;
    uint32_t words = (uint32_t)(first + range < V ? range : V - first);
    int share = (int)((N + WARPS - 1) / WARPS), from = krn_warp() * share;
    int to = from + share < (int)N ? from + share : (int)N;
    int less, mine;
    count_share(tokens, from, to, (uint32_t)first, words, &less, &mine);
    less = sum_lanes(less);
    mine = sum_lanes(mine);
    if (krn_lane() == 0) {
        below[krn_warp()] = less;
        inside[krn_warp()] = mine;
    }
    krn_sync();
    int begin = 0, at = 0, all = 0;
    for (int warp = 0; warp < WARPS; warp++) {
        begin += below[warp];
        at += warp < krn_warp() ? inside[warp] : 0;
        all += inside[warp];
    }
    if (inside[krn_warp()] > 0)
        list_share(order, tokens, from, to, (uint32_t)first, words, begin + at);
    krn_sync();
    for (uint32_t word = (uint32_t)krn_warp(); all > 0 && word < words; word += WARPS)
        sort_word(order, begin, begin + all, word, (uint32_t)first);
}

/* Entries k .. k + BATCH - 1 of a chunk, whose lanes have them: all loads, then the sums. A sum ends
 * where another word begins, and goes to dwte; the chunk's first one to its head, if the word began
 * in an earlier chunk. What is loaded of dwte counts only where a sum ends that goes there. */
template <typename A, int W>
static __device__ __forceinline__ void add_batch(float sum[W], float *dwte, float *head,
                                                 const A *dx, int64_t C, int k, uint32_t ends,
                                                 uint32_t word, uint32_t place, bool mine)
{
    float v[BATCH][W], old[BATCH][W];
#pragma unroll
    for (int i = 0; i < BATCH; i++) { /* without conditions, so that no load waits for another */
        uint32_t which = krn_shuffle(word, k + i), row = krn_shuffle(place, k + i);
        krn_load_w<A, W>(dx + (int64_t)(row != NOWHERE ? row : 0) * C, v[i]);
        krn_load_w<float, W>(dwte + (int64_t)(row != NOWHERE ? which : 0) * C, old[i]);
    }
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        uint32_t which = krn_shuffle(word, k + i), row = krn_shuffle(place, k + i);
        bool end = ends >> (k + i) & 1u;
        bool to_head = head && !(ends & ((1u << (k + i)) - 1u));
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] += v[i][j];
        if (!end)
            continue;
#pragma unroll
        for (int j = 0; j < W; j++)
            old[i][j] = to_head ? sum[j] : old[i][j] + sum[j];
        if (mine && row != NOWHERE)
            krn_store_w<float, W>(to_head ? head : dwte + (int64_t)which * C, old[i]);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum[j] = 0.0f;
    }
}

/* A warp adds a chunk of the sorted positions, for a tile of columns. */
template <typename A, int W>
__global__ void __launch_bounds__(ADD_THREADS)
    embed_add(float *dwte, embed_order order, const A *dx, int64_t N, int64_t C)
{
    int64_t chunk = (int64_t)blockIdx.x * (ADD_THREADS / 32) + krn_warp(), at = chunk * CHUNK;
    int64_t column = ((int64_t)blockIdx.y * 32 + krn_lane()) * W;
    if (at >= N)
        return;
    int64_t e = at + krn_lane();
    bool there = e < N;
    uint32_t word = there ? order.sorted_token[e] : NOWHERE;
    uint32_t place = there ? order.sorted_place[e] : NOWHERE;
    uint32_t next = krn_shuffle(word, krn_lane() + 1);
    uint32_t ends = krn_ballot(krn_lane() == 31 || next != word);
    bool head = at > 0 && order.sorted_token[at - 1] == krn_shuffle(word, 0);
    float sum[W];
#pragma unroll
    for (int j = 0; j < W; j++)
        sum[j] = 0.0f;
    bool mine = column < C;
    for (int k = 0; k < CHUNK && at + k < N; k += BATCH)
        add_batch<A, W>(sum, mine ? dwte + column : dwte,
                        head ? order.heads + chunk * C + column : nullptr, mine ? dx + column : dx,
                        C, k, ends, word, place, mine);
}

/* Adds the heads of a word to its row, in ascending order: the warp of the first one. */
template <int W>
__global__ void __launch_bounds__(ADD_THREADS)
    embed_add_heads(float *dwte, embed_order order, int64_t N, int64_t C)
{
    int64_t chunk = (int64_t)blockIdx.x * (ADD_THREADS / 32) + krn_warp() + 1;
    int64_t column = ((int64_t)blockIdx.y * 32 + krn_lane()) * W;
    int64_t chunks = (N + CHUNK - 1) / CHUNK;
    if (chunk >= chunks)
        return;
    uint32_t word = order.sorted_token[chunk * CHUNK];
    if (order.sorted_token[chunk * CHUNK - 1] != word)
        return;
    if (chunk > 1 && order.sorted_token[(chunk - 1) * CHUNK - 1] == word)
        return; /* an earlier chunk has a head of it */
    float sum[W];
    bool mine = column < C;
#pragma unroll
    for (int j = 0; j < W; j++)
        sum[j] = 0.0f;
    for (bool more = true; more; chunk += 32) {
        int64_t other = chunk + krn_lane();
        bool same = other < chunks && order.sorted_token[other * CHUNK] == word;
        uint32_t others = ~krn_ballot(same);
        int n = others ? krn_popcount((others & (0u - others)) - 1u) : 32;
#pragma unroll 8
        for (int i = 0; i < n; i++) {
            float v[W];
            if (!mine)
                continue;
            krn_load_w<float, W>(order.heads + (chunk + i) * C + column, v);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
        more = n == 32;
    }
    if (!mine)
        return;
    float old[W];
    krn_load_w<float, W>(dwte + (int64_t)word * C + column, old);
#pragma unroll
    for (int j = 0; j < W; j++)
        old[j] += sum[j];
    krn_store_w<float, W>(dwte + (int64_t)word * C + column, old);
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

static int64_t chunks_of(int64_t N)
{
    return (N + CHUNK - 1) / CHUNK;
}

uint64_t krn_cuda_embed_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    int64_t N = dim[0] * dim[1], C = dim[2];
    if (!backward)
        return 0;
    return 4 * atom_align((uint64_t)N * sizeof(uint32_t)) +
           (uint64_t)(chunks_of(N) * C) * sizeof(float);
}

static embed_order order_in(void *workspace, int64_t N)
{
    char *at = (char *)workspace;
    uint64_t bytes = atom_align((uint64_t)N * sizeof(uint32_t));
    return {(uint32_t *)at, (uint32_t *)(at + bytes), (uint32_t *)(at + 2 * bytes),
            (uint32_t *)(at + 3 * bytes), (float *)(at + 4 * bytes)};
}

template <typename A, int W>
static void run_d_tokens(krn_ctx *cx, const krn_args *args, float *dwte)
{
    const int32_t *tokens = (const int32_t *)args->buf[0];
    int64_t N = args->dim[0] * args->dim[1], C = args->dim[2], V = args->dim[3];
    int64_t range = (V + RANGES - 1) / RANGES, tile = 32 * W, warps = ADD_THREADS / 32;
    embed_order order = order_in(cx->workspace, N);
    krn_launch(cx, embed_sort, krn_grid((V + range - 1) / range), SORT_THREADS, 0, order, tokens, N,
               V, range);
    dim3 grid = krn_grid((chunks_of(N) + warps - 1) / warps, (C + tile - 1) / tile);
    krn_launch(cx, embed_add<A, W>, grid, ADD_THREADS, 0, dwte, order, (const A *)args->buf[4], N,
               C);
    krn_launch(cx, embed_add_heads<W>, grid, ADD_THREADS, 0, dwte, order, N, C);
}

template <typename A, int W> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    void *const *buf = args->buf;
    int64_t B = args->dim[0], T = args->dim[1], C = args->dim[2];
    if (buf[6])
        run_d_tokens<A, W>(cx, args, (float *)buf[6]);
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
