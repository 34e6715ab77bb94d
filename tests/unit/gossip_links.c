/* Links: whom a host dials and gives up, who may say how much, and what a new link begins with. */
#include "gossip/pool/links.h"
#include "tests/lib/gossip_contact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { KNOWN = 60 };
static const uint64_t SECOND = 1000000000u;
static test_pool P;

/* ---- a net that only remembers what it was told ---- */

typedef struct told {
    gsp_net net;
    uint32_t dialled[256], dropped[256], n_dials; /* by the first byte of a key */
    gsp_address last;
} told;

static atom_status dial(gsp_net *net, const uint8_t *key, const gsp_address *at, size_t n)
{
    told *t = (told *)net;
    assert_true(n > 0);
    t->dialled[key[0]]++;
    t->n_dials++;
    t->last = at[0];
    return ATOM_OK;
}

static void drop(gsp_net *net, const uint8_t *key)
{
    ((told *)net)->dropped[key[0]]++;
}

static const gsp_net_ops OPS = {.dial = dial, .drop = drop};

static gsp_peers *book_of(unsigned n)
{
    gsp_handshake_config who = test_member(&P, 33);
    gsp_peers *book = NULL;
    gsp_contact c = test_contact(&P, 0, 5);
    test_must(gsp_peers_open(&who, &book));
    for (unsigned i = 0; i < n; i++) {
        c.key[0] = (uint8_t)i;
        assert_int_equal(gsp_peers_add(book, &c, NULL, test_now_s()), GSP_PEERS_NEW);
    }
    return book;
}

static void up(gsp_links *links, uint8_t first, bool guest)
{
    gsp_net_event e = {.kind = GSP_NET_UP, .guest = guest};
    memcpy(e.key, test_contact(&P, 0, 5).key, sizeof e.key);
    e.key[0] = first;
    assert_non_null(gsp_links_add(links, &e));
}

/* ---- tests ---- */

static void stubborn_ones_make_room(void **state)
{
    (void)state;
    told t = {.net.ops = &OPS};
    gsp_links *links = test_calloc(1, sizeof *links);
    links->net = &t.net;
    gsp_peers *book = book_of(KNOWN);
    uint64_t now = 1000 * SECOND;
    gsp_links_dial(links, book, true, now);
    assert_int_equal(t.n_dials, GSP_WANTED_MAX);
    gsp_links_dial(links, book, true, now + SECOND);
    assert_int_equal(t.n_dials, GSP_WANTED_MAX); /* nobody twice */
    /* All but one are up: that one is given up after two minutes, and another is dialled. */
    uint8_t silent = 0;
    bool chosen = false;
    for (unsigned k = 0; k < KNOWN; k++) {
        if (t.dialled[k] && !chosen) {
            silent = (uint8_t)k;
            chosen = true;
        } else if (t.dialled[k]) {
            up(links, (uint8_t)k, false);
        }
    }
    gsp_links_dial(links, book, true, now + 119 * SECOND);
    assert_int_equal(t.dropped[silent], 0);
    gsp_links_dial(links, book, true, now + 121 * SECOND);
    assert_int_equal(t.dropped[silent], 1);
    assert_int_equal(t.dialled[silent], 1);
    assert_int_equal(t.n_dials, GSP_WANTED_MAX + 1);
    /* A link that was up lately has its two minutes again. */
    gsp_link *l = gsp_links_member(links);
    uint8_t key = l->key[0];
    l->up = false;
    gsp_links_dial(links, book, true, now + 200 * SECOND);
    assert_int_equal(t.dropped[key], 0);
    gsp_peers_close(&book);
    test_free(links);
}

