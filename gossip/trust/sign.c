/*
 * Owns the form of what is signed: Ed25519 over "atom sign 1", the purpose and the message's
 * BLAKE2b-512. Hashing first keeps the memory fixed whatever the message's size. It refuses to
 * say what a valid signature permits: that is for its callers.
 */
#include "gossip/trust/sign.h"

#include "atom/base/assert.h"

#include <sodium.h>
#include <string.h>

static const uint8_t DOMAIN[12] = "atom sign 1";

typedef struct statement {
    uint8_t domain[sizeof DOMAIN];
    uint8_t purpose[4];
    uint8_t hash[crypto_generichash_BYTES_MAX];
} statement;

static statement state(gsp_purpose purpose, const void *message, size_t bytes)
{
    statement s = {.purpose = {(uint8_t)purpose}};
    ATOM_ASSERT(purpose >= 1 && purpose < GSP_FOR_N);
    memcpy(s.domain, DOMAIN, sizeof DOMAIN);
    crypto_generichash(s.hash, sizeof s.hash, message, bytes, NULL, 0);
    return s;
}

_Static_assert(sizeof(statement) == sizeof DOMAIN + 4 + crypto_generichash_BYTES_MAX, "no holes");

void gsp_sign(const gsp_identity *identity, gsp_purpose purpose, const void *message, size_t bytes,
              uint8_t signature[GSP_SIGNATURE_BYTES])
{
    statement s = state(purpose, message, bytes);
    crypto_sign_detached(signature, NULL, (const uint8_t *)&s, sizeof s, identity->secret_key);
}

bool gsp_verify(const uint8_t key[GSP_PUBLIC_BYTES], gsp_purpose purpose, const void *message,
                size_t bytes, const uint8_t signature[GSP_SIGNATURE_BYTES])
{
    statement s = state(purpose, message, bytes);
    return crypto_sign_verify_detached(signature, (const uint8_t *)&s, sizeof s, key) == 0;
}
