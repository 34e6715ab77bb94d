/*
 * Owns attention's forward. One idea: a task is one block of 64 queries of one head; it walks the
 * blocks of keys that it sees, up to its own, with an online softmax (Milakov and Gimelshein 2018;
 * FlashAttention, Dao et al. 2022), so that no more than one 64 x 64 tile of scores exists per
 * task. Keys are transposed and values widened once per head before. Refuses nothing: any B, T, H,
 * D.
 */
#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/amx.h"
#include "kernels/cpu/isa/span.h"

enum { BLOCK = ATTENTION_BLOCK };

/* Query block `block` of one head, and its running sums. */
typedef struct query_block {
    attention_head head;
    int64_t t0, rows;
    const float *query;
    float *score, *out, *top, *sum;
} query_block;

KRN_INLINE void prepare_head(atom_dtype dtype, const attention_job *j, uint32_t i)
{
    attention_head a = attention_head_at(j, i, 0);
    int64_t step = j->row;
    attention_turn(dtype, j, a.space.keys_t, j->qkv, attention_qkv_at(&a, 1, 0), step);
    attention_widen(dtype, j, a.space.query, j->qkv, attention_qkv_at(&a, 0, 0), step, j->T);
    attention_widen(dtype, j, a.space.values, j->qkv, attention_qkv_at(&a, 2, 0), step, j->T);
}

/* Row r of the tile: scores to probabilities relative to the row's top so far. */
KRN_INLINE void soften_row(const query_block *q, int64_t r, int64_t s0)
{
    const attention_job *j = q->head.job;
    float *s = q->score + r * BLOCK;
    int64_t t = q->t0 + r, live = krn_min(BLOCK, t - s0 + 1);
    int64_t dead = attention_first(&q->head, t) - s0;
    if (dead >= live) {
        memset(s, 0, BLOCK * sizeof *s);
        return;
    }
    if (j->cap > 0)
        attention_cap_row(j, s);
    for (int64_t c = 0; c < dead; c++)
        s[c] = -INFINITY;
    for (int64_t c = live; c < BLOCK; c++)
        s[c] = -INFINITY;
    vf scale = vf_all(j->scale), tops = vf_load(s) * scale;
    for (int64_t c = 0; c < BLOCK; c += VF_LANES) {
        vf x = vf_load(s + c) * scale;
        tops = vf_max(tops, x);
        vf_store(s + c, x);
    }
    float before = q->top[r], top = vf_top(tops);
    top = before > top ? before : top;
    vf sum = vf_all(0.0f);
    for (int64_t c = 0; c < BLOCK; c += VF_LANES) {
        vf p = vf_exp(vf_load(s + c) - vf_all(top));
        sum += p;
        vf_store(s + c, p);
    }
    float shrink = expf(before - top);
    q->sum[r] = q->sum[r] * shrink + vf_sum(sum);
    q->top[r] = top;
    for (int64_t d = 0; d < j->W && shrink != 1.0f; d += VF_LANES) {
        float *o = q->out + r * j->W + d;
        vf_store(o, vf_load(o) * vf_all(shrink));
    }
}

KRN_INLINE void drop_row(const query_block *q, int64_t r, int64_t s0)
{
    float factor[BLOCK], *s = q->score + r * BLOCK;
    attention_mask_row(&q->head, q->t0 + r, s0, factor);
    for (int64_t c = 0; c < BLOCK; c += VF_LANES)
        vf_store(s + c, vf_load(s + c) * vf_load(factor + c));
}

static void add_key_block(const query_block *q, int64_t s0)
{
    const attention_job *j = q->head.job;
    const attention_space *space = &q->head.space;
    tile_job scores = {.a = q->query,
                       .a_row = j->W,
                       .a_col = 1,
                       .b = space->keys_t + s0 * j->D,
                       .ldb = BLOCK,
                       .c = q->score,
                       .ldc = BLOCK,
                       .k = j->D};
    tile_mul(&scores, q->rows, BLOCK);
    for (int64_t r = 0; r < q->rows; r++) {
        soften_row(q, r, s0);
        if (j->drop.on)
            drop_row(q, r, s0);
    }
    tile_job out = {.a = q->score,
                    .a_row = BLOCK,
                    .a_col = 1,
                    .b = space->values + s0 * j->W,
                    .ldb = j->W,
                    .c = q->out,
                    .ldc = j->W,
                    .k = krn_min(BLOCK, j->T - s0),
                    .add = true};
    tile_mul(&out, q->rows, j->W);
}

KRN_INLINE void finish_row(atom_dtype dtype, const query_block *q, int64_t r)
{
    const attention_job *j = q->head.job;
    int64_t t = q->t0 + r, at = attention_y_at(&q->head, t);
    vf inverse = vf_all(1.0f / q->sum[r]);
    for (int64_t d = 0; d < j->D; d += VF_LANES)
        vf_put(dtype, j->out, at + d, krn_min(VF_LANES, j->D - d),
               vf_load(q->out + r * j->W + d) * inverse);
    j->lse[(q->head.b * j->H + q->head.h) * j->T + t] = q->top[r] + logf(q->sum[r]);
}

KRN_INLINE void run_block(atom_dtype dtype, const attention_job *j, uint32_t i)
{
    /* the longest blocks first: they balance the loop */
    int64_t block = j->blocks - 1 - (int64_t)i / (j->B * j->H), t0 = block * BLOCK;
    query_block q = {.head = attention_head_at(j, (int64_t)i % (j->B * j->H), 0),
                     .t0 = t0,
                     .rows = krn_min(BLOCK, j->T - t0)};
    q.query = q.head.space.query + t0 * j->W;
    q.out = q.head.space.out + t0 * j->W;
    q.score = q.head.space.tiles + block * 2 * BLOCK * BLOCK;
    q.top = q.head.space.stats + t0 * 2;
    q.sum = q.top + BLOCK;
    memset(q.out, 0, (size_t)(q.rows * j->W) * sizeof *q.out);
    for (int64_t r = 0; r < q.rows; r++) {
        q.top[r] = -INFINITY;
        q.sum[r] = 0.0f;
    }
    for (int64_t s0 = attention_first_block(&q.head, t0); s0 <= t0; s0 += BLOCK)
        add_key_block(&q, s0);
    for (int64_t r = 0; r < q.rows; r++)
        finish_row(dtype, &q, r);
}

KRN_TASK_AS(prepare_f32, prepare_head(ATOM_F32, ctx, index))
KRN_TASK_AS(prepare_bf16, prepare_head(ATOM_BF16, ctx, index))
KRN_TASK_AS(block_f32, run_block(ATOM_F32, ctx, index))
KRN_TASK_AS(block_bf16, run_block(ATOM_BF16, ctx, index))

static void run(krn_ctx *cx, const krn_args *args, atom_task prepare, atom_task block)
{
    attention_job j = attention_job_open(cx, args, 0);
    j.out = args->buf[1];
    j.lse = args->buf[2];
    krn_each(cx->threads, j.B * j.H, prepare, &j);
    krn_each(cx->threads, j.B * j.H * j.blocks, block, &j);
}

void KRN_ISA(krn_cpu_attention_fwd_f32)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, prepare_f32, block_f32);
}
void KRN_ISA(krn_cpu_attention_fwd_bf16)(krn_ctx *cx, const krn_args *args)
{
#if defined(__AVX512F__)
    if (krn_amx_usable()) {
        krn_cpu_attention_amx_fwd(cx, args);
        return;
    }
#endif
    run(cx, args, prepare_bf16, block_bf16);
}
