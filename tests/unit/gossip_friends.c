/*
 * What goes out, to whom, in which order (friends.h): contributions before results, a turn for
 * every peer, nothing twice, nothing beyond what a full link takes. And when a result that does not
 * come is asked for (pulls.h).
 */
#include "gossip/member/friends.h"
#include "gossip/member/pulls.h"

#include "atom/base/mem.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SENT_MAX = 64 };

static struct {
    uint8_t to;
    gsp_net_channel channel;
    gsp_message_kind kind;
    bool is_result;
    uint32_t part, sequence;
} sent[SENT_MAX];
static uint32_t n_sent;
static bool full[256][GSP_NET_CHANNEL_N];
static gsp_message *message;

static gsp_net_sent record(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                           const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    static const gsp_key from;
    uint8_t whole[GSP_WIRE_BYTES_MAX];
    size_t bytes;
    (void)net;
    if (full[key[0]][channel])
        return GSP_NET_BUSY;
    assert_true(n_sent < SENT_MAX);
    sent[n_sent].to = key[0];
    sent[n_sent].channel = channel;
    if (channel == GSP_NET_BULK) { /* the body follows the head */
        uint8_t *all = atom_alloc(1, head_bytes + body_bytes);
        assert_non_null(all);
        memcpy(all, head, head_bytes);
        memcpy(all + head_bytes, body, body_bytes);
        assert_true(gsp_wire_decode(all, head_bytes + body_bytes, &from, message, &body, &bytes));
        atom_free(all);
    } else {
        memcpy(whole, head, head_bytes);
        assert_true(gsp_wire_decode(whole, head_bytes, &from, message, NULL, NULL));
    }
    sent[n_sent].kind = message->kind;
    sent[n_sent].is_result = message->as.piece.is_result;
    sent[n_sent].part = message->as.piece.part;
    sent[n_sent++].sequence = message->as.piece.sequence;
    return GSP_NET_SENT;
}

static const gsp_net_ops ops = {.send = record};
static gsp_net net = {.ops = &ops};
static gsp_agree *agree;
static gsp_friends *friends;
static gsp_friend *peer[2];
static const gsp_hash root = {{7}};

