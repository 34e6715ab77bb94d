/*
 * Owns lora on the device: three small products beside copies. One idea: the columns that change
 * are a matrix with the row length of the whole, so every product goes to the library as it is.
 * Portable, so that the tests' shim runs this very file.
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"

#include <stddef.h>

/* The columns of x that b adds to. */
static void *columns(const krn_args *args, void *x, atom_dtype act)
{
    return (char *)x + args->dim[4] * (int64_t)atom_dtype_bytes(act);
}

uint64_t krn_cuda_lora_workspace(void)
{
    return krn_cuda_matmul_workspace();
}

/* y = x, then y += scale h b' in its columns */
void krn_cuda_lora_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    int64_t N = args->dim[0], W = args->dim[1], R = args->dim[2], O = args->dim[3];
    krn_matmul mm = {.m = N,
                     .n = O,
                     .k = R,
                     .a = args->buf[1],
                     .b = args->buf[2],
                     .d = columns(args, args->buf[3], act),
                     .lda = R,
                     .ldb = R,
                     .ldd = W,
                     .b_turned = 1,
                     .add = 1,
                     .ab = act,
                     .d_dtype = act,
                     .scale = args->scale};
    krn_cuda_copy(cx, args->buf[3], args->buf[0], (uint64_t)(N * W) * atom_dtype_bytes(act));
    (void)krn_cuda_matmul(cx, &mm, cx->workspace);
}

/* dh (+)= scale dy b */
static void d_low(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    int64_t N = args->dim[0], W = args->dim[1], R = args->dim[2], O = args->dim[3];
    krn_matmul mm = {.m = N,
                     .n = R,
                     .k = O,
                     .a = columns(args, args->buf[4], act),
                     .b = args->buf[2],
                     .d = args->buf[6],
                     .lda = W,
                     .ldb = R,
                     .ldd = R,
                     .add = (args->flags & KRN_ADD_D_IN1) != 0,
                     .ab = act,
                     .d_dtype = act,
                     .scale = args->scale};
    (void)krn_cuda_matmul(cx, &mm, cx->workspace);
}

/* db += scale dy' h */
static void d_weight(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    int64_t N = args->dim[0], W = args->dim[1], R = args->dim[2], O = args->dim[3];
    krn_matmul mm = {.m = O,
                     .n = R,
                     .k = N,
                     .a = columns(args, args->buf[4], act),
                     .b = args->buf[1],
                     .d = args->buf[7],
                     .lda = W,
                     .ldb = R,
                     .ldd = R,
                     .a_turned = 1,
                     .add = 1,
                     .ab = act,
                     .d_dtype = ATOM_F32,
                     .scale = args->scale};
    (void)krn_cuda_matmul(cx, &mm, cx->workspace);
}

void krn_cuda_lora_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    int64_t n = args->dim[0] * args->dim[1];
    if (args->buf[5] && !(args->flags & KRN_ADD_D_IN0)) {
        krn_cuda_copy(cx, args->buf[5], args->buf[4], (uint64_t)n * atom_dtype_bytes(act));
    } else if (args->buf[5]) {
        krn_args add = {.buf = {NULL, NULL, NULL, args->buf[4], args->buf[5]},
                        .dim = {n},
                        .flags = KRN_ADD_D_IN0};
        krn_cuda_add_bwd(cx, &add, act);
    }
    if (args->buf[6])
        d_low(cx, args, act);
    if (args->buf[7])
        d_weight(cx, args, act);
}
