/* A disk that becomes read-only ends links, and not the process: nanomsg asserts that it can remove its files. */
#include "tests/lib/gossip_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_bool read_only;

/* Takes the place of the C library's, also for nanomsg. */
int unlink(const char *path)
{
    if (!read_only)
        return unlinkat(AT_FDCWD, path, 0);
    errno = EROFS;
    return -1;
}

static test_pool pool;

static gsp_net *open_member(unsigned i)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, i), .gate.n_listen = 1};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

static void turn_until(gsp_net *net, gsp_net *other, gsp_net_kind kind)
{
    gsp_net_event event = {0};
    for (unsigned i = 0; event.kind != kind; i++) {
        assert_true(i < 60000);
        if (other) {
            test_must(gsp_net_next(other, 1000000, &event));
            gsp_net_free(other, event.data);
        }
        test_must(gsp_net_next(net, 1000000, &event));
        gsp_net_free(net, event.data);
    }
}

static void a_link_ends(void **state)
{
    (void)state;
    gsp_net *a = open_member(0), *b = open_member(1);
    gsp_address at = test_loopback(gsp_net_port(b));
    test_must(gsp_net_dial(a, b->key, &at, 1));
    turn_until(a, b, GSP_NET_UP);
    gsp_net_close(&b);
    read_only = true;
    turn_until(a, NULL, GSP_NET_DOWN);
    usleep(100000); /* nanomsg's thread does it */
    read_only = false;
    gsp_net_close(&a);
}

static void a_member_ends(void **state)
{
    (void)state;
    gsp_net *a = open_member(0), *b = open_member(1);
    gsp_address at = test_loopback(gsp_net_port(b));
    test_must(gsp_net_dial(a, b->key, &at, 1));
    turn_until(a, b, GSP_NET_UP);
    read_only = true;
    gsp_net_close(&a);
    gsp_net_close(&b);
    usleep(100000);
    read_only = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_ends),
        cmocka_unit_test(a_member_ends),
    };
    test_pool_make(&pool, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
