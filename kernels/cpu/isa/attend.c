/*
 * Owns attention against kept keys and values. One idea: keys lie in blocks of 64 positions,
 * transposed, so that scores come out with positions in the lanes; up to four new tokens share one
 * pass over the keys and one over the values. What is masked counts as probability zero, so a row's
 * bits do not depend on the rows beside it. Refuses to hold more scores than those rows'.
 */
#include "kernels/cpu/isa/decode.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

#include "atom/base/assert.h"

#include <math.h>

/* Vectors side by side in the two products: what fits the registers with four rows. */
enum { VECS = VF_LANES == 16 ? 4 : 2 };

typedef struct attend_job {
    const krn_attend *a;
    float *scratch;
    int64_t scratch_floats; /* per worker */
    int64_t row_blocks;
    float scale;
    bool appended; /* keys and values are there already */
} attend_job;

/* Up to four rows of one head. */
typedef struct attend_rows {
    const krn_attend *a;
    int64_t h, k, n, rows; /* head, and the key head it looks at */
    int64_t first, keys;   /* of the first row, whole blocks; of the last row */
    int64_t width;         /* keys, rounded up to blocks: floats of a row of scores */
    int64_t q_width;       /* floats of a row of q */
    float *score, *q;      /* [rows][width], [rows][q_width] */
} attend_rows;

KRN_INLINE void append_rows(atom_dtype dtype, const krn_attend *a, int64_t h, int64_t n,
                            int64_t rows)
{
    uint32_t bytes = atom_dtype_bytes(dtype);
    for (int64_t r = n; r < n + rows; r++) {
        int64_t k = krn_attend_qkv_at(a, 1, r, h), v = krn_attend_qkv_at(a, 2, r, h);
        int64_t key = krn_key_at(a, h, a->past + r, 0);
        for (int64_t d = 0; d < a->D; d++) {
            if (dtype == ATOM_F32)
                ((float *)a->keys)[key + d * KRN_KEY_BLOCK] = ((const float *)a->qkv)[k + d];
            else
                ((atom_bf16 *)a->keys)[key + d * KRN_KEY_BLOCK] =
                    ((const atom_bf16 *)a->qkv)[k + d];
        }
        memcpy((char *)a->values + (uint64_t)((h * a->room + a->past + r) * a->D) * bytes,
               (const char *)a->qkv + (uint64_t)v * bytes, (size_t)a->D * bytes);
    }
}

/* scale q in f32. */
KRN_INLINE void take_queries(atom_dtype dtype, const attend_rows *t, float scale)
{
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t q = krn_attend_qkv_at(t->a, 0, t->n + r, t->h), D = t->a->D;
        for (int64_t d = 0; d < D; d += VF_LANES) {
            int64_t k = krn_min(VF_LANES, D - d);
            vf_store(t->q + r * t->q_width + d, vf_get(dtype, t->a->qkv, q + d, k) * vf_all(scale));
        }
    }
}

