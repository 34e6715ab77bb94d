/*
 * Owns what a matrix product is to cuBLASLt: its shape, its descriptors and the call. One idea: a
 * row-major product is the library's column-major one with its operands swapped. Refuses to choose
 * an algorithm: blas.c does.
 */
#include "kernels/cuda/blas_product.h"

#include "kernels/cuda/algos.h"

#include <stdio.h>
#include <string.h>

static int32_t align_of(const krn_matmul *mm)
{
    uintptr_t all = (uintptr_t)mm->a | (uintptr_t)mm->b | (uintptr_t)mm->d | (uintptr_t)mm->aux |
                    (uintptr_t)mm->bias | 16u;
    return (int32_t)(all & (~all + 1)); /* buffers start at 256: offsets decide, not addresses */
}

krn_lt_shape krn_lt_shape_of(const krn_matmul *mm)
{
    krn_lt_shape s;
    memset(&s, 0, sizeof s); /* compared as bytes */
    s.m = mm->m;
    s.n = mm->n;
    s.k = mm->k;
    s.lda = mm->lda;
    s.ldb = mm->ldb;
    s.ldd = mm->ldd;
    s.a_turned = mm->a_turned != 0;
    s.b_turned = mm->b_turned != 0;
    s.add = mm->add != 0;
    s.ab = (int32_t)mm->ab;
    s.d_dtype = (int32_t)mm->d_dtype;
    s.bias = mm->bias != NULL;
    s.aux = mm->aux != NULL;
    s.sums = mm->sums != NULL;
    s.align = align_of(mm);
    return s;
}

void krn_lt_key(const krn_lt_shape *s, char key[KRN_ALGO_KEY_MAX])
{
    snprintf(
        key, KRN_ALGO_KEY_MAX, "%lldx%lldx%lld ld %lld %lld %lld t%d%d +%d %s>%s b%d g%d s%d @%d",
        (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->lda, (long long)s->ldb,
        (long long)s->ldd, s->a_turned, s->b_turned, s->add, atom_dtype_name((atom_dtype)s->ab),
        atom_dtype_name((atom_dtype)s->d_dtype), s->bias, s->aux, s->sums, s->align);
}

static cudaDataType_t type_of(int32_t dtype)
{
    return (atom_dtype)dtype == ATOM_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasLtEpilogue_t epilogue_of(const krn_lt_shape *s, unsigned left)
{
    if (s->aux && !(left & KRN_LEFT_GELU))
        return s->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (s->sums && !(left & KRN_LEFT_SUMS))
        return CUBLASLT_EPILOGUE_BGRADB;
    return s->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool set(krn_lt_product *p, cublasLtMatmulDescAttributes_t what, const void *value,
                size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(p->desc, what, value, bytes) == CUBLAS_STATUS_SUCCESS;
}

void krn_lt_close(krn_lt_product *p)
{
    if (p->desc)
        (void)cublasLtMatmulDescDestroy(p->desc);
    if (p->a)
        (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->d)
        (void)cublasLtMatrixLayoutDestroy(p->d);
    p->desc = NULL;
    p->a = p->b = p->d = NULL;
}

static bool layout(cublasLtMatrixLayout_t *out, int32_t dtype, int64_t rows, int64_t columns,
                   int64_t ld)
{
    return cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)rows, (uint64_t)columns, ld) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Row-major d = op(a) op(b) is column-major d' = op(b)' op(a)': their a is our b. */
bool krn_lt_open(krn_lt_product *p, const krn_lt_shape *s, unsigned left)
{
    memset(p, 0, sizeof *p);
    p->s = *s;
    p->left = left;
    cublasOperation_t first = s->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = s->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(s, left);
    cudaDataType_t bias = type_of(epilogue == CUBLASLT_EPILOGUE_BGRADB ? s->d_dtype : s->ab);
    bool ok =
        cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    ok = ok && set(p, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    ok = ok && set(p, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    ok = ok && set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (s->bias || epilogue == CUBLASLT_EPILOGUE_BGRADB)
        ok = ok && set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias);
    if (s->aux && !(left & KRN_LEFT_GELU))
        ok = ok && set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &s->ldd, sizeof s->ldd);
    ok = ok && layout(&p->a, s->ab, s->b_turned ? s->k : s->n, s->b_turned ? s->n : s->k, s->ldb);
    ok = ok && layout(&p->b, s->ab, s->a_turned ? s->m : s->k, s->a_turned ? s->k : s->m, s->lda);
    ok = ok && layout(&p->d, s->d_dtype, s->n, s->m, s->ldd);
    if (!ok)
        krn_lt_close(p);
    return ok;
}

/* Addresses of one call. `sums` is where BGRADB writes. */
bool krn_lt_point(krn_lt_product *p, const krn_matmul *mm, float *sums)
{
    cublasLtEpilogue_t epilogue = epilogue_of(&p->s, p->left);
    const void *bias = epilogue == CUBLASLT_EPILOGUE_BGRADB ? (const void *)sums : mm->bias;
    bool ok = true;
    if (bias)
        ok = set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (mm->aux && !(p->left & KRN_LEFT_GELU))
        ok = ok && set(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &mm->aux, sizeof mm->aux);
    return ok;
}

cublasStatus_t krn_lt_multiply(cublasLtHandle_t handle, krn_lt_product *p, const krn_matmul *mm,
                               void *d, void *workspace, cudaStream_t stream)
{
    const float one = 1.0f, none = 0.0f, scale = mm->scale != 0.0f ? mm->scale : one;
    return cublasLtMatmul(handle, p->desc, &scale, mm->b, p->a, mm->a, p->b, mm->add ? &one : &none,
                          d, p->d, d, p->d, &p->algo, workspace, KRN_LT_BYTES, stream);
}
