/*
 * Owns the gate's thread and whose turn it is. Its one idea: epoll says, edge-triggered, what has
 * become possible, each stream remembers it, and one loop gives every stream with something to do a
 * small share in turn. It refuses to let unproven connections wait for long, or slow what runs.
 */
#include "gossip/gate/gate_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000, SCAN_NS = 50000000, EVENTS_AT_ONCE = 128 };
/* The handshake is over, well or not. */
static void shake_done(gsp_gate *g, gate_stream *s)
{
    gsp_handshake *h = s->shake;
    if (h->state == GSP_HANDSHAKE_REFUSED) {
        if (!s->dialled)
            atomic_fetch_add(h->stranger ? &g->strangers : &g->refused, 1);
        gate_stream_over(g, s, h->refusal, gsp_refusal_text(h->refusal));
        return;
    }
    s->in = atom_alloc(1, BUFFER_BYTES);
    s->out = atom_alloc(1, BUFFER_BYTES);
    if (!s->in || !s->out) {
        gate_stream_over(g, s, GSP_REFUSED_FULL, "no memory");
        return;
    }
    if (!s->dialled)
        g->pending--;
    atomic_fetch_add(&g->opened, 1);
    memcpy(s->seal.key, h->key_send, sizeof s->seal.key);
    memcpy(s->open.key, h->key_receive, sizeof s->open.key);
    s->deadline_ns = atom_clock_ns() + 4 * g->config.handshake_ns;
    gate_stream_up(g, s);
    gsp_handshake_wipe(h);
    atom_free(h);
    s->shake = NULL;
}

static void turn(gsp_gate *g, gate_stream *s, bool *more)
{
    const char *why = "";
    pump_result result = PUMP_WAITS;
    *more = false;
    if (s->state == STREAM_CONNECTING)
        gate_dial_connected(g, s);
    if (s->state == STREAM_SHAKING) {
        result = gate_pump_shake(g, s, &why);
        if (result == PUMP_OVER) {
            if (!s->dialled)
                atomic_fetch_add(&g->strangers, 1);
        } else if (s->shake->state != GSP_HANDSHAKE_GOES_ON && s->shake->out_bytes == 0) {
            shake_done(g, s);
            return;
        }
    }
    if (s->state == STREAM_READYING) {
        bool ready;
        result = gate_pump_ready(g, s, &ready, &why);
        if (result != PUMP_OVER && ready) {
            gate_bridge(g, s);
            *more = s->state == STREAM_RUNNING;
            return;
        }
    } else if (s->state == STREAM_RUNNING) {
        result = gate_pump(g, s, &why);
    }
    if (result == PUMP_OVER)
        gate_stream_over(g, s, GSP_WELCOME, why);
    *more = result == PUMP_MORE;
}

static void turns(gsp_gate *g)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < g->n_active; i++) {
        uint32_t slot = g->active[i];
        bool more;
        turn(g, &g->stream[slot], &more);
        g->is_active[slot] = more;
        if (more)
            g->active[kept++] = slot;
    }
    g->n_active = kept;
}

static void end_overdue(gsp_gate *g, uint64_t now)
{
    for (uint32_t i = 0; i < g->n_streams; i++) {
        gate_stream *s = &g->stream[i];
        bool waits = s->state == STREAM_CONNECTING || s->state == STREAM_SHAKING ||
                     s->state == STREAM_PARKED || s->state == STREAM_READYING;
        if (!waits || now < s->deadline_ns)
            continue;
        if (s->state == STREAM_SHAKING && !s->dialled)
            atomic_fetch_add(&g->strangers, 1);
        gate_stream_over(g, s, GSP_WELCOME,
                         s->state == STREAM_CONNECTING ? "nobody answered in time"
                         : s->state == STREAM_SHAKING  ? "the handshake took too long"
                                                       : "the peer did not start its side of the "
                                                         "connection");
    }
}

static void note(gsp_gate *g, const struct epoll_event *e)
{
    uint64_t kind = e->data.u64 & 3, i = e->data.u64 >> 2, count;
    bool over = e->events & (EPOLLERR | EPOLLHUP);
    bool in = over || (e->events & (EPOLLIN | EPOLLRDHUP)), out = over || (e->events & EPOLLOUT);
    if (kind == DATA_WAKE) {
        ssize_t n = read(g->wake, &count, sizeof count);
        (void)n;
        return;
    }
    if (kind == DATA_LISTENER) {
        g->listener_in[i] = true;
        return;
    }
    gate_stream *s = &g->stream[i]; /* of an older stream at worst: then a read says EAGAIN */
    if (s->state == STREAM_FREE || s->state == STREAM_OVER)
        return;
    if (kind == DATA_TCP) {
        s->tcp_end |= over || (e->events & EPOLLRDHUP);
        s->tcp_in |= in;
        s->tcp_out |= out;
    } else {
        s->host_end |= over || (e->events & EPOLLRDHUP);
        s->host_in |= in;
        s->host_out |= out;
    }
    gate_activate(g, s);
}

static int wait_ms(const gsp_gate *g)
{
    bool accepts = false;
    for (uint32_t l = 0; l < g->config.n_listen; l++)
        accepts |= g->listener_in[l];
    if (g->n_active || (accepts && g->tokens >= 1))
        return 0;
    return gate_caps_wait_ms(g, accepts ? 10 : SCAN_NS / 1000000);
}

