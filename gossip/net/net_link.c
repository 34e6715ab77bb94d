/*
 * Owns the life of links. Its one idea: of two connections between the same two members exactly one
 * is kept, and both sides choose the same one without asking: a restarted peer's newer one; of one
 * direction the newer one; of two that crossed, the one that the lower key dialled. It refuses to
 * keep half a link: when one stream ends, all end.
 */
#include "gossip/net/net_inner.h"

#include "atom/base/clock.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define MS(n) ((n)*1000000ull)

static const uint64_t PAUSE_FIRST_NS = MS(100), PAUSE_MAX_NS = MS(5000),
                      PAUSE_ELSEWHERE_NS = MS(80000), BUILD_NS = MS(20000), CROSSED_NS = MS(10000),
                      DRAIN_NS = MS(30), DRAIN_MAX_NS = MS(2000);

bool net_watch(net_endpoint *e, int fd, uint32_t data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = data};
    return epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void net_unwatch(net_endpoint *e, int fd)
{
    if (fd >= 0)
        epoll_ctl(e->epoll, EPOLL_CTL_DEL, fd, NULL);
}

net_link *net_link_find(net_endpoint *e, const uint8_t *key)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++) {
        net_link *link = &e->link[i];
        if (link->used && link->known_key && memcmp(link->key, key, GSP_NET_KEY_BYTES) == 0)
            return link;
    }
    return NULL;
}

static void make_new(net_link *link)
{
    *link = (net_link){.used = true, .pause_ns = PAUSE_FIRST_NS};
    for (uint32_t s = 0; s < LINK_STREAMS_MAX; s++)
        link->stream[s].pair = (net_pair){-1, -1, -1};
}

net_link *net_link_take(net_endpoint *e)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        net_link *link = &e->link[i];
        if (!link->used) {
            make_new(link);
            return link;
        }
    }
    return NULL;
}

void net_link_settle(net_link *link)
{
    if (!link->wanted && !link->found && link->state == LINK_NONE && !link->tell_down &&
        !link->tell_refused && !link->tell_up)
        link->used = false;
}

static void close_streams(net_endpoint *e, net_link *link)
{
    for (uint32_t s = 0; s < LINK_STREAMS_MAX; s++) {
        net_stream *stream = &link->stream[s];
        if (!stream->used)
            continue;
        net_unwatch(e, stream->pair.can_receive);
        if (stream->watches_send)
            net_unwatch(e, stream->pair.can_send);
        e->carrier->end(e, stream);
        net_pair_close(&stream->pair);
        *stream = (net_stream){.pair = {-1, -1, -1}};
    }
}

/* A pause of between half and all of pause_ns, so that two hosts do not dial in step for ever.
 * Where another member lives now, nobody is missed: it came back as somebody else, or moved and
 * will say so. */
static void pause_dialling(net_link *link, uint64_t now)
{
    bool other = link->refused == GSP_REFUSED_KEY || link->refused == GSP_REFUSED_SELF;
    bool elsewhere = other && link->why_refused[0];
    uint64_t most = elsewhere ? PAUSE_ELSEWHERE_NS : PAUSE_MAX_NS;
    link->due_ns = now + link->pause_ns / 2 + randombytes_uniform((uint32_t)(link->pause_ns / 2));
    if (link->pause_ns < most)
        link->pause_ns *= 2;
}

static void tell_refused(net_link *link, const uint8_t *by, gsp_refusal refusal, const char *why)
{
    static const uint8_t nobody[GSP_NET_KEY_BYTES];
    bool same = (link->known_key && !link->found) || strcmp(link->why_refused, why) == 0;
    bool weaker = link->refused == refusal || refusal == GSP_WELCOME;
    by = by ? by : nobody;
    bool other = refusal != GSP_WELCOME && memcmp(link->refused_by, by, sizeof nobody) != 0;
    bool still = refusal == GSP_REFUSED_TWIN; /* as long as it lasts */
    if (link->why_refused[0] && same && weaker && !other && !still)
        return; /* told before; of a peer we know one reason is enough, its own before ours */
    link->refused = refusal;
    memcpy(link->refused_by, by, sizeof nobody);
    snprintf(link->why_refused, sizeof link->why_refused, "%s", why);
    link->tell_refused = true;
}

