/* Probes over the gate on loopback: what is asked is measured; what is too much is refused. */
#include "gossip/net/probe_inner.h"
#include "tests/lib/gossip_pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
    start(&a, &p, 1 << 20); /* less than anybody will ask for */
    gsp_net *net = open_net(&p, 1);
    gsp_probe_wish wish = wish_for(&a, 0);
    test_must(gsp_probe_run(net, &wish, &r));
    assert_false(r.dialled);
    assert_int_equal(r.down_bytes, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(garbage_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
