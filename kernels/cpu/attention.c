/*
 * Scratch size of attention; its code is in isa/.
 */
#include "kernels/cpu/attention.h"

uint64_t krn_cpu_attention_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    krn_carve plain = {NULL, 0}, amx = {NULL, 0};
    (void)attention_space_carve(&plain, backward, dim[1], dim[3]);
    (void)attention_amx_space_carve(&amx, backward, dim[1], dim[3]);
    uint64_t most = plain.used > amx.used ? plain.used : amx.used;
    return most * (uint64_t)(dim[0] * dim[2]);
}