static int setup(void **state)
{
    (void)state;
    n_sent = 0;
    memset(full, 0, sizeof full);
    message = atom_alloc(1, sizeof *message);
    agree = atom_alloc(1, sizeof *agree);
    friends = atom_alloc(1, sizeof *friends);
    agree->self.incarnation = 1;
    gsp_friends_open(friends, &net, agree, GSP_CODEC_FP32);
    for (uint8_t i = 0; i < 2; i++) {
        const gsp_key key = {{(uint8_t)(i + 1)}};
        peer[i] = gsp_friends_up(friends, &key);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gsp_friends_close(friends);
    atom_free(friends);
    atom_free(agree);
    atom_free(message);
    return 0;
}

/* Every part has two pieces; part 9 is gone. */
static bool find(void *context, const gsp_outgoing *what, gsp_exhibit *out)
{
    static const uint8_t bytes[2 * GSP_BLOB_PIECE_BYTES];
    (void)context;
    *out = (gsp_exhibit){.data = bytes, .bytes = GSP_BLOB_PIECE_BYTES + 100};
    return what->part != 9;
}

static void contributions_go_first_and_peers_take_turns(void **unused)
{
    (void)unused;
    gsp_friends_send_result(peer[0], 5, 3, &root);
    gsp_friends_send_part(peer[0], 5, 1, &root);
    gsp_friends_send_part(peer[1], 5, 2, &root);
    assert_true(gsp_friends_is_busy(friends));
    assert_false(gsp_friends_pump(friends, find, NULL));
    assert_int_equal(n_sent, 6);
    uint32_t next[2] = {0, 0};
    for (uint32_t k = 0; k < n_sent; k++) {
        static const uint32_t part[2][4] = {{1, 1, 3, 3}, {2, 2, 0, 0}};
        uint32_t i = sent[k].to - 1u, at = next[i]++;
        assert_int_equal(sent[k].part, part[i][at]);
        assert_int_equal(sent[k].sequence, at % 2);
        assert_int_equal(sent[k].is_result, sent[k].part == 3);
    }
    assert_int_not_equal(sent[0].to, sent[1].to);
    assert_int_equal(sent[1].to, sent[2].to); /* the next round begins with the next peer */
    assert_false(gsp_friends_is_busy(friends));
}

static void nothing_waits_twice_and_what_is_gone_is_skipped(void **unused)
{
    (void)unused;
    gsp_friends_send_result(peer[0], 5, 9, &root);
    gsp_friends_send_result(peer[0], 5, 3, &root);
    gsp_friends_send_result(peer[0], 5, 3, &root);
    (void)gsp_friends_pump(friends, find, NULL);
    assert_int_equal(n_sent, 2);
    gsp_friends_send_part(peer[0], 5, 1, &root);
    gsp_friends_send_result(peer[0], 5, 4, &root);
    gsp_friends_forget_parts(friends);
    (void)gsp_friends_pump(friends, find, NULL);
    assert_int_equal(n_sent, 4);
    assert_int_equal(sent[2].part, 4);
}

/* So many wait for a peer and no more; the same bytes of another version wait beside each other. */
static void what_waits_is_bounded(void **unused)
{
    (void)unused;
    assert_true(gsp_friends_send_result(peer[0], 5, 1, &root));
    assert_true(gsp_friends_send_result(peer[0], 6, 1, &root));
    assert_false(gsp_friends_send_result(peer[0], 6, 1, &root));
    for (uint32_t i = 2; i < GSP_QUEUE_MAX; i++)
        assert_true(gsp_friends_send_result(peer[0], 7, i, &root));
    for (uint32_t i = 0; i < 5; i++)
        assert_false(gsp_friends_send_result(peer[0], 8, i, &root));
    assert_int_equal(peer[0]->results.n, GSP_QUEUE_MAX);
    assert_int_equal(peer[0]->results.item[0].version, 5);
}

static void a_full_link_keeps_its_place(void **unused)
{
    (void)unused;
    gsp_friends_send_part(peer[0], 5, 1, &root);
    full[1][GSP_NET_BULK] = true;
    (void)gsp_friends_pump(friends, find, NULL);
    assert_int_equal(n_sent, 0);
    assert_true(peer[0]->busy[GSP_NET_BULK]);
    full[1][GSP_NET_BULK] = false;
    (void)gsp_friends_pump(friends, find, NULL);
    assert_int_equal(n_sent, 0); /* until its ROOM event */
    peer[0]->busy[GSP_NET_BULK] = false;
    (void)gsp_friends_pump(friends, find, NULL);
    assert_int_equal(n_sent, 2);
    assert_int_equal(sent[0].sequence, 0);
}

static void letters_keep_their_order(void **unused)
{
    (void)unused;
    static const gsp_message_kind kind[] = {GSP_STATE_ASK, GSP_PULL, GSP_ASK};
    full[1][GSP_NET_CONTROL] = true;
    for (uint32_t k = 0; k < 3; k++) {
        gsp_friends_tell(friends, peer[0], gsp_friends_draft(friends, kind[k]));
        full[1][GSP_NET_CONTROL] = false; /* the link has room again, but a letter waits */
        peer[0]->busy[GSP_NET_CONTROL] = false;
    }
    assert_int_equal(n_sent, 0);
    (void)gsp_friends_pump(friends, find, NULL);
    assert_int_equal(n_sent, 3);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(sent[k].kind, kind[k]);
}

static void letters_are_bounded(void **unused)
{
    (void)unused;
    full[1][GSP_NET_CONTROL] = true;
    gsp_friends_tell(friends, peer[0], gsp_friends_draft(friends, GSP_STATE_ASK));
    for (uint32_t k = 0; k < 300; k++)
        gsp_friends_tell(friends, peer[0], gsp_friends_draft(friends, GSP_PULL));
    assert_int_equal(peer[0]->n_letters, 256);
    uint64_t before = peer[0]->link, other = peer[1]->link;
    gsp_friends_down(peer[0]);
    assert_int_equal(peer[0]->n_letters, 0);
    const gsp_key gone = {{1}};
    assert_null(gsp_friends_find(friends, &gone));
    peer[0] = gsp_friends_up(friends, &gone); /* the same place, another link */
    assert_true(peer[0]->link > other && other > before && before > 0);
}

/* ---- pulls ---- */

static const uint64_t SECOND = 1000000000u;

/* Sixteen times a fragment in a version, whoever asks; a new version is a new page. */
static void pulls_are_bounded(void **unused)
{
    (void)unused;
    const uint64_t fragment = 100 << 20, part = 4 << 20;
    uint64_t n = 0;
    gsp_friends_bound(friends, fragment);
    for (; gsp_friends_may_pull(friends, peer[0], part); n++)
        gsp_friends_pulls(friends, peer[0], part);
    assert_int_equal(n, 16 * fragment / part);
    gsp_friends_down(peer[0]);
    peer[0] = gsp_friends_up(friends, &(gsp_key){{1}});
    assert_false(gsp_friends_may_pull(friends, peer[0], part)); /* the same key */
    assert_true(gsp_friends_may_pull(friends, peer[1], part));
    agree->certified++;
    assert_true(gsp_friends_may_pull(friends, peer[0], part));
    /* What waits already is not queued, so it is not counted either. */
    assert_true(gsp_friends_send_result(peer[0], 5, 3, &root));
    assert_false(gsp_friends_send_result(peer[0], 5, 3, &root));
    assert_true(gsp_friends_send_exhibit(peer[0], 5, 4, &root));
    assert_false(gsp_friends_send_exhibit(peer[0], 5, 4, &root));
}

static void a_result_is_not_asked_for_too_soon(void **unused)
{
    (void)unused;
    const gsp_key a = {{1}}, b = {{2}};
    const gsp_pull_case mine = {.takes_part = true}, stranger = {0};
    gsp_pulls p = {0};
    uint64_t now = 100 * SECOND;
    assert_false(gsp_pulls_ask(&p, 3, &a, &mine, now)); /* it may come unasked */
    assert_false(gsp_pulls_ask(&p, 3, &a, &mine, now + SECOND / 2));
    assert_false(gsp_pulls_ask(&p, 3, NULL, &mine, now + SECOND));
    assert_true(gsp_pulls_ask(&p, 3, &a, &mine, now + SECOND));
    assert_int_equal(gsp_pulls_last(&p, 3)->byte[0], 1);
    assert_false(gsp_pulls_ask(&p, 3, &b, &mine, now + SECOND + SECOND / 5));
    assert_true(gsp_pulls_ask(&p, 3, &b, &mine, now + SECOND + SECOND / 3)); /* it is silent */
    const gsp_pull_case sends = {.takes_part = true, .last_ns = now + 2 * SECOND};
    assert_false(gsp_pulls_ask(&p, 3, &a, &sends, now + 2 * SECOND)); /* it sends something */
    assert_true(gsp_pulls_ask(&p, 3, &a, &sends, now + 3 * SECOND));
    assert_true(gsp_pulls_ask(&p, 4, &a, &stranger, now)); /* nothing comes by itself */
    gsp_pulls_clear(&p);
    assert_false(gsp_pulls_ask(&p, 3, &a, &mine, now + 9 * SECOND));
}

static void an_owner_that_sends_is_waited_for(void **unused)
{
    (void)unused;
    const gsp_key a = {{1}};
    gsp_pulls p = {0};
    uint64_t now = 100 * SECOND;
    const gsp_pull_case owner = {.owner_ns = now};
    assert_false(gsp_pulls_ask(&p, 0, &a, &owner, now + 2 * SECOND));
    assert_true(gsp_pulls_ask(&p, 0, &a, &owner, now + 3 * SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(contributions_go_first_and_peers_take_turns, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_waits_twice_and_what_is_gone_is_skipped, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_waits_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_link_keeps_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(letters_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(letters_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(pulls_are_bounded, setup, teardown),
        cmocka_unit_test(a_result_is_not_asked_for_too_soon),
        cmocka_unit_test(an_owner_that_sends_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
