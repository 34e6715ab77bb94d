/*
 * A part on its way in (blob.h): pieces in any order, each once; whole only when its bytes are what
 * its hash says; and a message's memory goes back to the transport exactly once.
 */
#include "gossip/member/recent_results.h"

#include "atom/base/mem.h"
#include "gossip/agree/signed.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N_PARTS = 4, PART = 2, PIECES = 3, BYTES = 2 * GSP_BLOB_PIECE_BYTES + 1000 };

static unsigned freed;
static void take_back(gsp_net *net, void *data)
{
    (void)net;
    (void)data;
    freed++;
}
static const gsp_net_ops ops = {.free = take_back};
static gsp_net net = {.ops = &ops};
static gsp_key sender;
static gsp_pieces_of spoiled;
static uint32_t data[BYTES / 4]; /* aligned, as messages are */

static int setup(void **state)
{
    (void)state;
    freed = 0;
    for (uint32_t k = 0; k < BYTES / 4; k++)
        data[k] = k * 2654435761u;
    return 0;
}

/* Piece k of `bytes` of data as a result. */
static gsp_piece result_piece(uint64_t bytes, uint32_t k)
{
    gsp_piece p = {.is_result = true, .part = PART, .sequence = k, .part_bytes = bytes};
    gsp_merkle_leaf(PART, data, bytes, &p.root);
    p.offset = (uint64_t)k * GSP_BLOB_PIECE_BYTES;
    p.bytes = bytes - p.offset < GSP_BLOB_PIECE_BYTES ? bytes - p.offset : GSP_BLOB_PIECE_BYTES;
    return p;
}

static gsp_blob_news add(gsp_blob **b, const gsp_piece *p, const void *body, bool *taken)
{
    *taken = false;
    return gsp_blob_add(b, p, &sender, N_PARTS, body, &net, (void *)(uintptr_t)body, taken,
                        &spoiled);
}

static void pieces_come_in_any_order(void **unused)
{
    (void)unused;
    gsp_blob *b = NULL;
    bool taken;
    static const uint32_t order[PIECES] = {2, 0, 1};
    for (uint32_t k = 0; k < PIECES; k++) {
        gsp_piece p = result_piece(BYTES, order[k]);
        assert_true(gsp_blob_lacks(b, order[k]));
        assert_int_equal(add(&b, &p, (const uint8_t *)data + p.offset, &taken),
                         k + 1 < PIECES ? GSP_BLOB_GROWS : GSP_BLOB_WHOLE);
        assert_false(taken);
        assert_false(gsp_blob_lacks(b, order[k]));
    }
    assert_true(b->whole && b->bytes == BYTES);
    assert_memory_equal(b->data, data, BYTES);
    gsp_blob_close(&b);
    assert_null(b);
    assert_int_equal(freed, 0);
}

static void one_piece_stays_in_its_message(void **unused)
{
    (void)unused;
    gsp_blob *b = NULL;
    bool taken;
    gsp_piece p = result_piece(4096, 0);
    assert_int_equal(add(&b, &p, data, &taken), GSP_BLOB_WHOLE);
    assert_true(taken);
    assert_ptr_equal(b->data, data);
    gsp_blob_close(&b);
    assert_int_equal(freed, 1);
}

static void false_bytes_are_dropped(void **unused)
{
    (void)unused;
    gsp_blob *b = NULL;
    bool taken;
    gsp_piece p = result_piece(4096, 0);
    data[7] ^= 1;
    assert_int_equal(add(&b, &p, data, &taken), GSP_BLOB_FALSE);
    assert_null(b);
    assert_false(taken);
    assert_int_equal(freed, 0); /* the caller gives the message back */
}

static void a_contribution_needs_its_path(void **unused)
{
    (void)unused;
    gsp_hash leaf[N_PARTS] = {{{1}}, {{2}}, {{0}}, {{4}}};
    gsp_piece p = {.part = PART, .part_bytes = 4096, .bytes = 4096};
    gsp_blob *b = NULL;
    bool taken;
    gsp_merkle_leaf(PART, data, 4096, &leaf[PART]);
    gsp_merkle_root(leaf, N_PARTS, &p.root);
    assert_int_equal(add(&b, &p, data, &taken), GSP_BLOB_FALSE);
    p.n_path = gsp_merkle_path(leaf, N_PARTS, PART, p.path);
    assert_int_equal(add(&b, &p, data, &taken), GSP_BLOB_WHOLE);
    gsp_blob_close(&b);
}

/* Offsets and lengths of encoded parts: side by side, the last ones shorter or empty. */
static void parts_lie_side_by_side(void **unused)
{
    (void)unused;
    const uint64_t n_floats[] = {5 * GSP_INT8_BLOCK + 3, 100};
    for (uint32_t c = 0; c < GSP_CODEC_N; c++) {
        gsp_terms t = {.codec = (gsp_codec)c, .n_parts = 4, .n_fragments = 2, .n_floats = n_floats};
        for (uint64_t v = 0; v < 2; v++) {
            uint64_t end = 0, floats = 0, first;
            for (uint32_t p = 0; p < t.n_parts; p++) {
                uint64_t bytes = gsp_terms_bytes(&t, v, p);
                assert_int_equal(gsp_terms_offset(&t, v, p), bytes ? end : 0);
                end += bytes;
                floats += gsp_terms_floats(&t, v, p, &first);
            }
            assert_int_equal(floats, n_floats[v]);
            assert_true(end <= gsp_terms_all_bytes(&t, v));
        }
        assert_int_equal(gsp_terms_floats_max(&t), 2 * GSP_INT8_BLOCK);
    }
}

/* An owner that sends ever new results of its part before it says which one it means fills neither
 * memory nor disk, and begins anew with the next ballot. */
static void results_before_the_word_are_few(void **unused)
{
    (void)unused;
    static gsp_recent held;
    for (uint32_t ballot = 1; ballot <= 3; ballot++) {
        uint32_t n = 0;
        for (; n < 1000 && gsp_recent_wants_unsaid(&held, ballot, PART); n++)
            gsp_recent_count_unsaid(&held, ballot, PART);
        assert_int_equal(n, GSP_HELD_UNSAID_MAX);
        assert_true(gsp_recent_wants_unsaid(&held, ballot, PART + 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pieces_come_in_any_order, setup),
        cmocka_unit_test_setup(one_piece_stays_in_its_message, setup),
        cmocka_unit_test_setup(false_bytes_are_dropped, setup),
        cmocka_unit_test_setup(a_contribution_needs_its_path, setup),
        cmocka_unit_test(results_before_the_word_are_few),
        cmocka_unit_test(parts_lie_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
