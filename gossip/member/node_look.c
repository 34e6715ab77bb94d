/*
 * Owns nothing: it opens a window on a member's machine. Its one idea: who shows a member reads
 * what the member itself goes by. It refuses to change anything but who is linked.
 */
#include "gossip/member/node_look.h"
#include "gossip/member/node_inner.h"

#include <string.h>

const gsp_agree *gsp_node_look(const gsp_node *d)
{
    return &d->agree;
}

bool gsp_node_is_busy(const gsp_node *d)
{
    bool waiting = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        waiting |= d->friends[i].up && (d->friends[i].contributions.n || d->friends[i].results.n);
    return waiting;
}

static gsp_friend *friend_of(gsp_node *d, const uint8_t key[GSP_KEY_BYTES])
{
    gsp_key who;
    memcpy(who.byte, key, sizeof who.byte);
    return gsp_friend_find(d, &who);
}

void gsp_node_was_full(gsp_node *d, const uint8_t key[GSP_KEY_BYTES])
{
    gsp_friend *f = friend_of(d, key);
    if (f)
        f->busy[GSP_NET_BULK] = true;
}

bool gsp_node_is_full(gsp_node *d, const uint8_t key[GSP_KEY_BYTES])
{
    const gsp_friend *f = friend_of(d, key);
    return f && f->busy[GSP_NET_BULK];
}

void gsp_node_link(gsp_node *d, const uint8_t key[GSP_KEY_BYTES])
{
    gsp_event event = {.kind = GSP_ON_UP};
    memcpy(event.peer.byte, key, sizeof event.peer.byte);
    gsp_friend_up(d, &event.peer);
    gsp_node_step(d, &event);
}

void gsp_node_unlink(gsp_node *d, const uint8_t key[GSP_KEY_BYTES])
{
    gsp_event event = {.kind = GSP_ON_DOWN};
    memcpy(event.peer.byte, key, sizeof event.peer.byte);
    gsp_friend_down(d, &event.peer);
    gsp_node_step(d, &event);
}
