/*
 * A probe: how well a host reaches another one, and how well it can be reached. It runs over a link
 * of net.h, so only holders of the ticket are answered. The asker learns under which address it is
 * seen, whether a connection back to its port works, the round trip, the difference of clocks, and
 * the rates up and down.
 *
 * The answering side is safe to run beside other work. What it gives is counted by key, whatever
 * links that key comes with (tally.h), and for guests by address; when that is used up it says no:
 *
 *   questions    120 of one key in a minute, 960 of all
 *   dials back   4 of one key in a minute, 16 of all members; 4 of one address, 8 of all guests
 *   bytes, both ways   bytes_max of one key in a day, four times that of all; guests none
 *
 * It connects only to the very address at which it sees the link of the host that asks, never for a
 * link through a relay, so nobody else can be scanned with it. It deals with GSP_PROBE_ASKERS_MAX
 * hosts at once; one more takes the place of whoever used most. Its messages begin with
 * GSP_PROBE_MARK, as no other message of the pool does.
 *
 * Thread: that of the net.
 */
#ifndef GOSSIP_NET_PROBE_H
#define GOSSIP_NET_PROBE_H

#include "gossip/net/net.h"

enum { GSP_PROBE_MARK = 0xf0, GSP_PROBE_ASKERS_MAX = 8, GSP_PROBE_WHY_BYTES = 96 };

typedef struct gsp_probe_server gsp_probe_server;
/* bytes_max: sent to and received from one key in a day; 0: 256 MiB. net must outlive it. */
ATOM_MUST atom_status gsp_probe_server_open(gsp_net *net, uint64_t bytes_max,
                                            gsp_probe_server **out);
void gsp_probe_server_close(gsp_probe_server **server);
/* Takes every event of the net. True: it was a message of a probe, and nothing else is to be done
 * with it (but its data is still the caller's to free). */
bool gsp_probe_server_take(gsp_probe_server *server, const gsp_net_event *event);
/* From now on rates are measured for nobody (false), or again. */
void gsp_probe_server_give_bytes(gsp_probe_server *server, bool give);
/* Somebody who goes on sending parts for which there is no room: the caller ends its link. False:
 * nobody. */
ATOM_MUST bool gsp_probe_server_greedy(gsp_probe_server *server, uint8_t key[GSP_NET_KEY_BYTES]);
/* Goes on with what is under way; call after each event and each gsp_probe_wait_ns. */
void gsp_probe_server_step(gsp_probe_server *server);
/* 0.05 s while something is under way, else a minute. */
uint64_t gsp_probe_wait_ns(const gsp_probe_server *server);

typedef struct gsp_probe_wish {
    gsp_address hosts[GSP_NET_ADDRESSES_MAX];
    uint32_t n_hosts;
    uint16_t port;      /* of ours, to be tried from there; 0: it is not tried */
    double seconds;     /* per direction of the rates; 0: 3 */
    uint64_t bytes_max; /* per direction; 0: 64 MiB */
    double patience_s;  /* until the link is up; 0: 15 */
} gsp_probe_wish;

typedef struct gsp_probe_result {
    uint8_t peer[GSP_NET_KEY_BYTES];
    gsp_address seen;   /* ourselves, from there; the port is the one we say we accept at */
    double rtt_s;       /* the least of several */
    double clock_off_s; /* theirs minus ours, to half a round trip */
    bool dialled;       /* a connection back was tried */
    bool reachable;     /* and it worked */
    char why[GSP_PROBE_WHY_BYTES]; /* if not: what happened */
    double up_bytes_per_s, down_bytes_per_s;
    uint64_t up_bytes, down_bytes;
    uint64_t offered; /* bytes that the peer was ready to give for rates: 0 for a guest */
} gsp_probe_result;

/*
 * Asks; blocks for at most patience_s + 10 s + 4 x seconds. net: just opened, without other links.
 * Errors  ATOM_E_RUNTIME  nobody answers, the ticket is refused, or the link broke (the message
 * says         which, and what to do); ATOM_E_USAGE  no hosts
 */
ATOM_MUST atom_status gsp_probe_run(gsp_net *net, const gsp_probe_wish *wish,
                                    gsp_probe_result *result);

#endif
