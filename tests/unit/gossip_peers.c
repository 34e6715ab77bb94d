/* The book of known peers: newest contact only, bounded, and the same after a file's round trip. */
#include "gossip/directory/peers.h"
#include "tests/lib/gossip_contact.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static test_pool P;

static gsp_peers *open_book(void)
{
    gsp_handshake_config who = test_member(&P, 33);
    gsp_peers *book = NULL;
    test_must(gsp_peers_open(&who, &book));
    return book;
}

static void newest_contact_wins(void **state)
{
    (void)state;
    gsp_peers *book = open_book();
    uint64_t now = test_now_s();
    gsp_contact five = test_contact(&P, 0, 5), six = test_contact(&P, 0, 6);
    assert_int_equal(gsp_peers_add(book, &five, NULL, now), GSP_PEERS_NEW);
    assert_int_equal(gsp_peers_add(book, &five, NULL, now), GSP_PEERS_REPLAY);
    assert_int_equal(gsp_peers_add(book, &six, NULL, now), GSP_PEERS_NEWER);
    assert_int_equal(gsp_peers_add(book, &five, NULL, now), GSP_PEERS_REPLAY);
    assert_int_equal(gsp_peers_count(book), 1);
    assert_int_equal(gsp_peers_find(book, five.key)->contact.sequence, 6);
    gsp_peers_forget(book, five.key);
    gsp_peers_forget(book, five.key);
    assert_null(gsp_peers_find(book, five.key));
    gsp_peers_close(&book);
}

static void full_book_keeps_who_answered(void **state)
{
    (void)state;
    gsp_peers *book = open_book();
    uint64_t now = test_now_s();
    gsp_contact c = test_contact(&P, 0, 5);
    gsp_address at = test_loopback(9);
    for (unsigned i = 0; i < GSP_PEERS_MAX; i++) {
        c.key[0] = (uint8_t)i;
        c.key[1] = 1;
        assert_int_equal(gsp_peers_add(book, &c, NULL, now + i), GSP_PEERS_NEW);
        if (i < 3 || i > 9)
            gsp_peers_answered(book, c.key, &at, now);
    }
    c.key[1] = 2; /* takes the place of 3, heard of longest ago of those that never answered */
    assert_int_equal(gsp_peers_add(book, &c, NULL, now + 1000), GSP_PEERS_NEW);
    c.key[1] = 1;
    c.key[0] = 3;
    assert_null(gsp_peers_find(book, c.key));
    for (unsigned i = 4; i <= 9; i++) {
        c.key[0] = (uint8_t)i;
        gsp_peers_answered(book, c.key, &at, now);
    }
    c.key[1] = 2;
    c.key[0] = 77;
    assert_int_equal(gsp_peers_add(book, &c, NULL, now + 1000), GSP_PEERS_FULL);
    assert_int_equal(gsp_peers_add(book, &c, NULL, now + 2 * 24 * 3600), GSP_PEERS_NEW);
    assert_int_equal(gsp_peers_count(book), GSP_PEERS_MAX);
    gsp_peers_close(&book);
}

static void best_first(void **state)
{
    (void)state;
    gsp_peers *book = open_book();
    uint64_t now = test_now_s();
    const gsp_known *best[8];
    gsp_contact c[4];
    gsp_address at = test_loopback(4321);
    for (unsigned i = 0; i < 4; i++) {
        c[i] = test_contact(&P, i, 1);
        assert_int_equal(gsp_peers_add(book, &c[i], NULL, now + i), GSP_PEERS_NEW);
    }
    gsp_peers_answered(book, c[1].key, &at, now);
    gsp_peers_failed(book, c[3].key);
    assert_int_equal(gsp_peers_best(book, best, 8), 4);
    const unsigned order[] = {1, 2, 0, 3};
    for (unsigned i = 0; i < 4; i++)
        assert_memory_equal(best[i]->contact.key, c[order[i]].key, 32);
    assert_int_equal(gsp_peers_best(book, best, 2), 2);
    gsp_address list[GSP_CONTACT_ADDRESSES_MAX + 1];
    assert_int_equal(gsp_known_addresses(best[0], list), 2);
    assert_true(gsp_address_equal(&list[0], &at));
    assert_true(gsp_address_equal(&list[1], &c[1].address[0]));
    gsp_peers_close(&book);
}

