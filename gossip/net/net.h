/*
 * Messages between members (docs/design/pool.md#transport): all that the pool's driver sees of the
 * network.
 *
 * An endpoint has a key (its Ed25519 identity) and links to peers. A link is UP or DOWN. While it
 * is UP, messages on CONTROL arrive whole, once, and in the order in which they were sent; messages
 * on BULK arrive whole and once, but in no order, so each says what it is (version, part,
 * sequence). The two channels may overtake each other. After a DOWN nothing is known about messages
 * that were sent and not answered: the caller sends them again. A link that was dialled is dialled
 * again by itself, with pauses, until it is dropped; a link that the peer opened comes back when
 * the peer dials.
 *
 * Guests (peers that show an invite and no admission) have few places of their own and never take
 * that of a member; net_guests.c says whom they compete with and for how long they stay.
 *
 * Back-pressure: gsp_net_send never blocks and never queues without bound. It returns BUSY, and a
 * ROOM event follows when it is worth trying again. Deadlines belong to the caller: gsp_net_next
 * takes the time until the next one. A silent peer is not DOWN: heartbeats are messages.
 *
 * Two members that cannot reach each other are brought together by a third one that both have
 * dialled, which cannot read along. Only the gate does this, by itself, after all addresses were
 * tried in vain.
 *
 * Three implementations, which all pass tests/unit/gossip_net.c:
 *   gsp_net_open_gate   net_nanomsg.h: authenticated and encrypted, through the gate
 *   gsp_net_open_plain  net_nanomsg.h: bare nanomsg on a trusted LAN
 *   gsp_sim_net_open    net_sim.h: threads in one process, for tests
 *
 * Thread: one thread owns an endpoint and makes all calls but gsp_net_wake.
 */
#ifndef GOSSIP_NET_NET_H
#define GOSSIP_NET_NET_H

#include "gossip/gate/net_address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GSP_NET_KEY_BYTES = 32,
    GSP_NET_PEERS_MAX = 64, /* links at once, up or wanted */
    GSP_NET_GUESTS_MAX = 8, /* links of guests at once, beside those */
    /* All whose events may be under way: a guest's place is taken again before its DOWN is told. */
    GSP_NET_LINKS_MAX = GSP_NET_PEERS_MAX + 2 * GSP_NET_GUESTS_MAX,
    GSP_NET_STREAMS_MAX = 16,               /* bulk streams of one link */
    GSP_NET_ADDRESSES_MAX = 8,              /* tried in turn for one peer */
    GSP_NET_CONTROL_BYTES_MAX = 128 * 1024, /* one message on CONTROL */
    GSP_NET_BULK_BYTES_MAX = 1024 * 1024,   /* one message on BULK; parts are 256-512 KiB */
};

typedef enum gsp_net_channel {
    GSP_NET_CONTROL, /* in order; never waits behind bulk */
    GSP_NET_BULK,    /* spread over the link's streams; unordered */
    GSP_NET_CHANNEL_N
} gsp_net_channel;

typedef enum gsp_net_sent {
    GSP_NET_SENT, /* on its way, which does not mean delivered */
    GSP_NET_BUSY, /* nothing was taken; wait for ROOM of this peer and channel */
    GSP_NET_GONE, /* the link is not up */
} gsp_net_sent;

typedef enum gsp_net_kind {
    GSP_NET_NOTHING, /* the time is over, or gsp_net_wake was called */
    GSP_NET_UP,      /* key, guest, inbound, address are set */
    GSP_NET_DOWN,    /* why is set; the same key may come UP again later */
    GSP_NET_MESSAGE, /* channel, data, bytes are set */
    GSP_NET_ROOM,    /* channel is set */
    GSP_NET_REFUSED, /* the peer refused a dial, or the dial cannot work; why says what to do. The
                        endpoint goes on trying, slowly, until the link is dropped. */
} gsp_net_kind;

typedef struct gsp_net_event {
    gsp_net_kind kind;
    gsp_net_channel channel;
    uint8_t key[GSP_NET_KEY_BYTES]; /* whose; zero for a REFUSED dial that no key answered */
    bool guest;    /* it has an invite but no admission yet: it may only ask to be admitted */
    bool old_key;  /* a member that knows only the key before: a guest until it has the new one */
    bool inbound;  /* the peer dialled us, so it can reach us */
    uint64_t boot; /* UP: differs for each process of the peer; 0: not known */
    gsp_address address; /* where the peer accepts, as far as we see; all zero: through a relay */
    void *data;          /* the caller's, to be given back by gsp_net_free */
    size_t bytes;
    int refusal; /* REFUSED: what `key` said (gsp_refusal); 0: nobody said anything */
    char why[120];
} gsp_net_event;

