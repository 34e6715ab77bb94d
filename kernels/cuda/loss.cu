/*
 * Owns cross_entropy and the classifier. One idea: a block takes a row of logits, finds its largest
 * and its sum of exponentials in one pass (every thread keeps its own pair, combined in a fixed
 * order), and writes loss and gradient in a second pass that the caches serve. The classifier never
 * holds all logits: f32 logits of a few rows at a time, d logits in act for a larger chunk, then
 * the two products of that chunk. Both sizes (atom/base/classifier.h) depend on dims alone, so bits
 * depend on no plan.
 */
#include "atom/base/classifier.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

#include <math.h>

enum {
    THREADS_MAX = 512,
    THREADS_MIN = 128,
    VECTOR = 8 /* 16 bytes of bf16 */
};
#if !defined(KRN_LOGIT_ROWS_MAX) /* the tests' shim makes chunks small, to cross them */
#define KRN_LOGIT_ROWS_MAX ATOM_CLASSIFIER_LOGIT_ROWS_MAX
#define KRN_D_ROWS_MAX ATOM_CLASSIFIER_D_ROWS_MAX
#endif

/* Largest value so far and sum of exp(x - largest). */
struct top_sum {
    float top, sum;
};

template <typename A> static __device__ __forceinline__ top_sum join(top_sum a, top_sum b)
{
    top_sum both;
    both.top = fmaxf(a.top, b.top);
    if (both.top == -INFINITY) {
        both.sum = 0.0f;
        return both;
    }
    both.sum = a.sum * krn_exp<A>(a.top - both.top) + b.sum * krn_exp<A>(b.top - both.top);
    return both;
}

template <typename A> static __device__ __forceinline__ top_sum join_warp(top_sum mine)
{
#pragma unroll
    for (int away = 16; away; away >>= 1) {
        top_sum other;
        other.top = krn_shuffle_xor(mine.top, away);
        other.sum = krn_shuffle_xor(mine.sum, away);
        mine = join<A>(mine, other);
    }
    return mine;
}

/* Adds W values at once: one new largest, W exponentials, one correction. */
template <typename A, int W>
static __device__ __forceinline__ void take(top_sum *mine, const float x[W])
{
    float top = mine->top;
#pragma unroll
    for (int i = 0; i < W; i++)
        top = fmaxf(top, x[i]);
    float sum = 0.0f;
    if (top == -INFINITY)
        return;
#pragma unroll
    for (int i = 0; i < W; i++)
        sum += krn_exp<A>(x[i] - top);
    mine->sum = krn_fma(mine->sum, krn_exp<A>(mine->top - top), sum);
    mine->top = top;
}

/* What a row kernel works on. Rows of logits (L) and d (A) are ld apart. */
struct loss_job {
    const void *logits;
    const int32_t *targets;
    float *loss;
    void *d; /* or NULL */
    int64_t V, ld;
    const krn_step *step;
    float cap, inv_cap; /* 0: logits are not capped */
};

static __device__ __forceinline__ float capped(const loss_job &job, float x)
{
    return job.cap != 0.0f ? job.cap * tanhf(x * job.inv_cap) : x;
}

/* The slope of capped() where that is y. */
static __device__ __forceinline__ float cap_slope(const loss_job &job, float y)
{
    float share = y * job.inv_cap;
    return krn_fma(-share, share, 1.0f);
}