static void senders_host_fills_in(void **state)
{
    (void)state;
    gsp_peers *book = open_book();
    gsp_contact c = test_contact(&P, 0, 1);
    gsp_address list[GSP_CONTACT_ADDRESSES_MAX + 1], from = test_address("192.0.2.7:9999");
    memset(c.address[0].ip, 0, sizeof c.address[0].ip);
    assert_int_equal(gsp_peers_add(book, &c, NULL, 5), GSP_PEERS_NEW);
    assert_int_equal(gsp_known_addresses(gsp_peers_find(book, c.key), list), 0);
    c.sequence++;
    assert_int_equal(gsp_peers_add(book, &c, &from, 5), GSP_PEERS_NEWER);
    assert_int_equal(gsp_known_addresses(gsp_peers_find(book, c.key), list), 1);
    from.port = 4400;
    assert_true(gsp_address_equal(&list[0], &from));
    gsp_peers_close(&book);
}

static void file_there_and_back(void **state)
{
    (void)state;
    scratch dir;
    const char *path = scratch_path(scratch_open(&dir), "peers");
    gsp_peers *book = open_book(), *back = open_book();
    uint64_t now = test_now_s();
    gsp_address at = test_address("[2001:db8::7]:4400");
    test_must(gsp_peers_load(back, path, now)); /* no file yet */
    for (unsigned i = 0; i < 20; i++) {
        gsp_contact c = test_contact(&P, i, 3 + i);
        assert_int_equal(gsp_peers_add(book, &c, NULL, now), GSP_PEERS_NEW);
        if (i == 4)
            gsp_peers_answered(book, c.key, &at, now);
    }
    uint64_t sequence = gsp_peers_next_sequence(book, 100);
    assert_int_equal(sequence, 100);
    assert_int_equal(gsp_peers_next_sequence(book, 100), 101);
    test_must(gsp_peers_save(book, path));
    test_must(gsp_peers_load(back, path, now));
    assert_int_equal(gsp_peers_count(back), 20);
    for (unsigned i = 0; i < 20; i++) {
        const gsp_known *a = gsp_peers_find(book, P.member[i].public_key);
        const gsp_known *b = gsp_peers_find(back, P.member[i].public_key);
        assert_non_null(b);
        assert_memory_equal(&a->contact, &b->contact, sizeof a->contact);
        assert_true(gsp_address_equal(&a->answered_at, &b->answered_at));
        assert_int_equal(a->heard_s, b->heard_s);
    }
    assert_int_equal(gsp_peers_next_sequence(back, 50), 102); /* the clock went back: no replay */

    /* Admissions of the test pool end after an hour; a month is the limit for all. */
    gsp_peers_close(&back);
    back = open_book();
    test_must(gsp_peers_load(back, path, now + 2 * 3600));
    assert_int_equal(gsp_peers_count(back), 0);
    gsp_peers_close(&back);
    gsp_peers_close(&book);
    scratch_close(&dir);
}

