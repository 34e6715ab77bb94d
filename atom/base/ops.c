/* Owns the table form of ops.def. Refuses behaviour: shapes live in graph,
 * arithmetic in kernels. */
#include "atom/base/ops.h"

#include "atom/base/assert.h"

#include <math.h>
#include <string.h>

#define TWO_PI (2 * 3.14159265358979323846)

enum {
    KEEP_IN0 = ATOM_KEEP_IN0,
    KEEP_IN1 = ATOM_KEEP_IN1,
    KEEP_OUT = ATOM_KEEP_OUT,
    F_RANDOM = ATOM_OP_RANDOM,
    F_TERMINAL = ATOM_OP_TERMINAL,
    F_LATE = ATOM_OP_LATE,
    F_FUSED = ATOM_OP_FUSED,
    F_CONSTANT = ATOM_OP_CONSTANT
};

static const atom_op_info table[ATOM_OP_N] = {
#define OP(name, ins, params_min, params_max, outs, saved, keeps, flags)                           \
    [ATOM_OP_##name] = {#name, ins, params_min, params_max, outs, saved, keeps, flags},
#include "atom/base/ops.def"
#undef OP
};

const atom_op_info *atom_op_get(atom_op op)
{
    ATOM_ASSERT(op < ATOM_OP_N);
    return &table[op];
}

atom_op atom_op_find(const char *name)
{
    for (int i = 0; i < ATOM_OP_N; i++) {
        if (strcmp(table[i].name, name) == 0)
            return (atom_op)i;
    }
    return ATOM_OP_N;
}

int64_t atom_rope_width(const atom_rope *rope, int64_t D)
{
    return rope->width ? rope->width : D;
}

double atom_rope_gain(const atom_rope *rope)
{
    return rope->gain > 0 ? (double)rope->gain : 1.0;
}

/* The channel that makes so many turns in the original length. */
static double yarn_channel(const atom_rope *rope, double R, double turns)
{
    return R * log((double)rope->original / (turns * TWO_PI)) / (2 * log((double)rope->theta));
}

/* How much of the frequency of channel i stays as it is. */
static double yarn_share(const atom_rope *rope, double i, double R)
{
    double a = fmax(floor(yarn_channel(rope, R, (double)rope->high)), 0);
    double b = fmin(ceil(yarn_channel(rope, R, (double)rope->low)), R - 1);
    double wide = b - a > 0 || b - a < 0 ? b - a : 0.001;
    return 1 - fmin(fmax((i - a) / wide, 0), 1);
}

float atom_rope_frequency(const atom_rope *rope, int64_t i, int64_t D)
{
    double factor = (double)rope->factor, original = (double)rope->original;
    double R = (double)atom_rope_width(rope, D);
    double f = pow((double)rope->theta, -2.0 * (double)i / R);
    if (rope->divisors[0] > 0) {
        ATOM_ASSERT(i < ATOM_ROPE_DIVISORS_MAX);
        return (float)(f / (double)rope->divisors[i]);
    }
    if (!(original > 0))
        return (float)(f / factor);
    if (rope->yarn) {
        double share = yarn_share(rope, (double)i, R);
        return (float)((1 - share) * f / factor + share * f);
    }
    double wave = TWO_PI / f;
    double low = (double)rope->low, high = (double)rope->high;
    if (wave < original / high)
        return (float)f;
    if (wave > original / low)
        return (float)(f / factor);
    double s = (original / wave - low) / (high - low);
    return (float)((1 - s) * f / factor + s * f);
}
