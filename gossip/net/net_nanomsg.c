/*
 * Owns the real endpoint's interface: its loop, sending, and what it tells. Its one idea:
 * everything that is to be told is a flag of a link, so nothing queues up however fast links come
 * and go; messages wait in nanomsg, one per stream, and then push back on the sender. It refuses to
 * block but in next.
 */
#include "gossip/net/net_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MS(n) ((n)*1000000ull)
enum { READY_MAX = 256, CONTROL_PER_MINUTE = 120000 };

static net_endpoint *endpoint(gsp_net *net)
{
    return (net_endpoint *)net;
}

/* A wish for whoever answers at exactly these addresses, if there is one. */
static net_link *same_wish(net_endpoint *e, const gsp_address *addresses, size_t n)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        net_link *link = &e->link[i];
        bool same = link->used && link->wanted && !link->known_key && link->n_addresses == n;
        for (size_t k = 0; same && k < n; k++)
            same = gsp_address_equal(&link->addresses[k], &addresses[k]);
        if (same)
            return link;
    }
    return NULL;
}

static atom_status dial(gsp_net *net, const uint8_t *key, const gsp_address *addresses, size_t n)
{
    static const uint8_t nobody[GSP_NET_KEY_BYTES];
    net_endpoint *e = endpoint(net);
    bool known = memcmp(key, nobody, sizeof nobody) != 0;
    if (n == 0 || n > GSP_NET_ADDRESSES_MAX)
        return atom_fail(ATOM_E_USAGE, "a peer has 1 to %d addresses", GSP_NET_ADDRESSES_MAX);
    if (memcmp(key, net->key, sizeof nobody) == 0)
        return atom_fail(ATOM_E_USAGE, "that is our own key");
    net_link *link = known ? net_link_find(e, key) : same_wish(e, addresses, n);
    if (link && !known)
        return ATOM_OK;
    if (link && net_link_of_guest(e, link))
        link = net_link_leave_guests(e, link);
    else if (!link)
        link = net_link_take(e);
    if (!link)
        return atom_fail(ATOM_E_RESOURCE, "%d links are in use", GSP_NET_PEERS_MAX);
    memcpy(link->key, key, sizeof link->key);
    memcpy(link->addresses, addresses, n * sizeof *addresses);
    link->n_addresses = (uint32_t)n;
    link->next_address = 0;
    link->known_key = known;
    if (!link->wanted)
        link->due_ns = 0;
    link->wanted = true;
    e->tick_ns = 0;
    return ATOM_OK;
}

static void drop(gsp_net *net, const uint8_t *key)
{
    net_link *link = net_link_find(endpoint(net), key);
    if (link)
        net_link_drop(endpoint(net), link);
}

/* A full channel: be told when a stream of it has room. */
static void await_room(net_endpoint *e, net_link *link, gsp_net_channel channel)
{
    uint32_t first = channel == GSP_NET_CONTROL ? 0 : 1;
    uint32_t last = channel == GSP_NET_CONTROL ? 1 : link->n_streams;
    if (link->busy[channel])
        return;
    link->busy[channel] = true;
    for (uint32_t s = first; s < last; s++) {
        uint32_t data = (uint32_t)(link - e->link) << 8 | s << 1 | 1;
        net_stream *stream = &link->stream[s];
        if (!stream->watches_send)
            stream->watches_send = net_watch(e, stream->pair.can_send, data);
    }
}

static void room(net_endpoint *e, net_link *link, uint32_t s)
{
    gsp_net_channel channel = s == 0 ? GSP_NET_CONTROL : GSP_NET_BULK;
    uint32_t last = s == 0 ? 1 : link->n_streams;
    for (uint32_t i = s == 0 ? 0 : 1; i < last; i++) {
        if (link->stream[i].watches_send)
            net_unwatch(e, link->stream[i].pair.can_send);
        link->stream[i].watches_send = false;
    }
    link->busy[channel] = false;
    link->tell_room[channel] = true;
}