static void damage_is_refused(void **state)
{
    (void)state;
    scratch dir;
    const char *path = scratch_path(scratch_open(&dir), "peers");
    char *data = NULL;
    uint64_t bytes = 0, now = test_now_s();
    gsp_peers *book = open_book(), *back = open_book();
    gsp_contact c = test_contact(&P, 0, 3);
    assert_int_equal(gsp_peers_add(book, &c, NULL, now), GSP_PEERS_NEW);
    test_must(gsp_peers_save(book, path));
    test_must(atom_file_read(path, GSP_PEERS_FILE_BYTES_MAX, &data, &bytes));
    for (size_t cut = 0; cut < bytes; cut++)
        assert_int_equal(gsp_peers_read(back, data, cut, now), ATOM_E_FORMAT);
    for (size_t i = 0; i < bytes; i++) {
        data[i] ^= 4;
        assert_int_equal(gsp_peers_read(back, data, bytes, now), ATOM_E_FORMAT);
        data[i] ^= 4;
    }
    assert_int_equal(gsp_peers_count(back), 0);
    test_must(atom_file_write(path, data, bytes - 1));
    assert_int_equal(gsp_peers_load(back, path, now), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), path));
    /* A forged contact in a file with a good checksum. */
    gsp_contact forged = test_contact(&P, 1, 3);
    forged.samples++;
    assert_int_equal(gsp_peers_add(book, &forged, NULL, now), GSP_PEERS_NEW);
    test_must(gsp_peers_save(book, path));
    test_must(gsp_peers_load(back, path, now));
    assert_int_equal(gsp_peers_count(back), 1);
    atom_free(data);
    gsp_peers_close(&book);
    gsp_peers_close(&back);
    scratch_close(&dir);
}

/* Who was heard of or answered lately keeps the place; who answered a day ago may lose it, and who never did. */
static void a_day_is_the_limit_of_a_place(void **state)
{
    (void)state;
    for (int answered = 0; answered < 2; answered++) {
        gsp_peers *book = open_book();
        gsp_contact c = test_contact(&P, 0, 5);
        gsp_address at = test_loopback(9);
        const uint64_t day = 24 * 3600, begin = 1000; /* a clock that began lately */
        for (unsigned i = 0; i < GSP_PEERS_MAX; i++) {
            c.key[0] = (uint8_t)i;
            assert_int_equal(gsp_peers_add(book, &c, NULL, begin), GSP_PEERS_NEW);
            if (answered)
                gsp_peers_answered(book, c.key, &at, begin);
        }
        c.key[1]++;
        assert_int_equal(gsp_peers_add(book, &c, NULL, begin), GSP_PEERS_FULL);
        assert_int_equal(gsp_peers_add(book, &c, NULL, begin + day - 1),
                         answered ? GSP_PEERS_FULL : GSP_PEERS_NEW);
        c.key[2]++;
        assert_int_equal(gsp_peers_add(book, &c, NULL, begin + day), GSP_PEERS_NEW);
        gsp_peers_close(&book);
    }
}

/* Each is forgotten alone; an answer makes up for failures; a newer contact is heard of now. */
static void what_is_known_of_each(void **state)
{
    (void)state;
    gsp_peers *book = open_book();
    gsp_address at = test_loopback(4321);
    for (unsigned i = 0; i < 4; i++) {
        gsp_contact c = test_contact(&P, i, 1);
        assert_int_equal(gsp_peers_add(book, &c, NULL, 10), GSP_PEERS_NEW);
    }
    gsp_peers_forget(book, P.member[1].public_key);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(gsp_peers_find(book, P.member[i].public_key) != NULL, i != 1);
    const uint8_t *key = P.member[2].public_key;
    gsp_peers_failed(book, key);
    gsp_peers_failed(book, key);
    assert_int_equal(gsp_peers_find(book, key)->failures, 2);
    gsp_peers_answered(book, key, &at, 20);
    assert_int_equal(gsp_peers_find(book, key)->failures, 0);
    gsp_contact newer = test_contact(&P, 2, 2);
    assert_int_equal(gsp_peers_add(book, &newer, NULL, 30), GSP_PEERS_NEWER);
    assert_int_equal(gsp_peers_find(book, key)->heard_s, 30);
    gsp_peers_close(&book);
}

