/* Probes over the gate on loopback: what is asked is measured; what is too much is refused. */
#include "gossip/net/probe_inner.h"
#include "tests/lib/gossip_pool.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct answerer {
    gsp_net *net;
    gsp_probe_server *server;
    pthread_t thread;
    atomic_bool stop;
} answerer;

static void *serve(void *ctx)
{
    answerer *a = ctx;
    while (!atomic_load(&a->stop)) {
        gsp_net_event e;
        test_must(gsp_net_next(a->net, 20000000, &e));
        gsp_probe_server_take(a->server, &e);
        gsp_net_free(a->net, e.data);
        gsp_probe_server_step(a->server);
    }
    return NULL;
}

static gsp_net *open_net(const test_pool *p, unsigned i)
{
    gsp_net_gate_config c = {.gate.handshake = test_member(p, i), .gate.n_listen = 1};
    gsp_net *net = NULL;
    c.gate.listen[0] = test_loopback(0);
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

static void start(answerer *a, const test_pool *p, uint64_t bytes_max)
{
    a->net = open_net(p, 0);
    atomic_init(&a->stop, false);
    test_must(gsp_probe_server_open(a->net, bytes_max, &a->server));
    assert_int_equal(pthread_create(&a->thread, NULL, serve, a), 0);
}

static void end(answerer *a)
{
    atomic_store(&a->stop, true);
    pthread_join(a->thread, NULL);
    gsp_probe_server_close(&a->server);
    gsp_net_close(&a->net);
}

static gsp_probe_wish wish_for(const answerer *a, uint16_t port)
{
    return (gsp_probe_wish){.hosts = {test_loopback(gsp_net_port(a->net))},
                            .n_hosts = 1,
                            .port = port,
                            .seconds = 0.3,
                            .bytes_max = 16 << 20};
}

static void measures(void **state)
{
    (void)state;
    test_pool p;
    answerer a;
    gsp_probe_result r;
    gsp_gate_stats stats;
    test_pool_make(&p, 1);
    start(&a, &p, 0);
    gsp_net *net = open_net(&p, 1);
    gsp_probe_wish wish = wish_for(&a, gsp_net_port(net));
    test_must(gsp_probe_run(net, &wish, &r));
    assert_memory_equal(r.peer, p.member[0].public_key, 32);
    gsp_address me = test_loopback(gsp_net_port(net));
    assert_true(gsp_address_equal(&r.seen, &me));
    assert_true(r.rtt_s > 0 && r.rtt_s < 5);
    assert_true(r.clock_off_s > -1 && r.clock_off_s < 1);
    assert_true(r.dialled && r.reachable);
    assert_true(gsp_net_read_gate_stats(net, &stats));
    assert_int_equal(stats.accepted, 1); /* it really was us */
    assert_true(r.up_bytes > 0 && r.up_bytes <= 16 << 20 && r.up_bytes_per_s > 0);
    assert_true(r.down_bytes > 0 && r.down_bytes <= 17 << 20 && r.down_bytes_per_s > 0);
    gsp_net_close(&net);

    net = open_net(&p, 2); /* a port where nobody listens */
    wish.port = 1;
    test_must(gsp_probe_run(net, &wish, &r));
    assert_true(r.dialled && !r.reachable);
    assert_non_null(strstr(r.why, "refused"));
    gsp_net_close(&net);
    end(&a);
}

static void limits_hold(void **state)
{
    (void)state;
    test_pool p;
    answerer a;
    gsp_probe_result r;
    test_pool_make(&p, 1);
    start(&a, &p, 1 << 18); /* less than anybody will ask for */
    gsp_net *net = open_net(&p, 1);
    gsp_probe_wish wish = wish_for(&a, 0);
    test_must(gsp_probe_run(net, &wish, &r));
    assert_false(r.dialled);
    assert_int_equal(r.up_bytes + r.down_bytes, 0); /* it was told, and does not try */
    assert_true(r.down_bytes_per_s <= 0);
    gsp_net_close(&net);
    end(&a);
}

static void nobody_there(void **state)
{
    (void)state;
    test_pool p, q;
    answerer a;
    gsp_probe_result r;
    test_pool_make(&p, 1);
    test_pool_make(&q, 1);
    gsp_net *net = open_net(&p, 1);
    gsp_probe_wish wish = {.hosts = {test_loopback(1)}, .n_hosts = 1, .patience_s = 1};
    assert_int_equal(gsp_probe_run(net, &wish, &r), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "127.0.0.1:1"));
    wish.n_hosts = 0;
    assert_int_equal(gsp_probe_run(net, &wish, &r), ATOM_E_USAGE);
    gsp_net_close(&net);
    q.psk[0] ^= 1; /* another ticket */
    start(&a, &p, 0);
    net = open_net(&q, 1);
    wish = wish_for(&a, 0);
    wish.patience_s = 2;
    assert_int_equal(gsp_probe_run(net, &wish, &r), ATOM_E_RUNTIME);
    gsp_net_close(&net);
    end(&a);
}

