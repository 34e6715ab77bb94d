/*
 * What the optimizer keeps of each trained element: its master weight in f32 and two Adam moments,
 * in f32 or bf16. Code that reads or fills moments from outside sees floats: bf16 widens exactly, and
 * floats are rounded to nearest; rounding at random is AdamW's affair (kernels.h). What Muon
 * updates has no second moment. Any thread; no errors.
 */
#ifndef SWAP_STATE_H
#define SWAP_STATE_H

#include "atom/base/dtype.h"

typedef enum swap_state { SWAP_STATE_MASTER, SWAP_STATE_M, SWAP_STATE_V } swap_state;
enum { SWAP_STATE_N = 3 };

static inline atom_dtype swap_state_dtype(swap_state part, atom_dtype moments)
{
    return part == SWAP_STATE_MASTER ? ATOM_F32 : moments;
}
/* Where that part begins in [master][m][v] of n elements, bytes. */
static inline uint64_t swap_state_offset(swap_state part, atom_dtype moments, uint64_t n)
{
    static const uint64_t moments_before[SWAP_STATE_N] = {0, 0, 1};
    return part == SWAP_STATE_MASTER ? 0
                                     : n * (4 + moments_before[part] * atom_dtype_bytes(moments));
}

enum { SWAP_MATRICES_MAX = 3 };
/* One parameter that is trained, in canonical order. Offsets in elements of the canonical vector. */
typedef struct swap_param {
    uint64_t offset, elements;
    uint64_t norm_chunk; /* its first chunk in the array of partial sums of squares */
    uint64_t second; /* where its second moments begin in v: as many elements as AdamW has before */
    uint8_t decay;
    uint8_t n_matrices; /* 0: AdamW updates it; else Muon does, as that many matrices, one after the
                           other, each of rows[i] rows of cols elements */
    int64_t rows[SWAP_MATRICES_MAX], cols;
} swap_param;

/* The parameter that has that trained element, or whose padding it is. */
static inline uint32_t swap_param_at(const swap_param *params, uint32_t n, uint64_t element)
{
    uint32_t low = 0, high = n; /* params[low].offset <= element */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (params[middle].offset <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}
/* How many elements of v belong to trained elements before that one. n 0: all of them. */
static inline uint64_t swap_second_at(const swap_param *params, uint32_t n, uint64_t element)
{
    if (n == 0)
        return element;
    const swap_param *p = &params[swap_param_at(params, n, element)];
    return p->second + (p->n_matrices ? 0 : element - p->offset);
}

/* n elements of that dtype as floats; floats as n elements of it. */
static inline void swap_state_read(atom_dtype dtype, const void *from, uint64_t n, float *to)
{
    if (dtype == ATOM_F32) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        to[i] = atom_bf16_to_f32(((const atom_bf16 *)from)[i]);
}
static inline void swap_state_write(atom_dtype dtype, void *to, const float *from, uint64_t n)
{
    if (dtype == ATOM_F32) {
        memcpy(to, from, n * sizeof *from);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        ((atom_bf16 *)to)[i] = atom_f32_to_bf16(from[i]);
}

#endif
