/*
 * For whom a relay does what (net_relay.c): it offers members to members that both have dialled it, brings together only
 * those two, and nobody uses up what others need. The streams of its gate are made up here.
 */
#include "atom/base/bytes.h"
#include "gossip/net/net_inner.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static bool dial_nothing(net_endpoint *e, net_link *link, uint32_t i)
{
    (void)e, (void)link, (void)i;
    return true;
}

static void end_nothing(net_endpoint *e, net_stream *stream)
{
    (void)e, (void)stream;
}

static void nothing(net_endpoint *e)
{
    (void)e;
}

static const net_carrier CARRIER = {dial_nothing, end_nothing, nothing, NULL, nothing};
static test_pool pool;
static net_endpoint *e;
static net_link *target;
static net_pair theirs; /* what the target hears */

static int setup(void **state)
{
    (void)state;
    gsp_gate_config c = {.handshake = test_member(&pool, 0)};
    test_must(net_endpoint_open(&CARRIER, pool.member[0].public_key, 0, &e));
    test_must(gsp_gate_open(&c, &e->gate));
    target = net_link_take(e);
    memset(target->key, 1, sizeof target->key);
    target->known_key = target->told_up = true;
    target->state = LINK_UP;
    target->n_streams = 1;
    target->stream[0].used = true;
    test_must(net_pair_open(4096, 0, &target->stream[0].pair));
    test_must(net_pair_open(4096, 0, &theirs));
    assert_true(net_pair_bind(&theirs, "inproc://relay-rules"));
    test_must(net_pair_connect(&target->stream[0].pair, "inproc://relay-rules"));
    while (!net_pair_can_send(&target->stream[0].pair))
        usleep(1000);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    net_pair_close(&theirs);
    gsp_gate_close(&e->gate);
    net_endpoint_close(&e->net);
    return 0;
}

/* A member with a key of this byte asks for the target, or takes up an offer. */
static gsp_gate_event coming(uint8_t key, uint16_t what, uint64_t token)
{
    gsp_gate_event event = {.kind = GSP_GATE_UP, .role = GSP_MEMBER, .stream = 0xffffff00u + key};
    memset(event.key, key, sizeof event.key);
    event.hello = (gsp_hello){.stream = what, .n_streams = 2, .link = token};
    memset(event.hello.target, 1, sizeof event.hello.target);
    return event;
}

static uint64_t token_of(const uint8_t *offer)
{
    atom_reader r = atom_reader_make(offer + GSP_NET_KEY_BYTES, 8);
    return atom_read_u64(&r);
}

/* The target hears that it is offered somebody. Returns the token of the offer. */
static uint64_t offered(uint8_t whom)
{
    size_t bytes = 0;
    uint8_t *said = net_pair_receive(&theirs, &bytes);
    for (int i = 0; !said && i < 20000; i++) {
        usleep(1000);
        said = net_pair_receive(&theirs, &bytes);
    }
    assert_non_null(said);
    assert_int_equal(bytes, 32 + 8 + 1);
    assert_int_equal(said[0], whom);
    assert_int_equal(said[40], NET_RELAY_OFFER);
    uint64_t token = token_of(said);
    net_pair_free(said);
    return token;
}

static uint32_t under_way(net_relay_role role)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RELAYS_MAX; i++)
        n += e->relay[i].role == role;
    return n;
}

/* True: it was offered to the target. */
static bool asks(gsp_gate_event event)
{
    uint32_t before = under_way(RELAY_HOLDS);
    assert_true(net_relay_up(e, &event));
    if (under_way(RELAY_HOLDS) == before)
        return false;
    (void)offered(event.key[0]);
    return true;
}

