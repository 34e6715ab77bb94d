/*
 * Owns the embedding. One idea: backward gives each thread a range of channels, which then walks
 * all tokens in order; every accumulator has one writer and one order, without sorting tokens.
 * Refuses token ids out of range (our bug by then: the data reader refuses them first).
 */
#include "atom/base/assert.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

enum { ROWS = 16, COLUMNS = 64 };

typedef struct embed_job {
    const krn_args *args;
    const krn_step *step;
} embed_job;

static int64_t token_at(const krn_args *args, int64_t n)
{
    int64_t token = ((const int32_t *)args->buf[0])[n];
    ATOM_ASSERT(token >= 0 && token < args->dim[3]);
    return token;
}

KRN_INLINE void fwd_rows(atom_dtype dtype, const embed_job *j, uint32_t index)
{
    const krn_args *args = j->args;
    int64_t T = args->dim[1], C = args->dim[2], n = (int64_t)index * ROWS;
    int64_t end = krn_min(n + ROWS, args->dim[0] * T), whole = C - C % VF_LANES;
    for (; n < end; n++) {
        int64_t row = token_at(args, n) * C, place = krn_place(j->step, T, n) * C, c = 0;
        if (!args->buf[2]) { /* no positions: the row as it is */
            int64_t each = dtype == ATOM_F32 ? 4 : 2;
            memcpy((char *)args->buf[3] + n * C * each, (const char *)args->buf[1] + row * each,
                   (size_t)(C * each));
            continue;
        }
        for (; c < whole; c += VF_LANES)
            vf_store_act(dtype, args->buf[3], n * C + c,
                         vf_load_act(dtype, args->buf[1], row + c) +
                             vf_load_act(dtype, args->buf[2], place + c));
        if (c < C)
            vf_store_act_n(dtype, args->buf[3], n * C + c, C - c,
                           vf_load_act_n(dtype, args->buf[1], row + c, C - c) +
                               vf_load_act_n(dtype, args->buf[2], place + c, C - c));
    }
}

/* sum[0..k) += dx[i..i+k) */
KRN_INLINE void add_row(atom_dtype dtype, float *sum, const void *dx, int64_t i, int64_t k)
{
    int64_t c = 0;
    for (; c + VF_LANES <= k; c += VF_LANES)
        vf_store(sum + c, vf_load(sum + c) + vf_load_act(dtype, dx, i + c));
    if (c < k)
        vf_store_act_n(ATOM_F32, sum, c, k - c,
                       vf_load_act_n(ATOM_F32, sum, c, k - c) +
                           vf_load_act_n(dtype, dx, i + c, k - c));
}

KRN_INLINE void bwd_columns(atom_dtype dtype, const embed_job *j, uint32_t index)
{
    const krn_args *args = j->args;
    int64_t B = args->dim[0], T = args->dim[1], C = args->dim[2];
    int64_t c = (int64_t)index * COLUMNS, k = krn_min(COLUMNS, C - c);
    float *d_token = args->buf[6], *d_place = args->buf[7];
    for (int64_t n = 0; n < B * T; n++) {
        if (d_token)
            add_row(dtype, d_token + token_at(args, n) * C + c, args->buf[4], n * C + c, k);
        if (d_place)
            add_row(dtype, d_place + krn_place(j->step, T, n) * C + c, args->buf[4], n * C + c, k);
    }
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK(fwd_rows, dtype, suffix)                                                              \
    KRN_TASK(bwd_columns, dtype, suffix)                                                           \
    void KRN_ISA(krn_cpu_embed_fwd_##suffix)(krn_ctx * cx, const krn_args *args)                   \
    {                                                                                              \
        embed_job j = {args, cx->step};                                                            \
        krn_each(cx->threads, krn_ceil_div(args->dim[0] * args->dim[1], ROWS), fwd_rows_##suffix,  \
                 &j);                                                                              \
    }                                                                                              \
    void KRN_ISA(krn_cpu_embed_bwd_##suffix)(krn_ctx * cx, const krn_args *args)                   \
    {                                                                                              \
        embed_job j = {args, cx->step};                                                            \
        krn_each(cx->threads, krn_ceil_div(args->dim[2], COLUMNS), bwd_columns_##suffix, &j);      \
    }
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
