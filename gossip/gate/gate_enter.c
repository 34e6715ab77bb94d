/*
 * Owns how a connection becomes a stream: listening, accepting, dialling, adopting, and connecting
 * the local side. Its one idea: a connection that has proven nothing costs little and can be closed
 * at any time, so strangers compete with each other and never with what runs. It refuses to choose
 * whom to close by anything that a stranger controls.
 */
#include "gossip/gate/gate_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
    if (!shake_room(s) || !gate_watch(g, s->tcp, DATA_TCP, (uint64_t)(s - g->stream))) {
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
        !gate_watch(g, s->tcp, DATA_TCP, (uint64_t)(s - g->stream)))
        gate_stream_over(g, s, GSP_WELCOME, strerror(errno));
}

/* TCP is connected (or failed): begin the handshake. */
void gate_dial_connected(gsp_gate *g, gate_stream *s)
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
void gate_bridge(gsp_gate *g, gate_stream *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s", s->path);
    s->host = s->join;
    s->join = -1;
    if (!s->raw)
        s->host = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->host < 0 || (!s->raw && connect(s->host, (struct sockaddr *)&to, sizeof to) != 0) ||
        !gate_watch(g, s->host, DATA_HOST, (uint64_t)(s - g->stream))) {
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
            (host && !gsp_address_same_customer(&s->address, host)))
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
        n += s->state == STREAM_SHAKING && !s->dialled &&
             gsp_address_same_customer(&s->address, host);
    }
    return n;
}

/* Strangers get a small share of the process's descriptors, and nobody the last ones: the member has files
 * to write, and ends where it cannot. *places: how many may be unproven at a time. */
static bool spares(const gsp_gate *g, int fd, uint32_t *places)
{
    enum { SHARE = 8, RESERVE = 8 };
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    *places = g->config.pending_max;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    if (limit.rlim_cur / SHARE < *places)
        *places = (uint32_t)(limit.rlim_cur / SHARE);
    return (rlim_t)fd + RESERVE < limit.rlim_cur; /* a new one has the lowest free number */
}

static void accept_one(gsp_gate *g, int fd, const gsp_address *from)
{
    uint32_t places, own = pending_of(g, from);
    atomic_fetch_add(&g->accepted, 1);
    if (!spares(g, fd, &places)) {
        close(fd);
        return;
    }
    if (own >= g->config.pending_per_host || (own && own >= places))
        close_one(g, from);
    else if (g->pending >= places)
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
    if (!shake_room(s) || !gate_watch(g, fd, DATA_TCP, (uint64_t)(s - g->stream))) {
        gate_stream_over(g, s, GSP_REFUSED_FULL, "no memory");
        return;
    }
    gsp_hello hello = own_hello(g, &(gsp_hello){0});
    gsp_handshake_accept(s->shake, &g->config.handshake, &hello, wall_s());
}

void gate_accept_some(gsp_gate *g, uint64_t now)
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
                else if (errno != EINTR && errno != ECONNABORTED)
                    g->tokens = 0; /* no descriptors or no memory: try again after a pause */
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

atom_status gate_listen(gsp_gate *g)
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
            !gsp_address_from_socket(&at, &bound) ||
            !gate_watch(g, g->listener[l], DATA_LISTENER, l))
            return atom_fail_errno(errno, "listener");
        if (l == 0)
            g->port = bound.port;
    }
    return ATOM_OK;
}
