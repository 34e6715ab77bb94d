/*
 * Who refused to let this host in, while it joins (docs/design/pool.md#who-gets-in). The owner's
 * word ends a join: it was said on its own link, or it is signed and somebody passed it on. Any
 * other member's is kept and told, and ends nothing: others are asked. Where all that are linked
 * have refused, and they are several, and nobody new came for a while, waiting does not help.
 *
 * Thread: one at a time (the pool's). Zeros are no denials.
 */
#ifndef GOSSIP_POOL_DENIALS_H
#define GOSSIP_POOL_DENIALS_H

#include "gossip/pool/links.h"

enum { GSP_DENIALS_MAX = GSP_NET_PEERS_MAX, GSP_DENIAL_WHO_BYTES = GSP_ADDRESS_TEXT_BYTES };

typedef struct gsp_denial {
    uint8_t key[GSP_PUBLIC_BYTES];
    gsp_refusal refusal;
    char who[GSP_DENIAL_WHO_BYTES]; /* for people: its address, or the beginning of its key */
} gsp_denial;

typedef struct gsp_denials {
    gsp_denial of[GSP_DENIALS_MAX]; /* one for each key; the first is forgotten when it is full */
    uint32_t n;
    uint64_t newest_ns; /* when somebody refused who had not before */
} gsp_denials;

/* A member refused. address: its end, zeros: not known. */
void gsp_denials_add(gsp_denials *denials, const uint8_t *key, const gsp_address *address,
                     gsp_refusal refusal, uint64_t now_ns);
/* Everybody who can be reached has refused. */
bool gsp_denials_are_all(const gsp_denials *denials, const gsp_links *links, uint64_t now_ns);
/* "a:1 says: why; b:2 says: why", cut where it is too long. */
const char *gsp_denials_text(const gsp_denials *denials, char *text, size_t bytes);
/* A refusal in the handshake that is about us, and not about the moment or the line. */
bool gsp_refusal_is_final(int refusal);

#endif
