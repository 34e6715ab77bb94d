/*
 * Owns the codecs. Its one idea: every loop is written once, without branches and with integer
 * tricks for the comparisons, so that the compiler vectorises it for each instruction set; which
 * one runs is asked of the processor. It refuses fused multiply-adds, so that all give the same
 * bits.
 */
#include "gossip/sum/quant.h"

#include "gossip/sum/isa.h"

#include "atom/base/assert.h"
#include "atom/base/dtype.h"

#include <string.h>

/* Added to a small float and taken away again, this rounds it to an integer, to nearest even; that
 * integer's low byte is then the float's low byte. */
#define ROUNDER 12582912.0f /* 1.5 * 2^23 */
enum { FINITE_BELOW = 0x7f800000, STEP = 4096 };
_Static_assert(STEP % GSP_INT8_BLOCK == 0, "steps are whole blocks");

static const char *const names[GSP_CODEC_N] = {"fp32", "bf16", "int8"};

const char *gsp_codec_name(gsp_codec codec)
{
    return names[codec];
}

bool gsp_codec_parse(const char *name, gsp_codec *out)
{
    for (int i = 0; i < GSP_CODEC_N; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (gsp_codec)i;
            return true;
        }
    }
    return false;
}

static uint64_t blocks_of(uint64_t n)
{
    return (n + GSP_INT8_BLOCK - 1) / GSP_INT8_BLOCK;
}

uint64_t gsp_codec_bytes(gsp_codec codec, uint64_t n)
{
    switch (codec) {
    case GSP_CODEC_FP32:
        return 4 * n;
    case GSP_CODEC_BF16:
        return 2 * n;
    case GSP_CODEC_INT8:
        return 4 * blocks_of(n) + n;
    case GSP_CODEC_N:
        break;
    }
    ATOM_UNREACHABLE("unknown codec");
}

/* --- loops over at most STEP floats --- */

GSP_INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The largest |x| as bits: floats without sign compare as integers, and NaN and infinity last. */
GSP_INLINE uint32_t top_body(const float *restrict x, uint64_t n)
{
    uint32_t top = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(x[i]) & 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    return top;
}
GSP_FOR_ISAS(uint32_t, top, (const float *restrict x, uint64_t n), (x, n))

GSP_INLINE void add_body(float *restrict sum, const float *restrict x, const float *restrict y,
                         uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] = x[i] + y[i];
}
GSP_FOR_ISAS(void, add,
             (float *restrict sum, const float *restrict x, const float *restrict y, uint64_t n),
             (sum, x, y, n))

GSP_INLINE void bf16_body(atom_bf16 *restrict out, const float *restrict x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(x[i]); /* finite, so no NaN to keep */
        out[i] = (atom_bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
}
GSP_FOR_ISAS(void, bf16, (atom_bf16 *restrict out, const float *restrict x, uint64_t n),
             (out, x, n))

GSP_INLINE void from_bf16_body(float *restrict x, const atom_bf16 *restrict in, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = atom_bf16_to_f32(in[i]);
}
GSP_FOR_ISAS(void, from_bf16, (float *restrict x, const atom_bf16 *restrict in, uint64_t n),
             (x, in, n))

GSP_INLINE void int8_body(int8_t *restrict out, const float *restrict x, uint64_t n, float inverse)
{
    for (uint64_t i = 0; i < n; i++) {
        float rounded = x[i] * inverse + ROUNDER;
        out[i] = (int8_t)(bits_of(rounded) & 0xffu);
    }
}
GSP_FOR_ISAS(void, int8, (int8_t *restrict out, const float *restrict x, uint64_t n, float inverse),
             (out, x, n, inverse))

GSP_INLINE void from_int8_body(float *restrict x, const int8_t *restrict in, uint64_t n,
                               float scale)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)in[i] * scale;
}
GSP_FOR_ISAS(void, from_int8,
             (float *restrict x, const int8_t *restrict in, uint64_t n, float scale),
             (x, in, n, scale))

GSP_INLINE void lose_body(float *restrict lost, const float *restrict x, const float *restrict kept,
                          uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        lost[i] = x[i] - kept[i];
}
GSP_FOR_ISAS(void, lose,
             (float *restrict lost, const float *restrict x, const float *restrict kept,
              uint64_t n),
             (lost, x, kept, n))