/* Answers as a member that would like to rule the terminal of whoever asks. */
static void *serve_rudely(void *ctx)
{
    answerer *a = ctx;
    uint8_t out[PROBE_MESSAGE_BYTES_MAX];
    while (!atomic_load(&a->stop)) {
        gsp_net_event e;
        atom_reader r;
        test_must(gsp_net_next(a->net, 20000000, &e));
        probe_kind kind = probe_read(&e, &r);
        atom_writer w = probe_write(out, kind == PROBE_ASK ? PROBE_HERE : PROBE_DIALLED);
        if (kind == PROBE_ASK) {
            for (unsigned i = 0; i < 8 + 8 + 16 + 2 + 8; i++)
                atom_write_uint(&w, 0, 1); /* no bytes for rates either */
        } else {
            char text[GSP_PROBE_WHY_BYTES];
            memset(text, '\x1b', sizeof text); /* not even an end */
            memcpy(text, "a\x1b[2J\x07\xc3\x7f z", 10);
            atom_write_uint(&w, 0, 1);
            atom_write_bytes(&w, text, sizeof text);
        }
        if (kind == PROBE_ASK || kind == PROBE_DIAL)
            assert_int_equal(
                gsp_net_send(a->net, e.key, GSP_NET_CONTROL, out, (size_t)(w.at - out), NULL, 0),
                GSP_NET_SENT);
        gsp_net_free(a->net, e.data);
    }
    return NULL;
}

/* Why a dial back failed is said by the peer and shown to a user. */
static void no_terminal_obeys_a_peer(void **state)
{
    (void)state;
    test_pool p;
    answerer a = {0};
    gsp_probe_result r;
    test_pool_make(&p, 1);
    a.net = open_net(&p, 0);
    atomic_init(&a.stop, false);
    assert_int_equal(pthread_create(&a.thread, NULL, serve_rudely, &a), 0);
    gsp_net *net = open_net(&p, 1);
    const gsp_probe_wish wish = wish_for(&a, 1);
    test_must(gsp_probe_run(net, &wish, &r));
    assert_true(r.dialled && !r.reachable);
    assert_memory_equal(r.why, "a?[2J??? z", 10);
    assert_int_equal(strlen(r.why), sizeof r.why - 1);
    assert_int_equal(strspn(r.why + 10, "?"), sizeof r.why - 11);
    gsp_net_close(&net);
    end(&a);
}

/* Whatever a member sends, the answering side stays up. */
static void garbage_is_survived(void **state)
{
    (void)state;
    test_pool p;
    gsp_probe_server *server = NULL;
    uint8_t data[64] = {GSP_PROBE_MARK, PROBE_VERSION};
    test_pool_make(&p, 1);
    gsp_net *net = open_net(&p, 0);
    test_must(gsp_probe_server_open(net, 1000, &server));
    gsp_net_event e = {.kind = GSP_NET_UP, .data = data};
    e.address = test_loopback(1);
    for (unsigned i = 0; i < 3 * GSP_PROBE_ASKERS_MAX; i++) {
        e.kind = GSP_NET_UP;
        e.key[0] = (uint8_t)i;
        gsp_probe_server_take(server, &e);
        e.kind = GSP_NET_MESSAGE;
        for (unsigned kind = 0; kind < 256; kind++)
            for (size_t bytes = 0; bytes < 20; bytes++) {
                data[2] = (uint8_t)kind;
                e.bytes = bytes;
                e.channel = bytes & 1;
                gsp_probe_server_take(server, &e);
            }
        gsp_probe_server_step(server);
    }
    gsp_probe_server_close(&server);
    gsp_net_close(&net);
}

