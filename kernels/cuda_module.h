/*
 * What the program and its CUDA module (libatom_cuda.so) say to each other. The module is loaded at
 * run time, so that the program starts, plans and simulates on a machine without a driver. It has
 * its own copy of atom/base; messages, logging and the thread pool are the program's, through
 * krn_cuda_host.
 *
 * The module shows one symbol, atom_cuda_module(). Both sides must come from one build: the number
 * below is made of the sizes of everything that crosses.
 */
#ifndef KERNELS_CUDA_MODULE_H
#define KERNELS_CUDA_MODULE_H

#include "kernels/cuda_load.h"
#include "kernels/device.h"

#include <stdint.h>

enum { KRN_CUDA_VERSION = 3 }; /* raise it when a meaning changes and no size does */

/* The program's side. All may be called from any thread. */
typedef struct krn_cuda_host {
    atom_status (*fail)(atom_status status, const char *text);
    const char *(*fail_message)(void);
    void (*log)(int level, const char *text); /* atom_log_level */
    void (*parallel)(atom_threads *pool, uint32_t count, atom_task task, void *ctx);
} krn_cuda_host;

/* The module's side: what cuda_load.h promises. */
struct krn_cuda_module {
    uint64_t abi;
    atom_status (*describe)(int card, dev_cuda_info *out);
    atom_status (*table)(int card, atom_dtype dtype, const krn_table **out);
    atom_status (*open)(const dev_cuda_config *config, atom_threads *threads, dev **out);
    /* AdamW on the device: as krn_adamw_fn, all pointers device memory, asynchronous. */
    void (*adamw)(krn_ctx *cx, const krn_adamw_step *step, atom_dtype wire_dtype, void *wire,
                  float *master, void *m, void *v, uint64_t n);
    /* For tests: pinned host memory, which the card reads and writes where it lies. */
    void *(*shared_take)(uint64_t bytes);
    void (*shared_give)(void *at);
    uint64_t (*kept_bytes)(void);     /* dev_cuda_kept_bytes */
    uint64_t (*free_bytes)(int card); /* dev_cuda_free_bytes */
};

typedef const krn_cuda_module *(*krn_cuda_entry)(const krn_cuda_host *host);

static inline uint64_t krn_cuda_abi(void)
{
    const uint64_t sizes[] = {KRN_CUDA_VERSION,      ATOM_OP_N,
                              sizeof(krn_table),     sizeof(krn_ctx),
                              sizeof(krn_args),      sizeof(krn_step),
                              sizeof(dev_ops),       sizeof(dev),
                              sizeof(dev_cost),      sizeof(dev_cuda_config),
                              sizeof(dev_stats),     sizeof(krn_cuda_host),
                              sizeof(dev_cuda_info), sizeof(krn_cuda_module),
                              sizeof(krn_adamw_step)};
    uint64_t hash = 0xcbf29ce484222325u;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        hash = (hash ^ sizes[i]) * 0x100000001b3u;
    return hash;
}

#endif
