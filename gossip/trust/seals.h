/*
 * The real cryptography of the agreement (signed.h): BLAKE2b-256, and Ed25519 with the purpose
 * GSP_FOR_AGREEMENT. Thread: any. Errors: none; gsp_crypto_start has succeeded before.
 */
#ifndef GOSSIP_TRUST_SEALS_H
#define GOSSIP_TRUST_SEALS_H

#include "gossip/agree/signed.h"
#include "gossip/trust/sign.h"

/* Seals as `identity`, which must outlive what is returned. */
gsp_seals gsp_seals_real(const gsp_identity *identity);

#endif