static void newer_contact_is_dialled_anew(void **state)
{
    (void)state;
    told t = {.net.ops = &OPS};
    gsp_links *links = test_calloc(1, sizeof *links);
    links->net = &t.net;
    gsp_peers *book = book_of(2);
    uint8_t key[GSP_PUBLIC_BYTES];
    memcpy(key, test_contact(&P, 0, 5).key, sizeof key);
    gsp_links_dial(links, book, true, SECOND);
    up(links, 1, false);
    key[0] = 0;
    gsp_links_moved(links, key);
    key[0] = 1;
    gsp_links_moved(links, key); /* it is linked: its address is right */
    gsp_links_dial(links, book, true, 2 * SECOND);
    assert_int_equal(t.dialled[0], 2);
    assert_int_equal(t.dialled[1], 1);
    /* An ended link is wanted no more, so it is dialled again. */
    gsp_links_end(links, gsp_links_find(links, key));
    assert_int_equal(t.dropped[1], 1);
    assert_null(gsp_links_find(links, key));
    gsp_links_dial(links, book, true, 3 * SECOND);
    assert_int_equal(t.dialled[1], 2);
    gsp_links_rest(links);
    assert_int_equal(t.dropped[0], 1);
    gsp_links_dial(links, book, true, 4 * SECOND);
    assert_int_equal(t.dialled[0], 3);
    gsp_peers_close(&book);
    test_free(links);
}

/* What a key may have, and what it may have us check, is counted whatever links it comes with. */
static void keys_have_their_share(void **state)
{
    (void)state;
    const uint64_t most = 1000, now = 100000 * SECOND;
    gsp_links *links = test_calloc(1, sizeof *links);
    uint8_t one[GSP_PUBLIC_BYTES] = {1}, two[GSP_PUBLIC_BYTES] = {2};
    assert_true(gsp_links_may_give(links, one, 1000, most, now));
    gsp_links_give(links, one, 900, most, now);
    assert_true(gsp_links_may_give(links, one, 100, most, now));
    assert_false(gsp_links_may_give(links, one, 101, most, now));
    assert_false(gsp_links_may_give(links, one, 1, 500, now)); /* the pool has become smaller */
    assert_true(gsp_links_may_give(links, two, 1000, most, now));
    assert_true(gsp_links_may_give(links, one, 1000, most, now + GSP_GIVEN_SECONDS * SECOND));
    uint32_t n = 0;
    while (gsp_links_may_bring(links, one, now))
        n++;
    assert_int_equal(n, 12 * GSP_WORD_CONTACTS_MAX);
    assert_true(gsp_links_may_bring(links, two, now));
    assert_true(gsp_links_may_bring(links, one, now + 60 * SECOND));
    for (n = 0; gsp_links_may_ask_notes(links, one, now); n++) {
    }
    assert_int_equal(n, 20);
    assert_true(gsp_links_may_ask_notes(links, two, now));
    assert_true(gsp_links_may_ask_notes(links, one, now + 60 * SECOND));
    test_free(links);
}

/* Two hosts that accept nowhere need a third: the transport asks for one once it dialled in vain. */
static void nowhere_to_dial(void **state)
{
    (void)state;
    told t = {.net.ops = &OPS};
    gsp_links *links = test_calloc(1, sizeof *links);
    links->net = &t.net;
    gsp_peers *book = book_of(0);
    gsp_contact c = test_contact(&P, 0, 5);
    c.n_addresses = 0;
    assert_int_equal(gsp_peers_add(book, &c, NULL, test_now_s()), GSP_PEERS_NEW);
    gsp_links_dial(links, book, true, SECOND);
    assert_int_equal(t.n_dials, 0);
    gsp_links_dial(links, book, false, SECOND);
    assert_int_equal(t.n_dials, 1);
    assert_int_equal(t.last.port, 9);
    assert_true(gsp_links_in_vain(&t.last)); /* nobody is told that it failed */
    gsp_address real = test_loopback(10);
    assert_false(gsp_links_in_vain(&real));
    gsp_peers_close(&book);
    test_free(links);
}

