/*
 * The transport of net.h inside one process, for tests of what runs above it: the endpoints of one
 * hub hand messages to each other in memory, and links can be cut. It keeps the promises of net.h
 * and breaks what net.h lets a transport break: messages on their way when a link goes down are
 * lost.
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

/* Cuts the way between two keys, or mends it. While it is cut, their link is down on both sides and
 * cannot come up. */
void gsp_sim_cut(gsp_sim_hub *hub, const uint8_t *a, const uint8_t *b, bool cut);

#endif
