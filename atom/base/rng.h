/*
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011).
 *
 * A number is a pure function of (seed, step, micro_batch, node, element), so that a recomputed
 * activation draws the same bits on any device, in any order, under any plan
 * (docs/design/engine.md#the-same-bits). Element e of a stream is word e & 3 of the block with
 * counter e >> 2.
 */
#ifndef ATOM_BASE_RNG_H
#define ATOM_BASE_RNG_H

#include <stdint.h>

typedef struct atom_rng_key {
    uint64_t seed;
    uint32_t step;        /* counts from 1; 0 is initialisation */
    uint32_t micro_batch; /* 0 .. C-1 */
    uint32_t node;        /* canonical node id */
} atom_rng_key;

/* The four words of block `block` (elements 4*block .. 4*block+3). */
static inline void atom_rng_block(atom_rng_key key, uint64_t block, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32) ^ (key.micro_batch * 0x9e3779b9u);
    uint32_t c2 = key.node, c3 = key.step;
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static inline uint32_t atom_rng_u32(atom_rng_key key, uint64_t element)
{
    uint32_t words[4];
    atom_rng_block(key, element >> 2, words);
    return words[element & 3];
}

/* Dropout keeps an element when its word is >= this threshold; p in [0, 1). */
static inline uint32_t atom_rng_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

/* Uniform in [0, 1) with 24 bits. */
static inline float atom_rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Standard normal number `element` of the stream (Box-Muller in double, one per block). */
double atom_rng_normal(atom_rng_key key, uint64_t element);

#endif
