/* The search as a whole: legal, within its budgets, refusals that help. */
#include "partition/model.h"
#include "tests/unit/part_common.h"

#include <stdio.h>

static void plans_within_any_budget(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    uint32_t largest = 0;
    for (uint64_t mib = 560; mib <= 8192; mib = mib * 5 / 4) {
        part_request request = {
            .device_budget_bytes = mib << 20, .micro_batches = 8, .clip = true, .recompute = -1};
        part_plan *plan = search_plan(g, profile, &request, NULL);
        assert_true(plan->device_peak_bytes <= mib << 20);
        assert_true(plan->predicted_step_seconds >= plan->predicted_compute_seconds);
        assert_int_equal(plan->micro_batches, 8);
        assert_true(plan->device_budget_bytes == mib << 20);
        assert_int_equal(plan->host_budget_bytes, 0); /* what was asked for, not what there is */
        if (plan->n_sub_models > largest)
            largest = plan->n_sub_models;
        part_plan_close(&plan);
    }
    assert_true(largest > 2);
    part_profile_close(&profile);
    graph_close(&g);
}

/* More memory is never slower. */
static void uses_what_it_is_given(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-350m", ATOM_BF16, 2, 1024);
    part_profile *profile = modelled(g, "rtx-4090");
    double before = 1e9;
    for (uint64_t gib = 2; gib <= 16; gib *= 2) {
        part_request request = {
            .device_budget_bytes = gib << 30, .micro_batches = 8, .clip = true, .recompute = -1};
        part_plan *plan = search_plan(g, profile, &request, NULL);
        assert_true(plan->predicted_step_seconds <= before * 1.02);
        before = plan->predicted_step_seconds;
        part_plan_close(&plan);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

/* AdamW goes where the whole model is, if that is allowed, fits and pays. */
static void updates_where_it_pays(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-1558m", ATOM_BF16, 4, 1024);
    part_profile *profile = modelled(g, "h100");
    part_request request = {
        .micro_batches = 16, .clip = true, .recompute = -1, .update_on_device = true};
    part_plan *there = search_plan(g, profile, &request, NULL);
    assert_true(there->update_on_device);
    assert_int_equal(there->device_budget_bytes, 0);
    request.update_on_device = false;
    part_plan *host = search_plan(g, profile, &request, NULL);
    assert_false(host->update_on_device);
    assert_true(there->predicted_step_seconds < host->predicted_step_seconds);
    request.update_on_device = true;
    request.clip = false;
    part_plan *unclipped = search_plan(g, profile, &request, NULL);
    assert_false(unclipped->update_on_device);
    request.clip = true;
    request.device_budget_bytes = there->device_peak_bytes / 2;
    part_plan *capped = search_plan(g, profile, &request, NULL);
    assert_false(capped->update_on_device);
    /* Where only narrow moments fit, they are there. */
    graph_set_moments(g, ATOM_BF16);
    part_profile *narrow = modelled(g, "h100");
    request.device_budget_bytes = there->device_peak_bytes - 2 * g->trained_extent;
    part_plan *fits = search_plan(g, narrow, &request, NULL);
    assert_true(fits->update_on_device);
    assert_int_equal(there->device_peak_bytes - fits->device_peak_bytes, 4 * g->trained_extent);
    part_plan_close(&fits);
    part_profile_close(&narrow);
    part_plan_close(&there);
    part_plan_close(&host);
    part_plan_close(&unclipped);
    part_plan_close(&capped);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Bytes of parameters of the largest sub-model, and how many sub-models there are. */
static uint64_t largest_of(const part_plan *plan, uint32_t *n)
{
    uint64_t most = 0;
    *n = plan->n_sub_models;
    for (uint32_t k = 0; k < plan->n_sub_models; k++)
        most = part_larger(most, plan->sub_models[k].param_bytes);
    return most;
}

/* Where many micro-batches follow each other and much is gained with warm caches, sub-models are cut so
 * small that they stay warm; where only one micro-batch comes, or nothing is known of the cache, cuts are
 * those that there were without gains. */
static void cuts_small_where_that_keeps_caches_warm(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = (uint64_t)700 << 20,
                            .micro_batches = 32,
                            .clip = true,
                            .recompute = 1};
    uint32_t n, n_warm, n_one;
    part_plan *cold = search_plan(g, profile, &request, NULL);
    for (uint32_t i = 0; i < profile->n_nodes; i++) {
        profile->nodes[i].fwd_gain_seconds = 0.4 * profile->nodes[i].fwd_seconds;
        profile->nodes[i].bwd_gain_seconds = 0.4 * profile->nodes[i].bwd_seconds;
    }
    part_plan *unknown = search_plan(g, profile, &request, NULL);
    profile->device.cache_bytes = 96 << 20;
    part_plan *warm = search_plan(g, profile, &request, NULL);
    uint64_t large = largest_of(cold, &n), small = largest_of(warm, &n_warm);
    assert_true(n_warm > n && small <= large);
    assert_true(warm->predicted_step_seconds < cold->predicted_step_seconds);
    assert_true(warm->least_step_seconds < cold->least_step_seconds);
    assert_true(warm->least_step_seconds <= warm->predicted_step_seconds);
    assert_int_equal(unknown->n_sub_models, n);
    assert_true(unknown->predicted_step_seconds == cold->predicted_step_seconds);
    request.micro_batches = 1;
    part_plan *one = search_plan(g, profile, &request, NULL);
    profile->device.cache_bytes = 0;
    part_plan *one_cold = search_plan(g, profile, &request, NULL);
    largest_of(one_cold, &n_one);
    assert_int_equal(one->n_sub_models, n_one);
    assert_true(one->predicted_step_seconds == one_cold->predicted_step_seconds);
    part_plan_close(&one_cold);
    part_plan_close(&one);
    part_plan_close(&warm);
    part_plan_close(&unknown);
    part_plan_close(&cold);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Muon's products go to the device where that is allowed and pays, and where there is room. */
static void multiplies_where_it_pays(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-1558m", ATOM_BF16, 4, 1024);
    graph_set_optimizer(g, GRAPH_MUON);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = (uint64_t)6 << 30,
                            .micro_batches = 16,
                            .clip = true,
                            .recompute = -1,
                            .ortho_on_device = true};
    part_plan *there = search_plan(g, profile, &request, NULL);
    assert_true(there->ortho_on_device);
    request.ortho_on_device = false;
    part_plan *host = search_plan(g, profile, &request, NULL);
    assert_false(host->ortho_on_device);
    assert_true(there->predicted_step_seconds < host->predicted_step_seconds / 2);
    request.ortho_on_device = true;
    request.clip = false;
    part_plan *unclipped = search_plan(g, profile, &request, NULL);
    assert_false(unclipped->ortho_on_device);
    part_plan_close(&unclipped);
    request.clip = true;
    profile->device.muon_flops_per_second = 1e16; /* a host that is quicker than any card */
    part_plan *quick = search_plan(g, profile, &request, NULL);
    assert_false(quick->ortho_on_device);
    part_plan_close(&quick);
    profile->device.muon_flops_per_second = 0;
    profile->device.ortho_flops_per_second = 0; /* a card that nobody measured for it */
    part_plan *unknown = search_plan(g, profile, &request, NULL);
    assert_false(unknown->ortho_on_device);
    part_plan_close(&unknown);
    part_plan_close(&there);
    part_plan_close(&host);
    part_profile_close(&profile);
    graph_close(&g);
}

/* With the state on disk and many micro-batches: gradients lie over boundaries before anything is refused,
 * and what is refused for want of host memory says so, though more device memory would do, too. */
static void has_room_for_many_micro_batches(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-1558m", ATOM_BF16, 4, 1024);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = (uint64_t)2500 << 20,
                            .host_budget_bytes = (uint64_t)24 << 30,
                            .micro_batches = 16,
                            .clip = true,
                            .recompute = -1,
                            .disk = 1};
    part_plan *plan = search_plan(g, profile, &request, NULL);
    assert_false(plan->over_boundaries);
    part_plan_close(&plan);
    uint32_t C = 16;
    do { /* until there is no room for both */
        C += 16;
        request.micro_batches = C;
        assert_int_equal(part_search(g, profile, &request, &plan, NULL), ATOM_OK);
        bool over = plan->over_boundaries;
        assert_true(plan->host_peak_bytes <= request.host_budget_bytes);
        part_plan_close(&plan);
        if (over)
            break;
    } while (C < 4096);
    assert_true(C < 4096);
    request.micro_batches = 4 * C;
    assert_int_equal(part_search(g, profile, &request, &plan, NULL), ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "not enough host memory"));
    assert_non_null(strstr(atom_fail_message(), "fewer --gradient-accumulation-steps"));
    part_profile_close(&profile);
    graph_close(&g);
}

