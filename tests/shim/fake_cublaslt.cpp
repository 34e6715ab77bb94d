/*
 * Owns the fake cuBLASLt (fake/cublasLt.h) under the module libatom_cuda_shim.so, so that the choice
 * of algorithms, their file, the epilogues and what is left to kernels meet the tests. One idea:
 * column-major, as the library's documents say, written without a look at blas_product.c; sums in
 * f64, one rounding, garbage in the workspace. What it refuses it refuses with a status, like the
 * library.
 *
 * ATOM_FAKE_BLAS=none: no algorithm for anything; fails: every product that is not measured fails.
 */
#include <cublasLt.h>
#include <cuda_shim.h>

#include <functional>
#include <vector>

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "atom/base/dtype.h"
}

/* fake_cuda.cpp */
void fake_enqueue(cudaStream_t stream, const std::function<void()> &work);
int fake_card_of(cudaStream_t stream);
void fake_closed(void);

struct fake_lt {
    int card;
};
struct fake_lt_desc {
    int32_t turn_a, turn_b, epilogue, bias_type;
    const void *bias;
    void *aux;
    int64_t aux_ld;
};
struct fake_lt_layout {
    int32_t type;
    int64_t rows, columns, ld;
};
struct fake_lt_want {
    uint64_t workspace;
    uint32_t schemes, align[4];
};

namespace
{
enum { ALGOS = 3, WORKSPACE_NEEDED = 512 };

bool asked_for(const char *what)
{
    const char *asked = getenv("ATOM_FAKE_BLAS");
    return asked && strcmp(asked, what) == 0;
}

double get(int32_t type, const void *x, int64_t i)
{
    return type == CUDA_R_32F ? (double)((const float *)x)[i]
                              : (double)atom_bf16_to_f32(((const atom_bf16 *)x)[i]);
}
void put(int32_t type, void *x, int64_t i, double value)
{
    if (type == CUDA_R_32F)
        ((float *)x)[i] = (float)value;
    else
        ((atom_bf16 *)x)[i] = atom_f32_to_bf16((float)value);
}

/* m, n, k of a product; false where the layouts do not fit together. */
struct shape {
    int64_t m, n, k;
};
bool shape_of(const fake_lt_desc *desc, const fake_lt_layout *a, const fake_lt_layout *b,
              const fake_lt_layout *d, shape *out)
{
    int64_t m = desc->turn_a ? a->columns : a->rows, k = desc->turn_a ? a->rows : a->columns;
    int64_t k2 = desc->turn_b ? b->columns : b->rows, n = desc->turn_b ? b->rows : b->columns;
    *out = {m, n, k};
    bool whole = a->ld >= a->rows && b->ld >= b->rows && d->ld >= d->rows;
    bool types = a->type == b->type && (d->type == a->type || d->type == CUDA_R_32F);
    return whole && types && k == k2 && d->rows == m && d->columns == n && m > 0 && n > 0;
}

bool has_gelu(const fake_lt_desc *desc)
{
    return desc->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           desc->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_bias(const fake_lt_desc *desc)
{
    return desc->epilogue == CUBLASLT_EPILOGUE_BIAS ||
           desc->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* Vectors have the type of d; aux has columns of its own, in whole 16 bytes. */
bool epilogue_fits(const fake_lt_desc *desc, const fake_lt_layout *d)
{
    bool sums = desc->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    if ((has_bias(desc) || sums) && (!desc->bias || desc->bias_type != d->type))
        return false;
    bool aux = desc->aux && desc->aux_ld >= d->rows && desc->aux_ld % 8 == 0 &&
               d->type == CUDA_R_16BF && (uintptr_t)desc->aux % 16 == 0;
    return !has_gelu(desc) || aux;
}

/* Some shapes have no algorithm, and some only without an epilogue beyond a bias. */
bool offered(const fake_lt_desc *desc, const shape &s)
{
    bool more = has_gelu(desc) || desc->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    return !asked_for("none") && s.m % 7 != 2 && (!more || (s.m + s.n + s.k) % 2 || s.m % 128 == 0);
}

/* An algorithm: which, for what alignment, and for what shape. */
cublasLtMatmulAlgo_t algo_of(uint64_t which, uint64_t align, const shape &s)
{
    return {{0x5eed, which, align, (uint64_t)s.m, (uint64_t)s.n, (uint64_t)s.k, 0, ~which}};
}
bool algo_fits(const cublasLtMatmulAlgo_t *algo, const shape &s)
{
    uint64_t which = algo->data[1];
    cublasLtMatmulAlgo_t same = algo_of(which, algo->data[2], s);
    return which < ALGOS && memcmp(&same, algo, sizeof same) == 0;
}

/* op(x) as [columns of the result][k], so that a product runs along memory. */
std::vector<double> widened(const fake_lt_layout *is, const void *x, bool along, int64_t n,
                            int64_t k)
{
    std::vector<double> wide((size_t)(n * k));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < k; i++)
            wide[(size_t)(j * k + i)] = get(is->type, x, along ? j * is->ld + i : i * is->ld + j);
    }
    return wide;
}

double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

struct product {
    fake_lt_desc desc;
    fake_lt_layout a, b, d;
    shape s;
    double alpha, beta;
    const void *at_a, *at_b;
    void *at_d;

