/*
 * Busy machines: how they are noticed, with a clock that the test turns; what runs between two timed calls;
 * and over how much memory bandwidth is measured.
 */
#include "atom/plan/timer.h"

#include "atom/plan/bench_sizes.h"
#include "atom/plan/meanwhile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A machine whose calls take what a list says, again and again. */
typedef struct fake {
    double now, load;
    double takes[7];
    unsigned n, runs, between;
} fake;

static double fake_seconds(void *ctx)
{
    return ((fake *)ctx)->now;
}

static double fake_load(void *ctx)
{
    return ((fake *)ctx)->load;
}

static void fake_run(void *ctx)
{
    fake *f = ctx;
    f->now += f->takes[f->runs++ % f->n];
}

static bool busy_after(fake *f, double probe_before, double probe_after, char why[160])
{
    const plan_machine machine = {fake_seconds, fake_load, f};
    plan_timer t = plan_timer_begin(&machine, 0.25);
    why[0] = 0;
    plan_timer_median(&t, fake_run, NULL, f);
    t.probe_before = probe_before;
    t.probe_after = probe_after;
    return plan_timer_busy(&t, why, 160);
}

static void notices_a_busy_machine(void **state)
{
    (void)state;
    char why[160];
    fake calm = {.load = 0.9, .takes = {0.03, 0.031}, .n = 2};
    assert_false(busy_after(&calm, 0.03, 0.032, why));
    assert_string_equal(why, "");
    fake uneven = {.takes = {0.03, 0.06, 0.09}, .n = 3};
    assert_true(busy_after(&uneven, 0, 0, why));
    assert_non_null(strstr(why, "2.0 times as long as their fastest run"));
    fake later = {.takes = {0.03}, .n = 1};
    assert_true(busy_after(&later, 0.03, 0.045, why));
    assert_non_null(strstr(why, "1.5 times as long at another moment"));
    assert_true(busy_after(&later, 0.045, 0.03, why));
    fake loaded = {.load = 6, .takes = {0.03}, .n = 1};
    assert_true(busy_after(&loaded, 0, 0, why));
    assert_non_null(strstr(why, "6.0 tasks wanted each core"));
    fake tiny = {.load = 6, .takes = {1e-6, 9e-6, 5e-6}, .n = 3};
    assert_false(busy_after(&tiny, 1e-6, 9e-6, why));
}

static void notices_uneven_rates(void **state)
{
    (void)state;
    char why[160];
    fake idle = {0};
    const plan_machine machine = {.load = fake_load, .ctx = &idle};
    plan_timer t = plan_timer_begin(&machine, 0.25);
    t.medians = t.fastest = 1;
    plan_timer_saw(&t, "AdamW", &(krn_bench){.seconds = 0.012, .fastest_seconds = 0.01});
    assert_false(plan_timer_busy(&t, why, 160));
    plan_timer_saw(&t, "Muon", &(krn_bench){.seconds = 0.018, .fastest_seconds = 0.01});
    plan_timer_saw(&t, "AdamW", &(krn_bench){.seconds = 0.014, .fastest_seconds = 0.01});
    assert_true(plan_timer_busy(&t, why, 160));
    assert_non_null(strstr(why, "Muon took 1.8 times as long as its fastest run"));
}

static void repeats_what_is_short(void **state)
{
    (void)state;
    fake f = {.takes = {0.5, 0.01, 0.02, 0.03}, .n = 4};
    const plan_machine machine = {fake_seconds, fake_load, &f};
    plan_timer t = plan_timer_begin(&machine, 0.25);
    assert_true(fabs(plan_timer_median(&t, fake_run, NULL, &f) - 0.02) <
                1e-9); /* the first warms up */
    assert_int_equal(f.runs, 4);
    fake slow = {.takes = {2}, .n = 1};
    const plan_machine other = {fake_seconds, fake_load, &slow};
    t = plan_timer_begin(&other, 0.25);
    assert_true(plan_timer_median(&t, fake_run, NULL, &slow) == 2);
    assert_int_equal(slow.runs, 1);
    assert_true(t.medians == 0); /* one run says nothing of others */
}

static void others_run(void *ctx)
{
    fake *f = ctx;
    f->now += 7;
    f->between++;
}

static void few_run(void *ctx)
{
    fake *f = ctx;
    f->now += 1;
    f->between += 100;
}

static void does_not_time_what_runs_between(void **state)
{
    (void)state;
    fake f = {.takes = {0.5, 0.01, 0.02, 0.03}, .n = 4};
    const plan_machine machine = {fake_seconds, fake_load, &f};
    plan_timer t = plan_timer_begin(&machine, 0.25);
    assert_true(fabs(plan_timer_median(&t, fake_run, others_run, &f) - 0.02) < 1e-9);
    assert_int_equal(f.runs, 4);
    assert_int_equal(f.between, 3); /* one before each run that counts */
}

