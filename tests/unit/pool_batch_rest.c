/*
 * A batch of gradients mode whose members rest: what they were leased is leased to others, one after the other,
 * until somebody brings it.
 */
#include "tests/lib/batch_members.h"

/* Bits of those that are leased something. */
static uint32_t asked(const pool_batch *b)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < MEMBERS; i++)
        bits |= lease_of(b, i) > 0 ? 1u << i : 0;
    return bits;
}

/* So many versions that nobody contributes to. */
static void nobody_for(pool_batch *b, uint32_t versions)
{
    for (uint32_t k = 0; k < versions; k++)
        go_on(b, 0);
}

/* Member 4 has the smallest share that there is. */
static pool_batch where_one_is_slow(bool passes_on, bool delayed)
{
    pool_batch b = {.n = 3, .micro_batch = SAMPLES, .passes_on = passes_on, .delayed = delayed};
    know(&b);
    b.share[4].share = POOL_SHARE_MIN;
    pool_batch_begin(&b);
    return b;
}

static void what_those_who_rest_were_leased_passes_on(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(true, false);
    assert_int_equal(asked(&b), 7);
    nobody_for(&b, 2);
    assert_int_equal(asked(&b), 7);
    nobody_for(&b, 1);
    assert_int_equal(asked(&b), 8);
    nobody_for(&b, 5);
    assert_int_equal(asked(&b), 8);
    nobody_for(&b, 1);
    assert_int_equal(asked(&b), 16);
    nobody_for(&b, 8);
    assert_int_equal(asked(&b), 16);
    nobody_for(&b, 1);
    assert_int_equal(asked(&b), 7); /* it rests, too: from the beginning, with longer turns */
    nobody_for(&b, 11);
    assert_int_equal(asked(&b), 7);
    nobody_for(&b, 1 + 15);
    assert_int_equal(asked(&b), 16);
    go_on(&b, 16);
    assert_int_equal(b.steps, 1);
    /* A new batch is leased by shares again, and turns are short again. */
    assert_int_equal(asked(&b), 7);
    nobody_for(&b, 3);
    assert_int_equal(asked(&b), 8);
}

/* Some brought what they were leased, and rest since. */
static void what_is_left_to_those_who_rest_now_passes_on(void **state)
{
    (void)state;
    pool_batch b = {.n = C, .micro_batch = SAMPLES, .passes_on = true};
    know(&b);
    pool_batch_begin(&b);
    go_on(&b, 3);
    assert_int_equal(asked(&b), 3);
    nobody_for(&b, 2);
    assert_int_equal(asked(&b), 3);
    nobody_for(&b, 1);
    assert_int_equal(asked(&b), 31);
    go_on(&b, 16);
    assert_int_equal(asked(&b), 16);
}

/* A member that comes at the end of a turn finds it as the others do. */
static void turns_are_in_the_state(void **state)
{
    (void)state;
    static float words[4096];
    pool_batch b = where_one_is_slow(true, false);
    pool_batch back = {.n = 3, .micro_batch = SAMPLES, .passes_on = true};
    nobody_for(&b, 2);
    pool_batch_write(&b, words);
    assert_true(pool_batch_read(&back, words));
    assert_int_equal(back.empty, 2);
    assert_int_equal(back.n_open, 3);
    nobody_for(&b, 1);
    nobody_for(&back, 1);
    assert_int_equal(asked(&b), asked(&back));
    assert_false(asked(&b) & 1);
}

static void pools_from_before_lease_the_same_again(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(false, false);
    const uint32_t first = asked(&b);
    nobody_for(&b, 30);
    assert_int_equal(asked(&b), first);
    assert_int_equal(b.empty, 0);
}

/* With delayed updates it was planned for those who rest now. */
static void a_plan_of_those_who_rest_passes_on(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(true, true);
    go_on(&b, 31);
    assert_int_equal(b.steps, 1);
    const uint32_t first = asked(&b);
    nobody_for(&b, 3);
    assert_int_equal(first & asked(&b), 0);
    nobody_for(&b, 6);
    assert_true(asked(&b) & 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_those_who_rest_were_leased_passes_on),
        cmocka_unit_test(what_is_left_to_those_who_rest_now_passes_on),
        cmocka_unit_test(turns_are_in_the_state),
        cmocka_unit_test(pools_from_before_lease_the_same_again),
        cmocka_unit_test(a_plan_of_those_who_rest_passes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
