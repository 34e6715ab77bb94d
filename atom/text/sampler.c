/*
 * Owns the order of training. One idea: the order of an epoch is a keyed permutation computed per
 * sample, so resuming needs one integer. Refuses data without a single sequence.
 */
#include "atom/text/dataset.h"

#include "atom/base/rng.h"

#include <stddef.h>

enum { FEISTEL_ROUNDS = 6 };

atom_status text_sampler_make(const text_shards *s, uint32_t sequence_len, uint64_t seed,
                              text_sampler *out)
{
    uint64_t windows = text_shards_windows(s, sequence_len);
    uint32_t half_bits = 1;
    if (windows == 0)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: %llu tokens are too few for one sequence of %u (and its last "
                         "target); use more text or a smaller sequence_len",
                         text_shards_dir(s), (unsigned long long)text_shards_tokens(s),
                         sequence_len);
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < windows)
        half_bits++;
    *out = (text_sampler){.shards = s,
                          .seed = seed,
                          .windows = windows,
                          .sequence_len = sequence_len,
                          .half_bits = half_bits};
    return ATOM_OK;
}

/* A permutation of 0 .. 4^half_bits - 1: a balanced Feistel network (Luby and Rackoff 1988). */
static uint64_t feistel(const text_sampler *p, uint64_t epoch, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << p->half_bits) - 1;
    uint64_t left = x >> p->half_bits, right = x & mask;
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        atom_rng_key key = {.seed = p->seed,
                            .step = (uint32_t)epoch,
                            .micro_batch = (uint32_t)(epoch >> 32),
                            .node = 0x64617461u + round};
        uint64_t next = left ^ (atom_rng_u32(key, right << 2) & mask);
        left = right;
        right = next;
    }
    return left << p->half_bits | right;
}

uint64_t text_sampler_window(const text_sampler *sampler, uint64_t sample)
{
    uint64_t epoch = sample / sampler->windows, x = sample % sampler->windows;
    /* Cycle walking: at most 4 values per wanted one, and the cycle of x comes back
     * to the range. */
    do
        x = feistel(sampler, epoch, x);
    while (x >= sampler->windows);
    return x;
}

atom_status text_sampler_read(const text_sampler *sampler, uint64_t first, uint32_t count,
                              int32_t *tokens, int32_t *targets)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t row = (size_t)i * sampler->sequence_len;
        ATOM_TRY(text_windows_read(sampler->shards, sampler->sequence_len,
                                   text_sampler_window(sampler, first + i), 1, tokens + row,
                                   targets + row));
    }
    return ATOM_OK;
}

void text_sampler_starts(const text_sampler *sampler, uint64_t first, uint32_t count,
                         uint32_t start, const int32_t *tokens, int32_t *starts)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t row = (size_t)i * sampler->sequence_len;
        text_windows_starts(sampler->shards, sampler->sequence_len,
                            text_sampler_window(sampler, first + i), 1, start, tokens + row,
                            starts + row);
    }
}
