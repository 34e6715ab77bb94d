/*
 * A gate by itself, without a net on top: what it tells of a stream, which of those that have proven nothing it closes,
 * and that each stream that comes to nothing ends and gives its place back.
 */
#include "gossip/gate/gate.h"
#include "tests/lib/gossip_pool.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MS(n) ((n)*1000000ull)

static test_pool pool;

static gsp_gate *open_gate(unsigned i, gsp_gate_config c)
{
    gsp_gate *g = NULL;
    c.handshake = test_member(&pool, i);
    c.boot = 100 + i;
    c.n_listen = 1;
    c.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_gate_open(&c, &g));
    return g;
}

/* The next event, which is of this kind. */
static gsp_gate_event wait_for(gsp_gate *g, gsp_gate_kind kind)
{
    gsp_gate_event e = {0};
    const uint64_t until = atom_clock_ns() + MS(20000);
    while (!gsp_gate_next(g, &e)) {
        struct pollfd p = {.fd = gsp_gate_event_fd(g), .events = POLLIN};
        assert_true(atom_clock_ns() < until);
        (void)poll(&p, 1, 100);
    }
    assert_int_equal(e.kind, kind);
    return e;
}

static void dial(gsp_gate *from, const gsp_gate *to, unsigned whom, uint64_t tag)
{
    const gsp_hello hello = {.stream = 1, .n_streams = 3, .link = 70 + tag};
    const gsp_address at = test_loopback(gsp_gate_port(to));
    test_must(gsp_gate_dial(from, pool.member[whom].public_key, &at, &hello, tag));
}

static void streams_are(gsp_gate *g, uint32_t pending, uint64_t strangers)
{
    gsp_gate_stats s = {0};
    const uint64_t until = atom_clock_ns() + MS(20000);
    do {
        usleep(2000);
        gsp_gate_read_stats(g, &s);
        if (atom_clock_ns() >= until)
            fail_msg("%u pending, %llu strangers", s.pending, (unsigned long long)s.strangers);
    } while (s.pending != pending || s.strangers != strangers);
}

static void join(gsp_gate *g, uint64_t stream, int *ours)
{
    int end[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end), 0);
    gsp_gate_join(g, stream, end[0]);
    *ours = end[1];
}

static ssize_t read_within(int fd, void *data, size_t bytes, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0 ? recv(fd, data, bytes, 0) : -1;
}

/* Both sides hear of each other what the handshake said, also where the other accepts and which process it is. */
static void both_sides_are_told(void **state)
{
    (void)state;
    gsp_gate *a = open_gate(0, (gsp_gate_config){0}), *b = open_gate(1, (gsp_gate_config){0});
    const gsp_address here = test_loopback(1);
    int at_a, at_b;
    char text[8] = "";
    uint64_t moved = 0;
    dial(b, a, 0, 5);
    const gsp_gate_event ub = wait_for(b, GSP_GATE_UP), ua = wait_for(a, GSP_GATE_UP);
    assert_true(ub.dialled && ub.tag == 5 && !ua.dialled && ua.tag == 0);
    assert_true(ua.hello.link == 75 && ub.hello.link == 75 && ua.hello.n_streams == 3);
    assert_true(ua.peer_boot == 101 && ub.peer_boot == 100);
    assert_int_equal(ua.peer_port, gsp_gate_port(b));
    assert_int_equal(ub.peer_port, gsp_gate_port(a));
    assert_memory_equal(ua.key, pool.member[1].public_key, sizeof ua.key);
    assert_memory_equal(ub.key, pool.member[0].public_key, sizeof ub.key);
    assert_true(gsp_address_same_host(&ua.address, &here) && ua.role == GSP_MEMBER);
    join(a, ua.stream, &at_a);
    join(b, ub.stream, &at_b);
    assert_int_equal(send(at_b, "hello", 5, 0), 5);
    assert_int_equal(read_within(at_a, text, sizeof text, 20000), 5);
    assert_string_equal(text, "hello");
    for (int i = 0; moved != 5 && i < 10000; i++) { /* counted after they are passed on */
        assert_true(gsp_gate_moved(a, ua.stream, &moved));
        usleep(2000);
    }
    assert_true(moved == 5);
    close(at_b);
    const gsp_gate_event da = wait_for(a, GSP_GATE_DOWN);
    assert_true(da.stream == ua.stream && da.moved == 5);
    assert_int_equal(read_within(at_a, text, sizeof text, 20000), 0);
    (void)wait_for(b, GSP_GATE_DOWN);
    close(at_a);
    /* A port where nobody listens, and a host that is somebody else. */
    const gsp_address nowhere = test_loopback(1);
    const gsp_hello hello = {.n_streams = 3};
    test_must(gsp_gate_dial(b, NULL, &nowhere, &hello, 6));
    gsp_gate_event f = wait_for(b, GSP_GATE_FAILED);
    assert_true(f.tag == 6 && f.refusal == GSP_WELCOME && !f.proven);
    assert_non_null(strstr(f.why, "refused"));
    dial(b, a, 2, 7);
    f = wait_for(b, GSP_GATE_FAILED);
    assert_true(f.tag == 7 && f.refusal == GSP_REFUSED_KEY);
    gsp_gate_close(&a);
    gsp_gate_close(&b);
}

