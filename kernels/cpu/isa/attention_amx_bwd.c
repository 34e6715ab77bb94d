/*
 * Owns attention's backward in bf16 on machines with AMX. The idea is that of attention_bwd.c: a
 * task is one head, blocks of keys in order, and for each the blocks of queries from the diagonal
 * on. Products:
 *
 *   S = Q K'   dP = dY V'   dV' += dY' P   dK' += Q' dS   dQ += dS K
 *
 * dV and dK are summed transposed: then P and dS are right operands, and their rows, as they come
 * out of the element-wise pass two at a time, are zipped to pairs in registers; nothing is
 * transposed inside the loop.
 */
#include "kernels/cpu/isa/amx.h"

#if defined(__AVX512F__)

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/vecmath.h"

enum { BLOCK = ATTENTION_BLOCK };

/* One tile between its products; on the stack of its task. */
typedef struct tile_space {
    _Alignas(64) float score[BLOCK * BLOCK], dp[BLOCK * BLOCK];
    _Alignas(64) atom_bf16 p[BLOCK * BLOCK], ds[BLOCK * BLOCK], ds_pairs[BLOCK * BLOCK];
} tile_space;

static uint32_t *words_at(atom_bf16 *p, int64_t element)
{
    return (uint32_t *)(void *)(p + element);
}

/* 64 rows of D elements in their forms. */
static void prepare_block(const attention_head *a, int64_t t)
{
    const attention_job *j = a->job;
    const attention_amx_space *s = &a->amx;
    int64_t W = j->W, at = t * W, step = j->row, n = krn_min(BLOCK, j->T - t);
    int64_t next = krn_min(BLOCK, j->T - t - n);
    pack_from part[3], dy = pack_at(ATOM_BF16, j->dy, attention_y_at(a, t), j->C, n, j->D);
    for (int i = 0; i < 3; i++) {
        part[i] = pack_at(ATOM_BF16, j->qkv, attention_qkv_at(a, i, t), step, n, j->D);
        attention_fetch(ATOM_BF16, j, j->qkv, attention_qkv_at(a, i, t + n), step, next);
    }
    attention_fetch(ATOM_BF16, j, j->dy, attention_y_at(a, t + n), j->C, next);
    attention_fetch(ATOM_BF16, j, j->y, attention_y_at(a, t + n), j->C, next);
    pack_copy(PACK_WORDS, words_at(s->query, at), W / 2, &part[0], BLOCK, W / 2);
    pack_turn(PACK_ZIP, words_at(s->query_t, at), BLOCK / 2, &part[0], BLOCK / 2, W);
    pack_copy(PACK_WORDS, words_at(s->dy, at), W / 2, &dy, BLOCK, W / 2);
    pack_turn(PACK_ZIP, words_at(s->dy_t, at), BLOCK / 2, &dy, BLOCK / 2, W);
    pack_turn(PACK_WORDS, words_at(s->keys_t, at), BLOCK, &part[1], BLOCK, W / 2);
    pack_copy(PACK_ZIP, words_at(s->keys, at), W, &part[1], BLOCK / 2, W);
    pack_turn(PACK_WORDS, words_at(s->values_t, at), BLOCK, &part[2], BLOCK, W / 2);
}

/* lse and delta of 64 rows; rows beyond T get an lse that makes their P zero. */
static void prepare_stats(const attention_head *a, int64_t t0)
{
    const attention_job *j = a->job;
    float *lse = a->amx.stats, *delta = lse + j->blocks * BLOCK;
    for (int64_t t = t0; t < t0 + BLOCK; t++) {
        vf sum = vf_all(0.0f);
        lse[t] = INFINITY;
        for (int64_t d = 0; d < j->D && t < j->T; d += VF_LANES) {
            int64_t k = krn_min(VF_LANES, j->D - d), at = attention_y_at(a, t) + d;
            sum += vf_get(ATOM_BF16, j->dy, at, k) * vf_get(ATOM_BF16, j->y, at, k);
        }
        if (t < j->T)
            lse[t] = j->lse[(a->b * j->H + a->h) * j->T + t];
        delta[t] = _mm512_reduce_add_ps(sum);
    }
}

