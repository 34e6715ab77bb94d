/*
 * Owns the gate's thread: listeners, strangers, dialling, handshakes, and whose turn it is. One
 * idea: epoll says edge-triggered what became possible, each stream remembers it, and one loop
 * gives every stream with something to do a small share in turn. Refuses to answer strangers, to
 * let them wait for long, and to let their number slow what runs.
 */
#include "gossip/gate/gate_inner.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000, SCAN_NS = 50000000, EVENTS_AT_ONCE = 128 };
/* What epoll's data says: a slot's socket, or one of these. */
enum { DATA_TCP = 0, DATA_HOST = 1, DATA_LISTENER = 2, DATA_WAKE = 3 };

void gate_activate(gsp_gate *g, gate_stream *s)
{
    uint32_t slot = (uint32_t)(s - g->stream);
    if (!g->is_active[slot]) {
        g->is_active[slot] = true;
        g->active[g->n_active++] = slot;
    }
}

static bool watch(gsp_gate *g, int fd, uint64_t kind, uint64_t i)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data.u64 = i << 2 | kind};
    if (kind == DATA_WAKE)
        e.events = EPOLLIN;
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* No buffer sizes: the kernel tunes them only while nobody sets them. What it has not sent yet is
 * kept short instead, so that a slow peer does not hold seconds of data that are out of date. */
static void set_options(const gsp_gate *g, int fd)
{
    int on = 1, idle_s = 4, interval_s = 2, probes = 3, unsent_bytes = 256 * 1024;
    unsigned silence_ms = (unsigned)(g->config.silence_ns / 1000000);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof silence_ms);
}

static uint64_t wall_s(void)
{
    return (uint64_t)atom_wall_seconds();
}

static gsp_hello own_hello(const gsp_gate *g, const gsp_hello *wanted)
{
    gsp_hello hello = *wanted;
    hello.port = g->port;
    hello.boot = g->config.boot;
    return hello;
}

/* Memory for a stream in its handshake. */
static bool shake_room(gate_stream *s)
{
    s->shake = atom_alloc(1, sizeof *s->shake);
    return s->shake;
}

/* A stream over a socket that is connected already. */
static void adopt_begin(gsp_gate *g, gate_stream *s)
{
    if (!shake_room(s) || !watch(g, s->tcp, DATA_TCP, (uint64_t)(s - g->stream))) {
        gate_stream_over(g, s, GSP_WELCOME, "no memory");
        return;
    }
    pthread_mutex_lock(&g->lock);
    s->state = s->dialled ? STREAM_CONNECTING : STREAM_SHAKING;
    pthread_mutex_unlock(&g->lock);
    if (!s->dialled) {
        gsp_hello hello = own_hello(g, &s->hello);
        gsp_handshake_accept(s->shake, &g->config.handshake, &hello, wall_s());
        g->pending++;
    }
    gate_activate(g, s);
}

void gate_dial_begin(gsp_gate *g, gate_stream *s)
{
    struct sockaddr_storage to;
    socklen_t bytes = gsp_address_to_socket(&s->address, &to);
    s->deadline_ns = atom_clock_ns() + g->config.handshake_ns;
    if (s->tcp >= 0) {
        adopt_begin(g, s);
        return;
    }
    s->tcp = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->tcp < 0 || !shake_room(s)) {
        gate_stream_over(g, s, GSP_WELCOME, s->tcp < 0 ? strerror(errno) : "no memory");
        return;
    }
    set_options(g, s->tcp);
    pthread_mutex_lock(&g->lock);
    s->state = STREAM_CONNECTING;
    pthread_mutex_unlock(&g->lock);
    if ((connect(s->tcp, (struct sockaddr *)&to, bytes) != 0 && errno != EINPROGRESS) ||
        !watch(g, s->tcp, DATA_TCP, (uint64_t)(s - g->stream)))
        gate_stream_over(g, s, GSP_WELCOME, strerror(errno));
}

/* TCP is connected (or failed): begin the handshake. */
static void dial_connected(gsp_gate *g, gate_stream *s)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(s->tcp, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error) {
        gate_stream_over(g, s, GSP_WELCOME, strerror(error));
        return;
    }
    if (!s->tcp_out)
        return;
    gsp_hello hello = own_hello(g, &s->hello);
    if (gsp_handshake_dial(s->shake, &g->config.handshake, &hello,
                           s->any_peer ? NULL : s->event.key, wall_s()) != ATOM_OK) {
        gate_stream_over(g, s, GSP_WELCOME, atom_fail_message());
        return;
    }
    pthread_mutex_lock(&g->lock);
    s->state = STREAM_SHAKING;
    pthread_mutex_unlock(&g->lock);
}

void gate_bridge_begin(gsp_gate *g, gate_stream *s)
{
    pthread_mutex_lock(&g->lock);
    s->state = STREAM_READYING;
    pthread_mutex_unlock(&g->lock);
    gate_activate(g, s);
}

/* Both sides have their local socket: connect ours and let bytes flow. */
static void bridge(gsp_gate *g, gate_stream *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", s->path);
    s->host = s->join;
    s->join = -1;
    if (!s->raw)
        s->host = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->host < 0 || (!s->raw && connect(s->host, (struct sockaddr *)&to, sizeof to) != 0) ||
        !watch(g, s->host, DATA_HOST, (uint64_t)(s - g->stream))) {
        gate_stream_over(g, s, GSP_WELCOME, strerror(errno));
        return;
    }
    pthread_mutex_lock(&g->lock);
    s->state = STREAM_RUNNING;
    pthread_mutex_unlock(&g->lock);
}

