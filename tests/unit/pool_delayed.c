/*
 * Gradients mode with delayed updates, with whole members in one process: they compute a batch while the
 * one before is summed. However many there are and whoever dies, they make the steps of one trainer whose
 * gradients are always taken at the weights of one step before (tests/lib/delayed_oracle.h): equal to the
 * bit among themselves, and the same as that one up to rounding. TSan has the last test only: its members
 * have all the threads, some their state on disk, and one dies.
 */
#include "tests/lib/gradients_world.h"

static void train_behind(unsigned n, unsigned n_dies, gsp_codec codec, double limit)
{
    const world delayed = {.delayed = true};
    train_by(&delayed, n, n_dies, codec, limit);
}

/* Without its delay it is one trainer; with it, it is another one. */
static void the_oracle_of_delays_is_right(void **unused)
{
    (void)unused;
    if (TSAN)
        skip();
    world *w = atom_alloc(1, sizeof *w);
    world_open(w, 0);
    float *alone = train_alone(w), *none = train_delayed(w, 0), *one = train_delayed(w, 1);
    uint64_t n = 0;
    peer *p = &w->peer[0];
    p->w = w;
    open_trainer(p, false, C);
    n = trainer_floats(p->t);
    w->n = 1; /* to be closed */
    double same = distance(none, alone, n), other = distance(one, alone, n);
    print_message("the oracle is %.2g from one trainer, and %.2g with its delay\n", same, other);
    assert_true(same < 1e-5);
    assert_true(other > 1e-3);
    atom_free(alone);
    atom_free(none);
    atom_free(one);
    world_close(w);
    atom_free(w);
}

static void one_member_is_the_oracle(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    train_behind(1, 0, GSP_CODEC_FP32, 1e-5);
}

static void four_are_too(void **unused)
{
    (void)unused;
    if (TSAN)
        skip();
    train_behind(4, 0, GSP_CODEC_FP32, 1e-5);
}

static void eight_are_too(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    train_behind(8, 0, GSP_CODEC_FP32, 1e-5);
}

/* The others go back to the weights where what it had leased has to be computed. */
static void a_death_changes_nothing(void **unused)
{
    (void)unused;
    if (TSAN)
        skip();
    train_behind(4, 1, GSP_CODEC_FP32, 1e-5);
}

static void with_int8_they_are_equal_among_themselves(void **unused)
{
    (void)unused;
    if (SANITIZED)
        skip();
    train_behind(3, 1, GSP_CODEC_INT8, 0.05);
}

/* The weights before the newest step are there, too. */
static void the_disk_changes_no_bit(void **unused)
{
    (void)unused;
    const world disk = {.delayed = true, .on_disk = 2};
    train_by(&disk, 4, 1, GSP_CODEC_FP32, 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oracle_of_delays_is_right),
        cmocka_unit_test(one_member_is_the_oracle),
        cmocka_unit_test(four_are_too),
        cmocka_unit_test(eight_are_too),
        cmocka_unit_test(a_death_changes_nothing),
        cmocka_unit_test(with_int8_they_are_equal_among_themselves),
        cmocka_unit_test(the_disk_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, set_cache, drop_cache);
}