/* P (masked) and dS of 16 columns of row r. */
KRN_INLINE void gradient_part(const attention_head *a, const tile_space *tile, int64_t t, int64_t r,
                              int64_t c, uint64_t seen, const float *factor, vf *p, vf *ds)
{
    const attention_job *j = a->job;
    const float *lse = a->amx.stats, *delta = lse + j->blocks * BLOCK;
    vf scale = vf_all(j->scale), mask = vf_load(factor + c);
    vf score = vf_load(tile->score + r * BLOCK + c);
    vf x = vf_exp(_mm512_fmsub_ps(score, scale, vf_all(lse[t])));
    x = _mm512_maskz_mov_ps((__mmask16)(seen >> c), x);
    *p = x * mask;
    *ds = x * (vf_load(tile->dp + r * BLOCK + c) * mask - vf_all(delta[t])) * scale;
    if (j->cap > 0)
        *ds *= vf_cap_slope(score, j->cap);
}

KRN_INLINE vi zip(vi low, vi high)
{
    return vi_or(low, vi_shl(high, 16));
}

/* Rows r and r + 1 of the tile at (t0, s0). */
KRN_INLINE void gradient_rows(const attention_head *a, tile_space *s, int64_t t0, int64_t s0,
                              int64_t r, bool cut, float factor[2][BLOCK])
{
    uint64_t seen[2] = {~(uint64_t)0, ~(uint64_t)0};
    for (int i = 0; i < 2 && cut; i++)
        seen[i] = attention_seen(a, t0 + r + i, s0);
    if (a->job->drop.on) {
        attention_mask_row(a, t0 + r, s0, factor[0]);
        attention_mask_row(a, t0 + r + 1, s0, factor[1]);
    }
    for (int64_t c = 0; c < BLOCK; c += VF_LANES) {
        vf p0, p1, ds0, ds1;
        gradient_part(a, s, t0 + r, r, c, seen[0], factor[0], &p0, &ds0);
        gradient_part(a, s, t0 + r + 1, r + 1, c, seen[1], factor[1], &p1, &ds1);
        vi d0 = vi_bf16(ds0), d1 = vi_bf16(ds1);
        vi_store(s->p + r * BLOCK + c * 2, zip(vi_bf16(p0), vi_bf16(p1)));
        vi_store(s->ds_pairs + r * BLOCK + c * 2, zip(d0, d1));
        vi_store_u16(s->ds + r * BLOCK + c, d0);
        vi_store_u16(s->ds + (r + 1) * BLOCK + c, d1);
    }
}

/* One tile: queries t0.., keys s0... It adds to dk and dv of `sum`, the first head of the group. */
static void add_tile(const attention_head *a, const attention_amx_space *sum, int64_t t0,
                     int64_t s0)
{
    const attention_amx_space *s = &a->amx;
    int64_t W = a->job->W;
    tile_space tile;
    float factor[2][BLOCK];
    for (int c = 0; c < BLOCK; c++)
        factor[0][c] = factor[1][c] = 1.0f;
    amx_mul(tile.score, BLOCK, false, s->query + t0 * W, W, s->keys_t + s0 * W, BLOCK, BLOCK, BLOCK,
            W);
    amx_mul(tile.dp, BLOCK, false, s->dy + t0 * W, W, s->values_t + s0 * W, BLOCK, BLOCK, BLOCK, W);
    for (int64_t r = 0; r < BLOCK && a->job->cap > 0; r++)
        attention_cap_row(a->job, tile.score + r * BLOCK);
    if (attention_cut(a, t0, s0)) {
        for (int64_t r = 0; r < BLOCK; r += 2)
            gradient_rows(a, &tile, t0, s0, r, true, factor);
    } else {
        for (int64_t r = 0; r < BLOCK; r += 2)
            gradient_rows(a, &tile, t0, s0, r, false, factor);
    }
    bool add = t0 > s0 || s->dv_t != sum->dv_t;
    amx_mul(sum->dv_t, BLOCK, add, s->dy_t + t0 * W, BLOCK, tile.p, BLOCK, W, BLOCK, BLOCK);
    amx_mul(sum->dk_t, BLOCK, add, s->query_t + t0 * W, BLOCK, tile.ds_pairs, BLOCK, W, BLOCK,
            BLOCK);
    amx_mul(s->out + t0 * W, W, s0 > attention_first_block(a, t0), tile.ds, BLOCK, s->keys + s0 * W,
            W, BLOCK, W, BLOCK);
}

