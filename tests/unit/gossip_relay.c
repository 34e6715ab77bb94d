/* What a relay gives: to whom, how much, for how long; and that two members lose their link when it
 * ends what it relays, and have it again when it does so no more. */
#include "gossip/net/net_inner.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS(n) ((n)*1000000ull)
static test_pool pool;

/* ---- places ---- */

static bool tube(net_tubes *t, uint8_t asker, uint8_t target, uint64_t moved_ns)
{
    uint8_t a[GSP_NET_KEY_BYTES] = {asker}, b[GSP_NET_KEY_BYTES] = {target};
    net_tube *x = net_tubes_place(t, a, b);
    if (x)
        *x = (net_tube){.used = true, .asker = {asker}, .target = {target}, .moved_ns = moved_ns};
    return x;
}

static uint32_t held(const net_tubes *t, uint8_t asker)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++)
        n += t->tube[i].used && t->tube[i].asker[0] == asker;
    return n;
}

static void tubes_are_shared_out(void **state)
{
    (void)state;
    net_tubes *t = test_calloc(1, sizeof *t);
    uint32_t n = 0;
    for (int i = 0; i < 200; i++)
        n += tube(t, 1, 2, 50);
    assert_int_equal(n, NET_TUBES_PER_PAIR);
    for (int i = 0; i < 200; i++)
        n += tube(t, 1, (uint8_t)(3 + i / 10), 50);
    assert_int_equal(n, NET_TUBES_PER_MEMBER);
    /* Two more as greedy fill it; whoever asks for little still gets a tube, of theirs. */
    for (uint8_t who = 2; who < 4; who++)
        for (int i = 0; i < 200; i++)
            n += tube(t, who, (uint8_t)(100 + i / 10), who == 3 ? 40 : 60);
    assert_int_equal(n, NET_TUBES_MAX);
    assert_true(tube(t, 9, 1, 70));
    assert_int_equal(held(t, 3), NET_TUBES_PER_MEMBER - 1); /* the most idle of equals */
    for (int i = 0; i < 3; i++)
        assert_true(tube(t, 9, 2, 70));
    assert_int_equal(held(t, 9), 4);
    assert_int_equal(held(t, 1) + held(t, 2) + held(t, 3), NET_TUBES_MAX - 4);
    assert_false(tube(t, 2, 1, 80) && held(t, 2) > NET_TUBES_PER_MEMBER);
    test_free(t);
}

/* ---- over a real relay ---- */

static gsp_net *open_at(unsigned i, bool accepts)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = test_member(&pool, i), .gate.n_listen = accepts};
    if (accepts)
        c.gate.listen[0] = test_loopback(0);
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

/* a and b see their link come up, or go; the others' turns are taken meanwhile. */
static void until(gsp_net *net[3], gsp_net_kind kind)
{
    uint32_t seen = 0;
    for (unsigned i = 0; seen < 2; i++) {
        assert_true(i < 60000);
        for (int k = 0; k < 3; k++) {
            gsp_net_event event;
            test_must(gsp_net_next(net[k], MS(1), &event));
            bool of_pair = k < 2 && memcmp(event.key, net[1 - k]->key, 32) == 0;
            seen += of_pair && event.kind == kind;
            if (event.kind == GSP_NET_DOWN)
                assert_true(of_pair); /* the links to the relay stay */
            gsp_net_free(net[k], event.data);
        }
    }
}

static uint32_t tubes_of(const gsp_net *net)
{
    const net_endpoint *e = (const net_endpoint *)net;
    uint32_t n = 0;
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++)
        n += e->tubes.tube[i].used;
    return n;
}

static void tubes_are_counted_and_end(void **state)
{
    (void)state;
    gsp_net *net[3] = {open_at(0, false), open_at(1, false), open_at(2, true)}, *r = net[2];
    gsp_address at = test_loopback(gsp_net_port(r)), nowhere = test_loopback(1);
    test_must(gsp_net_dial(net[0], r->key, &at, 1));
    test_must(gsp_net_dial(net[1], r->key, &at, 1));
    test_must(gsp_net_dial(net[0], net[1]->key, &nowhere, 1));
    until(net, GSP_NET_UP);
    assert_int_equal(tubes_of(r), 1 + STREAMS_DEFAULT);
    gsp_net_serve_relays(r, false);
    until(net, GSP_NET_DOWN);
    assert_int_equal(tubes_of(r), 0);
    gsp_net_serve_relays(r, true);
    until(net, GSP_NET_UP);
    assert_int_equal(tubes_of(r), 1 + STREAMS_DEFAULT);
    /* Nothing passes for long. */
    uint64_t now = atom_clock_ns() + NET_TUBE_LOOK_NS;
    net_tubes_tick((net_endpoint *)r, now); /* what made the link has passed */
    assert_int_equal(tubes_of(r), 1 + STREAMS_DEFAULT);
    net_tubes_tick((net_endpoint *)r, now + NET_TUBE_IDLE_NS + NET_TUBE_LOOK_NS);
    assert_int_equal(tubes_of(r), 0);
    until(net, GSP_NET_DOWN);
    for (int k = 0; k < 3; k++)
        gsp_net_close(&net[k]);
}

