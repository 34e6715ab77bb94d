/*
 * The program's functions, as the module sees them (cuda_module.h). atom_fail() and its kin of
 * atom/base/status.h are forwarded by host.c, so a message made here is the program's message.
 */
#ifndef KERNELS_CUDA_HOST_H
#define KERNELS_CUDA_HOST_H

#include "kernels/cuda_module.h"

/* Before anything else. Borrowed for good. */
void krn_cuda_host_set(const krn_cuda_host *host);
void krn_cuda_log(int level, const char *text);

#endif
