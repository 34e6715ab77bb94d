/*
 * Inside the real transports, and for their files alone: the endpoint with its links and streams.
 * One thread owns all of it, so the files share the struct; calls go one way. net_nanomsg.c (the
 * interface and its loop) and the two carriers, net_carry_gate.c and net_carry_plain.c (how streams
 * come to be), call net_relay.c (meeting at a third member) and net_link.c (when a link begins, is
 * kept and ends); net_link.c reaches the carrier through net_carrier.
 *
 * Thread: the endpoint's, for everything.
 */
#ifndef GOSSIP_NET_NET_INNER_H
#define GOSSIP_NET_NET_INNER_H

#include "gossip/net/net_nanomsg.h"
#include "gossip/net/net_pair.h"
#include "gossip/net/tally.h"

enum {
    LINK_STREAMS_MAX = 1 + GSP_NET_STREAMS_MAX, /* stream 0 is CONTROL */
    STREAMS_DEFAULT = 2,
    RELAYS_MAX = 96,        /* dials through relays that are under way */
    RELAYS_OTHERS_MAX = 72, /* of these, those that others began: five of them do not use up ours */
    RELAYS_PER_KEY = LINK_STREAMS_MAX + 3,
    DATA_CARRIER = 0xfffe, /* epoll: what the carrier waits on, and wake */
    DATA_WAKE = 0xffff,
};

/*
 * Guests. A place is held for NET_GUEST_NS at most; what is said on it is small and little. There
 * are GSP_NET_GUESTS_MAX places, of which one address (/32 of IPv4, /64 of IPv6) holds at most
 * NET_GUESTS_PER_ADDRESS. Where all are taken, the newcomer takes that of the oldest guest of the
 * address that holds most; an address that is at its limit takes its own oldest. Among equals nobody
 * loses a place in its first NET_GUEST_GRACE_NS, which is enough to be admitted.
 */
enum {
    NET_GUEST_SLOTS = GSP_NET_LINKS_MAX - GSP_NET_PEERS_MAX,
    NET_GUESTS_PER_ADDRESS = GSP_NET_GUESTS_MAX / 2,
    NET_GUEST_STREAMS = 1 + STREAMS_DEFAULT,
    NET_GUEST_BYTES = 4096,  /* one message */
    NET_GUEST_MESSAGES = 32, /* in all */
};
#define NET_GUEST_NS 10000000000ull
#define NET_GUEST_GRACE_NS 1000000000ull

/* The last byte of a message on CONTROL: the caller's, or ours. */
enum { NET_OF_CALLER = 0, NET_RELAY_OFFER = 1, NET_NO_TAIL = -1 };

typedef enum net_relay_role {
    RELAY_FREE,
    RELAY_ASKS,  /* we asked a relay for a peer */
    RELAY_TAKES, /* we go to a relay to meet a peer */
    RELAY_HOLDS, /* we are the relay, one of two is here */
} net_relay_role;

typedef struct net_relay {
    net_relay_role role;
    uint64_t token; /* ASKS, TAKES: tag of the dial to the relay; HOLDS: what the other must say */
    uint64_t until_ns;
    uint64_t stream;                  /* HOLDS */
    uint8_t peer[GSP_NET_KEY_BYTES];  /* TAKES: the relay */
    uint8_t asker[GSP_NET_KEY_BYTES]; /* HOLDS */
    gsp_hello inner;                  /* ASKS: of the stream inside */
} net_relay;

typedef struct net_stream {
    bool used;
    bool watches_send; /* can_send is in epoll */
    uint64_t gate;     /* the gate's number; 0: plain */
    net_pair pair;
    char path[GSP_GATE_PATH_BYTES]; /* the local socket's; "" when gone */
} net_stream;

typedef enum link_state {
    LINK_NONE,     /* no stream; dials when wanted and due */
    LINK_DIALLING, /* the control stream is being dialled */
    LINK_BUILDING, /* some streams are there */
    LINK_UP,
    LINK_DYING, /* a stream ended; what has arrived is still handed out */
} link_state;

