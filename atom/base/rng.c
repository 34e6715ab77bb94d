/* Owns the one transcendental draw. Refuses state: every number is a function of its key. */
#include "atom/base/rng.h"

#include <math.h>

double atom_rng_normal(atom_rng_key key, uint64_t element)
{
    uint32_t w[4];
    atom_rng_block(key, element, w);
    double u = ((double)((uint64_t)w[0] << 21 ^ w[1]) + 1.0) * 0x1p-53; /* (0, 1] */
    double v = (double)((uint64_t)w[2] << 21 ^ w[3]) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}
