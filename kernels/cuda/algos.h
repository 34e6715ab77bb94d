/*
 * The file of chosen matrix-product algorithms (docs/design/engine.md#the-same-bits): one per card
 * and library version, so that every run on a machine computes with the same algorithm and gives
 * the same bits.
 *
 * A line is a key (shape, layout, dtypes, epilogue) and a choice of 64 opaque bytes. The first line
 * of a key wins, so a file only grows and a choice never changes; but one that was measured takes the
 * place of one that could not be.
 *
 * Thread: one at a time. Owner: the caller, until krn_algos_close.
 */
#ifndef KERNELS_CUDA_ALGOS_H
#define KERNELS_CUDA_ALGOS_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { KRN_ALGO_WORDS = 8, KRN_ALGO_KEY_MAX = 160 };

typedef struct krn_algo {
    char key[KRN_ALGO_KEY_MAX]; /* printable, no blanks at the ends */
    uint32_t left;              /* KRN_LEFT_* of blas.h that the choice leaves undone */
    bool plain;                 /* not the library's: plain.cu */
    uint64_t workspace_bytes;
    uint64_t word[KRN_ALGO_WORDS];
    double seconds; /* as measured; 0: not measured */
} krn_algo;

/* It stands in for one that was measured. (What is plain is so because the library has nothing.) */
static inline bool krn_algo_is_makeshift(const krn_algo *algo)
{
    return !algo->plain && algo->seconds == 0;
}

typedef struct krn_algos krn_algos;

/*
 * Opens or makes the file for `identity` ("NVIDIA ... sm_90 cublasLt 130001") in `dir`/cuda. A file
 * that cannot be read or written is no error: krn_algos_kept says so, and choices live as long as
 * the process.
 */
ATOM_MUST atom_status krn_algos_open(const char *dir, const char *identity, krn_algos **out);
void krn_algos_close(krn_algos **algos);
/* Choices outlive the process. */
bool krn_algos_kept(const krn_algos *algos);

/* Between lock and unlock no other process adds; lock reads what others added. */
void krn_algos_lock(krn_algos *algos);
void krn_algos_unlock(krn_algos *algos);
/* NULL: not chosen yet. Borrowed until the next add or lock. */
const krn_algo *krn_algos_find(const krn_algos *algos, const char *key);
ATOM_MUST atom_status krn_algos_add(krn_algos *algos, const krn_algo *algo);

#endif
