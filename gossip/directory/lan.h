/*
 * Members on the same local network find each other without any server: each sends its contact
 * (contact.h), sealed, to a multicast group, and listens there (docs/design/pool.md#directory).
 * With a TTL of 1 it never leaves the local network. It is IPv4 only; on other networks the
 * directory and the known peers must do.
 *
 * A new member speaks at once, and each member that hears it answers within a second, so that both
 * know each other. After that everybody speaks once a minute. Whatever happens, an endpoint sends
 * at most one packet per interface and second, and judges at most GSP_LAN_JUDGED_PER_SECOND; the
 * rest is dropped and counted. What somebody recorded and sends again is known and not judged.
 * Nothing is ever sent to a single address because it asked.
 *
 * No thread of its own: the owner calls gsp_lan_step now and then, a few times a second. Nothing
 * blocks. Thread: one at a time per object.
 */
#ifndef GOSSIP_DIRECTORY_LAN_H
#define GOSSIP_DIRECTORY_LAN_H

#include "gossip/directory/contact.h"

enum {
    GSP_LAN_PORT = 4401,
    GSP_LAN_INTERFACES_MAX = 8,
    GSP_LAN_JUDGED_PER_SECOND = 50,
    GSP_LAN_FOUND_MAX = 64, /* contacts that wait for the owner */
};

typedef struct gsp_lan_config {
    gsp_handshake_config who; /* copied; self and ctx must outlive the object */
    const char *interface;    /* one by name ("lo" in tests); NULL: all that are up and can, also later */
    uint16_t port;            /* 0: GSP_LAN_PORT */
    uint64_t period_ns;       /* 0: a minute */
} gsp_lan_config;

typedef struct gsp_lan_found {
    gsp_contact contact;
    gsp_address from; /* the host that sent it; the port is the datagram's, of no use */
} gsp_lan_found;

typedef struct gsp_lan_stats {
    uint64_t sent, send_failed;
    uint64_t heard; /* packets of any kind */
    uint64_t verdicts[GSP_CONTACT_VERDICT_N];
    uint64_t dropped; /* heard before, over the rate, or nobody took what was found */
    uint32_t interfaces;
} gsp_lan_stats;

typedef struct gsp_lan gsp_lan;

/*
 * Joins the group. Several endpoints of one host may share the port. Where no interface can multicast yet, as at the
 * start of a machine, it is quiet until one can.
 * Errors  ATOM_E_USAGE  no such interface; ATOM_E_RUNTIME  the socket cannot be made: the pool can do without
 */
ATOM_MUST atom_status gsp_lan_open(const gsp_lan_config *config, gsp_lan **out);
void gsp_lan_close(gsp_lan **lan);

/* What to send from now on, signed. An address with an ip of zeros stands for the sender's own. */
void gsp_lan_publish(gsp_lan *lan, const gsp_contact *contact);
void gsp_lan_rekey(gsp_lan *lan, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks);
/* How long until the next gsp_lan_step is due even if no packet comes. */
uint64_t gsp_lan_wait_ns(const gsp_lan *lan, uint64_t now_ns);
/* Reads what came and sends what is due. now_ns: atom_clock_ns(); now_s: since 1970. */
void gsp_lan_step(gsp_lan *lan, uint64_t now_ns, uint64_t now_s);
/* Takes what was heard; a member's contact comes again as often as the member sends it. */
ATOM_MUST bool gsp_lan_next(gsp_lan *lan, gsp_lan_found *out);
void gsp_lan_read_stats(const gsp_lan *lan, gsp_lan_stats *stats);

#endif