/* --- whole arrays, a step at a time: steps stay in the cache --- */

bool gsp_all_finite(const float *x, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += STEP) {
        if (top(x + at, n - at < STEP ? n - at : STEP) >= FINITE_BELOW)
            return false;
    }
    return true;
}

/* scale and 127 / max of a block; zeros, and blocks so small that the inverse would not be finite,
 * are sent as zeros. */
static float int8_scale(const float *x, uint64_t n, float *inverse)
{
    uint32_t bits = top(x, n);
    float most;
    memcpy(&most, &bits, sizeof most);
    *inverse = 127.0f / most;
    if (most < 1e-30f) {
        *inverse = 0.0f;
        return 0.0f;
    }
    return most / 127.0f;
}

/* One step's encoding in `to`, and in kept[n] what it decodes to if that is wanted. */
static void encode_step(gsp_codec codec, const float *x, uint64_t n, char *to, float *scale,
                        float *kept)
{
    float inverse;
    switch (codec) {
    case GSP_CODEC_FP32:
        memcpy(to, x, n * 4);
        if (kept)
            memcpy(kept, x, n * 4);
        break;
    case GSP_CODEC_BF16:
        bf16((atom_bf16 *)(void *)to, x, n);
        if (kept)
            from_bf16(kept, (const atom_bf16 *)(const void *)to, n);
        break;
    case GSP_CODEC_INT8:
        *scale = int8_scale(x, n, &inverse);
        int8((int8_t *)to, x, n, inverse);
        if (kept)
            from_int8(kept, (const int8_t *)to, n, *scale);
        break;
    case GSP_CODEC_N:
        ATOM_UNREACHABLE("unknown codec");
    }
}

void gsp_encode(gsp_codec codec, const float *x, uint64_t n, const float *residual, void *out,
                float *lost)
{
    float sum[STEP], kept[STEP], scale = 0.0f;
    uint64_t each = codec == GSP_CODEC_FP32 ? 4 : codec == GSP_CODEC_BF16 ? 2 : 1;
    char *data = (char *)out + (codec == GSP_CODEC_INT8 ? 4 * blocks_of(n) : 0);
    for (uint64_t at = 0; at < n; at += STEP) {
        uint64_t m = n - at < STEP ? n - at : STEP;
        const float *from = x + at;
        if (residual) {
            add(sum, x + at, residual + at, m);
            from = sum;
        }
        encode_step(codec, from, m, data + at * each, &scale, lost ? kept : NULL);
        if (codec == GSP_CODEC_INT8)
            memcpy((char *)out + at / GSP_INT8_BLOCK * 4, &scale, 4);
        if (lost)
            lose(lost + at, from, kept, m);
    }
}

/* Only what int8_scale() can give. */
static bool scale_ok(float scale)
{
    return scale >= 0.0f && scale <= 3.4028235e38f / 127.0f * 1.0001f;
}

bool gsp_decode(gsp_codec codec, const void *in, uint64_t bytes, float *x, uint64_t n)
{
    if ((unsigned)codec >= GSP_CODEC_N || n > UINT64_MAX / 8 || bytes != gsp_codec_bytes(codec, n))
        return false;
    const char *data = (const char *)in + (codec == GSP_CODEC_INT8 ? 4 * blocks_of(n) : 0);
    for (uint64_t at = 0; at < n; at += STEP) {
        uint64_t m = n - at < STEP ? n - at : STEP;
        float scale = 0.0f;
        if (codec == GSP_CODEC_FP32) {
            memcpy(x + at, data + at * 4, m * 4);
        } else if (codec == GSP_CODEC_BF16) {
            from_bf16(x + at, (const atom_bf16 *)(const void *)(data + at * 2), m);
        } else {
            memcpy(&scale, (const char *)in + at / GSP_INT8_BLOCK * 4, 4);
            if (!scale_ok(scale))
                return false;
            from_int8(x + at, (const int8_t *)(data + at), m, scale);
        }
        if (top(x + at, m) >= FINITE_BELOW)
            return false;
    }
    return true;
}
