/*
 * embed: x[b,t] = wte[token[b,t]] + wpe[t], one rounding; without wpe, wte alone. Backward: the
 * gradient of a wte row is the sum over all places with that token, in ascending order; done at the
 * token's first place, so that every row has one writer. Token ids must be in range: the reader
 * of the data refuses others.
 */
#include "kernels/ref/ref.h"

static int64_t token_at(const ref_job *job, int64_t n)
{
    int64_t token = ((const int32_t *)job->args->buf[0])[n];
    ATOM_ASSERT(token >= 0 && token < job->args->dim[3]);
    return token;
}

static void embed_row(const ref_job *job, int64_t n)
{
    const krn_args *args = job->args;
    int64_t T = args->dim[1], C = args->dim[2], token = token_at(job, n);
    for (int64_t c = 0; c < C; c++)
        ref_put(job->act, args->buf[3], n * C + c,
                ref_get(job->act, args->buf[1], token * C + c) +
                    (args->buf[2]
                         ? ref_get(job->act, args->buf[2], krn_place(job->cx->step, T, n) * C + c)
                         : 0.0));
}

void ref_embed_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0] * args->dim[1], embed_row);
}

static void d_token_row(const ref_job *job, int64_t n)
{
    const krn_args *args = job->args;
    int64_t N = args->dim[0] * args->dim[1], C = args->dim[2], token = token_at(job, n);
    for (int64_t before = 0; before < n; before++) {
        if (token_at(job, before) == token)
            return;
    }
    for (int64_t c0 = 0; c0 < C; c0 += REF_BLOCK) {
        int64_t width = C - c0 < REF_BLOCK ? C - c0 : REF_BLOCK;
        double sum[REF_BLOCK] = {0};
        for (int64_t at = n; at < N; at++) {
            if (token_at(job, at) != token)
                continue;
            for (int64_t c = 0; c < width; c++)
                sum[c] += ref_get(job->act, args->buf[4], at * C + c0 + c);
        }
        for (int64_t c = 0; c < width; c++)
            ref_put_or_add(job->stat, args->buf[6], token * C + c0 + c, sum[c], true);
    }
}

static void d_position_row(const ref_job *job, int64_t t)
{
    const krn_args *args = job->args;
    int64_t B = args->dim[0], T = args->dim[1], C = args->dim[2];
    for (int64_t c = 0; c < C; c++) {
        double sum = 0.0;
        for (int64_t n = 0; n < B * T; n++) {
            if (krn_place(job->cx->step, T, n) == t)
                sum += ref_get(job->act, args->buf[4], n * C + c);
        }
        ref_put_or_add(job->stat, args->buf[7], t * C + c, sum, true);
    }
}

void ref_embed_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[6])
        ref_parallel(cx, args, act, args->dim[0] * args->dim[1], d_token_row);
    if (args->buf[7])
        ref_parallel(cx, args, act, args->dim[1], d_position_row);
}
