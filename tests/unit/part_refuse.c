/* What a refusal says: its figures belong together, each thing it advises would do, and it asks for the least. */
#include "atom/base/size.h"
#include "partition/candidates.h"
#include "tests/unit/part_common.h"

static const uint64_t MIB = 1 << 20;

/* The number behind these words of the last refusal. */
static uint64_t said(const char *words)
{
    const char *at = strstr(atom_fail_message(), words);
    if (!at)
        fail_msg("no '%s' in: %s", words, atom_fail_message());
    return strtoull(at + strlen(words), NULL, 10);
}

static uint64_t bytes_behind(const char *words)
{
    const char *at = strstr(atom_fail_message(), words);
    at = at ? strchr(at, '(') : NULL;
    if (!at)
        fail_msg("no bytes behind '%s' in: %s", words, atom_fail_message());
    return strtoull(at + 1, NULL, 10);
}

static bool says(const char *words)
{
    return strstr(atom_fail_message(), words) != NULL;
}

static void refuse(const graph *g, const part_profile *profile, const part_request *request)
{
    part_plan *plan = NULL;
    assert_int_equal(part_search(g, profile, request, &plan, NULL), ATOM_E_RESOURCE);
    assert_null(plan);
}

static void of_the_device(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {
        .device_budget_bytes = 100 * MIB, .micro_batches = 4, .clip = true, .recompute = -1};
    refuse(g, profile, &request);
    const uint64_t need = bytes_behind("needs at least");
    char missing[32];
    assert_int_equal(bytes_behind("there is only"), need - 100 * MIB);
    assert_true(says(atom_size_text(need - 100 * MIB, missing)));
    assert_in_range(said("--device-memory ") * MIB, need, need + MIB - 1);
    assert_true(says("its largest node is embed)"));
    assert_true(says("a smaller --micro-batch-size") && !says("a device with more memory"));
    request.recompute = 0; /* what is not computed again is stashed, which takes more */
    refuse(g, profile, &request);
    assert_true(bytes_behind("needs at least") > need && says("--recompute auto"));
    request.recompute = -1;
    profile->device.device_bytes = need - 1; /* it has no more */
    refuse(g, profile, &request);
    assert_false(says("--device-memory"));
    part_profile_close(&profile);
    graph_close(&g);
}

/* bf16 moments and a disk are advised where they would do; Muon keeps fewer moments. */
static void of_the_host(void **state)
{
    (void)state;
    for (int muon = 0; muon < 2; muon++) {
        graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
        graph_set_optimizer(g, muon ? GRAPH_MUON : GRAPH_ADAMW);
        part_profile *profile = modelled(g, "rtx-4090");
        part_request request = {
            .host_budget_bytes = MIB, .micro_batches = 4, .clip = true, .recompute = -1};
        refuse(g, profile, &request);
        const uint64_t need = bytes_behind("needs at least");
        assert_in_range(said("--host-memory ") * MIB, need, need + MIB - 1);
        const uint64_t saved = (graph_state_bytes(g) - 4 * g->trained_extent) / 2;
        request.host_budget_bytes = need - saved;
        refuse(g, profile, &request);
        assert_true(says("--moments-dtype bf16") && says("--optimizer-state disk"));
        request.host_budget_bytes -= MIB;
        refuse(g, profile, &request);
        assert_false(says("--moments-dtype bf16"));
        request.host_budget_bytes = need - graph_state_bytes(g);
        refuse(g, profile, &request);
        assert_false(says("--optimizer-state disk"));
        part_profile_close(&profile);
        graph_close(&g);
    }
}