/* Closes one unproven connection at random, of `host` if given: whoever holds many loses most. */
static void close_one(gsp_gate *g, const gsp_address *host)
{
    gate_stream *victim = NULL;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < g->n_streams; i++) {
        gate_stream *s = &g->stream[i];
        if (s->state != STREAM_SHAKING || s->dialled ||
            (host && !gsp_address_same_host(&s->address, host)))
            continue;
        if (randombytes_uniform(++seen) == 0)
            victim = s;
    }
    if (victim) {
        atomic_fetch_add(&g->strangers, 1);
        gate_stream_over(g, victim, GSP_REFUSED_FULL, "too many unproven connections");
    }
}

static uint32_t pending_of(const gsp_gate *g, const gsp_address *host)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_streams; i++) {
        const gate_stream *s = &g->stream[i];
        n += s->state == STREAM_SHAKING && !s->dialled && gsp_address_same_host(&s->address, host);
    }
    return n;
}

static void accept_one(gsp_gate *g, int fd, const gsp_address *from)
{
    atomic_fetch_add(&g->accepted, 1);
    if (pending_of(g, from) >= g->config.pending_per_host)
        close_one(g, from);
    else if (g->pending >= g->config.pending_max)
        close_one(g, NULL);
    pthread_mutex_lock(&g->lock);
    gate_stream *s = gate_slot_take(g, STREAM_SHAKING, g->n_streams);
    pthread_mutex_unlock(&g->lock);
    if (!s) {
        close(fd);
        return;
    }
    g->pending++;
    s->tcp = fd;
    s->address = *from;
    s->deadline_ns = atom_clock_ns() + g->config.handshake_ns;
    set_options(g, fd);
    if (!shake_room(s) || !watch(g, fd, DATA_TCP, (uint64_t)(s - g->stream))) {
        gate_stream_over(g, s, GSP_REFUSED_FULL, "no memory");
        return;
    }
    gsp_hello hello = own_hello(g, &(gsp_hello){0});
    gsp_handshake_accept(s->shake, &g->config.handshake, &hello, wall_s());
}

static void accept_some(gsp_gate *g, uint64_t now)
{
    double rate = g->config.accepts_per_second;
    g->tokens += (double)(now - g->tokens_ns) * 1e-9 * rate;
    g->tokens_ns = now;
    if (g->tokens > rate)
        g->tokens = rate;
    for (uint32_t l = 0; l < g->config.n_listen; l++) {
        for (int i = 0; i < 16 && g->listener_in[l] && g->tokens >= 1; i++) {
            struct sockaddr_storage from = {0};
            socklen_t bytes = sizeof from;
            gsp_address address;
            int fd = accept4(g->listener[l], (struct sockaddr *)&from, &bytes,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0) {
                if (errno == EAGAIN || errno == EWOULDBLOCK)
                    g->listener_in[l] = false;
                else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
                    g->tokens = 0; /* try again when some were closed */
                continue;
            }
            g->tokens -= 1;
            if (gsp_address_from_socket(&from, &address))
                accept_one(g, fd, &address);
            else
                close(fd);
        }
    }
}

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
        dial_connected(g, s);
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
            bridge(g, s);
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
                                                       : "the peer's transport did not start");
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
        accept_some(g, now);
        if (now >= g->scan_ns) {
            end_overdue(g, now);
            g->scan_ns = now + SCAN_NS;
        }
    }
}

static int listen_on(const gsp_address *address)
{
    struct sockaddr_storage at;
    static const uint8_t any[16];
    int on = 1, off = 0;
    bool all = memcmp(address->ip, any, sizeof any) == 0;
    socklen_t bytes = gsp_address_to_socket(address, &at);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 && all && errno == EAFNOSUPPORT) { /* no IPv6 here */
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};
        memcpy(&at, &v4, sizeof v4);
        bytes = sizeof v4;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, all ? &off : &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&at, bytes) != 0 || listen(fd, 256) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static atom_status open_listeners(gsp_gate *g)
{
    char text[GSP_ADDRESS_TEXT_BYTES];
    for (uint32_t l = 0; l < g->config.n_listen; l++) {
        struct sockaddr_storage at = {0};
        socklen_t bytes = sizeof at;
        gsp_address bound;
        g->listener[l] = listen_on(&g->config.listen[l]);
        if (g->listener[l] < 0)
            return atom_fail(ATOM_E_USAGE,
                             "cannot accept on %s: %s; choose another port or address",
                             gsp_address_text(&g->config.listen[l], text), strerror(errno));
        if (getsockname(g->listener[l], (struct sockaddr *)&at, &bytes) != 0 ||
            !gsp_address_from_socket(&at, &bound) || !watch(g, g->listener[l], DATA_LISTENER, l))
            return atom_fail_errno(errno, "listener");
        if (l == 0)
            g->port = bound.port;
    }
    return ATOM_OK;
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
    if (g->epoll < 0 || g->wake < 0 || g->events < 0 || !watch(g, g->wake, DATA_WAKE, 0))
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "the gate's descriptors"));
    ATOM_TRY_CLEAN(open_listeners(g));
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