/* The peer that answered did not become a link that the caller heard of. So the wish is not
 * fulfilled, and another peer may answer next time. */
static void wish_returns(net_link *link)
{
    link->found = false;
    if (link->wanted)
        return; /* by its key, since */
    link->wanted = true;
    link->known_key = false;
    memset(link->key, 0, sizeof link->key);
}

/* The connection is closed; what the caller knows of it decides what it is told. */
static void cut_connection(net_endpoint *e, net_link *link, const char *why)
{
    close_streams(e, link);
    link->state = LINK_NONE;
    memset(link->busy, 0, sizeof link->busy);
    memset(link->tell_room, 0, sizeof link->tell_room);
    if (link->tell_up) {
        link->tell_up = link->told_up = false; /* it never heard of it */
    } else if (link->told_up) {
        link->told_up = false;
        link->tell_down = true;
        snprintf(link->why_down, sizeof link->why_down, "%s", why);
    }
}

/* The link is over. A connection that never came up is told when it is the second in a row, or when
 * nobody was known before: of two that crossed one fails as a matter of course. */
static void end_connection(net_endpoint *e, net_link *link, const char *why)
{
    bool was_up = link->told_up && !link->tell_up;
    cut_connection(e, link, why);
    if (!was_up && (link->found || (link->wanted && link->failed)))
        tell_refused(link, NULL, GSP_WELCOME, why);
    link->failed = !was_up;
    pause_dialling(link, atom_clock_ns());
    net_link_settle(link);
}

void net_link_drop(net_endpoint *e, net_link *link)
{
    close_streams(e, link);
    *link = (net_link){0};
}

void net_link_lost(net_endpoint *e, net_link *link, const char *why)
{
    uint64_t now = atom_clock_ns();
    if (link->state == LINK_UP && !link->guest) {
        link->state = LINK_DYING;
        link->begun_ns = now;
        link->deadline_ns = now + DRAIN_NS;
        snprintf(link->why_down, sizeof link->why_down, "%s", why);
    } else if (link->state == LINK_BUILDING || link->state == LINK_UP) {
        end_connection(e, link, why); /* a guest's last words are not missed */
    }
}

/* Does the new connection of `a` win against the one that link has? */
static bool newer_wins(const net_endpoint *e, const net_link *link, const net_arrival *a)
{
    if (link->state == LINK_DYING || link->boot != a->boot)
        return true;
    if (link->dialled == a->dialled)
        return link->id != a->link;
    if (atom_clock_ns() - link->begun_ns > CROSSED_NS)
        return true;
    bool we_are_lower = memcmp(e->net.key, a->key, GSP_NET_KEY_BYTES) < 0;
    return a->dialled == we_are_lower;
}

/* A peer that we have a link to answered at an address of a wish. Until the caller hears of that
 * link as UP, the wish must not be lost if the link is. */
static void inherit(net_link *link, const net_link *wish)
{
    if (link->wanted)
        return;
    memcpy(link->addresses, wish->addresses, sizeof link->addresses);
    link->n_addresses = wish->n_addresses;
    link->next_address = wish->next_address;
    link->found = true;
}

/* The place of a guest; somebody else may lose it. A guest has been dialled by nobody, and members
 * relay for members only, so others are not what they seem. */
static net_link *take_for_guest(net_endpoint *e, const net_arrival *a)
{
    if (a->dialled || a->relayed || a->n_streams > NET_GUEST_STREAMS)
        return NULL;
    net_link *link = net_guests_place(e->link + GSP_NET_PEERS_MAX, &a->address, atom_clock_ns());
    if (link && link->used) {
        net_link *other = net_guests_free(e->link + GSP_NET_PEERS_MAX);
        if (!other)
            return NULL; /* until what has ended is told */
        end_connection(e, link, "another guest took the place");
        link = other;
    }
    if (link)
        make_new(link);
    return link;
}

net_link *net_link_leave_guests(net_endpoint *e, net_link *link)
{
    net_link *to = net_link_take(e);
    if (!to)
        return NULL;
    if (link->state >= LINK_BUILDING)
        cut_connection(e, link, "replaced by a newer connection");
    *to = *link;
    *link = (net_link){0};
    return to;
}

