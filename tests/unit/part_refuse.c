/* What a refusal says: its figures belong together, and each thing it advises would do. */
#include "atom/base/size.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_the_device),
        cmocka_unit_test(of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
