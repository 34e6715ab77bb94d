/*
 * Owns products with one row: y = x w' + b where x is a single vector. One idea: each output is a
 * dot product with a row of w as it lies in memory, several rows at once, so that the weights
 * stream in once and nothing is packed. Each row has its own accumulators, added in one order, so a
 * row's bits do not depend on its neighbours. Refuses more than one row of x.
 */
#include "kernels/cpu/isa/decode.h"
#include "kernels/cpu/isa/span.h"
#include "kernels/cpu/isa/vecmath.h"

#include "atom/base/assert.h"

/* Rows of w that run beside each other, and most rows and elements of one task. */
enum { BESIDE = 4, TASK_ROWS = 256, TASK_ELEMENTS = 32768 };

typedef struct row_job {
    int64_t I, O, task_rows;
    const float *x;
    const void *w, *b;
    void *y, *u;
    bool gelu;
    float cap;
} row_job;

/* sum[r] = dot product of x and row o + r of w, r < rows (a constant). */
KRN_INLINE void dot_rows(atom_dtype dtype, const row_job *j, int64_t o, int rows, float *sum)
{
    vf even[BESIDE], odd[BESIDE];
    int64_t I = j->I, i = 0;
    for (int r = 0; r < rows; r++)
        even[r] = odd[r] = vf_all(0.0f);
    for (; i + 2 * VF_LANES <= I; i += 2 * VF_LANES) {
        vf x0 = vf_load(j->x + i), x1 = vf_load(j->x + i + VF_LANES);
        for (int r = 0; r < rows; r++) {
            even[r] = vf_fma(vf_load_act(dtype, j->w, (o + r) * I + i), x0, even[r]);
            odd[r] = vf_fma(vf_load_act(dtype, j->w, (o + r) * I + i + VF_LANES), x1, odd[r]);
        }
    }
    for (; i < I; i += VF_LANES) {
        int64_t k = krn_min(VF_LANES, I - i);
        vf x = vf_get(ATOM_F32, j->x, i, k);
        for (int r = 0; r < rows; r++)
            even[r] = vf_fma(vf_get(dtype, j->w, (o + r) * I + i, k), x, even[r]);
    }
    for (int r = 0; r < rows; r++)
        sum[r] = vf_sum(even[r] + odd[r]);
}

/* Bias, cap, rounding, gelu: k outputs from o on. */
KRN_INLINE void finish(atom_dtype dtype, atom_dtype out, const row_job *j, int64_t o, int64_t k,
                       vf sum)
{
    if (j->b)
        sum += vf_get(dtype, j->b, o, k);
    if (j->cap > 0)
        sum = vf_capped(sum, j->cap);
    vf_put(out, j->y, o, k, sum);
    if (!j->gelu)
        return;
    vf u = vf_get(dtype, j->y, o, k);
    if (j->u)
        vf_put(dtype, j->u, o, k, u);
    vf_put(dtype, j->y, o, k, vf_gelu(u));
}

KRN_INLINE void run_task(atom_dtype dtype, atom_dtype out, const row_job *j, uint32_t index)
{
    float sum[TASK_ROWS + VF_LANES];
    int64_t first = (int64_t)index * j->task_rows, rows = krn_min(j->task_rows, j->O - first);
    int64_t o = 0;
    for (; o + BESIDE <= rows; o += BESIDE)
        dot_rows(dtype, j, first + o, BESIDE, sum + o);
    for (; o < rows; o++)
        dot_rows(dtype, j, first + o, 1, sum + o);
    for (o = 0; o < rows; o += VF_LANES)
        finish(dtype, out, j, first + o, krn_min(VF_LANES, rows - o), vf_load(sum + o));
}

KRN_TASK_AS(run_f32, run_task(ATOM_F32, ATOM_F32, ctx, index))
KRN_TASK_AS(run_bf16, run_task(ATOM_BF16, ATOM_BF16, ctx, index))
KRN_TASK_AS(run_bf16_to_f32, run_task(ATOM_BF16, ATOM_F32, ctx, index))

/* x in f32: itself, or widened into the workspace. */
static const float *widen(krn_ctx *cx, const krn_args *args, atom_dtype dtype)
{
    float *wide = cx->workspace;
    int64_t I = args->dim[1];
    if (dtype == ATOM_F32)
        return args->buf[0];
    for (int64_t i = 0; i < I; i++)
        wide[i] = atom_bf16_to_f32(((const atom_bf16 *)args->buf[0])[i]);
    return wide;
}

static int64_t task_rows(int64_t I)
{
    int64_t rows = TASK_ELEMENTS / I / VF_LANES * VF_LANES;
    return rows < VF_LANES ? VF_LANES : krn_min(rows, TASK_ROWS);
}

static void run(krn_ctx *cx, const krn_args *args, atom_dtype dtype, bool gelu, atom_task task)
{
    ATOM_ASSERT(args->dim[0] == 1);
    row_job j = {.I = args->dim[1],
                 .O = args->dim[2],
                 .task_rows = task_rows(args->dim[1]),
                 .x = widen(cx, args, dtype),
                 .w = args->buf[1],
                 .b = args->buf[2],
                 .y = args->buf[3],
                 .u = gelu ? args->buf[4] : NULL,
                 .gelu = gelu,
                 .cap = args->cap};
    krn_each(cx->threads, krn_ceil_div(j.O, j.task_rows), task, &j);
}

#define ENTRY(name, dtype, gelu, task)                                                             \
    static void name(krn_ctx *cx, const krn_args *args)                                            \
    {                                                                                              \
        run(cx, args, dtype, gelu, task);                                                          \
    }
ENTRY(linear_f32, ATOM_F32, false, run_f32)
ENTRY(linear_bf16, ATOM_BF16, false, run_bf16)
ENTRY(linear_gelu_f32, ATOM_F32, true, run_f32)
ENTRY(linear_gelu_bf16, ATOM_BF16, true, run_bf16)
ENTRY(logits_f32, ATOM_F32, false, run_f32)
ENTRY(logits_bf16, ATOM_BF16, false, run_bf16_to_f32)
#undef ENTRY

const krn_decode_table KRN_ISA(krn_cpu_decode)[2] = {
    {.backend = "cpu",
     .dtype = ATOM_F32,
     .linear = linear_f32,
     .linear_gelu = linear_gelu_f32,
     .logits = logits_f32,
     .attend = KRN_ISA(krn_cpu_attend_f32),
     .row_workspace = krn_cpu_row_workspace,
     .attend_workspace = krn_cpu_attend_workspace},
    {.backend = "cpu",
     .dtype = ATOM_BF16,
     .linear = linear_bf16,
     .linear_gelu = linear_gelu_bf16,
     .logits = logits_bf16,
     .attend = KRN_ISA(krn_cpu_attend_bf16),
     .row_workspace = krn_cpu_row_workspace,
     .attend_workspace = krn_cpu_attend_workspace},
};