static net_link *admit_control(net_endpoint *e, const net_arrival *a)
{
    net_link *link = net_link_find(e, a->key), *wish = NULL;
    for (uint32_t i = 0; a->dialled && i < GSP_NET_PEERS_MAX && !wish; i++)
        if (e->link[i].used && e->link[i].dial_tag == a->tag)
            wish = &e->link[i];
    if (a->dialled && !wish)
        return NULL; /* dropped meanwhile */
    if (a->dialled && a->guest) {
        net_link_dial_failed(e, a->tag, GSP_WELCOME, "the host that answered is not a member yet");
        return NULL;
    }
    if (wish)
        wish->dial_tag = 0;
    if (wish && !wish->known_key) { /* bootstrap: now we know who it is, and that was the wish */
        if (link) {
            inherit(link, wish);
            net_link_drop(e, wish);
        } else {
            memcpy(wish->key, a->key, sizeof wish->key);
            wish->known_key = true;
            wish->wanted = false;
            wish->found = true;
            link = wish;
        }
    }
    if (link && !a->guest && net_link_of_guest(e, link) && !(link = net_link_leave_guests(e, link)))
        return NULL;
    if (!link) {
        link = a->guest ? take_for_guest(e, a) : net_link_take(e);
        if (!link)
            return NULL;
        memcpy(link->key, a->key, sizeof link->key);
        link->known_key = true;
    }
    if (link->state >= LINK_BUILDING) {
        if (!newer_wins(e, link, a)) {
            if (link->state == LINK_UP && !link->tell_up)
                link->found = false; /* the caller knows it */
            return NULL;
        }
        cut_connection(e, link, "replaced by a newer connection");
    }
    uint64_t now = atom_clock_ns();
    link->state = LINK_BUILDING;
    link->dialled = a->dialled;
    link->guest = a->guest;
    link->old_key = a->old_key;
    link->n_heard = 0;
    link->relayed = a->relayed;
    link->id = a->link;
    link->boot = a->boot;
    link->begun_ns = now;
    link->deadline_ns = now + (a->guest ? NET_GUEST_NS : BUILD_NS);
    link->n_streams = a->n_streams;
    link->address = a->address;
    link->role = a->role;
    link->credential_bytes = a->credential_bytes;
    if (a->credential_bytes)
        memcpy(link->credential, a->credential, a->credential_bytes);
    return link;
}

net_link *net_link_admit(net_endpoint *e, const net_arrival *a)
{
    if (a->n_streams < 2 || a->n_streams > LINK_STREAMS_MAX || a->stream >= a->n_streams)
        return NULL;
    if (a->stream == 0)
        return admit_control(e, a);
    net_link *link = net_link_find(e, a->key);
    if (!link || link->state != LINK_BUILDING || link->id != a->link ||
        link->dialled != a->dialled || link->boot != a->boot || a->stream >= link->n_streams ||
        link->stream[a->stream].used)
        return NULL;
    return link;
}

void net_link_stream_added(net_endpoint *e, net_link *link, uint32_t i)
{
    net_stream *stream = &link->stream[i];
    stream->used = true;
    for (uint32_t s = 1; i == 0 && link->dialled && s < link->n_streams; s++) {
        if (!link->stream[s].used && !e->carrier->dial(e, link, s)) {
            net_link_lost(e, link, "the other streams cannot be dialled");
            return;
        }
    }
}

void net_link_dial_failed(net_endpoint *e, uint64_t tag, gsp_refusal refusal, const char *why)
{
    net_link_dial_refused(e, tag, NULL, refusal, why);
}

void net_link_dial_refused(net_endpoint *e, uint64_t tag, const uint8_t *by, gsp_refusal refusal,
                           const char *why)
{
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        net_link *link = &e->link[i];
        if (!link->used)
            continue;
        if (link->state == LINK_BUILDING && link->dialled && link->id == tag) {
            net_link_lost(e, link, why); /* one of its further streams */
        } else if (link->dial_tag == tag) {
            link->dial_tag = 0;
            if (link->state != LINK_DIALLING)
                continue; /* the peer dialled us meanwhile */
            link->state = LINK_NONE;
            bool all_tried = link->relayed || link->next_address % link->n_addresses == 0;
            if (refusal != GSP_WELCOME || all_tried)
                tell_refused(link, by, refusal, why);
            link->relay_next = all_tried && !link->relayed && link->known_key && e->gate;
            if (all_tried && !link->relay_next)
                pause_dialling(link, now);
            else
                link->due_ns = now;
        }
    }
}

