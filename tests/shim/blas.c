/*
 * Owns the scalar twin of the matrix products (kernels/cuda/blas.h). One idea: f64 sums in a plain
 * loop, one rounding, and the card's scratch filled with garbage, so that who trusts it is seen.
 */
#include "kernels/cuda/blas.h"

#include "atom/base/assert.h"

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

void krn_cuda_matmul(krn_ctx *cx, const krn_matmul *mm, void *workspace)
{
    (void)cx;
    ATOM_ASSERT(mm->d_dtype == ATOM_F32 || mm->d_dtype == mm->ab);
    ATOM_ASSERT(mm->lda >= (mm->a_turned ? mm->m : mm->k) && mm->ldd >= mm->n);
    ATOM_ASSERT(mm->ldb >= (mm->b_turned ? mm->k : mm->n));
    memset(workspace, 0xff, WORKSPACE_BYTES);
    double *a = widened(mm->a, mm->ab, mm->a_turned, mm->lda, mm->m, mm->k);
    double *b = widened(mm->b, mm->ab, mm->b_turned, mm->ldb, mm->k, mm->n);
    double *sum = malloc((size_t)mm->n * sizeof *sum);
    ATOM_ASSERT(sum);
    for (int64_t i = 0; i < mm->m; i++) {
        for (int64_t j = 0; j < mm->n; j++)
            sum[j] = mm->add ? get(mm->d_dtype, mm->d, i * mm->ldd + j) : 0;
        for (int64_t k = 0; k < mm->k; k++) {
            for (int64_t j = 0; j < mm->n; j++)
                sum[j] += a[i * mm->k + k] * b[k * mm->n + j];
        }
        for (int64_t j = 0; j < mm->n; j++) {
            if (mm->d_dtype == ATOM_F32)
                ((float *)mm->d)[i * mm->ldd + j] = (float)sum[j];
            else
                ((atom_bf16 *)mm->d)[i * mm->ldd + j] = atom_f32_to_bf16((float)sum[j]);
        }
    }
    free(a);
    free(b);
    free(sum);
}
