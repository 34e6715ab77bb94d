/*
 * Owns the way from links to donors. Its one idea: compare both lists each time, so that no news of
 * a link can be missed. It refuses guests: they have nothing yet.
 */
#include "gossip/pool/donors.h"

static bool may_ask(const gsp_link *l, gsp_donor_fit *fit, void *context)
{
    return l->up && !l->guest && (!fit || fit(context, l));
}

void gsp_donors_update(gsp_links *links, gsp_swarm *swarm, gsp_donor_fit *fit, void *context)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const uint8_t *name = gsp_swarm_name(swarm, i);
        const gsp_link *l = name ? gsp_links_find(links, name) : NULL;
        if (name && (!l || !may_ask(l, fit, context)))
            gsp_swarm_down(swarm, i);
    }
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (may_ask(&links->link[i], fit, context))
            gsp_swarm_up(swarm, links->link[i].key);
}
