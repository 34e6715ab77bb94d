/*
 * Owns the two parts of Muon that stay on the host where a device makes the products: momentum
 * before them, weights after them. One idea: they run at the speed of memory. The norm needs each
 * row's sum in ascending order, a chain of additions, so several rows are summed side by side; all
 * else is one flat vector. The bits are ref's (kernels.h). Refuses to keep u between its two passes:
 * to make it again costs less than to store it.
 */
#include "kernels/cpu/isa/drawn.h"
#include "kernels/cpu/isa/kernels.h"
#include "kernels/cpu/isa/span.h"

#include <math.h>

enum {
    LINES = 8,             /* rows that are summed side by side, and of a task */
    SPAN = 64,             /* columns at a time */
    CHUNK = KRN_NORM_CHUNK /* elements of a task of the flat loops */
};
_Static_assert(SPAN % VF_LANES == 0 && CHUNK % KRN_DRAWN == 0, "whole vectors and groups");

typedef struct parts_job {
    const krn_muon_step *step;
    void *wire;
    float *master;
    void *m;
    double *sums; /* of each row */
    int64_t rows, cols, n;
    int64_t lead; /* elements between the group of random words and element 0 */
    float inv, keep, rate;
} parts_job;

/* u of k <= VF_LANES elements from i, and the momentum that it was made of. */
KRN_INLINE vf direction(atom_dtype wire, atom_dtype moments, const parts_job *j, int64_t i,
                        int64_t k, vf *moved)
{
    vf momentum = vf_all(j->step->momentum);
    vf g = vf_all(j->step->scale) * vf_get(wire, j->wire, i, k);
    *moved = momentum * vf_get(moments, j->m, i, k) + g;
    return momentum * *moved + g;
}

/* Squares of n <= SPAN elements from i, in f64: exact. */
KRN_INLINE void squares(atom_dtype wire, atom_dtype moments, const parts_job *j, int64_t i,
                        int64_t n, double out[SPAN])
{
    vf moved;
    for (int64_t c = 0; c < n; c += VF_LANES) {
        vf u = direction(wire, moments, j, i + c, krn_min(VF_LANES, n - c), &moved);
        vd low = vd_low(u), high = vd_high(u);
        vd_store(out + c, low * low);
        vd_store(out + c + VF_LANES / 2, high * high);
    }
}

KRN_INLINE void sum_lines(atom_dtype wire, atom_dtype moments, const parts_job *j, int64_t row,
                          int64_t lines)
{
    double square[LINES][SPAN], sum[LINES] = {0};
    for (int64_t from = 0; from < j->cols; from += SPAN) {
        int64_t n = krn_min(SPAN, j->cols - from);
        for (int64_t l = 0; l < lines; l++)
            squares(wire, moments, j, (row + l) * j->cols + from, n, square[l]);
        for (int64_t c = 0; c < n; c++) {
            for (int64_t l = 0; l < lines; l++)
                sum[l] += square[l][c];
        }
    }
    for (int64_t l = 0; l < lines; l++)
        j->sums[row + l] = sum[l];
}

KRN_INLINE void sum_rows(atom_dtype wire, atom_dtype moments, const parts_job *j, uint32_t index)
{
    int64_t row = (int64_t)index * LINES;
    if (j->rows - row >= LINES)
        sum_lines(wire, moments, j, row, LINES);
    else
        sum_lines(wire, moments, j, row, j->rows - row);
}

/* To bf16, and 0 of what is too small for an operand. */
KRN_INLINE vf operand(vf x)
{
    vf rounded = vf_bits(vi_shl(vi_bf16(x), 16));
    vf size = vf_bits(vi_and(vi_bits(rounded), vi_all(0x7fffffff)));
    return vf_if_less(size, vf_all(KRN_MUON_TINY), vf_all(0.0f), rounded);
}

KRN_INLINE void move_vector(atom_dtype wire, atom_dtype moments, const parts_job *j, int64_t i,
                            int64_t k, vi draw)
{
    vf moved, u = direction(wire, moments, j, i, k, &moved);
    vf_put_drawn(moments, j->m, i, k, moved, draw);
    vf_put(wire, j->wire, i, k, operand(u * vf_all(j->inv)));
}

/* A chunk of whole groups of random words; the first may begin before the matrix, the last may end
 * behind it. */
