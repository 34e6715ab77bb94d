/*
 * Scratch sizes of linear and classifier; their code is in isa/.
 */
#include "kernels/cpu/linear.h"

#include "kernels/cpu/classifier.h"

uint64_t krn_cpu_linear_workspace(atom_dtype dtype, int gelu, int backward,
                                  const int64_t dim[KRN_DIM_MAX])
{
    krn_carve carve = {NULL, 0};
    (void)linear_space_carve(&carve, dtype, gelu, backward, dim);
    return carve.used;
}

uint64_t krn_cpu_classifier_workspace(atom_dtype dtype, int backward,
                                      const int64_t dim[KRN_DIM_MAX])
{
    krn_carve carve = {NULL, 0};
    (void)classifier_space_carve(&carve, dtype, backward, dim);
    return carve.used;
}
