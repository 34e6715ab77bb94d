/*
 * Owns the answering side of a probe: a small table of who asks. Its one idea: everything is done in
 * small steps between the caller's own events, so a probe never holds up a round, and all that it
 * gives is taken from a tally first. It refuses to connect anywhere but to the host that asks.
 */
#include "gossip/net/probe_inner.h"
#include "gossip/net/tally.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t SECOND_NS = 1000000000u;
static const uint64_t DIAL_NS = 4 * 1000000000ull, DAY_NS = 86400 * 1000000000ull;
/* On their way when the asker heard that there is no room left. */
enum { EXCESS_BYTES = 64 << 20 };

typedef struct asker {
    bool used, guest;
    uint8_t key[GSP_NET_KEY_BYTES];
    gsp_address address;
    uint64_t moved, excess; /* bytes of parts, both ways; those for which there was no room */
    uint64_t to_send;       /* of parts */
    bool room;
    uint64_t got, got_first, first_ns, last_ns; /* of its parts since the last SENT */
    bool told;                                  /* SENT came: answer when all is there */
    uint64_t told_bytes;
    int fd; /* a connection back that is being tried; -1: none */
    uint64_t dial_until_ns;
} asker;

struct gsp_probe_server {
    gsp_net *net;
    bool gives_bytes;
    gsp_tally questions, dials, guests_dials, bytes;
    asker asker[GSP_PROBE_ASKERS_MAX];
};

atom_status gsp_probe_server_open(gsp_net *net, uint64_t bytes_max, gsp_probe_server **out)
{
    gsp_probe_server *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("the answering side of a probe", sizeof *s);
    uint64_t each = bytes_max ? bytes_max : 256ull << 20;
    s->net = net;
    s->gives_bytes = true;
    s->questions = (gsp_tally){.window_ns = 60 * SECOND_NS, .each_max = 120, .all_max = 960};
    s->dials = (gsp_tally){.window_ns = 60 * SECOND_NS, .each_max = 4, .all_max = 16};
    s->guests_dials = (gsp_tally){.window_ns = 60 * SECOND_NS, .each_max = 4, .all_max = 8};
    s->bytes = (gsp_tally){.window_ns = DAY_NS, .each_max = each, .all_max = 4 * each};
    *out = s;
    return ATOM_OK;
}