/* The address that answered comes first, and only if one did; none comes twice, wherever it is in the list. */
static void no_address_is_dialled_twice(void **state)
{
    (void)state;
    gsp_known peer = {.contact = test_contact(&P, 0, 1), .answered_s = 5};
    gsp_address list[GSP_CONTACT_ADDRESSES_MAX + 1];
    peer.answered_at = test_loopback(1);
    peer.contact.n_addresses = 4;
    for (uint16_t i = 0; i < 4; i++)
        peer.contact.address[i] = test_loopback((uint16_t)(i % 2 + 1)); /* 1 2 1 2 */
    assert_int_equal(gsp_known_addresses(&peer, list), 2);
    assert_int_equal(list[0].port, 1);
    assert_int_equal(list[1].port, 2);
    peer.answered_at.port = 3;
    assert_int_equal(gsp_known_addresses(&peer, list), 3);
    assert_int_equal(list[0].port, 3);
    peer.answered_s = 0;
    assert_int_equal(gsp_known_addresses(&peer, list), 2);
}

static void our_sequence_only_grows(void **state)
{
    (void)state;
    gsp_peers *book = open_book();
    gsp_peers_raise_sequence(book, 50);
    gsp_peers_raise_sequence(book, 40);
    assert_int_equal(gsp_peers_next_sequence(book, 3), 51);
    gsp_peers_close(&book);
}

/* What the file says of a peer, in full; what is of the future is left out, and one peer is there once. */
static void a_file_keeps_what_is_known(void **state)
{
    (void)state;
    scratch dir;
    const char *path = scratch_path(scratch_open(&dir), "peers");
    gsp_peers *book = open_book(), *back = open_book();
    const uint64_t now = test_now_s();
    const gsp_address at = test_loopback(7), from = test_address("192.0.2.9:5");
    for (unsigned i = 0; i < 4; i++) {
        gsp_contact c = test_contact(&P, i, 3);
        assert_int_equal(gsp_peers_add(book, &c, &from, i == 1 ? now + 301 : now), GSP_PEERS_NEW);
        gsp_peers_answered(book, c.key, &at, i == 2 ? now + 301 : now);
        for (unsigned k = 0; k < i; k++)
            gsp_peers_failed(book, c.key);
    }
    test_must(gsp_peers_save(book, path));
    test_must(gsp_peers_load(back, path, now));
    assert_int_equal(gsp_peers_count(back), 2);
    const gsp_known *kept = gsp_peers_find(back, P.member[3].public_key);
    assert_int_equal(kept->failures, 3);
    assert_true(gsp_address_equal(&kept->from, &from));
    assert_true(gsp_address_equal(&kept->answered_at, &at));
    assert_int_equal(kept->answered_s, now);
    gsp_peers_close(&back);
    /* A contact that is past its own time is kept as long as its member is admitted. */
    gsp_contact late = test_contact(&P, 5, 9);
    late.issued_s = now;
    late.expires_s = now + 60;
    gsp_contact_sign(&late, P.pool, &P.member[5]);
    assert_int_equal(gsp_peers_add(book, &late, NULL, now), GSP_PEERS_NEW);
    test_must(gsp_peers_save(book, path));
    back = open_book();
    test_must(gsp_peers_load(back, path, now + 3000));
    assert_non_null(gsp_peers_find(back, late.key));
    gsp_peers_close(&back);
    gsp_peers_close(&book);
    scratch_close(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_contact_wins),
        cmocka_unit_test(full_book_keeps_who_answered),
        cmocka_unit_test(best_first),
        cmocka_unit_test(senders_host_fills_in),
        cmocka_unit_test(file_there_and_back),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(a_day_is_the_limit_of_a_place),
        cmocka_unit_test(what_is_known_of_each),
        cmocka_unit_test(no_address_is_dialled_twice),
        cmocka_unit_test(our_sequence_only_grows),
        cmocka_unit_test(a_file_keeps_what_is_known),
    };
    test_pool_make(&P, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
