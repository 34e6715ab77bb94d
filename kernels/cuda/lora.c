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

/* What the three products have in common; R is the row length of h and b. */
static krn_matmul product(const krn_args *args, atom_dtype act)
{
    int64_t R = args->dim[2];
    return (krn_matmul){
        .lda = R, .ldb = R, .ldd = R, .ab = act, .d_dtype = act, .scale = args->scale};
}

/* y = x, then y += scale h b' in its columns */
void krn_cuda_lora_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    int64_t N = args->dim[0], W = args->dim[1], R = args->dim[2], O = args->dim[3];
    krn_matmul mm = product(args, act);
    mm.m = N;
    mm.n = O;
    mm.k = R;
    mm.a = args->buf[1];
    mm.b = args->buf[2];
    mm.d = columns(args, args->buf[3], act);
    mm.ldd = W;
    mm.b_turned = mm.add = 1;
    krn_cuda_copy(cx, args->buf[3], args->buf[0], (uint64_t)(N * W) * atom_dtype_bytes(act));
    (void)krn_cuda_matmul(cx, &mm, cx->workspace);
}

/* dh (+)= scale dy b */
static void d_low(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    krn_matmul mm = product(args, act);
    mm.m = args->dim[0];
    mm.n = args->dim[2];
    mm.k = args->dim[3];
    mm.a = columns(args, args->buf[4], act);
    mm.b = args->buf[2];
    mm.d = args->buf[6];
    mm.lda = args->dim[1];
    mm.add = (args->flags & KRN_ADD_D_IN1) != 0;
    (void)krn_cuda_matmul(cx, &mm, cx->workspace);
}

/* db += scale dy' h */
static void d_weight(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    krn_matmul mm = product(args, act);
    mm.m = args->dim[3];
    mm.n = args->dim[2];
    mm.k = args->dim[0];
    mm.a = columns(args, args->buf[4], act);
    mm.b = args->buf[1];
    mm.d = args->buf[7];
    mm.lda = args->dim[1];
    mm.a_turned = mm.add = 1;
    mm.d_dtype = ATOM_F32;
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
