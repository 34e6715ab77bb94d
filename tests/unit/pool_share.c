/* A member's share of a batch (atom/pool/share.h): what versions in time and late ones make of it. */
#include "atom/pool/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { WHOLE = 16, PROVEN_AFTER = 12 }; /* micro-batches of a whole share; versions in time */

static uint32_t leased(const pool_share *s)
{
    return s->share * WHOLE / POOL_SHARE_MAX;
}

/* It can do so many micro-batches in a version. */
static bool version(pool_share *s, uint32_t can)
{
    pool_share_news news = {.leased = leased(s), .late = leased(s) > can, .returns = true};
    pool_share_learn(s, &news);
    assert_true(pool_share_valid(s, true));
    return !news.late;
}

static pool_share newcomer(void)
{
    static const gsp_key key = {{7}};
    return pool_share_first(&key, true);
}

static void go_on(pool_share *s, uint32_t can, uint32_t versions)
{
    for (uint32_t k = 0; k < versions; k++)
        version(s, can);
}

static void who_stood_still_has_its_share_back(void **state)
{
    (void)state;
    pool_share s = newcomer();
    go_on(&s, WHOLE, PROVEN_AFTER);
    go_on(&s, 0, 4);
    assert_int_equal(s.phase, POOL_SHARE_STOPPED);
    assert_int_equal(s.proven, POOL_SHARE_MAX);
    assert_in_range(s.share, 1, POOL_SHARE_MAX / 16);
    for (uint32_t k = 0; s.phase != POOL_SHARE_STEADY; k++) {
        assert_in_range(k, 0, 40);
        assert_true(version(&s, WHOLE));
    }
    assert_int_equal(s.share, POOL_SHARE_MAX);
    assert_int_equal(s.hold, POOL_SHARE_HOLD);
}

static void nobody_is_forgiven_twice_in_a_short_time(void **state)
{
    (void)state;
    for (uint32_t between = PROVEN_AFTER - 1; between <= PROVEN_AFTER; between++) {
        pool_share s = newcomer();
        go_on(&s, 0, 2);
        while (s.phase != POOL_SHARE_STEADY)
            version(&s, WHOLE);
        uint32_t had = s.share;
        go_on(&s, WHOLE, between);
        go_on(&s, 0, 2);
        bool forgiven = between == PROVEN_AFTER;
        assert_int_equal(s.phase, forgiven ? POOL_SHARE_STOPPED : POOL_SHARE_STEADY);
        go_on(&s, WHOLE, 20);
        assert_true(forgiven ? s.share >= had * 9 / 10 : s.share <= had / 2);
    }
}

static void once_late_is_no_stop(void **state)
{
    (void)state;
    pool_share s = newcomer();
    go_on(&s, 0, 1);
    assert_int_equal(s.share, POOL_SHARE_MAX - POOL_SHARE_MAX / 5);
    go_on(&s, WHOLE, 1);
    assert_int_equal(s.proven, 0);
    go_on(&s, WHOLE, POOL_SHARE_HOLD - 1);
    assert_in_range(s.share, POOL_SHARE_MAX * 8 / 10, POOL_SHARE_MAX * 92 / 100);
    go_on(&s, WHOLE, 10);
    assert_int_equal(s.share, POOL_SHARE_MAX);
}

static void who_returns_slower_has_what_it_can_do(void **state)
{
    (void)state;
    for (uint32_t can = 1; can <= WHOLE / 2; can++) {
        pool_share s = newcomer();
        go_on(&s, WHOLE, PROVEN_AFTER);
        go_on(&s, 0, 3);
        uint32_t late = 0;
        for (uint32_t k = 0; k < 60; k++)
            late += !version(&s, can);
        assert_int_equal(s.phase, POOL_SHARE_STEADY);
        assert_in_range(leased(&s), can / 2, can);
        assert_in_range(late, 0, 2);
    }
}

/* It is asked now and then, and after a while nothing is remembered of it. */
static void who_never_comes_back_is_forgotten(void **state)
{
    (void)state;
    pool_share s = newcomer();
    go_on(&s, WHOLE, PROVEN_AFTER);
    go_on(&s, 0, 2);
    uint32_t asked = 0, versions = 0;
    for (; s.phase == POOL_SHARE_STOPPED; versions++)
        asked += !version(&s, 0);
    assert_in_range(versions, 1, POOL_SHARE_HOLD);
    assert_int_equal(s.proven, 0);
    assert_in_range(asked, 1, 4);
}

/* A lease that was planned before the first was late is late for the same reason. */
static void planned_leases_tell_nothing_more(void **state)
{
    (void)state;
    pool_share s = newcomer();
    pool_share_news late = {.leased = 1, .late = true, .delayed = true, .returns = true};
    pool_share_learn(&s, &late);
    pool_share was = s;
    pool_share_learn(&s, &late);
    assert_int_equal(s.share, was.share);
    assert_int_equal(s.phase, POOL_SHARE_STEADY);
    pool_share_learn(&s, &late);
    assert_int_equal(s.phase, POOL_SHARE_STOPPED);
}

/* Pools from before. */
static void shares_that_do_not_return_are_halved(void **state)
{
    (void)state;
    static const gsp_key key = {{7}};
    pool_share s = pool_share_first(&key, false);
    assert_int_equal(s.share, POOL_SHARE_BEFORE);
    pool_share_news late = {.leased = 4, .late = true}, in_time = {.leased = 4};
    pool_share_learn(&s, &late);
    pool_share_learn(&s, &late);
    uint32_t had = s.share;
    assert_in_range(had, POOL_SHARE_BEFORE * 39 / 100, POOL_SHARE_BEFORE * 41 / 100);
    for (uint32_t k = 0; k < POOL_SHARE_HOLD; k++)
        pool_share_learn(&s, &in_time);
    assert_in_range(s.share, had, had + had / 4);
    assert_true(pool_share_valid(&s, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_stood_still_has_its_share_back),
        cmocka_unit_test(nobody_is_forgiven_twice_in_a_short_time),
        cmocka_unit_test(once_late_is_no_stop),
        cmocka_unit_test(who_returns_slower_has_what_it_can_do),
        cmocka_unit_test(who_never_comes_back_is_forgotten),
        cmocka_unit_test(planned_leases_tell_nothing_more),
        cmocka_unit_test(shares_that_do_not_return_are_halved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
