/*
 * Merkle trees over the encoded parts of a contribution (docs/design/pool.md#rounds,
 * #hostile-members): one signed root vouches for every part, and each part comes with the few
 * hashes that prove it.
 *
 *   leaf = H(0, u32 part, u64 bytes, BLAKE3 of the data (blake3.h))
 *   node = H(1, left, right); a node without a right neighbour goes up unchanged
 *
 * H is BLAKE2b-256; integers are little endian. A leaf contains its number and length, so no part
 * can stand in for another one, nor a node for a leaf.
 *
 * Thread: any. Errors: none; a wrong proof is `false`.
 */
#ifndef GOSSIP_SUM_MERKLE_H
#define GOSSIP_SUM_MERKLE_H

#include "gossip/agree/types.h"

#include "atom/base/status.h"

enum { GSP_MERKLE_PATH_MAX = 8 }; /* log2 of GSP_PARTS_MAX */

void gsp_merkle_leaf(uint32_t part, const void *data, uint64_t bytes, gsp_hash *out);
/* The node above two; out may be one of them. */
void gsp_merkle_join(const gsp_hash *left, const gsp_hash *right, gsp_hash *out);
/* 1 <= n <= GSP_PARTS_MAX. */
void gsp_merkle_root(const gsp_hash *leaf, uint32_t n, gsp_hash *root);
/* The proof of leaf `part`; returns how many hashes it has. */
uint32_t gsp_merkle_path(const gsp_hash *leaf, uint32_t n, uint32_t part,
                         gsp_hash path[GSP_MERKLE_PATH_MAX]);
/* Is `leaf` number `part` of n under `root`? Numbers may be anything that a peer sent. */
ATOM_MUST bool gsp_merkle_check(const gsp_hash *root, uint32_t n, uint32_t part,
                                const gsp_hash *leaf, const gsp_hash *path, uint32_t n_path);
/* The same for a tree of any size: `at` is below n, which is at least 1. */
ATOM_MUST bool gsp_merkle_climbs(const gsp_hash *root, uint32_t n, uint32_t at,
                                 const gsp_hash *leaf, const gsp_hash *path, uint32_t n_path);

#endif
