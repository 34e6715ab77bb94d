/*
 * Owns AdamW on the device: the fixed sequence of fp32 operations of kernels.h, one rounding each,
 * so the bits are those of the host's. One idea: memory is the limit, so a thread takes 4 elements
 * and begins with all its loads; 4 elements are also two whole random words where moments are bf16.
 * The gradient may stand where the parameter goes. Refuses to read the clip factor from the device:
 * the caller knows it.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/prim.cuh"

enum { THREADS = 256, EACH = 4 };

static __device__ __forceinline__ float update(const krn_adamw_step *s, float gradient, float *p,
                                               float *m, float *v)
{
    float g = s->scale * gradient;
    *m = krn_fma(s->beta1, *m, s->one_minus_beta1 * g);
    *v = krn_fma(s->beta2, *v, s->one_minus_beta2 * (g * g));
    float den = krn_sqrt(*v) * s->inv_sqrt_bias2 + s->eps;
    float upd = krn_div(*m * s->inv_bias1, den);
    *p = krn_fma(-s->lr, krn_fma(s->decay, *p, upd), *p);
    return *p;
}

static __device__ __forceinline__ void load4(const float *x, float v[4])
{
    krn_load_pack(x, v);
}
static __device__ __forceinline__ void load4(const krn_bf16 *x, float v[4])
{
    uint2 bits = *(const uint2 *)x;
    v[0] = krn_from_bits(bits.x << 16);
    v[1] = krn_from_bits(bits.x & 0xffff0000u);
    v[2] = krn_from_bits(bits.y << 16);
    v[3] = krn_from_bits(bits.y & 0xffff0000u);
}
static __device__ __forceinline__ void store4(float *x, const float v[4])
{
    krn_store_pack(x, v);
}
static __device__ __forceinline__ void store4(krn_bf16 *x, const float v[4])
{
    uint2 bits;
    bits.x = krn_bf16_exact(v[0]) | krn_bf16_exact(v[1]) << 16;
    bits.y = krn_bf16_exact(v[2]) | krn_bf16_exact(v[3]) << 16;
    *(uint2 *)x = bits;
}
static __device__ __forceinline__ void store1(float *x, float v)
{
    *x = v;
}
static __device__ __forceinline__ void store1(krn_bf16 *x, float v)
{
    x->bits = (uint16_t)krn_bf16_exact(v);
}

/* Moments, rounded by 16 random bits each where they are bf16. */
static __device__ __forceinline__ void store_drawn4(float *x, const float v[4], const uint32_t *)
{
    krn_store_pack(x, v);
}
static __device__ __forceinline__ void store_drawn4(krn_bf16 *x, const float v[4],
                                                    const uint32_t draw[4])
{
    uint2 bits;
    bits.x = krn_bf16_drawn(v[0], draw[0]) | krn_bf16_drawn(v[1], draw[1]) << 16;
    bits.y = krn_bf16_drawn(v[2], draw[2]) | krn_bf16_drawn(v[3], draw[3]) << 16;
    *(uint2 *)x = bits;
}
static __device__ __forceinline__ void store_drawn1(float *x, float v, uint32_t)
{
    *x = v;
}
static __device__ __forceinline__ void store_drawn1(krn_bf16 *x, float v, uint32_t draw)
{
    x->bits = (uint16_t)krn_bf16_drawn(v, draw);
}

/* A: wire copy and gradient. M: moments. */
template <typename A, typename M>
__global__ void __launch_bounds__(THREADS, 4)
    adamw(krn_adamw_step step, A *wire, const A *grad, float *master, M *m, M *v, uint64_t n)
{
    uint64_t at = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    uint32_t draw[EACH] = {0};
    if (at >= n)
        return;
    if constexpr (sizeof(M) == 2) {
        krn_step key = {};
        key.seed = step.rng.seed;
        key.step = step.rng.step;
        key.micro_batch = step.rng.micro_batch;
        uint32_t word[4];
        krn_rng_block(&key, step.rng.node, (step.first + at) / 8, word);
        bool second = at % 8 != 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            uint32_t mine = second ? word[2 + i / 2] : word[i / 2];
            draw[i] = i % 2 ? mine >> 16 : mine & 0xffff;
        }
    }
    if (at + EACH <= n) {
        float g4[EACH], p4[EACH], m4[EACH], v4[EACH];
        load4(grad + at, g4);
        krn_load_pack(master + at, p4);
        load4(m + at, m4);
        load4(v + at, v4);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            (void)update(&step, g4[i], p4 + i, m4 + i, v4 + i);
        krn_store_pack(master + at, p4);
        store_drawn4(m + at, m4, draw);
        store_drawn4(v + at, v4, draw);
        store4(wire + at, p4);
        return;
    }
    for (int i = 0; at < n; at++, i++) {
        float m1 = krn_float(m[at]), v1 = krn_float(v[at]);
        store1(wire + at, update(&step, krn_float(grad[at]), master + at, &m1, &v1));
        store_drawn1(m + at, m1, draw[i]);
        store_drawn1(v + at, v1, draw[i]);
    }
}

template <typename A>
static void launch(krn_ctx *cx, const krn_adamw_step *step, void *wire, const void *grad,
                   float *master, void *m, void *v, uint64_t n)
{
    dim3 grid = krn_grid((int64_t)((n + THREADS * EACH - 1) / (THREADS * EACH)));
    if (step->moments == ATOM_F32)
        krn_launch(cx, adamw<A, float>, grid, THREADS, 0, *step, (A *)wire, (const A *)grad, master,
                   (float *)m, (float *)v, n);
    else
        krn_launch(cx, adamw<A, krn_bf16>, grid, THREADS, 0, *step, (A *)wire, (const A *)grad,
                   master, (krn_bf16 *)m, (krn_bf16 *)v, n);
}

void krn_cuda_update(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                     const void *grad, float *master, void *m, void *v, uint64_t n)
{
    (wire_dtype == ATOM_F32 ? launch<float> : launch<krn_bf16>)(cx, step, wire, grad, master, m, v,
                                                                n);
}

void krn_cuda_adamw(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                    float *master, void *m, void *v, uint64_t n)
{
    krn_cuda_update(cx, step, wire_dtype, wire, wire, master, m, v, n);
}