/* Blocks of a state on disk stay in the memory that is left for them; the more memory, the more blocks. The step is no
 * slower for it. */
static void holds_blocks_of_the_state(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 4, 512);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = (uint64_t)1500 << 20,
                            .host_budget_bytes = (uint64_t)8 << 30,
                            .micro_batches = 8,
                            .clip = true,
                            .recompute = 1,
                            .no_advice = true,
                            .disk = 1};
    part_plan *bare = search_plan(g, profile, &request, NULL);
    uint32_t before = bare->ring_blocks;
    for (int more = 1; more <= 2; more++) {
        request.host_hold_bytes = bare->host_peak_bytes + ((uint64_t)more << 28);
        part_plan *plan = search_plan(g, profile, &request, NULL);
        assert_true(plan->ring_blocks > before);
        assert_true(plan->host_peak_bytes <= request.host_hold_bytes);
        assert_true(part_plan_seconds(plan) <= part_plan_seconds(bare));
        before = plan->ring_blocks;
        part_plan_close(&plan);
    }
    part_plan_close(&bare);
    part_profile_close(&profile);
    graph_close(&g);
}

static void obeys_recompute(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    for (int recompute = 0; recompute <= 1; recompute++) {
        part_request request = {
            .device_budget_bytes = (uint64_t)1 << 30, .micro_batches = 8, .recompute = recompute};
        part_plan *plan = search_plan(g, profile, &request, NULL);
        for (uint32_t k = 0; k + 1 < plan->n_sub_models; k++)
            assert_int_equal(plan->sub_models[k].keep == PART_RECOMPUTE, recompute);
        part_plan_close(&plan);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

static part_device unified(void)
{
    part_device d = spec("rtx-4090");
    d.unified = true;
    d.device_bytes = 0;
    d.cores = 2;
    d.host_bytes_per_second = 30e9;
    d.h2d_bytes_per_second = d.d2h_bytes_per_second = 10e9;
    d.h2d_both_bytes_per_second = d.d2h_both_bytes_per_second = 6e9;
    return d;
}

static void runs_in_place_without_a_budget(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    part_device device = unified();
    part_profile *profile = NULL;
    part_request request = {.micro_batches = 4, .clip = true, .recompute = -1};
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = search_plan(g, profile, &request, NULL);
    assert_true(plan->in_place);
    assert_int_equal(plan->n_sub_models, 1);
    part_plan_close(&plan);
    request.device_budget_bytes = 64 << 20;
    plan = search_plan(g, profile, &request, NULL);
    assert_false(plan->in_place);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

/* What follows "needs at least" in brackets. */
static uint64_t bytes_in_message(void)
{
    unsigned long long bytes = 0;
    const char *at = strstr(atom_fail_message(), "needs at least ");
    at = at ? strchr(at, '(') : NULL;
    assert_non_null(at);
    assert_int_equal(sscanf(at, "(%llu bytes)", &bytes), 1);
    return bytes;
}

static void says_what_would_fit(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    part_plan *plan = NULL;
    part_request request = {
        .device_budget_bytes = 100 << 20, .micro_batches = 4, .clip = true, .recompute = -1};
    assert_int_equal(part_search(g, profile, &request, &plan, NULL), ATOM_E_RESOURCE);
    assert_null(plan);
    assert_non_null(strstr(atom_fail_message(), "--device-memory"));
    assert_non_null(strstr(atom_fail_message(), "missing"));
    request.device_budget_bytes = bytes_in_message();
    plan = search_plan(g, profile, &request, NULL);
    assert_true(plan->device_peak_bytes <= request.device_budget_bytes);
    part_plan_close(&plan);

    request.host_budget_bytes = (uint64_t)1 << 30;
    assert_int_equal(part_search(g, profile, &request, &plan, NULL), ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "--host-memory"));
    assert_true(bytes_in_message() >= 14 * g->param_elements);
    part_profile_close(&profile);
    graph_close(&g);
}

/* The recommended number gets nearly all of the tokens per second that any number gets, and half of
 * it does not; neither depends on what is asked for. Loads are not all: here updates bind. */
static void recommends_micro_batches(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint64_t device_gib;
    } cases[] = {{"gpt3-6.7b", 8}, {"gpt3-6.7b", 20}, {"gpt3-1.3b", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph *g = fused_preset(cases[i].model, ATOM_BF16, 1, 1024);
        part_profile *profile = modelled(g, "rtx-4090");
        part_request request = {.device_budget_bytes = cases[i].device_gib << 30,
                                .host_budget_bytes = (uint64_t)1 << 40,
                                .clip = true,
                                .recompute = -1};
        part_plan *plan = search_plan(g, profile, &request, NULL);
        uint32_t C = plan->recommended_micro_batches;
        double most = plan->most_tokens_per_second;
        assert_true(C > 1);
        assert_int_equal(plan->micro_batches, C);
        /* More are advised only where they are clearly better than the model said. */
        assert_true(plan->recommended_tokens_per_second >= 0.94 * most);
        assert_true(part_plan_tokens_per_second(plan) >= 0.94 * most);
        assert_false(part_plan_wants_more(plan));
        part_plan_close(&plan);
        request.micro_batches = 4 * C;
        plan = search_plan(g, profile, &request, NULL);
        assert_int_equal(plan->recommended_micro_batches, C);
        if (part_plan_tokens_per_second(plan) > 1.02 * most)
            fail_msg("%s: %u get %g, more than %g", cases[i].model, plan->micro_batches,
                     part_plan_tokens_per_second(plan), most);
        part_plan_close(&plan);
        request.micro_batches = C / 2;
        plan = search_plan(g, profile, &request, NULL);
        if (part_plan_tokens_per_second(plan) >= 0.97 * most)
            fail_msg("%s: %u get %g of %g", cases[i].model, C / 2,
                     part_plan_tokens_per_second(plan), most);
        part_plan_close(&plan);
        request.micro_batches = 1;
        plan = search_plan(g, profile, &request, NULL);
        assert_true(part_plan_wants_more(plan));
        part_plan_close(&plan);
        part_profile_close(&profile);
        graph_close(&g);
    }
}

/* The contract: 96 blocks, operator by operator, 11.5 GiB and 4 TiB. Counted, not timed. */
static void plans_gpt3_175b(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt3-175b", ATOM_BF16, 1, 2048);
    part_profile *profile = modelled(g, "rtx-4090");
    part_search_stats stats;
    part_request request = {.device_budget_bytes = (uint64_t)23 << 29,
                            .host_budget_bytes = (uint64_t)4 << 40,
                            .micro_batches = 16,
                            .clip = true,
                            .recompute = -1};
    part_plan *plan = search_plan(g, profile, &request, &stats);
    assert_true(g->n_nodes > 700);
    assert_true(plan->n_sub_models > 96);
    assert_true(plan->device_peak_bytes <= (uint64_t)23 << 29);
    assert_in_range(stats.states, 1, 1000000);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(2);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {
        .device_budget_bytes = 300 << 10, .micro_batches = 2, .clip = true, .recompute = -1};
    uint64_t before = atom_mem_read().live_blocks;
    atom_status st = ATOM_E_RESOURCE;
    part_plan *plan = search_plan(g, profile, &request, NULL);
    assert_true(plan->n_sub_models > 1);
    part_plan_close(&plan);
    /* Every allocation at first, then ever fewer: the search repeats itself. */
    for (uint64_t n = 1; st != ATOM_OK; n += 1 + n / 40) {
        atom_mem_fail_after(n);
        st = part_search(g, profile, &request, &plan, NULL);
        atom_mem_fail_after(0);
        if (st != ATOM_OK)
            assert_null(plan);
        part_plan_close(&plan);
        assert_int_equal(atom_mem_read().live_blocks, before);
        assert_true(n < 100000);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_within_any_budget),
        cmocka_unit_test(uses_what_it_is_given),
        cmocka_unit_test(updates_where_it_pays),
        cmocka_unit_test(cuts_small_where_that_keeps_caches_warm),
        cmocka_unit_test(multiplies_where_it_pays),
        cmocka_unit_test(has_room_for_many_micro_batches),
        cmocka_unit_test(holds_blocks_of_the_state),
        cmocka_unit_test(obeys_recompute),
        cmocka_unit_test(runs_in_place_without_a_budget),
        cmocka_unit_test(says_what_would_fit),
        cmocka_unit_test(recommends_micro_batches),
        cmocka_unit_test(plans_gpt3_175b),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
