/*
 * Owns the specification of the decode kernels (kernels/decode.h). One idea: the same sums as ref's
 * linear and attention, one row at a time, in f64. Refuses to be fast.
 */
#include "kernels/decode.h"

#include "kernels/ref/ref.h"

#include <math.h>

static void row_element(const ref_job *job, int64_t o, atom_dtype out, bool gelu)
{
    void *const *buf = job->args->buf;
    int64_t I = job->args->dim[1];
    double sum = 0;
    for (int64_t i = 0; i < I; i++)
        sum += ref_get(job->act, buf[0], i) * ref_get(job->act, buf[1], o * I + i);
    if (buf[2])
        sum += ref_get(job->act, buf[2], o);
    ref_put(out, buf[3], o, ref_capped(sum, job->args->cap));
    if (!gelu)
        return;
    double u = ref_get(job->act, buf[3], o);
    if (buf[4])
        ref_put(job->act, buf[4], o, u);
    ref_put(job->act, buf[3], o, ref_gelu(u));
}

static void linear_element(const ref_job *job, int64_t o)
{
    row_element(job, o, job->act, false);
}
static void linear_gelu_element(const ref_job *job, int64_t o)
{
    row_element(job, o, job->act, true);
}
static void logit_element(const ref_job *job, int64_t o)
{
    row_element(job, o, ATOM_F32, false);
}

static void append(atom_dtype act, const krn_attend *a)
{
    for (int64_t n = 0; n < a->N; n++) {
        for (int64_t h = 0; h < krn_attend_keys(a); h++) {
            int64_t k = krn_attend_qkv_at(a, 1, n, h), v = krn_attend_qkv_at(a, 2, n, h);
            int64_t s = a->past + n;
            for (int64_t d = 0; d < a->D; d++) {
                ref_put(act, a->keys, krn_key_at(a, h, s, d), ref_get(act, a->qkv, k + d));
                ref_put(act, a->values, (h * a->room + s) * a->D + d, ref_get(act, a->qkv, v + d));
            }
        }
    }
}

static double score_of(atom_dtype act, const krn_attend *a, int64_t n, int64_t h, int64_t s)
{
    int64_t q = krn_attend_qkv_at(a, 0, n, h), k = h / (a->H / krn_attend_keys(a));
    double sum = 0;
    for (int64_t d = 0; d < a->D; d++)
        sum += ref_get(act, a->qkv, q + d) * ref_get(act, a->keys, krn_key_at(a, k, s, d));
    return ref_capped(sum * krn_attention_scale(a->scale, a->D), a->cap);
}

static void look(atom_dtype act, const krn_attend *a, int64_t n, int64_t h, double *p)
{
    int64_t keys = a->past + n + 1, first = krn_attend_first(a, n),
            k = h / (a->H / krn_attend_keys(a));
    for (int64_t s = first; s < keys; s++)
        p[s] = score_of(act, a, n, h, s);
    double lse = ref_log_sum_exp(p + first, keys - first);
    for (int64_t d = 0; d < a->D; d++) {
        double sum = 0;
        for (int64_t s = first; s < keys; s++)
            sum += exp(p[s] - lse) * ref_get(act, a->values, (k * a->room + s) * a->D + d);
        ref_put(act, a->y, (n * a->H + h) * a->D + d, sum);
    }
}

static void attend(krn_ctx *cx, const krn_attend *a, atom_dtype act)
{
    append(act, a);
    for (int64_t n = 0; n < a->N; n++) {
        for (int64_t h = 0; h < a->H; h++)
            look(act, a, n, h, cx->workspace);
    }
}

static uint64_t row_workspace(int64_t I)
{
    (void)I;
    return 0;
}

static uint64_t attend_workspace(const atom_threads *threads, int64_t positions, int64_t D)
{
    (void)threads;
    (void)D;
    return (uint64_t)positions * sizeof(double);
}

#define ENTRIES(dtype, suffix)                                                                     \
    static void linear_##suffix(krn_ctx *cx, const krn_args *args)                                 \
    {                                                                                              \
        ref_parallel(cx, args, dtype, args->dim[2], linear_element);                               \
    }                                                                                              \
    static void linear_gelu_##suffix(krn_ctx *cx, const krn_args *args)                            \
    {                                                                                              \
        ref_parallel(cx, args, dtype, args->dim[2], linear_gelu_element);                          \
    }                                                                                              \
    static void logits_##suffix(krn_ctx *cx, const krn_args *args)                                 \
    {                                                                                              \
        ref_parallel(cx, args, dtype, args->dim[2], logit_element);                                \
    }                                                                                              \
    static void attend_##suffix(krn_ctx *cx, const krn_attend *args)                               \
    {                                                                                              \
        attend(cx, args, dtype);                                                                   \
    }                                                                                              \
    static const krn_decode_table table_##suffix = {                                               \
        "ref",           dtype,           linear_##suffix, linear_gelu_##suffix,                   \
        logits_##suffix, attend_##suffix, row_workspace,   attend_workspace};
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)
#undef ENTRIES

const krn_decode_table *krn_ref_decode_table(atom_dtype dtype)
{
    return dtype == ATOM_F32 ? &table_f32 : dtype == ATOM_BF16 ? &table_bf16 : NULL;
}
