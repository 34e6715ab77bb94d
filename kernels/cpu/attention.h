/*
 * Scratch of attention (isa/attention*.c), laid out in one place for the kernels and for callers
 * that ask how much they need. One set of pieces per head of one sample; all fp32. W: D rounded up to 16.
 *
 *   keys_t, values_t   [blocks][D][64]   block of keys (values), transposed
 *   query, keys, values, dy   [T][W]     rows as fp32
 *   dq                 [T][W]
 *   tiles              [blocks][2][64][64] forward: one set per block of queries; backward: one set
 *   out                [T][W]            forward: sums of the output
 *                      [2][64][W]        backward: dk and dv
 *   stats              [T][2]            forward: top and sum; backward: delta
 */
#ifndef KERNELS_CPU_ATTENTION_H
#define KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/matmul.h"

#include "atom/base/dtype.h"

enum { ATTENTION_BLOCK = 64 };

typedef struct attention_space {
    float *keys_t, *values_t, *query, *keys, *values, *dy, *dq, *tiles, *out, *stats;
} attention_space;

static inline int64_t attention_blocks(int64_t T)
{
    return (T + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;
}
static inline int64_t attention_width(int64_t D)
{
    return (D + 15) / 16 * 16;
}

static inline attention_space attention_space_carve(krn_carve *c, int backward, int64_t T,
                                                    int64_t D)
{
    int64_t blocks = attention_blocks(T), room = blocks * ATTENTION_BLOCK;
    uint64_t rows = (uint64_t)(room * attention_width(D)) * 4, turned = (uint64_t)(room * D) * 4;
    uint64_t tile = (uint64_t)2 * ATTENTION_BLOCK * ATTENTION_BLOCK * 4;
    attention_space s = {0};
    s.keys_t = (float *)krn_carve_take(c, turned);
    s.query = (float *)krn_carve_take(c, rows);
    s.stats = (float *)krn_carve_take(c, (uint64_t)room * 8);
    if (!backward) {
        s.values = (float *)krn_carve_take(c, rows);
        s.out = (float *)krn_carve_take(c, rows);
        s.tiles = (float *)krn_carve_take(c, tile * (uint64_t)blocks);
        return s;
    }
    s.values_t = (float *)krn_carve_take(c, turned);
    s.keys = (float *)krn_carve_take(c, rows);
    s.dy = (float *)krn_carve_take(c, rows);
    s.dq = (float *)krn_carve_take(c, rows);
    s.out = (float *)krn_carve_take(c, (uint64_t)(2 * ATTENTION_BLOCK * attention_width(D)) * 4);
    s.tiles = (float *)krn_carve_take(c, tile);
    return s;
}

/*
 * The same for bf16 with AMX (isa/attention_amx*.c); W is D rounded up to 32, "pairs" is
 * [k/2][n][2] (isa/amx.h). Per head of one sample, everything in blocks of 64 times:
 *
 *   keys_t, values_t   pairs: k = W, n = 64
 *   keys               backward: pairs: k = 64, n = W
 *   values             forward: the same of values
 *   query, dy          [64][W]  rows
 *   query_t, dy_t      backward: [W][64]
 *   out                forward: [64][W] f32 sums, where W is too wide for a stack; backward: dq
 *   stats              backward: [T] lse, [T] delta
 *
 * and once:
 *
 *   dk_t, dv_t         backward: [W][64] f32;  turn: [64][W] f32
 */
enum { ATTENTION_STACK_WIDTH = 128 };

typedef struct attention_amx_space {
    atom_bf16 *keys_t, *values_t, *keys, *values, *query, *dy, *query_t, *dy_t;
    float *out, *dk_t, *dv_t, *turn, *stats;
} attention_amx_space;

static inline int64_t attention_amx_width(int64_t D)
{
    return (D + 31) / 32 * 32;
}

static inline attention_amx_space attention_amx_space_carve(krn_carve *c, int backward, int64_t T,
                                                            int64_t D)
{
    int64_t room = attention_blocks(T) * ATTENTION_BLOCK, W = attention_amx_width(D);
    uint64_t rows = (uint64_t)(room * W) * 2;
    attention_amx_space s = {0};
    s.keys_t = (atom_bf16 *)krn_carve_take(c, rows);
    s.query = (atom_bf16 *)krn_carve_take(c, rows);
    if (backward || W > ATTENTION_STACK_WIDTH)
        s.out = (float *)krn_carve_take(c, 2 * rows);
    if (!backward) {
        s.values = (atom_bf16 *)krn_carve_take(c, rows);
        return s;
    }
    s.stats = (float *)krn_carve_take(c, (uint64_t)room * 2 * 4);
    s.values_t = (atom_bf16 *)krn_carve_take(c, rows);
    s.keys = (atom_bf16 *)krn_carve_take(c, rows);
    s.dy = (atom_bf16 *)krn_carve_take(c, rows);
    s.query_t = (atom_bf16 *)krn_carve_take(c, rows);
    s.dy_t = (atom_bf16 *)krn_carve_take(c, rows);
    s.dk_t = (float *)krn_carve_take(c, (uint64_t)(W * ATTENTION_BLOCK) * 4);
    s.dv_t = (float *)krn_carve_take(c, (uint64_t)(W * ATTENTION_BLOCK) * 4);
    s.turn = (float *)krn_carve_take(c, (uint64_t)(W * ATTENTION_BLOCK) * 4);
    return s;
}

#endif
