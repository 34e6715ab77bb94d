/* Which of two connections is kept: asked of both sides, in both orders, with a carrier that
 * carries nothing. Both must choose the same one. */
#include "gossip/net/net_inner.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

static const net_carrier carrier = {dial_nothing, end_nothing, nothing, NULL, nothing};

enum { BOOT = 5, DIALLED_LINK = 100, INBOUND_LINK = 200 };

static net_endpoint *open_endpoint(uint8_t key)
{
    uint8_t own[GSP_NET_KEY_BYTES] = {key};
    net_endpoint *e = NULL;
    test_must(net_endpoint_open(&carrier, own, 0, &e));
    return e;
}

/* The peer wants a link; its dial is under way. */
static void want(net_endpoint *e, uint8_t peer)
{
    uint8_t key[GSP_NET_KEY_BYTES] = {peer};
    gsp_address at = test_loopback(1);
    test_must(gsp_net_dial(&e->net, key, &at, 1));
    net_link *link = net_link_find(e, key);
    link->state = LINK_DIALLING;
    link->dial_tag = link->id = DIALLED_LINK;
}

static bool arrive(net_endpoint *e, uint8_t peer, bool dialled, uint64_t link, uint64_t boot)
{
    uint8_t key[GSP_NET_KEY_BYTES] = {peer};
    net_arrival a = {.key = key,
                     .dialled = dialled,
                     .tag = dialled ? DIALLED_LINK : 0,
                     .n_streams = 3,
                     .link = link,
                     .boot = boot};
    return net_link_admit(e, &a) != NULL;
}

static net_link *link_of(net_endpoint *e, uint8_t peer)
{
    uint8_t key[GSP_NET_KEY_BYTES] = {peer};
    return net_link_find(e, key);
}

static void crossed_dials_keep_the_lower_key_s(void **state)
{
    (void)state;
    for (int we_are_lower = 0; we_are_lower < 2; we_are_lower++)
        for (int dial_first = 0; dial_first < 2; dial_first++) {
            uint8_t own = we_are_lower ? 1 : 9;
            net_endpoint *e = open_endpoint(own);
            want(e, 5);
            bool first = arrive(e, 5, dial_first, dial_first ? DIALLED_LINK : INBOUND_LINK, BOOT);
            bool second = arrive(e, 5, !dial_first, dial_first ? INBOUND_LINK : DIALLED_LINK, BOOT);
            assert_true(first); /* nothing better was there */
            assert_int_equal(second, dial_first != we_are_lower);
            assert_int_equal(link_of(e, 5)->dialled, we_are_lower);
            assert_int_equal(link_of(e, 5)->id, we_are_lower ? DIALLED_LINK : INBOUND_LINK);
            gsp_net *net = &e->net;
            gsp_net_close(&net);
        }
}

static void a_newer_one_of_the_same_side_wins(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    assert_true(arrive(e, 5, false, 200, BOOT));
    assert_false(arrive(e, 5, false, 200, BOOT)); /* the same one twice */
    assert_true(arrive(e, 5, false, 201, BOOT));
    assert_int_equal(link_of(e, 5)->id, 201);
    gsp_net *net = &e->net;
    gsp_net_close(&net);
}

static void a_restarted_peer_wins(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1); /* lower: else its own dial would be kept */
    want(e, 5);
    assert_true(arrive(e, 5, true, DIALLED_LINK, BOOT));
    assert_false(arrive(e, 5, false, 300, BOOT));
    assert_true(arrive(e, 5, false, 301, BOOT + 1));
    assert_false(link_of(e, 5)->dialled);
    gsp_net *net = &e->net;
    gsp_net_close(&net);
}

static void strays_are_refused(void **state)
{
    (void)state;
    uint8_t key[GSP_NET_KEY_BYTES] = {5};
    net_endpoint *e = open_endpoint(1);
    net_arrival a = {.key = key, .stream = 1, .n_streams = 3, .link = 7, .boot = BOOT};
    assert_null(net_link_admit(e, &a)); /* no control stream before */
    assert_true(arrive(e, 5, false, 7, BOOT));
    assert_non_null(net_link_admit(e, &a));
    a.link = 8;
    assert_null(net_link_admit(e, &a)); /* of another link */
    a.link = 7;
    a.boot++;
    assert_null(net_link_admit(e, &a)); /* of another life */
    a.boot--;
    a.stream = 3;
    assert_null(net_link_admit(e, &a)); /* past the last */
    a.n_streams = 60000;
    assert_null(net_link_admit(e, &a));
    a.stream = 0;
    a.n_streams = 1;
    assert_null(net_link_admit(e, &a));        /* no room for bulk */
    assert_false(arrive(e, 6, true, 9, BOOT)); /* a dial that nobody wants any more */
    gsp_net *net = &e->net;
    gsp_net_close(&net);
}

