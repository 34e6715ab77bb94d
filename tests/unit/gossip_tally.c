/* What keys used up: each alone, all together, anew with each window, and in a table that is full. */
#include "gossip/net/tally.h"
#include "tests/lib/gossip_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint8_t *key(unsigned i)
{
    static uint8_t k[GSP_TALLY_KEY_BYTES];
    k[0] = (uint8_t)i;
    k[1] = (uint8_t)(i >> 8);
    k[2] = 1;
    return k;
}

static void each_and_all(void **state)
{
    (void)state;
    gsp_tally t = {.window_ns = 60, .each_max = 10, .all_max = 25};
    uint32_t taken = 0;
    for (int i = 0; i < 100; i++)
        taken += gsp_tally_take(&t, key(1), 1, 600);
    assert_int_equal(taken, 10);
    assert_false(gsp_tally_take(&t, key(2), 11, 601));
    assert_true(gsp_tally_take(&t, key(2), 10, 602)); /* what was refused was not counted */
    assert_int_equal(gsp_tally_left(&t, key(3), 603), 5);
    assert_false(gsp_tally_take(&t, key(3), 6, 603));
    assert_true(gsp_tally_take(&t, key(3), 5, 603));
    assert_false(gsp_tally_take(&t, key(4), 1, 659));
    assert_true(gsp_tally_take(&t, key(1), 10, 660)); /* the next window */
}

static void a_crowd_buys_nobody_a_clean_page(void **state)
{
    (void)state;
    gsp_tally t = {.window_ns = 60, .each_max = 10, .all_max = UINT64_MAX};
    assert_true(gsp_tally_take(&t, key(0), 10, 0));
    for (unsigned i = 1; i < 5 * GSP_TALLY_KEYS; i++)
        assert_true(gsp_tally_take(&t, key(i), 1, 1));
    assert_int_equal(t.n, GSP_TALLY_KEYS);
    assert_false(gsp_tally_take(&t, key(0), 1, 2));
}

static void guests_are_their_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } pairs[] = {{"203.0.113.1:5", "203.0.113.1:6", true},
                 {"203.0.113.1:5", "203.0.113.2:5", false},
                 {"[2001:db8:1:2::1]:5", "[2001:db8:1:2:ffff::9]:7", true},
                 {"[2001:db8:1:2::1]:5", "[2001:db8:1:3::1]:5", false}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        uint8_t a[GSP_TALLY_KEY_BYTES], b[GSP_TALLY_KEY_BYTES];
        gsp_address x = test_address(pairs[i].a), y = test_address(pairs[i].b);
        gsp_tally_address(&x, a);
        gsp_tally_address(&y, b);
        assert_int_equal(memcmp(a, b, sizeof a) == 0, pairs[i].same);
        assert_int_equal(gsp_address_same_customer(&x, &y), pairs[i].same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_and_all),
        cmocka_unit_test(a_crowd_buys_nobody_a_clean_page),
        cmocka_unit_test(guests_are_their_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
