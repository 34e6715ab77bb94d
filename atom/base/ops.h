/*
 * The operators atom knows, from the one table ops.def: ids, names, arities, what backward keeps.
 */
#ifndef ATOM_BASE_OPS_H
#define ATOM_BASE_OPS_H

#include <stdint.h>

typedef enum atom_op {
#define OP(name, ...) ATOM_OP_##name,
#include "atom/base/ops.def"
#undef OP
    ATOM_OP_N
} atom_op;

/* keeps */
enum { ATOM_KEEP_IN0 = 1, ATOM_KEEP_IN1 = 2, ATOM_KEEP_OUT = 4 };
/* flags */
enum {
    ATOM_OP_RANDOM = 1,
    ATOM_OP_TERMINAL = 2,
    ATOM_OP_LATE = 4,
    ATOM_OP_FUSED = 8,
    ATOM_OP_CONSTANT = 16
};

enum { ATOM_ROPE_DIVISORS_MAX = 64 };

/*
 * Rotary embedding (op rope; RoFormer, Su et al. 2021): of the first R channels of a head, channel i
 * of the first half and channel i of the second half, i < R/2, are turned together by
 * t * frequency(i) and multiplied by the gain; channels from R on pass. R is D unless width says
 * less. With f = theta^(-2i/R), frequency(i) is, rounded once to f32:
 *
 *   f / factor                     original 0: every place divided ("linear"; 1: as it is)
 *   original > 0 ("llama3"):       with the wave length w = 2 pi / f:
 *     f                            w < original / high
 *     f / factor                   w > original / low
 *     (1 - s) f / factor + s f     between, s = (original / w - low) / (high - low)
 *   yarn (Peng et al. 2023, 3.2): as between, with s = 1 - (i - a) / (b - a) held to 0 .. 1, where a
 *     channel c(n) = R ln(original / (2 pi n)) / (2 ln theta) makes n turns in original places:
 *     a = max(floor(c(high)), 0), b = min(ceil(c(low)), R - 1); where they are equal b is 0.001 more
 *   f / divisors[i]                divisors[0] > 0 (LongRoPE, Ding et al. 2024); factor is 1
 */
typedef struct atom_rope {
    float theta, factor, low, high, original;
    float gain;    /* 0: 1 */
    int32_t width; /* R, even; 0: D */
    int32_t yarn;  /* 1: original, low and high are YaRN's, high the turns of the fast channels */
    float divisors[ATOM_ROPE_DIVISORS_MAX]; /* the first R/2; or all 0 */
} atom_rope;

/* The frequency of channel i of D. */
float atom_rope_frequency(const atom_rope *rope, int64_t i, int64_t D);
/* R and the gain. */
int64_t atom_rope_width(const atom_rope *rope, int64_t D);
double atom_rope_gain(const atom_rope *rope);

typedef struct atom_op_info {
    const char *name;
    uint8_t ins, params_min, params_max, outs, saved;
    uint8_t keeps; /* ATOM_KEEP_* */
    uint8_t flags; /* ATOM_OP_RANDOM, ... */
} atom_op_info;

const atom_op_info *atom_op_get(atom_op op);
/* ATOM_OP_N if there is no such op. */
atom_op atom_op_find(const char *name);

#endif
