/*
 * Owns the transport without a network. Its one idea: one lock and one condition for the whole hub,
 * so that it is plainly right; a link is two sides that point at each other, and what is to be told
 * is a flag of a side. It refuses to be fast.
 */
#include "gossip/net/net_sim.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ENDPOINTS_MAX = 64, CUTS_MAX = 256, QUEUE_CONTROL = 1024, QUEUE_BULK = 8 };
static const uint64_t PAUSE_NS = 20000000;

typedef struct sim_message {
    struct sim_message *next;
    size_t bytes;
    uint8_t data[];
} sim_message;

typedef struct sim_queue {
    sim_message *first, *last;
    uint32_t n;
} sim_queue;

typedef struct sim_endpoint sim_endpoint;

/* What one endpoint knows of one peer. */
typedef struct sim_side {
    bool used, wanted, known_key, dialled;
    uint8_t key[GSP_NET_KEY_BYTES];
    uint16_t ports[GSP_NET_ADDRESSES_MAX];
    uint32_t n_ports;
    uint64_t due_ns;
    sim_endpoint *peer; /* NULL: down */
    bool tell_down, tell_up, tell_refused, told_up, refused;
    bool busy[GSP_NET_CHANNEL_N], tell_room[GSP_NET_CHANNEL_N];
    const char *why;
    sim_queue in[GSP_NET_CHANNEL_N];
} sim_side;

struct sim_endpoint {
    gsp_net net; /* first */
    gsp_sim_hub *hub;
    uint16_t port;
    bool woken;
    uint32_t turn;
    sim_side side[GSP_NET_PEERS_MAX];
    gsp_net_stats stats;
};

struct gsp_sim_hub {
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint16_t next_port;
    sim_endpoint *endpoint[ENDPOINTS_MAX];
    uint32_t n_cuts;
    uint8_t cut[CUTS_MAX][2][GSP_NET_KEY_BYTES];
};

static bool same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, GSP_NET_KEY_BYTES) == 0;
}

static sim_side *side_find(sim_endpoint *e, const uint8_t *key)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (e->side[i].used && e->side[i].known_key && same(e->side[i].key, key))
            return &e->side[i];
    return NULL;
}

static sim_side *side_take(sim_endpoint *e)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        if (!e->side[i].used) {
            e->side[i] = (sim_side){.used = true};
            return &e->side[i];
        }
    }
    return NULL;
}

static void queues_clear(sim_side *s)
{
    for (int c = 0; c < GSP_NET_CHANNEL_N; c++) {
        for (sim_message *m = s->in[c].first; m;) {
            sim_message *next = m->next;
            atom_free(m);
            m = next;
        }
        s->in[c] = (sim_queue){0};
    }
}

static void settle(sim_side *s)
{
    if (!s->wanted && !s->peer && !s->tell_down && !s->tell_refused)
        s->used = false;
}

static void side_down(sim_side *s, const char *why)
{
    queues_clear(s);
    s->peer = NULL;
    s->why = why;
    s->tell_down |= s->told_up;
    s->told_up = s->tell_up = false;
    memset(s->busy, 0, sizeof s->busy);
    memset(s->tell_room, 0, sizeof s->tell_room);
    s->due_ns = atom_clock_ns() + PAUSE_NS;
    settle(s);
}

/* Ends the link of which s is e's side. */
static void link_end(sim_endpoint *e, sim_side *s, const char *why)
{
    sim_side *other = s->peer ? side_find(s->peer, e->net.key) : NULL;
    if (other && other->peer == e)
        side_down(other, why);
    side_down(s, why);
    pthread_cond_broadcast(&e->hub->change);
}

static bool is_cut(const gsp_sim_hub *hub, const uint8_t *a, const uint8_t *b)
{
    for (uint32_t i = 0; i < hub->n_cuts; i++)
        if ((same(hub->cut[i][0], a) && same(hub->cut[i][1], b)) ||
            (same(hub->cut[i][0], b) && same(hub->cut[i][1], a)))
            return true;
    return false;
}

static sim_endpoint *endpoint_at(gsp_sim_hub *hub, uint16_t port)
{
    for (uint32_t i = 0; i < ENDPOINTS_MAX; i++)
        if (hub->endpoint[i] && hub->endpoint[i]->port == port)
            return hub->endpoint[i];
    return NULL;
}

static void refuse(sim_side *s, const char *why)
{
    s->due_ns = atom_clock_ns() + PAUSE_NS;
    if (!s->refused) {
        s->refused = s->tell_refused = true;
        s->why = why;
    }
}

