/*
 * Owns the rotary embedding. One idea: a block takes a token; it makes the sines and cosines of its
 * place once, in shared memory, and every head of q and k is turned by them, a pack of 16 bytes of
 * either half per thread. Frequencies come from the host (atom_rope_frequency), FREQUENCIES at a
 * time. No f64, of which most cards have little: the angle is held exactly in two floats and
 * reduced by two floats' 2 pi, and what the sum loses comes back to first order. Places are below
 * 2^24; with documents apart they count from the document's start. Heads whose halves are not made
 * of whole packs go element by element.
 */
extern "C" {
#include "atom/base/ops.h"
}
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256, FREQUENCIES = 256 };

#define TURN_INVERSE 0.159154943091895f /* 1/(2 pi) */
#define TURN_HIGH 6.28318548202514648f  /* 2 pi, rounded */
#define TURN_LOW (-1.74845560e-7f)      /* what is missing */

/* Channels first .. first + pairs - 1 of a half of every head. */
struct rope_job {
    const void *from;
    void *to;
    int T, heads, values, D, P; /* heads that are turned, heads that pass (0: not by this job) */
    int token;                  /* heads of a token */
    int half, rest;             /* channels of a half that is turned; that pass (0: not by this job) */
    int first, pairs;
    float gain, sign; /* -1: turn back */
    const krn_step *step;
    float frequency[FREQUENCIES];
};

/* Cosine and sine of place * f. */
static __device__ __forceinline__ void turn_of(float place, float f, float *c, float *s)
{
    float angle = place * f, rest = krn_fma(place, f, -angle);
    float turns = rintf(angle * TURN_INVERSE);
    float high = krn_fma(-turns, TURN_HIGH, angle); /* exact */
    float low = krn_fma(-turns, TURN_LOW, rest);
    float sum = high + low, lost = low - (sum - high);
    float c0 = cosf(sum), s0 = sinf(sum);
    *c = krn_fma(-lost, s0, c0);
    *s = krn_fma(lost, c0, s0);
}

/* to = x, or to += x. */
template <typename A, int W, bool ADD>
static __device__ __forceinline__ void put_pack(A *to, const float x[W])
{
    float sum[W];
    if constexpr (ADD)
        krn_load_w<A, W>(to, sum);
#pragma unroll
    for (int i = 0; i < W; i++)
        sum[i] = ADD ? sum[i] + x[i] : x[i];
    krn_store_w<A, W>(to, sum);
}

template <typename A, int W, bool ADD>
__global__ void __launch_bounds__(THREADS) rope_turn(rope_job job)
{
    KRN_SHARED(float, cosines, FREQUENCIES);
    KRN_SHARED(float, sines, FREQUENCIES);
    int threads = (int)blockDim.x, me = (int)threadIdx.x;
    const int32_t *starts = job.step ? job.step->starts : NULL;
    int start = starts ? starts[blockIdx.x] : 0;
    float place = (float)(job.P + (int)(blockIdx.x % (unsigned)job.T) - start);
    for (int i = me; i < job.pairs; i += threads) {
        float c, s;
        turn_of(place, job.frequency[i], &c, &s);
        cosines[i] = c * job.gain;
        sines[i] = s * job.gain * job.sign;
    }
    krn_sync();
    int64_t token = (int64_t)blockIdx.x * job.token * job.D;
    const A *from = (const A *)job.from + token;
    A *to = (A *)job.to + token;
    int packs = job.pairs / W, half = job.half;
    for (int item = me; item < job.heads * packs; item += threads) {
        int head = item / packs, i = (item - head * packs) * W;
        int at = head * job.D + job.first + i;
        float a[W], b[W];
        krn_load_w<A, W>(from + at, a);
        krn_load_w<A, W>(from + at + half, b);
#pragma unroll
        for (int k = 0; k < W; k++) {
            float c = cosines[i + k], s = sines[i + k];
            float turned = krn_fma(a[k], c, -(b[k] * s));
            b[k] = krn_fma(b[k], c, a[k] * s);
            a[k] = turned;
        }
        put_pack<A, W, ADD>(to + at, a);
        put_pack<A, W, ADD>(to + at + half, b);
    }
    for (int item = me; item < job.heads * (job.rest / W); item += threads) {
        int head = item / (job.rest / W), i = (item - head * (job.rest / W)) * W;
        int at = head * job.D + 2 * half + i;
        float x[W];
        krn_load_w<A, W>(from + at, x);
        put_pack<A, W, ADD>(to + at, x);
    }
    for (int i = me * W; i < job.values * job.D; i += threads * W) {
        float v[W];
        krn_load_w<A, W>(from + job.heads * job.D + i, v);
        put_pack<A, W, ADD>(to + job.heads * job.D + i, v);
    }
}

