/*
 * Where others reach this host: the addresses that it listens at, how others see it, and what its
 * router forwards (portmap.h). They go into contacts and tickets.
 *
 * Thread: one at a time (the pool's). Errors: a router that cannot help is logged and done without.
 */
#ifndef GOSSIP_POOL_REACH_H
#define GOSSIP_POOL_REACH_H

#include "gossip/net/portmap.h"
#include "gossip/pool/names.h"
#include "gossip/pool/seek.h"

enum { GSP_REACH_LISTEN_MAX = 4 };

typedef struct gsp_reach {
    uint16_t port; /* that accepts; 0: none, nobody reaches this host */
    bool plain;    /* without a gate */
    uint32_t n_listen;
    gsp_address listen[GSP_REACH_LISTEN_MAX];
    uint32_t n_announce; /* what the user says others should dial; 0: what is found here */
    const char *announce[GSP_TICKET_HOSTS_MAX]; /* borrowed */
    gsp_meant named[GSP_TICKET_HOSTS_MAX];      /* what each of them meant at the beginning */
    gsp_meant announced;                        /* what all of them mean, as was heard last */
    gsp_names *names;                           /* NULL: nobody looks again */
    gsp_address seen;          /* this host as most others see it; zeros: nobody said */
    gsp_portmap *router;       /* NULL: not asked */
    gsp_portmap_status routed; /* as it was looked at last */
    uint64_t look_ns;
} gsp_reach;

/* Looks up what is announced, for contacts, which hold no names. May block for seconds; a name that
 * is not known is logged. The fields above `named` are the caller's. */
void gsp_reach_look_up(gsp_reach *reach);
/* From now on somebody looks again, now and then. */
void gsp_reach_watch_names(gsp_reach *reach);
/* True: the announced names mean other addresses than before, which text says. */
bool gsp_reach_moved(gsp_reach *reach, char *text, size_t bytes);
/* Asks the router, unless the user said what to announce or listens at certain addresses only. */
void gsp_reach_ask_router(gsp_reach *reach);
/* Waits a few seconds for the router's first answer; for whoever is about to make a ticket. */
void gsp_reach_wait(gsp_reach *reach);
/* Looks what the router says, now and then. True: the address outside is news, routed.why says
 * it. */
bool gsp_reach_step(gsp_reach *reach, uint64_t now_ns);
/*
 * How members that this host dialled say that they see it, all of them (zeros: not said). What most say counts, but an
 * address that only a local network or a provider knows yields to any other; of equals, the one that counted before
 * stays. So neither a member on our own network nor one that lies changes it to and fro. True: it is news.
 */
bool gsp_reach_hear(gsp_reach *reach, const gsp_address *said, uint32_t n);
void gsp_reach_close(gsp_reach *reach);

/* Where others should dial, best first, none twice. Returns how many. */
uint32_t gsp_reach_addresses(const gsp_reach *reach, gsp_address *out, uint32_t n_max);
/* The same for a ticket: names as the user announced them, or addresses.
 * ATOM_E_USAGE  a name is too long */
ATOM_MUST atom_status gsp_reach_hosts(const gsp_reach *reach, gsp_hosts *out);

#endif
