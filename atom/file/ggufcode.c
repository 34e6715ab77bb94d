/*
 * Owns numbers in the forms of GGUF. One idea: each form rounds once, to the nearest, ties to even
 * but for Q8_0, which rounds as ggml does. Refuses nothing; infinities stay infinities.
 */
#include "atom/base/dtype.h"
#include "atom/file/gguf.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { F16_INFINITE = 0x7c00, BF16_INFINITE = 0x7f80 };

static bool is_lost(float x, uint16_t half, uint16_t infinite)
{
    return isfinite(x) && (half & 0x7fffu) == infinite;
}

static uint64_t encode_q8(const float *x, uint64_t blocks, uint8_t *out)
{
    uint64_t lost = 0;
    for (uint64_t b = 0; b < blocks; b++, x += FILE_GGUF_Q8_BLOCK, out += 2 + FILE_GGUF_Q8_BLOCK) {
        float most = 0;
        for (int i = 0; i < FILE_GGUF_Q8_BLOCK; i++)
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        float d = most / 127.0f, inverse = d > 0 ? 1.0f / d : 0;
        uint16_t scale = atom_f32_to_f16(d);
        memcpy(out, &scale, 2);
        lost += is_lost(d, scale, F16_INFINITE) ? FILE_GGUF_Q8_BLOCK : 0;
        for (int i = 0; i < FILE_GGUF_Q8_BLOCK; i++) {
            float q = roundf(x[i] * inverse);
            q = q >= -127 && q <= 127 ? q : 0; /* of what is not finite nothing is left */
            out[2 + i] = (uint8_t)(int8_t)q;
        }
    }
    return lost;
}

uint64_t file_gguf_encode(file_gguf_type type, const float *x, uint64_t n, void *out)
{
    uint16_t *words = out;
    uint64_t lost = 0;
    switch (type) {
    case FILE_GGUF_F32:
        memcpy(out, x, n * sizeof *x);
        break;
    case FILE_GGUF_F16:
        for (uint64_t i = 0; i < n; i++) {
            words[i] = atom_f32_to_f16(x[i]);
            lost += is_lost(x[i], words[i], F16_INFINITE);
        }
        break;
    case FILE_GGUF_BF16:
        for (uint64_t i = 0; i < n; i++) {
            words[i] = atom_f32_to_bf16(x[i]);
            lost += is_lost(x[i], words[i], BF16_INFINITE);
        }
        break;
    case FILE_GGUF_Q8_0:
        lost = encode_q8(x, n / FILE_GGUF_Q8_BLOCK, out);
        break;
    }
    return lost;
}
