/*
 * Owns the answering side of a probe: a small table of who asks, with what each may still use. Its
 * one idea: everything is done in small steps between the caller's own events, so a probe never
 * holds up a round. It refuses to connect anywhere but to the host that asks.
 */
#include "gossip/net/probe_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t SECOND_NS = 1000000000u;
static const uint64_t DIAL_NS = 4 * 1000000000ull;
enum { DIALS_MAX = 4 }; /* per link */

typedef struct asker {
    bool used;
    uint8_t key[GSP_NET_KEY_BYTES];
    gsp_address address;
    uint64_t left;    /* bytes it may still make us send or take */
    uint64_t to_send; /* of parts */
    bool room;
    uint64_t got, got_first, first_ns, last_ns; /* of its parts since the last SENT */
    bool told;                                  /* SENT came: answer when all is there */
    uint64_t told_bytes;
    uint32_t dials;
    int fd; /* a connection back that is being tried; -1: none */
    uint64_t dial_until_ns;
} asker;

struct gsp_probe_server {
    gsp_net *net;
    uint64_t bytes_max;
    asker asker[GSP_PROBE_ASKERS_MAX];
};

atom_status gsp_probe_server_open(gsp_net *net, uint64_t bytes_max, gsp_probe_server **out)
{
    gsp_probe_server *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("the answering side of a probe", sizeof *s);
    s->net = net;
    s->bytes_max = bytes_max ? bytes_max : 512ull << 20;
    *out = s;
    return ATOM_OK;
}

static void forget(asker *a)
{
    if (a->used && a->fd >= 0)
        close(a->fd);
    *a = (asker){.fd = -1};
}

void gsp_probe_server_close(gsp_probe_server **server)
{
    for (uint32_t i = 0; *server && i < GSP_PROBE_ASKERS_MAX; i++)
        forget(&(*server)->asker[i]);
    atom_free(*server);
    *server = NULL;
}

static asker *find(gsp_probe_server *s, const uint8_t *key)
{
    for (uint32_t i = 0; i < GSP_PROBE_ASKERS_MAX; i++)
        if (s->asker[i].used && memcmp(s->asker[i].key, key, GSP_NET_KEY_BYTES) == 0)
            return &s->asker[i];
    return NULL;
}

/* Answers are small and few: one that finds no room is lost, and its asker gives up in time. */
static void answer(gsp_probe_server *s, const asker *a, const uint8_t *message,
                   const atom_writer *w)
{
    (void)!gsp_net_send(s->net, a->key, GSP_NET_CONTROL, message, (size_t)(w->at - message), NULL,
                        0);
}

static void answer_dialled(gsp_probe_server *s, asker *a, int error)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    char text[GSP_PROBE_WHY_BYTES] = "";
    atom_writer w = probe_write(message, PROBE_DIALLED);
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    if (error)
        snprintf(text, sizeof text, "%s", strerror(error));
    atom_write_uint(&w, error == 0, 1);
    atom_write_bytes(&w, text, sizeof text);
    answer(s, a, message, &w);
}

static void dial_back(gsp_probe_server *s, asker *a, uint16_t port)
{
    struct sockaddr_storage to;
    gsp_address at = a->address;
    at.port = port;
    if (a->fd >= 0 || a->dials >= DIALS_MAX || port == 0) {
        if (a->fd < 0)
            answer_dialled(s, a, EAGAIN);
        return;
    }
    a->dials++;
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    a->fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    a->dial_until_ns = atom_clock_ns() + DIAL_NS;
    if (a->fd < 0)
        answer_dialled(s, a, errno);
    else if (connect(a->fd, (const struct sockaddr *)&to, bytes) == 0)
        answer_dialled(s, a, 0);
    else if (errno != EINPROGRESS)
        answer_dialled(s, a, errno);
}

static void go_on_dialling(gsp_probe_server *s, asker *a)
{
    struct pollfd p = {.fd = a->fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&p, 1, 0) == 1) {
        if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
            error = errno;
        answer_dialled(s, a, error);
    } else if (atom_clock_ns() > a->dial_until_ns) {
        answer_dialled(s, a, ETIMEDOUT);
    }
}

static void answer_got(gsp_probe_server *s, asker *a)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    atom_writer w = probe_write(message, PROBE_GOT);
    atom_write_uint(&w, a->got - a->got_first, 8);
    atom_write_uint(&w, a->last_ns - a->first_ns, 8);
    answer(s, a, message, &w);
    a->told = false;
    a->got = a->got_first = 0;
}

