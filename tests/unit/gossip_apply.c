/*
 * Results into the work, before and after they are certified (apply.h): parts come while the
 * version is being made; where another ballot says otherwise they come again or are taken back; and
 * what was given early is not given twice.
 */
#include "gossip/member/apply.h"

#include "atom/base/mem.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PARTS = 4, STRIDE = GSP_INT8_BLOCK, FLOATS = PARTS * STRIDE };

static struct {
    float is[PARTS]; /* the first float of each part; -1: not given */
    unsigned n;      /* calls */
    uint64_t version;
} work;

static const uint64_t n_floats[] = {FLOATS};
static const gsp_terms terms = {.n_parts = PARTS, .n_fragments = 1, .n_floats = n_floats};
static gsp_work averages;
static gsp_agree *agree;
static gsp_apply apply;
static gsp_recent held;
static gsp_freezing freezing;
static gsp_blob blob[PARTS][2];
static float floats[PARTS][2][STRIDE];

static void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    (void)context;
    assert_int_equal(n, STRIDE);
    work.is[first / STRIDE] = x ? x[0] : -1.0f;
    work.version = version;
    work.n++;
}

static gsp_hash name(uint32_t p, uint32_t k)
{
    gsp_hash h = {{(uint8_t)(1 + p), (uint8_t)(1 + k)}};
    return h;
}

/* Version 8 is in progress, two results of every part are here, none stands yet. */
static int setup(void **state)
{
    (void)state;
    agree = atom_alloc(1, sizeof *agree);
    assert_non_null(agree);
    averages = (gsp_work){.part = part, .early = true};
    gsp_apply_open(&apply, &terms, &averages, NULL);
    gsp_freezing_open(&freezing, &terms, &averages, NULL);
    agree->applied = agree->certified = 7;
    agree->round.ballot = 1;
    agree->round.begin.n_parts = PARTS;
    for (uint32_t p = 0; p < PARTS; p++)
        for (uint32_t k = 0; k < 2; k++) {
            floats[p][k][0] = (float)(10 * p + k);
            blob[p][k] = (gsp_blob){.data = (const uint8_t *)floats[p][k],
                                    .bytes = sizeof floats[p][k],
                                    .root = name(p, k),
                                    .whole = true};
            held.fresh[p][k] = &blob[p][k];
        }
    memset(&work, 0, sizeof work);
    for (uint32_t p = 0; p < PARTS; p++)
        work.is[p] = -1.0f;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    atom_free(agree);
    return 0;
}

static void give_all(void)
{
    while (gsp_apply_early(&apply, agree, &held))
        ;
}

static void what_stands_is_given_once(void **unused)
{
    (void)unused;
    give_all();
    assert_int_equal(work.n, 0);
    agree->round.known[2].hash = name(2, 0);
    blob[1][0].whole = false;
    agree->round.known[1].hash = name(1, 0); /* its bytes are not here */
    give_all();
    assert_int_equal(work.n, 1);
    assert_int_equal(work.version, 8);
    assert_true(work.is[2] == 20.0f && work.is[1] < 0);
    give_all();
    assert_int_equal(work.n, 1);
    blob[1][0].whole = true;
    give_all();
    assert_int_equal(work.n, 2);
    assert_true(work.is[1] == 10.0f);
}

static void another_ballot_changes_it(void **unused)
{
    (void)unused;
    agree->round.known[0].hash = name(0, 0);
    agree->round.known[3].hash = name(3, 0);
    give_all();
    agree->round.ballot = 2;
    agree->round.known[0].hash = name(0, 1);
    memset(&agree->round.known[3], 0, sizeof(gsp_part)); /* nobody has said anything yet */
    give_all();
    assert_int_equal(work.n, 3);
    assert_true(work.is[0] == 1.0f && work.is[3] == 30.0f);
    gsp_apply_take_back(&apply); /* another lineage */
    assert_int_equal(work.n, 5);
    assert_true(work.is[0] < 0 && work.is[3] < 0);
    gsp_apply_take_back(&apply);
    assert_int_equal(work.n, 5);
}

static void nothing_before_the_last_version_is_applied(void **unused)
{
    (void)unused;
    agree->round.known[0].hash = name(0, 0);
    agree->applied = 6;
    assert_false(gsp_apply_early(&apply, agree, &held));
    agree->applied = 7;
    averages.early = false;
    assert_false(gsp_apply_early(&apply, agree, &held));
    averages.early = true;
    assert_true(gsp_apply_early(&apply, agree, &held));
}

/* The certificate names part 0 as it was given, part 1 otherwise, 2 not at all, 3 for the first
 * time. */
static void the_certificate_decides(void **unused)
{
    (void)unused;
    gsp_proposal *c = &agree->certificate.proposal;
    for (uint32_t p = 0; p < 3; p++)
        agree->round.known[p].hash = name(p, 0);
    give_all();
    assert_int_equal(work.n, 3);
    agree->certified = 8;
    c->version = 8;
    c->n_parts = GSP_PARTS_MAX; /* the rest is empty: what comes next is left to the next turn */
    c->part[0].hash = name(0, 0);
    c->part[1].hash = name(1, 1);
    c->part[3].hash = name(3, 0);
    bool done;
    gsp_apply_begin(&apply);
    assert_int_equal(gsp_apply_some(&apply, c, &held, &freezing, &done), ATOM_OK);
    assert_false(done);
    assert_int_equal(work.n, 6);
    assert_true(work.is[0] == 0.0f && work.is[1] == 11.0f);
    assert_true(work.is[2] < 0 && work.is[3] == 30.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_stands_is_given_once, setup, teardown),
        cmocka_unit_test_setup_teardown(another_ballot_changes_it, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_before_the_last_version_is_applied, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_certificate_decides, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
