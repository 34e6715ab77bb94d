/*
 * Owns attention's backward. One idea: a task is one key head and the query heads that share it; it
 * takes the blocks of keys in order and for each the heads and blocks of queries from the diagonal
 * on that see it, rebuilds the probabilities of a 64 x 64 tile from lse, and adds to dk, dv (of
 * this block of keys) and dq (of the whole head) in that fixed order. The transposed factors of dk
 * and dv cost nothing: tile.h reads its left operand with any strides.
 */
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/span.h"

enum { BLOCK = ATTENTION_BLOCK };

KRN_INLINE void prepare(atom_dtype dtype, const attention_head *a)
{
    const attention_job *j = a->job;
    const attention_space *s = &a->space;
    int64_t step = j->row, k = attention_qkv_at(a, 1, 0);
    attention_turn(dtype, j, s->keys_t, j->qkv, k, step);
    attention_turn(dtype, j, s->values_t, j->qkv, attention_qkv_at(a, 2, 0), step);
    attention_widen(dtype, j, s->query, j->qkv, attention_qkv_at(a, 0, 0), step, j->T);
    attention_widen(dtype, j, s->keys, j->qkv, k, step, j->T);
    attention_widen(dtype, j, s->dy, j->dy, attention_y_at(a, 0), j->C, j->T);
    memset(s->dq, 0, (size_t)(j->T * j->W) * sizeof *s->dq);
    for (int64_t t = 0; t < j->T; t++) {
        vf delta = vf_all(0.0f);
        for (int64_t d = 0; d < j->D; d += VF_LANES)
            delta += vf_load(s->dy + t * j->W + d) *
                     vf_get(dtype, j->y, attention_y_at(a, t) + d, krn_min(VF_LANES, j->D - d));
        s->stats[t] = vf_sum(delta);
    }
}

/* Caps a row of scores; bend is multiplied by its slopes. */
KRN_INLINE void cap_row(const attention_job *j, float *p, float *bend)
{
    attention_cap_row(j, p);
    for (int64_t c = 0; c < BLOCK; c += VF_LANES)
        vf_store(bend + c, vf_load(bend + c) * vf_cap_slope(vf_load(p + c), j->cap));
}

/* Row r of the tiles at (t0, s0): score becomes P times its mask, dp becomes dS. */
KRN_INLINE void gradient_row(const attention_head *a, int64_t t0, int64_t s0, int64_t r)
{
    const attention_job *j = a->job;
    int64_t t = t0 + r, live = krn_min(BLOCK, t - s0 + 1);
    float *p = a->space.tiles + r * BLOCK, *ds = p + BLOCK * BLOCK, factor[BLOCK], bend[BLOCK];
    vf lse = vf_all(j->lse[(a->b * j->H + a->h) * j->T + t]);
    vf delta = vf_all(a->space.stats[t]), scale = vf_all(j->scale);
    int64_t dead = krn_min(BLOCK, attention_first(a, t) - s0);
    for (int64_t c = 0; c < BLOCK; c += VF_LANES)
        vf_store(bend + c, scale);
    if (j->cap > 0)
        cap_row(j, p, bend);
    for (int64_t c = 0; c < dead; c++)
        p[c] = -INFINITY;
    for (int64_t c = live; c < BLOCK; c++)
        p[c] = -INFINITY;
    for (int64_t c = 0; c < BLOCK; c += VF_LANES)
        vf_store(factor + c, vf_all(1.0f));
    if (j->drop.on)
        attention_mask_row(a, t, s0, factor);
    for (int64_t c = 0; c < BLOCK; c += VF_LANES) {
        vf mask = vf_load(factor + c);
        vf x = vf_exp(vf_load(p + c) * scale - lse);
        vf_store(p + c, x * mask);
        vf_store(ds + c, x * (vf_load(ds + c) * mask - delta) * vf_load(bend + c));
    }
}

static void multiply(const float *a, int64_t a_row, int64_t a_col, const float *b, int64_t ldb,
                     float *c, int64_t ldc, int64_t m, int64_t n, int64_t k, bool add)
{
    tile_job t = {a, a_row, a_col, b, ldb, c, ldc, k, add};
    tile_mul(&t, m, n);
}

