/*
 * Asks the router to let others in (docs/design/pool.md#transport): NAT-PMP (RFC 6886) first,
 * because it answers at once, else UPnP's Internet Gateway Device. The mapping is leased, renewed
 * at half of its time, and given back at the end. If no router can do this, the status says so, and
 * nothing else happens.
 *
 * It talks to the default gateway and, for UPnP, to any device that answers on the local network.
 * All that it takes from there is an address and a port, which others try with a handshake.
 *
 * Thread: its own; all functions from any.
 */
#ifndef GOSSIP_NET_PORTMAP_H
#define GOSSIP_NET_PORTMAP_H

#include "gossip/gate/net_address.h"

enum { GSP_PORTMAP_WHY_BYTES = 160 };

typedef struct gsp_portmap_config {
    uint16_t port;       /* TCP, on this host */
    uint32_t lifetime_s; /* 0: an hour */
    /* For tests: a NAT-PMP gateway (IPv4) and a UPnP description, which are then not looked for. */
    const char *gateway, *description_url;
} gsp_portmap_config;

typedef enum gsp_portmap_way {
    GSP_PORTMAP_NONE,
    GSP_PORTMAP_NATPMP,
    GSP_PORTMAP_UPNP
} gsp_portmap_way;

typedef struct gsp_portmap_status {
    bool asked;                      /* the first answer has come, good or bad */
    uint32_t changes;                /* grows with every new `outside` */
    gsp_portmap_way way;             /* NONE: no mapping */
    gsp_address outside;             /* where others reach the port; zeros: none that is public */
    char why[GSP_PORTMAP_WHY_BYTES]; /* one sentence for the user */
} gsp_portmap_status;

typedef struct gsp_portmap gsp_portmap;

/* Starts asking. ATOM_E_RESOURCE: no memory, no thread. */
ATOM_MUST atom_status gsp_portmap_open(const gsp_portmap_config *config, gsp_portmap **out);
/* Gives the mapping back (a second or two), ends the thread. NULL is fine. */
void gsp_portmap_close(gsp_portmap **map);
/* Waits for the first answer, but no longer than this. */
void gsp_portmap_wait(gsp_portmap *map, double seconds);
void gsp_portmap_read(gsp_portmap *map, gsp_portmap_status *out);

#endif
