/*
 * Parts that come in pieces from several donors, one of which lies (blame.h, blob.h): whichever piece
 * is false, at whichever boundary, and in whichever order they come, the part is there after a second
 * transfer, the liar is struck, and nobody else is.
 */
#include "gossip/member/blob.h"

#include "gossip/agree/signed.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N_PARTS = 4, PART = 2, DONORS = 3, BYTES_MAX = 4 * GSP_BLOB_PIECE_BYTES };
static const uint64_t SECOND = 1000000000u;

static void take_back(gsp_net *net, void *message)
{
    (void)net;
    (void)message;
}
static const gsp_net_ops ops = {.free = take_back};
static gsp_net net = {.ops = &ops};
static uint32_t right[BYTES_MAX / 4], false_bytes[GSP_BLOB_PIECE_BYTES / 4];
static gsp_blame blame;
static gsp_blob *blob;
static gsp_pieces_of spoiled;
static gsp_hash leaf[N_PARTS], root; /* root: of a result the part's own, else of all parts */
static bool result;
static uint64_t bytes, now;

static gsp_key donor(uint32_t i)
{
    return (gsp_key){{(uint8_t)(i + 1)}};
}

static uint32_t pieces(void)
{
    return (uint32_t)((bytes + GSP_BLOB_PIECE_BYTES - 1) / GSP_BLOB_PIECE_BYTES);
}

static void begin(uint64_t part_bytes, bool is_result)
{
    gsp_blob_close(&blob);
    bytes = part_bytes;
    result = is_result;
    now = 1000 * SECOND;
    memset(&blame, 0, sizeof blame);
    for (uint32_t k = 0; k < BYTES_MAX / 4; k++)
        right[k] = k * 2654435761u;
    memset(leaf, 7, sizeof leaf);
    gsp_merkle_leaf(PART, right, bytes, &leaf[PART]);
    root = leaf[PART];
    if (!is_result)
        gsp_merkle_root(leaf, N_PARTS, &root);
}

/* A member takes piece k from donor i, as node_net.c does; false_path: only its proof is false. */
static gsp_blob_news take(uint32_t i, uint32_t k, bool is_false, bool false_path, bool asked)
{
    gsp_key from = donor(i);
    gsp_hash hash[GSP_BLOB_PIECES_MAX];
    bool taken = false;
    gsp_piece p = {.root = root, .is_result = result, .part = PART, .sequence = k};
    p.part_bytes = bytes;
    p.offset = (uint64_t)k * GSP_BLOB_PIECE_BYTES;
    p.bytes = bytes - p.offset < GSP_BLOB_PIECE_BYTES ? bytes - p.offset : GSP_BLOB_PIECE_BYTES;
    if (!result && k + 1 == pieces())
        p.n_path = gsp_merkle_path(leaf, N_PARTS, PART, p.path);
    p.path[0].byte[3] ^= false_path;
    gsp_blame_word word = gsp_blame_piece(&blame, &root, PART, &from, asked, now);
    if (word == GSP_BLAME_LEAVE)
        return GSP_BLOB_FULL;
    if (word == GSP_BLAME_TAKE_ANEW)
        gsp_blob_close(&blob);
    if (!gsp_blob_lacks(blob, k))
        return GSP_BLOB_GROWS;
    const uint8_t *body = is_false ? (uint8_t *)false_bytes : (uint8_t *)right + p.offset;
    gsp_blob_news news =
        gsp_blob_add(&blob, &p, &from, N_PARTS, body, &net, &net, &taken, &spoiled);
    if (news == GSP_BLOB_FALSE)
        (void)gsp_blame_false(&blame, &root, PART, &spoiled, now);
    if (news == GSP_BLOB_WHOLE && gsp_blame_awaits(&blame, &root, PART))
        gsp_blame_right(&blame, &root, PART, hash, gsp_blob_hashes(blob, hash), now);
    return news;
}

static uint32_t strikes_of(uint32_t i)
{
    gsp_key key = donor(i);
    for (uint32_t k = 0; k < GSP_BLAME_PEERS; k++)
        if (blame.peer[k].strikes && gsp_key_compare(&blame.peer[k].key, &key) == 0)
            return blame.peer[k].strikes;
    return 0;
}

/* The part is there, and who is struck for it. */
static void ends(uint32_t liar, uint32_t strikes)
{
    assert_true(blob && blob->whole && blob->bytes == bytes);
    assert_memory_equal(blob->data, right, bytes);
    for (uint32_t i = 0; i < DONORS; i++)
        assert_int_equal(strikes_of(i), i == liar ? strikes : 0);
    assert_false(gsp_blame_awaits(&blame, &root, PART));
    gsp_blob_close(&blob);
}

/* Piece `k` comes false from donor 1, all others from 0 and 2; then donor 0 alone sends all. */
static void one_is_false(uint32_t k, bool false_path)
{
    for (uint32_t order = 0; order < 2; order++) {
        gsp_blob_news news = GSP_BLOB_GROWS;
        memset(&blame, 0, sizeof blame);
        for (uint32_t t = 0; t < pieces(); t++) {
            uint32_t s = order ? pieces() - 1 - t : t;
            news =
                take(s == k ? 1 : s % 2 * 2, s, s == k && !false_path, s == k && false_path, true);
        }
        assert_int_equal(news, GSP_BLOB_FALSE);
        assert_int_equal(blame.n_wrong, pieces() == 1 ? 1 : 0);
        assert_int_equal(take(1, 0, true, false, false), GSP_BLOB_FULL); /* unasked: not heard */
        for (uint32_t s = 0; s < pieces(); s++) {
            news = take(0, s, false, false, true);
            if (s + 1 < pieces()) /* one at a time */
                assert_int_equal(take(1, s, true, false, true), GSP_BLOB_FULL);
        }
        assert_int_equal(news, GSP_BLOB_WHOLE);
        ends(1, 1);
    }
}