typedef struct net_link {
    bool used;
    bool wanted;    /* dial it, and again */
    bool known_key; /* false: anybody that answers and proves to be a member */
    bool found;     /* `key` answered a wish for anybody; until its UP is told, that may return */
    bool failed;    /* the connection before this one did not come up */
    link_state state;
    uint8_t key[GSP_NET_KEY_BYTES];

    gsp_address addresses[GSP_NET_ADDRESSES_MAX];
    uint32_t n_addresses, next_address;
    uint64_t due_ns, pause_ns;             /* when to dial; the pause after the next failure */
    uint64_t dial_tag;                     /* of the dial under way; older answers are ignored */
    gsp_refusal refused;                   /* last one told */
    uint8_t refused_by[GSP_NET_KEY_BYTES]; /* zeros: nobody in particular */

    bool relayed;    /* the dial under way, or the link, goes through a relay */
    bool relay_next; /* all addresses were tried in vain */
    uint32_t next_relay;
    uint8_t relay_key[GSP_NET_KEY_BYTES];
    gsp_address relay_address;

    /* The link that is there. */
    bool dialled, guest, old_key;
    uint32_t n_heard; /* messages of a guest */
    uint64_t id, boot, begun_ns, deadline_ns;
    uint64_t heard_ns; /* when its last message came, or it came up */
    uint32_t n_streams; /* with CONTROL */
    net_stream stream[LINK_STREAMS_MAX];
    uint32_t next_bulk; /* stream to try first */
    gsp_address address;
    gsp_role role;
    uint32_t credential_bytes;
    uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];

    /* What gsp_net_next has to tell, in this order. */
    bool tell_down, tell_refused, tell_up, told_up;
    bool busy[GSP_NET_CHANNEL_N], tell_room[GSP_NET_CHANNEL_N];
    char why_down[96], why_refused[96];
} net_link;

/*
 * Tubes that this host holds as a relay. At most NET_TUBES_MAX, NET_TUBES_PER_MEMBER that one member
 * asked for, NET_TUBES_PER_PAIR to one target (a link of several streams, twice while it is made
 * anew). A tube ends when nothing passed for NET_TUBE_IDLE_NS, after NET_TUBE_NS, or when its
 * asker's hour of bytes is used up. Two members whose tube ended may ask for the next.
 */
enum {
    NET_TUBES_MAX = 192,
    NET_TUBES_PER_MEMBER = 64,
    NET_TUBES_PER_PAIR = LINK_STREAMS_MAX + STREAMS_DEFAULT + 1,
};
#define NET_TUBE_IDLE_NS (900 * 1000000000ull)
#define NET_TUBE_NS (24 * 3600 * 1000000000ull)
#define NET_TUBE_HOUR_NS (3600 * 1000000000ull)
#define NET_TUBE_LOOK_NS 1000000000ull
#define NET_TUBE_BYTES_EACH (8ull << 30)
#define NET_TUBE_BYTES_ALL (32ull << 30)

typedef struct net_tube {
    bool used;
    uint64_t stream[2];
    uint8_t asker[GSP_NET_KEY_BYTES], target[GSP_NET_KEY_BYTES];
    uint64_t bytes, begun_ns, moved_ns;
} net_tube;

typedef struct net_tubes {
    bool refuses; /* gsp_net_serve_relays */
    uint64_t look_ns;
    gsp_tally bytes;
    net_tube tube[NET_TUBES_MAX];
} net_tubes;

typedef struct net_endpoint net_endpoint;

/* How streams come to be and end. */
typedef struct net_carrier {
    /* Begins to dial stream i of the link with its id and dial_tag. False: could not even begin. */
    bool (*dial)(net_endpoint *e, net_link *link, uint32_t i);
    void (*end)(net_endpoint *e, net_stream *stream); /* the connection, not the PAIR */
    void (*read)(net_endpoint *e);                    /* its descriptor rang */
    void (*tick)(net_endpoint *e, uint64_t now);      /* at least ten times a second; may be NULL */
    void (*close)(net_endpoint *e);
} net_carrier;

struct net_endpoint {
    gsp_net net; /* first */
    const net_carrier *carrier;
    uint32_t streams; /* bulk, wanted of links that we dial */
    uint64_t boot;
    int epoll, wake;
    uint16_t port;
    net_link link[GSP_NET_LINKS_MAX]; /* of peers; after GSP_NET_PEERS_MAX of guests */
    bool is_guest;                    /* we show an invite ourselves */
    bool guests_are_peers;            /* as net_nanomsg.h says */
    uint64_t next_tag, tick_ns;
    uint32_t turn; /* where the search for a ready stream begins */
    bool woken;
    gsp_net_stats stats;

    gsp_gate *gate; /* gate */
    char *directory;
    bool own_directory; /* made by net_place.c; own_lock is its lock */
    int own_lock;
    uint64_t next_path;
    net_relay relay[RELAYS_MAX];
    net_tubes tubes;
    gsp_tally control; /* messages on CONTROL of each key in a minute */

    int reply;                      /* plain: the REP socket; and below */
    int request[GSP_NET_PEERS_MAX]; /* 1 + the REQ socket of a dial; 0: none */
    uint64_t request_end_ns[GSP_NET_PEERS_MAX];
    gsp_address listen;
    uint16_t port_first, port_last, port_next;
    int buffer_bytes;
};