/* One try to bring a wanted link up. */
static void try_dial(sim_endpoint *e, sim_side *s)
{
    sim_endpoint *peer = NULL;
    for (uint32_t i = 0; i < s->n_ports && !peer; i++)
        peer = endpoint_at(e->hub, s->ports[i]);
    if (!peer || is_cut(e->hub, e->net.key, peer->net.key)) {
        refuse(s, "nobody answered in time");
        return;
    }
    if (peer == e || (s->known_key && !same(s->key, peer->net.key))) {
        refuse(s, "another member answered than the one that was dialled");
        return;
    }
    if (!s->known_key) {
        sim_side *known = side_find(e, peer->net.key);
        s->wanted = false;
        if (known) {
            settle(s);
            return;
        }
        s->known_key = true;
        memcpy(s->key, peer->net.key, sizeof s->key);
    }
    sim_side *other = side_find(peer, e->net.key);
    if (!other)
        other = side_take(peer);
    if (!other) {
        refuse(s, "the member has no room for more links; try another one");
        return;
    }
    if (other->peer)
        side_down(other, "replaced by a newer connection");
    other->used = other->known_key = true;
    memcpy(other->key, e->net.key, sizeof other->key);
    other->peer = e;
    s->peer = peer;
    s->dialled = true;
    other->dialled = s->refused = other->refused = false;
    s->tell_up = s->told_up = other->tell_up = other->told_up = true;
    pthread_cond_broadcast(&e->hub->change);
}

static void fill(const sim_side *s, gsp_net_kind kind, gsp_net_event *event)
{
    event->kind = kind;
    memcpy(event->key, s->key, sizeof event->key);
    event->inbound = !s->dialled;
    event->address.ip[15] = 1;
    event->address.port = s->peer ? s->peer->port : 0;
}

static bool tell(sim_endpoint *e, sim_side *s, gsp_net_event *event)
{
    if (s->tell_down || s->tell_refused) {
        fill(s, s->tell_down ? GSP_NET_DOWN : GSP_NET_REFUSED, event);
        snprintf(event->why, sizeof event->why, "%s", s->why);
        e->stats.links_down += s->tell_down;
        s->tell_down = s->tell_refused = false;
        settle(s);
    } else if (s->tell_up) {
        s->tell_up = false;
        e->stats.links_up++;
        fill(s, GSP_NET_UP, event);
    } else if (s->tell_room[0] || s->tell_room[1]) {
        event->channel = s->tell_room[0] ? GSP_NET_CONTROL : GSP_NET_BULK;
        s->tell_room[event->channel] = false;
        fill(s, GSP_NET_ROOM, event);
    } else {
        return false;
    }
    return true;
}

static bool take_message(sim_endpoint *e, sim_side *s, gsp_net_channel channel,
                         gsp_net_event *event)
{
    sim_queue *q = &s->in[channel];
    sim_message *m = q->first;
    if (!m)
        return false;
    q->first = m->next;
    q->n--;
    if (!q->first)
        q->last = NULL;
    fill(s, GSP_NET_MESSAGE, event);
    event->channel = channel;
    event->data = m->data;
    event->bytes = m->bytes;
    e->stats.messages_received++;
    e->stats.payload_bytes_received += m->bytes;
    sim_side *from = side_find(s->peer, e->net.key);
    if (from && from->busy[channel]) {
        from->busy[channel] = false;
        from->tell_room[channel] = true;
        pthread_cond_broadcast(&e->hub->change);
    }
    return true;
}

static bool look(sim_endpoint *e, gsp_net_event *event)
{
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        sim_side *s = &e->side[i];
        if (s->used && s->wanted && !s->peer && now >= s->due_ns)
            try_dial(e, s);
        if (s->used && tell(e, s, event))
            return true;
    }
    for (int c = 0; c < GSP_NET_CHANNEL_N; c++)
        for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
            sim_side *s = &e->side[(e->turn + i) % GSP_NET_PEERS_MAX];
            if (s->used && s->peer && take_message(e, s, (gsp_net_channel)c, event)) {
                e->turn = (e->turn + i + 1) % GSP_NET_PEERS_MAX;
                return true;
            }
        }
    return false;
}

