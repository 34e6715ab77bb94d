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

/* Member 4 has a thousandth of the share that others have; whoever brings nothing rests. */
static void what_those_who_rest_were_leased_passes_on(void **state)
{
    (void)state;
    pool_batch b = {.n = 3, .micro_batch = SAMPLES, .passes_on = true};
    know(&b);
    b.share[4].share = POOL_SHARE_BEFORE / 1000;
    pool_batch_begin(&b);
    const uint32_t first = asked(&b);
    assert_false(first >> 4 & 1);
    go_on(&b, 0);
    const uint32_t second = asked(&b);
    assert_int_equal(first & second, 0);
    go_on(&b, 0);
    assert_false(first & asked(&b));
    for (uint32_t turns = 0; !(asked(&b) & 16) && turns < MEMBERS; turns++)
        go_on(&b, 0);
    assert_true(asked(&b) & 16);
    for (uint32_t versions = 0; b.steps == 0 && versions < 2; versions++)
        go_on(&b, 16);
    assert_int_equal(b.steps, 1);
    /* A new batch is leased by shares again, and so is everything once all have had their turn. */
    assert_int_equal(asked(&b), first);
    uint32_t all = 0;
    for (uint32_t turns = 0; turns < MEMBERS && (turns == 0 || asked(&b) != first); turns++) {
        all |= asked(&b);
        go_on(&b, 0);
    }
    assert_int_equal(all, 31);
    assert_int_equal(asked(&b), first);
    /* Pools from before lease the same again and again. */
    b.passes_on = false;
    go_on(&b, 0);
    assert_int_equal(asked(&b), first);
}

/* With delayed updates it was planned for those who rest now. */
static void a_plan_of_those_who_rest_passes_on(void **state)
{
    (void)state;
    pool_batch b = {.n = 3, .micro_batch = SAMPLES, .passes_on = true, .delayed = true};
    know(&b);
    b.share[4].share = POOL_SHARE_BEFORE / 1000;
    pool_batch_begin(&b);
    go_on(&b, 31);
    assert_int_equal(b.steps, 1);
    for (uint32_t turns = 0; !(asked(&b) & 16) && turns < MEMBERS; turns++)
        go_on(&b, 0);
    for (uint32_t versions = 0; b.steps == 1 && versions < 2; versions++)
        go_on(&b, 16);
    assert_int_equal(b.steps, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_those_who_rest_were_leased_passes_on),
        cmocka_unit_test(a_plan_of_those_who_rest_passes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