/* The least of all partitions that the host holds, by looking at each of them. */
static uint64_t least_of_all(const graph *g, const part_profile *profile,
                             const part_request *request)
{
    part_search_state s = {.g = g,
                           .profile = profile,
                           .request = request,
                           .host_bytes = request->host_budget_bytes,
                           .micro_batches = request->micro_batches};
    uint64_t least = UINT64_MAX;
    assert_int_equal(part_model_open(g, profile, &s.model), ATOM_OK);
    const part_model *m = s.model;
    assert_in_range(m->n_points, 4, 20);
    for (uint32_t cuts = 0; cuts < 1u << (m->n_points - 2); cuts++) {
        int32_t ends[20];
        uint32_t n = 0;
        for (uint32_t p = 1; p < m->n_points; p++)
            if (p + 1 == m->n_points || cuts >> (p - 1) & 1)
                ends[n++] = m->points[p];
        for (int way = 0; way < PART_WAYS; way += 2) {
            part_setting setting;
            part_plan *plan = NULL;
            part_verdict v;
            if (!part_way_setting(&s, way, &setting))
                continue;
            assert_int_equal(part_plan_from_cuts(&s, &setting, ends, n, &plan), ATOM_OK);
            part_estimate(m, plan, &v);
            if (part_host_holds(&s, &v) && v.device_peak_bytes < least)
                least = v.device_peak_bytes;
            part_plan_close(&plan);
        }
    }
    part_model_close(&s.model);
    return least;
}

/* On a host of so much: the plan that is found for the least memory needs hardly more than the least of all partitions
 * (a seventh more where the host is too small for the finest), and never less; and so much is asked for, or less. */
static void compare_with_all(const graph *g, const part_profile *profile, uint32_t C, uint64_t host)
{
    const bool plenty = host >= (uint64_t)1 << 40;
    part_plan *plan = NULL;
    part_verdict v;
    const part_request request = {.device_budget_bytes = 1024,
                                  .host_budget_bytes = host,
                                  .micro_batches = C,
                                  .clip = true,
                                  .recompute = -1};
    part_search_state s = {.g = g,
                           .profile = profile,
                           .request = &request,
                           .device_bytes = 1024,
                           .host_bytes = host,
                           .micro_batches = C};
    const uint64_t least = least_of_all(g, profile, &request);
    assert_int_equal(part_model_open(g, profile, &s.model), ATOM_OK);
    assert_int_equal(part_least_plan(&s, true, &plan, &v), ATOM_OK);
    assert_int_equal(plan != NULL, least < UINT64_MAX);
    const uint64_t part = !plenty ? 7 : C > 1 ? 256 : 16;
    if (plan && (v.device_peak_bytes < least || v.device_peak_bytes - least > least / part))
        fail_msg("%u micro-batches, %llu bytes of the host: %llu for %llu", C,
                 (unsigned long long)host, (unsigned long long)v.device_peak_bytes,
                 (unsigned long long)least);
    refuse(g, profile, &request);
    if (plan && !says("not enough host memory"))
        assert_in_range(bytes_behind("needs at least"), least, v.device_peak_bytes);
    part_plan_close(&plan);
    part_solved_close(&s);
    part_table_close(&s.table);
    part_model_close(&s.model);
}

/* With boundaries on the host the finest partition needs least; on the device they add up, and a host may be too small
 * for all of them. */
static void asks_for_the_least(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {
        /* vocabulary, width, micro-batch, tokens */
        {97, 32, 2, 8}, {5000, 32, 1, 16}, {97, 64, 8, 64}, {600, 128, 1, 4}, {50, 32, 16, 128},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const graph_config config = {.name = "small",
                                     .vocab_size = shapes[i][0],
                                     .positions = shapes[i][3],
                                     .width = shapes[i][1],
                                     .layers = 1,
                                     .heads = 2,
                                     .inner = 4 * shapes[i][1],
                                     .epsilon = 1e-5f,
                                     .init_std = 0.02f};
        graph *g = fused_gpt2(&config, ATOM_F32, shapes[i][2], shapes[i][3]);
        part_profile *profile = modelled(g, "rtx-4090");
        part_model *m = NULL;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        const uint64_t stash = part_narrowest_bytes(m);
        for (uint32_t C = 1; C <= 16; C *= 4) {
            profile->device.device_bytes = C == 4 ? 0 : (uint64_t)24 << 30; /* 0: nobody knows */
            for (uint64_t cuts = 0; cuts <= 5; cuts += cuts ? 2 : 1)
                compare_with_all(g, profile, C, part_host_base_bytes(m, C) + cuts * C * stash);
            compare_with_all(g, profile, C, (uint64_t)1 << 44);
        }
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_the_device),
        cmocka_unit_test(of_the_host),
        cmocka_unit_test(asks_for_the_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
