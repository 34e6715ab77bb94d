/*
 * What each key used up of something lately, in a table of fixed size: words of a minute, bytes of a
 * day. A window that is over is forgotten as a whole. Where the table is full, the key that used
 * least makes room: a key that used much cannot buy a clean page by bringing others.
 *
 * Pure: no clock. Thread: one at a time per object. Zeros and the three limits are an empty tally.
 */
#ifndef GOSSIP_NET_TALLY_H
#define GOSSIP_NET_TALLY_H

#include "gossip/gate/net_address.h"

enum { GSP_TALLY_KEYS = 128, GSP_TALLY_KEY_BYTES = 32 };

typedef struct gsp_tally_row {
    uint8_t key[GSP_TALLY_KEY_BYTES];
    uint64_t used;
} gsp_tally_row;

typedef struct gsp_tally {
    uint64_t window_ns, each_max, all_max; /* the caller's */
    uint64_t window, all;
    uint32_t n;
    gsp_tally_row row[GSP_TALLY_KEYS];
} gsp_tally;

/* Takes so much for a key. False: more than it, or all together, may have; nothing was taken. */
bool gsp_tally_take(gsp_tally *tally, const uint8_t *key, uint64_t amount, uint64_t now_ns);
/* How much a key may still take in this window. */
uint64_t gsp_tally_left(gsp_tally *tally, const uint8_t *key, uint64_t now_ns);
/* Guests are counted by where they come from: keys cost nothing. Writes what stands for an address
 * (/32 of IPv4, /64 of IPv6) in place of a key. */
void gsp_tally_address(const gsp_address *from, uint8_t key[GSP_TALLY_KEY_BYTES]);

#endif
