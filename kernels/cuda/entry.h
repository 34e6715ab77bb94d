/*
 * What the module's entry hands out, between the files that make it. Meaning, errors and threads:
 * kernels/cuda_load.h.
 */
#ifndef KERNELS_CUDA_ENTRY_H
#define KERNELS_CUDA_ENTRY_H

#include "kernels/cuda_module.h"

ATOM_MUST atom_status krn_cuda_describe(int card, dev_cuda_info *out);
ATOM_MUST atom_status krn_cuda_open(const dev_cuda_config *config, atom_threads *threads,
                                    dev **out);
/* Of host memory that is pinned and free for the next device. */
uint64_t krn_cuda_kept_bytes(void);
uint64_t krn_cuda_free_bytes(int card);

/* The one exported symbol. NULL never. */
__attribute__((visibility("default"))) const krn_cuda_module *
atom_cuda_module(const krn_cuda_host *host);

#endif
