/*
 * What members brought: counted by key from certificates alone, kept over restarts, and a damaged
 * file is not taken for counts.
 */
#include "atom/base/mem.h"
#include "gossip/pool/credits.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static gsp_roster roster_of(uint32_t n, uint8_t first)
{
    gsp_roster r = {.n = n};
    for (uint32_t i = 0; i < n; i++)
        r.member[i].key.byte[0] = (uint8_t)(first + i);
    return r;
}

/* Each member brings 10 samples and as many more as its place. */
static gsp_proposal *brings(uint32_t n)
{
    gsp_proposal *c = atom_alloc(1, sizeof *c);
    c->n_contributors = n;
    for (uint32_t i = 0; i < n; i++) {
        c->contributor[i].member = (uint8_t)i;
        c->contributor[i].samples = 10 + i;
    }
    return c;
}

static void only_what_counted_counts(void **state)
{
    (void)state;
    gsp_credits c = {.n = 0};
    gsp_roster r = roster_of(3, 1);
    gsp_proposal *p = brings(3);
    gsp_credits_count(&c, &r, p, 5);
    gsp_credits_count(&c, &r, p, 4);
    gsp_credits_count(&c, &r, p, 0);
    assert_int_equal(gsp_credits_find(&c, r.member[0].key.byte)->samples, 10);
    assert_null(gsp_credits_find(&c, r.member[1].key.byte));
    assert_int_equal(gsp_credits_find(&c, r.member[2].key.byte)->samples, 24);
    assert_int_equal(gsp_credits_find(&c, r.member[2].key.byte)->versions, 2);
    assert_int_equal(gsp_credits_samples(&c), 34);
    r.n = 2; /* a place that the roster does not have is nobody's */
    gsp_credits_count(&c, &r, p, 4);
    assert_int_equal(gsp_credits_samples(&c), 34);
    atom_free(p);
}

static void they_survive_a_restart(void **state)
{
    (void)state;
    scratch s;
    gsp_credits c;
    gsp_roster r = roster_of(3, 1);
    gsp_proposal *p = brings(3);
    scratch_open(&s);
    gsp_credits_open(&c, s.dir);
    assert_int_equal(c.tokens, 0);
    gsp_credits_count(&c, &r, p, 7);
    gsp_credits_close(&c, 5000);
    gsp_credits_open(&c, s.dir);
    assert_int_equal(c.tokens, 5000);
    gsp_credits_count(&c, &r, p, 1);
    assert_int_equal(gsp_credits_find(&c, r.member[0].key.byte)->samples, 20);
    gsp_credits_step(&c, 5600);
    gsp_credits other;
    gsp_credits_open(&other, s.dir); /* as after a kill */
    assert_int_equal(other.tokens, 5600);
    assert_int_equal(gsp_credits_samples(&other), 43);
    gsp_credits_close(&other, 5600);
    gsp_credits_close(&c, 5600);
    scratch_close(&s);
    atom_free(p);
}

static void a_damaged_file_says_nothing(void **state)
{
    (void)state;
    static const char KEY[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char *const bad[] = {"", "credits 1\n", "credits 2\ntokens 5\n",
                                      "credits 1\ntokens 5\n0011 5 1\n",
                                      "credits 1\ntokens 5\nmore"};
    gsp_credits c = {.n = 0};
    char text[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(gsp_credits_parse(&c, bad[i]));
    snprintf(text, sizeof text, "credits 1\ntokens 5\n%s 6 1\n", KEY);
    assert_true(gsp_credits_parse(&c, text));
    assert_int_equal(c.row[0].key[1], 0x11);
    char *again = gsp_credits_text(&c, 5);
    assert_string_equal(again, text);
    atom_free(again);
    text[strlen(text) - 1] = 0; /* the end of the last line is lost */
    assert_false(gsp_credits_parse(&c, text));
}

static void there_is_room_for_newcomers(void **state)
{
    (void)state;
    gsp_credits c = {.n = 0};
    gsp_proposal *p = brings(32);
    for (uint8_t first = 0; first < 64; first += 32) {
        gsp_roster r = roster_of(32, (uint8_t)(1 + first));
        gsp_credits_count(&c, &r, p, UINT32_MAX);
    }
    gsp_roster last = roster_of(1, 200);
    gsp_credits_count(&c, &last, p, 1);
    gsp_roster first = roster_of(2, 1);
    assert_null(gsp_credits_find(&c, first.member[0].key.byte)); /* it had brought least */
    assert_non_null(gsp_credits_find(&c, first.member[1].key.byte));
    assert_int_equal(gsp_credits_find(&c, last.member[0].key.byte)->samples, 10);
    char *text = gsp_credits_text(&c, 1);
    gsp_credits back;
    assert_true(gsp_credits_parse(&back, text));
    assert_int_equal(back.n, GSP_CREDITS_MAX);
    assert_memory_equal(back.row, c.row, sizeof c.row);
    atom_free(text);
    atom_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_counted_counts),
        cmocka_unit_test(they_survive_a_restart),
        cmocka_unit_test(a_damaged_file_says_nothing),
        cmocka_unit_test(there_is_room_for_newcomers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
