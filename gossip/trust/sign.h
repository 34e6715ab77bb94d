/*
 * Signatures with a purpose. What is signed is (purpose, message), so that a signature made for one
 * purpose is worth nothing for another (docs/design/pool.md#who-gets-in). This list has all the
 * purposes of the pool.
 *
 * Thread: any.
 */
#ifndef GOSSIP_TRUST_SIGN_H
#define GOSSIP_TRUST_SIGN_H

#include "gossip/trust/identity.h"

enum { GSP_SIGNATURE_BYTES = 64 };

typedef enum gsp_purpose {
    GSP_FOR_HANDSHAKE_DIAL = 1, /* the transcript, by the dialler */
    GSP_FOR_HANDSHAKE_ACCEPT,   /* the transcript, by the acceptor */
    GSP_FOR_ADMISSION,          /* admission.h, by the owner or a delegate */
    GSP_FOR_DELEGATION,         /* admission.h, by the owner */
    GSP_FOR_INVITE,             /* admission.h, by the owner or a delegate */
    GSP_FOR_MANIFEST,           /* the pool's manifest with its number, by the owner */
    GSP_FOR_REVOCATION,         /* the next manifest's bans and key, by the owner */
    GSP_FOR_AGREEMENT,          /* messages of agree.h: votes, promises, roots */
    GSP_FOR_EVIDENCE,           /* a member's proof that another lied */
    GSP_FOR_DIRECTORY,          /* a record of directory.h or lan.h */
    GSP_FOR_EXCHANGE,           /* a member's own record in peer exchange */
    GSP_FOR_RESET,              /* the owner's start of a new lineage */
    GSP_FOR_STATE,              /* transfer.h: the roots of a member's state */
    GSP_FOR_REFUSAL,            /* admission.h: the owner does not admit this key */
    GSP_FOR_N
} gsp_purpose;

/* Signs message[bytes]; deterministic. */
void gsp_sign(const gsp_identity *identity, gsp_purpose purpose, const void *message, size_t bytes,
              uint8_t signature[GSP_SIGNATURE_BYTES]);
/* False for a signature by another key, for another purpose or message, or malformed. */
ATOM_MUST bool gsp_verify(const uint8_t key[GSP_PUBLIC_BYTES], gsp_purpose purpose,
                          const void *message, size_t bytes,
                          const uint8_t signature[GSP_SIGNATURE_BYTES]);

#endif