template <typename A, int W, bool ADD>
static void run(krn_ctx *cx, const krn_args *args, const void *from, void *to, float sign)
{
    int64_t B = args->dim[0], T = args->dim[1], H = args->dim[2], D = args->dim[3];
    int64_t K = krn_kv_heads(args->dim, 2, 4), P = args->dim[5];
    int64_t half = atom_rope_width(&args->rope, D) / 2;
    ATOM_ASSERT(P >= 0 && P + T <= 1 << 24 && (H + 2 * K) * D < INT32_MAX / 2);
    for (int64_t first = 0; first < half; first += FREQUENCIES) {
        rope_job job = {};
        job.from = from;
        job.to = to;
        job.T = (int)T;
        job.heads = (int)(H + K);
        job.values = first == 0 ? (int)K : 0;
        job.D = (int)D;
        job.P = (int)P;
        job.token = (int)(H + 2 * K);
        job.half = (int)half;
        job.rest = first == 0 ? (int)(D - 2 * half) : 0;
        job.gain = (float)atom_rope_gain(&args->rope);
        job.first = (int)first;
        job.pairs = (int)(half - first < FREQUENCIES ? half - first : (int64_t)FREQUENCIES);
        job.sign = sign;
        job.step = cx->step;
        for (int i = 0; i < job.pairs; i++)
            job.frequency[i] = atom_rope_frequency(&args->rope, first + i, D);
        int64_t items = (H + K) * (job.pairs / W);
        unsigned threads = items < THREADS ? (unsigned)((items + 31) / 32 * 32) : (unsigned)THREADS;
        krn_launch(cx, rope_turn<A, W, ADD>, krn_grid(B * T), threads, 0, job);
    }
}

/* Halves and heads are made of whole packs. */
static bool in_packs(const krn_args *args, int64_t W)
{
    return args->dim[3] % (2 * W) == 0 && atom_rope_width(&args->rope, args->dim[3]) % (2 * W) == 0;
}

template <typename A> static void run_fwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    bool whole = in_packs(args, W);
    (whole ? run<A, W, false> : run<A, 1, false>)(cx, args, args->buf[0], args->buf[1], 1.0f);
}

template <typename A, bool ADD> static void run_bwd(krn_ctx *cx, const krn_args *args)
{
    constexpr int W = krn_pack<A>::N;
    bool whole = in_packs(args, W);
    if (args->buf[3])
        (whole ? run<A, W, ADD> : run<A, 1, ADD>)(cx, args, args->buf[2], args->buf[3], -1.0f);
}

void krn_cuda_rope_fwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    (act == ATOM_F32 ? run_fwd<float> : run_fwd<krn_bf16>)(cx, args);
}

void krn_cuda_rope_bwd(krn_ctx *cx, const krn_args *args, atom_dtype act)
{
    if (args->flags & KRN_ADD_D_IN0)
        (act == ATOM_F32 ? run_bwd<float, true> : run_bwd<krn_bf16, true>)(cx, args);
    else
        (act == ATOM_F32 ? run_bwd<float, false> : run_bwd<krn_bf16, false>)(cx, args);
}
