/*
 * A host's identity: one Ed25519 key pair, kept in a file that only its user may read
 * (docs/design/pool.md#who-gets-in).
 *
 * Thread: any, each on an object of its own.
 */
#ifndef GOSSIP_TRUST_IDENTITY_H
#define GOSSIP_TRUST_IDENTITY_H

#include "atom/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GSP_PUBLIC_BYTES = 32,
    GSP_SECRET_BYTES = 64, /* libsodium's form: seed and public key */
    GSP_SEED_BYTES = 32,
    GSP_PUBLIC_TEXT_BYTES = 44, /* 43 characters of base64url and a NUL */
};

typedef struct gsp_identity {
    uint8_t public_key[GSP_PUBLIC_BYTES];
    uint8_t secret_key[GSP_SECRET_BYTES];
} gsp_identity;

/* Starts libsodium, as every function of this header does by itself. ATOM_E_RUNTIME: it cannot. */
ATOM_MUST atom_status gsp_crypto_start(void);

/* A fresh identity from the system's entropy. */
ATOM_MUST atom_status gsp_identity_make(gsp_identity *out);
/* The identity of a seed; for tests and simulations. */
ATOM_MUST atom_status gsp_identity_from_seed(const uint8_t seed[GSP_SEED_BYTES], gsp_identity *out);
/* Overwrites the secret. */
void gsp_identity_wipe(gsp_identity *identity);

/*
 * Reads an identity file: two lines of text, "atom identity 1" and base64url of seed and checksum.
 * Errors  ATOM_E_FORMAT  missing, damaged, or readable by others than its owner (the message says
 *         chmod 600)
 */
ATOM_MUST atom_status gsp_identity_load(const char *path, gsp_identity *out);
/*
 * Writes a new identity file: mode 0600 from the first byte, fsynced, then linked into place. So it
 * is there whole or not at all, and an existing file is never replaced.
 * Errors  ATOM_E_USAGE  the file exists; ATOM_E_RUNTIME, ATOM_E_RESOURCE  it cannot be written
 */
ATOM_MUST atom_status gsp_identity_save(const char *path, const gsp_identity *identity);
/* Loads the file, or makes it if there is none. Two processes that start at once get the same
 * identity. */
ATOM_MUST atom_status gsp_identity_open(const char *path, gsp_identity *out);

/* base64url without padding, 43 characters. buf holds GSP_PUBLIC_TEXT_BYTES; returns buf. */
char *gsp_public_text(const uint8_t key[GSP_PUBLIC_BYTES], char *buf);
/* The inverse. ATOM_E_USAGE with what is wrong. */
ATOM_MUST atom_status gsp_public_parse(const char *text, uint8_t out[GSP_PUBLIC_BYTES]);

#endif
