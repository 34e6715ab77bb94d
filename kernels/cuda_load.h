/*
 * The CUDA backend as the program sees it: a module that is loaded when it is first asked for
 * (libatom_cuda.so beside the program, in ../lib, or where ATOM_CUDA_MODULE says).
 *
 * Errors: ATOM_E_UNSUPPORTED with one line that says why CUDA is not used: no module, a module of
 * another build, no driver, no card, a card that is too old, a dtype that the card lacks.
 * Thread: any; loading happens once.
 */
#ifndef KERNELS_CUDA_LOAD_H
#define KERNELS_CUDA_LOAD_H

#include "kernels/device.h"

typedef struct dev_cuda_config {
    int card;                     /* as CUDA counts them */
    uint64_t budget_bytes;        /* of device memory; 0: no limit */
    double link_bytes_per_second; /* per direction; 0: not throttled */
    double link_latency_seconds;
} dev_cuda_config;

typedef struct dev_cuda_info {
    char name[128]; /* "NVIDIA GeForce RTX 4090" */
    int cards;      /* that there are */
    int major, minor;
    int multiprocessors;
    uint64_t memory_bytes;
    int driver_version, runtime_version; /* 13000: 13.0 */
    uint64_t blas_version;
} dev_cuda_info;

ATOM_MUST atom_status dev_cuda_describe(int card, dev_cuda_info *out);

/* This machine has a driver for NVIDIA cards, whether or not anything here can use them. */
bool dev_cuda_driver_there(void);

/* The card's kernels. bf16 needs compute capability 8.0. */
ATOM_MUST atom_status krn_cuda_table(int card, atom_dtype dtype, const krn_table **out);

/* Starts the card (its context, its libraries). The pool must outlive the device. */
ATOM_MUST atom_status dev_cuda_open(const dev_cuda_config *config, atom_threads *threads,
                                    dev **out);

/* Host memory that this process has pinned and that no device uses: the next one will. */
uint64_t dev_cuda_kept_bytes(void);

/* Memory of the card that nobody uses, together with what this process has taken; 0: not known.
 * Starts the card. */
uint64_t dev_cuda_free_bytes(int card);

/* For tests and tools: everything the module offers. */
typedef struct krn_cuda_module krn_cuda_module;
ATOM_MUST atom_status krn_cuda_module_get(const krn_cuda_module **out);

#endif
