/*
 * Profiles that are kept: not those of a busy machine, not for long those that a run spoke against; what
 * they depend on; and that the machine's rates are measured once.
 */
#include "atom/plan/workbench.h"

#include "atom/plan/profile_key.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A clock that moves when it is looked at: all calls take the same, or every second one longer. */
typedef struct ticking {
    double now, step, extra;
    unsigned looks;
} ticking;

static double tick(void *ctx)
{
    ticking *t = ctx;
    t->now += t->step + (t->looks++ / 3 % 2 ? t->extra : 0);
    return t->now;
}

static double no_load(void *ctx)
{
    (void)ctx;
    return 0;
}

static const char MODEL[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":257,\"n_positions\":48,\"n_embd\":48,\"n_layer\":2,"
    "\"n_head\":3,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";

/* A model, a cache of its own, and a clock. */
typedef struct world {
    scratch files;
    char model[600];
    ticking clock;
} world;

static void world_open(world *w)
{
    memset(w, 0, sizeof *w);
    scratch_open(&w->files);
    snprintf(w->model, sizeof w->model, "%s",
             scratch_write(&w->files, "config.json", MODEL, sizeof MODEL - 1));
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_path(&w->files, "cache"), 1), 0);
}

static plan_workbench *bench_open(world *w, int64_t micro_batch, bool calm)
{
    const plan_workbench_config config = {.model = w->model,
                                          .micro_batch = micro_batch,
                                          .sequence = 32,
                                          .dtype = PLAN_DTYPE_FP32,
                                          .device = "cpu",
                                          .dropout = -1,
                                          .threads = 1};
    plan_workbench *bench = NULL;
    assert_int_equal(plan_workbench_open(&config, &bench), ATOM_OK);
    w->clock = (ticking){.step = 0.01, .extra = calm ? 0 : 0.05};
    bench->machine = (plan_machine){tick, no_load, &w->clock};
    return bench;
}

/* What a profile says, and whether it came from the cache. */
typedef struct got {
    bool cached, news;
    double rate;
    uint32_t measured_again;
} got;

static got get(world *w, int64_t micro_batch, bool calm)
{
    plan_workbench *bench = bench_open(w, micro_batch, calm);
    part_profile *profile = NULL;
    got g = {0};
    assert_int_equal(plan_profile_get(bench, NULL, NULL, NULL, &profile, &g.cached), ATOM_OK);
    g.rate = profile->device.host_bytes_per_second;
    g.measured_again = profile->measured_again;
    g.news = strstr(bench->news, "profile: measured again, because a step took ") != NULL;
    assert_true(g.news || !bench->news[0]);
    part_profile_close(&profile);
    plan_workbench_close(&bench);
    return g;
}

static bool doubt(world *w, double predicted, double median, uint64_t steps)
{
    plan_workbench *bench = bench_open(w, 1, true);
    bool noted = plan_profile_weigh(bench, predicted, median, steps);
    plan_workbench_close(&bench);
    return noted;
}

static void keeps_only_calm_profiles(void **state)
{
    (void)state;
    world w;
    world_open(&w);
    for (int calm = 0; calm < 2; calm++) {
        plan_workbench *bench = bench_open(&w, 1, calm);
        part_profile *profile = NULL;
        bool cached = true;
        assert_int_equal(plan_profile_get(bench, NULL, NULL, NULL, &profile, &cached), ATOM_OK);
        assert_false(cached);
        assert_int_equal(bench->busy[0] != 0, !calm);
        part_profile_close(&profile);
        assert_int_equal(plan_profile_cached(bench, &profile), calm);
        part_profile_close(&profile);
        plan_workbench_close(&bench);
    }
    scratch_close(&w.files);
}

/* Two measurements of a rate never agree to the last bit. */
static void measures_the_machine_once(void **state)
{
    (void)state;
    world w;
    world_open(&w);
    got busy = get(&w, 1, false), first = get(&w, 1, true), second = get(&w, 2, true);
    assert_true(busy.rate != first.rate); /* nothing of a busy machine is kept */
    assert_false(second.cached);
    assert_true(second.rate == first.rate);
    scratch_close(&w.files);
}

static void measures_again_what_a_run_denies(void **state)
{
    (void)state;
    world w;
    world_open(&w);
    assert_false(doubt(&w, 1, 1.5, 100)); /* there is no profile yet */
    got first = get(&w, 1, true);
    assert_false(doubt(&w, 1, 1.09, 100));
    assert_false(doubt(&w, 1, 0.91, 100));
    assert_false(doubt(&w, 1, 1.5, 9));         /* steps are few, */
    assert_false(doubt(&w, 0.001, 0.019, 100)); /* or short */
    assert_false(doubt(&w, 0, 1, 100));
    assert_true(get(&w, 1, true).cached);
    assert_true(doubt(&w, 1, 1.12, 10));
    got busy = get(&w, 1, false); /* used, but the doubt stays */
    assert_false(busy.cached || busy.news);
    got again = get(&w, 1, true);
    assert_false(again.cached);
    assert_true(again.news);
    assert_false(first.news);
    assert_int_equal(again.measured_again, 1);
    assert_true(again.rate != first.rate); /* rates, too, and others have the new ones */
    assert_true(get(&w, 2, true).rate == again.rate);
    assert_true(get(&w, 1, true).cached);
    assert_true(doubt(&w, 1, 0.5, 10));
    assert_int_equal(get(&w, 1, true).measured_again, 2);
    assert_false(doubt(&w, 1, 0.5, 10)); /* twice in a row is enough, */
    assert_true(get(&w, 1, true).cached);
    assert_false(doubt(&w, 1, 1.05, 10)); /* until a run agrees */
    assert_true(get(&w, 1, true).cached);
    assert_true(doubt(&w, 1, 0.5, 10));
    assert_int_equal(get(&w, 1, true).measured_again, 1);
    scratch_close(&w.files);
}

static void keys_say_all_that_changes_a_time(void **state)
{
    (void)state;
    const plan_profile_facts facts = {.what = 1,
                                      .cpu = "cpu",
                                      .threads = 2,
                                      .backend = "cuda",
                                      .isa = "sm_89",
                                      .products = 30501,
                                      .card = "card A, driver 1, cuBLAS 1",
                                      .link_bandwidth = 3};
    plan_profile_facts other[9];
    for (int i = 0; i < 9; i++)
        other[i] = facts;
    other[0].what = 2;
    other[1].cpu = "another";
    other[2].threads = 4;
    other[3].backend = "cpu";
    other[4].isa = "sm_90";
    other[5].card = "card B, driver 1, cuBLAS 1";
    other[6].card = "card A, driver 2, cuBLAS 1";
    other[7].link_bandwidth = 4;
    other[8].products = 30502;
    assert_true(plan_profile_key(&facts) == plan_profile_key(&facts));
    for (int i = 0; i < 9; i++)
        assert_true(plan_profile_key(&facts) != plan_profile_key(&other[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_only_calm_profiles),
        cmocka_unit_test(measures_the_machine_once),
        cmocka_unit_test(measures_again_what_a_run_denies),
        cmocka_unit_test(keys_say_all_that_changes_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
