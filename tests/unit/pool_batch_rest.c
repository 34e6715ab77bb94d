/*
 * A batch of gradients mode whose members rest: what they were leased is leased to others, little by little, so that
 * whoever comes back has something to do again soon.
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
static pool_batch where_one_is_slow(uint32_t n, bool passes_on, bool delayed)
{
    pool_batch b = {.n = n, .micro_batch = SAMPLES, .passes_on = passes_on, .delayed = delayed};
    know(&b);
    b.share[4].share = POOL_SHARE_MIN;
    pool_batch_begin(&b);
    return b;
}

/* What all five are leased. */
static void assert_leases(const pool_batch *b, uint32_t l0, uint32_t l1, uint32_t l2, uint32_t l3,
                          uint32_t l4)
{
    const uint32_t expected[MEMBERS] = {l0, l1, l2, l3, l4};
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(lease_of(b, i), expected[i]);
}

static void one_after_the_other_has_its_turn(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(3, true, false);
    assert_leases(&b, 1, 1, 1, 0, 0);
    nobody_for(&b, 2);
    assert_leases(&b, 1, 1, 1, 0, 0);
    static const uint32_t turn[MEMBERS] = {7, 14, 28, 25, 19};
    for (uint32_t i = 0; i < MEMBERS; i++)
        for (uint32_t k = 0; k < 3; k++) {
            nobody_for(&b, 1);
            assert_int_equal(asked(&b), turn[i]);
        }
    for (uint32_t k = 0; k < 6; k++) { /* all had their turn: from now on twice as long */
        nobody_for(&b, 1);
        assert_int_equal(asked(&b), turn[0]);
    }
    nobody_for(&b, 10);
    assert_int_equal(asked(&b), turn[2]);
    go_on(&b, 16);
    assert_int_equal(b.n_open, 2);
    assert_int_equal(asked(&b), 12); /* the same turn, of what is left: member 4 is not in it */
    nobody_for(&b, 5);               /* all of it, from that contribution on */
    assert_int_equal(asked(&b), 12);
    nobody_for(&b, 1);
    assert_int_equal(asked(&b), 24);
    go_on(&b, 16);
    assert_int_equal(b.n_open, 1);
    for (uint32_t k = 0; b.steps == 0 && k < 12; k++)
        go_on(&b, 16);
    assert_int_equal(b.steps, 1);
    assert_leases(&b, 1, 1, 1, 0, 0); /* a new batch is leased by shares again */
}

/* The others rest, so that it makes all of the batch, and come back, so that they are asked again at once. */
static void the_slowest_is_asked_for_little_and_then_for_more(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(64, true, false), back;
    uint32_t versions = 0;
    assert_leases(&b, 16, 16, 16, 16, 0);
    nobody_for(&b, 3);
    assert_leases(&b, 1, 1, 1, 1, 1);
    go_on(&b, 16);
    assert_leases(&b, 2, 2, 2, 2, 2);
    go_on(&b, 16);
    assert_leases(&b, 4, 4, 4, 4, 4);
    go_on(&b, 16);
    assert_leases(&b, 8, 8, 8, 8, 8);
    back = b;
    for (; b.steps == 0; versions++) {
        assert_true(versions < 40);
        go_on(&b, asked(&b) & 16);
    }
    go_on(&back, 15); /* without the slow one */
    assert_leases(&back, 5, 5, 5, 5, 5);
    go_on(&back, 15);
    assert_leases(&back, 1, 1, 1, 1, 1);
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
    go_on(&b, 1); /* it was busy, and does not rest: nothing has changed */
    assert_int_equal(b.empty, 0);
    assert_int_equal(asked(&b), 1);
    nobody_for(&b, 3);
    assert_int_equal(asked(&b), 31);
}

/* A member that comes in the middle of a turn finds it as the others do. */
static void turns_are_in_the_state(void **state)
{
    (void)state;
    static float words[4096];
    pool_batch b = where_one_is_slow(20, true, false);
    pool_batch back = {.n = 20, .micro_batch = SAMPLES, .passes_on = true};
    nobody_for(&b, 3);
    go_on(&b, 16);
    nobody_for(&b, 2);
    pool_batch_write(&b, words);
    assert_true(pool_batch_read(&back, words));
    assert_int_equal(back.empty, 5);
    assert_int_equal(back.grown, 1);
    assert_int_equal(back.n_open, 19);
    back.passes_on = false; /* a pool from before has neither */
    assert_true(pool_batch_read(&back, words));
    assert_int_equal(back.empty + back.grown, 0);
}

static void pools_from_before_lease_the_same_again(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(3, false, false);
    nobody_for(&b, 30);
    assert_leases(&b, 1, 1, 1, 0, 0);
    assert_int_equal(b.empty, 0);
}

/* For very long nobody comes: it begins anew. */
static void turns_have_an_end(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(3, true, false);
    uint32_t asks = 0;
    for (uint32_t k = 0; k < 5000; k++) {
        nobody_for(&b, 1);
        asks += asked(&b) >> 4 & 1;
    }
    assert_true(asks > 2000);
}

/* With delayed updates it was planned for those who rest now; of the next batch all have their shares. */
static void a_plan_of_those_who_rest_passes_on(void **state)
{
    (void)state;
    pool_batch b = where_one_is_slow(3, true, true);
    go_on(&b, 31);
    assert_int_equal(b.steps, 1);
    assert_leases(&b, 1, 1, 1, 0, 0);
    nobody_for(&b, 3 + 2 * 3);
    assert_leases(&b, 0, 0, 1, 1, 1);
    go_on(&b, 16);
    for (uint32_t k = 0; b.steps == 1 && k < 20; k++)
        go_on(&b, 16);
    assert_int_equal(b.steps, 2);
    assert_leases(&b, 1, 1, 1, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_after_the_other_has_its_turn),
        cmocka_unit_test(the_slowest_is_asked_for_little_and_then_for_more),
        cmocka_unit_test(turns_have_an_end),
        cmocka_unit_test(what_is_left_to_those_who_rest_now_passes_on),
        cmocka_unit_test(turns_are_in_the_state),
        cmocka_unit_test(pools_from_before_lease_the_same_again),
        cmocka_unit_test(a_plan_of_those_who_rest_passes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
