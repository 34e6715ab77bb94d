/*
 * A member's own contribution (freezing.h): what is sent is what the root stands for, before and
 * after the version is applied; residuals change only where it was included; a work that needs time
 * is asked again. And the results that it holds (recent_results.h), in memory and on disk.
 */
#include "gossip/member/freezing.h"
#include "gossip/member/recent_results.h"

#include "atom/base/mem.h"
#include "tests/scratch.h"

#include <math.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PARTS = 8, FLOATS = 5 * GSP_INT8_BLOCK + 7 };

static const uint64_t n_floats[] = {FLOATS};
static float x[FLOATS];
static gsp_freeze answer;
static unsigned asked;

static gsp_freeze freeze(void *context, uint64_t version, const float **out, uint64_t *tokens,
                         uint64_t *samples)
{
    (void)context;
    asked++;
    *out = x;
    *tokens = 10 + version;
    *samples = 3;
    return answer;
}

static const gsp_work averages = {.freeze = freeze};
static const gsp_rates rates = {5, 6, true};
static gsp_terms terms;
static gsp_freezing f;

static void open_as(gsp_codec codec)
{
    terms = (gsp_terms){.codec = codec, .n_parts = PARTS, .n_fragments = 1, .n_floats = n_floats};
    for (uint32_t k = 0; k < FLOATS; k++)
        x[k] = sinf((float)k) / 3;
    answer = GSP_FREEZE_READY;
    asked = 0;
    gsp_freezing_open(&f, &terms, &averages, NULL);
}

static unsigned turns_until_done(uint64_t version)
{
    unsigned n = 0;
    for (bool done = false; !done; n++)
        assert_int_equal(gsp_freezing_some(&f, version, &rates, &done), ATOM_OK);
    return n;
}

static void check_exhibits(uint64_t version, const gsp_hash *root)
{
    gsp_hash leaf;
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < PARTS; p++) {
        gsp_exhibit e = {0};
        assert_true(gsp_freezing_exhibit(&f, version, root, p, &e));
        gsp_merkle_leaf(p, e.data, e.bytes, &leaf);
        assert_true(gsp_merkle_check(root, PARTS, p, &leaf, e.path, e.n_path));
        bytes += e.bytes;
    }
    assert_int_equal(bytes, gsp_codec_bytes(terms.codec, FLOATS));
}

static void the_root_stands_for_the_parts(void **unused)
{
    (void)unused;
    for (uint32_t c = 0; c < GSP_CODEC_N; c++) {
        open_as((gsp_codec)c);
        assert_int_equal(gsp_freezing_begin(&f, 7), ATOM_OK);
        assert_true(gsp_freezing_is_busy(&f));
        assert_true(turns_until_done(7) > 1);
        const gsp_hash root = f.contribution.root;
        assert_false(gsp_hash_none(&root));
        assert_int_equal(f.contribution.tokens, 17);
        assert_int_equal(f.contribution.rates.down_bytes_per_s, 6);
        check_exhibits(7, &root);
        assert_null(gsp_freezing_part(&f, 8, &root, 0));
        gsp_freezing_keep(&f, 7, true);
        x[0] += 1; /* the work goes on */
        assert_int_equal(gsp_freezing_begin(&f, 8), ATOM_OK);
        (void)turns_until_done(8);
        check_exhibits(7, &root);
        gsp_freezing_keep(&f, 9, true); /* nothing was contributed to 9 */
        gsp_exhibit e;
        assert_false(gsp_freezing_exhibit(&f, 7, &root, 0, &e));
        gsp_freezing_close(&f);
    }
}

static void a_work_that_needs_time_is_asked_again(void **unused)
{
    (void)unused;
    bool done;
    open_as(GSP_CODEC_BF16);
    answer = GSP_FREEZE_LATER;
    assert_int_equal(gsp_freezing_begin(&f, 7), ATOM_OK);
    assert_int_equal(gsp_freezing_some(&f, 7, &rates, &done), ATOM_OK);
    assert_false(done || gsp_freezing_is_busy(&f));
    assert_int_equal(asked, 2);
    answer = GSP_FREEZE_READY;
    (void)turns_until_done(7);
    assert_false(gsp_hash_none(&f.contribution.root));
    answer = GSP_FREEZE_LATER;
    assert_int_equal(gsp_freezing_begin(&f, 8), ATOM_OK);
    assert_int_equal(gsp_freezing_some(&f, 9, &rates, &done), ATOM_OK); /* decided without it */
    assert_false(done || f.on);
    answer = GSP_FREEZE_NOTHING;
    assert_int_equal(gsp_freezing_begin(&f, 9), ATOM_OK);
    (void)turns_until_done(9);
    assert_true(gsp_hash_none(&f.contribution.root));
    gsp_freezing_close(&f);
}