void gsp_probe_server_give_bytes(gsp_probe_server *s, bool give)
{
    s->gives_bytes = give;
    for (uint32_t i = 0; !give && i < GSP_PROBE_ASKERS_MAX; i++)
        s->asker[i].to_send = 0;
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

/* Whether a connection back may be made now; it is counted then. */
static bool may_dial(gsp_probe_server *s, const asker *a, uint64_t now)
{
    uint8_t from[GSP_TALLY_KEY_BYTES];
    if (!a->guest)
        return gsp_tally_take(&s->dials, a->key, 1, now);
    gsp_tally_address(&a->address, from);
    return gsp_tally_take(&s->guests_dials, from, 1, now);
}

static void dial_back(gsp_probe_server *s, asker *a, uint16_t port)
{
    struct sockaddr_storage to;
    gsp_address at = a->address;
    uint64_t now = atom_clock_ns();
    at.port = port;
    if (a->fd >= 0)
        return; /* one after the other */
    if (port == 0 || gsp_address_is_any(&at) || !may_dial(s, a, now)) {
        /* Through a relay it is not seen where the asker is, and no address is believed. */
        answer_dialled(s, a, gsp_address_is_any(&at) ? EADDRNOTAVAIL : EAGAIN);
        return;
    }
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    a->fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    a->dial_until_ns = now + DIAL_NS;
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

static uint64_t bytes_left(gsp_probe_server *s, const asker *a, uint64_t now)
{
    return a->guest || !s->gives_bytes ? 0 : gsp_tally_left(&s->bytes, a->key, now);
}

static bool take_bytes(gsp_probe_server *s, asker *a, uint64_t bytes)
{
    uint64_t now = atom_clock_ns();
    if (bytes > bytes_left(s, a, now) || !gsp_tally_take(&s->bytes, a->key, bytes, now))
        return false;
    a->moved += bytes;
    return true;
}

static void take_part(gsp_probe_server *s, asker *a, uint64_t bytes)
{
    uint64_t now = atom_clock_ns();
    if (!take_bytes(s, a, bytes)) {
        a->excess += bytes;
        return;
    }
    if (a->got == 0) {
        a->first_ns = now;
        a->got_first = bytes;
    }
    a->got += bytes;
    a->last_ns = now;
}

bool gsp_probe_server_greedy(gsp_probe_server *s, uint8_t key[GSP_NET_KEY_BYTES])
{
    for (uint32_t i = 0; i < GSP_PROBE_ASKERS_MAX; i++) {
        asker *a = &s->asker[i];
        if (!a->used || a->excess <= (a->guest ? 0 : EXCESS_BYTES))
            continue;
        memcpy(key, a->key, sizeof a->key);
        forget(a);
        return true;
    }
    return false;
}

static void take_ask(gsp_probe_server *s, const asker *a, uint64_t theirs)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    atom_writer w = probe_write(message, PROBE_HERE);
    atom_write_uint(&w, theirs, 8);
    atom_write_uint(&w, (uint64_t)(atom_wall_seconds() * 1e9), 8);
    atom_write_bytes(&w, a->address.ip, sizeof a->address.ip);
    atom_write_uint(&w, a->address.port, 2);
    atom_write_uint(&w, bytes_left(s, a, atom_clock_ns()), 8);
    answer(s, a, message, &w);
}

static void take_send(gsp_probe_server *s, asker *a, uint64_t bytes)
{
    if (a->to_send == 0 && take_bytes(s, a, bytes)) {
        a->to_send = bytes;
        return;
    }
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    atom_writer w = probe_write(message, PROBE_NO);
    atom_write_uint(&w, bytes_left(s, a, atom_clock_ns()), 8);
    answer(s, a, message, &w);
}

/* The row of whoever asks; a new one takes the place of the one that moved most. */
static asker *asker_of(gsp_probe_server *s, const gsp_net_event *e)
{
    asker *a = find(s, e->key), *most = &s->asker[0];
    for (uint32_t i = 0; !a && i < GSP_PROBE_ASKERS_MAX; i++) {
        asker *x = &s->asker[i];
        if (!x->used || x->moved > most->moved)
            most = x;
        if (!x->used)
            break;
    }
    if (a)
        return a;
    forget(most);
    *most = (asker){.used = true, .guest = e->guest, .address = e->address, .room = true, .fd = -1};
    memcpy(most->key, e->key, sizeof most->key);
    return most;
}

bool gsp_probe_server_take(gsp_probe_server *s, const gsp_net_event *e)
{
    atom_reader r;
    asker *a = find(s, e->key);
    if (a && (e->kind == GSP_NET_UP || e->kind == GSP_NET_DOWN)) {
        forget(a); /* what it used is kept */
        a = NULL;
    }
    if (a && e->kind == GSP_NET_ROOM && e->channel == GSP_NET_BULK)
        a->room = true;
    probe_kind kind = probe_read(e, &r);
    if (kind == 0 || kind == PROBE_HERE || kind == PROBE_DIALLED || kind == PROBE_GOT ||
        kind == PROBE_NO)
        return false;
    uint64_t number = kind == PROBE_PART   ? e->bytes
                      : kind == PROBE_DIAL ? atom_read_u16(&r)
                                           : atom_read_u64(&r);
    if (!atom_reader_ok(&r))
        return true;
    if (kind != PROBE_PART && !gsp_tally_take(&s->questions, e->key, 1, atom_clock_ns()))
        return true; /* it asks again, in a minute */
    a = asker_of(s, e);
    if (kind == PROBE_ASK)
        take_ask(s, a, number);
    else if (kind == PROBE_DIAL)
        dial_back(s, a, (uint16_t)number);
    else if (kind == PROBE_PART)
        take_part(s, a, number);
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
