/*
 * Owns the slots that streams live in: taking one, having work to do, being told of as UP, ending.
 * Its one idea: a slot is free again only when its last event has been taken, so an event needs no
 * memory of its own. It refuses to leave a key or a byte of a stream behind in memory.
 */
#include "gossip/gate/gate_inner.h"

#include "atom/base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

void gate_ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one); /* full means: it rings already */
    (void)n;
}

bool gate_watch(gsp_gate *g, int fd, uint64_t kind, uint64_t i)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data.u64 = i << 2 | kind};
    if (kind == DATA_WAKE)
        e.events = EPOLLIN;
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

void gate_activate(gsp_gate *g, gate_stream *s)
{
    uint32_t slot = (uint32_t)(s - g->stream);
    if (!g->is_active[slot]) {
        g->is_active[slot] = true;
        g->active[g->n_active++] = slot;
    }
}

static uint64_t number(const gsp_gate *g, const gate_stream *s)
{
    return (uint64_t)s->generation << 32 | (uint32_t)(s - g->stream);
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
    gate_ring(g->events);
}

void gate_slot_give(gsp_gate *g, gate_stream *s)
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
    bool proven = s->shake && s->shake->proven;
    uint8_t key[GSP_PUBLIC_BYTES];
    if (proven)
        memcpy(key, s->shake->peer_key, sizeof key);
    if (s->state == STREAM_SHAKING && !s->dialled)
        g->pending--;
    release(s);
    pthread_mutex_lock(&g->lock);
    bool untold = s->told && s->event_waits; /* UP not taken: nobody knows of it */
    bool silent = s->ended || (!s->dialled && !s->told) || (untold && !s->dialled);
    if (silent) {
        gate_slot_give(g, s);
    } else {
        s->state = STREAM_OVER;
        s->event.kind = s->told && !untold ? GSP_GATE_DOWN : GSP_GATE_FAILED;
        s->event.refusal = refusal;
        s->event.moved = atomic_load_explicit(&s->moved, memory_order_relaxed);
        s->event.proven = proven;
        if (proven)
            memcpy(s->event.key, key, sizeof s->event.key);
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
    e->old_key = h->old_key;
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
