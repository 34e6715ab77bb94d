/* Holding single nodes: the knapsack against all choices, groups whose costs add up, and plans that
 * are faster for it and never slower. */
#include "partition/knapsack.h"
#include "partition/model.h"
#include "tests/unit/part_common.h"

static uint32_t roll(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* The greatest gain within both limits, by trying everything. */
static int64_t try_all(const part_thing *things, uint32_t n, int64_t a, int64_t b)
{
    int64_t best = 0;
    if (n == 0)
        return 0;
    for (uint32_t c = 0; c <= things->n; c++) {
        int64_t x = a - things->cost[0] * c, y = b - things->cost[1] * c;
        if (x < 0 || y < 0)
            break;
        int64_t gain = things->gain * c + try_all(things + 1, n - 1, x, y);
        best = gain > best ? gain : best;
    }
    return best;
}

static void the_knapsack_is_exact(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int i = 0; i < 2000; i++) {
        part_thing things[6] = {0};
        uint32_t n = roll(&seed, 6), link = roll(&seed, 4);
        int64_t limit[2] = {roll(&seed, 200), roll(&seed, 400)}, gain = 0, cost[2] = {0, 0};
        for (uint32_t t = 0; t < n; t++) {
            things[t].cost[0] = roll(&seed, 40);
            things[t].gain = 1 + roll(&seed, 40);
            things[t].cost[1] = link * things[t].cost[0] + things[t].gain;
            things[t].n = roll(&seed, 5);
        }
        part_sack_sort(things, n);
        int64_t best = part_sack(things, n, limit);
        for (uint32_t t = 0; t < n; t++) {
            assert_true(things[t].taken <= things[t].n);
            gain += things[t].gain * things[t].taken;
            cost[0] += things[t].cost[0] * things[t].taken;
            cost[1] += things[t].cost[1] * things[t].taken;
        }
        assert_int_equal(gain, best);
        assert_true(cost[0] <= limit[0] && cost[1] <= limit[1]);
        if (best != try_all(things, n, limit[0], limit[1]))
            fail_msg("draw %d: %lld is gained, %lld can be", i, (long long)best,
                     (long long)try_all(things, n, limit[0], limit[1]));
    }
}

/* What is repeated falls by a group's time when the group is held, whatever else is. */
static void groups_add_up(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < 200; i++) {
        graph *g = tiny_gpt2(2 + roll(&seed, 4));
        part_profile *profile = modelled(g, "rtx-4090");
        part_model *m = NULL;
        uint8_t holds[256] = {0};
        for (uint32_t n = 0; n < g->n_nodes; n++)
            profile->nodes[n].fwd_seconds *= 1 + roll(&seed, 9);
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        uint32_t a = roll(&seed, m->n_points - 2);
        uint32_t b = a + 1 + roll(&seed, m->n_points - 2 - a);
        part_range all = part_range_make(m, m->points[a], m->points[b]), some = all;
        int64_t saved = 0;
        uint64_t held = 0, sent = 0;
        bool everything = roll(&seed, 4) == 0;
        part_groups(m, all.first, all.last);
        for (int32_t root = all.first; root < all.last; root++) {
            part_hold hold = everything ? PART_HOLD_HOST : (part_hold)roll(&seed, 3);
            if (m->marks[root].group != root || hold == PART_AGAIN)
                continue;
            saved += m->marks[root].ps;
            *(hold == PART_HOLD_HOST ? &sent : &held) += m->marks[root].bytes;
            for (int32_t n = all.first; n < all.last; n++)
                if (m->marks[n].any_kept && part_group_root(m, n) == root)
                    holds[n] = (uint8_t)hold;
        }
        part_range_hold(m, holds, &some);
        assert_int_equal(some.again_ps, all.again_ps - saved);
        assert_int_equal(some.held_bytes, held);
        assert_int_equal(some.sent_bytes, sent);
        if (everything) {
            assert_int_equal(some.again_ps, 0);
            assert_int_equal(sent, all.kept_bytes);
        }
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
}

static part_plan *plan_for(const graph *g, const part_profile *profile, int recompute)
{
    part_request request = {.device_budget_bytes = (uint64_t)20 << 30,
                            .host_budget_bytes = (uint64_t)256 << 30,
                            .micro_batches = 16,
                            .recompute = recompute,
                            .clip = true};
    part_plan *plan = NULL;
    assert_int_equal(part_search(g, profile, &request, &plan, NULL), ATOM_OK);
    return plan;
}

/* A model that must be swapped and has memory to spare: what its link and device have room for is
 * not repeated. */
static void holds_what_pays(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt3-6.7b", ATOM_BF16, 2, 1024);
    part_profile *profile = modelled(g, "rtx-4090");
    part_plan *free_choice = plan_for(g, profile, -1), *always = plan_for(g, profile, 1);
    assert_non_null(free_choice->holds);
    assert_null(always->holds);
    assert_true(free_choice->predicted_step_seconds < 0.95 * always->predicted_step_seconds);
    assert_true(free_choice->device_peak_bytes <= free_choice->device_budget_bytes);
    assert_int_equal(part_plan_check(free_choice, g), ATOM_OK);
    part_plan_close(&free_choice);
    part_plan_close(&always);
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_knapsack_is_exact),
        cmocka_unit_test(groups_add_up),
        cmocka_unit_test(holds_what_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
