/*
 * Owns attention's forward in bf16 on machines with AMX. The idea is that of attention.c: a task is
 * one block of 64 queries of one head, with an online softmax over blocks of keys; the two products
 * of a tile run on AMX, P is rounded to bf16 for the second. What is left is exp, so the softmax
 * pass holds a row of scores in four registers. Row sums stay in vectors until the end.
 */
#include "kernels/cpu/isa/amx.h"

#if defined(__AVX512F__)

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/vecmath.h"

enum { BLOCK = ATTENTION_BLOCK, ROW_VECS = BLOCK / VF_LANES };

/* Below every score. Not -infinity: a row may see nothing of its first tile, and infinities have no
 * difference. */
#define LOWEST (-1e30f)

/* Query block of one head, and its running sums; a task's own, on its stack. */
typedef struct query_block {
    _Alignas(64) float score[BLOCK * BLOCK];
    _Alignas(64) atom_bf16 p[BLOCK * BLOCK];
    _Alignas(64) float sum[BLOCK * VF_LANES];
    _Alignas(64) float top[BLOCK];
    attention_head head;
    int64_t t0, rows, first; /* first: key block */
    float *out;              /* [64][W] */
} query_block;

static void prepare_block(const attention_head *a, int64_t t)
{
    const attention_job *j = a->job;
    int64_t W = j->W, step = j->row, n = krn_min(BLOCK, j->T - t);
    int64_t next = krn_min(BLOCK, j->T - t - n);
    pack_from part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = pack_at(ATOM_BF16, j->qkv, attention_qkv_at(a, i, t), step, n, j->D);
        attention_fetch(ATOM_BF16, j, j->qkv, attention_qkv_at(a, i, t + n), step, next);
    }
    uint32_t *query = (uint32_t *)(void *)(a->amx.query + t * W);
    uint32_t *keys_t = (uint32_t *)(void *)(a->amx.keys_t + t * W);
    uint32_t *values = (uint32_t *)(void *)(a->amx.values + t * W);
    pack_copy(PACK_WORDS, query, W / 2, &part[0], BLOCK, W / 2);
    pack_turn(PACK_WORDS, keys_t, BLOCK, &part[1], BLOCK, W / 2);
    pack_copy(PACK_ZIP, values, W, &part[2], BLOCK / 2, W);
}

static void prepare_head(void *ctx, uint32_t i, uint32_t worker)
{
    (void)worker;
    const attention_job *j = ctx;
    attention_head a = attention_amx_head_at(j, i, 0);
    for (int64_t t = 0; t < j->T; t += BLOCK)
        prepare_block(&a, t);
}

KRN_INLINE void drop_row(const query_block *q, int64_t r, int64_t s0, vf p[ROW_VECS])
{
    float factor[BLOCK];
    attention_mask_row(&q->head, q->t0 + r, s0, factor);
    for (int c = 0; c < ROW_VECS; c++)
        p[c] *= vf_load(factor + c * VF_LANES);
}

/* Scores of row r that it does not see become -infinity. */
KRN_INLINE void mask_row(query_block *q, int64_t r, int64_t s0)
{
    uint64_t live = attention_seen(&q->head, q->t0 + r, s0);
    for (int c = 0; c < ROW_VECS; c++) {
        float *s = q->score + r * BLOCK + c * VF_LANES;
        vf_store(s, _mm512_mask_blend_ps((__mmask16)(live >> (c * VF_LANES)), vf_all(-INFINITY),
                                         vf_load(s)));
    }
}

/* New tops of all rows, and by what the old sums shrink. No branch depends on the data: those would
 * be guessed wrong. */
KRN_INLINE void raise_tops(query_block *q, float shrink[BLOCK])
{
    float top[BLOCK];
    vf scale = vf_all(q->head.job->scale);
    for (int64_t r = 0; r < BLOCK; r++) {
        const float *s = q->score + r * BLOCK;
        top[r] = _mm512_reduce_max_ps(
            vf_max(vf_max(vf_load(s), vf_load(s + VF_LANES)),
                   vf_max(vf_load(s + 2 * VF_LANES), vf_load(s + 3 * VF_LANES))));
    }
    for (int64_t r = 0; r < BLOCK; r += VF_LANES) {
        vf before = vf_load(q->top + r), now = vf_max(before, vf_load(top + r) * scale);
        vf_store(shrink + r, vf_exp(before - now));
        vf_store(q->top + r, now);
    }
}