/* A machine that becomes slower meanwhile: both states see both phases. */
static void times_two_states_by_turns(void **state)
{
    (void)state;
    static void (*const states[2])(void *) = {others_run, few_run};
    fake f = {.takes = {0.5, 0.02, 0.01, 0.04, 0.03, 0.06, 0.05}, .n = 7};
    const plan_machine machine = {fake_seconds, fake_load, &f};
    plan_timer t = plan_timer_begin(&machine, 0.25);
    double seconds[2];
    plan_timer_medians(&t, fake_run, states, &f, seconds);
    assert_int_equal(f.runs, 7); /* the first warms up */
    assert_int_equal(f.between, 303);
    assert_true(fabs(seconds[0] - 0.04) < 1e-9);
    assert_true(fabs(seconds[1] - 0.03) < 1e-9);
    assert_true(fabs(t.medians - 0.07) < 1e-9 && fabs(t.fastest - 0.03) < 1e-9);
    fake slow = {.takes = {2}, .n = 1};
    const plan_machine other = {fake_seconds, fake_load, &slow};
    t = plan_timer_begin(&other, 0.25);
    plan_timer_medians(&t, fake_run, states, &slow, seconds);
    assert_true(seconds[0] == 2 && seconds[1] == 2);
    assert_int_equal(slow.runs, 1);
}

static void writes_as_much_as_a_micro_batch_does(void **state)
{
    (void)state;
    const uint64_t MiB = 1u << 20, plenty = 1024 * MiB;
    atom_threads *threads = NULL;
    assert_int_equal(atom_threads_open(2, &threads), ATOM_OK);
    plan_meanwhile m = plan_meanwhile_open(threads, 3 * MiB + 5, 16 * MiB, 2 * MiB, plenty);
    assert_int_equal(m.bytes, 3 * MiB); /* whole pieces of a MiB */
    plan_meanwhile_pass(&m, false, &plenty, sizeof plenty);
    plan_meanwhile_pass(&m, false, NULL, 0);
    for (uint64_t i = 0; i < m.bytes; i++)
        assert_int_equal(m.memory[i], i % 64 == 0 ? 2 : 0); /* every line, once each pass */
    plan_meanwhile_pass(&m, true, NULL, 0);                 /* a warm sub-model touches less */
    for (uint64_t i = 0; i < m.bytes; i += 64)
        assert_int_equal(m.memory[i], i < 2 * MiB ? 3 : 2);
    plan_meanwhile_close(&m);
    m = plan_meanwhile_open(threads, plenty, 2 * MiB, plenty, plenty);
    assert_int_equal(m.bytes, 4 * MiB);      /* twice the caches */
    assert_int_equal(m.warm_bytes, 4 * MiB); /* not more than the whole model */
    plan_meanwhile_close(&m);
    m = plan_meanwhile_open(threads, plenty, 2 * MiB, MiB, 8 * MiB);
    assert_int_equal(m.bytes, 2 * MiB); /* a quarter of what may be taken */
    plan_meanwhile_close(&m);
    m = plan_meanwhile_open(threads, plenty, 0, MiB, 12); /* no room: timed without */
    assert_null(m.memory);
    plan_meanwhile_pass(&m, false, NULL, 0);
    plan_meanwhile_close(&m);
    atom_threads_close(&threads);
}

static void passes_over_more_than_the_caches(void **state)
{
    (void)state;
    const uint64_t MIB = 1 << 20, GIB = 1 << 30, large = 7000000000;
    plan_bench_sizes s = plan_bench_sizes_of(480 * MIB, 512 * GIB, large, 14);
    assert_true(s.triad_bytes == 4 * 480 * MIB);
    assert_true(s.adamw_params == 4 * 480 * MIB / 14);
    s = plan_bench_sizes_of(480 * MIB, 8 * GIB, large, 14); /* an eighth of the memory */
    assert_true(s.triad_bytes == GIB && s.adamw_params == GIB / 14);
    s = plan_bench_sizes_of(480 * MIB, 512 * GIB, 100 * MIB, 16); /* no more than the run has */
    assert_true(s.triad_bytes == 1600 * MIB && s.adamw_params == 100 * MIB);
    s = plan_bench_sizes_of(480 * MIB, 512 * GIB, 1000, 16);
    assert_true(s.triad_bytes == 192 * MIB && s.adamw_params == 4 * MIB);
    s = plan_bench_sizes_of(0, 0, large, 14);
    assert_true(s.triad_bytes == 192 * MIB && s.adamw_params == 4 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notices_a_busy_machine),
        cmocka_unit_test(notices_uneven_rates),
        cmocka_unit_test(repeats_what_is_short),
        cmocka_unit_test(does_not_time_what_runs_between),
        cmocka_unit_test(times_two_states_by_turns),
        cmocka_unit_test(writes_as_much_as_a_micro_batch_does),
        cmocka_unit_test(passes_over_more_than_the_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
