/*
 * Owns relaying: two members that cannot reach each other meet at a third that both have dialled
 * (docs/design/pool.md#transport). Its one idea: the relay joins two of its streams back to back,
 * and through that tube the two shake hands and seal as if it were TCP; so the relay sees what the
 * internet sees. Each stream of their link takes a tube of its own.
 *
 *   A                         R                          B
 *   dials R: ASK B   ---->    offers A to B    ---->     dials R: TAKE token
 *                             joins both streams
 *   handshake and records of A and B, inside records of A-R and R-B
 *
 * It refuses to relay for guests and who has an old key, to whom it has no link, and for more than RELAYS_MAX at once that
 * wait, RELAYS_PER_KEY of one member. What is joined is counted from then on (net_tubes.c).
 */
#include "gossip/net/net_inner.h"

#include "atom/base/bytes.h"
#include "atom/base/clock.h"

#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OFFER_BYTES = GSP_NET_KEY_BYTES + 8 };
static const uint64_t WAIT_NS = 10000000000ull;

static net_relay *take(net_endpoint *e, net_relay_role role)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < RELAYS_MAX; i++)
        others += e->relay[i].role == RELAY_TAKES || e->relay[i].role == RELAY_HOLDS;
    if (role != RELAY_ASKS && others >= RELAYS_OTHERS_MAX)
        return NULL;
    for (uint32_t i = 0; i < RELAYS_MAX; i++) {
        net_relay *r = &e->relay[i];
        if (r->role == RELAY_FREE) {
            *r = (net_relay){.role = role, .until_ns = atom_clock_ns() + WAIT_NS};
            randombytes_buf(&r->token, sizeof r->token);
            r->token |= 1;
            return r;
        }
    }
    return NULL;
}

static net_relay *find(net_endpoint *e, net_relay_role role, uint64_t token)
{
    for (uint32_t i = 0; i < RELAYS_MAX; i++)
        if (e->relay[i].role == role && e->relay[i].token == token)
            return &e->relay[i];
    return NULL;
}

/* How many of a role are under way for one member: that asks us to relay, or relays for us. */
static uint32_t waits_for(const net_endpoint *e, net_relay_role role, const uint8_t *key)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RELAYS_MAX; i++) {
        const net_relay *r = &e->relay[i];
        n += r->role == role &&
             memcmp(role == RELAY_HOLDS ? r->asker : r->peer, key, GSP_NET_KEY_BYTES) == 0;
    }
    return n;
}

bool net_relay_ask(net_endpoint *e, net_link *link, uint32_t i)
{
    net_relay *r = take(e, RELAY_ASKS);
    if (!r)
        return atom_fail(ATOM_E_RESOURCE, "too many connections through relays at once") == ATOM_OK;
    gsp_hello hello = {.stream = GSP_RELAY_ASK, .n_streams = 2, .link = link->id};
    memcpy(hello.target, link->key, sizeof hello.target);
    memcpy(r->peer, link->key, sizeof r->peer);
    r->inner = (gsp_hello){
        .stream = (uint16_t)i, .n_streams = (uint16_t)link->n_streams, .link = link->id};
    if (gsp_gate_dial(e->gate, link->relay_key, &link->relay_address, &hello, r->token) == ATOM_OK)
        return true;
    r->role = RELAY_FREE;
    return false;
}

/* Our end of the tube: the stream to the relay on one side, a stream to the peer on the other. */
static void open_end(net_endpoint *e, const gsp_gate_event *event, net_relay *r)
{
    int end[2];
    const bool asks = r->role == RELAY_ASKS;
    r->role = RELAY_FREE;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) != 0) {
        gsp_gate_end(e->gate, event->stream);
        if (asks)
            net_link_dial_failed(e, r->inner.link, GSP_WELCOME, "no descriptors");
        return;
    }
    gsp_gate_join(e->gate, event->stream, end[0]);
    if (gsp_gate_adopt(e->gate, end[1], asks ? r->peer : NULL, &r->inner,
                       asks ? r->inner.link : 0) != ATOM_OK &&
        asks)
        net_link_dial_failed(e, r->inner.link, GSP_WELCOME, atom_fail_message());
}