static gsp_net_sent send_message(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                                 const void *head, size_t head_bytes, const void *body,
                                 size_t body_bytes)
{
    net_endpoint *e = endpoint(net);
    net_link *link = net_link_find(e, key);
    size_t bytes = head_bytes + body_bytes;
    ATOM_ASSERT(bytes > 0 && channel < GSP_NET_CHANNEL_N);
    ATOM_ASSERT(bytes <= (channel == GSP_NET_CONTROL ? (size_t)GSP_NET_CONTROL_BYTES_MAX
                                                     : (size_t)GSP_NET_BULK_BYTES_MAX));
    if (!link || link->state != LINK_UP)
        return GSP_NET_GONE;
    uint32_t first = channel == GSP_NET_CONTROL ? 0 : 1;
    uint32_t n = channel == GSP_NET_CONTROL ? 1 : link->n_streams - 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = first + (channel == GSP_NET_CONTROL ? 0 : (link->next_bulk + i) % n);
        if (!net_pair_send(&link->stream[s].pair, head, head_bytes, body, body_bytes,
                           channel == GSP_NET_CONTROL ? NET_OF_CALLER : NET_NO_TAIL))
            continue;
        if (channel == GSP_NET_BULK)
            link->next_bulk = (link->next_bulk + i + 1) % n;
        e->stats.messages_sent++;
        e->stats.payload_bytes_sent += bytes;
        return GSP_NET_SENT;
    }
    await_room(e, link, channel);
    return GSP_NET_BUSY;
}

static void fill(const net_link *link, gsp_net_kind kind, gsp_net_event *event)
{
    event->kind = kind;
    memcpy(event->key, link->key, sizeof event->key);
    event->guest = link->guest;
    event->old_key = link->old_key;
    event->inbound = !link->dialled;
    event->boot = link->boot;
    event->address = link->address;
}

/* The first flag that waits to be told, of this link. */
static bool tell(net_endpoint *e, net_link *link, gsp_net_event *event)
{
    static const uint8_t nobody[GSP_NET_KEY_BYTES];
    if (link->tell_down) {
        link->tell_down = false;
        fill(link, GSP_NET_DOWN, event);
        snprintf(event->why, sizeof event->why, "%s", link->why_down);
        e->stats.links_down++;
    } else if (link->tell_refused) {
        link->tell_refused = false;
        fill(link, GSP_NET_REFUSED, event);
        if (memcmp(link->refused_by, nobody, sizeof nobody) != 0) {
            event->refusal = (int)link->refused;
            memcpy(event->key, link->refused_by, sizeof event->key);
        }
        snprintf(event->why, sizeof event->why, "%s", link->why_refused);
    } else if (link->tell_up) {
        link->tell_up = link->found = false;
        fill(link, GSP_NET_UP, event);
        e->stats.links_up++;
    } else if (link->tell_room[0] || link->tell_room[1]) {
        event->channel = link->tell_room[0] ? GSP_NET_CONTROL : GSP_NET_BULK;
        link->tell_room[event->channel] = false;
        fill(link, GSP_NET_ROOM, event);
    } else {
        return false;
    }
    net_link_settle(link);
    return true;
}

static bool tell_any(net_endpoint *e, gsp_net_event *event)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        if (e->link[i].used && tell(e, &e->link[i], event))
            return true;
    return false;
}

