/*
 * Owns the scalar twin of the matrix products (kernels/cuda/blas.h). One idea: f64 sums in a plain
 * loop, one rounding, and the card's scratch filled with garbage, so that who trusts it is seen.
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/plain.h"

#include "atom/base/assert.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE_BYTES = 4096 };

uint64_t krn_cuda_matmul_workspace(void)
{
    return WORKSPACE_BYTES;
}

static double get(atom_dtype dtype, const void *x, int64_t i)
{
    return dtype == ATOM_F32 ? (double)((const float *)x)[i]
                             : (double)atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

/* op(x) as f64[rows,columns], however it is stored. */
static double *widened(const void *x, atom_dtype dtype, int turned, int64_t ld, int64_t rows,
                       int64_t columns)
{
    double *wide = malloc((size_t)(rows * columns) * sizeof *wide);
    ATOM_ASSERT(wide);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++)
            wide[i * columns + j] = get(dtype, x, turned ? j * ld + i : i * ld + j);
    }
    return wide;
}

static void put(atom_dtype dtype, void *x, int64_t i, double value)
{
    if (dtype == ATOM_F32)
        ((float *)x)[i] = (float)value;
    else
        ((atom_bf16 *)x)[i] = atom_f32_to_bf16((float)value);
}

/* Row i of the product, from d or the bias on. */
static void sum_row(const krn_matmul *mm, const double *a, const double *b, int64_t i, double *sum)
{
    for (int64_t j = 0; j < mm->n; j++) {
        sum[j] = mm->add ? get(mm->d_dtype, mm->d, i * mm->ldd + j) : 0;
        sum[j] += mm->bias ? get(mm->ab, mm->bias, j) : 0;
    }
    double scale = mm->scale != 0.0f ? (double)mm->scale : 1.0;
    for (int64_t k = 0; k < mm->k; k++) {
        for (int64_t j = 0; j < mm->n; j++)
            sum[j] += scale * a[i * mm->k + k] * b[k * mm->n + j];
    }
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* What the library refuses goes to the kernel that takes anything. */
static bool refused(const krn_matmul *mm)
{
    return mm->n % 3 == 1;
}

/* A library that offers epilogues for some shapes only. */
unsigned shim_matmul_left(const krn_matmul *mm);
unsigned shim_matmul_left(const krn_matmul *mm)
{
    if (!refused(mm) && (mm->m + mm->n + mm->k) % 2)
        return 0;
    return (mm->aux ? KRN_LEFT_GELU : 0u) | (mm->sums ? KRN_LEFT_SUMS : 0u);
}

static void add_sums(const krn_matmul *mm, const double *a)
{
    for (int64_t i = 0; i < mm->m; i++) {
        double sum = (double)mm->sums[i];
        for (int64_t k = 0; k < mm->k; k++)
            sum += a[i * mm->k + k];
        mm->sums[i] = (float)sum;
    }
}

unsigned krn_cuda_matmul(krn_ctx *cx, const krn_matmul *mm, void *workspace)
{
    ATOM_ASSERT(mm->d_dtype == ATOM_F32 || mm->d_dtype == mm->ab);
    ATOM_ASSERT(mm->lda >= (mm->a_turned ? mm->m : mm->k) && mm->ldd >= mm->n);
    ATOM_ASSERT(mm->ldb >= (mm->b_turned ? mm->k : mm->n));
    ATOM_ASSERT(!mm->aux || (mm->d_dtype == mm->ab && !mm->add));
    ATOM_ASSERT(!mm->sums || mm->a_turned);
    memset(workspace, 0xff, WORKSPACE_BYTES);
    if (refused(mm))
        return krn_cuda_plain_matmul(cx, mm);
    unsigned left = shim_matmul_left(mm);
    double *a = widened(mm->a, mm->ab, mm->a_turned, mm->lda, mm->m, mm->k);
    double *b = widened(mm->b, mm->ab, mm->b_turned, mm->ldb, mm->k, mm->n);
    double *sum = malloc((size_t)mm->n * sizeof *sum);
    ATOM_ASSERT(sum);
    void *product = mm->aux ? mm->aux : mm->d;
    for (int64_t i = 0; i < mm->m; i++) {
        sum_row(mm, a, b, i, sum);
        for (int64_t j = 0; j < mm->n; j++) {
            put(mm->d_dtype, product, i * mm->ldd + j, sum[j]);
            if (mm->aux && !(left & KRN_LEFT_GELU))
                put(mm->ab, mm->d, i * mm->ldd + j, gelu(sum[j]));
        }
    }
    if (mm->sums && !(left & KRN_LEFT_SUMS))
        add_sums(mm, a);
    free(a);
    free(b);
    free(sum);
    return left;
}
