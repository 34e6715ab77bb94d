/*
 * Owns rmsnorm and headnorm. One idea: both are the same work on rows that stay in the first-level
 * cache: a token's channels, or one head of q or k of a packed token, whose v passes. Sums run in
 * four vectors in turn, folded in a fixed order; gradients of weights are summed per fixed block of
 * tokens, and the blocks are combined in ascending order.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

#include <math.h>

enum { FWD_TOKENS = 16, COLUMNS = 64 };

/* Sizes and places of either op. rmsnorm: one head of all channels per token, and no values. */
typedef struct rms_job {
    const krn_args *args;
    int64_t N, C, q_heads, heads, token; /* heads that are normed; elements of a token */
    const void *x, *w[2];
    void *y, *dx;
    const void *dy;
    float *rstd, *dw[2];
    float eps, lift;
    bool add;
    float *partial; /* [blocks][weights][C] */
    int weights;
    int64_t block_rows, blocks;
} rms_job;

static rms_job rmsnorm_job(const krn_args *args, int backward)
{
    void *const *b = args->buf;
    int64_t C = args->dim[1];
    rms_job j = {.args = args, .N = args->dim[0], .C = C, .q_heads = 1, .heads = 1, .token = C};
    j.x = b[0];
    j.w[0] = b[1];
    j.y = b[2];
    j.rstd = b[3];
    j.weights = 1;
    if (backward) {
        j.dy = b[4];
        j.dx = b[5];
        j.dw[0] = b[6];
    }
    return j;
}

static rms_job headnorm_job(const krn_args *args, int backward)
{
    void *const *b = args->buf;
    int64_t H = args->dim[1], D = args->dim[2], K = krn_kv_heads(args->dim, 1, 3);
    rms_job j = {.args = args,
                 .N = args->dim[0],
                 .C = D,
                 .q_heads = H,
                 .heads = H + K,
                 .token = (H + 2 * K) * D};
    j.x = b[0];
    j.w[0] = b[1];
    j.w[1] = b[2];
    j.y = b[3];
    j.rstd = b[4];
    j.weights = 2;
    if (backward) {
        j.dy = b[5];
        j.dx = b[6];
        j.dw[0] = b[7];
        j.dw[1] = b[8];
    }
    return j;
}

KRN_INLINE float mean_square(atom_dtype dtype, const void *x, int64_t at, int64_t C)
{
    vf sum[4];
    int64_t c = 0;
    for (int q = 0; q < 4; q++)
        sum[q] = vf_all(0.0f);
    for (; c + 4 * VF_LANES <= C; c += 4 * VF_LANES) {
        for (int q = 0; q < 4; q++) {
            vf v = vf_load_act(dtype, x, at + c + q * VF_LANES);
            sum[q] = vf_fma(v, v, sum[q]);
        }
    }
    for (; c < C; c += VF_LANES) {
        vf v = vf_get(dtype, x, at + c, krn_min(VF_LANES, C - c));
        sum[0] = vf_fma(v, v, sum[0]);
    }
    return vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)C;
}

/* What channels are multiplied by. */
KRN_INLINE vf weights_of(atom_dtype dtype, const rms_job *j, const void *w, int64_t c, int64_t k)
{
    return vf_get(dtype, w, c, k) + vf_all(j->lift);
}

KRN_INLINE void fwd_part(atom_dtype dtype, const rms_job *j, const void *w, int64_t at, int64_t c,
                         int64_t k, vf rstd)
{
    vf x = vf_get(dtype, j->x, at + c, k);
    vf_put(dtype, j->y, at + c, k, x * rstd * weights_of(dtype, j, w, c, k));
}

KRN_INLINE void fwd_head(atom_dtype dtype, const rms_job *j, int64_t n, int64_t h)
{
    int64_t at = n * j->token + h * j->C, whole = j->C - j->C % VF_LANES;
    const void *w = j->w[h >= j->q_heads];
    float rstd = 1.0f / sqrtf(mean_square(dtype, j->x, at, j->C) + j->eps);
    for (int64_t c = 0; c < whole; c += VF_LANES)
        fwd_part(dtype, j, w, at, c, VF_LANES, vf_all(rstd));
    if (whole < j->C)
        fwd_part(dtype, j, w, at, whole, j->C - whole, vf_all(rstd));
    j->rstd[n * j->heads + h] = rstd;
}

/* What is no normed head of token n: from -> to. */
KRN_INLINE void pass_rest(atom_dtype dtype, const rms_job *j, int64_t n, const void *from, void *to,
                          bool add)
{
    for (int64_t i = j->heads * j->C; i < j->token; i += VF_LANES) {
        int64_t k = krn_min(VF_LANES, j->token - i), at = n * j->token + i;
        vf x = vf_get(dtype, from, at, k);
        if (add)
            x += vf_get(dtype, to, at, k);
        vf_put(dtype, to, at, k, x);
    }
}

KRN_INLINE void fwd_tokens(atom_dtype dtype, const rms_job *shared, uint32_t index)
{
    const rms_job own = *shared;
    int64_t n = (int64_t)index * FWD_TOKENS, end = krn_min(n + FWD_TOKENS, own.N);
    for (; n < end; n++) {
        for (int64_t h = 0; h < own.heads; h++)
            fwd_head(dtype, &own, n, h);
        pass_rest(dtype, &own, n, own.x, own.y, false);
    }
}

