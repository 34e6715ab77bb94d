/*
 * Kernels that only text generation needs: products with one row, and attention against kept keys
 * and values. They stand beside the op table (kernels.h), because no training step calls them.
 *
 * One row: reading the weights is all the cost, so a product is dot products of the weights' rows
 * as they lie in memory, without panels.
 *
 *   entry         buffers      dim      result
 *   linear        x w b y      1 I O    as the op's forward; b may be NULL
 *   linear_gelu   x w b y u    1 I O    as the op's forward; u may be NULL
 *   logits        x w b y      1 I O    as linear, but y is f32 whatever the dtype, and capped by
 *                                       args.cap if that is not 0
 *
 * Row o of the result does not depend on O: a product may be made in pieces of rows, same bits.
 *
 * attend appends the keys and values of N new tokens to the cache of one layer, at positions past
 * .. past + N - 1, and then lets the new tokens look at all positions up to their own:
 *
 *   y[n,h] = sum_s p[s] v[s,h'],   p = softmax over s <= past + n of scale q[n,h] k[s,h']
 *
 * (with a window also s > past + n - W), where h' = h / (H/K) is the key head that query head h
 * shares with others.
 *
 *   qkv      act [N,(H+2K)D]       as the attention op's input, for one sample
 *   keys     act [K,room/64,D,64]  blocks of 64 positions, transposed, so that lanes are positions
 *   values   act [K,room,D]
 *   y        act [N,H,D]
 *
 * room is a multiple of KRN_KEY_BLOCK; past + N <= room. What the cache holds beyond past + N must
 * be finite (zeros, or what earlier texts left). Row n of y does not depend on how many rows one
 * call has: token by token gives the same bits as all at once.
 *
 * Owner: caller. Thread and determinism: as kernels.h. Errors: none.
 * Source: two-pass softmax; no T x T is ever held.
 */
#ifndef KERNELS_DECODE_H
#define KERNELS_DECODE_H

#include "kernels/kernels.h"

enum { KRN_KEY_BLOCK = 64 };

typedef struct krn_attend {
    const void *qkv;
    void *keys, *values, *y;
    int64_t N, past, room, H, D;
    int64_t K;   /* key heads; 0 stands for H */
    int64_t W;   /* a token sees the W up to itself; 0: all */
    float scale; /* of the scores; 0 stands for 1/sqrt(D) */
    float cap;   /* scores are cap tanh(x / cap); 0: x */
} krn_attend;

typedef void (*krn_attend_fn)(krn_ctx *cx, const krn_attend *args);

typedef struct krn_decode_table {
    const char *backend;
    atom_dtype dtype;
    krn_fn linear, linear_gelu, logits;
    krn_attend_fn attend;
    /* Scratch bytes for one-row products with I inputs, and for attend over at most `positions`
     * (past + N) with heads of D; threads as in the context. */
    uint64_t (*row_workspace)(int64_t I);
    uint64_t (*attend_workspace)(const atom_threads *threads, int64_t positions, int64_t D);
} krn_decode_table;

/* NULL when the dtype is not supported. */
const krn_decode_table *krn_ref_decode_table(atom_dtype dtype);
const krn_decode_table *krn_cpu_decode_table(atom_dtype dtype);

static inline int64_t krn_attend_room(int64_t positions)
{
    return (positions + KRN_KEY_BLOCK - 1) / KRN_KEY_BLOCK * KRN_KEY_BLOCK;
}
static inline int64_t krn_attend_keys(const krn_attend *a)
{
    return a->K ? a->K : a->H;
}
/* First position that new token n sees. */
static inline int64_t krn_attend_first(const krn_attend *a, int64_t n)
{
    int64_t first = a->W > 0 ? a->past + n + 1 - a->W : 0;
    return first > 0 ? first : 0;
}
/* Element of key (key head k, s), channel d. */
static inline int64_t krn_key_at(const krn_attend *a, int64_t k, int64_t s, int64_t d)
{
    int64_t block = k * (a->room / KRN_KEY_BLOCK) + s / KRN_KEY_BLOCK;
    return (block * a->D + d) * KRN_KEY_BLOCK + s % KRN_KEY_BLOCK;
}
/* Element of part 0 q, 1 k, 2 v of qkv: new token n, head h (of k and v: key head). */
static inline int64_t krn_attend_qkv_at(const krn_attend *a, int part, int64_t n, int64_t h)
{
    int64_t K = krn_attend_keys(a), first = part == 0 ? 0 : a->H + (part - 1) * K;
    return (n * (a->H + 2 * K) + first + h) * a->D;
}

#endif