/* Could this peer relay for us? It accepts connections, and we hold one. */
bool net_link_serves(const net_link *link)
{
    return link->used && link->state == LINK_UP && link->dialled && !link->relayed && !link->guest;
}

/* Chooses who relays the dial, each in turn; false: nobody can. */
static bool pick_relay(net_endpoint *e, net_link *link)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const net_link *by = &e->link[(link->next_relay + i) % GSP_NET_PEERS_MAX];
        if (by == link || !net_link_serves(by))
            continue;
        link->next_relay = (link->next_relay + i + 1) % GSP_NET_PEERS_MAX;
        link->relay_address = by->address;
        memcpy(link->relay_key, by->key, sizeof link->relay_key);
        return true;
    }
    return false;
}

static void begin_dial(net_endpoint *e, net_link *link)
{
    link->state = LINK_DIALLING;
    link->dial_tag = ((uint64_t)randombytes_random() << 32 | randombytes_random()) | 1;
    link->id = link->dial_tag;
    link->n_streams = 1 + e->streams;
    if (e->is_guest && link->n_streams > NET_GUEST_STREAMS)
        link->n_streams = NET_GUEST_STREAMS;
    link->relayed = link->relay_next && pick_relay(e, link);
    if (link->relay_next && !link->relayed) { /* nobody can: rest, then the addresses again */
        link->relay_next = false;
        link->state = LINK_NONE;
        link->dial_tag = 0;
        pause_dialling(link, atom_clock_ns());
        return;
    }
    link->relay_next = false;
    if (!link->relayed)
        link->address = link->addresses[link->next_address++ % link->n_addresses];
    if (!e->carrier->dial(e, link, 0))
        net_link_dial_failed(e, link->dial_tag, GSP_WELCOME, atom_fail_message());
}

/* All streams are there and nanomsg has met the peer's nanomsg on each. */
static bool built(const net_link *link)
{
    for (uint32_t s = 0; s < link->n_streams; s++)
        if (!link->stream[s].used || !net_pair_can_send(&link->stream[s].pair))
            return false;
    return true;
}

/* Not before the link is up: what waits on half a link must not wake us. */
static bool watch_streams(net_endpoint *e, net_link *link)
{
    for (uint32_t s = 0; s < link->n_streams; s++) {
        uint32_t data = (uint32_t)(link - e->link) << 8 | s << 1;
        if (!net_watch(e, link->stream[s].pair.can_receive, data))
            return false;
    }
    return true;
}

static bool drained(const net_link *link)
{
    for (uint32_t s = 0; s < link->n_streams; s++)
        if (link->stream[s].used && net_pair_can_receive(&link->stream[s].pair))
            return false;
    return true;
}

static void tick_one(net_endpoint *e, net_link *link, uint64_t now)
{
    switch (link->state) {
    case LINK_NONE:
        if (link->found && !link->tell_down)
            wish_returns(link);
        if (link->wanted && now >= link->due_ns)
            begin_dial(e, link);
        break;
    case LINK_DIALLING: /* the carrier has its own deadline */
        break;
    case LINK_BUILDING:
        if (built(link) && watch_streams(e, link)) {
            link->state = LINK_UP;
            link->tell_up = link->told_up = true;
            link->heard_ns = now;
            link->pause_ns = PAUSE_FIRST_NS;
            link->next_address = 0;
            link->failed = false;
            link->why_refused[0] = 0;
            link->tell_refused = false;
        } else if (now > link->deadline_ns) {
            end_connection(e, link, "its data streams did not open in time");
        }
        break;
    case LINK_UP:
        if (link->guest && now > link->begun_ns + NET_GUEST_NS)
            end_connection(e, link, "the time for a guest is over");
        break;
    case LINK_DYING:
        if (now < link->deadline_ns)
            break;
        link->deadline_ns = now + DRAIN_NS / 3;
        if (drained(link) || now > link->begun_ns + DRAIN_MAX_NS) {
            char why[sizeof link->why_down];
            memcpy(why, link->why_down, sizeof why);
            end_connection(e, link, why);
        }
        break;
    }
}

void net_link_tick(net_endpoint *e, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++)
        if (e->link[i].used)
            tick_one(e, &e->link[i], now);
}
