/*
 * cuda_load: what the program's loader says about CUDA on this machine. Prints one line. Exit 0:
 * there is a card; 3: CUDA is not used, and the line says why.
 */
#include "kernels/cuda_load.h"

#include <stdio.h>

int main(void)
{
    dev_cuda_info info;
    if (dev_cuda_describe(0, &info) != ATOM_OK) {
        printf("%s\n", atom_fail_message());
        return 3;
    }
    printf("%s, compute capability %d.%d, %d of them\n", info.name, info.major, info.minor,
           info.cards);
    return 0;
}
