/*
 * Scratch size of attention; its code is in isa/.
 */
#include "kernels/cpu/attention.h"

uint64_t krn_cpu_attention_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    krn_carve carve = {NULL, 0};
    (void)attention_space_carve(&carve, backward, dim[1], dim[3]);
    return carve.used * (uint64_t)(dim[0] * dim[2]);
}
