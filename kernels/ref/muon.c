/*
 * Muon on one matrix: the specification, in the order of kernels.h and on one thread, as a whole and
 * in three parts. One idea: the operands of a product are bf16's, so each product of two numbers is
 * exact and only the order of a sum decides its bits. Refuses to be fast.
 */
#include "kernels/ref/ref.h"

#include <math.h>

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

static float operand(float x)
{
    float rounded = atom_bf16_to_f32(atom_f32_to_bf16(x));
    return fabsf(rounded) < KRN_MUON_TINY ? 0.0f : rounded;
}

/* --- momentum -------------------------------------------------------------------------------- */

static void momentum_put(const krn_muon_step *s, void *m, int64_t i, float value)
{
    uint64_t e = s->first + (uint64_t)i;
    if (s->moments == ATOM_F32) {
        ((float *)m)[i] = value;
        return;
    }
    uint32_t word = atom_rng_u32(s->rng, e / 2);
    ((atom_bf16 *)m)[i] = atom_f32_to_bf16_drawn(value, e % 2 ? word >> 16 : word & 0xffff);
}

/* u of element i, and the momentum that it was made of. */
static float direction(const krn_muon_step *s, atom_dtype dtype, const void *wire, const void *m,
                       int64_t i, float *moved)
{
    float g = s->scale * stored_get(dtype, wire, i);
    *moved = s->momentum * stored_get(s->moments, m, i) + g;
    return s->momentum * *moved + g;
}

void ref_muon_begin(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                    void *wire, void *m, int64_t rows, int64_t cols, double *sums)
{
    (void)threads;
    float moved;
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) {
        sums[r] = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++) {
            double u = direction(step, wire_dtype, wire, m, i, &moved);
            sums[r] += u * u;
        }
        sum += sums[r];
    }
    float inv = (float)(1 / fmax(sqrt(sum), KRN_MUON_NORM_MIN));
    for (int64_t i = 0; i < rows * cols; i++) {
        float u = direction(step, wire_dtype, wire, m, i, &moved);
        momentum_put(step, m, i, moved);
        stored_put(wire_dtype, wire, i, operand(u * inv));
    }
}

/* --- products -------------------------------------------------------------------------------- */

typedef struct ortho_job {
    int64_t s, l;
    atom_bf16 *x, *next; /* [s][l] */
    atom_bf16 *a, *b;    /* [s][s] */
} ortho_job;

static float get(const atom_bf16 *x, int64_t i)
{
    return atom_bf16_to_f32(x[i]);
}

static atom_bf16 put(float value)
{
    return atom_f32_to_bf16(operand(value));
}

/* Sum over k of x[k] y[k * y_step]. */
static float dot(const atom_bf16 *x, const atom_bf16 *y, int64_t y_step, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += get(x, k) * get(y, k * y_step);
    return sum;
}

/* X becomes a X + (b A + c A A) X with A = X X'. */
static void iterate(ortho_job *j)
{
    int64_t s = j->s, l = j->l;
    for (int64_t i = 0; i < s * s; i++)
        j->a[i] = put(dot(j->x + i / s * l, j->x + i % s * l, 1, l));
    for (int64_t i = 0; i < s * s; i++) {
        float square = dot(j->a + i / s * s, j->a + i % s, s, s);
        j->b[i] = put(KRN_MUON_B * get(j->a, i) + KRN_MUON_C * square);
    }
    for (int64_t i = 0; i < s * l; i++) {
        float product = dot(j->b + i / l * s, j->x + i % l, l, s);
        j->next[i] = put(KRN_MUON_A * get(j->x, i) + product);
    }
    atom_bf16 *old = j->x;
    j->x = j->next;
    j->next = old;
}

void ref_ortho(krn_ctx *cx, void *x, int64_t rows, int64_t cols, void *space, atom_dtype dtype)
{
    (void)cx;
    int64_t s = krn_muon_short(rows, cols), l = krn_muon_long(rows, cols), n = rows * cols;
    ortho_job j = {.s = s, .l = l, .x = space};
    j.next = j.x + n;
    j.a = j.next + n;
    j.b = j.a + s * s;
    /* (row, col) of the matrix is (col, row) of X where rows > cols */
    for (int64_t i = 0; i < n; i++)
        j.x[rows > cols ? i % cols * l + i / cols : i] = put(stored_get(dtype, x, i));
    for (int i = 0; i < KRN_MUON_STEPS; i++)
        iterate(&j);
    for (int64_t i = 0; i < n; i++)
        stored_put(dtype, x, i, get(j.x, rows > cols ? i % cols * l + i / cols : i));
}

/* --- weights --------------------------------------------------------------------------------- */

void ref_muon_end(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype,
                  void *wire, float *master, int64_t rows, int64_t cols)
{
    (void)threads;
    float keep = (float)(1 - step->lr * step->decay);
    float rate = (float)(step->lr * 0.2 * sqrt((double)krn_muon_long(rows, cols)));
    for (int64_t i = 0; i < rows * cols; i++) {
        float p = keep * master[i] - rate * stored_get(wire_dtype, wire, i);
        master[i] = p;
        stored_put(wire_dtype, wire, i, p);
    }
}

void ref_muon(atom_threads *threads, const krn_muon_step *step, atom_dtype wire_dtype, void *wire,
              float *master, void *m, int64_t rows, int64_t cols, void *space)
{
    ref_muon_begin(threads, step, wire_dtype, wire, m, rows, cols, space);
    ref_ortho(NULL, wire, rows, cols, space, wire_dtype);
    ref_muon_end(threads, step, wire_dtype, wire, master, rows, cols);
}
