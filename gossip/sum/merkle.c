/*
 * Owns the tree's shape and hashes. Its one idea: levels are halved in place, and a node without a
 * neighbour moves up unchanged, so root, path and check walk the same steps. It refuses to keep
 * trees.
 */
#include "gossip/sum/merkle.h"

#include "gossip/sum/blake3.h"

#include "atom/base/assert.h"

#include <sodium.h>
#include <string.h>

_Static_assert(1 << GSP_MERKLE_PATH_MAX >= GSP_PARTS_MAX, "paths are long enough");

static void put(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

void gsp_merkle_leaf(uint32_t part, const void *data, uint64_t bytes, gsp_hash *out)
{
    uint8_t text[13 + GSP_BLAKE3_BYTES] = {0};
    put(text + 1, part, 4);
    put(text + 5, bytes, 8);
    gsp_blake3(data, bytes, text + 13);
    crypto_generichash(out->byte, GSP_HASH_BYTES, text, sizeof text, NULL, 0);
}

void gsp_merkle_join(const gsp_hash *left, const gsp_hash *right, gsp_hash *out)
{
    uint8_t text[1 + 2 * GSP_HASH_BYTES] = {1};
    memcpy(text + 1, left->byte, GSP_HASH_BYTES);
    memcpy(text + 1 + GSP_HASH_BYTES, right->byte, GSP_HASH_BYTES);
    crypto_generichash(out->byte, GSP_HASH_BYTES, text, sizeof text, NULL, 0);
}

/* The level above, in place; returns how many it has. */
static uint32_t halve(gsp_hash *level, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        if (i + 1 < n)
            gsp_merkle_join(&level[i], &level[i + 1], &level[i / 2]);
        else
            level[i / 2] = level[i];
    }
    return (n + 1) / 2;
}

void gsp_merkle_root(const gsp_hash *leaf, uint32_t n, gsp_hash *root)
{
    gsp_hash level[GSP_PARTS_MAX];
    ATOM_ASSERT(n >= 1 && n <= GSP_PARTS_MAX);
    memcpy(level, leaf, n * sizeof *leaf);
    while (n > 1)
        n = halve(level, n);
    *root = level[0];
}

uint32_t gsp_merkle_path(const gsp_hash *leaf, uint32_t n, uint32_t part,
                         gsp_hash path[GSP_MERKLE_PATH_MAX])
{
    gsp_hash level[GSP_PARTS_MAX];
    uint32_t steps = 0;
    ATOM_ASSERT(n >= 1 && n <= GSP_PARTS_MAX && part < n);
    memcpy(level, leaf, n * sizeof *leaf);
    for (; n > 1; part /= 2) {
        if ((part ^ 1) < n)
            path[steps++] = level[part ^ 1];
        n = halve(level, n);
    }
    return steps;
}

bool gsp_merkle_climbs(const gsp_hash *root, uint32_t n, uint32_t at, const gsp_hash *leaf,
                       const gsp_hash *path, uint32_t n_path)
{
    gsp_hash here = *leaf;
    uint32_t used = 0;
    for (; n > 1; n = (n + 1) / 2, at /= 2) {
        if ((at ^ 1) >= n)
            continue;
        if (used == n_path)
            return false;
        if (at & 1)
            gsp_merkle_join(&path[used++], &here, &here);
        else
            gsp_merkle_join(&here, &path[used++], &here);
    }
    return used == n_path && memcmp(here.byte, root->byte, GSP_HASH_BYTES) == 0;
}

bool gsp_merkle_check(const gsp_hash *root, uint32_t n, uint32_t part, const gsp_hash *leaf,
                      const gsp_hash *path, uint32_t n_path)
{
    return n >= 1 && n <= GSP_PARTS_MAX && part < n &&
           gsp_merkle_climbs(root, n, part, leaf, path, n_path);
}
