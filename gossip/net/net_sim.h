/*
 * The transport of net.h inside one process: endpoints of one hub, messages handed over in memory.
 * For tests of what runs above net.h; links can be cut. It keeps net.h's promises and breaks what
 * net.h lets a transport break: what was on its way when a link goes down is lost.
 *
 * "Addresses" are ports of the hub: any IP and the port that gsp_net_port says.
 *
 * Thread: each endpoint has its own, as in net.h; the functions here may be called from any.
 */
#ifndef GOSSIP_NET_NET_SIM_H
#define GOSSIP_NET_NET_SIM_H

#include "gossip/net/net.h"

typedef struct gsp_sim_hub gsp_sim_hub;

ATOM_MUST atom_status gsp_sim_hub_open(gsp_sim_hub **out);
/* After all its endpoints. NULL is fine. */
void gsp_sim_hub_close(gsp_sim_hub **hub);

/* Errors  ATOM_E_USAGE  an endpoint with this key is open; ATOM_E_RESOURCE  no memory, or 64 are */
ATOM_MUST atom_status gsp_sim_net_open(gsp_sim_hub *hub, const uint8_t *key, gsp_net **out);

/* Cuts (or mends) the way between two keys: their link goes down on both sides and cannot come up.
 */
void gsp_sim_cut(gsp_sim_hub *hub, const uint8_t *a, const uint8_t *b, bool cut);

#endif
