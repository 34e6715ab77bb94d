/*
 * Owns the asking side of a probe: one question after the other over one link. Its one idea: each
 * answer has a deadline, and what did not come in time is simply not known; only a link that cannot
 * be had is a failure. It refuses to measure longer or more than the wish says.
 */
#include "gossip/net/probe_inner.h"

#include "atom/base/clock.h"

#include <math.h>
#include <string.h>

static const double ANSWER_SECONDS = 6;
enum { ASKS = 5, FIRST_BYTES = 1 << 20 };

typedef struct probe {
    gsp_net *net;
    const gsp_probe_wish *wish;
    gsp_probe_result *result;
    bool up, down, room;
    uint8_t key[GSP_NET_KEY_BYTES];
    probe_kind came; /* the last answer, 0: none */
    double came_s;   /* when */
    uint64_t number[2];
    gsp_address seen;
    uint64_t left;
    char text[GSP_PROBE_WHY_BYTES];
    uint64_t parts_bytes, parts_first; /* received since they were asked for */
    double parts_first_s, parts_last_s;
    char why[120];
} probe;

/* It is shown to a user, whose terminal obeys nobody. */
static void make_plain(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

static void take_message(probe *p, const gsp_net_event *e)
{
    atom_reader r;
    probe_kind kind = probe_read(e, &r);
    double now = atom_clock_seconds();
    if (kind == PROBE_PART) {
        if (p->parts_bytes == 0) {
            p->parts_first = e->bytes;
            p->parts_first_s = now;
        }
        p->parts_bytes += e->bytes;
        p->parts_last_s = now;
        return;
    }
    uint64_t first = 0, second = 0;
    gsp_address seen = {0};
    uint64_t left = 0;
    char text[GSP_PROBE_WHY_BYTES] = "";
    if (kind == PROBE_DIALLED) {
        first = atom_read_u8(&r);
        atom_read_bytes(&r, text, sizeof text);
        text[sizeof text - 1] = 0;
        make_plain(text);
    } else if (kind == PROBE_HERE || kind == PROBE_GOT || kind == PROBE_NO) {
        first = atom_read_u64(&r);
        if (kind != PROBE_NO)
            second = atom_read_u64(&r);
        if (kind == PROBE_HERE) {
            atom_read_bytes(&r, seen.ip, sizeof seen.ip);
            seen.port = atom_read_u16(&r);
            left = atom_read_u64(&r);
        }
    } else {
        return;
    }
    if (!atom_reader_ok(&r))
        return;
    p->came = kind;
    p->came_s = now;
    p->number[0] = first;
    p->number[1] = second;
    p->seen = seen;
    p->left = left;
    memcpy(p->text, text, sizeof text);
}

/* Waits at most until `end` for something to happen, and notes what. */
static atom_status turn(probe *p, double end)
{
    gsp_net_event e;
    double left = end - atom_clock_seconds();
    ATOM_TRY(gsp_net_next(p->net, left > 0 ? (uint64_t)(left * 1e9) : 0, &e));
    if (e.kind == GSP_NET_UP && !p->up) {
        p->up = p->room = true;
        memcpy(p->key, e.key, sizeof p->key);
    }
    bool ours = p->up && memcmp(p->key, e.key, sizeof p->key) == 0;
    if (e.kind == GSP_NET_DOWN && ours)
        p->down = true;
    if (e.kind == GSP_NET_DOWN || e.kind == GSP_NET_REFUSED)
        memcpy(p->why, e.why, sizeof p->why);
    if (e.kind == GSP_NET_ROOM && ours && e.channel == GSP_NET_BULK)
        p->room = true;
    if (e.kind == GSP_NET_MESSAGE && ours)
        take_message(p, &e);
    gsp_net_free(p->net, e.data);
    return p->down ? atom_fail(ATOM_E_RUNTIME, "the link to the peer broke: %s", p->why) : ATOM_OK;
}

static void say(probe *p, const uint8_t *message, const atom_writer *w)
{
    p->came = 0;
    (void)!gsp_net_send(p->net, p->key, GSP_NET_CONTROL, message, (size_t)(w->at - message), NULL,
                        0);
}

/* True when an answer came in time. */
static atom_status wait_answer(probe *p, double seconds, bool *came)
{
    double end = atom_clock_seconds() + seconds;
    atom_status st = ATOM_OK;
    while (st == ATOM_OK && p->came == 0 && atom_clock_seconds() < end)
        st = turn(p, end);
    *came = p->came != 0;
    return st;
}

static atom_status link_up(probe *p)
{
    static const uint8_t anybody[GSP_NET_KEY_BYTES];
    const gsp_probe_wish *w = p->wish;
    double end = atom_clock_seconds() + (w->patience_s > 0 ? w->patience_s : 15);
    atom_status st = gsp_net_dial(p->net, anybody, w->hosts, w->n_hosts);
    while (st == ATOM_OK && !p->up && atom_clock_seconds() < end)
        st = turn(p, end);
    if (st == ATOM_OK && !p->up) {
        char text[GSP_ADDRESS_TEXT_BYTES];
        st = atom_fail(ATOM_E_RUNTIME, "cannot connect to %s%s: %s",
                       gsp_address_text(&w->hosts[0], text), w->n_hosts > 1 ? " or the others" : "",
                       p->why[0] ? p->why
                                 : "nobody answers; is atom running there, and is the "
                                   "port open?");
    }
    return st;
}

static atom_status ask_time(probe *p)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    double best = HUGE_VAL;
    for (int i = 0; i < ASKS; i++) {
        bool came = false;
        double start = atom_clock_seconds(), wall = atom_wall_seconds();
        atom_writer w = probe_write(message, PROBE_ASK);
        atom_write_uint(&w, (uint64_t)(wall * 1e9), 8);
        say(p, message, &w);
        ATOM_TRY(wait_answer(p, ANSWER_SECONDS, &came));
        if (!came || p->came != PROBE_HERE)
            return atom_fail(ATOM_E_RUNTIME, "the peer does not answer the selftest; ask one "
                                             "that runs atom pool selftest --serve, or a newer "
                                             "version of atom");
        double rtt = p->came_s - start;
        if (rtt < best) {
            best = rtt;
            p->result->clock_off_s = (double)p->number[1] * 1e-9 - (wall + rtt / 2);
        }
        p->result->seen = p->seen;
        p->result->offered = p->left;
    }
    p->result->rtt_s = best;
    return ATOM_OK;
}