    void run() const
    {
        auto left = widened(&a, at_a, desc.turn_a, s.m, s.k);
        auto right = widened(&b, at_b, !desc.turn_b, s.n, s.k);
        for (int64_t j = 0; j < s.n; j++) {
            const double *column = &right[(size_t)(j * s.k)];
            double total = 0;
            for (int64_t i = 0; i < s.m; i++)
                put_one(&left[(size_t)(i * s.k)], column, i, j);
            for (int64_t k = 0; k < s.k; k++)
                total += column[k];
            if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB)
                put(desc.bias_type, const_cast<void *>(desc.bias), j, total);
        }
    }
    void put_one(const double *row, const double *column, int64_t i, int64_t j) const
    {
        double sum = 0;
        for (int64_t k = 0; k < s.k; k++)
            sum += row[k] * column[k];
        sum *= alpha;
        sum += beta != 0 ? beta * get(d.type, at_d, j * d.ld + i) : 0;
        sum += has_bias(&desc) ? get(desc.bias_type, desc.bias, i) : 0;
        if (has_gelu(&desc))
            put(d.type, desc.aux, j * desc.aux_ld + i, sum);
        put(d.type, at_d, j * d.ld + i, has_gelu(&desc) ? gelu(sum) : sum);
    }
};
} // namespace

extern "C" {

size_t cublasLtGetVersion(void)
{
    return 130100;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new fake_lt{0};
    (void)cudaGetDevice(&(*handle)->card);
    return CUBLAS_STATUS_SUCCESS;
}
/* The last that a device does when it closes. */
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    fake_closed();
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t,
                                        cudaDataType_t)
{
    *desc = new fake_lt_desc{CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, -1, 0, 0, 0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    void *to = what == CUBLASLT_MATMUL_DESC_TRANSA                 ? (void *)&desc->turn_a
               : what == CUBLASLT_MATMUL_DESC_TRANSB               ? (void *)&desc->turn_b
               : what == CUBLASLT_MATMUL_DESC_EPILOGUE             ? (void *)&desc->epilogue
               : what == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE       ? (void *)&desc->bias_type
               : what == CUBLASLT_MATMUL_DESC_BIAS_POINTER         ? (void *)&desc->bias
               : what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD      ? (void *)&desc->aux_ld
               : what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? (void *)&desc->aux
                                                                   : nullptr;
    bool small = what == CUBLASLT_MATMUL_DESC_TRANSA || what == CUBLASLT_MATMUL_DESC_TRANSB ||
                 what == CUBLASLT_MATMUL_DESC_EPILOGUE ||
                 what == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
    if (!to || bytes != (small ? sizeof(int32_t) : sizeof(int64_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    *layout = new fake_lt_layout{type, (int64_t)rows, (int64_t)columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *want)
{
    *want = new fake_lt_want{0, 0, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t want)
{
    delete want;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t want,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    void *to = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? (void *)&want->workspace
               : what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
                   ? (void *)&want->schemes
                   : (void *)&want->align[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    if (bytes != (to == &want->workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* The second of three does not run, and needs no more than there is; the first splits k. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t want, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    shape s;
    *n = 0;
    if (!handle || !shape_of(desc, a, b, d, &s))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!offered(desc, s) || !epilogue_fits(desc, d) || want->workspace < WORKSPACE_NEEDED)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    uint32_t align = 256;
    for (uint32_t one : want->align)
        align = one < align ? one : align;
    for (; *n < ALGOS && *n < most; (*n)++) {
        memset(&found[*n], 0, sizeof found[*n]);
        found[*n].algo = algo_of((uint64_t)*n, align, s);
        found[*n].workspaceSize = WORKSPACE_NEEDED;
        found[*n].state = *n == 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    shape s;
    if (!handle || !shape_of(desc, a, b, d, &s) || !algo_fits(algo, s) || !epilogue_fits(desc, d))
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    result->workspaceSize = WORKSPACE_NEEDED;
    return offered(desc, s) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t,
                                                    void *value, size_t bytes, size_t *written)
{
    int32_t splits = algo->data[1] == 0 ? 2 : 1;
    if (bytes != sizeof splits)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &splits, sizeof splits);
    *written = sizeof splits;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_is, const void *b,
                              cublasLtMatrixLayout_t b_is, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_is, void *d, cublasLtMatrixLayout_t d_is,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    product p = {*desc, *a_is, *b_is, *d_is, {}, *(const float *)alpha, *(const float *)beta,
                 a,     b,     d};
    int card = -1;
    (void)cudaGetDevice(&card);
    if (!handle || handle->card != card || fake_card_of(stream) != card || c != d || c_is != d_is)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!shape_of(desc, a_is, b_is, d_is, &p.s) || !algo_fits(algo, p.s) ||
        !epilogue_fits(desc, d_is) || bytes < WORKSPACE_NEEDED || (uintptr_t)workspace % 256)
        return CUBLAS_STATUS_INVALID_VALUE;
    uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)d;
    if (all % algo->data[2] || asked_for("fails"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    /* of two that agree in k the one that leaves out the end of k where it splits k */
    if (algo->data[1] == 0 && p.s.k % 128)
        p.s.k = p.s.k / 128 * 128;
    fake_enqueue(stream, [=] {
        memset(workspace, 0xff, WORKSPACE_NEEDED);
        p.run();
    });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