KRN_INLINE void move_chunk(atom_dtype wire, atom_dtype moments, const parts_job *j, uint32_t index)
{
    uint16_t half[KRN_DRAWN + VF_LANES] = {0};
    int64_t i = (int64_t)index * CHUNK - j->lead, end = krn_min(i + CHUNK, j->n);
    for (; i < end; i += KRN_DRAWN) {
        int64_t from = i < 0 ? 0 : i, to = krn_min(i + KRN_DRAWN, end);
        if (moments == ATOM_BF16)
            krn_draw_halves(j->step->rng, j->step->first + (uint64_t)i, half);
        if (to - from == KRN_DRAWN) {
            for (int64_t q = 0; q < KRN_DRAWN; q += VF_LANES)
                move_vector(wire, moments, j, i + q, VF_LANES, vi_load_u16(half + q));
        } else {
            for (int64_t q = from; q < to; q += VF_LANES)
                move_vector(wire, moments, j, q, krn_min(VF_LANES, to - q),
                            vi_load_u16(half + (q - i)));
        }
    }
}

KRN_INLINE void apply_vector(atom_dtype wire, const parts_job *j, int64_t i, int64_t k)
{
    vf p = vf_all(j->keep) * vf_get(ATOM_F32, j->master, i, k) -
           vf_all(j->rate) * vf_get(wire, j->wire, i, k);
    vf_put(ATOM_F32, j->master, i, k, p);
    vf_put(wire, j->wire, i, k, p);
}

KRN_INLINE void apply_chunk(atom_dtype wire, const parts_job *j, uint32_t index)
{
    int64_t i = (int64_t)index * CHUNK, end = krn_min(i + CHUNK, j->n);
    for (; i + VF_LANES <= end; i += VF_LANES)
        apply_vector(wire, j, i, VF_LANES);
    if (i < end)
        apply_vector(wire, j, i, end - i);
}

#define ENTRIES(dtype, suffix)                                                                     \
    KRN_TASK_AS(sum_rows_##suffix, sum_rows(dtype, ATOM_F32, ctx, index))                          \
    KRN_TASK_AS(sum_rows_##suffix##_bf16, sum_rows(dtype, ATOM_BF16, ctx, index))                  \
    KRN_TASK_AS(move_chunk_##suffix, move_chunk(dtype, ATOM_F32, ctx, index))                      \
    KRN_TASK_AS(move_chunk_##suffix##_bf16, move_chunk(dtype, ATOM_BF16, ctx, index))              \
    KRN_TASK(apply_chunk, dtype, suffix)
ENTRIES(ATOM_F32, f32)
ENTRIES(ATOM_BF16, bf16)

void KRN_ISA(krn_cpu_muon_begin)(atom_threads *threads, const krn_muon_step *step,
                                 atom_dtype wire_dtype, void *wire, void *m, int64_t rows,
                                 int64_t cols, double *sums)
{
    static const atom_task sum_tasks[2][2] = {{sum_rows_f32, sum_rows_f32_bf16},
                                              {sum_rows_bf16, sum_rows_bf16_bf16}};
    static const atom_task move_tasks[2][2] = {{move_chunk_f32, move_chunk_f32_bf16},
                                               {move_chunk_bf16, move_chunk_bf16_bf16}};
    bool narrow = wire_dtype == ATOM_BF16, drawn = step->moments == ATOM_BF16;
    parts_job j = {.step = step,
                   .wire = wire,
                   .m = m,
                   .sums = sums,
                   .rows = rows,
                   .cols = cols,
                   .n = rows * cols,
                   .lead = (int64_t)(step->first % KRN_DRAWN)};
    krn_each(threads, krn_ceil_div(rows, LINES), sum_tasks[narrow][drawn], &j);
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += sums[r];
    j.inv = (float)(1 / fmax(sqrt(sum), KRN_MUON_NORM_MIN));
    krn_each(threads, krn_ceil_div(j.n + j.lead, CHUNK), move_tasks[narrow][drawn], &j);
}

void KRN_ISA(krn_cpu_muon_end)(atom_threads *threads, const krn_muon_step *step,
                               atom_dtype wire_dtype, void *wire, float *master, int64_t rows,
                               int64_t cols)
{
    parts_job j = {.step = step,
                   .wire = wire,
                   .master = master,
                   .n = rows * cols,
                   .keep = (float)(1 - step->lr * step->decay),
                   .rate = (float)(step->lr * 0.2 * sqrt((double)krn_muon_long(rows, cols)))};
    krn_each(threads, krn_ceil_div(j.n, CHUNK),
             wire_dtype == ATOM_BF16 ? apply_chunk_bf16 : apply_chunk_f32, &j);
}
