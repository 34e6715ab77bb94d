/*
 * When a step guesses that it is not clipped.
 */
#include "atom/train/ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Steps of this norm until one guesses; that one is not run. */
static uint32_t until_a_guess(train_ahead *a, double norm, uint32_t most)
{
    uint32_t n = 0;
    for (; n < most && !train_ahead_next(a); n++)
        train_ahead_saw(a, norm, false, norm > a->limit);
    return n;
}

static void calm_comes_first(void **state)
{
    (void)state;
    train_ahead a = {.possible = true, .limit = 1};
    assert_int_equal(until_a_guess(&a, 0.9, 100), 100); /* too near */
    assert_int_equal(until_a_guess(&a, 0.8, 100), TRAIN_AHEAD_WAIT);
    a = (train_ahead){.possible = true, .limit = 1};
    for (int i = 0; i < 20; i++) { /* never four in a row */
        assert_int_equal(until_a_guess(&a, 0.1, 3), 3);
        train_ahead_saw(&a, 2, false, true);
    }
    train_ahead never = {.mode = TRAIN_AHEAD_NEVER, .possible = true, .limit = 1};
    train_ahead cannot = {.mode = TRAIN_AHEAD_ALWAYS, .limit = 1};
    train_ahead always = {.mode = TRAIN_AHEAD_ALWAYS, .possible = true, .limit = 1};
    assert_int_equal(until_a_guess(&never, 0.1, 100), 100);
    assert_int_equal(until_a_guess(&cannot, 0.1, 100), 100);
    assert_int_equal(until_a_guess(&always, 5, 100), 0);
}

static void right_guesses_go_on(void **state)
{
    (void)state;
    train_ahead a = {.possible = true, .limit = 1};
    until_a_guess(&a, 0.1, 100);
    for (int i = 0; i < 1000; i++) {
        assert_true(train_ahead_next(&a));
        train_ahead_saw(&a, i % 3 ? 0.99 : 0.2, true, false);
    }
    assert_int_equal(a.right, 1000);
    assert_int_equal(a.wrong, 0);
}

static void wrong_guesses_make_it_wait(void **state)
{
    (void)state;
    train_ahead a = {.possible = true, .limit = 1};
    uint32_t wait = TRAIN_AHEAD_WAIT;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(until_a_guess(&a, 0.1, 1000), wait);
        train_ahead_saw(&a, 1.5, true, true);
        assert_false(train_ahead_next(&a));
        wait = 2 * wait < TRAIN_AHEAD_WAIT_MAX ? 2 * wait : TRAIN_AHEAD_WAIT_MAX;
    }
    assert_int_equal(a.wrong, 8);
    until_a_guess(&a, 0.1, 1000);
    for (int i = 0; i < TRAIN_AHEAD_WAIT_MAX; i++)
        train_ahead_saw(&a, 0.5, true, false);
    train_ahead_saw(&a, 1.5, true, true); /* forgiven by now */
    assert_int_equal(until_a_guess(&a, 0.1, 1000), 2 * TRAIN_AHEAD_WAIT);
}

/* A run of which every k-th step is clipped wastes few of its steps, whatever k. */
static void losses_are_bounded(void **state)
{
    (void)state;
    for (uint32_t every = 1; every <= 128; every++) {
        train_ahead a = {.possible = true, .limit = 1};
        const uint32_t steps = 20000;
        for (uint32_t i = 1; i <= steps; i++) {
            bool guess = train_ahead_next(&a), clipped = i % every == 0;
            train_ahead_saw(&a, clipped ? 1.2 : 0.3, guess, clipped);
        }
        assert_true(a.wrong <= 4 + steps / 64 || a.right > 20 * a.wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calm_comes_first),
        cmocka_unit_test(right_guesses_go_on),
        cmocka_unit_test(wrong_guesses_make_it_wait),
        cmocka_unit_test(losses_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
