/*
 * Scratch of linear and linear_gelu (isa/linear.c), laid out in one place for the kernel and for
 * who asks how much it needs. Sizes are those of fp32, whatever the dtype.
 *
 *   w_panels  forward: panels of w', one per 64 outputs, k = I; backward: of w, one per 64 inputs,
 * k = O x_panels  backward: panels of x, one per 64 inputs, k = rows dy_turned backward: [O][rows
 * rounded up to 32], gradient of the product, transposed du        backward of linear_gelu:
 * [rows][O]
 *
 * Backward goes through N in blocks of LINEAR_ROWS rows, so that scratch does not grow with N.
 */
#ifndef KERNELS_CPU_LINEAR_H
#define KERNELS_CPU_LINEAR_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/matmul.h"

enum { LINEAR_ROWS = 2048, LINEAR_SUM_ROWS = 64 };

typedef struct linear_space {
    void *w_panels, *x_panels, *dy_turned, *du;
    float *sums;
} linear_space;

static inline linear_space linear_space_carve(krn_carve *carve, int gelu, int backward,
                                              const int64_t dim[KRN_DIM_MAX])
{
    int64_t N = dim[0], I = dim[1], O = dim[2];
    int64_t rows = N < LINEAR_ROWS ? N : LINEAR_ROWS;
    linear_space s = {0};
    if (!backward) {
        s.w_panels =
            krn_carve_take(carve, (uint64_t)gemm_panels(O) * gemm_panel_bytes(GEMM_WIDE, I));
        return s;
    }
    s.w_panels = krn_carve_take(carve, (uint64_t)gemm_panels(I) * gemm_panel_bytes(GEMM_WIDE, O));
    s.x_panels =
        krn_carve_take(carve, (uint64_t)gemm_panels(I) * gemm_panel_bytes(GEMM_WIDE, rows));
    s.dy_turned = krn_carve_take(carve, (uint64_t)(O * gemm_round_k(rows)) * 4);
    s.sums = (float *)krn_carve_take(
        carve, (uint64_t)((rows + LINEAR_SUM_ROWS - 1) / LINEAR_SUM_ROWS * O) * 4);
    if (gelu)
        s.du = krn_carve_take(carve, (uint64_t)(rows * O) * 4);
    return s;
}

#endif