static atom_status next(gsp_net *net, uint64_t timeout_ns, gsp_net_event *event)
{
    sim_endpoint *e = (sim_endpoint *)net;
    uint64_t now = atom_clock_ns();
    uint64_t until = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    memset(event, 0, sizeof *event);
    pthread_mutex_lock(&e->hub->lock);
    while (!look(e, event)) {
        now = atom_clock_ns();
        if (e->woken || now >= until) {
            e->woken = false;
            event->kind = GSP_NET_NOTHING;
            break;
        }
        uint64_t wake = until - now > PAUSE_NS ? now + PAUSE_NS : until; /* dials become due */
        struct timespec at = {.tv_sec = (time_t)(wake / 1000000000),
                              .tv_nsec = (long)(wake % 1000000000)};
        pthread_cond_timedwait(&e->hub->change, &e->hub->lock, &at);
    }
    pthread_mutex_unlock(&e->hub->lock);
    return ATOM_OK;
}

static atom_status dial(gsp_net *net, const uint8_t *key, const gsp_address *addresses, size_t n)
{
    static const uint8_t nobody[GSP_NET_KEY_BYTES];
    sim_endpoint *e = (sim_endpoint *)net;
    bool known = !same(key, nobody);
    if (n == 0 || n > GSP_NET_ADDRESSES_MAX || same(key, net->key))
        return atom_fail(ATOM_E_USAGE, "a peer is somebody else and has 1 to %d addresses",
                         GSP_NET_ADDRESSES_MAX);
    pthread_mutex_lock(&e->hub->lock);
    sim_side *s = known ? side_find(e, key) : NULL;
    if (!s)
        s = side_take(e);
    if (s) {
        memcpy(s->key, key, sizeof s->key);
        s->known_key = known;
        s->wanted = true;
        s->due_ns = 0;
        s->n_ports = (uint32_t)n;
        for (size_t i = 0; i < n; i++)
            s->ports[i] = addresses[i].port;
    }
    pthread_mutex_unlock(&e->hub->lock);
    return s ? ATOM_OK : atom_fail(ATOM_E_RESOURCE, "%d links are in use", GSP_NET_PEERS_MAX);
}

static void drop(gsp_net *net, const uint8_t *key)
{
    sim_endpoint *e = (sim_endpoint *)net;
    pthread_mutex_lock(&e->hub->lock);
    sim_side *s = side_find(e, key);
    if (s) {
        link_end(e, s, "the peer closed the connection");
        *s = (sim_side){0};
    }
    pthread_mutex_unlock(&e->hub->lock);
}

static gsp_net_sent put(sim_endpoint *e, const uint8_t *key, gsp_net_channel channel,
                        sim_message *m)
{
    sim_side *s = side_find(e, key);
    if (!s || !s->peer || s->tell_up)
        return GSP_NET_GONE;
    sim_side *to = side_find(s->peer, e->net.key);
    ATOM_ASSERT(to);
    sim_queue *q = &to->in[channel];
    if (q->n >= (channel == GSP_NET_CONTROL ? QUEUE_CONTROL : QUEUE_BULK)) {
        s->busy[channel] = true;
        return GSP_NET_BUSY;
    }
    if (q->last)
        q->last->next = m;
    else
        q->first = m;
    q->last = m;
    q->n++;
    e->stats.messages_sent++;
    e->stats.payload_bytes_sent += m->bytes;
    pthread_cond_broadcast(&e->hub->change);
    return GSP_NET_SENT;
}

static gsp_net_sent send_message(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                                 const void *head, size_t head_bytes, const void *body,
                                 size_t body_bytes)
{
    sim_endpoint *e = (sim_endpoint *)net;
    size_t bytes = head_bytes + body_bytes;
    ATOM_ASSERT(bytes > 0 && channel < GSP_NET_CHANNEL_N);
    ATOM_ASSERT(bytes <= (channel == GSP_NET_CONTROL ? (size_t)GSP_NET_CONTROL_BYTES_MAX
                                                     : (size_t)GSP_NET_BULK_BYTES_MAX));
    sim_message *m = atom_alloc(1, sizeof *m + bytes);
    if (!m)
        return GSP_NET_BUSY;
    m->bytes = bytes;
    if (head_bytes)
        memcpy(m->data, head, head_bytes);
    if (body_bytes)
        memcpy(m->data + head_bytes, body, body_bytes);
    pthread_mutex_lock(&e->hub->lock);
    gsp_net_sent sent = put(e, key, channel, m);
    pthread_mutex_unlock(&e->hub->lock);
    if (sent != GSP_NET_SENT)
        atom_free(m);
    return sent;
}

static void free_message(gsp_net *net, void *data)
{
    (void)net;
    if (data)
        atom_free((char *)data - offsetof(sim_message, data));
}

static void wake(gsp_net *net)
{
    sim_endpoint *e = (sim_endpoint *)net;
    pthread_mutex_lock(&e->hub->lock);
    e->woken = true;
    pthread_cond_broadcast(&e->hub->change);
    pthread_mutex_unlock(&e->hub->lock);
}