static void what_is_not_finite_is_not_sent(void **unused)
{
    (void)unused;
    open_as(GSP_CODEC_FP32);
    x[FLOATS - 1] = NAN;
    assert_int_equal(gsp_freezing_begin(&f, 7), ATOM_OK);
    (void)turns_until_done(7);
    assert_true(gsp_hash_none(&f.contribution.root));
    gsp_freezing_close(&f);
}

/* Two contributions of the same floats differ by what the first one lost, where that was kept. */
static void residuals_follow_what_was_included(void **unused)
{
    (void)unused;
    gsp_proposal *p = atom_alloc(1, sizeof *p);
    gsp_hash before[PARTS];
    open_as(GSP_CODEC_INT8);
    assert_int_equal(gsp_freezing_begin(&f, 7), ATOM_OK);
    (void)turns_until_done(7);
    memcpy(before, f.leaf, sizeof before);
    p->version = 7;
    p->n_contributors = 2;
    assert_int_equal(gsp_freezing_find(&f, p), GSP_NOBODY);
    p->contributor[1].root = f.contribution.root;
    assert_int_equal(gsp_freezing_find(&f, p), 1);
    gsp_freezing_included(&f, 1);
    assert_int_equal(gsp_freezing_begin(&f, 8), ATOM_OK);
    (void)turns_until_done(8);
    for (uint32_t k = 0; k < PARTS; k++)
        assert_int_equal(gsp_hash_equal(&before[k], &f.leaf[k]), k != 1);
    gsp_freezing_drop_lost(&f);
    assert_true(f.done);
    assert_int_equal(gsp_freezing_begin(&f, 9), ATOM_OK);
    (void)turns_until_done(9);
    assert_true(gsp_hash_equal(&before[1], &f.leaf[1]));
    gsp_freezing_included(&f, 1);
    gsp_freezing_forget(&f);
    assert_int_equal(gsp_freezing_begin(&f, 10), ATOM_OK);
    (void)turns_until_done(10);
    assert_true(gsp_hash_equal(&before[1], &f.leaf[1]));
    gsp_freezing_close(&f);
    atom_free(p);
}

/* Of the same contributions, some of them included in part, some given up, some from the beginning. */
static void residuals_on_disk_are_those_in_memory(void **unused)
{
    (void)unused;
    enum { F = 3 };
    static const uint64_t n[F] = {FLOATS, FLOATS - 4000, FLOATS - 9000};
    static const gsp_work on_disk = {.freeze = freeze, .on_disk = true};
    gsp_freezing m = {0}, d = {0};
    scratch place;
    bool done;
    scratch_open(&place);
    open_as(GSP_CODEC_INT8);
    terms.n_fragments = F;
    terms.n_floats = n;
    gsp_freezing_open(&m, &terms, &averages, place.dir);
    gsp_freezing_open(&d, &terms, &on_disk, place.dir);
    for (uint64_t v = 1; v <= 40; v++) {
        for (uint32_t k = 0; k < FLOATS; k++)
            x[k] = sinf((float)(k * v)) / 3;
        for (int again = 0; again <= (v % 7 == 0); again++) { /* another ballot asks anew */
            x[5] += (float)again;
            assert_int_equal(gsp_freezing_begin(&m, v), ATOM_OK);
            assert_int_equal(gsp_freezing_begin(&d, v), ATOM_OK);
            for (done = false; !done;)
                assert_int_equal(gsp_freezing_some(&m, v, &rates, &done), ATOM_OK);
            for (done = false; !done;)
                assert_int_equal(gsp_freezing_some(&d, v, &rates, &done), ATOM_OK);
        }
        assert_memory_equal(m.leaf, d.leaf, sizeof m.leaf);
        for (uint32_t p = 0; p < PARTS; p++) {
            if ((v * 5 + p) % 3 == 0)
                continue;
            gsp_freezing_included(&m, p);
            gsp_freezing_included(&d, p);
            if (p % 2) /* said twice */
                gsp_freezing_included(&d, p);
        }
        if (v == 20) {
            gsp_freezing_forget(&m);
            gsp_freezing_forget(&d);
        }
    }
    gsp_freezing_close(&m);
    gsp_freezing_close(&d);
    gsp_freezing_close(&f);
    scratch_close(&place);
}

/* The disk is full, or gone: an error, and no contribution. */
static void residuals_without_a_disk_fail(void **unused)
{
    (void)unused;
    static const gsp_work on_disk = {.freeze = freeze, .on_disk = true};
    open_as(GSP_CODEC_INT8);
    gsp_freezing_open(&f, &terms, &on_disk, "/nowhere/at/all");
    assert_int_equal(gsp_freezing_begin(&f, 1), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "/nowhere/at/all"));
    gsp_freezing_close(&f);
}

/* ---- results ---- */

static gsp_recent *held;
static gsp_agree *agree;