static void the_liar_is_told_apart(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {GSP_BLOB_PIECE_BYTES - 4,     GSP_BLOB_PIECE_BYTES,
                                     GSP_BLOB_PIECE_BYTES + 4,     2 * GSP_BLOB_PIECE_BYTES,
                                     3 * GSP_BLOB_PIECE_BYTES + 8, BYTES_MAX};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t kind = 0; kind < 2; kind++) {
            begin(sizes[i], kind);
            for (uint32_t k = 0; k < pieces(); k++)
                one_is_false(k, false);
            if (!result)
                one_is_false(pieces() - 1, true);
        }
}

/* Asked alone, the liar is known at once, and not asked for this again; another one is. */
static void a_liar_alone_is_known_at_once(void **state)
{
    (void)state;
    begin(3 * GSP_BLOB_PIECE_BYTES, true);
    gsp_key liar = donor(1), other = donor(2);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(take(1, k, k == 1, false, true), k < 2 ? GSP_BLOB_GROWS : GSP_BLOB_FALSE);
    assert_int_equal(strikes_of(1), 1);
    assert_false(gsp_blame_may_ask(&blame, &root, PART, &liar, now));
    assert_true(gsp_blame_may_ask(&blame, &root, PART, &other, now));
    assert_int_equal(take(1, 0, false, false, true), GSP_BLOB_FULL);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(take(2, k, false, false, true), k < 2 ? GSP_BLOB_GROWS : GSP_BLOB_WHOLE);
    ends(1, 1);
}

/* The one that is listened to alone says nothing, or drips: another has its turn. */
static void nobody_is_waited_for_without_end(void **state)
{
    (void)state;
    for (uint32_t drips = 0; drips < 2; drips++) {
        begin(4 * GSP_BLOB_PIECE_BYTES, true);
        for (uint32_t k = 0; k < 4; k++)
            (void)take(k % 2, k, k == 1, false, true);
        assert_int_equal(take(1, 0, false, false, true), GSP_BLOB_GROWS);
        for (uint32_t t = 0; t < (drips ? 30 : 2); t++) {
            now += 2 * SECOND;
            if (drips)
                (void)take(1, 0, false, false, true);
            else
                assert_int_equal(take(2, 0, false, false, true),
                                 t ? GSP_BLOB_GROWS : GSP_BLOB_FULL);
        }
        now += SECOND;
        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(take(2, k, false, false, true),
                             k < 3 ? GSP_BLOB_GROWS : GSP_BLOB_WHOLE);
        ends(1, 1);
    }
}

static void a_few_strikes_end_it_for_a_while(void **state)
{
    (void)state;
    begin(1000, true);
    gsp_key liar = donor(1), honest = donor(0);
    for (uint32_t k = 0; k < GSP_BLAME_STRIKES; k++) {
        assert_false(gsp_blame_refuses(&blame, &liar, now));
        root.byte[5]++; /* another part each time */
        assert_int_equal(take(1, 0, true, false, true), GSP_BLOB_FALSE);
    }
    root = leaf[PART];
    assert_true(gsp_blame_refuses(&blame, &liar, now));
    assert_int_equal(take(1, 0, false, false, true), GSP_BLOB_FULL);
    assert_false(gsp_blame_refuses(&blame, &honest, now));
    now += 601 * SECOND;
    assert_false(gsp_blame_refuses(&blame, &liar, now));
    now += 3601 * SECOND; /* an hour later one more is a first one again */
    gsp_blame_strike(&blame, &liar, now);
    assert_int_equal(strikes_of(1), 1);
}

/* Tables stay as large as they are, and what is oldest makes room. */
static void tables_do_not_grow(void **state)
{
    (void)state;
    begin(1000, true);
    gsp_key first = donor(0);
    gsp_blame_strike(&blame, &first, now);
    for (uint32_t k = 0; k < 3 * GSP_BLAME_PEERS; k++) {
        gsp_key key = {{9, (uint8_t)k, (uint8_t)(k >> 8)}};
        gsp_blame_strike(&blame, &key, ++now);
    }
    assert_int_equal(strikes_of(0), 0);
    gsp_pieces_of of = {.n = 1, .from = {{{3}}}};
    for (uint32_t k = 0; k < 3 * GSP_BLAME_PARTS; k++) {
        gsp_hash other = {{(uint8_t)k, 1}};
        (void)gsp_blame_false(&blame, &other, PART, &of, ++now);
        assert_true(gsp_blame_awaits(&blame, &other, PART));
    }
    gsp_hash oldest = {{0, 1}};
    assert_false(gsp_blame_awaits(&blame, &oldest, PART));
}

int main(void)
{
    memset(false_bytes, 0x5a, sizeof false_bytes);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_liar_is_told_apart),
        cmocka_unit_test(a_liar_alone_is_known_at_once),
        cmocka_unit_test(nobody_is_waited_for_without_end),
        cmocka_unit_test(a_few_strikes_end_it_for_a_while),
        cmocka_unit_test(tables_do_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
