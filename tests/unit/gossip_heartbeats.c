/*
 * What contacts in the directory tell of a pool's pace, and what they do not: counters that run
 * backwards or leap, replays, contacts past their time, one member against the others.
 */
#include "gossip/directory/heartbeats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { NOW = 100000 };

static void add(gsp_heartbeats *b, uint8_t who, uint64_t sequence, uint64_t at, uint64_t version,
                uint64_t samples)
{
    gsp_contact c = {.sequence = sequence,
                     .issued_s = at,
                     .expires_s = at + 1800,
                     .version = version,
                     .samples = samples};
    c.key[0] = who;
    gsp_heartbeats_add(b, &c, NOW);
}

static gsp_heartbeats_seen look(const gsp_heartbeats *b)
{
    gsp_heartbeats_seen s;
    gsp_heartbeats_look(b, NOW, &s);
    return s;
}

static void pace_in_any_order(void **state)
{
    (void)state;
    char text[GSP_HEARTBEATS_TEXT_BYTES];
    gsp_heartbeats b = {0};
    gsp_heartbeats_seen s = look(&b);
    assert_string_equal(gsp_heartbeats_text(&s, text), "");
    add(&b, 1, 9, NOW - 10, 40, 5000);
    s = look(&b);
    assert_int_equal(s.paced, 0);
    assert_string_equal(gsp_heartbeats_text(&s, text),
                        "1 member, version 40 seen in the directory");
    add(&b, 1, 5, NOW - 110, 30, 2000); /* an older one comes later: 3000 in 100 s */
    add(&b, 1, 3, NOW - 210, 20, 0);    /* older than both, and changes nothing */
    add(&b, 2, 7, NOW - 100, 41, 100);
    add(&b, 2, 8, NOW - 50, 41, 600); /* 500 in 50 s */
    s = look(&b);
    assert_int_equal(s.members, 2);
    assert_int_equal(s.paced, 2);
    assert_int_equal(s.samples, 5600);
    assert_int_equal(s.issued_s, NOW - 10);
    assert_string_equal(gsp_heartbeats_text(&s, text),
                        "2 members, version 41, 40 samples/s seen in the directory");
    add(&b, 2, 8, NOW - 20, 99, 9999); /* the same sequence again */
    assert_int_equal(look(&b).samples, 5600);
}

static void bad_counters_have_no_pace(void **state)
{
    (void)state;
    static const struct {
        uint64_t sequence, at, samples;
    } second[] = {
        {2, NOW - 50, 999},          /* ran backwards: began anew, or wrapped */
        {2, NOW - 50, UINT64_MAX},   /* leapt */
        {2, NOW - 100, 2000},        /* no time between them */
        {2, NOW - 150, 2000},        /* a clock that ran backwards */
        {2, NOW - 1800 - 100, 2000}, /* past its time */
        {0, NOW - 50, 2000},         /* not newer */
    };
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        gsp_heartbeats b = {0};
        add(&b, 1, 1, NOW - 100, 7, 1000);
        add(&b, 1, second[i].sequence, second[i].at, 8, second[i].samples);
        assert_int_equal(look(&b).paced, 0);
        assert_true(look(&b).samples_per_s == 0);
    }
}

static void a_liar_moves_no_version(void **state)
{
    (void)state;
    gsp_heartbeats b = {0};
    for (uint8_t i = 1; i <= 4; i++)
        add(&b, i, 1, NOW - 10, 30 + i, 1);
    add(&b, 5, 1, NOW - 10, UINT64_MAX, UINT64_MAX);
    assert_int_equal(look(&b).version, 33);
    assert_true(look(&b).samples == UINT64_MAX); /* it does not wrap */
}

static void rows_are_bounded(void **state)
{
    (void)state;
    gsp_heartbeats b = {0};
    for (unsigned i = 1; i <= GSP_HEARTBEATS_MAX + 9; i++)
        add(&b, (uint8_t)i, 1, NOW - 10, i, 1);
    assert_int_equal(look(&b).members, GSP_HEARTBEATS_MAX);
    gsp_heartbeats_seen s;
    gsp_heartbeats_look(&b, NOW + 3600, &s);
    assert_int_equal(s.members, 0);
    gsp_contact c = {.sequence = 1, .issued_s = NOW + 3600, .expires_s = NOW + 3700, .key = {200}};
    gsp_heartbeats_add(&b, &c, NOW + 3600); /* takes the place of one that is over */
    gsp_heartbeats_look(&b, NOW + 3600, &s);
    assert_int_equal(s.members, 1);
}

/* A member that did nothing has a pace: none. One that began anew has less than before, and tells none. */
static void standing_still_is_a_pace(void **state)
{
    (void)state;
    gsp_heartbeats b = {0};
    add(&b, 1, 1, NOW - 100, 7, 1000);
    add(&b, 1, 2, NOW - 50, 7, 1000);
    assert_int_equal(look(&b).paced, 1);
    const gsp_directory_beat old = {.sequence = 1, .issued_s = 100, .samples = 1000};
    gsp_directory_beat new = {.sequence = 2, .issued_s = 150, .samples = 999};
    assert_true(gsp_heartbeat_pace(&old, &new) < 0);
    new.samples = 1100;
    assert_true(gsp_heartbeat_pace(&old, &new) == 2);
    new.issued_s = 100; /* no time */
    assert_true(gsp_heartbeat_pace(&old, &new) < 0);
    new.samples = 1000;
    assert_true(gsp_heartbeat_pace(&old, &new) < 0);
}

/* Until the second in which it expires a contact counts; those that are over do not keep others out. */
static void a_row_is_there_until_it_is_over(void **state)
{
    (void)state;
    gsp_heartbeats b = {0};
    gsp_heartbeats_seen s;
    add(&b, 1, 1, NOW, 7, 1000);
    gsp_heartbeats_look(&b, NOW + 1800, &s);
    assert_int_equal(s.members, 1);
    gsp_heartbeats_look(&b, NOW + 1801, &s);
    assert_int_equal(s.members, 0);
    for (unsigned round = 0; round < 3; round++) /* all of them new in each round */
        for (unsigned i = 0; i < GSP_HEARTBEATS_MAX; i++) {
            const uint64_t now = NOW + 10000 * (round + 1);
            gsp_contact c = {.sequence = 1, .issued_s = now, .expires_s = now + 100};
            c.key[0] = (uint8_t)i;
            c.key[1] = (uint8_t)(round + 1);
            gsp_heartbeats_add(&b, &c, now);
            gsp_heartbeats_look(&b, now, &s);
            assert_int_equal(s.members, i + 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pace_in_any_order),
        cmocka_unit_test(bad_counters_have_no_pace),
        cmocka_unit_test(a_liar_moves_no_version),
        cmocka_unit_test(rows_are_bounded),
        cmocka_unit_test(standing_still_is_a_pace),
        cmocka_unit_test(a_row_is_there_until_it_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
