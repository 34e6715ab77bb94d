/*
 * What forward and backward of attention share: where a head's vectors are, and its dropout mask.
 */
#ifndef KERNELS_CPU_ISA_ATTENTION_H
#define KERNELS_CPU_ISA_ATTENTION_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/isa/pack.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/tile.h"
#include "kernels/cpu/isa/vecmath.h"
#include "kernels/cpu/isa/vecrng.h"

#include <math.h>

typedef struct attention_job {
    int64_t B, T, H, D, C, W, blocks;
    int64_t group, row; /* query heads per key head; width of a row of qkv */
    const void *qkv, *y, *dy;
    void *out, *dqkv;
    float *lse;
    bool add;
    float scale;
    float cap; /* of a score before it is scaled: the op's, divided by scale; 0: none */
    krn_drop drop;
    const krn_step *step; /* and dims, for krn_first_seen */
    const int64_t *dim;
    char *workspace;
    uint64_t head_bytes;
} attention_job;

/* One head of one sample. */
typedef struct attention_head {
    const attention_job *job;
    int64_t b, h;
    attention_space space;   /* or */
    attention_amx_space amx; /* of the same memory */
} attention_head;

KRN_INLINE attention_job attention_job_open(krn_ctx *cx, const krn_args *args, int backward)
{
    krn_carve one = {NULL, 0};
    int64_t T = args->dim[1], D = args->dim[3], H = args->dim[2];
    int64_t K = krn_kv_heads(args->dim, 2, 4);
    (void)attention_space_carve(&one, backward, T, D);
    return (attention_job){.B = args->dim[0],
                           .T = T,
                           .H = H,
                           .D = D,
                           .C = H * D,
                           .group = H / K,
                           .row = (H + 2 * K) * D,
                           .W = attention_width(D),
                           .blocks = attention_blocks(T),
                           .qkv = args->buf[0],
                           .scale = (float)krn_attention_scale(args->scale, D),
                           .cap = args->cap / (float)krn_attention_scale(args->scale, D),
                           .drop = krn_drop_make(cx, args),
                           .step = cx->step,
                           .dim = args->dim,
                           .workspace = cx->workspace,
                           .head_bytes = one.used};
}

KRN_INLINE attention_head attention_head_at(const attention_job *j, int64_t i, int backward)
{
    krn_carve carve = {j->workspace + (uint64_t)i * j->head_bytes, 0};
    return (attention_head){.job = j,
                            .b = i / j->H,
                            .h = i % j->H,
                            .space = attention_space_carve(&carve, backward, j->T, j->D)};
}

/* The same for the AMX kernels. */
KRN_INLINE attention_job attention_amx_job_open(krn_ctx *cx, const krn_args *args, int backward)
{
    attention_job j = attention_job_open(cx, args, backward);
    krn_carve one = {NULL, 0};
    (void)attention_amx_space_carve(&one, backward, j.T, j.D);
    j.W = attention_amx_width(j.D);
    j.head_bytes = one.used;
    return j;
}

KRN_INLINE attention_head attention_amx_head_at(const attention_job *j, int64_t i, int backward)
{
    krn_carve carve = {j->workspace + (uint64_t)i * j->head_bytes, 0};
    return (attention_head){.job = j,
                            .b = i / j->H,
                            .h = i % j->H,
                            .amx = attention_amx_space_carve(&carve, backward, j->T, j->D)};
}

/* Element of part 0 q, 1 k, 2 v of qkv[B,T,(H+2K)D] at time t; of y[B,T,C]. */
KRN_INLINE int64_t attention_qkv_at(const attention_head *a, int part, int64_t t)
{
    const attention_job *j = a->job;
    int64_t head = part == 0 ? a->h : j->H + (part - 1) * (j->H / j->group) + a->h / j->group;
    return (a->b * j->T + t) * j->row + head * j->D;
}
KRN_INLINE int64_t attention_y_at(const attention_head *a, int64_t t)
{
    return (a->b * a->job->T + t) * a->job->C + a->h * a->job->D;
}

