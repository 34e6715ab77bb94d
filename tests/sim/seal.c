/*
 * Owns the simulator's cryptography: hashes and seals that cost nothing. Its one idea: a seal is a
 * hash with the signer's key, and nobody in this process seals for another. It refuses to be secure.
 */
#include "tests/sim/sim.h"

#include <string.h>

uint64_t sim_short(const gsp_hash *hash)
{
    uint64_t x;
    memcpy(&x, hash->byte, sizeof x);
    return x;
}

uint64_t sim_mix(uint64_t x, uint64_t y)
{
    x = (x ^ y) * 0x9fb21c651e98df25u;
    return x ^ x >> 32;
}

void sim_hash(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    uint64_t a = 0x243f6a8885a308d3u ^ bytes, b = 0x13198a2e03707344u, x;
    const uint8_t *at = data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        memcpy(&x, at, 8);
        a = sim_mix(a, x);
        b = sim_mix(b, x + a);
    }
    x = 0;
    memcpy(&x, at, bytes);
    a = sim_mix(a, x);
    b = sim_mix(b, x + a);
    for (uint32_t k = 0; k < 4; k++) {
        a = sim_mix(a, b + k);
        memcpy(out->byte + 8 * k, &a, 8);
    }
}

/* A seal is a hash with the signer's key: nobody in this process seals for another. */
static void seal_with(const gsp_key *key, const void *data, size_t bytes, uint8_t *out)
{
    gsp_hash hash[2];
    sim_hash(NULL, data, bytes, &hash[0]);
    for (uint32_t k = 0; k < GSP_KEY_BYTES; k++)
        hash[0].byte[k] ^= key->byte[k];
    sim_hash(NULL, &hash[0], sizeof hash[0], &hash[1]);
    memcpy(out, hash[1].byte, GSP_HASH_BYTES);
    memcpy(out + GSP_HASH_BYTES, hash[1].byte, GSP_HASH_BYTES);
}

static void seal(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES])
{
    sim_host *h = context;
    seal_with(&h->self.key, data, bytes, out);
}

static bool verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context;
    uint8_t right[GSP_SEAL_BYTES];
    seal_with(key, data, bytes, right);
    return memcmp(right, given, sizeof right) == 0;
}

gsp_seals sim_seals(sim_host *host)
{
    return (gsp_seals){.context = host, .hash = sim_hash, .seal = seal, .verify = verify};
}