/* A stream that one side or nobody wants ends after a while, at both. */
static void what_is_not_begun_ends(void **state)
{
    (void)state;
    const gsp_gate_config quick = {.handshake_ns = MS(700)};
    gsp_gate *a = open_gate(0, quick), *b = open_gate(1, quick);
    int one;
    char byte;
    dial(b, a, 0, 1);
    const gsp_gate_event first = wait_for(b, GSP_GATE_UP);
    (void)wait_for(a, GSP_GATE_UP);
    dial(b, a, 0, 2);
    const gsp_gate_event second = wait_for(b, GSP_GATE_UP);
    (void)wait_for(a, GSP_GATE_UP);
    join(b, second.stream, &one); /* a does not */
    const uint64_t began = atom_clock_ns();
    for (int i = 0; i < 2; i++) {
        const gsp_gate_event d = wait_for(b, GSP_GATE_DOWN);
        assert_true(d.stream == first.stream || d.stream == second.stream);
        (void)wait_for(a, GSP_GATE_DOWN);
    }
    assert_true(atom_clock_ns() - began < MS(15000));
    assert_int_equal(read_within(one, &byte, 1, 20000), 0);
    close(one);
    gsp_gate_close(&a);
    gsp_gate_close(&b);
}

/* From 127.0.0.`host`. */
static int connect_raw(const gsp_gate *to, unsigned host)
{
    struct sockaddr_storage from, at;
    char text[32];
    snprintf(text, sizeof text, "127.0.0.%u:1", host);
    gsp_address own = test_address(text), there = test_loopback(gsp_gate_port(to));
    own.port = 0;
    socklen_t n = gsp_address_to_socket(&own, &from), m = gsp_address_to_socket(&there, &at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, n), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, m), 0);
    return fd;
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void the_unproven_compete_among_themselves(void **state)
{
    (void)state;
    gsp_gate *g = open_gate(0, (gsp_gate_config){.pending_max = 3, .handshake_ns = MS(60000)});
    gsp_gate *b = open_gate(1, (gsp_gate_config){0});
    int fd[8];
    unsigned closed = 0;
    for (uint64_t i = 1; i <= 5; i++) { /* who has proven itself is none of them */
        dial(b, g, 0, i);
        const gsp_gate_event theirs = wait_for(g, GSP_GATE_UP), ours = wait_for(b, GSP_GATE_UP);
        gsp_gate_end(b, ours.stream);
        gsp_gate_end(g, theirs.stream);
    }
    for (unsigned i = 0; i < 3; i++)
        fd[i] = connect_raw(g, 2 + i);
    streams_are(g, 3, 0);
    for (unsigned i = 3; i < 6; i++) {
        fd[i] = connect_raw(g, 2 + i);
        streams_are(g, 3, i - 2);
    }
    for (unsigned i = 0; i < 6; i++) {
        closed += is_closed(fd[i]);
        close(fd[i]);
    }
    assert_int_equal(closed, 3);
    gsp_gate_close(&g);
    gsp_gate_close(&b);
    /* One address takes places from itself alone, and none of them is safe. */
    g = open_gate(0, (gsp_gate_config){.pending_per_host = 2, .handshake_ns = MS(60000)});
    for (unsigned i = 0; i < 4; i++)
        fd[i] = connect_raw(g, 2 + i / 2);
    streams_are(g, 4, 0);
    static int more[24];
    for (unsigned i = 0; i < 24; i++) {
        more[i] = connect_raw(g, 2);
        streams_are(g, 4, 1 + i);
    }
    assert_true(is_closed(fd[0]) && is_closed(fd[1]));
    assert_false(is_closed(fd[2]) || is_closed(fd[3]));
    for (unsigned i = 0; i < 24; i++)
        close(more[i]);
    for (unsigned i = 0; i < 4; i++)
        close(fd[i]);
    gsp_gate_close(&g);
}

