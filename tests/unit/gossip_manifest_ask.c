/* How often a manifest is asked for that cannot be read, and how often that is said. */
#include "gossip/pool/manifest_ask.h"

#include <stdio.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint64_t SECOND = 1000000000u;

/* Asks whenever it may; each answer is as wrong as the one before. */
static void what_cannot_be_read_is_asked_for_ever_more_rarely(void **state)
{
    (void)state;
    gsp_manifest_ask a = {0};
    uint32_t asked = 0, said = 0;
    uint64_t start = 1000 * SECOND, now = start, last = 0, gap = 0;
    for (; now < start + 3600 * SECOND; now += SECOND / 10) {
        if (!gsp_manifest_ask_now(&a, now))
            continue;
        gap = now - last;
        last = now;
        asked++;
        said += gsp_manifest_ask_failed(&a, "it is of a newer program", now);
    }
    assert_in_range(asked, 60, 66); /* an hour: not 3,600 times */
    assert_int_equal(said, 1);
    assert_in_range(gap, 60 * SECOND, 61 * SECOND);
}

static void silence_costs_a_second(void **state)
{
    (void)state;
    gsp_manifest_ask a = {0};
    uint32_t asked = 0;
    for (uint64_t now = SECOND; now < 61 * SECOND; now += SECOND / 10)
        asked += gsp_manifest_ask_now(&a, now);
    assert_int_equal(asked, 60);
}

/* Whoever sends wrong ones unasked holds up nobody, and does not fill the log either. */
static void nobody_makes_the_pause_longer_unasked(void **state)
{
    (void)state;
    gsp_manifest_ask a = {0};
    uint64_t now = 1000 * SECOND;
    uint32_t said = 0;
    assert_true(gsp_manifest_ask_now(&a, now));
    for (uint32_t k = 0; k < 1000; k++) {
        char why[40];
        snprintf(why, sizeof why, "wrong in another way %u", k);
        said += gsp_manifest_ask_failed(&a, why, now + k);
    }
    assert_int_equal(said, 1);
    assert_false(gsp_manifest_ask_now(&a, now + SECOND));
    assert_true(gsp_manifest_ask_now(&a, now + 2 * SECOND + SECOND / 10));
    assert_true(gsp_manifest_ask_failed(&a, "wrong again", now + 60 * SECOND + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_read_is_asked_for_ever_more_rarely),
        cmocka_unit_test(silence_costs_a_second),
        cmocka_unit_test(nobody_makes_the_pause_longer_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