/* Scores of rows r0 .. r0 + rows (a constant) against VECS vectors of one block of keys. */
KRN_INLINE void score_part(atom_dtype dtype, const attend_rows *t, int64_t r0, int rows, int64_t s)
{
    vf sum[KRN_ATTEND_ROWS][VECS];
    int64_t key = krn_key_at(t->a, t->k, s, 0);
    const float *q = t->q + r0 * t->q_width;
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECS; v++)
            sum[r][v] = vf_all(0.0f);
    }
    for (int64_t d = 0; d < t->a->D; d++) {
        vf k[VECS];
        for (int v = 0; v < VECS; v++)
            k[v] = vf_load_act(dtype, t->a->keys, key + d * KRN_KEY_BLOCK + v * VF_LANES);
        for (int r = 0; r < rows; r++) {
            vf one = vf_all(q[r * t->q_width + d]);
            for (int v = 0; v < VECS; v++)
                sum[r][v] = vf_fma(one, k[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECS; v++)
            vf_store(t->score + (r0 + r) * t->width + s + v * VF_LANES, sum[r][v]);
    }
}

KRN_INLINE void score_rows(atom_dtype dtype, const attend_rows *t)
{
    for (int64_t s = t->first; s < t->width; s += VECS * VF_LANES) {
        if (t->rows == KRN_ATTEND_ROWS) {
            score_part(dtype, t, 0, KRN_ATTEND_ROWS, s);
            continue;
        }
        for (int64_t r = 0; r < t->rows; r++)
            score_part(dtype, t, r, 1, s);
    }
}

/* Scores of one row to probabilities, 0 before its window and beyond its own position. */
KRN_INLINE void softmax_row(const attend_rows *t, int64_t r)
{
    float *score = t->score + r * t->width;
    vf top = vf_all(-INFINITY), sum = vf_all(0.0f);
    int64_t first = krn_attend_first(t->a, t->n + r);
    for (int64_t s = t->first; s < t->width && t->a->cap > 0; s += VF_LANES)
        vf_store(score + s, vf_capped(vf_load(score + s), t->a->cap));
    for (int64_t s = t->first; s < first; s++)
        score[s] = -INFINITY;
    for (int64_t s = t->a->past + t->n + r + 1; s < t->width; s++)
        score[s] = -INFINITY;
    for (int64_t s = t->first; s < t->width; s += VF_LANES)
        top = vf_max(top, vf_load(score + s));
    top = vf_all(vf_top(top));
    for (int64_t s = t->first; s < t->width; s += VF_LANES) {
        vf p = vf_exp(vf_load(score + s) - top);
        vf_store(score + s, p);
        sum += p;
    }
    vf total = vf_all(vf_sum(sum));
    for (int64_t s = t->first; s < t->width; s += VF_LANES)
        vf_store(score + s, vf_load(score + s) / total);
}

/* Rows r0 .. r0 + rows of y, vecs vectors (constants) of channels from d on; k in the last one. */
KRN_INLINE void mix_part(atom_dtype dtype, const attend_rows *t, int64_t r0, int rows, int vecs,
                         int64_t d, int64_t k)
{
    const krn_attend *a = t->a;
    vf sum[KRN_ATTEND_ROWS][VECS];
    int64_t value = t->k * a->room * a->D + d;
    const float *p = t->score + r0 * t->width;
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++)
            sum[r][v] = vf_all(0.0f);
    }
    for (int64_t s = t->first; s < t->keys; s++) {
        vf x[VECS];
        for (int v = 0; v < vecs; v++)
            x[v] = vf_get(dtype, a->values, value + s * a->D + v * VF_LANES,
                          v + 1 == vecs ? k : VF_LANES);
        for (int r = 0; r < rows; r++) {
            vf one = vf_all(p[r * t->width + s]);
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vf_fma(one, x[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++) {
        int64_t y = ((t->n + r0 + r) * a->H + t->h) * a->D + d;
        for (int v = 0; v < vecs; v++)
            vf_put(dtype, a->y, y + v * VF_LANES, v + 1 == vecs ? k : VF_LANES, sum[r][v]);
    }
}

KRN_INLINE void mix_channels(atom_dtype dtype, const attend_rows *t, int64_t r0, int rows)
{
    int64_t D = t->a->D, d = 0;
    for (; d + VECS * VF_LANES <= D; d += VECS * VF_LANES)
        mix_part(dtype, t, r0, rows, VECS, d, VF_LANES);
    for (; d + VF_LANES <= D; d += VF_LANES)
        mix_part(dtype, t, r0, rows, 1, d, VF_LANES);
    if (d < D)
        mix_part(dtype, t, r0, rows, 1, d, D - d);
}

KRN_INLINE void attend_task(atom_dtype dtype, const attend_job *j, uint32_t index, uint32_t worker)
{
    const krn_attend *a = j->a;
    int64_t n = (int64_t)index % j->row_blocks * KRN_ATTEND_ROWS;
    float *scratch = j->scratch + worker * j->scratch_floats;
    attend_rows t = {.a = a,
                     .h = (int64_t)index / j->row_blocks,
                     .n = n,
                     .rows = krn_min(KRN_ATTEND_ROWS, a->N - n),
                     .score = scratch};
    t.k = t.h / (a->H / krn_attend_keys(a));
    t.first = krn_attend_first(a, n) / KRN_KEY_BLOCK * KRN_KEY_BLOCK;
    t.keys = a->past + n + t.rows;
    t.width = krn_attend_room(t.keys);
    t.q = scratch + KRN_ATTEND_ROWS * t.width;
    t.q_width = krn_attend_room(a->D);
    if (!j->appended)
        append_rows(dtype, a, t.h, n, t.rows);
    take_queries(dtype, &t, j->scale);
    score_rows(dtype, &t);
    for (int64_t r = 0; r < t.rows; r++)
        softmax_row(&t, r);
    if (t.rows == KRN_ATTEND_ROWS) {
        mix_channels(dtype, &t, 0, KRN_ATTEND_ROWS);
        return;
    }
    for (int64_t r = 0; r < t.rows; r++)
        mix_channels(dtype, &t, r, 1);
}

static void attend(krn_ctx *cx, const krn_attend *a, atom_task append, atom_task look)
{
    attend_job j = {.a = a,
                    .scratch = cx->workspace,
                    .scratch_floats = krn_attend_scratch(a->past + a->N, a->D),
                    .row_blocks = krn_ceil_div(a->N, KRN_ATTEND_ROWS),
                    .scale = (float)krn_attention_scale(a->scale, a->D)};
    ATOM_ASSERT(a->past + a->N <= a->room && a->room % KRN_KEY_BLOCK == 0);
    /* a block of rows, or a head beside, looks at keys of others, which must be there by then */
    j.appended = j.row_blocks > 1 || krn_attend_keys(a) < a->H;
    if (j.appended)
        krn_each(cx->threads, krn_attend_keys(a), append, &j);
    krn_each(cx->threads, a->H * j.row_blocks, look, &j);
}

#define ENTRY(dtype, suffix)                                                                       \
    static void append_##suffix(void *ctx, uint32_t index, uint32_t worker)                        \
    {                                                                                              \
        (void)worker;                                                                              \
        const attend_job *j = ctx;                                                                 \
        append_rows(dtype, j->a, index, 0, j->a->N);                                               \
    }                                                                                              \
    static void attend_##suffix(void *ctx, uint32_t index, uint32_t worker)                        \
    {                                                                                              \
        attend_task(dtype, ctx, index, worker);                                                    \
    }                                                                                              \
    void KRN_ISA(krn_cpu_attend_##suffix)(krn_ctx * cx, const krn_attend *args)                    \
    {                                                                                              \
        attend(cx, args, append_##suffix, attend_##suffix);                                        \
    }
ENTRY(ATOM_F32, f32)
ENTRY(ATOM_BF16, bf16)