/* Scores of row r of the tile to P in bf16, relative to the row's top so far. */
KRN_INLINE void soften_row(query_block *q, int64_t r, int64_t s0, float shrink)
{
    vf p[ROW_VECS], top = vf_all(q->top[r]), scale = vf_all(q->head.job->scale);
    for (int c = 0; c < ROW_VECS; c++) {
        vf s = vf_load(q->score + r * BLOCK + c * VF_LANES);
        p[c] = vf_exp(_mm512_fmsub_ps(s, scale, top));
    }
    vf sum = vf_load(q->sum + r * VF_LANES) * vf_all(shrink);
    vf_store(q->sum + r * VF_LANES, sum + ((p[0] + p[1]) + (p[2] + p[3])));
    if (q->head.job->drop.on)
        drop_row(q, r, s0, p);
    for (int c = 0; c < ROW_VECS; c++)
        vf_store_bf16(q->p + r * BLOCK + c * VF_LANES, p[c]);
}

static void add_key_block(query_block *q, int64_t s0)
{
    int64_t W = q->head.job->W;
    bool add = s0 > q->first;
    float shrink[BLOCK];
    amx_mul(q->score, BLOCK, false, q->head.amx.query + q->t0 * W, W, q->head.amx.keys_t + s0 * W,
            BLOCK, BLOCK, BLOCK, W);
    for (int64_t r = 0; r < BLOCK && q->head.job->cap > 0; r++)
        attention_cap_row(q->head.job, q->score + r * BLOCK);
    bool cut = attention_cut(&q->head, q->t0, s0);
    for (int64_t r = 0; r < BLOCK && cut; r++)
        mask_row(q, r, s0);
    raise_tops(q, shrink);
    for (int64_t r = 0; r < BLOCK; r++)
        soften_row(q, r, s0, shrink[r]);
    for (int64_t r = 0; r < BLOCK && add; r++) {
        for (int64_t d = 0; d < W; d += VF_LANES) {
            float *o = q->out + r * W + d;
            vf_store(o, vf_load(o) * vf_all(shrink[r]));
        }
    }
    amx_mul(q->out, W, add, q->p, BLOCK, q->head.amx.values + s0 * W, W, BLOCK, W, BLOCK);
}

static void finish_row(const query_block *q, int64_t r)
{
    const attention_job *j = q->head.job;
    int64_t t = q->t0 + r, at = attention_y_at(&q->head, t);
    float sum = vf_sum(vf_load(q->sum + r * VF_LANES));
    vf inverse = vf_all(1.0f / sum);
    for (int64_t d = 0; d < j->D; d += VF_LANES)
        vf_put(ATOM_BF16, j->out, at + d, krn_min(VF_LANES, j->D - d),
               vf_load(q->out + r * j->W + d) * inverse);
    j->lse[(q->head.b * j->H + q->head.h) * j->T + t] = q->top[r] + logf(sum);
}

static void run_block(void *ctx, uint32_t i, uint32_t worker)
{
    (void)worker;
    const attention_job *j = ctx;
    /* head by head, for the caches; the longest block first, for the balance at the end */
    int64_t block = j->blocks - 1 - (int64_t)i % j->blocks;
    _Alignas(64) float out[BLOCK * ATTENTION_STACK_WIDTH];
    query_block q;
    q.head = attention_amx_head_at(j, (int64_t)i / j->blocks, 0);
    q.t0 = block * BLOCK;
    q.rows = krn_min(BLOCK, j->T - q.t0);
    q.out = q.head.amx.out ? q.head.amx.out + q.t0 * j->W : out;
    for (int64_t r = 0; r < BLOCK; r++)
        q.top[r] = LOWEST;
    memset(q.sum, 0, sizeof q.sum);
    amx_open(32);
    q.first = attention_first_block(&q.head, q.t0);
    for (int64_t s0 = q.first; s0 <= q.t0; s0 += BLOCK)
        add_key_block(&q, s0);
    amx_close();
    for (int64_t r = 0; r < q.rows; r++)
        finish_row(&q, r);
}

void krn_cpu_attention_amx_fwd(krn_ctx *cx, const krn_args *args)
{
    attention_job j = attention_amx_job_open(cx, args, 0);
    j.out = args->buf[1];
    j.lse = args->buf[2];
    krn_each(cx->threads, j.B * j.H, prepare_head, &j);
    krn_each(cx->threads, j.B * j.H * j.blocks, run_block, &j);
}

#endif