static bool receive(net_endpoint *e, uint32_t data, gsp_net_event *event)
{
    net_link *link = &e->link[data >> 8];
    net_stream *stream = &link->stream[(data & 0xff) >> 1];
    gsp_net_channel channel = (data & 0xff) >> 1 == 0 ? GSP_NET_CONTROL : GSP_NET_BULK;
    bool may = link->used && stream->used && !link->tell_up && link->told_up;
    if (!may)
        return false; /* not before its UP */
    void *message = net_pair_receive(&stream->pair, &event->bytes);
    if (!message)
        return false;
    if (channel == GSP_NET_CONTROL && !gsp_tally_take(&e->control, link->key, 1, atom_clock_ns())) {
        net_pair_free(message);
        net_link_lost(e, link, "the peer sends too many messages per minute");
        return false;
    }
    if (channel == GSP_NET_CONTROL && event->bytes > 0) {
        uint8_t kind = ((const uint8_t *)message)[--event->bytes];
        if (kind == NET_RELAY_OFFER)
            net_relay_offered(e, link, message, event->bytes); /* which a guest may not */
        if (kind != NET_OF_CALLER) {                           /* ours, or of a newer atom */
            net_pair_free(message);
            return false;
        }
    }
    if (link->guest && !link->old_key && ++link->n_heard > NET_GUEST_MESSAGES) {
        net_pair_free(message);
        net_link_lost(e, link, "a guest may send only a little");
        return false;
    }
    if (event->bytes == 0) {
        net_pair_free(message);
        net_link_lost(e, link, "the peer sent an empty message");
        return false;
    }
    link->heard_ns = atom_clock_ns();
    fill(link, GSP_NET_MESSAGE, event);
    event->channel = channel;
    event->data = message;
    e->stats.messages_received++;
    e->stats.payload_bytes_received += event->bytes;
    return true;
}

/* Of what is ready: control first, then the stream next in turn. -1: none. */
static int64_t choose(net_endpoint *e, const struct epoll_event *ready, int n)
{
    uint32_t best_rank = UINT32_MAX;
    int64_t best = -1;
    for (int i = 0; i < n; i++) {
        uint32_t data = ready[i].data.u32;
        if (data >= DATA_CARRIER || (data & 1))
            continue;
        uint32_t rank = (data & 0xff) == 0 ? 0 : 1 + ((data - e->turn) & 0xffff);
        if (rank < best_rank) {
            best_rank = rank;
            best = data;
        }
    }
    if (best >= 0 && (best & 0xff) != 0)
        e->turn = (uint32_t)best + 1;
    return best;
}

static void handle(net_endpoint *e, uint32_t data)
{
    uint64_t count;
    if (data == DATA_WAKE) {
        ssize_t n = read(e->wake, &count, sizeof count);
        (void)n;
        e->woken = true;
    } else if (data == DATA_CARRIER) {
        e->carrier->read(e);
    } else if (data & 1) {
        net_link *link = &e->link[data >> 8];
        if (link->used && link->stream[(data & 0xff) >> 1].watches_send)
            room(e, link, (data & 0xff) >> 1);
    }
}

static void tick(net_endpoint *e, uint64_t now)
{
    uint64_t pause = MS(100);
    if (now < e->tick_ns)
        return;
    if (e->carrier->tick)
        e->carrier->tick(e, now);
    net_link_tick(e, now);
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++) {
        const net_link *link = &e->link[i];
        if (link->used && link->state != LINK_NONE && link->state != LINK_UP)
            pause = MS(3);
        else if (link->used && link->wanted && link->state == LINK_NONE && pause > MS(20))
            pause = MS(20);
    }
    e->tick_ns = now + pause;
}

/* One look at all descriptors, for at most until `until`. True: *event is a message. */
static bool look(net_endpoint *e, uint64_t now, uint64_t until, gsp_net_event *event)
{
    struct epoll_event ready[READY_MAX];
    uint64_t end = until < e->tick_ns ? until : e->tick_ns;
    uint64_t wait_ns = end > now ? end - now : 0;
    int wait_ms = (int)((wait_ns + MS(1) - 1) / MS(1));
    int n = epoll_wait(e->epoll, ready, READY_MAX, wait_ms);
    for (int i = 0; i < n; i++)
        handle(e, ready[i].data.u32);
    int64_t data = choose(e, ready, n);
    return data >= 0 && receive(e, (uint32_t)data, event);
}

