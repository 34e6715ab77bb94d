/* The search's memory model against what codegen lays out: host bytes exactly, device bytes within
 * 3 % (first fit wastes a little scratch), for random graphs and random plans. */
#include "codegen/lower.h"
#include "partition/model.h"
#include "tests/unit/part_common.h"

#include <math.h>

static uint32_t roll(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static graph *random_model(uint64_t *seed)
{
    graph *g = NULL;
    graph_config c = {.name = "random",
                      .vocab_size = 100 + roll(seed, 400),
                      .positions = 64,
                      .width = 32 * (1 + roll(seed, 4)),
                      .layers = 1 + roll(seed, 4),
                      .heads = 4,
                      .epsilon = 1e-5f,
                      .init_std = 0.02f,
                      .resid_pdrop = roll(seed, 2) ? 0.1f : 0};
    c.inner = 4 * c.width;
    atom_dtype dtype = roll(seed, 2) ? ATOM_F32 : ATOM_BF16;
    if (roll(seed, 3))
        return fused_gpt2(&c, dtype, 1 + roll(seed, 4), 16 + roll(seed, 40));
    assert_int_equal(graph_gpt2_build(&c, dtype, 2, 24, &g), ATOM_OK);
    return g;
}

/* Any cuts and any choices: legal, not good. */
static part_plan *random_plan(const part_model *m, uint64_t *seed)
{
    int32_t ends[128];
    uint32_t n = 0, rare = 2 + roll(seed, 10);
    part_plan *plan = NULL;
    for (uint32_t p = 1; p + 1 < m->n_points && n < 127; p++)
        if (roll(seed, rare) == 0)
            ends[n++] = m->points[p];
    ends[n++] = (int32_t)m->g->n_nodes;
    assert_int_equal(part_plan_open(m->g, m->profile, n, &plan), ATOM_OK);
    plan->micro_batches = 1 + roll(seed, 6);
    plan->clip = roll(seed, 2);
    plan->boundaries = roll(seed, 2) ? PART_ON_HOST : PART_ON_DEVICE;
    for (uint32_t k = 0; k < n; k++) {
        part_range r = part_range_make(m, k ? ends[k - 1] : 0, ends[k]);
        plan->sub_models[k] = (part_sub_model){.first_node = r.first,
                                               .last_node = r.last,
                                               .param_bytes = r.slot_bytes,
                                               .keep = (part_keep)roll(seed, 3),
                                               .resident = roll(seed, 4) == 0};
        plan->cut_bytes += r.x_bytes;
    }
    return plan;
}

static void agrees_with_the_layout(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int i = 0; i < 60; i++) {
        graph *g = random_model(&seed);
        part_profile *profile = modelled(g, "rtx-4090");
        part_model *m = NULL;
        part_verdict model, exact;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        part_plan *plan = random_plan(m, &seed);
        gen_judge judge = {.g = g, .profile = profile};
        if (gen_judge_plan(&judge, plan, &exact) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        part_estimate(m, plan, &model);
        assert_int_equal(model.host_peak_bytes, exact.host_peak_bytes);
        double off = (double)model.device_peak_bytes / (double)exact.device_peak_bytes - 1;
        if (fabs(off) > 0.05)
            fail_msg("plan %d: %llu bytes on the device, the model says %llu", i,
                     (unsigned long long)exact.device_peak_bytes,
                     (unsigned long long)model.device_peak_bytes);
        part_plan_close(&plan);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_the_layout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
