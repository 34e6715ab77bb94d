/*
 * Owns the endpoint's dealings with its gate: each authenticated stream gets a fresh PAIR on a
 * fresh local socket, and the gate is told its path. Its one idea: nanomsg only ever meets bytes
 * that a member has sealed. It refuses to reuse a socket, a path or a PAIR.
 */
#include "gossip/net/net_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bool carrier_dial(net_endpoint *e, net_link *link, uint32_t i)
{
    if (link->relayed)
        return net_relay_ask(e, link, i);
    gsp_hello hello = {
        .stream = (uint16_t)i, .n_streams = (uint16_t)link->n_streams, .link = link->id};
    return gsp_gate_dial(e->gate, link->known_key ? link->key : NULL, &link->address, &hello,
                         link->id) == ATOM_OK;
}

static void carrier_end(net_endpoint *e, net_stream *stream)
{
    if (stream->gate)
        gsp_gate_end(e->gate, stream->gate);
    /* nanomsg removes the file, too, and ends the process where it cannot, as on a disk that became
     * read-only. Such a PAIR is left open: the member ends with its next write anyway. */
    if (stream->path[0] && unlink(stream->path) != 0 && errno != ENOENT)
        stream->pair = (net_pair){-1, -1, -1};
    stream->gate = 0;
    stream->path[0] = 0;
}

static size_t message_bytes_max(uint32_t stream, bool guest)
{
    if (guest)
        return NET_GUEST_BYTES;
    return stream == 0 ? GSP_NET_CONTROL_BYTES_MAX + 1 : GSP_NET_BULK_BYTES_MAX;
}

/* A stream takes some more, and without one for its files the member ends. */
static bool leaves_descriptors(const net_endpoint *e)
{
    enum { RESERVE = 12 };
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    int next = fcntl(e->epoll, F_DUPFD_CLOEXEC, 0); /* the lowest number that is free */
    if (next >= 0)
        close(next);
    return next >= 0 && (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
                         (rlim_t)next + RESERVE < limit.rlim_cur);
}

/* A PAIR behind a local socket that only this user can reach. */
static bool open_local(net_endpoint *e, net_stream *stream, uint32_t i, bool guest)
{
    char url[GSP_GATE_PATH_BYTES + 8];
    if (!leaves_descriptors(e))
        return false;
    int n = snprintf(stream->path, sizeof stream->path, "%s/%llx", e->directory,
                     (unsigned long long)++e->next_path);
    if (n < 0 || n >= (int)sizeof stream->path ||
        net_pair_open(message_bytes_max(i, guest), 0, &stream->pair) != ATOM_OK) {
        stream->path[0] = 0;
        return false;
    }
    snprintf(url, sizeof url, "ipc://%s", stream->path);
    if (net_pair_bind(&stream->pair, url))
        return true;
    net_pair_close(&stream->pair);
    stream->path[0] = 0;
    return false;
}

static void stream_up(net_endpoint *e, const gsp_gate_event *event)
{
    net_arrival arrival = {
        .key = event->key,
        .dialled = event->dialled,
        .guest = (event->role == GSP_GUEST && !e->guests_are_peers) || event->old_key,
        .old_key = event->old_key,
        .tag = event->tag,
        .stream = event->hello.stream,
        .n_streams = event->hello.n_streams,
        .link = event->hello.link,
        .boot = event->peer_boot,
        .address = event->address,
        .role = event->role,
        .credential = event->credential,
        .credential_bytes = event->credential_bytes,
    };
    static const gsp_address nowhere;
    if (net_relay_up(e, event))
        return;
    arrival.relayed = gsp_address_equal(&event->address, &nowhere);
    if (!event->dialled && !arrival.relayed)
        arrival.address.port = event->peer_port; /* where it accepts, not where it called from */
    net_link *link = net_link_admit(e, &arrival);
    if (!link) {
        gsp_gate_end(e->gate, event->stream);
        return;
    }
    net_stream *stream = &link->stream[arrival.stream];
    stream->gate = event->stream;
    if (!open_local(e, stream, arrival.stream, link->guest && !link->old_key)) {
        gsp_gate_end(e->gate, event->stream);
        stream->gate = 0;
        net_link_lost(e, link, "no descriptors for a local socket; raise the limit (ulimit -n)");
        return;
    }
    gsp_gate_bridge(e->gate, event->stream, stream->path,
                    message_bytes_max(arrival.stream, link->guest && !link->old_key));
    net_link_stream_added(e, link, arrival.stream);
}

