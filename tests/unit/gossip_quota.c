/* A month's bytes: counted, kept, begun anew with the month, and what a cap means. */
#include "gossip/pool/quota.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const double NOV = 1795780000; /* 2026-11-27, whatever the time zone */

static void counts(void **state)
{
    (void)state;
    gsp_quota q = {.up_max = 1000};
    assert_int_equal(gsp_quota_month(NOV), 202611);
    gsp_quota_count(&q, NOV, 600, 5000);
    assert_int_equal(q.month, 202611);
    assert_false(gsp_quota_spent(&q)); /* what comes in has no cap */
    gsp_quota_count(&q, NOV + 10, 400, 0);
    assert_true(gsp_quota_spent(&q));
    /* A clock that goes back does not give the month back. */
    gsp_quota_count(&q, NOV - 40 * 86400.0, 1, 0);
    assert_int_equal(q.up, 1001);
    assert_true(gsp_quota_spent(&q));
    /* The next month does. */
    double next = gsp_quota_ends(NOV);
    assert_int_equal(gsp_quota_month(next - 1), 202611);
    assert_int_equal(gsp_quota_month(next), 202612);
    assert_int_equal(gsp_quota_month(gsp_quota_ends(next)), 202701);
    gsp_quota_count(&q, next, 7, 8);
    assert_int_equal(q.month, 202612);
    assert_int_equal(q.up, 7);
    assert_int_equal(q.down, 8);
    assert_false(gsp_quota_spent(&q));
    q = (gsp_quota){.down_max = 8, .down = 8};
    assert_true(gsp_quota_spent(&q));
}

static const double FAR = 4070980000; /* in 2099 */

/* What was counted while the clock was far in the future counts in the true month, and ends with it. */
static void clock_is_set_right(void **state)
{
    (void)state;
    gsp_quota q = {.up_max = 1000};
    gsp_quota_count(&q, NOV, 10, 0);
    gsp_quota_count(&q, FAR, 1000, 0);
    assert_int_equal(q.month / 100, 2099);
    gsp_quota_count(&q, NOV + 10, 1, 0);
    assert_int_equal(q.month / 100, 2099);
    gsp_quota_count(&q, NOV + 309, 1, 0);
    assert_int_equal(q.month / 100, 2099);
    gsp_quota_count(&q, NOV + 310, 1, 0);
    assert_int_equal(q.month, 202611);
    assert_int_equal(q.up, 1003);
    assert_true(gsp_quota_spent(&q));
    gsp_quota_count(&q, gsp_quota_ends(NOV), 1, 0);
    assert_false(gsp_quota_spent(&q));
}

/* A machine without a battery begins in 1970, until it hears the time; this does not give the month back. */
static void clock_is_lost_at_boot(void **state)
{
    (void)state;
    gsp_quota q = {.month = 202611, .up = 1000, .up_max = 1000};
    for (double s = 0; s < 3000; s += 50) /* however long that takes */
        gsp_quota_count(&q, 86400 + s, 0, 0);
    gsp_quota_count(&q, NOV, 0, 0);
    assert_int_equal(q.month, 202611);
    assert_true(gsp_quota_spent(&q));
    assert_true(q.behind_s == 0);
}

static void is_kept(void **state)
{
    (void)state;
    scratch s;
    const char *path = scratch_path(scratch_open(&s), "month");
    gsp_quota q = {.up_max = 1 << 30, .down_max = 5}, back = q;
    assert_int_equal(gsp_quota_load(path, NOV, &q), ATOM_OK);
    assert_int_equal(q.up + q.down, 0);
    gsp_quota_count(&q, NOV, 123456789012345, 77);
    assert_int_equal(gsp_quota_save(path, &q), ATOM_OK);
    assert_int_equal(gsp_quota_load(path, NOV + 100, &back), ATOM_OK);
    assert_memory_equal(&back, &q, sizeof q);
    assert_int_equal(gsp_quota_load(path, gsp_quota_ends(NOV), &back), ATOM_OK);
    assert_int_equal(back.up + back.down, 0);
    assert_int_equal(back.down_max, 5);
    static const char *const bad[] = {"", "month", "month 202611\nup 1\n",
                                      "month 202613\nup 1\ndown 2\n",
                                      "month 202611\nup 1\ndown 2\nmore"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(atom_file_write(path, bad[i], strlen(bad[i])), ATOM_OK);
        assert_int_equal(gsp_quota_load(path, NOV, &back), ATOM_E_FORMAT);
        assert_int_equal(back.up + back.down, 0);
    }
    scratch_close(&s);
}

static void favours_leave_a_quarter(void **state)
{
    (void)state;
    gsp_quota q = {.up = 1000, .down = 1000};
    assert_true(gsp_quota_has_spare(&q)); /* no caps */
    q.up_max = 2000;
    assert_true(gsp_quota_has_spare(&q));
    q.down_max = 1333; /* three quarters of it are 1000 */
    assert_false(gsp_quota_has_spare(&q));
    q.down_max = 1340;
    assert_true(gsp_quota_has_spare(&q));
    q.up = 1500;
    assert_false(gsp_quota_has_spare(&q));
}

static void in_words(void **state)
{
    (void)state;
    char text[160];
    gsp_quota q = {.up = 1 << 30, .up_max = 2ll << 30, .down = 1 << 20};
    gsp_quota_text(&q, text, sizeof text);
    assert_non_null(strstr(text, " of "));
    assert_non_null(strstr(text, "sent, "));
    assert_non_null(strstr(text, "received this month"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),
        cmocka_unit_test(clock_is_set_right),
        cmocka_unit_test(clock_is_lost_at_boot),
        cmocka_unit_test(is_kept),
        cmocka_unit_test(in_words),
        cmocka_unit_test(favours_leave_a_quarter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
