/* A dial that must not be lost: to whoever answers at an address that hangs, closes at any stage of
 * the way in, or is dead. A proxy between the dialler and a real member cuts connections after a
 * chosen number of bytes; every dial ends in UP or is refused with a reason, and goes on. */
#include "gossip/gate/gate_record.h"
#include "gossip/net/net_inner.h"
#include "tests/lib/gossip_pool.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MS(n) ((n)*1000000ull)

static const uint8_t anybody[GSP_NET_KEY_BYTES];
static test_pool pool;

static gsp_net *open_member(unsigned i, uint64_t handshake_ns)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, i),
                             .gate.n_listen = 1,
                             .gate.handshake_ns = handshake_ns};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

static int listen_raw(uint16_t *port)
{
    struct sockaddr_storage at;
    gsp_address any = test_loopback(0), bound;
    socklen_t bytes = gsp_address_to_socket(&any, &at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 16), 0);
    bytes = sizeof at;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    assert_true(gsp_address_from_socket(&at, &bound));
    *port = bound.port;
    return fd;
}

/* ---- the proxy ---- */

enum { PAIRS_MAX = 32, NEVER = 1 << 30 };

typedef struct tube {
    int out, in; /* to the dialler, to the member; -1: none */
    size_t left; /* bytes of the member until the cut */
} tube;

typedef struct proxy {
    int listener;
    uint16_t port, member_port;
    const size_t *cut; /* of the first n_cuts connections; NEVER after them */
    unsigned n_cuts;
    atomic_uint n_accepted;
    atomic_bool stop;
    pthread_t thread;
    tube tube[PAIRS_MAX];
} proxy;

static void tube_end(tube *t)
{
    close(t->out);
    close(t->in);
    *t = (tube){-1, -1, 0};
}

static void proxy_accept(proxy *p)
{
    struct sockaddr_storage to;
    gsp_address at = test_loopback(p->member_port);
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    unsigned i = 0, n = p->n_accepted++;
    while (i < PAIRS_MAX && p->tube[i].out >= 0)
        i++;
    int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0 && i < PAIRS_MAX);
    p->tube[i] = (tube){fd, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                        n < p->n_cuts ? p->cut[n] : NEVER};
    if (connect(p->tube[i].in, (struct sockaddr *)&to, bytes) != 0 || p->tube[i].left == 0)
        tube_end(&p->tube[i]);
}

/* Passes what is there; false: over. */
static bool tube_pass(int from, int to, size_t *left)
{
    uint8_t data[4096];
    size_t room = left && *left < sizeof data ? *left : sizeof data;
    ssize_t n = recv(from, data, room, 0);
    if (n <= 0 || send(to, data, (size_t)n, MSG_NOSIGNAL) != n)
        return false;
    if (left && *left != NEVER)
        *left -= (size_t)n;
    return !left || *left > 0;
}

static void *proxy_run(void *arg)
{
    proxy *p = arg;
    while (!p->stop) {
        struct pollfd f[1 + 2 * PAIRS_MAX] = {{.fd = p->listener, .events = POLLIN}};
        for (unsigned i = 0; i < PAIRS_MAX; i++) {
            f[1 + 2 * i] = (struct pollfd){.fd = p->tube[i].out, .events = POLLIN};
            f[2 + 2 * i] = (struct pollfd){.fd = p->tube[i].in, .events = POLLIN};
        }
        poll(f, 1 + 2 * PAIRS_MAX, 20);
        for (unsigned i = 0; i < PAIRS_MAX; i++) {
            tube *t = &p->tube[i];
            if (t->out >= 0 && ((f[1 + 2 * i].revents && !tube_pass(t->out, t->in, NULL)) ||
                                (f[2 + 2 * i].revents && !tube_pass(t->in, t->out, &t->left))))
                tube_end(t);
        }
        if (f[0].revents)
            proxy_accept(p);
    }
    return NULL;
}

