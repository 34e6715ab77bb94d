/*
 * Scratch of the classifier (isa/classifier.c), laid out in one place for the kernel and for
 * callers that ask how much it needs: enough for the widest layout of the dtype (gemm.h). Rows per chunk are
 * such that the scores of a chunk take CLASSIFIER_SCORE_BYTES at most in either dtype.
 *
 *   x_cols   panels of x', one per 64 rows of the chunk, k = C
 *   w_left   fp32: CLASSIFIER_SCORE_SPAN words of w as a split left operand
 *   top, sum, factor   f32 [V blocks][R]: per block of CLASSIFIER_BLOCK words and row
 *   hit, lse           f32 [R]: the target's logit; log sum exp
 *
 * backward only:
 *
 *   x_rows   panels of x, one per 64 channels, k = R
 *   e        act [V][R]: exp(logit - top of its block), then d logit; transposed on purpose
 *   e_left   fp32: d logit of one span of words as a split left operand
 *   d_turned act [R][CLASSIFIER_SPAN]: the same, not transposed; in fp32 a split left operand
 *   w_rows   panels of one span of w, one per 64 channels, k = CLASSIFIER_SPAN
 *   dx       f32 [R][C]: sums over all spans
 */
#ifndef KERNELS_CPU_CLASSIFIER_H
#define KERNELS_CPU_CLASSIFIER_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/matmul.h"

enum {
    CLASSIFIER_BLOCK = 256,       /* words per forward task: the rows of a product's task */
    CLASSIFIER_SPAN = 1024,       /* words per backward round */
    CLASSIFIER_SCORE_SPAN = 4096, /* words per forward round, where w is packed first */
    CLASSIFIER_ROWS_MAX = 512,
    CLASSIFIER_SCORE_BYTES = 104 << 20
};

/* Rows per chunk: a multiple of 64, or all rows rounded up to 32. */
static inline int64_t classifier_rows(int64_t N, int64_t V, uint64_t bytes)
{
    int64_t rows = CLASSIFIER_SCORE_BYTES / ((int64_t)bytes * V) / 64 * 64;
    rows = rows < 64 ? 64 : rows > CLASSIFIER_ROWS_MAX ? CLASSIFIER_ROWS_MAX : rows;
    return rows < gemm_round_k(N) ? rows : gemm_round_k(N);
}

typedef struct classifier_space {
    float *top, *sum, *factor, *hit, *lse, *dx;
    void *x_cols, *w_left, *x_rows, *e, *e_left, *d_turned, *w_rows;
} classifier_space;

static inline classifier_space classifier_space_carve(krn_carve *carve, atom_dtype dtype,
                                                      int backward, const int64_t dim[KRN_DIM_MAX])
{
    uint64_t bytes = atom_dtype_bytes(dtype), panels = (uint64_t)gemm_panels(dim[1]);
    int64_t C = dim[1], V = dim[2], R = classifier_rows(dim[0], V, bytes);
    uint64_t stats = (uint64_t)((V + CLASSIFIER_BLOCK - 1) / CLASSIFIER_BLOCK * R) * 4;
    gemm_layout widest = gemm_layout_widest(dtype);
    bool split = widest == GEMM_SPLIT;
    classifier_space s = {0};
    s.x_cols = krn_carve_take(carve, (uint64_t)gemm_panels(R) * gemm_panel_bytes(widest, C));
    if (split)
        s.w_left = krn_carve_take(
            carve, gemm_left_bytes(V < CLASSIFIER_SCORE_SPAN ? V : CLASSIFIER_SCORE_SPAN, C));
    s.top = krn_carve_take(carve, stats);
    s.sum = krn_carve_take(carve, stats);
    s.hit = krn_carve_take(carve, (uint64_t)R * 4);
    s.lse = krn_carve_take(carve, (uint64_t)R * 4);
    if (!backward)
        return s;
    s.factor = krn_carve_take(carve, stats);
    s.x_rows = krn_carve_take(carve, panels * gemm_panel_bytes(widest, R));
    s.e = krn_carve_take(carve, (uint64_t)(V * R) * bytes);
    if (split)
        s.e_left = krn_carve_take(carve, gemm_left_bytes(CLASSIFIER_SPAN, R));
    s.d_turned = krn_carve_take(carve, split ? gemm_left_bytes(R, CLASSIFIER_SPAN)
                                             : (uint64_t)(R * CLASSIFIER_SPAN) * bytes);
    s.w_rows = krn_carve_take(carve, panels * gemm_panel_bytes(widest, CLASSIFIER_SPAN));
    s.dx = krn_carve_take(carve, (uint64_t)(R * C) * 4);
    return s;
}

#endif