/* What a dial ended with; was it told? */
static bool fail_dial(net_endpoint *e, net_link *link, gsp_refusal refusal, const char *why)
{
    link->state = LINK_DIALLING;
    link->dial_tag = link->id = DIALLED_LINK;
    link->relayed = true; /* the last way there is */
    link->tell_refused = false;
    net_link_dial_failed(e, DIALLED_LINK, refusal, why);
    return link->tell_refused;
}

/* A contact of a host that came back as somebody else: told once, and dialled ever less. */
static void another_member_is_left_in_peace(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    want(e, 5);
    net_link *link = link_of(e, 5);
    assert_true(fail_dial(e, link, GSP_WELCOME, "nobody answered in time"));
    for (int i = 0; i < 20; i++)
        assert_false(fail_dial(e, link, GSP_WELCOME, i % 2 ? "broken pipe" : "reset"));
    uint64_t pause_ns = link->pause_ns; /* who is away is dialled every few seconds */
    assert_in_range(pause_ns, 1000000000ull, 10000000000ull);
    assert_true(fail_dial(e, link, GSP_REFUSED_KEY, "another member answered"));
    for (int i = 0; i < 20; i++) {
        assert_false(fail_dial(e, link, GSP_WELCOME, "broken pipe"));
        assert_false(fail_dial(e, link, GSP_REFUSED_KEY, "another member answered"));
    }
    assert_true(link->pause_ns >= 10 * pause_ns);
    assert_true(fail_dial(e, link, GSP_REFUSED_BANNED, "banned")); /* news */
    gsp_net *net = &e->net;
    gsp_net_close(&net);
}

/* What matters to the caller is said as often as it matters. */
static void refusals_are_told(void **state)
{
    (void)state;
    const uint8_t one[GSP_NET_KEY_BYTES] = {1}, two[GSP_NET_KEY_BYTES] = {2};
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    want(e, 5);
    net_link *link = link_of(e, 5);
    for (int i = 0; i < 5; i++) {
        link->state = LINK_DIALLING;
        link->dial_tag = DIALLED_LINK;
        link->relayed = true;
        link->tell_refused = false;
        if (i < 3) /* a twin, as long as it is there */
            net_link_dial_refused(e, DIALLED_LINK, one, GSP_REFUSED_TWIN, "a twin");
        else /* another member says the same */
            net_link_dial_refused(e, DIALLED_LINK, i == 3 ? one : two, GSP_REFUSED_BANNED,
                                  "banned");
        assert_true(link->tell_refused);
    }
    gsp_net_close(&net);
}

/* Nothing of an earlier connection, or of an earlier wish, is left in the next one. */
static void the_next_connection_begins_anew(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    assert_true(arrive(e, 5, false, 200, BOOT));
    net_link *link = link_of(e, 5);
    link->state = LINK_UP;
    link->told_up = link->old_key = true;
    link->n_heard = 9;
    link->busy[0] = link->busy[1] = link->tell_room[0] = link->tell_room[1] = true;
    net_link_lost(e, link, "gone");
    assert_int_equal(link->state, LINK_DYING);
    assert_true(
        arrive(e, 5, false, 200, BOOT)); /* what is dying keeps nobody out, not even the same */
    assert_true(link->state == LINK_BUILDING && link->tell_down);
    assert_false(link->busy[0] || link->busy[1] || link->tell_room[0] || link->tell_room[1] ||
                 link->old_key);
    assert_int_equal(link->n_heard, 0);
    /* Of those that did not come up the second in a row is told. */
    link->tell_down = false;
    link->wanted = true;
    link->n_addresses = 1;
    link->addresses[0] = test_loopback(1);
    for (int i = 0; i < 2; i++) {
        link->state = LINK_BUILDING;
        link->tell_refused = false;
        net_link_lost(e, link, "half");
        assert_int_equal(link->tell_refused, i);
    }
    /* A member that answered a wish for anybody, but of whom nobody heard as UP: the wish returns. */
    link->wanted = link->tell_refused = false;
    link->found = true;
    link->state = LINK_NONE;
    net_link_settle(link);
    assert_true(link->used);
    net_link_tick(e, 1);
    assert_true(link->wanted && !link->known_key && !link->found);
    gsp_net_close(&net);
}