static atom_status ask_dial(probe *p)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    gsp_probe_result *to = p->result;
    bool came = false;
    if (p->wish->port == 0)
        return ATOM_OK;
    atom_writer w = probe_write(message, PROBE_DIAL);
    atom_write_uint(&w, p->wish->port, 2);
    say(p, message, &w);
    atom_status st = wait_answer(p, ANSWER_SECONDS, &came);
    to->dialled = came && p->came == PROBE_DIALLED;
    to->reachable = to->dialled && p->number[0] == 1;
    if (to->dialled && !to->reachable)
        memcpy(to->why, p->text, sizeof to->why);
    return st;
}

static atom_status measure_up(probe *p, double seconds, uint64_t bytes_max)
{
    static const uint8_t padding[PROBE_PART_BYTES];
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    double end = atom_clock_seconds() + seconds;
    uint64_t sent = 0;
    bool came = false;
    atom_status st = ATOM_OK;
    while (st == ATOM_OK && sent < bytes_max && atom_clock_seconds() < end) {
        atom_writer w = probe_write(message, PROBE_PART);
        size_t head = (size_t)(w.at - message);
        if (p->room && gsp_net_send(p->net, p->key, GSP_NET_BULK, message, head, padding,
                                    sizeof padding - head) == GSP_NET_SENT) {
            sent += sizeof padding;
            st = turn(p, 0);
        } else {
            p->room = false;
            st = turn(p, end);
        }
    }
    if (st != ATOM_OK)
        return st;
    atom_writer w = probe_write(message, PROBE_SENT);
    atom_write_uint(&w, sent, 8);
    say(p, message, &w);
    /* What waits in buffers takes its time on a slow line. */
    st = wait_answer(p, ANSWER_SECONDS + 2 * seconds, &came);
    p->result->up_bytes = sent;
    if (came && p->came == PROBE_GOT && p->number[1] > 0)
        p->result->up_bytes_per_s = (double)p->number[0] / ((double)p->number[1] * 1e-9);
    return st;
}

static atom_status fetch(probe *p, uint64_t bytes, double seconds)
{
    uint8_t message[PROBE_MESSAGE_BYTES_MAX];
    double end = atom_clock_seconds() + seconds;
    atom_status st = ATOM_OK;
    atom_writer w = probe_write(message, PROBE_SEND);
    atom_write_uint(&w, bytes, 8);
    p->parts_bytes = 0;
    say(p, message, &w);
    while (st == ATOM_OK && p->parts_bytes < bytes && p->came != PROBE_NO &&
           atom_clock_seconds() < end)
        st = turn(p, end);
    double took = p->parts_last_s - p->parts_first_s;
    p->result->down_bytes += p->parts_bytes;
    if (p->parts_bytes > p->parts_first && took > 0)
        p->result->down_bytes_per_s = (double)(p->parts_bytes - p->parts_first) / took;
    return st;
}

/* A little first, to know how much fills the time. */
static atom_status measure_down(probe *p, double seconds, uint64_t bytes_max)
{
    atom_status st =
        fetch(p, bytes_max < FIRST_BYTES ? bytes_max : FIRST_BYTES, ANSWER_SECONDS + seconds);
    double fit = p->result->down_bytes_per_s * seconds;
    uint64_t bytes = fit < (double)bytes_max ? (uint64_t)fit : bytes_max;
    if (st != ATOM_OK || bytes <= 2 * FIRST_BYTES)
        return st;
    return fetch(p, bytes, 3 * seconds);
}

atom_status gsp_probe_run(gsp_net *net, const gsp_probe_wish *wish, gsp_probe_result *result)
{
    gsp_probe_result r = {0};
    probe p = {.net = net, .wish = wish, .result = &r};
    double seconds = wish->seconds > 0 ? wish->seconds : 3;
    uint64_t bytes_max = wish->bytes_max ? wish->bytes_max : 64ull << 20;
    atom_status st;
    if (wish->n_hosts == 0)
        return atom_fail(ATOM_E_USAGE, "there is no host to ask");
    ATOM_TRY_CLEAN(link_up(&p));
    memcpy(r.peer, p.key, sizeof r.peer);
    ATOM_TRY_CLEAN(ask_time(&p));
    ATOM_TRY_CLEAN(ask_dial(&p));
    if (bytes_max > r.offered / 3) /* up once, down twice: a little to begin with */
        bytes_max = r.offered / 3;
    if (bytes_max >= PROBE_PART_BYTES) {
        ATOM_TRY_CLEAN(measure_up(&p, seconds, bytes_max));
        ATOM_TRY_CLEAN(measure_down(&p, seconds, bytes_max));
    }
    *result = r;
cleanup:
    if (p.up)
        gsp_net_drop(net, p.key);
    return st;
}
