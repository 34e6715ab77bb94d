/*
 * Scratch sizes of linear and classifier; their code is in isa/.
 */
#include "kernels/cpu/linear.h"

#include "kernels/cpu/classifier.h"

uint64_t krn_cpu_linear_workspace(int gelu, int backward, const int64_t dim[KRN_DIM_MAX])
{
    krn_carve carve = {NULL, 0};
    (void)linear_space_carve(&carve, gelu, backward, dim);
    return carve.used;
}

uint64_t krn_cpu_classifier_workspace(atom_dtype dtype, int backward,
                                      const int64_t dim[KRN_DIM_MAX])
{
    krn_carve carve = {NULL, 0};
    (void)classifier_space_carve(&carve, backward, atom_dtype_bytes(dtype), dim);
    return carve.used;
}
