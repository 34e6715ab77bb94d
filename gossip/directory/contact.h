/*
 * A contact: what a member says about itself in places where others look for it
 * (docs/design/pool.md#directory). It holds the key, addresses, progress and credential, and is
 * signed. The directory (directory.h), the LAN (lan.h) and the file of known peers (peers.h) all
 * carry this one record.
 *
 * It has two forms. The body is what the member signed, and its signature; each contact has exactly
 * one. The sealed form is the body encrypted under the pool's pre-shared key with a fresh nonce,
 * for places that strangers can read and write: without the ticket it is noise.
 *
 * A contact is advice and gives no rights: a host that follows it still has to shake hands at the
 * gate. Times are seconds since 1970. Thread: any.
 */
#ifndef GOSSIP_DIRECTORY_CONTACT_H
#define GOSSIP_DIRECTORY_CONTACT_H

#include "gossip/gate/handshake.h"
#include "gossip/gate/net_address.h"

enum {
    GSP_CONTACT_ADDRESSES_MAX = 8,
    GSP_CONTACT_LINEAGE_BYTES = 32,
    GSP_CONTACT_LIFE_SECONDS_MAX = 3600,
    /* version, key, five numbers, lineage, port, addresses, credential, signature */
    GSP_CONTACT_BODY_BYTES_MAX = 1 + 32 + 5 * 8 + 32 + 2 + 1 + GSP_CONTACT_ADDRESSES_MAX * 18 + 2 +
                                 GSP_CREDENTIAL_BYTES_MAX + GSP_SIGNATURE_BYTES,
    GSP_CONTACT_SEALED_BYTES_MAX = 24 + GSP_CONTACT_BODY_BYTES_MAX + 16, /* below 1 KiB */
};

typedef struct gsp_contact {
    uint8_t key[GSP_PUBLIC_BYTES];
    uint64_t sequence; /* grows with every contact of this key, across restarts */
    uint64_t issued_s, expires_s;
    uint8_t lineage[GSP_CONTACT_LINEAGE_BYTES];     /* of the newest certificate; zero: none yet */
    uint64_t version;                               /* of the newest certificate */
    uint64_t samples;                               /* processed, in all (ATOM's heartbeat) */
    uint16_t directory_port;                        /* UDP, of its directory node; 0: none */
    uint32_t n_addresses;                           /* where its gate accepts; 0: unknown */
    gsp_address address[GSP_CONTACT_ADDRESSES_MAX]; /* an ip of zeros: the host this came from */
    uint32_t credential_bytes;                      /* 0: the owner itself */
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
    uint8_t signature[GSP_SIGNATURE_BYTES];
} gsp_contact;

/* Why a contact is not believed; its readers count these. */
typedef enum gsp_contact_verdict {
    GSP_CONTACT_GOOD,
    GSP_CONTACT_NOISE,     /* not sealed by a holder of the ticket, or cut */
    GSP_CONTACT_MALFORMED, /* not this layout, or a newer version of it */
    GSP_CONTACT_OLD,       /* expired, from the future, or good for too long */
    GSP_CONTACT_FORGED,    /* the signature is not its key's */
    GSP_CONTACT_STRANGER,  /* no credential of a member, banned, or not welcome */
    GSP_CONTACT_SELF,      /* our own */
    GSP_CONTACT_VERDICT_N
} gsp_contact_verdict;

/* Signs everything but the signature. The key must be the identity's (ATOM_ASSERT). */
void gsp_contact_sign(gsp_contact *contact, const uint8_t pool[GSP_POOL_BYTES],
                      const gsp_identity *self);
/* Writes the body; returns its bytes. */
size_t gsp_contact_encode(const gsp_contact *contact, uint8_t out[GSP_CONTACT_BODY_BYTES_MAX]);
/* Reads what gsp_contact_encode wrote and nothing else; checks no signature. */
ATOM_MUST bool gsp_contact_decode(const void *body, size_t bytes, gsp_contact *out);

/* The sealed form under one key; returns its bytes. The nonce comes from the system's entropy. */
size_t gsp_contact_seal(const gsp_contact *contact, const uint8_t psk[GSP_PSK_BYTES],
                        uint8_t out[GSP_CONTACT_SEALED_BYTES_MAX]);
/*
 * Judges a body: its age (clocks may differ by five minutes), signature and credential. config
 * gives pool, owner, self and may_enter (asked with a zero hello). It remembers nothing: replays
 * are recognised by their sequence where contacts are kept (peers.h).
 */
ATOM_MUST gsp_contact_verdict gsp_contact_judge(const gsp_contact *contact,
                                                const gsp_handshake_config *config, uint64_t now_s);
/* Opens the sealed form with any of the config's keys, decodes and judges it. *out is written only
 * if the verdict is GOOD. */
ATOM_MUST gsp_contact_verdict gsp_contact_open(const void *sealed, size_t bytes,
                                               const gsp_handshake_config *config, uint64_t now_s,
                                               gsp_contact *out);

#endif