/* What a carrier says of a new stream; the gate's are authenticated, plain ones believed. */
typedef struct net_arrival {
    const uint8_t *key;
    bool dialled, guest, old_key, relayed;
    uint64_t tag; /* of our dial */
    uint32_t stream, n_streams;
    uint64_t link, boot;
    gsp_address address;
    gsp_role role;
    const uint8_t *credential;
    uint32_t credential_bytes;
} net_arrival;

/* net_link.c */
bool net_watch(net_endpoint *e, int fd, uint32_t data);
void net_unwatch(net_endpoint *e, int fd);
net_link *net_link_find(net_endpoint *e, const uint8_t *key);
net_link *net_link_take(net_endpoint *e);
/* Moves a guest's link, without its connection, to a peer's place: it is wanted, or was admitted.
 * NULL: there is none. */
net_link *net_link_leave_guests(net_endpoint *e, net_link *link);
/*
 * A stream arrived: which link it belongs to, or NULL when it is not wanted (a duplicate of a link
 * that is kept, a stray). May end an older link with the same peer. The caller fills in
 * link->stream[arrival->stream] and calls net_link_stream_added.
 */
net_link *net_link_admit(net_endpoint *e, const net_arrival *arrival);
void net_link_stream_added(net_endpoint *e, net_link *link, uint32_t i);
/* A dial came to nothing; refusal WELCOME: nobody answered. */
void net_link_dial_failed(net_endpoint *e, uint64_t tag, gsp_refusal refusal, const char *why);
/* The same by the word of the member `by`; NULL: nobody's. */
void net_link_dial_refused(net_endpoint *e, uint64_t tag, const uint8_t *by, gsp_refusal refusal,
                           const char *why);
/* The link's connection is over. */
void net_link_lost(net_endpoint *e, net_link *link, const char *why);
/* Ends the link at once; nothing is told. */
void net_link_drop(net_endpoint *e, net_link *link);
/* Dials that are due, links that are built or overdue. */
void net_link_tick(net_endpoint *e, uint64_t now);
/* Whether this peer could relay for us: it accepts connections, and we hold one. */
bool net_link_serves(const net_link *link);
/* Frees the slot when nothing needs it any more. */
void net_link_settle(net_link *link);

/* The link is in the places of guests. */
static inline bool net_link_of_guest(const net_endpoint *e, const net_link *link)
{
    return link - e->link >= GSP_NET_PEERS_MAX;
}

/* net_guests.c. guest: the NET_GUEST_SLOTS links of guests. */
/* A place for a newcomer: free, or of the guest that has to go. NULL: not now. */
net_link *net_guests_place(net_link *guest, const gsp_address *from, uint64_t now);
/* One that nobody has, nor anything is left to tell of; NULL: none. */
net_link *net_guests_free(net_link *guest);

/* net_place.c */
/* A fresh directory for local sockets under TMPDIR or /tmp, and the descriptor that holds its lock.
 * Those that killed processes left there are removed first. */
ATOM_MUST atom_status net_place_make(char **path, int *lock);
void net_place_remove(const char *path, int lock);

/* net_relay.c; only where there is a gate */
bool net_relay_ask(net_endpoint *e, net_link *link, uint32_t i);
bool net_relay_up(net_endpoint *e, const gsp_gate_event *event); /* false: not a relay's */
bool net_relay_failed(net_endpoint *e, const gsp_gate_event *event);
void net_relay_offered(net_endpoint *e, net_link *by, const void *data, size_t bytes);
void net_relay_tick(net_endpoint *e, uint64_t now);

/* net_tubes.c */
/* A place for a tube that asker wants to target: free, or used by whoever has to go; NULL: none. */
net_tube *net_tubes_place(net_tubes *tubes, const uint8_t *asker, const uint8_t *target);
/* Counts two streams that are about to be joined. False: this tube must not be. */
bool net_tubes_add(net_endpoint *e, const uint8_t *asker, const uint8_t *target, uint64_t a,
                   uint64_t b, uint64_t now);
/* A stream is over that has moved so many bytes; if it was a tube's, so is the other. */
void net_tubes_down(net_endpoint *e, uint64_t stream, uint64_t moved, uint64_t now);
void net_tubes_tick(net_endpoint *e, uint64_t now);

/* net_nanomsg.c */
ATOM_MUST atom_status net_endpoint_open(const net_carrier *carrier, const uint8_t *key,
                                        uint32_t streams, net_endpoint **out);
void net_endpoint_close(gsp_net *net);

#endif