/* First row that row t sees. Rows beyond the last, which blocks may have, count as the last. */
KRN_INLINE int64_t attention_first(const attention_head *a, int64_t t)
{
    return krn_first_seen(a->job->step, a->job->dim, a->b, krn_min(t, a->job->T - 1));
}
/* First block of keys that the block of queries at t0 sees, and whether it sees the one at s0. */
KRN_INLINE int64_t attention_first_block(const attention_head *a, int64_t t0)
{
    return attention_first(a, t0) / ATTENTION_BLOCK * ATTENTION_BLOCK;
}
/* Rows of the tile at (t0, s0) that see not all of its columns. */
KRN_INLINE bool attention_cut(const attention_head *a, int64_t t0, int64_t s0)
{
    return s0 == t0 || attention_first(a, t0 + ATTENTION_BLOCK - 1) > s0;
}
/* Bit c: does row t see column s0 + c? */
KRN_INLINE uint64_t attention_seen(const attention_head *a, int64_t t, int64_t s0)
{
    int64_t low = attention_first(a, t) - s0, high = krn_min(t - s0, ATTENTION_BLOCK - 1);
    low = low > 0 ? low : 0;
    return low > high ? 0 : (~(uint64_t)0 << low) & (~(uint64_t)0 >> (ATTENTION_BLOCK - 1 - high));
}

/* Caps a row of scores before it is scaled. */
KRN_INLINE void attention_cap_row(const attention_job *j, float *s)
{
    for (int64_t c = 0; c < ATTENTION_BLOCK; c += VF_LANES)
        vf_store(s + c, vf_capped(vf_load(s + c), j->cap));
}

/* Asks for n rows of D elements, `step` apart from element `at`, while others are worked on: each
 * is on another page. */
KRN_INLINE void attention_fetch(atom_dtype dtype, const attention_job *j, const void *src,
                                int64_t at, int64_t step, int64_t n)
{
    int64_t bytes = dtype == ATOM_F32 ? 4 : 2;
    for (int64_t t = 0; t < n; t++) {
        const char *p = (const char *)src + (at + t * step) * bytes;
        for (int64_t line = 0; line < j->D * bytes; line += 64)
            __builtin_prefetch(p + line);
    }
}

/* n rows of D elements, `step` apart from element `at`, to fp32 rows of W, the rest zero. */
KRN_INLINE void attention_widen(atom_dtype dtype, const attention_job *j, float *dst,
                                const void *src, int64_t at, int64_t step, int64_t n)
{
    for (int64_t t = 0; t < n; t++) {
        int64_t d = 0;
        for (; d + VF_LANES <= j->D; d += VF_LANES)
            vf_store(dst + t * j->W + d, vf_load_act(dtype, src, at + t * step + d));
        for (; d < j->W; d += VF_LANES) {
            vf x = vf_all(0.0f);
            if (d < j->D)
                x = vf_load_act_n(dtype, src, at + t * step + d, j->D - d);
            vf_store(dst + t * j->W + d, x);
        }
    }
}

/* The same rows as blocks [D][64], transposed; columns beyond T are zero. */
KRN_INLINE void attention_turn(atom_dtype dtype, const attention_job *j, float *dst,
                               const void *src, int64_t at, int64_t step)
{
    for (int64_t b = 0; b < j->blocks; b++) {
        int64_t t0 = b * ATTENTION_BLOCK, n = krn_min(ATTENTION_BLOCK, j->T - t0);
        pack_from m = pack_at(dtype, src, at + t0 * step, step, n, j->D);
        pack_turn(dtype == ATOM_F32 ? PACK_WORDS : PACK_WIDE, (uint32_t *)(void *)(dst + t0 * j->D),
                  ATTENTION_BLOCK, &m, ATTENTION_BLOCK, j->D);
    }
}

/* Factors (0 or 1/(1-p)) of the probabilities of row t, columns s0 .. s0+64. */
KRN_INLINE void attention_mask_row(const attention_head *a, int64_t t, int64_t s0,
                                   float factor[ATTENTION_BLOCK])
{
    enum { GROUP = 4 * VF_LANES };
    const attention_job *j = a->job;
    uint64_t first = (uint64_t)(((a->b * j->H + a->h) * j->T + t) * j->T + s0);
    uint64_t group = first / GROUP * GROUP;
    float lanes[ATTENTION_BLOCK + 2 * GROUP];
    for (uint64_t at = group; at < first + ATTENTION_BLOCK; at += GROUP) {
        vi words[4];
        krn_rng_words(j->drop.key, at / 4, words);
        for (int q = 0; q < 4; q++)
            vf_store(lanes + (at - group) + (uint64_t)(q * VF_LANES),
                     vf_keep(vf_all(j->drop.scale), words[q], vi_all(j->drop.threshold)));
    }
    memcpy(factor, lanes + (first - group), ATTENTION_BLOCK * sizeof *factor);
}

#endif