/* One vector: the sum of dy w z, and the head's part of dw. */
KRN_INLINE vf bwd_sum(atom_dtype dtype, const rms_job *j, const void *w, float *dw, int64_t at,
                      int64_t c, int64_t k, vf rstd, vf sum)
{
    vf dy = vf_get(dtype, j->dy, at + c, k), z = vf_get(dtype, j->x, at + c, k) * rstd;
    vf_put(ATOM_F32, dw, c, k, vf_fma(dy, z, vf_get(ATOM_F32, dw, c, k)));
    return vf_fma(dy * weights_of(dtype, j, w, c, k), z, sum);
}

KRN_INLINE void bwd_dx(atom_dtype dtype, const rms_job *j, const void *w, int64_t at, int64_t c,
                       int64_t k, vf rstd, vf mean)
{
    vf z = vf_get(dtype, j->x, at + c, k) * rstd;
    vf d = vf_get(dtype, j->dy, at + c, k) * weights_of(dtype, j, w, c, k);
    vf dx = rstd * (d - z * mean);
    if (j->add)
        dx += vf_get(dtype, j->dx, at + c, k);
    vf_put(dtype, j->dx, at + c, k, dx);
}

KRN_INLINE void bwd_head(atom_dtype dtype, const rms_job *j, int64_t n, int64_t h, float *partial)
{
    int which = h >= j->q_heads;
    int64_t at = n * j->token + h * j->C, c = 0, whole = j->C - j->C % VF_LANES;
    const void *w = j->w[which];
    float *dw = partial + which * j->C;
    vf rstd = vf_all(j->rstd[n * j->heads + h]), sum[4];
    for (int q = 0; q < 4; q++)
        sum[q] = vf_all(0.0f);
    for (; c + 4 * VF_LANES <= j->C; c += 4 * VF_LANES) {
        for (int q = 0; q < 4; q++)
            sum[q] = bwd_sum(dtype, j, w, dw, at, c + q * VF_LANES, VF_LANES, rstd, sum[q]);
    }
    for (; c < j->C; c += VF_LANES)
        sum[0] = bwd_sum(dtype, j, w, dw, at, c, krn_min(VF_LANES, j->C - c), rstd, sum[0]);
    if (!j->dx)
        return;
    vf mean = vf_all(vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)j->C);
    for (c = 0; c < whole; c += VF_LANES)
        bwd_dx(dtype, j, w, at, c, VF_LANES, rstd, mean);
    if (c < j->C)
        bwd_dx(dtype, j, w, at, c, j->C - c, rstd, mean);
}

KRN_INLINE void bwd_block(atom_dtype dtype, const rms_job *shared, uint32_t index)
{
    const rms_job own = *shared;
    int64_t n = (int64_t)index * own.block_rows, end = krn_min(n + own.block_rows, own.N);
    float *partial = own.partial + (int64_t)index * own.weights * own.C;
    memset(partial, 0, (size_t)(own.weights * own.C) * sizeof *partial);
    for (; n < end; n++) {
        for (int64_t h = 0; h < own.heads; h++)
            bwd_head(dtype, &own, n, h, partial);
        if (own.dx)
            pass_rest(dtype, &own, n, own.dy, own.dx, own.add);
    }
}

/* Adds the blocks' sums, in ascending order, to COLUMNS columns of the weights' gradients. */
static void combine(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const rms_job *j = ctx;
    int64_t first = (int64_t)index * COLUMNS, end = krn_min(first + COLUMNS, j->C);
    for (int which = 0; which < j->weights; which++) {
        for (int64_t i = first; j->dw[which] && i < end; i++) {
            float sum = 0;
            for (int64_t b = 0; b < j->blocks; b++)
                sum += j->partial[(b * j->weights + which) * j->C + i];
            j->dw[which][i] += sum;
        }
    }
}

static void run(krn_ctx *cx, const krn_args *args, rms_job j, int backward, atom_task task)
{
    j.eps = args->eps;
    j.lift = args->lift;
    j.add = args->flags & KRN_ADD_D_IN0;
    if (!backward) {
        krn_each(cx->threads, krn_ceil_div(j.N, FWD_TOKENS), task, &j);
        return;
    }
    j.partial = cx->workspace;
    j.block_rows = krn_norm_block_rows(j.N);
    j.blocks = krn_ceil_div(j.N, j.block_rows);
    krn_each(cx->threads, j.blocks, task, &j);
    krn_each(cx->threads, krn_ceil_div(j.C, COLUMNS), combine, &j);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK(fwd_tokens, dtype, suffix)                                                            \
    KRN_TASK(bwd_block, dtype, suffix)                                                             \
    void KRN_ISA(krn_cpu_rmsnorm_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                 \
    {                                                                                              \
        run(cx, args, rmsnorm_job(args, 0), 0, fwd_tokens_##suffix);                               \
    }                                                                                              \
    void KRN_ISA(krn_cpu_rmsnorm_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                 \
    {                                                                                              \
        run(cx, args, rmsnorm_job(args, 1), 1, bwd_block_##suffix);                                \
    }                                                                                              \
    void KRN_ISA(krn_cpu_headnorm_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                \
    {                                                                                              \
        run(cx, args, headnorm_job(args, 0), 0, fwd_tokens_##suffix);                              \
    }                                                                                              \
    void KRN_ISA(krn_cpu_headnorm_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                \
    {                                                                                              \
        run(cx, args, headnorm_job(args, 1), 1, bwd_block_##suffix);                               \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
