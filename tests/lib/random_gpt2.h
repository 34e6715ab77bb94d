/*
 * Small random GPT-2 models for tests: a pure function of the seed. Odd widths, prime-ish
 * vocabularies, one to four layers, with and without dropout; sequences up to the number of
 * positions.
 */
#ifndef TESTS_LIB_RANDOM_GPT2_H
#define TESTS_LIB_RANDOM_GPT2_H

#include "atom/base/rng.h"
#include "atom/graph/models.h"

#include <stdio.h>
#include <string.h>

typedef struct random_gpt2 {
    graph_config config;
    int64_t B, T;
} random_gpt2;

/* Whole number in low .. high, the i-th draw of this seed. */
static inline int64_t random_gpt2_draw(uint64_t seed, uint64_t i, int64_t low, int64_t high)
{
    atom_rng_key key = {.seed = seed, .node = 0x67707432u};
    return low + (int64_t)(atom_rng_u32(key, i) % (uint32_t)(high - low + 1));
}

static inline float random_gpt2_dropout(uint64_t seed, uint64_t i)
{
    if (random_gpt2_draw(seed, i, 0, 1) == 0)
        return 0;
    return 0.1f * (float)random_gpt2_draw(seed, i + 100, 1, 3);
}

/* Widths 24 .. 72, a multiple of heads 1 .. 6; V 37 .. 200; B 1 .. 3; T 1 .. 24 <= P. */
static inline random_gpt2 random_gpt2_make(uint64_t seed)
{
    random_gpt2 r = {.B = random_gpt2_draw(seed, 0, 1, 3), .T = random_gpt2_draw(seed, 1, 1, 24)};
    graph_config *c = &r.config;
    c->heads = random_gpt2_draw(seed, 2, 1, 6);
    int64_t least = (24 + c->heads - 1) / c->heads;
    c->width = c->heads * random_gpt2_draw(seed, 3, least, 72 / c->heads);
    c->vocab_size = random_gpt2_draw(seed, 4, 37, 200);
    c->positions = r.T + random_gpt2_draw(seed, 5, 0, 9);
    c->layers = random_gpt2_draw(seed, 6, 1, 4);
    c->inner = random_gpt2_draw(seed, 7, 0, 1) ? 4 * c->width : random_gpt2_draw(seed, 8, 17, 150);
    c->epsilon = 1e-5f;
    c->init_std = 0.02f * (float)random_gpt2_draw(seed, 9, 1, 10);
    c->embd_pdrop = random_gpt2_dropout(seed, 10);
    c->attn_pdrop = random_gpt2_dropout(seed, 11);
    c->resid_pdrop = random_gpt2_dropout(seed, 12);
    snprintf(c->name, sizeof c->name, "random-%llu", (unsigned long long)seed);
    return r;
}

#endif
