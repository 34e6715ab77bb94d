/*
 * Owns what a host's life knows of its router: the address that others reach it at (portmap.h).
 * One idea: it is one more own address, first in contacts and tickets. Refuses to ask where the
 * user said what to announce, or listens at certain addresses only.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"

#include <string.h>

static const double PATIENCE_S = 4; /* of a ticket that wants to name the address */
static const uint64_t LOOK_NS = 2000000000u;

static bool listens_everywhere(const gsp_pool *p)
{
    static const uint8_t any[16];
    for (uint32_t i = 0; i < p->host.n_listen; i++)
        if (memcmp(p->host.listen[i].ip, any, sizeof any) == 0)
            return true;
    return false;
}

void life_router_open(gsp_pool *p)
{
    gsp_portmap_config c = {.port = p->port};
    if (!p->port || p->plain || p->host.no_router || p->host.n_announce || !listens_everywhere(p))
        return;
    if (gsp_portmap_open(&c, &p->router) != ATOM_OK) {
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
        return;
    }
    if (gsp_pool_is_owner(p)) {
        gsp_portmap_wait(p->router, PATIENCE_S);
        life_router_step(p, atom_clock_ns());
    }
}

void life_router_step(gsp_pool *p, uint64_t now)
{
    gsp_portmap_status s;
    if (!p->router || now < p->router_ns)
        return;
    p->router_ns = now + LOOK_NS;
    gsp_portmap_read(p->router, &s);
    if (!s.asked || (p->router_told && s.changes == p->router_changes))
        return;
    p->router_told = true;
    p->router_changes = s.changes;
    p->outside = s.outside;
    p->contact_changed = true;
    atom_log(ATOM_LOG_INFO, "%s", s.why);
    gsp_diary_add(&p->diary, "\"event\":\"router\",\"text\":\"%s\"", s.why);
    if (p->ticket[0] && gsp_pool_is_owner(p) && life_refresh_ticket(p) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
}
