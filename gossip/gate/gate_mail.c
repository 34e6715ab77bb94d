/*
 * Owns the traffic between the gate's thread and those who call it. One idea: calls and events live
 * in the stream's slot, at most one of each kind, so there is no queue that could overflow. Refuses
 * to free a slot whose last event nobody has taken.
 */
#include "gossip/gate/gate_inner.h"

#include "atom/base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static void ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one); /* full means: it rings already */
    (void)n;
}

static uint64_t number(const gsp_gate *g, const gate_stream *s)
{
    return (uint64_t)s->generation << 32 | (uint32_t)(s - g->stream);
}

/* The slot of a number, while it is the same stream; with the lock held. */
static gate_stream *find(gsp_gate *g, uint64_t stream)
{
    uint32_t i = (uint32_t)stream;
    if (i >= g->n_streams || g->stream[i].state == STREAM_FREE ||
        g->stream[i].generation != (uint32_t)(stream >> 32))
        return NULL;
    return &g->stream[i];
}

gate_stream *gate_slot_take(gsp_gate *g, stream_state state, uint32_t limit)
{
    if (g->used >= limit)
        return NULL;
    for (uint32_t i = 0; i < g->n_streams; i++) {
        gate_stream *s = &g->stream[i];
        if (s->state == STREAM_FREE) {
            uint32_t generation = s->generation + 1;
            memset(&s->generation, 0, sizeof *s - offsetof(gate_stream, generation));
            s->generation = generation;
            s->tcp = s->host = s->join = -1;
            s->state = state;
            s->event.stream = number(g, s);
            g->used++;
            return s;
        }
    }
    return NULL;
}

/* An event is there to be taken, after those that are there already. With the lock held. */
static void tell(gsp_gate *g, gate_stream *s)
{
    s->event_waits = true;
    s->event_turn = ++g->event_turn;
    ring(g->events);
}

static void slot_give(gsp_gate *g, gate_stream *s)
{
    s->state = STREAM_FREE;
    s->event_waits = s->bridge = false;
    g->used--;
}

static void release(gate_stream *s)
{
    if (s->shake) {
        gsp_handshake_wipe(s->shake);
        atom_free(s->shake);
        s->shake = NULL;
    }
    if (s->tcp >= 0)
        close(s->tcp);
    if (s->host >= 0)
        close(s->host);
    if (s->join >= 0)
        close(s->join);
    s->tcp = s->host = s->join = -1;
    if (s->out)
        explicit_bzero(s->out, BUFFER_BYTES);
    if (s->in)
        explicit_bzero(s->in, BUFFER_BYTES);
    atom_free(s->out);
    atom_free(s->in);
    s->out = s->in = NULL;
    explicit_bzero(&s->seal, sizeof s->seal);
    explicit_bzero(&s->open, sizeof s->open);
}

void gate_stream_over(gsp_gate *g, gate_stream *s, gsp_refusal refusal, const char *why)
{
    if (s->state == STREAM_SHAKING && !s->dialled)
        g->pending--;
    release(s);
    pthread_mutex_lock(&g->lock);
    bool untold = s->told && s->event_waits; /* UP not taken: nobody knows of it */
    bool silent = s->ended || (!s->dialled && !s->told) || (untold && !s->dialled);
    if (silent) {
        slot_give(g, s);
    } else {
        s->state = STREAM_OVER;
        s->event.kind = s->told && !untold ? GSP_GATE_DOWN : GSP_GATE_FAILED;
        s->event.refusal = refusal;
        snprintf(s->event.why, sizeof s->event.why, "%s", why);
        tell(g, s);
    }
    pthread_mutex_unlock(&g->lock);
}

void gate_stream_up(gsp_gate *g, gate_stream *s)
{
    const gsp_handshake *h = s->shake;
    pthread_mutex_lock(&g->lock);
    gsp_gate_event *e = &s->event;
    e->kind = GSP_GATE_UP;
    e->dialled = s->dialled;
    e->role = h->peer_role;
    e->hello = s->dialled ? h->hello : h->peer_hello;
    s->bulk = e->hello.stream != 0;
    e->peer_boot = h->peer_hello.boot;
    e->peer_port = h->peer_hello.port;
    e->address = s->address;
    e->credential_bytes = h->peer_credential_bytes;
    memcpy(e->credential, h->peer_credential, h->peer_credential_bytes);
    memcpy(e->key, h->peer_key, sizeof e->key);
    s->state = STREAM_PARKED;
    s->told = true;
    tell(g, s);
    pthread_mutex_unlock(&g->lock);
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
    ring(g->wake);
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

void gsp_gate_end(gsp_gate *g, uint64_t stream)
{
    pthread_mutex_lock(&g->lock);
    gate_stream *s = find(g, stream);
    if (s && s->state == STREAM_OVER) {
        slot_give(g, s);
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
            slot_give(g, first);
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
