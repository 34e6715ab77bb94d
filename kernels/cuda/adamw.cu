/*
 * Owns AdamW on the device: the fixed sequence of fp32 operations of kernels.h, one rounding each,
 * so the bits are those of the host's. One idea: a thread takes 4 elements, all loads first; bound
 * by memory. The gradient may stand where the parameter goes. Refuses to read the clip factor from
 * the device: whoever calls knows it.
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

template <typename A>
__global__ void __launch_bounds__(THREADS, 4) adamw(krn_adamw_step step, A *wire, const A *grad,
                                                    float *master, float *m, float *v, uint64_t n)
{
    uint64_t at = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
    if (at + EACH <= n) {
        float g4[EACH], p4[EACH], m4[EACH], v4[EACH];
        load4(grad + at, g4);
        krn_load_pack(master + at, p4);
        krn_load_pack(m + at, m4);
        krn_load_pack(v + at, v4);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            (void)update(&step, g4[i], p4 + i, m4 + i, v4 + i);
        krn_store_pack(master + at, p4);
        krn_store_pack(m + at, m4);
        krn_store_pack(v + at, v4);
        store4(wire + at, p4);
        return;
    }
    for (; at < n; at++)
        store1(wire + at, update(&step, krn_float(grad[at]), master + at, m + at, v + at));
}

void krn_cuda_update(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                     const void *grad, float *master, float *m, float *v, uint64_t n)
{
    dim3 grid = krn_grid((int64_t)((n + THREADS * EACH - 1) / (THREADS * EACH)));
    if (wire_dtype == ATOM_F32)
        krn_launch(cx, adamw<float>, grid, THREADS, 0, *step, (float *)wire, (const float *)grad,
                   master, m, v, n);
    else
        krn_launch(cx, adamw<krn_bf16>, grid, THREADS, 0, *step, (krn_bf16 *)wire,
                   (const krn_bf16 *)grad, master, m, v, n);
}

void krn_cuda_adamw(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                    float *master, float *m, float *v, uint64_t n)
{
    krn_cuda_update(cx, step, wire_dtype, wire, wire, master, m, v, n);
}