/* ---- what is asked of a server by hand ---- */

typedef struct heard {
    gsp_net net; /* first */
    probe_kind last;
    uint64_t first_number;
    uint64_t bulk_bytes;
    uint32_t n[PROBE_KIND_N];
} heard;

static gsp_net_sent hear(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                         const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    heard *h = (heard *)net;
    gsp_net_event e = {
        .kind = GSP_NET_MESSAGE, .channel = channel, .data = (void *)head, .bytes = head_bytes};
    atom_reader r;
    (void)key, (void)body;
    h->last = probe_read(&e, &r);
    h->n[h->last]++;
    if (h->last == PROBE_DIALLED)
        h->first_number = atom_read_u8(&r);
    if (channel == GSP_NET_BULK)
        h->bulk_bytes += head_bytes + body_bytes;
    return GSP_NET_SENT;
}

static const gsp_net_ops HEARING = {.send = hear};

static void say(gsp_probe_server *s, gsp_net_event *e, probe_kind kind, uint64_t number)
{
    static uint8_t data[PROBE_PART_BYTES];
    atom_writer w = probe_write(data, kind);
    if (kind == PROBE_DIAL)
        atom_write_uint(&w, number, 2);
    else if (kind != PROBE_PART)
        atom_write_uint(&w, number, 8);
    e->kind = GSP_NET_MESSAGE;
    e->channel = kind == PROBE_PART ? GSP_NET_BULK : GSP_NET_CONTROL;
    e->data = data;
    e->bytes = kind == PROBE_PART ? (size_t)number : (size_t)(w.at - data);
    assert_true(gsp_probe_server_take(s, e));
    gsp_probe_server_step(s);
}

/* Listens at all addresses, of IPv6 too where there is any. */
static int listener(uint16_t *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    socklen_t bytes = sizeof at;
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    } else {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&v4, sizeof v4), 0);
    }
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    *port = ntohs(at.sin6_port); /* at the same place in both forms */
    return fd;
}

static unsigned came(int fd)
{
    unsigned n = 0;
    usleep(20000);
    for (int c; (c = accept(fd, NULL, NULL)) >= 0; n++)
        close(c);
    return n;
}

/* Who comes through a relay has no address here: nothing of this host is dialled for it. */
static void nobody_is_scanned(void **state)
{
    (void)state;
    heard h = {.net.ops = &HEARING};
    gsp_probe_server *s = NULL;
    gsp_net_event relayed = {.key = {1}}, direct = {.key = {2}, .address = test_loopback(7)};
    uint16_t port;
    int fd = listener(&port);
    test_must(gsp_probe_server_open(&h.net, 0, &s));
    relayed.kind = direct.kind = GSP_NET_UP;
    assert_false(gsp_probe_server_take(s, &relayed));
    assert_false(gsp_probe_server_take(s, &direct));
    say(s, &relayed, PROBE_DIAL, port);
    assert_int_equal(came(fd), 0);
    gsp_probe_server_step(s);
    assert_int_equal(h.n[PROBE_DIALLED], 1);
    assert_int_equal(h.first_number, 0);
    say(s, &direct, PROBE_DIAL, port); /* its link came from there */
    assert_int_equal(came(fd), 1);
    gsp_probe_server_close(&s);
    close(fd);
}