static void proxy_begin(proxy *p, uint16_t member_port, const size_t *cut, unsigned n_cuts)
{
    *p = (proxy){.member_port = member_port, .cut = cut, .n_cuts = n_cuts};
    p->listener = listen_raw(&p->port);
    for (unsigned i = 0; i < PAIRS_MAX; i++)
        p->tube[i] = (tube){-1, -1, 0};
    assert_int_equal(pthread_create(&p->thread, NULL, proxy_run, p), 0);
}

static void proxy_end(proxy *p)
{
    p->stop = true;
    pthread_join(p->thread, NULL);
    close(p->listener);
    for (unsigned i = 0; i < PAIRS_MAX; i++)
        if (p->tube[i].out >= 0)
            tube_end(&p->tube[i]);
}

/* Turns both until `a` is told this kind. */
static bool until(gsp_net *a, gsp_net *b, gsp_net_kind kind, gsp_net_event *event)
{
    gsp_net_event other;
    for (uint64_t end = atom_clock_ns() + MS(40000); atom_clock_ns() < end;) {
        if (b) {
            test_must(gsp_net_next(b, MS(1), &other));
            gsp_net_free(b, other.data);
        }
        test_must(gsp_net_next(a, MS(2), event));
        if (event->kind == kind)
            return true;
        gsp_net_free(a, event->data);
    }
    return false;
}

enum {
    SHAKEN = GSP_SEALED_FIRST_BYTES + GSP_SEALED_PROOF_BYTES + GSP_SEALED_VERDICT_BYTES,
    READY = GSP_RECORD_HEAD_BYTES + 1 + GSP_RECORD_TAG_BYTES,
};
static const size_t stages[] = {
    0,                          /* accepted and closed */
    GSP_SEALED_FIRST_BYTES + 7, /* in the proof of message 2 */
    SHAKEN - 1,                 /* before the verdict is whole */
    SHAKEN,                     /* authenticated, and gone */
    NEVER,
    SHAKEN + READY + 5, /* the first bulk stream, in nanomsg's greeting */
    NEVER,
    NEVER,
    SHAKEN, /* the second one */
};

static void whoever_answers_is_dialled_until_up(void **state)
{
    (void)state;
    proxy p;
    gsp_net_event event;
    gsp_net *a = open_member(0, MS(1000)), *b = open_member(1, MS(1000));
    proxy_begin(&p, gsp_net_port(b), stages, sizeof stages / sizeof *stages);
    gsp_address at = test_loopback(p.port);
    test_must(gsp_net_dial(a, anybody, &at, 1));
    assert_true(until(a, b, GSP_NET_UP, &event));
    assert_memory_equal(event.key, b->key, sizeof event.key);
    assert_true(p.n_accepted > sizeof stages / sizeof *stages);
    gsp_net_close(&a);
    gsp_net_close(&b);
    proxy_end(&p);
}

/* The first time that it is authenticated and then closed is told, with a reason. */
static void a_member_that_closes_is_told(void **state)
{
    (void)state;
    proxy p;
    gsp_net_event event;
    static const size_t cuts[] = {SHAKEN, SHAKEN};
    gsp_net *a = open_member(0, MS(1000)), *b = open_member(1, MS(1000));
    proxy_begin(&p, gsp_net_port(b), cuts, 2);
    gsp_address at = test_loopback(p.port);
    test_must(gsp_net_dial(a, anybody, &at, 1));
    assert_true(until(a, b, GSP_NET_REFUSED, &event));
    assert_true(event.why[0]);
    assert_true(until(a, b, GSP_NET_UP, &event));
    gsp_net_close(&a);
    gsp_net_close(&b);
    proxy_end(&p);
}

static void silence_is_told_and_tried_again(void **state)
{
    (void)state;
    uint16_t port;
    gsp_net_event event;
    int fd = listen_raw(&port), first;
    gsp_net *a = open_member(0, MS(200));
    gsp_address at = test_loopback(port);
    test_must(gsp_net_dial(a, anybody, &at, 1));
    assert_true(until(a, NULL, GSP_NET_REFUSED, &event));
    assert_string_equal(event.why, "the handshake took too long");
    first = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(first >= 0);
    struct pollfd again = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < 2000 && poll(&again, 1, 0) == 0; i++)
        test_must(gsp_net_next(a, MS(5), &event));
    assert_int_equal(poll(&again, 1, 0), 1); /* a second connection */
    close(first);
    close(fd);
    gsp_net_close(&a);
}

