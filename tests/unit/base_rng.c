/* Random numbers: Random123's known answers, and streams that do not overlap. */
#include "atom/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Random123 1.14, kat_vectors, "philox4x32 10". */
static void known_answers(void **state)
{
    (void)state;
    uint32_t w[4];
    atom_rng_block((atom_rng_key){0}, 0, w);
    assert_int_equal(w[0], 0x6627e8d5u);
    assert_int_equal(w[1], 0xe169c58du);
    assert_int_equal(w[2], 0xbc57ac4cu);
    assert_int_equal(w[3], 0x9b00dbd8u);
    atom_rng_key key = {.seed = 0x299f31d0a4093822u, .step = 0x03707344u, .node = 0x13198a2eu};
    atom_rng_block(key, 0x85a308d3243f6a88u, w);
    assert_int_equal(w[0], 0xd16cfe09u);
    assert_int_equal(w[1], 0x94fdccebu);
    assert_int_equal(w[2], 0x5001e420u);
    assert_int_equal(w[3], 0x24126ea1u);
}

static void words_are_a_block_in_order(void **state)
{
    (void)state;
    atom_rng_key key = {.seed = 7, .step = 3, .micro_batch = 2, .node = 11};
    for (uint64_t e = 0; e < 64; e++) {
        uint32_t w[4];
        atom_rng_block(key, e / 4, w);
        assert_int_equal(atom_rng_u32(key, e), w[e % 4]);
    }
}

static void every_part_of_the_key_counts(void **state)
{
    (void)state;
    atom_rng_key key = {.seed = 1, .step = 1, .micro_batch = 1, .node = 1};
    atom_rng_key others[] = {key, key, key, key};
    others[0].seed++;
    others[1].step++;
    others[2].micro_batch++;
    others[3].node++;
    for (int k = 0; k < 4; k++) {
        int equal = 0;
        for (uint64_t e = 0; e < 1000; e++)
            equal += atom_rng_u32(key, e) == atom_rng_u32(others[k], e);
        assert_true(equal <= 1);
    }
}

static void dropout_keeps_its_share(void **state)
{
    (void)state;
    atom_rng_key key = {.seed = 42, .step = 9};
    uint32_t threshold = atom_rng_threshold(0.1);
    int dropped = 0;
    for (uint64_t e = 0; e < 100000; e++)
        dropped += atom_rng_u32(key, e) < threshold;
    assert_in_range(dropped, 9700, 10300); /* 3.1 standard deviations; the seed is fixed */
    assert_int_equal(atom_rng_threshold(0), 0);
}

static void uniform_stays_below_one(void **state)
{
    (void)state;
    assert_true(atom_rng_uniform(0xffffffffu) < 1.0f);
    assert_true(atom_rng_uniform(0) == 0.0f);
}

static void normal_has_its_moments(void **state)
{
    (void)state;
    double sum = 0, squares = 0, fourths = 0;
    enum { N = 200000 };
    for (uint64_t e = 0; e < N; e++) {
        double x = atom_rng_normal((atom_rng_key){.seed = 5}, e);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(squares / N - 1) < 0.015);
    assert_true(fabs(fourths / N - 3) < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(words_are_a_block_in_order),
        cmocka_unit_test(every_part_of_the_key_counts),
        cmocka_unit_test(dropout_keeps_its_share),
        cmocka_unit_test(uniform_stays_below_one),
        cmocka_unit_test(normal_has_its_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
