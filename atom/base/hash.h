/*
 * 64-bit FNV-1a, for the keys of caches: not for security. Start with ATOM_HASH_SEED.
 */
#ifndef ATOM_BASE_HASH_H
#define ATOM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define ATOM_HASH_SEED 0xcbf29ce484222325u

static inline uint64_t atom_hash(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

#endif