/* Dials of a key are counted over all its links, those of guests over all keys of an address. */
static void dials_are_few(void **state)
{
    (void)state;
    heard h = {.net.ops = &HEARING};
    gsp_probe_server *s = NULL;
    uint16_t port;
    int fd = listener(&port);
    test_must(gsp_probe_server_open(&h.net, 0, &s));
    for (int guest = 0; guest < 2; guest++) {
        unsigned n = 0;
        for (unsigned i = 0; i < 20; i++) {
            gsp_net_event e = {.key = {3, guest ? (uint8_t)i : 0}, .guest = guest};
            e.address = test_loopback(7);
            e.kind = GSP_NET_UP;
            assert_false(gsp_probe_server_take(s, &e));
            say(s, &e, PROBE_DIAL, port);
            n += came(fd);
            gsp_probe_server_step(s);
            e.kind = GSP_NET_DOWN;
            assert_false(gsp_probe_server_take(s, &e));
        }
        assert_in_range(n, 4, 8); /* a minute may have ended meanwhile */
    }
    gsp_probe_server_close(&s);
    close(fd);
}

/* A day's bytes are a key's, whatever links it comes with; a guest has none; whoever goes on sending
 * is named. */
static void bytes_are_of_the_key(void **state)
{
    (void)state;
    heard h = {.net.ops = &HEARING};
    gsp_probe_server *s = NULL;
    gsp_net_event e = {.key = {1}, .address = test_loopback(7)},
                  guest = {.key = {2}, .guest = true};
    uint8_t key[GSP_NET_KEY_BYTES];
    test_must(gsp_probe_server_open(&h.net, 1 << 20, &s));
    for (int i = 0; i < 20; i++) {
        e.kind = GSP_NET_UP;
        assert_false(gsp_probe_server_take(s, &e));
        say(s, &e, PROBE_SEND, 1 << 18);
        e.kind = GSP_NET_DOWN;
        assert_false(gsp_probe_server_take(s, &e));
    }
    assert_int_equal(h.bulk_bytes, 1 << 20);
    assert_int_equal(h.n[PROBE_NO], 16);
    say(s, &guest, PROBE_SEND, 1000);
    assert_int_equal(h.n[PROBE_NO], 17);
    for (int i = 0; i < 256; i++)
        say(s, &e, PROBE_PART, 1 << 18);
    assert_false(gsp_probe_server_greedy(s, key)); /* what was on its way */
    say(s, &e, PROBE_PART, 1 << 18);
    assert_true(gsp_probe_server_greedy(s, key));
    assert_memory_equal(key, e.key, sizeof key);
    assert_false(gsp_probe_server_greedy(s, key));
    gsp_probe_server_give_bytes(s, false); /* the month's caps are near */
    gsp_net_event fresh = {.key = {5}, .address = test_loopback(7)};
    say(s, &fresh, PROBE_SEND, 1000);
    assert_int_equal(h.n[PROBE_NO], 18);
    gsp_probe_server_give_bytes(s, true);
    say(s, &fresh, PROBE_SEND, 1000);
    assert_int_equal(h.n[PROBE_NO], 18);
    gsp_probe_server_close(&s);
}

/* Those who only have a link take nobody's place, and questions end. */
static void a_crowd_that_asks(void **state)
{
    (void)state;
    heard h = {.net.ops = &HEARING};
    gsp_probe_server *s = NULL;
    test_must(gsp_probe_server_open(&h.net, 0, &s));
    for (unsigned i = 0; i < 60; i++) {
        gsp_net_event e = {.kind = GSP_NET_UP, .key = {(uint8_t)i}};
        assert_false(gsp_probe_server_take(s, &e));
    }
    gsp_net_event e = {.key = {59}, .address = test_loopback(7)};
    for (unsigned i = 0; i < 500; i++)
        say(s, &e, PROBE_ASK, 5);
    assert_in_range(h.n[PROBE_HERE], 120, 240);
    gsp_probe_server_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(no_terminal_obeys_a_peer),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(nobody_is_scanned),
        cmocka_unit_test(dials_are_few),
        cmocka_unit_test(bytes_are_of_the_key),
        cmocka_unit_test(a_crowd_that_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