static void the_first_host_is_dead(void **state)
{
    (void)state;
    uint16_t port;
    gsp_net_event event;
    close(listen_raw(&port)); /* refuses */
    gsp_net *a = open_member(0, MS(500)), *b = open_member(1, MS(500));
    gsp_address at[2] = {test_loopback(port), test_loopback(gsp_net_port(b))};
    test_must(gsp_net_dial(a, anybody, at, 2));
    assert_true(until(a, b, GSP_NET_UP, &event));
    gsp_net_close(&a);
    a = open_member(2, MS(500)); /* and as wishes of their own */
    test_must(gsp_net_dial(a, anybody, &at[0], 1));
    test_must(gsp_net_dial(a, anybody, &at[1], 1));
    assert_true(until(a, b, GSP_NET_UP, &event));
    gsp_net_close(&a);
    gsp_net_close(&b);
}

/* The same wish twice is one wish. */
static void wishes_do_not_pile_up(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listen_raw(&port);
    gsp_net *a = open_member(0, MS(500));
    gsp_address at = test_loopback(port);
    for (int i = 0; i < 2 * GSP_NET_PEERS_MAX; i++)
        test_must(gsp_net_dial(a, anybody, &at, 1));
    gsp_net_close(&a);
    close(fd);
}

/* ---- what the gate tells, in the order in which it came to be ---- */

static gsp_gate *open_gate(unsigned i, bool listens)
{
    gsp_gate *gate = NULL;
    gsp_gate_config c = {.handshake = test_member(&pool, i), .n_listen = listens};
    c.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_gate_open(&c, &gate));
    return gate;
}

static uint64_t opened(gsp_gate *gate)
{
    gsp_gate_stats stats;
    gsp_gate_read_stats(gate, &stats);
    return stats.streams_opened;
}

static void dial_one(gsp_gate *from, gsp_gate *to, uint64_t tag)
{
    gsp_gate_event event;
    gsp_address at = test_loopback(gsp_gate_port(to));
    gsp_hello hello = {.n_streams = 3, .link = tag};
    uint64_t before = opened(to);
    test_must(gsp_gate_dial(from, NULL, &at, &hello, tag));
    for (int i = 0; i < 20000 && !gsp_gate_next(from, &event); i++)
        usleep(1000);
    assert_int_equal(event.kind, GSP_GATE_UP);
    for (int i = 0; i < 20000 && opened(to) == before; i++)
        usleep(1000);
    usleep(2000); /* counted just before it is told */
}

/* A control stream comes before the bulk streams of its link: who looks late must see that. */
static void streams_are_told_in_order(void **state)
{
    (void)state;
    gsp_gate_event event;
    gsp_gate *from = open_gate(0, false), *to = open_gate(1, true);
    for (uint64_t k = 0; k < 4; k++) { /* slots are taken and freed, the search begins anywhere */
        dial_one(from, to, 10 + k);
        assert_true(gsp_gate_next(to, &event));
        assert_int_equal(event.hello.link, 10 + k);
        gsp_gate_end(to, event.stream);
        usleep(20000);
        dial_one(from, to, 100 + k);
        dial_one(from, to, 200 + k);
        for (int i = 0; i < 2; i++) {
            while (!gsp_gate_next(to, &event) || event.kind != GSP_GATE_UP)
                usleep(1000);
            assert_int_equal(event.hello.link, i == 0 ? 100 + k : 200 + k);
        }
    }
    gsp_gate_close(&from);
    gsp_gate_close(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_answers_is_dialled_until_up),
        cmocka_unit_test(a_member_that_closes_is_told),
        cmocka_unit_test(silence_is_told_and_tried_again),
        cmocka_unit_test(the_first_host_is_dead),
        cmocka_unit_test(wishes_do_not_pile_up),
        cmocka_unit_test(streams_are_told_in_order),
    };
    test_pool_make(&pool, 31);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
