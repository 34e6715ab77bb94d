/*
 * Owns the element-wise ops: gelu, dropout, add, dropout_add. One idea: an op is a small function
 * of up to one vector of elements; run over spans it becomes a kernel, and the last, partial vector
 * takes the same path. Every stored element is rounded once. Backward draws the dropout mask again.
 */
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"
#include "kernels/cpu/isa/vecrng.h"

enum { SPAN = 16384, GROUP = 4 * VF_LANES };

typedef struct act_job {
    const krn_args *args;
    krn_drop drop;
} act_job;

/* k elements from i; word: their random words. */
typedef void (*act_body)(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word);

KRN_INLINE vf dropped(const act_job *job, vf x, vi word)
{
    if (!job->drop.on)
        return x;
    return vf_keep(x * vf_all(job->drop.scale), word, vi_all(job->drop.threshold));
}

KRN_INLINE void put_d_in(atom_dtype dtype, void *d, int64_t i, int64_t k, uint32_t add, vf x)
{
    if (add)
        x += vf_get(dtype, d, i, k);
    vf_put(dtype, d, i, k, x);
}

KRN_INLINE void gelu_fwd(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word)
{
    (void)word;
    void *const *buf = job->args->buf;
    vf_put(dtype, buf[1], i, k, vf_gelu(vf_get(dtype, buf[0], i, k)));
}

KRN_INLINE void gelu_bwd(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word)
{
    (void)word;
    void *const *buf = job->args->buf;
    if (!buf[3])
        return;
    vf slope = vf_gelu_slope(vf_get(dtype, buf[0], i, k));
    put_d_in(dtype, buf[3], i, k, job->args->flags & KRN_ADD_D_IN0,
             vf_get(dtype, buf[2], i, k) * slope);
}

KRN_INLINE void dropout_fwd(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word)
{
    void *const *buf = job->args->buf;
    vf_put(dtype, buf[1], i, k, dropped(job, vf_get(dtype, buf[0], i, k), word));
}

KRN_INLINE void dropout_bwd(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word)
{
    void *const *buf = job->args->buf;
    if (buf[3])
        put_d_in(dtype, buf[3], i, k, job->args->flags & KRN_ADD_D_IN0,
                 dropped(job, vf_get(dtype, buf[2], i, k), word));
}

KRN_INLINE void dropout_add_fwd(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word)
{
    void *const *buf = job->args->buf;
    vf x = dropped(job, vf_get(dtype, buf[0], i, k), word);
    vf_put(dtype, buf[2], i, k, x + vf_get(dtype, buf[1], i, k));
}

KRN_INLINE void dropout_add_bwd(atom_dtype dtype, const act_job *job, int64_t i, int64_t k, vi word)
{
    void *const *buf = job->args->buf;
    vf dy = vf_get(dtype, buf[3], i, k);
    if (buf[4])
        put_d_in(dtype, buf[4], i, k, job->args->flags & KRN_ADD_D_IN0, dropped(job, dy, word));
    if (buf[5])
        put_d_in(dtype, buf[5], i, k, job->args->flags & KRN_ADD_D_IN1, dy);
}

/* One span; body and dtype are constants after inlining. */
KRN_INLINE void run_span(atom_dtype dtype, const act_job *shared, uint32_t index, act_body body)
{
    /* copies of our own, so that the compiler knows that stores do not change them */
    const krn_args args = *shared->args;
    const act_job own = {.args = &args, .drop = shared->drop}, *job = &own;
    int64_t i = (int64_t)index * SPAN, end = krn_min(i + SPAN, job->args->dim[0]);
    vi words[4] = {vi_all(0), vi_all(0), vi_all(0), vi_all(0)};
    for (; i + GROUP <= end; i += GROUP) {
        if (job->drop.on)
            krn_rng_words(job->drop.key, (uint64_t)i / 4, words);
        for (int q = 0; q < 4; q++)
            body(dtype, job, i + q * VF_LANES, VF_LANES, words[q]);
    }
    if (job->drop.on && i < end)
        krn_rng_words(job->drop.key, (uint64_t)i / 4, words);
    for (int q = 0; i < end; q++, i += VF_LANES)
        body(dtype, job, i, krn_min(VF_LANES, end - i), words[q]);
}

static void run(krn_ctx *cx, const krn_args *args, int drop, atom_task task)
{
    act_job job = {.args = args, .drop = krn_drop_make(drop ? cx : NULL, args)};
    krn_each(cx->threads, krn_ceil_div(args->dim[0], SPAN), task, &job);
}

#define ENTRY(name, body, drop, dtype, suffix)                                                     \
    KRN_TASK_AS(name##_span_##suffix, run_span(dtype, ctx, index, body))                           \
    void KRN_ISA(krn_cpu_##name##_##suffix)(krn_ctx * cx, const krn_args *args)                    \
    {                                                                                              \
        run(cx, args, drop, name##_span_##suffix);                                                 \
    }
#define ENTRIES(name, body, drop)                                                                  \
    ENTRY(name, body, drop, ATOM_F32, f32)                                                         \
    ENTRY(name, body, drop, ATOM_BF16, bf16)

ENTRIES(gelu_fwd, gelu_fwd, 0)
ENTRIES(gelu_bwd, gelu_bwd, 0)
ENTRIES(dropout_fwd, dropout_fwd, 1)
ENTRIES(dropout_bwd, dropout_bwd, 1)
ENTRIES(add_fwd, dropout_add_fwd, 0) /* dropout_add without its dropout */
ENTRIES(add_bwd, dropout_add_bwd, 0)
ENTRIES(dropout_add_fwd, dropout_add_fwd, 1)
ENTRIES(dropout_add_bwd, dropout_add_bwd, 1)