/* One tile: queries t0.., keys s0... */
KRN_INLINE void add_tile(const attention_head *a, int64_t t0, int64_t s0, float *dk, float *dv)
{
    const attention_job *j = a->job;
    const attention_space *s = &a->space;
    int64_t rows = krn_min(BLOCK, j->T - t0), cols = krn_min(BLOCK, j->T - s0), W = j->W;
    const float *q = s->query + t0 * W, *dy = s->dy + t0 * W;
    float *p = s->tiles, *ds = p + BLOCK * BLOCK;
    multiply(q, W, 1, s->keys_t + s0 * j->D, BLOCK, p, BLOCK, rows, BLOCK, j->D, false);
    multiply(dy, W, 1, s->values_t + s0 * j->D, BLOCK, ds, BLOCK, rows, BLOCK, j->D, false);
    for (int64_t r = 0; r < rows; r++)
        gradient_row(a, t0, s0, r);
    multiply(p, 1, BLOCK, dy, W, dv, W, cols, W, rows, true);
    multiply(ds, 1, BLOCK, q, W, dk, W, cols, W, rows, true);
    multiply(ds, BLOCK, 1, s->keys + s0 * W, W, s->dq + t0 * W, W, rows, W, cols, true);
}

/* n rows from t0 of dqkv's part, from fp32 rows of W. */
KRN_INLINE void put_rows(atom_dtype dtype, const attention_head *a, int part, const float *d,
                         int64_t t0, int64_t n)
{
    const attention_job *j = a->job;
    for (int64_t t = 0; t < n; t++) {
        int64_t at = attention_qkv_at(a, part, t0 + t);
        for (int64_t c = 0; c < j->D; c += VF_LANES) {
            int64_t k = krn_min(VF_LANES, j->D - c);
            vf x = vf_load(d + t * j->W + c);
            if (j->add)
                x += vf_get(dtype, j->dqkv, at + c, k);
            vf_put(dtype, j->dqkv, at + c, k, x);
        }
    }
}

/* Key head i % K of sample i / K: query heads first .. first + group, counted over all samples. */
KRN_INLINE void run_group(atom_dtype dtype, const attention_job *j, uint32_t i)
{
    int64_t first = (int64_t)i * j->group, end = first + j->group;
    attention_head a = attention_head_at(j, first, 1);
    float *dk = a.space.out, *dv = dk + BLOCK * j->W;
    for (int64_t h = first; h < end; h++) {
        attention_head one = attention_head_at(j, h, 1);
        prepare(dtype, &one);
    }
    for (int64_t s0 = 0; s0 < j->T; s0 += BLOCK) {
        memset(dk, 0, (size_t)(2 * BLOCK * j->W) * sizeof *dk);
        for (int64_t h = first; h < end; h++) {
            attention_head one = attention_head_at(j, h, 1);
            for (int64_t t0 = s0; t0 < j->T && attention_first_block(&one, t0) <= s0; t0 += BLOCK)
                add_tile(&one, t0, s0, dk, dv);
        }
        put_rows(dtype, &a, 1, dk, s0, krn_min(BLOCK, j->T - s0));
        put_rows(dtype, &a, 2, dv, s0, krn_min(BLOCK, j->T - s0));
    }
    for (int64_t h = first; h < end; h++) {
        attention_head one = attention_head_at(j, h, 1);
        put_rows(dtype, &one, 0, one.space.dq, 0, j->T);
    }
}

KRN_TASK_AS(group_f32, run_group(ATOM_F32, ctx, index))
KRN_TASK_AS(group_bf16, run_group(ATOM_BF16, ctx, index))

static void run(krn_ctx *cx, const krn_args *args, atom_task group)
{
    attention_job j = attention_job_open(cx, args, 1);
    j.y = args->buf[1];
    j.lse = args->buf[2];
    j.dy = args->buf[3];
    j.dqkv = args->buf[4];
    j.add = args->flags & KRN_ADD_D_IN0;
    if (j.dqkv)
        krn_each(cx->threads, j.B * j.H / j.group, group, &j);
}

void KRN_ISA(krn_cpu_attention_bwd_f32)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, group_f32);
}
void KRN_ISA(krn_cpu_attention_bwd_bf16)(krn_ctx *cx, const krn_args *args)
{
#if defined(__AVX512F__)
    if (krn_amx_usable()) {
        krn_cpu_attention_amx_bwd(cx, args);
        return;
    }
#endif
    run(cx, args, group_bf16);
}
