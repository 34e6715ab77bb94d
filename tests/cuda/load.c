/*
 * cuda_load: what the program's loader says about CUDA on this machine, and whether the card starts
 * with this build's code. Prints one line. Exit 0: it does; 3: CUDA is not used, and the line says
 * why.
 */
#include "kernels/cuda_load.h"

#include <stdio.h>

static atom_status start_card(void)
{
    atom_threads *threads = NULL;
    dev *d = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(atom_threads_open(1, &threads));
    ATOM_TRY_CLEAN(dev_cuda_open(&(dev_cuda_config){0}, threads, &d));
cleanup:
    dev_close(&d);
    atom_threads_close(&threads);
    return st;
}

int main(void)
{
    dev_cuda_info info;
    if (dev_cuda_describe(0, &info) != ATOM_OK || start_card() != ATOM_OK) {
        printf("%s\n", atom_fail_message());
        return 3;
    }
    printf("%s, compute capability %d.%d, %d of them\n", info.name, info.major, info.minor,
           info.cards);
    return 0;
}
