/*
 * Owns the words for a card that failed. One idea: a fault of the card is the device's death, said
 * once, with what to do next.
 */
#include "kernels/cuda/device_cuda.h"

bool cuda_dev_ok(cuda_dev *d, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    dev_fault_set(&d->fault,
                  atom_fail(ATOM_E_RUNTIME,
                            "the card failed (%s: %s, %s); resume from the last checkpoint, "
                            "which is not affected",
                            what, cudaGetErrorName(error), cudaGetErrorString(error)));
    return false;
}