/* A result of part 0 of the version in progress; its bytes are `fill`. */
static gsp_hash bring(uint8_t fill)
{
    uint8_t bytes[100];
    gsp_hash hash;
    memset(bytes, fill, sizeof bytes);
    gsp_merkle_leaf(0, bytes, sizeof bytes, &hash);
    gsp_exhibit e = {.data = bytes, .bytes = sizeof bytes};
    gsp_blob **place = gsp_recent_place(held, agree, agree->certified + 1, 0, &hash);
    if (!place) {
        memset(&hash, 0, sizeof hash);
        return hash;
    }
    *place = gsp_blob_copy(&hash, &e);
    assert_int_equal(gsp_recent_keep(held, agree, agree->certified + 1, 0, *place), ATOM_OK);
    return hash;
}

static void results_outlive_their_version(void **unused)
{
    (void)unused;
    scratch place;
    held = atom_alloc(1, sizeof *held);
    agree = atom_alloc(1, sizeof *agree);
    scratch_open(&place);
    assert_int_equal(gsp_recent_open(held, place.dir, 4), ATOM_OK);
    agree->certified = agree->applied = 7;
    gsp_hash hash = bring(1);
    assert_non_null(gsp_recent_fresh(held, 0, &hash));
    uint64_t bytes = 0;
    assert_true(gsp_recent_has(held, 0, &hash, &bytes) && bytes == 100);
    gsp_recent_rotate(held, true);
    agree->certified = 8;
    assert_null(gsp_recent_fresh(held, 0, &hash));
    gsp_blob *b = gsp_recent_find(held, 0, &hash);
    assert_non_null(b);
    assert_ptr_equal(b, held->certified[0][0]);
    (void)bring(2); /* version 8 is not applied: what applies it is still needed */
    assert_non_null(held->certified[0][0]);
    agree->applied = 8;
    (void)bring(3); /* takes the memory of the one before it, which is on disk */
    assert_null(held->certified[0][0]);
    bytes = 0; /* to know that it is there costs no reading */
    assert_true(gsp_recent_has(held, 0, &hash, &bytes) && bytes == 100);
    for (uint32_t k = 0; k < GSP_HELD_OLD; k++)
        assert_null(held->old[k]);
    assert_false(gsp_recent_has(held, 1, &hash, &bytes));
    assert_false(gsp_recent_has(held, GSP_PARTS_MAX, &hash, &bytes));
    b = gsp_recent_find(held, 0, &hash);
    assert_true(b && b->whole && b->bytes == 100 && b->data[50] == 1);
    gsp_recent_close(held);

    assert_int_equal(gsp_recent_open(held, place.dir, 4), ATOM_OK);
    assert_true(gsp_recent_recall(held, agree, 0, &hash));
    assert_non_null(gsp_recent_fresh(held, 0, &hash));
    hash.byte[0] ^= 1;
    assert_false(gsp_recent_recall(held, agree, 0, &hash));
    gsp_recent_close(held);
    scratch_close(&place);
    atom_free(agree);
    atom_free(held);
}

static void what_a_vote_names_is_never_dropped(void **unused)
{
    (void)unused;
    scratch place;
    gsp_hash hash[GSP_HELD_MAX];
    held = atom_alloc(1, sizeof *held);
    agree = atom_alloc(1, sizeof *agree);
    scratch_open(&place);
    assert_int_equal(gsp_recent_open(held, place.dir, 4), ATOM_OK);
    for (uint32_t k = 0; k < GSP_HELD_MAX; k++)
        hash[k] = bring((uint8_t)(10 + k));
    agree->round.known[0].hash = hash[0];
    agree->record.voted = 1;
    agree->record.proposal.part[0].hash = hash[1];
    gsp_hash next = bring(20); /* takes the place of the only one that nobody needs */
    assert_non_null(gsp_recent_fresh(held, 0, &hash[0]));
    assert_non_null(gsp_recent_fresh(held, 0, &hash[1]));
    assert_null(gsp_recent_fresh(held, 0, &hash[2]));
    agree->has_pending = true;
    agree->pending.as.propose.proposal.part[0].hash = next;
    next = bring(21);
    assert_true(gsp_hash_none(&next)); /* all three are needed */
    gsp_recent_close(held);
    scratch_close(&place);
    atom_free(agree);
    atom_free(held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_root_stands_for_the_parts),
        cmocka_unit_test(a_work_that_needs_time_is_asked_again),
        cmocka_unit_test(what_is_not_finite_is_not_sent),
        cmocka_unit_test(residuals_follow_what_was_included),
        cmocka_unit_test(residuals_on_disk_are_those_in_memory),
        cmocka_unit_test(residuals_without_a_disk_fail),
        cmocka_unit_test(results_outlive_their_version),
        cmocka_unit_test(what_a_vote_names_is_never_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