static void budget_of_words(void **state)
{
    (void)state;
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_link guest = {.up = true, .guest = true}, member = {.up = true};
    uint32_t heard_guest = 0, heard_member = 0;
    for (int i = 0; i < 1000; i++) {
        heard_guest += gsp_links_may_speak(links, &guest, 7 * SECOND);
        heard_member += gsp_links_may_speak(links, &member, 7 * SECOND + (uint64_t)i);
    }
    assert_int_equal(heard_guest, 5);
    assert_int_equal(heard_member, 400);
    assert_true(gsp_links_may_speak(links, &guest, 8 * SECOND));
    test_free(links);
}

/* Whoever comes back with another link, or as a guest with another key, has not another minute. */
static void a_minute_is_of_the_key(void **state)
{
    (void)state;
    gsp_links *links = test_calloc(1, sizeof *links);
    uint32_t guests = 0, members = 0;
    for (unsigned i = 0; i < 600; i++) {
        gsp_link guest = {.up = true, .guest = true, .key = {(uint8_t)i, (uint8_t)(i >> 8)}};
        guest.address = test_address("203.0.113.1:5");
        guests += gsp_links_may_speak(links, &guest, 60 * SECOND + i);
        gsp_link member = {.up = true, .key = {9}};
        for (int k = 0; k < 50; k++)
            members += gsp_links_may_speak(links, &member, 60 * SECOND + i * (SECOND / 11));
    }
    assert_int_equal(guests, 60);
    assert_int_equal(members, 12000);
    gsp_link other = {.up = true, .key = {8}};
    assert_true(gsp_links_may_speak(links, &other, 61 * SECOND));
    gsp_link elsewhere = {.up = true, .guest = true, .address = test_address("203.0.113.2:5")};
    assert_true(gsp_links_may_speak(links, &elsewhere, 61 * SECOND));
    test_free(links);
}

static void who_is_shunned_is_ended_again(void **state)
{
    (void)state;
    told t = {.net.ops = &OPS};
    gsp_links *links = test_calloc(1, sizeof *links);
    links->net = &t.net;
    up(links, 4, false);
    up(links, 5, false);
    gsp_link *l = &links->link[0];
    gsp_links_shun(links, l, atom_clock_ns());
    assert_true(l->doomed_ns > 0);
    gsp_links_end(links, l);
    up(links, 4, false);
    assert_true(l->up && l->doomed_ns > 0 && l->doomed_ns <= atom_clock_ns());
    assert_int_equal(links->link[1].doomed_ns, 0);
    test_free(links);
}

static void new_links_begin_anew(void **state)
{
    (void)state;
    gsp_links *links = test_calloc(1, sizeof *links);
    up(links, 4, true);
    assert_null(gsp_links_member(links));
    gsp_link *l = &links->link[GSP_NET_PEERS_MAX];
    assert_true(l->up && l->guest);
    uint64_t born = l->born;
    l->greeted = true;
    up(links, 4, false); /* the same key again, as a member now */
    assert_false(l->up); /* guests have places of their own */
    l = gsp_links_member(links);
    assert_ptr_equal(l, &links->link[0]);
    assert_false(l->greeted);
    assert_int_not_equal(l->born, born);
    for (unsigned i = 100; i < 100 + GSP_NET_PEERS_MAX - 1; i++)
        up(links, (uint8_t)i, false);
    gsp_net_event e = {.kind = GSP_NET_UP};
    assert_null(gsp_links_add(links, &e));
    l->hello_ns = 9 * SECOND;
    gsp_links_hello_by(links, 5 * SECOND);
    assert_int_equal(l->hello_ns, 5 * SECOND);
    gsp_links_hello_by(links, 6 * SECOND);
    assert_int_equal(l->hello_ns, 5 * SECOND);
    test_free(links);
}

int main(void)
{
    test_must(gsp_crypto_start());
    test_pool_make(&P, 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stubborn_ones_make_room),
        cmocka_unit_test(newer_contact_is_dialled_anew),
        cmocka_unit_test(keys_have_their_share),
        cmocka_unit_test(nowhere_to_dial),
        cmocka_unit_test(budget_of_words),
        cmocka_unit_test(a_minute_is_of_the_key),
        cmocka_unit_test(who_is_shunned_is_ended_again),
        cmocka_unit_test(new_links_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
