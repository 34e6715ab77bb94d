/*
 * Choosing the next token from logits: the repetition penalty (Keskar et al. 2019, CTRL), then temperature,
 * top-k, top-p (nucleus; Holtzman et al. 2020) and min-p (Nguyen et al. 2024), in the order of the
 * transformers library; the kept tokens are renormalised after each.
 *
 * Tokens are ranked by logit, and equal ones by id, lower first; so "the k likeliest" and "the
 * likeliest" are always defined, and the same seed gives the same text.
 *
 * Thread: one caller per scratch. Errors: ATOM_E_DIVERGED when logits are not numbers.
 */
#ifndef ATOM_GENERATE_SAMPLE_H
#define ATOM_GENERATE_SAMPLE_H

#include "atom/base/status.h"

#include <stdint.h>

typedef struct generate_sampling {
    double temperature; /* 0: the likeliest token */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all; in (0, 1] */
    double min_p; /* at least so much of the likeliest token's probability; 0: all; at most 1 */
    double
        penalty; /* logits of tokens in seen are divided by it, negative ones multiplied; 1: none */
    const uint8_t *seen; /* u8[V]: is the token in the text already? NULL: none is */
} generate_sampling;

typedef struct generate_candidate {
    float weight; /* a logit, later a probability that is not normalised */
    int32_t token;
} generate_candidate;

/*
 * The tokens that may come next, in any order, with weights whose sum is *total; returns how many
 * (>= 1) in *n. logits: f32[V]; ids that `may` (u8[V]; NULL: all may) says 0 of are left out.
 * kept: room for V.
 */
ATOM_MUST atom_status generate_sample_filter(const generate_sampling *s, const float *logits,
                                             const uint8_t *may, int64_t V,
                                             generate_candidate *kept, int64_t *n, double *total);

/* Draws one of them: u is uniform in [0, 1). */
int32_t generate_sample_draw(const generate_candidate *kept, int64_t n, double total, double u);

/* Both. */
ATOM_MUST atom_status generate_sample(const generate_sampling *s, const float *logits,
                                      const uint8_t *may, int64_t V, generate_candidate *scratch,
                                      double u, int32_t *token);

/* Number `index` of the stream of this seed, uniform in [0, 1), 53 bits. */
double generate_sample_uniform(uint64_t seed, uint64_t index);

#endif
