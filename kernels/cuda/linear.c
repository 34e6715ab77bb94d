/*
 * Owns linear and linear_gelu on the device: which matrix products they are, and what is done
 * beside them. One idea: bias, gelu and the bias gradient ride on the products where the library
 * takes them along, and are kernels of ours where it does not; portable, so that the tests' shim
 * runs this very file. Refuses to know the library (blas.h).
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

#include "atom/base/mem.h"

#include <stddef.h>

/* Scratch: the library's, the column sums', and dU of linear_gelu. */
typedef struct places {
    uint64_t sums_at, du_at, bytes;
} places;

static places places_of(const int64_t dim[KRN_DIM_MAX], atom_dtype act, int back, int gelu)
{
    places p = {.sums_at = atom_align(krn_cuda_matmul_workspace())};
    p.du_at = p.bytes = p.sums_at;
    if (!back)
        return p;
    p.du_at = p.bytes = p.sums_at + atom_align(krn_cuda_column_sums_workspace(dim[0], dim[2]));
    if (gelu)
        p.bytes += atom_align((uint64_t)(dim[0] * dim[2]) * atom_dtype_bytes(act));
    return p;
}

static void *scratch(const krn_ctx *cx, uint64_t at)
{
    return (char *)cx->workspace + at;
}

/* x w' + b, to d, or to u with d = gelu(u). */
static void forward(krn_ctx *cx, const krn_args *args, void *d, void *u, atom_dtype act)
{
    int64_t N = args->dim[0], I = args->dim[1], O = args->dim[2];
    krn_matmul mm = {.m = N,
                     .n = O,
                     .k = I,
                     .a = args->buf[0],
                     .b = args->buf[1],
                     .d = d,
                     .lda = I,
                     .ldb = I,
                     .ldd = O,
                     .b_turned = 1,
                     .ab = act,
                     .d_dtype = act,
                     .bias = args->buf[2],
                     .aux = u};
    unsigned left = krn_cuda_matmul(cx, &mm, cx->workspace);
    if (!(left & KRN_LEFT_GELU))
        return;
    krn_args gelu = {.buf = {u, d}, .dim = {N * O}};
    krn_cuda_gelu_fwd(cx, &gelu, act);
}

/* dx (+)= dy w */
static void d_input(krn_ctx *cx, const krn_args *args, const void *dy, void *dx, atom_dtype act)
{
    int64_t N = args->dim[0], I = args->dim[1], O = args->dim[2];
    krn_matmul mm = {.m = N,
                     .n = I,
                     .k = O,
                     .a = dy,
                     .b = args->buf[1],
                     .d = dx,
                     .lda = O,
                     .ldb = I,
                     .ldd = I,
                     .add = (args->flags & KRN_ADD_D_IN0) != 0,
                     .ab = act,
                     .d_dtype = act};
    (void)krn_cuda_matmul(cx, &mm, cx->workspace);
}

/* dw += dy' x; returns what is left of the bias gradient. */
static unsigned d_weight(krn_ctx *cx, const krn_args *args, const void *dy, float *dw, float *db,
                         atom_dtype act)
{
    int64_t N = args->dim[0], I = args->dim[1], O = args->dim[2];
    krn_matmul mm = {.m = O,
                     .n = I,
                     .k = N,
                     .a = dy,
                     .b = args->buf[0],
                     .d = dw,
                     .lda = O,
                     .ldb = I,
                     .ldd = I,
                     .a_turned = 1,
                     .add = 1,
                     .ab = act,
                     .d_dtype = ATOM_F32,
                     .sums = db};
    return krn_cuda_matmul(cx, &mm, cx->workspace);
}

/* d: dx dw db, each may be NULL. */
static void backward(krn_ctx *cx, const krn_args *args, const void *dy, void *const *d,
                     atom_dtype act)
{
    int64_t N = args->dim[0], O = args->dim[2];
    unsigned left = d[2] ? KRN_LEFT_SUMS : 0;
    if (d[0])
        d_input(cx, args, dy, d[0], act);
    if (d[1])
        left = d_weight(cx, args, dy, d[1], d[2], act);
    if (left & KRN_LEFT_SUMS)
        krn_cuda_column_sums(cx, scratch(cx, places_of(args->dim, act, 1, 0).sums_at), d[2], dy, N,
                             O, act);
}

uint64_t krn_cuda_linear_workspace(int back, const int64_t dim[KRN_DIM_MAX], atom_dtype act,
                                   int gelu)
{
    return places_of(dim, act, back, gelu).bytes;
}

void krn_cuda_linear_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    forward(cx, args, args->buf[3], NULL, act);
}

void krn_cuda_linear_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    backward(cx, args, args->buf[4], args->buf + 5, act);
}

void krn_cuda_linear_gelu_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    forward(cx, args, args->buf[3], args->buf[4], act);
}

void krn_cuda_linear_gelu_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    int64_t n = args->dim[0] * args->dim[2];
    void *du = scratch(cx, places_of(args->dim, act, 1, 1).du_at);
    krn_cuda_gelu_slope(cx, du, args->buf[5], args->buf[4], n, act);
    backward(cx, args, du, args->buf + 6, act);
}