/* Somebody relays for us who accepts connections, directly, and is a member; each in turn. */
static void relays_are_members_that_we_dialled(void **state)
{
    (void)state;
    net_link l = {.used = true, .state = LINK_UP, .dialled = true};
    assert_true(net_link_serves(&l));
    for (int i = 0; i < 5; i++) {
        net_link other = l;
        other.used = i != 0;
        other.state = i == 1 ? LINK_DYING : LINK_UP;
        other.dialled = i != 2;
        other.relayed = i == 3;
        other.guest = i == 4;
        assert_false(net_link_serves(&other));
    }
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    net_link *by[2] = {net_link_take(e), net_link_take(e)};
    for (uint8_t i = 0; i < 2; i++) {
        by[i]->state = LINK_UP;
        by[i]->dialled = true;
        by[i]->key[0] = i;
    }
    want(e, 5);
    net_link *link = link_of(e, 5);
    for (int i = 0; i < 4; i++) {
        link->state = LINK_NONE;
        link->due_ns = 0;
        link->relay_next = true;
        net_link_tick(e, 1);
        assert_true(link->relayed && link->state == LINK_DIALLING);
        assert_int_equal(link->relay_key[0], i % 2);
    }
    e->streams = 8;
    e->is_guest = true; /* members let a guest have few streams */
    link->state = LINK_NONE;
    link->due_ns = 0;
    net_link_tick(e, 1);
    assert_int_equal(link->n_streams, NET_GUEST_STREAMS);
    gsp_net_close(&net);
}

/* ---- guests ---- */

static net_link *come(net_endpoint *e, unsigned key, const char *from, bool guest)
{
    uint8_t k[GSP_NET_KEY_BYTES] = {(uint8_t)key, (uint8_t)(key >> 8), 1};
    net_arrival a = {.key = k,
                     .guest = guest,
                     .n_streams = 3,
                     .link = 1000 + key,
                     .boot = BOOT,
                     .address = test_address(from)};
    return net_link_admit(e, &a);
}

static uint32_t here(const net_endpoint *e, uint32_t first, uint32_t end, const char *from)
{
    gsp_address at = test_address(from ? from : "*:1");
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++)
        n += e->link[i].used && e->link[i].state == LINK_BUILDING &&
             (!from || gsp_address_same_customer(&e->link[i].address, &at));
    return n;
}

static uint32_t guests(const net_endpoint *e, const char *from)
{
    return here(e, GSP_NET_PEERS_MAX, GSP_NET_LINKS_MAX, from);
}

/* Lets the guests that are here get older than a newcomer has to respect. */
static void grow_old(net_endpoint *e)
{
    for (uint32_t i = GSP_NET_PEERS_MAX; i < GSP_NET_LINKS_MAX; i++)
        e->link[i].begun_ns -= 2 * NET_GUEST_GRACE_NS;
}

static void guests_have_few_places_of_their_own(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    for (unsigned i = 0; i < 64; i++)
        (void)come(e, i, "203.0.113.1:5", true);
    assert_int_equal(guests(e, NULL), NET_GUESTS_PER_ADDRESS);
    assert_int_equal(here(e, 0, GSP_NET_PEERS_MAX, NULL), 0);
    for (unsigned i = 100; i < 100 + GSP_NET_PEERS_MAX; i++)
        assert_non_null(come(e, i, "203.0.113.1:5", false));
    assert_int_equal(here(e, 0, GSP_NET_PEERS_MAX, NULL), GSP_NET_PEERS_MAX);
    /* All places of members are taken: a newcomer still gets one of a guest's. */
    assert_non_null(come(e, 300, "198.51.100.1:5", true));
    assert_int_equal(guests(e, NULL), NET_GUESTS_PER_ADDRESS + 1);
    gsp_net_close(&net);
}