static bool place_is_taken(gsp_gate *b)
{
    const gsp_address nowhere = test_loopback(1);
    const gsp_hello hello = {.n_streams = 3};
    unsigned n = 0;
    while (gsp_gate_dial(b, NULL, &nowhere, &hello, 90) == ATOM_OK)
        n++;
    for (unsigned i = 0; i < n; i++)
        (void)wait_for(b, GSP_GATE_FAILED);
    return n < 2;
}

/* A number is of one stream, also when its place is another's; and there are so many places. */
static void numbers_and_places(void **state)
{
    (void)state;
    gsp_gate *a = open_gate(0, (gsp_gate_config){0});
    gsp_gate *b = open_gate(1, (gsp_gate_config){.streams_max = 2});
    const gsp_address at = test_loopback(gsp_gate_port(a));
    const gsp_hello hello = {.n_streams = 3};
    uint64_t moved, before = 0;
    for (uint64_t i = 1; i <= 6; i++) {
        dial(b, a, 0, i);
        const gsp_gate_event up = wait_for(b, GSP_GATE_UP), theirs = wait_for(a, GSP_GATE_UP);
        assert_true(up.tag == i && up.stream != before);
        if (before) {
            gsp_gate_end(b, before);
            assert_false(gsp_gate_moved(b, before, &moved));
            usleep(20000);
            assert_true(gsp_gate_moved(b, up.stream, &moved));
        }
        before = up.stream;
        gsp_gate_end(b, up.stream);
        assert_false(gsp_gate_moved(b, up.stream, &moved));
        gsp_gate_end(a, theirs.stream);
    }
    while (place_is_taken(b))
        usleep(1000);
    dial(b, a, 0, 7);
    dial(b, a, 0, 8);
    assert_int_equal(gsp_gate_dial(b, NULL, &at, &hello, 9), ATOM_E_RESOURCE);
    gsp_gate_event e;
    const uint64_t first = wait_for(b, GSP_GATE_UP).tag;
    assert_true(first + wait_for(b, GSP_GATE_UP).tag == 15);
    assert_false(gsp_gate_next(b, &e)); /* nothing was told of those that we ended */
    gsp_gate_close(&a);
    gsp_gate_close(&b);
}

/* The ends of sockets that come too late are closed. */
static void a_late_socket_is_closed(void **state)
{
    (void)state;
    gsp_gate *b = open_gate(1, (gsp_gate_config){.streams_max = 1});
    const gsp_hello hello = {.n_streams = 3};
    int ours, end[2];
    char byte;
    join(b, 12345, &ours); /* there is no such stream */
    assert_int_equal(read_within(ours, &byte, 1, 20000), 0);
    close(ours);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end), 0);
    test_must(gsp_gate_adopt(b, end[0], NULL, &hello, 1));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, end), 0);
    assert_int_equal(gsp_gate_adopt(b, end[0], NULL, &hello, 2), ATOM_E_RESOURCE);
    assert_int_equal(read_within(end[1], &byte, 1, 20000), 0);
    close(end[1]);
    gsp_gate_close(&b);
}

int main(void)
{
    test_pool_make(&pool, 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_are_told),
        cmocka_unit_test(what_is_not_begun_ends),
        cmocka_unit_test(the_unproven_compete_among_themselves),
        cmocka_unit_test(numbers_and_places),
        cmocka_unit_test(a_late_socket_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