static void read_stats(const gsp_net *net, gsp_net_stats *stats)
{
    const sim_endpoint *e = (const sim_endpoint *)net;
    pthread_mutex_lock(&e->hub->lock);
    *stats = e->stats;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        stats->links += e->side[i].used && e->side[i].peer;
    pthread_mutex_unlock(&e->hub->lock);
    stats->wire_bytes_sent = stats->payload_bytes_sent;
    stats->wire_bytes_received = stats->payload_bytes_received;
}

static uint16_t port(const gsp_net *net)
{
    return ((const sim_endpoint *)net)->port;
}

static void close_endpoint(gsp_net *net)
{
    sim_endpoint *e = (sim_endpoint *)net;
    gsp_sim_hub *hub = e->hub;
    pthread_mutex_lock(&hub->lock);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (e->side[i].used)
            link_end(e, &e->side[i], "the peer closed the connection");
    for (uint32_t i = 0; i < ENDPOINTS_MAX; i++)
        if (hub->endpoint[i] == e)
            hub->endpoint[i] = NULL;
    pthread_mutex_unlock(&hub->lock);
    atom_free(e);
}

static const gsp_net_ops ops = {close_endpoint, dial, drop,       send_message, next,
                                free_message,   wake, read_stats, port,         NULL};

atom_status gsp_sim_net_open(gsp_sim_hub *hub, const uint8_t *key, gsp_net **out)
{
    sim_endpoint *e = atom_alloc(1, sizeof *e);
    sim_endpoint **slot = NULL;
    bool taken = false;
    if (!e)
        return atom_fail_memory("an endpoint", sizeof *e);
    e->net.ops = &ops;
    e->hub = hub;
    memcpy(e->net.key, key, sizeof e->net.key);
    pthread_mutex_lock(&hub->lock);
    for (uint32_t i = 0; i < ENDPOINTS_MAX; i++) {
        if (!hub->endpoint[i])
            slot = &hub->endpoint[i];
        else
            taken |= same(hub->endpoint[i]->net.key, key);
    }
    if (slot && !taken) {
        e->port = hub->next_port++;
        *slot = e;
    }
    pthread_mutex_unlock(&hub->lock);
    if (slot && !taken) {
        *out = &e->net;
        return ATOM_OK;
    }
    atom_free(e);
    return taken ? atom_fail(ATOM_E_USAGE, "an endpoint with this key is open")
                 : atom_fail(ATOM_E_RESOURCE, "the hub is full");
}

void gsp_sim_cut(gsp_sim_hub *hub, const uint8_t *a, const uint8_t *b, bool cut)
{
    pthread_mutex_lock(&hub->lock);
    for (uint32_t i = 0; i < hub->n_cuts;) {
        bool this_one = (same(hub->cut[i][0], a) && same(hub->cut[i][1], b)) ||
                        (same(hub->cut[i][0], b) && same(hub->cut[i][1], a));
        if (this_one)
            memcpy(hub->cut[i], hub->cut[--hub->n_cuts], sizeof hub->cut[i]);
        else
            i++;
    }
    if (cut) {
        ATOM_ASSERT(hub->n_cuts < CUTS_MAX);
        memcpy(hub->cut[hub->n_cuts][0], a, GSP_NET_KEY_BYTES);
        memcpy(hub->cut[hub->n_cuts++][1], b, GSP_NET_KEY_BYTES);
        for (uint32_t i = 0; i < ENDPOINTS_MAX; i++) {
            sim_endpoint *e = hub->endpoint[i];
            sim_side *s = e && same(e->net.key, a) ? side_find(e, b) : NULL;
            if (s && s->peer)
                link_end(e, s, "nothing was heard of the peer");
        }
    }
    pthread_mutex_unlock(&hub->lock);
}

atom_status gsp_sim_hub_open(gsp_sim_hub **out)
{
    pthread_condattr_t attributes;
    gsp_sim_hub *hub = atom_alloc(1, sizeof *hub);
    if (!hub)
        return atom_fail_memory("a hub", sizeof *hub);
    pthread_mutex_init(&hub->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&hub->change, &attributes);
    pthread_condattr_destroy(&attributes);
    hub->next_port = 1;
    *out = hub;
    return ATOM_OK;
}

void gsp_sim_hub_close(gsp_sim_hub **hub)
{
    if (*hub) {
        pthread_cond_destroy(&(*hub)->change);
        pthread_mutex_destroy(&(*hub)->lock);
        atom_free(*hub);
    }
    *hub = NULL;
}
