/*
 * Owns where in the directory a pool's contacts are. One idea: both are hashes, so that nobody can tell from a key
 * or a network which pool it is of. Source: docs/design/pool.md#directory.
 */
#include "gossip/directory/directory.h"

#include <sodium.h>
#include <string.h>

void gsp_directory_key(const uint8_t psk[GSP_PSK_BYTES], uint64_t bucket,
                       uint8_t out[GSP_DIRECTORY_KEY_BYTES])
{
    struct {
        char purpose[16];
        uint8_t bucket[8];
    } of = {.purpose = "atom directory"};
    for (unsigned i = 0; i < 8; i++)
        of.bucket[i] = (uint8_t)(bucket >> (8 * i));
    crypto_generichash(out, GSP_DIRECTORY_KEY_BYTES, (const uint8_t *)&of, sizeof of, psk,
                       GSP_PSK_BYTES);
}

/* Nodes of other pools do not answer, so their floods stay theirs. */
uint32_t gsp_directory_network(const uint8_t pool[GSP_POOL_BYTES])
{
    static const char PURPOSE[] = "atom directory network";
    uint8_t hash[crypto_generichash_BYTES];
    uint32_t id;
    crypto_generichash(hash, sizeof hash, (const uint8_t *)PURPOSE, sizeof PURPOSE, pool,
                       GSP_POOL_BYTES);
    memcpy(&id, hash, sizeof id);
    return id ? id : 1; /* 0 is the public network */
}
