/*
 * Keeps the donors of a swarm in step with the links: everybody that may be asked is one.
 *
 * Thread: the swarm's and the links'.
 */
#ifndef GOSSIP_POOL_DONORS_H
#define GOSSIP_POOL_DONORS_H

#include "gossip/pool/links.h"
#include "gossip/swarm/swarm.h"

/* May this member (its link is up) be asked? */
typedef bool gsp_donor_fit(void *context, const gsp_link *link);

/* Every member that is linked, and fit (NULL: all are), is up in the swarm, and nobody else.
 * Call it before each turn. */
void gsp_donors_update(gsp_links *links, gsp_swarm *swarm, gsp_donor_fit *fit, void *context);

#endif
