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

uint64_t krn_cpu_classifier_workspace(int backward, const int64_t dim[KRN_DIM_MAX])
{
    krn_carve narrow = {NULL, 0}, wide = {NULL, 0};
    (void)classifier_space_carve(&narrow, backward, 2, dim);
    (void)classifier_space_carve(&wide, backward, 4, dim);
    return narrow.used > wide.used ? narrow.used : wide.used;
}
