/*
 * Scratch of linear and linear_gelu (isa/linear.c), laid out in one place for the kernel and for
 * callers that ask how much it needs: enough for the widest layout of the dtype (gemm.h), so that a plan
 * holds on any machine.
 *
 *   w_panels   forward: panels of w', one per 64 outputs, k = I
 *              backward: panels of w, one per 64 inputs, k = O
 *   x_left     forward, fp32: x as a split left operand
 *   x_panels   backward: panels of x, one per 64 inputs, k = rows
 *   dy_left    backward, fp32: gradient of the product as a split left operand
 *   dy_turned  backward: the same transposed, [O][rows rounded up to 32]
 *   du         backward of linear_gelu: [rows][O]
 *
 * N is done in blocks of linear_rows(), so that scratch does not grow with it.
 */
#ifndef KERNELS_CPU_LINEAR_H
#define KERNELS_CPU_LINEAR_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/matmul.h"

enum { LINEAR_ROWS = 2048, LINEAR_ROWS_SPLIT = 1024, LINEAR_SUM_ROWS = 64 };

typedef struct linear_space {
    void *w_panels, *x_left, *x_panels, *dy_left, *dy_turned, *du;
    float *sums;
} linear_space;

static inline int64_t linear_rows(atom_dtype dtype, int64_t N)
{
    int64_t rows = dtype == ATOM_F32 ? LINEAR_ROWS_SPLIT : LINEAR_ROWS;
    return N < rows ? N : rows;
}

static inline linear_space linear_space_carve(krn_carve *carve, atom_dtype dtype, int gelu,
                                              int backward, const int64_t dim[KRN_DIM_MAX])
{
    int64_t I = dim[1], O = dim[2], rows = linear_rows(dtype, dim[0]);
    gemm_layout widest = gemm_layout_widest(dtype);
    bool split = widest == GEMM_SPLIT;
    linear_space s = {0};
    if (!backward) {
        s.w_panels = krn_carve_take(carve, (uint64_t)gemm_panels(O) * gemm_panel_bytes(widest, I));
        if (split)
            s.x_left = krn_carve_take(carve, gemm_left_bytes(rows, I));
        return s;
    }
    s.w_panels = krn_carve_take(carve, (uint64_t)gemm_panels(I) * gemm_panel_bytes(widest, O));
    s.x_panels = krn_carve_take(carve, (uint64_t)gemm_panels(I) * gemm_panel_bytes(widest, rows));
    if (split)
        s.dy_left = krn_carve_take(carve, gemm_left_bytes(rows, O));
    s.dy_turned = krn_carve_take(carve, split ? gemm_left_bytes(O, rows)
                                              : (uint64_t)(O * gemm_round_k(rows)) * 4);
    s.sums = (float *)krn_carve_take(
        carve, (uint64_t)((rows + LINEAR_SUM_ROWS - 1) / LINEAR_SUM_ROWS * O) * 4);
    if (gelu)
        s.du = krn_carve_take(carve, (uint64_t)(rows * O) * 4);
    return s;
}

#endif