/* Loss, and gradient where job.d is there. W: elements per access, for both L and A. */
template <typename L, typename A, int W, bool ADD>
__global__ void __launch_bounds__(THREADS_MAX) loss_rows(loss_job job)
{
    KRN_SHARED(float, fold, 64);
    const L *x = (const L *)job.logits + (int64_t)blockIdx.x * job.ld;
    A *d = job.d ? (A *)job.d + (int64_t)blockIdx.x * job.ld : nullptr;
    int64_t target = job.targets[blockIdx.x], whole = job.V / W * W, step = (int64_t)blockDim.x * W;
    int64_t first = (int64_t)threadIdx.x * W;
    if (target < 0) {
        if (threadIdx.x == 0)
            job.loss[blockIdx.x] = 0.0f;
        if (!d || ADD)
            return;
        for (int64_t v = threadIdx.x; v < job.V; v += blockDim.x)
            krn_put(d + v, 0.0f);
        return;
    }
    top_sum mine = {-INFINITY, 0.0f};
#pragma unroll 2
    for (int64_t v = first; v < whole; v += step) {
        float at[W];
        krn_load_w<L, W>(x + v, at);
#pragma unroll
        for (int i = 0; i < W; i++)
            at[i] = capped(job, at[i]);
        take<A, W>(&mine, at);
    }
    for (int64_t v = whole + threadIdx.x; v < job.V; v += blockDim.x) {
        float at = capped(job, krn_float(x[v]));
        take<A, 1>(&mine, &at);
    }
    mine = join_warp<A>(mine);
    if (krn_lane() == 0) {
        fold[krn_warp()] = mine.top;
        fold[32 + krn_warp()] = mine.sum;
    }
    krn_sync();
    top_sum all = {fold[0], fold[32]};
    for (int i = 1; i < krn_warps(); i++) {
        top_sum other = {fold[i], fold[32 + i]};
        all = join<A>(all, other);
    }
    float log_sum = logf(all.sum);
    if (threadIdx.x == 0)
        job.loss[blockIdx.x] = log_sum + (all.top - capped(job, krn_float(x[target])));
    if (!d)
        return;
    float scale = job.step->loss_scale, inv = krn_div(1.0f, all.sum);
#pragma unroll 2
    for (int64_t v = first; v < whole; v += step) {
        float at[W], old[W];
        krn_load_w<L, W>(x + v, at);
        if constexpr (ADD)
            krn_load_w<A, W>(d + v, old);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float y = capped(job, at[i]), p = krn_exp<A>(y - all.top) * inv;
            p = v + i == target ? p - 1.0f : p;
            p *= cap_slope(job, y);
            at[i] = ADD ? krn_fma(scale, p, old[i]) : scale * p;
        }
        krn_store_w<A, W>(d + v, at);
    }
    for (int64_t v = whole + threadIdx.x; v < job.V; v += blockDim.x) {
        float y = capped(job, krn_float(x[v])), p = krn_exp<A>(y - all.top) * inv;
        p = v == target ? p - 1.0f : p;
        p *= cap_slope(job, y);
        krn_put(d + v, ADD ? krn_fma(scale, p, krn_float(d[v])) : scale * p);
    }
}

template <typename L, typename A, int W>
static void launch_rows(krn_ctx *cx, const loss_job *job, int64_t rows, bool add)
{
    unsigned threads = job->V >= 16384 ? THREADS_MAX : THREADS_MIN;
    krn_launch(cx, add ? loss_rows<L, A, W, true> : loss_rows<L, A, W, false>, krn_grid(rows),
               threads, 0, *job);
}

static float inverse(float cap)
{
    return cap > 0.0f ? 1.0f / cap : 0.0f;
}

static void cross_entropy(krn_ctx *cx, const krn_args *args, void *d, atom_dtype act)
{
    void *const *buf = args->buf;
    int64_t N = args->dim[0], V = args->dim[1];
    loss_job job = {buf[0],    (const int32_t *)buf[1], (float *)buf[2], d, V, V, cx->step,
                    args->cap, inverse(args->cap)};
    bool add = d && (args->flags & KRN_ADD_D_IN0);
    if (act == ATOM_F32)
        (V % 4 ? launch_rows<float, float, 1> : launch_rows<float, float, 4>)(cx, &job, N, add);
    else
        (V % 8 ? launch_rows<krn_bf16, krn_bf16, 1> : launch_rows<krn_bf16, krn_bf16, 8>)(cx, &job,
                                                                                          N, add);
}

void krn_cuda_cross_entropy_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    cross_entropy(cx, args, nullptr, act);
}

void krn_cuda_cross_entropy_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    cross_entropy(cx, args, args->buf[4], act);
}

static atom_classifier room_of(int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act)
{
    return atom_classifier_of(dim[0], dim[2], backward ? (int64_t)atom_dtype_bytes(act) : 0,
                              KRN_LOGIT_ROWS_MAX, KRN_D_ROWS_MAX);
}

uint64_t krn_cuda_classifier_workspace(int backward, const int64_t dim[KRN_DIM_MAX], atom_dtype act)
{
    return room_of(backward, dim, act).bytes + krn_cuda_matmul_workspace();
}

/* One chunk of rows: buffers of the op, moved to its first row. */
struct classifier {
    krn_ctx *cx;
    atom_classifier r;
    int64_t C, V;
    atom_dtype act;
    const void *x, *w;
    const int32_t *targets;
    float *loss, *dw;
    void *dx;
    bool add, backward; /* backward: d logits are made */
    float cap;
};

static unsigned char *scratch_of(const classifier *c, uint64_t at)
{
    return (unsigned char *)c->cx->workspace + at;
}

static const void *element(const void *x, int64_t i, atom_dtype act)
{
    return (const unsigned char *)x + i * (int64_t)atom_dtype_bytes(act);
}

static void multiply(const classifier *c, const krn_matmul *mm)
{
    krn_cuda_matmul(c->cx, mm, scratch_of(c, c->r.bytes));
}

/* How many tokens a product takes from token v on: whole vectors first, then what is left. Of 50257
 * at once cuBLASLt makes 100 TFLOP/s on an H200, of 50256 six times that. */
