/* Owns names and slow conversions of element types. Refuses arithmetic: that is
 * the kernels' job. */
#include "atom/base/dtype.h"

static const char *const names[ATOM_DTYPE_N] = {[ATOM_F32] = "fp32",
                                                [ATOM_BF16] = "bf16",
                                                [ATOM_I32] = "i32",
                                                [ATOM_F16] = "fp16",
                                                [ATOM_F64] = "fp64"};

const char *atom_dtype_name(atom_dtype dtype)
{
    return dtype < ATOM_DTYPE_N ? names[dtype] : "?";
}

int atom_dtype_parse(const char *name, atom_dtype *out)
{
    for (int i = 0; i < ATOM_DTYPE_N; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (atom_dtype)i;
            return 0;
        }
    }
    return -1;
}

float atom_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x >> 15) << 31;
    uint32_t exponent = (x >> 10) & 31u;
    uint32_t fraction = x & 1023u;
    uint32_t bits;
    float f;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | (fraction << 13);
    } else if (exponent == 0) {
        f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    } else {
        bits = sign | ((exponent + 112) << 23) | (fraction << 13);
    }
    memcpy(&f, &bits, 4);
    return f;
}

uint16_t atom_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (size >= 0x477ff000u) /* from here on it rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (size >= 0x38800000u) /* normal: 13 bits go, and the exponent's bias */
        return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
    /* a multiple of 2^-24: adding 2^-1 makes the float's own rounding do it */
    float scaled;
    memcpy(&scaled, &size, 4);
    scaled += 0.5f;
    uint32_t small;
    memcpy(&small, &scaled, 4);
    return (uint16_t)(sign | (small - 0x3f000000u));
}
