/*
 * Plans for several devices: what one of them would like best, and halves of its memory, judged by the step of all.
 */
#include "atom/plan/workbench.h"

#include "tests/unit/part_common.h"

static const uint64_t MIB = 1 << 20;

static graph *g;
static part_profile *profile;

/* GPT-2 of 8 narrow blocks on a card that is far too large for it. */
static int begin(void **state)
{
    (void)state;
    const graph_config config = {.name = "small",
                                 .vocab_size = 512,
                                 .positions = 128,
                                 .width = 128,
                                 .layers = 8,
                                 .heads = 2,
                                 .inner = 512,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
    g = fused_gpt2(&config, ATOM_BF16, 1, 128);
    profile = modelled(g, "rtx-4090");
    return 0;
}

static int end(void **state)
{
    (void)state;
    part_profile_close(&profile);
    graph_close(&g);
    return 0;
}

static part_plan *planned(uint32_t devices, uint32_t micro_batches, uint64_t device_memory)
{
    const plan_request request = {.devices = devices,
                                  .device_memory = device_memory,
                                  .host_memory = (uint64_t)1 << 44,
                                  .micro_batches = micro_batches,
                                  .clip = true,
                                  .update_on_device = true,
                                  .recompute = PLAN_RECOMPUTE_FREE,
                                  .disk = PLAN_STATE_IN_MEMORY};
    part_plan *plan = NULL;
    if (plan_search(g, profile, NULL, &request, &plan, NULL) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(part_plan_check(plan, g), ATOM_OK);
    return plan;
}

/* The plan is of all micro-batches and within the limit that was asked for; its rates of other numbers would be those
 * of one device, and are not said. */
static void is_a_plan_of_all(void **state)
{
    (void)state;
    const double rate = profile->device.adamw_params_per_second;
    profile->device.adamw_params_per_second /= 100; /* one device would make the updates itself */
    for (uint32_t C = 4; C <= 5; C++) {
        const uint64_t limit = C == 4 ? 0 : 10 * MIB; /* a half of which is too little */
        part_plan *plan = planned(2, C, limit);
        assert_int_equal(plan->devices, 2);
        assert_int_equal(plan->micro_batches, C);
        assert_int_equal(plan->device_budget_bytes, limit);
        assert_false(plan->update_on_device);
        assert_true(plan->most_tokens_per_second == 0 && plan->recommended_tokens_per_second == 0);
        part_plan_close(&plan);
    }
    part_plan *one = planned(1, 4, 0), *free_number = planned(2, 0, 64 * MIB);
    assert_true(one->update_on_device);
    assert_int_equal(free_number->micro_batches, free_number->recommended_micro_batches);
    assert_int_equal(free_number->device_budget_bytes, 64 * MIB);
    part_plan_close(&one);
    part_plan_close(&free_number);
    profile->device.adamw_params_per_second = rate;
}

static void too_few_are_refused(void **state)
{
    (void)state;
    part_plan *plan = planned(3, 3, 0);
    part_plan_close(&plan);
    const plan_request request = {.devices = 3, .micro_batches = 2, .recompute = -1};
    assert_int_equal(plan_search(g, profile, NULL, &request, &plan, NULL), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "raise gradient_accumulation_steps to 3"));
}

/* However much memory there is, a step takes no longer than in a part of it: it took 18 % longer. */
static void more_memory_is_no_slower(void **state)
{
    (void)state;
    part_plan *all = planned(2, 16, 0);
    for (uint64_t mib = 64; mib >= 8; mib /= 2) {
        part_plan *some = planned(2, 16, mib * MIB);
        if (part_plan_seconds(all) > 1.001 * part_plan_seconds(some))
            fail_msg("%g s, and in %llu MiB %g s", part_plan_seconds(all), (unsigned long long)mib,
                     part_plan_seconds(some));
        part_plan_close(&some);
    }
    part_plan_close(&all);
}

/* Each device begins backward after the one before it, also where the step is too long to be run: several take longer
 * than one alone takes for its share. */
static void long_steps_wait_for_each_other(void **state)
{
    (void)state;
    part_plan *one = planned(1, 5000, 128 * MIB), *four = planned(4, 20000, 128 * MIB);
    assert_false(one->simulated || four->simulated);
    assert_true(four->predicted_step_seconds > 1.001 * one->predicted_step_seconds);
    assert_true(four->predicted_step_seconds < 1.12 * one->predicted_step_seconds);
    part_plan_close(&one);
    part_plan_close(&four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_plan_of_all),
        cmocka_unit_test(too_few_are_refused),
        cmocka_unit_test(more_memory_is_no_slower),
        cmocka_unit_test(long_steps_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