static atom_status next(gsp_net *net, uint64_t timeout_ns, gsp_net_event *event)
{
    net_endpoint *e = endpoint(net);
    uint64_t now = atom_clock_ns();
    uint64_t until = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    memset(event, 0, sizeof *event);
    for (bool looked = false;; looked = true) {
        tick(e, now);
        if (tell_any(e, event))
            return ATOM_OK;
        if (looked && (e->woken || now >= until))
            break;
        if (look(e, now, e->woken ? 0 : until, event))
            return ATOM_OK;
        now = atom_clock_ns();
    }
    e->woken = false;
    event->kind = GSP_NET_NOTHING;
    return ATOM_OK;
}

static void free_message(gsp_net *net, void *data)
{
    (void)net;
    net_pair_free(data);
}

static void wake(gsp_net *net)
{
    uint64_t one = 1;
    ssize_t n = write(endpoint(net)->wake, &one, sizeof one);
    (void)n;
}

static void read_stats(const gsp_net *net, gsp_net_stats *stats)
{
    const net_endpoint *e = (const net_endpoint *)net;
    *stats = e->stats;
    stats->links = 0;
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        stats->links += e->link[i].used && e->link[i].state == LINK_UP;
    if (e->gate) {
        gsp_gate_stats gate;
        gsp_gate_read_stats(e->gate, &gate);
        stats->wire_bytes_sent = gate.wire_bytes_sent;
        stats->wire_bytes_received = gate.wire_bytes_received;
        stats->strangers = gate.strangers;
        stats->records_refused = gate.records_refused;
    } else {
        stats->wire_bytes_sent = stats->payload_bytes_sent + 8 * stats->messages_sent;
        stats->wire_bytes_received = stats->payload_bytes_received + 8 * stats->messages_received;
    }
}

static uint16_t port(const gsp_net *net)
{
    return ((const net_endpoint *)net)->port;
}

static void pace(gsp_net *net, const uint8_t *key, uint64_t bytes_per_s)
{
    net_endpoint *e = endpoint(net);
    net_link *link = net_link_find(e, key);
    if (e->gate && link && link->state == LINK_UP)
        for (uint32_t s = 1; s < link->n_streams; s++)
            gsp_gate_pace(e->gate, link->stream[s].gate, bytes_per_s / (link->n_streams - 1));
}

static const gsp_net_ops ops = {net_endpoint_close, dial, drop,       send_message, next,
                                free_message,       wake, read_stats, port,         pace};

atom_status net_endpoint_open(const net_carrier *carrier, const uint8_t *key, uint32_t streams,
                              net_endpoint **out)
{
    net_endpoint *e = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    if (streams > GSP_NET_STREAMS_MAX)
        return atom_fail(ATOM_E_USAGE, "a link has at most %d streams", GSP_NET_STREAMS_MAX);
    e = atom_alloc(1, sizeof *e);
    if (!e)
        return atom_fail_memory("the network's endpoint", sizeof *e);
    e->net.ops = &ops;
    memcpy(e->net.key, key, sizeof e->net.key);
    e->carrier = carrier;
    e->streams = streams ? streams : STREAMS_DEFAULT;
    e->reply = -1;
    e->control = (gsp_tally){.window_ns = MS(60000),
                             .each_max = CONTROL_PER_MINUTE,
                             .all_max = GSP_TALLY_KEYS * (uint64_t)CONTROL_PER_MINUTE};
    randombytes_buf(&e->boot, sizeof e->boot);
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (e->epoll < 0 || e->wake < 0 || !net_watch(e, e->wake, DATA_WAKE))
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "the network's descriptors"));
    *out = e;
    return ATOM_OK;
cleanup:
    net_endpoint_close(&e->net);
    return st;
}

void net_endpoint_close(gsp_net *net)
{
    net_endpoint *e = endpoint(net);
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        if (e->link[i].used)
            net_link_drop(e, &e->link[i]);
    e->carrier->close(e);
    if (e->wake >= 0)
        close(e->wake);
    if (e->epoll >= 0)
        close(e->epoll);
    atom_free(e);
}
