/*
 * What the real transport says of whoever knows only the key before the newest, and what it lets a member
 * say in a minute.
 */
#include "gossip/net/net_inner.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t SECOND = 1000000000u;
static test_pool pool;

static gsp_net *open_gate(const gsp_handshake_config *who)
{
    gsp_net *net = NULL;
    gsp_net_gate_config c = {.gate.handshake = *who, .gate.n_listen = 1};
    c.gate.listen[0] = test_address("127.0.0.1:0");
    test_must(gsp_net_open_gate(&c, &net));
    return net;
}

/* Waits for an event of this kind at `net`, while the other one goes on; messages in between are freed and
 * counted. */
static unsigned await(gsp_net *net, gsp_net *other, gsp_net_kind kind, gsp_net_event *event)
{
    unsigned n = 0;
    for (uint64_t end = atom_clock_ns() + 60 * SECOND; atom_clock_ns() < end;) {
        test_must(gsp_net_next(other, 0, event));
        gsp_net_free(other, event->data);
        test_must(gsp_net_next(net, SECOND / 100, event));
        if (event->kind == kind)
            return n;
        n += event->kind == GSP_NET_MESSAGE;
        gsp_net_free(net, event->data);
    }
    fail_msg("no event of kind %d", kind);
    return 0;
}

/* a dials b; *event is b's word about it. */
static void connect_two(gsp_net *a, gsp_net *b, gsp_net_event *event)
{
    gsp_address at = test_loopback(gsp_net_port(b));
    test_must(gsp_net_dial(a, b->key, &at, 1));
    (void)await(b, a, GSP_NET_UP, event);
    while (gsp_net_send(a, b->key, GSP_NET_CONTROL, "x", 1, NULL, 0) != GSP_NET_SENT) {
        gsp_net_event none;
        test_must(gsp_net_next(a, SECOND / 100, &none));
    }
    gsp_net_event message;
    (void)await(b, a, GSP_NET_MESSAGE, &message);
    gsp_net_free(b, message.data);
}

/* It may ask for the manifest, with the key that it lacks, which is more than a guest may be told. */
static void an_old_key_is_marked(void **state)
{
    (void)state;
    static uint8_t manifest[4 * NET_GUEST_BYTES];
    for (int is_old = 0; is_old < 2; is_old++) {
        gsp_handshake_config mine = test_member(&pool, 0), theirs = test_member(&pool, 1);
        gsp_net_event event;
        memcpy(mine.psk[1], mine.psk[0], GSP_PSK_BYTES);
        memset(mine.psk[0], 0x5a, GSP_PSK_BYTES);
        mine.n_psks = 2;
        if (!is_old)
            memcpy(theirs.psk[0], mine.psk[0], GSP_PSK_BYTES);
        gsp_net *here = open_gate(&mine), *there = open_gate(&theirs);
        connect_two(there, here, &event);
        assert_true(event.old_key == is_old && event.guest == is_old);
        assert_int_equal(
            gsp_net_send(here, there->key, GSP_NET_BULK, manifest, sizeof manifest, NULL, 0),
            GSP_NET_SENT);
        (void)await(there, here, GSP_NET_MESSAGE, &event);
        assert_int_equal(event.bytes, sizeof manifest);
        gsp_net_free(there, event.data);
        for (int i = 0; i < 2 * NET_GUEST_MESSAGES; i++) {
            assert_int_equal(gsp_net_send(there, here->key, GSP_NET_BULK, "ask", 3, NULL, 0),
                             GSP_NET_SENT);
            (void)await(here, there, GSP_NET_MESSAGE, &event);
            assert_int_equal(event.old_key, is_old);
            gsp_net_free(here, event.data);
        }
        gsp_net_close(&there);
        gsp_net_close(&here);
    }
}

static void who_says_too_much_in_a_minute_is_cut_off(void **state)
{
    (void)state;
    enum { MOST = 20 };
    gsp_handshake_config mine = test_member(&pool, 0), theirs = test_member(&pool, 1);
    gsp_net *here = open_gate(&mine), *there = open_gate(&theirs);
    gsp_net_event event;
    connect_two(there, here, &event); /* which took one */
    net_endpoint *e = (net_endpoint *)here;
    assert_int_equal(e->control.each_max, 120000);
    e->control.each_max = MOST;
    for (int i = 0; i < 2 * MOST; i++) { /* bytes that somebody wants are counted elsewhere */
        assert_int_equal(gsp_net_send(there, here->key, GSP_NET_BULK, "b", 1, NULL, 0),
                         GSP_NET_SENT);
        (void)await(here, there, GSP_NET_MESSAGE, &event);
        gsp_net_free(here, event.data);
    }
    for (int i = 0; i < 2 * MOST; i++)
        assert_int_equal(gsp_net_send(there, here->key, GSP_NET_CONTROL, "c", 1, NULL, 0),
                         GSP_NET_SENT);
    assert_int_equal(await(here, there, GSP_NET_DOWN, &event), MOST - 1);
    assert_string_equal(event.why, "the peer sends too many messages per minute");
    gsp_net_close(&there);
    gsp_net_close(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_old_key_is_marked),
        cmocka_unit_test(who_says_too_much_in_a_minute_is_cut_off),
    };
    test_pool_make(&pool, 7);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
