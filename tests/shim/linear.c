/*
 * Owns the twin of the linear ops, which on the card are cuBLASLt calls with epilogues: the
 * products of blas.c with the device's own gelu and column sums around them, so that those meet the
 * cases of linear too. Weak: a portable version in kernels/cuda takes their place.
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

#include "atom/base/assert.h"

#include <string.h>

#define TWIN __attribute__((weak))

static float get(atom_dtype act, const void *x, int64_t i)
{
    return act == ATOM_F32 ? ((const float *)x)[i] : atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}

/* y = x w' + b: the bias goes in before the one rounding. */
static void product(krn_ctx *cx, const krn_args *args, void *y, atom_dtype act)
{
    int64_t N = args->dim[0], I = args->dim[1], O = args->dim[2];
    for (int64_t n = 0; n < N; n++) {
        for (int64_t o = 0; o < O; o++) {
            double sum = args->buf[2] ? (double)get(act, args->buf[2], o) : 0;
            for (int64_t i = 0; i < I; i++)
                sum += (double)get(act, args->buf[0], n * I + i) *
                       (double)get(act, args->buf[1], o * I + i);
            if (act == ATOM_F32)
                ((float *)y)[n * O + o] = (float)sum;
            else
                ((atom_bf16 *)y)[n * O + o] = atom_f32_to_bf16((float)sum);
        }
    }
    (void)cx;
}

typedef struct places {
    uint64_t sums_at, du_at, bytes;
} places;

static places places_of(const int64_t dim[KRN_DIM_MAX], atom_dtype act, int gelu)
{
    places p = {.sums_at = (krn_cuda_matmul_workspace() + 255) / 256 * 256};
    p.du_at = (p.sums_at + krn_cuda_column_sums_workspace(dim[0], dim[2]) + 255) / 256 * 256;
    p.bytes = p.du_at + (gelu ? (uint64_t)(dim[0] * dim[2]) * atom_dtype_bytes(act) : 0);
    return p;
}

static void backward(krn_ctx *cx, const krn_args *args, const void *dy, void *const *d,
                     atom_dtype act)
{
    int64_t N = args->dim[0], I = args->dim[1], O = args->dim[2];
    places p = places_of(args->dim, act, 0);
    krn_matmul mm = {.m = N, .n = I, .k = O, .a = dy, .b = args->buf[1], .d = d[0]};
    mm.lda = O;
    mm.ldb = mm.ldd = I;
    mm.add = args->flags & KRN_ADD_D_IN0;
    mm.ab = mm.d_dtype = act;
    if (d[0])
        krn_cuda_matmul(cx, &mm, cx->workspace);
    mm = (krn_matmul){.m = O, .n = I, .k = N, .a = dy, .b = args->buf[0], .d = d[1]};
    mm.a_turned = mm.add = 1;
    mm.lda = O;
    mm.ldb = mm.ldd = I;
    mm.ab = act;
    mm.d_dtype = ATOM_F32;
    if (d[1])
        krn_cuda_matmul(cx, &mm, cx->workspace);
    if (d[2])
        krn_cuda_column_sums(cx, (char *)cx->workspace + p.sums_at, d[2], dy, N, O, act);
}

TWIN uint64_t krn_cuda_linear_workspace(int back, const int64_t dim[KRN_DIM_MAX], atom_dtype act,
                                        int gelu)
{
    return back ? places_of(dim, act, gelu).bytes : 0;
}

TWIN void krn_cuda_linear_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    product(cx, args, args->buf[3], act);
}

TWIN void krn_cuda_linear_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    backward(cx, args, args->buf[4], args->buf + 5, act);
}

TWIN void krn_cuda_linear_gelu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    product(cx, args, args->buf[4], act);
    krn_args gelu = {.buf = {args->buf[4], args->buf[3]}, .dim = {args->dim[0] * args->dim[2]}};
    krn_cuda_gelu_fwd(cx, &gelu, act);
}

TWIN void krn_cuda_linear_gelu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    void *du = (char *)cx->workspace + places_of(args->dim, act, 1).du_at;
    krn_cuda_gelu_slope(cx, du, args->buf[5], args->buf[4], args->dim[0] * args->dim[2], act);
    backward(cx, args, du, args->buf + 6, act);
}
