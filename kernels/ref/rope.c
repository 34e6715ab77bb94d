/*
 * rope: turns channels i and i + R/2 of every head of q and k by place * frequency(i) (ops.h); v
 * passes, and so do channels from R on. y_i = x_i cos - x_{i+R/2} sin, y_{i+R/2} = x_{i+R/2} cos + x_i
 * sin, both by the gain. Backward turns back, by the gain again.
 * Angle, sine and cosine are f64; only the frequency is f32, as the files' own code has it.
 */
#include "kernels/ref/ref.h"

#include <math.h>

static void turn_head(const ref_job *job, int64_t at, int64_t place, int from, int to, double sign)
{
    const krn_args *args = job->args;
    int64_t D = args->dim[3], R = atom_rope_width(&args->rope, D), half = R / 2;
    double gain = atom_rope_gain(&args->rope);
    bool add = sign < 0 && args->flags & KRN_ADD_D_IN0;
    for (int64_t i = 0; i < half; i++) {
        double angle = (double)place * (double)atom_rope_frequency(&args->rope, i, D);
        double c = gain * cos(angle), s = gain * sign * sin(angle);
        double a = ref_get(job->act, args->buf[from], at + i);
        double b = ref_get(job->act, args->buf[from], at + half + i);
        ref_put_or_add(job->act, args->buf[to], at + i, a * c - b * s, add);
        ref_put_or_add(job->act, args->buf[to], at + half + i, b * c + a * s, add);
    }
    for (int64_t i = at + R; i < at + D; i++)
        ref_put_or_add(job->act, args->buf[to], i, ref_get(job->act, args->buf[from], i), add);
}

static void turn_row(const ref_job *job, int64_t n, int from, int to, double sign)
{
    const krn_args *args = job->args;
    int64_t T = args->dim[1], H = args->dim[2], D = args->dim[3];
    int64_t K = krn_kv_heads(args->dim, 2, 4), at = n * (H + 2 * K) * D;
    bool add = sign < 0 && args->flags & KRN_ADD_D_IN0;
    for (int64_t h = 0; h < H + K; h++)
        turn_head(job, at + h * D, args->dim[5] + krn_place(job->cx->step, T, n), from, to, sign);
    for (int64_t i = at + (H + K) * D; i < at + (H + 2 * K) * D; i++)
        ref_put_or_add(job->act, args->buf[to], i, ref_get(job->act, args->buf[from], i), add);
}

static void fwd_row(const ref_job *job, int64_t n)
{
    turn_row(job, n, 0, 1, 1.0);
}
static void bwd_row(const ref_job *job, int64_t n)
{
    turn_row(job, n, 2, 3, -1.0);
}

void ref_rope_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    ref_parallel(cx, args, act, args->dim[0] * args->dim[1], fwd_row);
}

void ref_rope_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->buf[3])
        ref_parallel(cx, args, act, args->dim[0] * args->dim[1], bwd_row);
}
