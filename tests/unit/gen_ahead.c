/*
 * Plans for a state on disk whose updates run ahead of the clip factor: judged by codegen's own
 * simulation.
 */
#include "codegen/lower.h"
#include "tests/lib/sanitized.h"
#include "tests/unit/part_common.h"

#include <math.h>

static part_device unified(void)
{
    part_device d = spec("rtx-4090");
    d.unified = true;
    d.device_bytes = 0;
    d.cores = 2;
    d.flops_bf16 = 1e12;
    d.device_bytes_per_second = d.host_bytes_per_second = 30e9;
    d.h2d_bytes_per_second = d.d2h_bytes_per_second = 10e9;
    d.h2d_both_bytes_per_second = d.d2h_both_bytes_per_second = 6e9;
    return d;
}

/* Elements of a state that moves in these seconds, each way. */
static void use_disk(part_device *d, const graph *g, double seconds)
{
    double rate = (double)g->param_extent * 12 / seconds;
    d->disk_read_bytes_per_second = d->disk_write_bytes_per_second = rate;
    d->disk_read_both_bytes_per_second = d->disk_write_both_bytes_per_second = rate;
}

static part_plan *plan_on(const graph *g, const part_device *device, int disk, bool ahead)
{
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    assert_int_equal(part_profile_model(g, device, &profile), ATOM_OK);
    gen_judge judge = {.g = g, .profile = profile};
    part_request request = {.micro_batches = 4,
                            .clip = true,
                            .recompute = -1,
                            .disk = disk,
                            .ahead = ahead,
                            .evaluate = gen_judge_plan,
                            .evaluate_ctx = &judge};
    if (part_search(g, profile, &request, &plan, NULL) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(part_plan_check(plan, g), ATOM_OK);
    part_profile_close(&profile);
    return plan;
}

/* One sub-model waits for all of the disk before it computes. Where that matters there are several,
 * in no more device memory than in place, and a step takes little longer than what bounds it. */
static void overlaps_the_disk(void **state)
{
    (void)state;
    graph_config config;
    assert_int_equal(graph_preset_get("gpt2-124m", &config), ATOM_OK);
    config.vocab_size = 257;
    graph *g = fused_gpt2(&config, ATOM_BF16, 4, 256);
    part_device device = unified();
    part_plan *memory = plan_on(g, &device, 0, false);
    double compute = memory->predicted_compute_seconds;
    assert_true(memory->in_place);
    for (int half = 1; half <= 4; half += SANITIZED ? 3 : 1) {
        double disk = compute * half / 2, bound = fmax(compute, disk);
        use_disk(&device, g, disk);
        part_plan *waits = plan_on(g, &device, 1, false), *ahead = plan_on(g, &device, 1, true);
        assert_true(ahead->n_sub_models > 2);
        assert_true(ahead->predicted_ahead_seconds < ahead->predicted_step_seconds);
        assert_true(part_plan_seconds(ahead) < 0.95 * part_plan_seconds(waits));
        assert_true(part_plan_seconds(ahead) < 1.15 * bound);
        assert_true(ahead->predicted_step_seconds < 1.15 * (compute + disk));
        assert_true(ahead->device_peak_bytes <= memory->device_peak_bytes);
        part_plan_close(&waits);
        part_plan_close(&ahead);
    }
    use_disk(&device, g, compute / 1000);
    part_plan *fast = plan_on(g, &device, 1, true);
    assert_int_equal(fast->n_sub_models, 1);
    part_plan_close(&fast);
    part_plan_close(&memory);
    graph_close(&g);
}

/* Host memory that boundaries do not take holds blocks: a plan that leaves more of it may be faster
 * in the end, and more memory is never slower. */
static void holds_blocks_before_it_chooses(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-350m", ATOM_BF16, 4, 1024);
    part_profile *profile = modelled(g, "rtx-4090");
    gen_judge judge = {.g = g, .profile = profile};
    double before = 1e9;
    for (uint64_t mib = 2560; mib <= 5120; mib += SANITIZED ? 1280 : 512) {
        part_request request = {.device_budget_bytes = (uint64_t)2 << 30,
                                .host_budget_bytes = mib << 20,
                                .host_hold_bytes = mib << 20,
                                .micro_batches = 16,
                                .clip = true,
                                .recompute = -1,
                                .disk = 1,
                                .ahead = true,
                                .evaluate = gen_judge_plan,
                                .evaluate_ctx = &judge};
        part_plan *plan = NULL;
        if (part_search(g, profile, &request, &plan, NULL) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_true(plan->host_peak_bytes <= mib << 20);
        assert_true(part_plan_seconds(plan) <= before * 1.005);
        before = part_plan_seconds(plan);
        part_plan_close(&plan);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(overlaps_the_disk),
                                       cmocka_unit_test(holds_blocks_before_it_chooses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