/* We are the relay, and somebody asks for target. */
static void offer(net_endpoint *e, const gsp_gate_event *event)
{
    uint8_t message[OFFER_BYTES];
    net_link *to = net_link_find(e, event->hello.target);
    bool right = event->role != GSP_GUEST && !event->old_key && to && to->state == LINK_UP &&
                 !to->guest && !to->relayed && !to->dialled;
    right = right && !e->tubes.refuses && waits_for(e, RELAY_HOLDS, event->key) < RELAYS_PER_KEY;
    net_relay *r = right ? take(e, RELAY_HOLDS) : NULL;
    if (!r) {
        gsp_gate_end(e->gate, event->stream);
        return;
    }
    r->stream = event->stream;
    memcpy(r->peer, event->hello.target, sizeof r->peer);
    memcpy(r->asker, event->key, sizeof r->asker);
    atom_writer w = atom_writer_make(message, sizeof message);
    atom_write_bytes(&w, event->key, GSP_NET_KEY_BYTES);
    atom_write_uint(&w, r->token, 8);
    if (!net_pair_send(&to->stream[0].pair, message, sizeof message, NULL, 0, NET_RELAY_OFFER)) {
        r->role = RELAY_FREE;
        gsp_gate_end(e->gate, event->stream);
    }
}

/* We are the relay, and the other one has come. */
static void join_both(net_endpoint *e, const gsp_gate_event *event)
{
    int end[2];
    net_relay *r = find(e, RELAY_HOLDS, event->hello.link);
    if (!r || memcmp(r->peer, event->key, sizeof r->peer) != 0) {
        gsp_gate_end(e->gate, event->stream);
        return;
    }
    r->role = RELAY_FREE;
    bool right = net_tubes_add(e, r->asker, r->peer, r->stream, event->stream, atom_clock_ns());
    if (!right || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end) != 0) {
        gsp_gate_end(e->gate, event->stream);
        gsp_gate_end(e->gate, r->stream);
        return; /* a tube of streams that are over is forgotten at the next look */
    }
    gsp_gate_join(e->gate, r->stream, end[0]);
    gsp_gate_join(e->gate, event->stream, end[1]);
}

bool net_relay_up(net_endpoint *e, const gsp_gate_event *event)
{
    if (event->hello.stream != GSP_RELAY_ASK && event->hello.stream != GSP_RELAY_TAKE)
        return false;
    const bool asks = event->hello.stream == GSP_RELAY_ASK;
    if (!event->dialled && asks) {
        offer(e, event);
    } else if (!event->dialled) {
        join_both(e, event);
    } else {
        net_relay *r = find(e, asks ? RELAY_ASKS : RELAY_TAKES, event->tag);
        if (r)
            open_end(e, event, r);
        else
            gsp_gate_end(e->gate, event->stream);
    }
    return true;
}

void net_relay_offered(net_endpoint *e, net_link *by, const void *data, size_t bytes)
{
    uint8_t from[GSP_NET_KEY_BYTES];
    atom_reader in = atom_reader_make(data, bytes);
    atom_read_bytes(&in, from, sizeof from);
    gsp_hello hello = {.stream = GSP_RELAY_TAKE, .n_streams = 2, .link = atom_read_u64(&in)};
    bool right = e->gate && atom_reader_ok(&in) && net_link_serves(by) &&
                 waits_for(e, RELAY_TAKES, by->key) < RELAYS_PER_KEY;
    net_relay *r = right ? take(e, RELAY_TAKES) : NULL;
    if (!r)
        return; /* the relay's patience ends by itself */
    memcpy(r->peer, by->key, sizeof r->peer);
    if (gsp_gate_dial(e->gate, by->key, &by->address, &hello, r->token) != ATOM_OK)
        r->role = RELAY_FREE;
}

bool net_relay_failed(net_endpoint *e, const gsp_gate_event *event)
{
    net_relay *r = find(e, RELAY_TAKES, event->tag);
    if (r) {
        r->role = RELAY_FREE;
        return true;
    }
    r = find(e, RELAY_ASKS, event->tag);
    if (!r)
        return false;
    r->role = RELAY_FREE;
    /* What the relay says of us is not what the peer would say. */
    net_link_dial_failed(e, r->inner.link, event->refusal, event->why);
    return true;
}

void net_relay_tick(net_endpoint *e, uint64_t now)
{
    net_tubes_tick(e, now);
    for (uint32_t i = 0; i < RELAYS_MAX; i++) {
        net_relay *r = &e->relay[i];
        if (r->role == RELAY_FREE || now < r->until_ns)
            continue;
        if (r->role == RELAY_HOLDS)
            gsp_gate_end(e->gate, r->stream);
        else if (r->role == RELAY_ASKS)
            net_link_dial_failed(e, r->inner.link, GSP_WELCOME, "the relay did not answer in time");
        r->role = RELAY_FREE;
    }
}