static void stream_down(net_endpoint *e, const gsp_gate_event *event)
{
    net_tubes_down(e, event->stream, event->moved, atom_clock_ns());
    for (uint32_t i = 0; i < GSP_NET_LINKS_MAX; i++) {
        net_link *link = &e->link[i];
        for (uint32_t s = 0; link->used && s < LINK_STREAMS_MAX; s++) {
            if (link->stream[s].used && link->stream[s].gate == event->stream) {
                link->stream[s].gate = 0;
                net_link_lost(e, link, event->why);
                return;
            }
        }
    }
}

static void carrier_read(net_endpoint *e)
{
    gsp_gate_event event;
    while (gsp_gate_next(e->gate, &event)) {
        if (event.kind == GSP_GATE_UP)
            stream_up(e, &event);
        else if (event.kind == GSP_GATE_DOWN)
            stream_down(e, &event); /* of a link, else of a tube */
        else if (!net_relay_failed(e, &event))
            net_link_dial_refused(e, event.tag, event.proven ? event.key : NULL, event.refusal,
                                  event.why);
    }
    e->tick_ns = 0; /* a link may be complete */
}

static void carrier_close(net_endpoint *e)
{
    gsp_gate_close(&e->gate);
    if (e->own_directory)
        net_place_remove(e->directory, e->own_lock);
    atom_free(e->directory);
}

static const net_carrier carrier = {carrier_dial, carrier_end, carrier_read, net_relay_tick,
                                    carrier_close};

/* A stream takes a TCP and two local sockets and nanomsg's own descriptors. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static atom_status make_directory(net_endpoint *e, const char *wanted)
{
    if (wanted) {
        e->directory = atom_strdup(wanted);
        return e->directory ? ATOM_OK : atom_fail_memory("a path", strlen(wanted));
    }
    ATOM_TRY(net_place_make(&e->directory, &e->own_lock));
    e->own_directory = true;
    return ATOM_OK;
}

static bool shows_invite(const void *credential, uint32_t bytes)
{
    gsp_invite invite;
    return gsp_credential_invite(credential, bytes, &invite);
}

atom_status gsp_net_open_gate(const gsp_net_gate_config *config, gsp_net **out)
{
    net_endpoint *e = NULL;
    gsp_gate_config gate = config->gate;
    atom_status st;
    raise_file_limit();
    ATOM_TRY_CLEAN(
        net_endpoint_open(&carrier, gate.handshake.self->public_key, config->streams, &e));
    ATOM_TRY_CLEAN(make_directory(e, config->directory));
    gate.boot = e->boot;
    ATOM_TRY_CLEAN(gsp_gate_open(&gate, &e->gate));
    e->port = gsp_gate_port(e->gate);
    e->guests_are_peers = config->guests_are_peers;
    e->is_guest = shows_invite(gate.handshake.credential, gate.handshake.credential_bytes);
    if (!net_watch(e, gsp_gate_event_fd(e->gate), DATA_CARRIER))
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "the gate's events"));
    *out = &e->net;
    return ATOM_OK;
cleanup:
    if (e)
        net_endpoint_close(&e->net);
    return st;
}

bool gsp_net_peer_credential(gsp_net *net, const uint8_t *key, gsp_role *role,
                             uint8_t credential[GSP_CREDENTIAL_BYTES_MAX], uint32_t *bytes)
{
    net_endpoint *e = (net_endpoint *)net;
    net_link *link = e->gate ? net_link_find(e, key) : NULL;
    if (!link || link->state != LINK_UP)
        return false;
    *role = link->role;
    *bytes = link->credential_bytes;
    memcpy(credential, link->credential, link->credential_bytes);
    return true;
}

uint64_t gsp_net_heard_ns(gsp_net *net, const uint8_t *key)
{
    const net_link *link = net_link_find((net_endpoint *)net, key);
    return link && link->state == LINK_UP ? link->heard_ns : 0;
}

void gsp_net_rekey(gsp_net *net, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                   const void *credential, uint32_t credential_bytes)
{
    net_endpoint *e = (net_endpoint *)net;
    e->is_guest = shows_invite(credential, credential_bytes);
    if (e->gate)
        gsp_gate_rekey(e->gate, psk, n_psks, credential, credential_bytes);
}

void gsp_net_serve_relays(gsp_net *net, bool serve)
{
    ((net_endpoint *)net)->tubes.refuses = !serve;
}

bool gsp_net_read_gate_stats(gsp_net *net, gsp_gate_stats *stats)
{
    net_endpoint *e = (net_endpoint *)net;
    if (!e->gate)
        return false;
    gsp_gate_read_stats(e->gate, stats);
    return true;
}