static void *run(void *arg)
{
    gsp_gate *g = arg;
    struct epoll_event events[EVENTS_AT_ONCE];
    for (;;) {
        int n = epoll_wait(g->epoll, events, EVENTS_AT_ONCE, wait_ms(g));
        ATOM_ASSERT(n >= 0 || errno == EINTR);
        for (int i = 0; i < n; i++)
            note(g, &events[i]);
        if (!gate_mail_read(g))
            return NULL;
        gate_caps_fill(g, atom_clock_ns());
        turns(g);
        uint64_t now = atom_clock_ns();
        gate_accept_some(g, now);
        if (now >= g->scan_ns) {
            end_overdue(g, now);
            g->scan_ns = now + SCAN_NS;
        }
    }
}

static void set_defaults(gsp_gate_config *c)
{
    if (!c->streams_max)
        c->streams_max = 640;
    if (c->streams_max > GSP_GATE_STREAMS_MAX)
        c->streams_max = GSP_GATE_STREAMS_MAX;
    if (!c->pending_max)
        c->pending_max = 128;
    if (!c->pending_per_host)
        c->pending_per_host = 64;
    if (!c->accepts_per_second)
        c->accepts_per_second = 400;
    if (!c->handshake_ns)
        c->handshake_ns = 5ull * SECOND_NS;
    if (!c->silence_ns)
        c->silence_ns = 10ull * SECOND_NS;
}

static atom_status start_thread(gsp_gate *g)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    int error = pthread_create(&g->thread, NULL, run, g);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return atom_fail_errno(error, "the gate's thread");
    pthread_setname_np(g->thread, "atom-gate");
    g->started = true;
    return ATOM_OK;
}

atom_status gsp_gate_open(const gsp_gate_config *config, gsp_gate **out)
{
    gsp_gate *g = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    ATOM_ASSERT(config->n_listen <= GSP_GATE_LISTEN_MAX);
    g = atom_alloc(1, sizeof *g);
    if (!g)
        return atom_fail_memory("the gate", sizeof *g);
    g->config = *config;
    set_defaults(&g->config);
    g->config.handshake.replays = &g->replays;
    g->epoll = g->wake = g->events = -1;
    memset(g->listener, -1, sizeof g->listener);
    pthread_mutex_init(&g->lock, NULL);
    g->n_streams = g->config.streams_max + g->config.pending_max;
    g->tokens = g->config.accepts_per_second;
    g->tokens_ns = atom_clock_ns();
    g->up = (gate_cap){.rate = config->up_bytes_per_s, .filled_ns = g->tokens_ns};
    g->down = (gate_cap){.rate = config->down_bytes_per_s, .filled_ns = g->tokens_ns};
    g->stream = atom_alloc(g->n_streams, sizeof *g->stream);
    g->active = atom_alloc(g->n_streams, sizeof *g->active);
    g->is_active = atom_alloc(g->n_streams, sizeof *g->is_active);
    if (!g->stream || !g->active || !g->is_active)
        ATOM_TRY_CLEAN(atom_fail_memory("the gate's streams", g->n_streams * sizeof *g->stream));
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    g->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    g->events = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (g->epoll < 0 || g->wake < 0 || g->events < 0 || !gate_watch(g, g->wake, DATA_WAKE, 0))
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "the gate's descriptors"));
    ATOM_TRY_CLEAN(gate_listen(g));
    ATOM_TRY_CLEAN(start_thread(g));
    *out = g;
    return ATOM_OK;
cleanup:
    gsp_gate_close(&g);
    return st;
}

void gsp_gate_close(gsp_gate **gate)
{
    gsp_gate *g = *gate;
    uint64_t one = 1;
    if (!g)
        return;
    *gate = NULL;
    if (g->started) {
        pthread_mutex_lock(&g->lock);
        g->closing = true;
        pthread_mutex_unlock(&g->lock);
        ssize_t n = write(g->wake, &one, sizeof one);
        (void)n;
        pthread_join(g->thread, NULL);
    }
    for (uint32_t i = 0; g->stream && i < g->n_streams; i++)
        if (g->stream[i].state != STREAM_FREE && g->stream[i].state != STREAM_OVER)
            gate_stream_over(g, &g->stream[i], GSP_WELCOME, "the gate closes");
    for (uint32_t l = 0; l < GSP_GATE_LISTEN_MAX; l++)
        if (g->listener[l] >= 0)
            close(g->listener[l]);
    if (g->events >= 0)
        close(g->events);
    if (g->wake >= 0)
        close(g->wake);
    if (g->epoll >= 0)
        close(g->epoll);
    atom_free(g->stream);
    atom_free(g->active);
    atom_free(g->is_active);
    pthread_mutex_destroy(&g->lock);
    explicit_bzero(g, sizeof *g);
    atom_free(g);
}

uint16_t gsp_gate_port(const gsp_gate *g)
{
    return g->port;
}

int gsp_gate_event_fd(const gsp_gate *g)
{
    return g->events;
}

void gsp_gate_read_stats(gsp_gate *g, gsp_gate_stats *stats)
{
    clockid_t clock;
    struct timespec spent = {0};
    if (pthread_getcpuclockid(g->thread, &clock) == 0)
        clock_gettime(clock, &spent);
    *stats = (gsp_gate_stats){
        .wire_bytes_sent = atomic_load(&g->sent_bytes),
        .wire_bytes_received = atomic_load(&g->received_bytes),
        .accepted = atomic_load(&g->accepted),
        .strangers = atomic_load(&g->strangers),
        .refused = atomic_load(&g->refused),
        .records_refused = atomic_load(&g->records_refused),
        .streams_opened = atomic_load(&g->opened),
        .cpu_ns = (uint64_t)spent.tv_sec * SECOND_NS + (uint64_t)spent.tv_nsec,
    };
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; i < g->n_streams; i++) {
        stats->streams += g->stream[i].state == STREAM_RUNNING;
        stats->pending += g->stream[i].state == STREAM_SHAKING;
    }
    pthread_mutex_unlock(&g->lock);
}