static void take_part(asker *a, uint64_t bytes)
{
    uint64_t now = atom_clock_ns();
    a->left -= bytes < a->left ? bytes : a->left;
    if (a->got == 0) {
        a->first_ns = now;
        a->got_first = bytes;
    }
    a->got += bytes;
    a->last_ns = now;
}

static void take_ask(gsp_probe_server *s, const asker *a, uint64_t theirs)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    atom_writer w = probe_write(message, PROBE_HERE);
    atom_write_uint(&w, theirs, 8);
    atom_write_uint(&w, (uint64_t)(atom_wall_seconds() * 1e9), 8);
    atom_write_bytes(&w, a->address.ip, sizeof a->address.ip);
    atom_write_uint(&w, a->address.port, 2);
    answer(s, a, message, &w);
}

static void take_send(gsp_probe_server *s, asker *a, uint64_t bytes)
{
    if (bytes <= a->left && a->to_send == 0) {
        a->left -= bytes;
        a->to_send = bytes;
        return;
    }
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    atom_writer w = probe_write(message, PROBE_NO);
    atom_write_uint(&w, a->left, 8);
    answer(s, a, message, &w);
}

static void take_link(gsp_probe_server *s, const gsp_net_event *e)
{
    asker *a = find(s, e->key);
    if (a)
        forget(a);
    for (uint32_t i = 0; e->kind == GSP_NET_UP && i < GSP_PROBE_ASKERS_MAX; i++)
        if (!s->asker[i].used) {
            s->asker[i] = (asker){
                .used = true, .address = e->address, .left = s->bytes_max, .room = true, .fd = -1};
            memcpy(s->asker[i].key, e->key, sizeof e->key);
            return;
        }
}

bool gsp_probe_server_take(gsp_probe_server *s, const gsp_net_event *e)
{
    atom_reader r;
    if (e->kind == GSP_NET_UP || e->kind == GSP_NET_DOWN)
        take_link(s, e);
    asker *a = find(s, e->key);
    if (a && e->kind == GSP_NET_ROOM && e->channel == GSP_NET_BULK)
        a->room = true;
    probe_kind kind = probe_read(e, &r);
    if (kind == 0 || kind == PROBE_HERE || kind == PROBE_DIALLED || kind == PROBE_GOT ||
        kind == PROBE_NO)
        return false;
    if (!a)
        return true; /* one too many */
    uint64_t number = kind == PROBE_PART   ? e->bytes
                      : kind == PROBE_DIAL ? atom_read_u16(&r)
                                           : atom_read_u64(&r);
    if (!atom_reader_ok(&r))
        return true;
    if (kind == PROBE_ASK)
        take_ask(s, a, number);
    else if (kind == PROBE_DIAL)
        dial_back(s, a, (uint16_t)number);
    else if (kind == PROBE_PART)
        take_part(a, number);
    else if (kind == PROBE_SEND)
        take_send(s, a, number);
    else if (kind == PROBE_SENT) {
        a->told = true;
        a->told_bytes = number;
    }
    return true;
}

static void send_parts(gsp_probe_server *s, asker *a)
{
    static const uint8_t padding[PROBE_PART_BYTES];
    uint8_t head[PROBE_MESSAGE_BYTES_MAX];
    atom_writer w = probe_write(head, PROBE_PART);
    while (a->room && a->to_send > 0) {
        uint64_t bytes = a->to_send < PROBE_PART_BYTES ? a->to_send : PROBE_PART_BYTES;
        size_t head_bytes = (size_t)(w.at - head);
        size_t body = bytes > head_bytes ? (size_t)bytes - head_bytes : 0;
        a->room = gsp_net_send(s->net, a->key, GSP_NET_BULK, head, head_bytes, padding, body) ==
                  GSP_NET_SENT;
        if (a->room)
            a->to_send -= bytes;
    }
}

void gsp_probe_server_step(gsp_probe_server *s)
{
    for (uint32_t i = 0; i < GSP_PROBE_ASKERS_MAX; i++) {
        asker *a = &s->asker[i];
        if (!a->used)
            continue;
        if (a->fd >= 0)
            go_on_dialling(s, a);
        if (a->told && a->got >= a->told_bytes)
            answer_got(s, a);
        send_parts(s, a);
    }
}

uint64_t gsp_probe_wait_ns(const gsp_probe_server *s)
{
    for (uint32_t i = 0; i < GSP_PROBE_ASKERS_MAX; i++)
        if (s->asker[i].used && s->asker[i].fd >= 0)
            return SECOND_NS / 20;
    return 60 * SECOND_NS;
}
