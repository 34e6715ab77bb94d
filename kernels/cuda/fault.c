/*
 * Owns the words for a card that failed. One idea: a fault of the card is the device's death, said
 * once, with what to do next. A card that has no memory left is not broken.
 */
#include "kernels/cuda/device_cuda.h"

#include "atom/base/size.h"

/* Not of the budget, which is taken before anything runs. */
static atom_status no_memory(const char *what)
{
    size_t has = 0, all = 0;
    char there[24];
    (void)cudaMemGetInfo(&has, &all);
    return atom_fail(ATOM_E_RESOURCE,
                     "device memory: the card has no more memory for what is loaded beside the "
                     "budget (%s), %s are free; lower --device-memory, or stop other programs that "
                     "use the card; the last checkpoint is not affected",
                     what, atom_size_text(has, there));
}

bool cuda_dev_ok(cuda_dev *d, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    if (error == cudaErrorMemoryAllocation) {
        dev_fault_set(&d->fault, no_memory(what));
        return false;
    }
    dev_fault_set(&d->fault,
                  atom_fail(ATOM_E_RUNTIME,
                            "the card failed (%s: %s, %s); resume from the last checkpoint, "
                            "which is not affected",
                            what, cudaGetErrorName(error), cudaGetErrorString(error)));
    return false;
}
