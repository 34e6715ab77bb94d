/* A zip archive in memory without the checksums of its entries, as PyTorch writes it where it is told to: what is mutated
 * would else come no further than to them. */
#ifndef TESTS_FUZZ_FILE_SUMS_H
#define TESTS_FUZZ_FILE_SUMS_H

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void forget_sums(uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 20 <= size; i++) {
        if (memcmp(data + i, "PK\1\2", 4) == 0)
            memset(data + i + 16, 0, 4);
        if (memcmp(data + i, "PK\3\4", 4) == 0)
            memset(data + i + 14, 0, 4);
    }
}

/* read_it: what a target does with such a file; summed: it may have checksums. */
static inline void read_with_and_without_sums(const uint8_t *data, size_t size,
                                              void (*read_it)(const uint8_t *data, size_t size,
                                                              bool summed))
{
    uint8_t *other = atom_alloc(size + 1, 1);
    ATOM_ASSERT(other);
    if (size)
        memcpy(other, data, size);
    forget_sums(other, size);
    read_it(data, size, true);
    read_it(other, size, false);
    atom_free(other);
}

#endif