static void members_are_offered_to_members(void **state)
{
    (void)state;
    gsp_gate_event event = coming(7, GSP_RELAY_ASK, 0);
    event.role = GSP_GUEST;
    assert_false(asks(event));
    event.role = GSP_MEMBER;
    event.old_key = true; /* it knows only the key before */
    assert_false(asks(event));
    event.old_key = false;
    event.hello.target[0] ^= 1;
    assert_false(asks(event)); /* there is no link to that one */
    event.hello.target[0] ^= 1;
    for (int i = 0; i < 5; i++) {
        target->guest = i == 0;
        target->relayed = i == 1;
        target->dialled = i == 2; /* then it accepts connections itself */
        target->state = i == 3 ? LINK_DYING : LINK_UP;
        e->tubes.refuses = i == 4;
        assert_false(asks(event));
    }
    e->tubes.refuses = false;
    assert_int_equal(under_way(RELAY_HOLDS), 0);
    assert_true(asks(event));
    assert_int_equal(under_way(RELAY_HOLDS), 1);
    event.hello.stream = 1; /* a stream of a link is not the relay's business */
    assert_false(net_relay_up(e, &event));
}

static void only_the_two_are_brought_together(void **state)
{
    (void)state;
    const gsp_gate_event ask = coming(7, GSP_RELAY_ASK, 0);
    assert_true(net_relay_up(e, &ask));
    const uint64_t token = offered(7);
    gsp_gate_event take = coming(3, GSP_RELAY_TAKE, token);
    assert_true(net_relay_up(e, &take)); /* somebody else who has the token */
    assert_int_equal(under_way(RELAY_HOLDS), 1);
    take = coming(1, GSP_RELAY_TAKE, token ^ 2);
    assert_true(net_relay_up(e, &take));
    assert_int_equal(under_way(RELAY_HOLDS), 1);
    take = coming(1, GSP_RELAY_TAKE, token);
    assert_true(net_relay_up(e, &take));
    assert_int_equal(under_way(RELAY_HOLDS), 0);
    assert_true(e->tubes.tube[0].used && e->tubes.tube[0].asker[0] == 7 &&
                e->tubes.tube[0].target[0] == 1);
    assert_true(net_relay_up(e, &take)); /* once */
    assert_false(e->tubes.tube[1].used);
}

static void nobody_uses_up_what_others_need(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RELAYS_PER_KEY; i++)
        assert_true(asks(coming(7, GSP_RELAY_ASK, 0)));
    assert_false(asks(coming(7, GSP_RELAY_ASK, 0)));
    for (uint8_t key = 8; key < 20; key++)
        for (uint32_t i = 0; i < RELAYS_PER_KEY; i++)
            (void)asks(coming(key, GSP_RELAY_ASK, 0));
    assert_int_equal(under_way(RELAY_HOLDS), RELAYS_OTHERS_MAX);
    net_link *wanted = net_link_take(e); /* what this host wants itself goes on */
    wanted->n_streams = 3;
    wanted->relay_address = test_loopback(1);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(net_relay_ask(e, wanted, i));
    /* In a while they are free again. */
    net_relay_tick(e, atom_clock_ns());
    assert_int_equal(under_way(RELAY_HOLDS), RELAYS_OTHERS_MAX);
    net_relay_tick(e, atom_clock_ns() + 11000000000u);
    assert_int_equal(under_way(RELAY_HOLDS) + under_way(RELAY_ASKS), 0);
    assert_true(asks(coming(7, GSP_RELAY_ASK, 0)));
}

/* Offers are taken from members that this host dialled, and not without end. */
static void offers_are_taken_from_relays(void **state)
{
    (void)state;
    uint8_t offer[40] = {9};
    target->address = test_loopback(1);
    net_relay_offered(e, target, offer, sizeof offer);
    assert_int_equal(under_way(RELAY_TAKES), 0); /* it dialled us */
    target->dialled = true;
    net_relay_offered(e, target, offer, sizeof offer - 1);
    assert_int_equal(under_way(RELAY_TAKES), 0);
    for (uint32_t i = 0; i < 2 * RELAYS_PER_KEY; i++)
        net_relay_offered(e, target, offer, sizeof offer);
    assert_int_equal(under_way(RELAY_TAKES), RELAYS_PER_KEY);
}

int main(void)
{
    test_pool_make(&pool, 9);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_are_offered_to_members, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_two_are_brought_together, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_uses_up_what_others_need, setup, teardown),
        cmocka_unit_test_setup_teardown(offers_are_taken_from_relays, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