static int64_t tokens_from(const classifier *c, int64_t v)
{
    int64_t whole = c->V / VECTOR * VECTOR;
    return v < whole ? whole - v : c->V - v;
}

/* Logits, losses and d logits of rows first .. first + rows - 1 of the chunk. */
static void score_rows(const classifier *c, int64_t first, int64_t rows)
{
    float *logits = (float *)scratch_of(c, 0);
    krn_matmul mm = {};
    mm.m = rows;
    mm.k = c->C;
    mm.a = element(c->x, first * c->C, c->act);
    mm.b_turned = 1;
    mm.lda = mm.ldb = c->C;
    mm.ldd = c->r.ld;
    mm.ab = c->act;
    mm.d_dtype = ATOM_F32;
    for (int64_t v = 0; v < c->V; v += mm.n) {
        mm.n = tokens_from(c, v);
        mm.b = element(c->w, v * c->C, c->act);
        mm.d = logits + v;
        multiply(c, &mm);
    }
    void *d = scratch_of(c, c->r.d_at + (uint64_t)(first * c->r.ld) * atom_dtype_bytes(c->act));
    loss_job job = {logits,
                    c->targets + first,
                    c->loss + first,
                    c->backward ? d : nullptr,
                    c->V,
                    c->r.ld,
                    c->cx->step,
                    c->cap,
                    inverse(c->cap)};
    (c->act == ATOM_F32 ? launch_rows<float, float, 4>
                        : launch_rows<float, krn_bf16, 8>)(c->cx, &job, rows, false);
}

/* dx (+)= d w over the chunk: the few tokens first, so that what is rounded once more is small. */
static void multiply_dx(const classifier *c, int64_t rows)
{
    krn_matmul mm = {};
    mm.m = rows;
    mm.n = mm.ldb = mm.ldd = c->C;
    mm.lda = c->r.ld;
    mm.ab = mm.d_dtype = c->act;
    mm.d = c->dx;
    mm.add = c->add;
    for (int64_t end = c->V; end > 0; end -= mm.k) {
        mm.k = end % VECTOR ? end % VECTOR : end;
        mm.a = element(scratch_of(c, c->r.d_at), end - mm.k, c->act);
        mm.b = element(c->w, (end - mm.k) * c->C, c->act);
        multiply(c, &mm);
        mm.add = 1;
    }
}

/* dw += d' x over the chunk. */
static void multiply_dw(const classifier *c, int64_t rows)
{
    krn_matmul mm = {};
    mm.k = rows;
    mm.n = mm.ldb = mm.ldd = c->C;
    mm.lda = c->r.ld;
    mm.a_turned = 1;
    mm.b = c->x;
    mm.ab = c->act;
    mm.d_dtype = ATOM_F32;
    mm.add = 1;
    for (int64_t v = 0; v < c->V; v += mm.m) {
        mm.m = tokens_from(c, v);
        mm.a = element(scratch_of(c, c->r.d_at), v, c->act);
        mm.d = c->dw + v * c->C;
        multiply(c, &mm);
    }
}

static void classify(classifier *c, int64_t N)
{
    int64_t chunk = c->backward ? c->r.d_rows : c->r.logit_rows;
    for (int64_t n = 0; n < N; n += chunk) {
        int64_t rows = n + chunk < N ? chunk : N - n;
        for (int64_t first = 0; first < rows; first += c->r.logit_rows)
            score_rows(c, first, first + c->r.logit_rows < rows ? c->r.logit_rows : rows - first);
        if (c->dx)
            multiply_dx(c, rows);
        if (c->dw)
            multiply_dw(c, rows);
        c->x = element(c->x, rows * c->C, c->act);
        c->dx = c->dx ? (void *)element(c->dx, rows * c->C, c->act) : nullptr;
        c->targets += rows;
        c->loss += rows;
    }
}

static classifier classifier_of(krn_ctx *cx, const krn_args *args, int backward, atom_dtype act)
{
    void *const *buf = args->buf;
    classifier c = {};
    c.cx = cx;
    c.r = room_of(backward, args->dim, act);
    c.C = args->dim[1];
    c.V = args->dim[2];
    c.act = act;
    c.x = buf[0];
    c.targets = (const int32_t *)buf[1];
    c.w = buf[2];
    c.loss = (float *)buf[3];
    c.cap = args->cap;
    return c;
}

void krn_cuda_classifier_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    classifier c = classifier_of(cx, args, 0, act);
    classify(&c, args->dim[0]);
}

void krn_cuda_classifier_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    classifier c = classifier_of(cx, args, 1, act);
    c.dx = args->buf[5];
    c.dw = (float *)args->buf[7];
    c.add = args->flags & KRN_ADD_D_IN0;
    c.backward = c.dx || c.dw;
    if (!c.backward)
        c.r = room_of(0, args->dim, act);
    classify(&c, args->dim[0]);
}
