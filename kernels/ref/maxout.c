/*
 * maxout (Goodfellow et al. 2013): the largest of each K values that follow each other. Its gradient
 * goes to the first of those that are equal; a value that is not a number wins, the first of them.
 */
#include "kernels/ref/ref.h"

/* Index within x of what output e of all N F takes. */
static int64_t winner(const ref_job *job, int64_t e)
{
    const void *x = job->args->buf[0];
    int64_t K = job->args->dim[2], best = e * K;
    for (int64_t i = e * K + 1; i < (e + 1) * K; i++) {
        double so_far = ref_get(job->act, x, best);
        if (so_far == so_far && !(ref_get(job->act, x, i) <= so_far))
            best = i;
    }
    return best;
}

static void maxout_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t F = job->args->dim[1];
    for (int64_t e = n * F; e < (n + 1) * F; e++)
        ref_put(job->act, buf[1], e, ref_get(job->act, buf[0], winner(job, e)));
}

void ref_maxout_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0], maxout_row);
}

static void maxout_d_row(const ref_job *job, int64_t n)
{
    void *const *buf = job->args->buf;
    int64_t F = job->args->dim[1], K = job->args->dim[2];
    for (int64_t e = n * F; e < (n + 1) * F; e++) {
        int64_t best = winner(job, e);
        for (int64_t i = e * K; i < (e + 1) * K; i++)
            ref_put_or_add(job->act, buf[3], i, i == best ? ref_get(job->act, buf[2], e) : 0,
                           job->args->flags & KRN_ADD_D_IN0);
    }
}

void ref_maxout_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, args->dim[0], maxout_d_row);
}
