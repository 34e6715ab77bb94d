/*
 * A kernel that has no memory or no descriptors for a connection is asked again after a pause, not at once; and
 * of few descriptors strangers get few.
 */
#include "tests/lib/gossip_pool.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_int refused_with; /* errno; 0: the kernel is asked */
static atomic_uint asked;

/* Takes the place of the C library's. */
int accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags)
{
    int error = refused_with;
    asked++;
    if (!error)
        return (int)syscall(SYS_accept4, fd, from, bytes, flags);
    errno = error;
    return -1;
}

static test_pool pool;

static void pauses(int error)
{
    enum { RATE = 400, AT_ONCE = 16 };
    gsp_net *net = NULL;
    gsp_gate_stats stats = {0};
    struct sockaddr_storage to;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, 0),
                             .gate.n_listen = 1,
                             .gate.accepts_per_second = RATE};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &net));
    gsp_address at = test_loopback(gsp_net_port(net));
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    refused_with = error;
    asked = 0;
    uint64_t began = atom_clock_ns();
    assert_int_equal(connect(fd, (struct sockaddr *)&to, bytes), 0);
    while (asked < 3) /* it does not give up */
        usleep(1000);
    usleep(100000);
    unsigned n = asked;
    double seconds = 1e-9 * (double)(atom_clock_ns() - began);
    print_message("%s: asked %u times in %.2f s\n", strerror(error), n, seconds);
    assert_true(n <= AT_ONCE + RATE * seconds);
    refused_with = 0;
    while (stats.accepted == 0) {
        assert_true(gsp_net_read_gate_stats(net, &stats));
        usleep(1000);
    }
    assert_int_equal(stats.accepted, 1);
    close(fd);
    gsp_net_close(&net);
}

static void without_descriptors(void **state)
{
    (void)state;
    pauses(EMFILE);
    pauses(ENFILE);
}

static void without_memory(void **state)
{
    (void)state;
    pauses(ENOMEM);
    pauses(ENOBUFS);
}

static void forbidden(void **state)
{
    (void)state;
    pauses(EPERM); /* by a firewall */
}

/* Has the other side hung up? */
static bool is_over(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

static void strangers_get_an_eighth(void **state)
{
    enum { LIMIT = 96, COME = 20, STAY = LIMIT / 8 };
    gsp_net *net = NULL;
    gsp_gate_stats stats = {0};
    struct sockaddr_storage to;
    struct rlimit before, few;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, 0),
                             .gate.n_listen = 1,
                             .gate.pending_max = 4 * COME,
                             .gate.pending_per_host = 4 * COME,
                             .gate.handshake_ns = (uint64_t)60e9,
                             .gate.accepts_per_second = 1000};
    int fd[COME], over = 0;
    (void)state;
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(
        gsp_net_open_gate(&c, &net)); /* takes as many as it can get, so it is limited afterwards */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = LIMIT;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    gsp_address at = test_loopback(gsp_net_port(net));
    socklen_t bytes = gsp_address_to_socket(&at, &to);
    for (int i = 0; i < COME; i++) { /* they say nothing */
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd[i] >= 0);
        assert_int_equal(connect(fd[i], (struct sockaddr *)&to, bytes), 0);
    }
    for (int looks = 0; looks < 2000 && (stats.accepted < COME || over < COME - STAY); looks++) {
        assert_true(gsp_net_read_gate_stats(net, &stats));
        usleep(10000);
        over = 0;
        for (int i = 0; i < COME; i++)
            over += is_over(fd[i]);
    }
    usleep(100000);
    over = 0;
    for (int i = 0; i < COME; i++) {
        over += is_over(fd[i]);
        close(fd[i]);
    }
    assert_int_equal(over, COME - STAY);
    gsp_net_close(&net);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_descriptors),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(forbidden),
        cmocka_unit_test(strangers_get_an_eighth),
    };
    test_pool_make(&pool, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