static void put_row(const attention_head *a, int part, int64_t t, const float *d)
{
    const attention_job *j = a->job;
    int64_t at = attention_qkv_at(a, part, t);
    for (int64_t c = 0; c < j->D; c += VF_LANES) {
        int64_t k = krn_min(VF_LANES, j->D - c);
        vf x = vf_load(d + c);
        if (j->add)
            x += vf_get(ATOM_BF16, j->dqkv, at + c, k);
        vf_put(ATOM_BF16, j->dqkv, at + c, k, x);
    }
}

/* n rows of dk or dv from d_t [W][64]; `rows`: room for [64][W]. */
static void put_turned(const attention_head *a, int part, int64_t t0, int64_t n, const float *d_t,
                       float *rows)
{
    int64_t W = a->job->W;
    pack_from m = pack_at(ATOM_F32, d_t, 0, BLOCK, W, BLOCK);
    pack_turn(PACK_WORDS, (uint32_t *)(void *)rows, W, &m, W, BLOCK);
    for (int64_t t = 0; t < n; t++)
        put_row(a, part, t0 + t, rows + t * W);
}

static void prepare_head(const attention_head *a)
{
    for (int64_t t = 0; t < a->job->T; t += BLOCK) {
        prepare_block(a, t);
        prepare_stats(a, t);
    }
}

/* A key head and the query heads that share it: first .. first + group, over all samples. */
static void run_group(void *ctx, uint32_t i, uint32_t worker)
{
    (void)worker;
    const attention_job *j = ctx;
    int64_t first = (int64_t)i * j->group, end = first + j->group;
    attention_head a = attention_amx_head_at(j, first, 1);
    for (int64_t h = first; h < end; h++) {
        attention_head one = attention_amx_head_at(j, h, 1);
        prepare_head(&one);
    }
    for (int64_t s0 = 0; s0 < j->T; s0 += BLOCK) {
        int64_t n = krn_min(BLOCK, j->T - s0);
        amx_open(32);
        for (int64_t h = first; h < end; h++) {
            attention_head one = attention_amx_head_at(j, h, 1);
            for (int64_t t0 = s0; t0 < j->T && attention_first_block(&one, t0) <= s0; t0 += BLOCK)
                add_tile(&one, &a.amx, t0, s0);
        }
        amx_close();
        put_turned(&a, 1, s0, n, a.amx.dk_t, a.amx.turn);
        put_turned(&a, 2, s0, n, a.amx.dv_t, a.amx.turn);
    }
    for (int64_t h = first; h < end; h++) {
        attention_head one = attention_amx_head_at(j, h, 1);
        for (int64_t t = 0; t < j->T; t++)
            put_row(&one, 0, t, one.amx.out + t * j->W);
    }
}

void krn_cpu_attention_amx_bwd(krn_ctx *cx, const krn_args *args)
{
    attention_job j = attention_amx_job_open(cx, args, 1);
    j.y = args->buf[1];
    j.lse = args->buf[2];
    j.dy = args->buf[3];
    j.dqkv = args->buf[4];
    j.add = args->flags & KRN_ADD_D_IN0;
    if (j.dqkv)
        krn_each(cx->threads, j.B * j.H / j.group, run_group, &j);
}

#endif