typedef struct gsp_net_stats {
    uint64_t messages_sent, messages_received;
    uint64_t payload_bytes_sent, payload_bytes_received;
    /* With our framing, without TCP and IP headers. */
    uint64_t wire_bytes_sent, wire_bytes_received;
    uint64_t links_up, links_down; /* events since open */
    uint64_t strangers;            /* inbound connections that did not authenticate */
    /* Authenticated streams that were ended because a record was forged or damaged. */
    uint64_t records_refused;
    uint32_t links; /* up now */
} gsp_net_stats;

typedef struct gsp_net gsp_net;
typedef struct gsp_net_ops {
    void (*close)(gsp_net *net);
    atom_status (*dial)(gsp_net *net, const uint8_t *key, const gsp_address *addresses, size_t n);
    void (*drop)(gsp_net *net, const uint8_t *key);
    gsp_net_sent (*send)(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                         const void *head, size_t head_bytes, const void *body, size_t body_bytes);
    atom_status (*next)(gsp_net *net, uint64_t timeout_ns, gsp_net_event *event);
    void (*free)(gsp_net *net, void *data);
    void (*wake)(gsp_net *net);
    void (*read_stats)(const gsp_net *net, gsp_net_stats *stats);
    uint16_t (*port)(const gsp_net *net);
    void (*pace)(gsp_net *net, const uint8_t *key, uint64_t bytes_per_s); /* NULL: cannot */
} gsp_net_ops;

/* Every implementation's struct starts with this. */
struct gsp_net {
    const gsp_net_ops *ops;
    uint8_t key[GSP_NET_KEY_BYTES]; /* our own */
};

/* Ends all links. What was sent and not answered may be lost, so a member that says goodbye waits
 * for an answer first. NULL and half-built are fine; sets *net to NULL. */
static inline void gsp_net_close(gsp_net **net)
{
    if (*net)
        (*net)->ops->close(*net);
    *net = NULL;
}

/*
 * Wants a link to a peer: dials its addresses in turn until the link is UP, and again after each
 * DOWN. A second call with the same key replaces the addresses. A key of 32 zeros means anybody
 * that answers there and proves to be a member (bootstrap): its UP event has the key, and then the
 * wish is fulfilled for good. The same wish twice is one wish. REFUSED tells of a dial that came to
 * nothing, unless it has told the same reason before.
 * Errors  ATOM_E_RESOURCE  GSP_NET_PEERS_MAX links already; ATOM_E_USAGE  n is 0 or too large, or
 *         the key is our own
 */
ATOM_MUST static inline atom_status gsp_net_dial(gsp_net *net, const uint8_t *key,
                                                 const gsp_address *addresses, size_t n)
{
    return net->ops->dial(net, key, addresses, n);
}

/* Ends the link and the wish for it. No event of it follows, not even DOWN. */
static inline void gsp_net_drop(gsp_net *net, const uint8_t *key)
{
    net->ops->drop(net, key);
}

/*
 * Sends head and body as one message; either may be empty, but not both. Both are copied before
 * this returns. A message above the channel's maximum is our bug (ATOM_ASSERT). Never blocks.
 */
ATOM_MUST static inline gsp_net_sent gsp_net_send(gsp_net *net, const uint8_t *key,
                                                  gsp_net_channel channel, const void *head,
                                                  size_t head_bytes, const void *body,
                                                  size_t body_bytes)
{
    return net->ops->send(net, key, channel, head, head_bytes, body, body_bytes);
}

/*
 * The next event; waits at most timeout_ns for it (0: not at all). NOTHING if there is none.
 * CONTROL comes before BULK if both wait. Not calling this holds up the senders.
 * Errors  only of this host (no memory, no descriptors); the endpoint can still be closed
 */
ATOM_MUST static inline atom_status gsp_net_next(gsp_net *net, uint64_t timeout_ns,
                                                 gsp_net_event *event)
{
    return net->ops->next(net, timeout_ns, event);
}

/* Gives back an event's data, before the endpoint is closed. NULL is fine. */
static inline void gsp_net_free(gsp_net *net, void *data)
{
    net->ops->free(net, data);
}

/* Makes a waiting (or the next) gsp_net_next return. From any thread. */
static inline void gsp_net_wake(gsp_net *net)
{
    net->ops->wake(net);
}

static inline void gsp_net_read_stats(const gsp_net *net, gsp_net_stats *stats)
{
    net->ops->read_stats(net, stats);
}

/* BULK to this peer goes no faster than this (payload bytes/s, all its streams together) until told
 * otherwise, where the transport can pace; 0: as fast as it goes. No link: nothing happens. */
static inline void gsp_net_pace(gsp_net *net, const uint8_t *key, uint64_t bytes_per_s)
{
    if (net->ops->pace)
        net->ops->pace(net, key, bytes_per_s);
}

/* The port that accepts (useful when 0 was asked for); 0: none, this host only dials. */
static inline uint16_t gsp_net_port(const gsp_net *net)
{
    return net->ops->port(net);
}

#endif
