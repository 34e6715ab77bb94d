/*
 * Owns the traffic between the gate's thread and those who call it. Its one idea: calls and events
 * live in the stream's slot, at most one of each kind, so there is no queue that could overflow. It
 * refuses to free a slot whose last event nobody has taken.
 */
#include "gossip/gate/gate_inner.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The slot of a number, while it is the same stream; with the lock held. */
static gate_stream *find(gsp_gate *g, uint64_t stream)
{
    uint32_t i = (uint32_t)stream;
    if (i >= g->n_streams || g->stream[i].state == STREAM_FREE ||
        g->stream[i].generation != (uint32_t)(stream >> 32))
        return NULL;
    return &g->stream[i];
}

/* The kernel spreads what it sends. With the lock held: only this thread closes tcp. */
static void pace_take(gate_stream *s)
{
    if (s->paced && s->tcp >= 0)
        setsockopt(s->tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &s->pace, sizeof s->pace);
    s->paced = false;
}

typedef enum mail_kind { MAIL_NONE, MAIL_DIAL, MAIL_BRIDGE, MAIL_END } mail_kind;

static mail_kind mail_take(gate_stream *s)
{
    if (s->state == STREAM_FREE || s->state == STREAM_OVER)
        return MAIL_NONE;
    if (s->ended)
        return MAIL_END;
    if (s->state == STREAM_WANTED)
        return MAIL_DIAL;
    if (!s->bridge)
        return MAIL_NONE;
    s->bridge = false;
    return MAIL_BRIDGE;
}

bool gate_mail_read(gsp_gate *g)
{
    pthread_mutex_lock(&g->lock);
    bool closing = g->closing, mail = g->mail;
    g->mail = false;
    if (g->rekey) {
        gsp_handshake_config *c = &g->config.handshake;
        memcpy(c->psk, g->psk, sizeof c->psk);
        memcpy(c->credential, g->credential, sizeof c->credential);
        c->n_psks = g->n_psks;
        c->credential_bytes = g->credential_bytes;
        g->rekey = false;
    }
    pthread_mutex_unlock(&g->lock);
    for (uint32_t i = 0; mail && i < g->n_streams; i++) {
        gate_stream *s = &g->stream[i];
        pthread_mutex_lock(&g->lock);
        mail_kind kind = mail_take(s);
        pace_take(s);
        pthread_mutex_unlock(&g->lock);
        if (kind == MAIL_DIAL)
            gate_dial_begin(g, s);
        else if (kind == MAIL_BRIDGE)
            gate_bridge_begin(g, s);
        else if (kind == MAIL_END)
            gate_stream_over(g, s, GSP_WELCOME, "ended");
    }
    return !closing;
}

static void post(gsp_gate *g)
{
    g->mail = true;
    gate_ring(g->wake);
}

/* fd -1: by TCP to the address. */
static atom_status begin(gsp_gate *g, int fd, const uint8_t *peer, const gsp_address *address,
                         const gsp_hello *hello, uint64_t tag)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = gate_slot_take(g, STREAM_WANTED, g->config.streams_max);
    if (s) {
        s->tcp = fd;
        s->dialled = tag != 0;
        s->any_peer = !peer;
        s->address = *address;
        s->hello = *hello;
        s->event.tag = tag;
        s->event.dialled = s->dialled;
        s->event.address = *address;
        s->event.hello = *hello;
        if (peer)
            memcpy(s->event.key, peer, sizeof s->event.key);
        post(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (!s)
        return atom_fail(ATOM_E_RESOURCE, "all %u streams of the gate are in use",
                         g->config.streams_max);
    return ATOM_OK;
}

atom_status gsp_gate_dial(gsp_gate *g, const uint8_t *peer, const gsp_address *address,
                          const gsp_hello *hello, uint64_t tag)
{
    return begin(g, -1, peer, address, hello, tag);
}

atom_status gsp_gate_adopt(gsp_gate *g, int fd, const uint8_t *peer, const gsp_hello *hello,
                           uint64_t tag)
{
    static const gsp_address nowhere;
    atom_status st = begin(g, fd, peer, &nowhere, hello, tag);
    if (st != ATOM_OK)
        close(fd);
    return st;
}

void gsp_gate_join(gsp_gate *g, uint64_t stream, int fd)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = find(g, stream);
    bool right = s && s->state == STREAM_PARKED && !s->bridge;
    if (right) {
        s->join = fd;
        s->raw = s->bridge = true;
        post(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (!right)
        close(fd);
}

void gsp_gate_bridge(gsp_gate *g, uint64_t stream, const char *path, uint64_t bytes_max)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = find(g, stream);
    if (s && s->state == STREAM_PARKED && !s->bridge) {
        snprintf(s->path, sizeof s->path, "%s", path);
        s->frames.bytes_max = bytes_max;
        s->bridge = true;
        post(g);
    }
    pthread_mutex_unlock(&g->lock);
}

void gsp_gate_pace(gsp_gate *g, uint64_t stream, uint64_t bytes_per_s)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = find(g, stream);
    if (s && s->state != STREAM_OVER) {
        s->pace = bytes_per_s && bytes_per_s < UINT32_MAX ? (uint32_t)bytes_per_s : UINT32_MAX;
        s->paced = true;
        post(g);
    }
    pthread_mutex_unlock(&g->lock);
}

bool gsp_gate_moved(gsp_gate *g, uint64_t stream, uint64_t *bytes)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = find(g, stream);
    bool there = s && s->state != STREAM_OVER && !s->ended;
    if (s)
        *bytes = atomic_load_explicit(&s->moved, memory_order_relaxed);
    pthread_mutex_unlock(&g->lock);
    return there;
}

void gsp_gate_end(gsp_gate *g, uint64_t stream)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = find(g, stream);
    if (s && s->state == STREAM_OVER) {
        gate_slot_give(g, s);
    } else if (s) {
        s->ended = true;
        s->event_waits = false;
        post(g);
    }
    pthread_mutex_unlock(&g->lock);
}

bool gsp_gate_next(gsp_gate *g, gsp_gate_event *out)
{
    gate_stream *first = NULL;
    uint64_t count;
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < g->n_streams; i++) {
        gate_stream *s = &g->stream[i];
        if (s->event_waits && (!first || s->event_turn < first->event_turn))
            first = s;
    }
    if (first) {
        *out = first->event;
        first->event_waits = false;
        if (first->state == STREAM_OVER)
            gate_slot_give(g, first);
    } else {
        ssize_t n = read(g->events, &count, sizeof count);
        (void)n;
    }
    pthread_mutex_unlock(&g->lock);
    return first;
}

void gsp_gate_rekey(gsp_gate *g, const uint8_t psk[][GSP_PSK_BYTES], uint32_t n_psks,
                    const void *credential, uint32_t credential_bytes)
{
    pthread_mutex_lock(&g->lock);
    g->n_psks = n_psks < GSP_PSKS_MAX ? n_psks : GSP_PSKS_MAX;
    memcpy(g->psk, psk, g->n_psks * sizeof g->psk[0]);
    g->credential_bytes = credential_bytes <= sizeof g->credential ? credential_bytes
                                                                   : (uint32_t)sizeof g->credential;
    memcpy(g->credential, credential, g->credential_bytes);
    g->rekey = true;
    post(g);
    pthread_mutex_unlock(&g->lock);
}
