/*
 * Muon on one matrix: the specification, in the order of kernels.h and on one thread. One idea: the
 * operands of a product are bf16's, so each product of two numbers is exact and only the order of a
 * sum decides its bits. Refuses to be fast.
 */
#include "kernels/ref/ref.h"

#include <math.h>

typedef struct muon_job {
    const krn_muon_step *step;
    atom_dtype dtype;
    void *wire;
    float *master;
    void *m;
    int64_t rows, cols, s, l;
    float *x, *next; /* [s][l] */
    float *a, *b;    /* [s][s] */
} muon_job;

static float stored_get(atom_dtype dtype, const void *x, int64_t i)
{
    return dtype == ATOM_F32 ? ((const float *)x)[i] : atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

static void stored_put(atom_dtype dtype, void *x, int64_t i, float value)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = value;
    else
        ((atom_bf16 *)x)[i] = atom_f32_to_bf16(value);
}

static void momentum_put(const muon_job *j, int64_t i, float value)
{
    uint64_t e = j->step->first + (uint64_t)i;
    if (j->step->moments == ATOM_F32) {
        ((float *)j->m)[i] = value;
        return;
    }
    uint32_t word = atom_rng_u32(j->step->rng, e / 2);
    ((atom_bf16 *)j->m)[i] = atom_f32_to_bf16_drawn(value, e % 2 ? word >> 16 : word & 0xffff);
}

/* Where element (row, col) of the matrix is in X. */
static int64_t place(const muon_job *j, int64_t row, int64_t col)
{
    return j->rows > j->cols ? col * j->l + row : row * j->l + col;
}

static float operand(float x)
{
    float rounded = atom_bf16_to_f32(atom_f32_to_bf16(x));
    return fabsf(rounded) < KRN_MUON_TINY ? 0.0f : rounded;
}

/* The momentum moves; X is what will be orthogonalised, divided by its norm. */
static void prepare(const muon_job *j)
{
    const krn_muon_step *s = j->step;
    double sum = 0;
    for (int64_t r = 0; r < j->rows; r++) {
        double row = 0;
        for (int64_t c = 0; c < j->cols; c++) {
            int64_t i = r * j->cols + c;
            float g = s->scale * stored_get(j->dtype, j->wire, i);
            float m = s->momentum * stored_get(s->moments, j->m, i) + g;
            float u = s->momentum * m + g;
            momentum_put(j, i, m);
            j->x[place(j, r, c)] = u;
            row += (double)u * (double)u;
        }
        sum += row;
    }
    float inv = (float)(1 / fmax(sqrt(sum), KRN_MUON_NORM_MIN));
    for (int64_t i = 0; i < j->s * j->l; i++)
        j->x[i] = operand(j->x[i] * inv);
}

/* Sum over k of x[k * x_step] y[k * y_step]. */
static float dot(const float *x, int64_t x_step, const float *y, int64_t y_step, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += x[k * x_step] * y[k * y_step];
    return sum;
}

/* X becomes a X + (b A + c A A) X with A = X X'. */
static void iterate(muon_job *j)
{
    int64_t s = j->s, l = j->l;
    for (int64_t i = 0; i < s * s; i++)
        j->a[i] = operand(dot(j->x + i / s * l, 1, j->x + i % s * l, 1, l));
    for (int64_t i = 0; i < s * s; i++) {
        float square = dot(j->a + i / s * s, 1, j->a + i % s, s, s);
        j->b[i] = operand(KRN_MUON_B * j->a[i] + KRN_MUON_C * square);
    }
    for (int64_t i = 0; i < s * l; i++) {
        float product = dot(j->b + i / l * s, 1, j->x + i % l, l, s);
        j->next[i] = operand(KRN_MUON_A * j->x[i] + product);
    }
    float *old = j->x;
    j->x = j->next;
    j->next = old;
}

void ref_muon(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype, void *wire,
              float *master, void *m, int64_t rows, int64_t cols, void *space)
{
    (void)threads;
    int64_t s = krn_muon_short(rows, cols), l = krn_muon_long(rows, cols);
    muon_job j = {step, wire_dtype, wire, master, m, rows, cols, s, l, space, NULL, NULL, NULL};
    float keep = (float)(1 - step->lr * step->decay);
    float rate = (float)(step->lr * 0.2 * sqrt((double)l));
    j.next = j.x + s * l;
    j.a = j.next + s * l;
    j.b = j.a + s * s;
    prepare(&j);
    for (int i = 0; i < KRN_MUON_STEPS; i++)
        iterate(&j);
    for (int64_t i = 0; i < rows * cols; i++) {
        float p = keep * master[i] - rate * j.x[place(&j, i / cols, i % cols)];
        master[i] = p;
        stored_put(wire_dtype, wire, i, p);
    }
}
