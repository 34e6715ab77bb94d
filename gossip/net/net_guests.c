/*
 * Owns the choice of who gets a guest's place. Its one idea: guests compete with those that come
 * from where they come from; only where nobody holds more than the newcomer's address does age
 * decide. It refuses to look at keys, which cost nothing.
 */
#include "gossip/net/net_inner.h"

static bool is_here(const net_link *link)
{
    return link->used && link->state >= LINK_BUILDING && link->state <= LINK_UP;
}

/* Guests of the same address as this one. */
static uint32_t crowd(const net_link *guest, const gsp_address *from)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NET_GUEST_SLOTS; i++)
        n += is_here(&guest[i]) && gsp_address_same_customer(&guest[i].address, from);
    return n;
}

net_link *net_guests_free(net_link *guest)
{
    for (uint32_t i = 0; i < NET_GUEST_SLOTS; i++)
        if (!guest[i].used)
            return &guest[i];
    return NULL;
}

/* Who has been here for longest of those whose address holds at least `n` places; only of `from`
 * unless that is NULL. */
static net_link *oldest(net_link *guest, uint32_t n, const gsp_address *from)
{
    net_link *found = NULL;
    for (uint32_t i = 0; i < NET_GUEST_SLOTS; i++) {
        net_link *g = &guest[i];
        if (is_here(g) && (!from || gsp_address_same_customer(&g->address, from)) &&
            crowd(guest, &g->address) >= n && (!found || g->begun_ns < found->begun_ns))
            found = g;
    }
    return found;
}

net_link *net_guests_place(net_link *guest, const gsp_address *from, uint64_t now)
{
    uint32_t n = 0, most = 0, own = crowd(guest, from);
    for (uint32_t i = 0; i < NET_GUEST_SLOTS; i++) {
        uint32_t held = is_here(&guest[i]) ? crowd(guest, &guest[i].address) : 0;
        n += held > 0;
        most = held > most ? held : most;
    }
    if (own < NET_GUESTS_PER_ADDRESS && n < GSP_NET_GUESTS_MAX)
        return net_guests_free(guest);
    if (own < NET_GUESTS_PER_ADDRESS && most > own + 1)
        return oldest(guest, most, NULL); /* its address holds more than the newcomer's */
    net_link *victim = oldest(guest, 1, own < NET_GUESTS_PER_ADDRESS ? NULL : from);
    return victim && now - victim->begun_ns >= NET_GUEST_GRACE_NS ? victim : NULL;
}