/* An hour's bytes are one member's, however many tubes it has. */
static void an_hour_has_so_many_bytes(void **state)
{
    (void)state;
    gsp_net *net[3] = {open_at(0, false), open_at(1, false), open_at(2, true)}, *r = net[2];
    gsp_address at = test_loopback(gsp_net_port(r)), nowhere = test_loopback(1);
    test_must(gsp_net_dial(net[0], r->key, &at, 1));
    test_must(gsp_net_dial(net[1], r->key, &at, 1));
    test_must(gsp_net_dial(net[0], net[1]->key, &nowhere, 1));
    until(net, GSP_NET_UP);
    net_tubes *t = &((net_endpoint *)r)->tubes;
    for (uint32_t i = 0; i < NET_TUBES_MAX; i++)
        if (t->tube[i].used)
            t->tube[i].bytes -= NET_TUBE_BYTES_EACH + 1; /* as if they had moved since */
    t->look_ns = 0;
    until(net, GSP_NET_DOWN);
    assert_int_equal(tubes_of(r), 0);
    for (int k = 0; k < 3; k++)
        gsp_net_close(&net[k]);
}

static uint64_t used_by(gsp_net *relay, const gsp_net *asker)
{
    gsp_tally *t = &((net_endpoint *)relay)->tubes.bytes;
    return NET_TUBE_BYTES_EACH - gsp_tally_left(t, asker->key, atom_clock_ns());
}

/* What passes between two looks is counted when the tube ends, whoever ends it; and whose hour is
 * used up gets no other tube. */
static void short_tubes_are_counted(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    gsp_net *net[3] = {open_at(0, false), open_at(1, false), open_at(2, true)}, *r = net[2];
    gsp_address at = test_loopback(gsp_net_port(r)), nowhere = test_loopback(1);
    net_tubes *t = &((net_endpoint *)r)->tubes;
    char *body = test_calloc(1, BYTES);
    bool came = false;
    test_must(gsp_net_dial(net[0], r->key, &at, 1));
    test_must(gsp_net_dial(net[1], r->key, &at, 1));
    test_must(gsp_net_dial(net[0], net[1]->key, &nowhere, 1));
    until(net, GSP_NET_UP);
    t->look_ns = UINT64_MAX; /* nobody looks from now on */
    uint64_t before = used_by(r, net[0]);
    assert_true(before < BYTES);
    assert_int_equal(gsp_net_send(net[0], net[1]->key, GSP_NET_BULK, NULL, 0, body, BYTES),
                     GSP_NET_SENT);
    for (unsigned i = 0; !came; i++) {
        assert_true(i < 60000);
        for (int k = 0; k < 3; k++) {
            gsp_net_event event;
            test_must(gsp_net_next(net[k], MS(1), &event));
            came |= k == 1 && event.kind == GSP_NET_MESSAGE && event.bytes == BYTES;
            gsp_net_free(net[k], event.data);
        }
    }
    gsp_net_close(&net[1]);
    while (tubes_of(r)) {
        gsp_net_event event;
        test_must(gsp_net_next(r, MS(1), &event));
        gsp_net_free(r, event.data);
    }
    assert_true(used_by(r, net[0]) >= before + BYTES);
    uint64_t now = atom_clock_ns(), left = gsp_tally_left(&t->bytes, net[0]->key, now);
    assert_true(gsp_tally_take(&t->bytes, net[0]->key, left, now));
    assert_false(net_tubes_add((net_endpoint *)r, net[0]->key, net[2]->key, 1, 2, now));
    gsp_net_close(&net[0]);
    gsp_net_close(&net[2]);
    test_free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tubes_are_shared_out),
        cmocka_unit_test(tubes_are_counted_and_end),
        cmocka_unit_test(an_hour_has_so_many_bytes),
        cmocka_unit_test(short_tubes_are_counted),
    };
    test_pool_make(&pool, 9);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
