/*
 * Owns cross_entropy: loss and gradient of logits that exist (the unfused graph). One idea: a row
 * is one task and stays in cache for its two or three passes. Refuses nothing; the classifier is
 * the fast way (classifier.c).
 */
#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

#include <math.h>
#include <stdbool.h>

typedef struct loss_job {
    int64_t V;
    const void *logits;
    const int32_t *targets;
    float *loss;
    void *d;
    bool add;
    float scale, cap;
} loss_job;

KRN_INLINE vf get_logits(atom_dtype dtype, const loss_job *j, int64_t at, int64_t k)
{
    vf x = vf_get(dtype, j->logits, at, k);
    return j->cap > 0 ? vf_capped(x, j->cap) : x;
}

/* The same of one number: the bits that it has beside others. */
KRN_INLINE float cap_one(const loss_job *j, float x)
{
    float lanes[VF_LANES];
    if (j->cap == 0)
        return x;
    vf_store(lanes, vf_capped(vf_all(x), j->cap));
    return lanes[0];
}

/* Whole vectors of the row; what is left of it is read apart. */
KRN_INLINE float row_top(atom_dtype dtype, const loss_job *j, int64_t at)
{
    float top = -INFINITY;
    vf tops = vf_all(top);
    int64_t v = 0;
    for (; v + VF_LANES <= j->V; v += VF_LANES)
        tops = vf_max(tops, vf_load_act(dtype, j->logits, at + v));
    for (; v < j->V; v++) {
        float x = dtype == ATOM_F32 ? ((const float *)j->logits)[at + v]
                                    : atom_bf16_to_f32(((const atom_bf16 *)j->logits)[at + v]);
        top = x > top ? x : top;
    }
    float most = vf_top(tops);
    return cap_one(j, most > top ? most : top); /* a cap leaves what is on top there */
}

KRN_INLINE double row_sum(atom_dtype dtype, const loss_job *j, int64_t at, float top)
{
    vf sum = vf_all(0.0f);
    for (int64_t v = 0; v < j->V; v += VF_LANES) {
        int64_t k = krn_min(VF_LANES, j->V - v);
        vf e = vf_exp(get_logits(dtype, j, at + v, k) - vf_all(top));
        if (k < VF_LANES) {
            float lanes[VF_LANES];
            vf_store(lanes, e);
            for (int64_t i = k; i < VF_LANES; i++)
                lanes[i] = 0.0f;
            e = vf_load(lanes);
        }
        sum += e;
    }
    return (double)vf_sum(sum);
}

KRN_INLINE void put_d(atom_dtype dtype, const loss_job *j, int64_t at, int64_t k, vf d)
{
    if (j->add)
        d += vf_get(dtype, j->d, at, k);
    vf_put(dtype, j->d, at, k, d);
}

KRN_INLINE float get_one(atom_dtype dtype, const void *x, int64_t at)
{
    return dtype == ATOM_F32 ? ((const float *)x)[at]
                             : atom_bf16_to_f32(((const atom_bf16 *)x)[at]);
}

KRN_INLINE void row_gradient(atom_dtype dtype, const loss_job *j, int64_t at, int64_t target,
                             double lse)
{
    float before = j->add ? get_one(dtype, j->d, at + (target < 0 ? 0 : target)) : 0.0f;
    for (int64_t v = 0; v < j->V; v += VF_LANES) {
        int64_t k = krn_min(VF_LANES, j->V - v);
        vf p = vf_all(0.0f), x = get_logits(dtype, j, at + v, k);
        if (target >= 0)
            p = vf_exp(x - vf_all((float)lse));
        if (j->cap > 0)
            p *= vf_cap_slope(x, j->cap);
        put_d(dtype, j, at + v, k, p * vf_all(j->scale));
    }
    if (target < 0)
        return;
    double x = (double)cap_one(j, get_one(dtype, j->logits, at + target)), p = exp(x - lse);
    double share = j->cap > 0 ? x / (double)j->cap : 0;
    float d = (float)((p - 1.0) * (1 - share * share) * (double)j->scale) + before;
    if (dtype == ATOM_F32)
        ((float *)j->d)[at + target] = d;
    else
        ((atom_bf16 *)j->d)[at + target] = atom_f32_to_bf16(d);
}

KRN_INLINE void loss_row(atom_dtype dtype, const loss_job *j, uint32_t n)
{
    int64_t at = (int64_t)n * j->V, target = j->targets[n];
    float top = row_top(dtype, j, at);
    double lse = (double)top + log(row_sum(dtype, j, at, top));
    float hit = target < 0 ? 0 : cap_one(j, get_one(dtype, j->logits, at + target));
    j->loss[n] = target < 0 ? 0.0f : (float)(lse - (double)hit);
    if (j->d)
        row_gradient(dtype, j, at, target, lse);
}

KRN_TASK(loss_row, ATOM_F32, f32)
KRN_TASK(loss_row, ATOM_BF16, bf16)

static void run(krn_ctx *cx, const krn_args *args, atom_task task, bool backward)
{
    loss_job j = {.V = args->dim[1],
                  .logits = args->buf[0],
                  .targets = args->buf[1],
                  .loss = args->buf[2],
                  .cap = args->cap};
    if (backward) {
        j.d = args->buf[4];
        j.add = args->flags & KRN_ADD_D_IN0;
        j.scale = cx->step->loss_scale;
    }
    krn_each(cx->threads, args->dim[0], task, &j);
}

void KRN_ISA(krn_cpu_cross_entropy_fwd_f32)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, loss_row_f32, false);
}
void KRN_ISA(krn_cpu_cross_entropy_fwd_bf16)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, loss_row_bf16, false);
}
void KRN_ISA(krn_cpu_cross_entropy_bwd_f32)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, loss_row_f32, true);
}
void KRN_ISA(krn_cpu_cross_entropy_bwd_bf16)(krn_ctx *cx, const krn_args *args)
{
    run(cx, args, loss_row_bf16, true);
}