static void a_crowd_evicts_itself(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    /* One provider's customer with a whole /64, and a smaller crowd of another address. */
    for (unsigned i = 0; i < 4; i++) {
        char from[40];
        snprintf(from, sizeof from, "[2001:db8:7:7::%x]:5", i + 1);
        assert_non_null(come(e, i, from, true));
    }
    assert_null(come(e, 5, "[2001:db8:7:7::99]:5", true)); /* too many of them, all new */
    for (unsigned i = 10; i < 13; i++)
        assert_non_null(come(e, i, "203.0.113.1:5", true));
    assert_non_null(come(e, 20, "198.51.100.1:5", true));
    assert_int_equal(guests(e, NULL), GSP_NET_GUESTS_MAX);
    /* Full: those that come from elsewhere take the place of the largest crowd, at once. */
    assert_non_null(come(e, 21, "198.51.100.2:5", true));
    assert_int_equal(guests(e, "[2001:db8:7:7::1]:5"), 3);
    assert_non_null(come(e, 22, "198.51.100.3:5", true));
    assert_non_null(come(e, 23, "198.51.100.4:5", true));
    assert_int_equal(guests(e, NULL), GSP_NET_GUESTS_MAX);
    assert_int_equal(guests(e, "198.51.100.1:5") + guests(e, "198.51.100.2:5") +
                         guests(e, "198.51.100.3:5") + guests(e, "198.51.100.4:5"),
                     4);
    assert_int_equal(guests(e, "203.0.113.1:5"), 2);
    assert_int_equal(guests(e, "[2001:db8:7:7::1]:5"), 2);
    /* The crowd's own newcomers take its own places, and only when they are old. */
    assert_null(come(e, 30, "203.0.113.1:5", true));
    grow_old(e);
    assert_non_null(come(e, 31, "203.0.113.1:5", true));
    assert_int_equal(guests(e, "198.51.100.1:5"), 1);
    gsp_net_close(&net);
}

static void guests_are_not_what_they_seem(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    uint8_t key[GSP_NET_KEY_BYTES] = {7};
    net_arrival a = {.key = key, .guest = true, .n_streams = 3, .link = 7, .boot = BOOT};
    a.relayed = true; /* members relay for members only */
    assert_null(net_link_admit(e, &a));
    a.relayed = false;
    a.n_streams = NET_GUEST_STREAMS + 1;
    assert_null(net_link_admit(e, &a));
    want(e, 5); /* who answers our dial must be a member */
    uint8_t five[GSP_NET_KEY_BYTES] = {5};
    a = (net_arrival){.key = five,
                      .guest = true,
                      .dialled = true,
                      .tag = DIALLED_LINK,
                      .n_streams = 3,
                      .link = DIALLED_LINK,
                      .boot = BOOT};
    assert_null(net_link_admit(e, &a));
    assert_true(link_of(e, 5)->wanted);
    /* Admitted, it comes back as a member, and the place of the guest is free. */
    assert_non_null(come(e, 40, "203.0.113.1:5", true));
    uint8_t k[GSP_NET_KEY_BYTES] = {40, 0, 1};
    net_arrival again = {.key = k, .n_streams = 3, .link = 7777, .boot = BOOT};
    net_link *member = net_link_admit(e, &again);
    assert_non_null(member);
    assert_false(net_link_of_guest(e, member));
    assert_ptr_equal(net_link_find(e, k), member);
    assert_int_equal(guests(e, NULL), 0);
    gsp_net_close(&net);
}

static void guests_leave_in_time(void **state)
{
    (void)state;
    net_endpoint *e = open_endpoint(1);
    gsp_net *net = &e->net;
    net_link *building = come(e, 1, "203.0.113.1:5", true), *up = come(e, 2, "203.0.113.1:5", true);
    up->state = LINK_UP;
    up->told_up = true;
    net_link_tick(e, up->begun_ns + NET_GUEST_NS - 1);
    assert_int_equal(up->state, LINK_UP);
    net_link_tick(e, up->begun_ns + NET_GUEST_NS + 1);
    assert_true(up->state == LINK_NONE && up->tell_down);
    assert_false(building->used);
    gsp_net_close(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crossed_dials_keep_the_lower_key_s),
        cmocka_unit_test(a_newer_one_of_the_same_side_wins),
        cmocka_unit_test(a_restarted_peer_wins),
        cmocka_unit_test(strays_are_refused),
        cmocka_unit_test(another_member_is_left_in_peace),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(the_next_connection_begins_anew),
        cmocka_unit_test(relays_are_members_that_we_dialled),
        cmocka_unit_test(guests_have_few_places_of_their_own),
        cmocka_unit_test(a_crowd_evicts_itself),
        cmocka_unit_test(guests_are_not_what_they_seem),
        cmocka_unit_test(guests_leave_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
