/*
 * Owns what the ref kernels share: loading blocks, splitting rows, the dropout mask, gelu. One
 * idea: a row of a kernel is a plain function of (job, row number), so any thread may run it.
 * Refuses to know ops.
 */
#include "kernels/ref/ref.h"

#include <math.h>

atom_bf16 ref_f64_to_bf16(double value)
{
    float f = (float)value;
    if (isfinite(f) && (double)f != value) {
        /* Round to odd: toward zero, with the last bit set. Then the second rounding cannot tie. */
        uint32_t bits;
        if (fabs((double)f) > fabs(value))
            f = nextafterf(f, 0.0f);
        memcpy(&bits, &f, 4);
        bits |= 1u;
        memcpy(&f, &bits, 4);
    }
    return atom_f32_to_bf16(f);
}

static void run_rows(void *ctx, uint32_t index, uint32_t worker)
{
    (void)worker;
    const ref_job *job = ctx;
    int64_t first = (int64_t)index * job->task_rows;
    for (int64_t i = first; i < first + job->task_rows && i < job->rows; i++)
        job->row(job, i);
}

void ref_parallel(krn_ctx *cx, const krn_args *args, atom_dtype act, int64_t rows,
                  void (*row)(const ref_job *job, int64_t i))
{
    ref_job job = {.cx = cx,
                   .args = args,
                   .act = act,
                   .stat = ref_stat_dtype(act),
                   .row = row,
                   .rows = rows,
                   .task_rows = rows < 64 ? 1 : 8};
    uint32_t tasks = (uint32_t)((rows + job.task_rows - 1) / job.task_rows);
    if (cx->threads) {
        atom_parallel(cx->threads, tasks, run_rows, &job);
        return;
    }
    for (uint32_t i = 0; i < tasks; i++)
        run_rows(&job, i, 0);
}

static inline __attribute__((always_inline)) void
dot_block(double *sum, int64_t n, int64_t depth, atom_dtype a_dtype, const void *a, int64_t a_at,
          int64_t a_step, atom_dtype b_dtype, const void *b, int64_t b_at, int64_t b_step,
          int64_t b_col)
{
    if (b_col == 1) {
        for (int64_t k = 0; k < depth; k++) {
            double scale = ref_get(a_dtype, a, a_at + k * a_step);
            for (int64_t j = 0; j < n; j++)
                sum[j] += scale * ref_get(b_dtype, b, b_at + k * b_step + j);
        }
        return;
    }
    enum { AT_ONCE = 8 }; /* columns far apart: few at a time, each along its depth */
    int64_t j0 = 0;
    for (; j0 + AT_ONCE <= n; j0 += AT_ONCE) {
        double part[AT_ONCE];
        memcpy(part, sum + j0, sizeof part);
        for (int64_t k = 0; k < depth; k++) {
            double scale = ref_get(a_dtype, a, a_at + k * a_step);
            for (int64_t j = 0; j < AT_ONCE; j++)
                part[j] += scale * ref_get(b_dtype, b, b_at + k * b_step + (j0 + j) * b_col);
        }
        memcpy(sum + j0, part, sizeof part);
    }
    for (; j0 < n; j0++) {
        for (int64_t k = 0; k < depth; k++)
            sum[j0] += ref_get(a_dtype, a, a_at + k * a_step) *
                       ref_get(b_dtype, b, b_at + k * b_step + j0 * b_col);
    }
}

void ref_dot_block(double *sum, int64_t n, int64_t depth, atom_dtype a_dtype, const void *a,
                   int64_t a_at, int64_t a_step, atom_dtype b_dtype, const void *b, int64_t b_at,
                   int64_t b_step, int64_t b_col)
{
    /* The same loop with b's dtype known, so that it vectorises. */
    if (b_dtype == ATOM_F32)
        dot_block(sum, n, depth, a_dtype, a, a_at, a_step, ATOM_F32, b, b_at, b_step, b_col);
    else if (b_dtype == ATOM_BF16)
        dot_block(sum, n, depth, a_dtype, a, a_at, a_step, ATOM_BF16, b, b_at, b_step, b_col);
    else
        dot_block(sum, n, depth, a_dtype, a, a_at, a_step, ATOM_F64, b, b_at, b_step, b_col);
}

ref_dropout ref_dropout_make(const krn_ctx *cx, const krn_args *args)
{
    const krn_step *step = cx->step;
    bool on = args->p > 0.0f && step->train;
    return (ref_dropout){
        .key = on ? (atom_rng_key){step->seed, step->step, step->micro_batch, args->rng}
                  : (atom_rng_key){0},
        .threshold = atom_rng_threshold((double)args->p),
        .scale = 1.0 / (1.0 - (double)args->p),
        .on = on,
    };
}

double ref_dropout_factor(const ref_dropout *d, int64_t element)
{
    if (!d->on)
        return 1.0;
    return atom_rng_u32(d->key, (uint64_t)element) >= d->threshold ? d->scale : 0.0;
}

double ref_capped(double x, float cap)
{
    return cap > 0 ? (double)cap * tanh(x / (double)cap) : x;
}

double ref_cap_slope(double y, float cap)
{
    return cap > 0 ? 1.0 - y / (double)cap * (y / (double)cap) : 1.0;
}

/* Tanh form ("gelu_new"): 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
static const double gelu_a = 0.79788456080286535588, gelu_b = 0.044715;

double ref_gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(gelu_a * (x + gelu_b * x * x * x)));
}

double ref_gelu_slope(double x)
{
    double t = tanh(gelu_a * (x + gelu_b * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * gelu_a * (1.0 + 3.0 * gelu_b * x * x);
}

double ref_log_sum_exp(const double *x, int64_t n)
{
    double max = x[0], sum = 0.0;
    for (int64_t i = 1; i < n; i++)
        max = fmax(max, x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}
