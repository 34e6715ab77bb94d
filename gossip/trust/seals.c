/*
 * Owns the bridge from the agreement's hashes and seals to libsodium. Its one idea: one purpose, so
 * that what is sealed here means nothing elsewhere. It refuses to keep anything.
 */
#include "gossip/trust/seals.h"

#include <sodium.h>

static void hash(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    crypto_generichash(out->byte, sizeof out->byte, data, bytes, NULL, 0);
}

static void seal(void *context, const void *data, size_t bytes, uint8_t out[GSP_SEAL_BYTES])
{
    gsp_sign(context, GSP_FOR_AGREEMENT, data, bytes, out);
}

static bool verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                   const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context;
    return gsp_verify(key->byte, GSP_FOR_AGREEMENT, data, bytes, given);
}

gsp_seals gsp_seals_real(const gsp_identity *identity)
{
    return (gsp_seals){
        .context = (void *)(uintptr_t)identity, .hash = hash, .seal = seal, .verify = verify};
}
