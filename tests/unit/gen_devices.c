/*
 * Plans for several devices, in virtual time: what two of them take beside one, what they wait for,
 * what they need; and where their sums go.
 */
#include "atom/base/mem.h"
#include "tests/lib/random_gpt2.h"
#include "tests/lib/strided_plan.h"
#include "tests/scratch.h"

#include <stdlib.h>
#include <string.h>

/* A large model has sub-models enough for the wait at the turn to be short. */
static void devices_share_a_step(void **state)
{
    (void)state;
    graph_config config;
    graph *plain = NULL, *g = NULL;
    part_device device = card(1e14, 2e10);
    part_profile *profile = NULL;
    assert_int_equal(graph_preset_get("llama-2-7b", &config), ATOM_OK);
    assert_int_equal(graph_model_build(&config, ATOM_BF16, 1, 2048, &plain), ATOM_OK);
    assert_int_equal(graph_fuse(plain, &g), ATOM_OK);
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 12, 64);
    for (int place = PART_ON_DEVICE; place <= PART_ON_HOST; place++) {
        plan->boundaries = (part_place)place;
        part_verdict one = judge(g, profile, plan, 1), two = judge(g, profile, plan, 2);
        part_verdict four = judge(g, profile, plan, 4);
        assert_true(one.step_seconds > 1.9 * two.step_seconds);
        assert_true(one.step_seconds > 3.4 * four.step_seconds);
        /* each computes its share, and sends no more than one did */
        assert_true(two.compute_seconds < 0.52 * one.compute_seconds);
        assert_true(two.compute_seconds > 0.49 * one.compute_seconds);
        assert_int_equal(two.bound, PART_BOUND_COMPUTE);
        if (place == PART_ON_DEVICE)
            assert_true(two.device_peak_bytes < one.device_peak_bytes);
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
    graph_close(&plain);
}

typedef struct way {
    uint32_t clears, hands, takes, rounds, fetches, computed[SWAP_DEVICES_MAX];
    uint64_t handed, taken, spilled;
} way;

static way way_of(const swap_tape *tape)
{
    way w = {0};
    assert_int_equal(swap_hazard_check(tape), ATOM_OK);
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *in = &tape->instrs[i];
        w.clears += in->code == SWAP_CLEAR;
        w.hands += in->code == SWAP_HAND;
        w.takes += in->code == SWAP_TAKE;
        w.fetches += in->code == SWAP_FETCH;
        w.handed += in->code == SWAP_HAND ? in->src.bytes : 0;
        w.taken += in->code == SWAP_TAKE ? in->src.bytes : 0;
        w.spilled += in->code == SWAP_SPILL ? in->src.bytes : 0;
        w.computed[in->device] += in->code == SWAP_BWD;
        if (in->code == SWAP_ROUND || in->code == SWAP_SPILL)
            assert_int_equal(in->device, tape->n_devices - 1);
        if (in->code == SWAP_CLEAR)
            assert_int_equal(in->device, 0);
        w.rounds += in->code == SWAP_ROUND;
    }
    return w;
}

/* Sums go from each device to the next, and are rounded and spilled once, whatever the number. */
static void sums_go_through_all_devices(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(1);
    graph *g = fused(&r.config, 2, 16);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    way one = {0};
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 2, 7);
    uint32_t n = plan->n_sub_models;
    assert_true(n > 2);
    for (uint32_t D = 1; D <= 7; D++) {
        gen_lowered *low = NULL;
        plan->devices = D;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        way w = way_of(low->tapes[SWAP_TAPE_TRAIN]);
        (void)way_of(low->tapes[SWAP_TAPE_EVAL]);
        if (D == 1)
            one = w;
        uint32_t all = 0;
        for (uint32_t d = 0; d < D; d++) {
            all += w.computed[d];
            assert_true(w.computed[d] >= 7 / D * n && w.computed[d] <= (7 / D + 1) * n);
            assert_true(d == 0 || w.computed[d] <= w.computed[d - 1]);
        }
        assert_int_equal(all, 7 * n);
        assert_int_equal(w.rounds, one.rounds);
        assert_int_equal(w.spilled, one.spilled);
        assert_int_equal(w.hands, w.takes);
        assert_int_equal(w.handed, w.taken);
        if (D == 1)
            assert_true(w.hands == 0 && w.clears == 0);
        else
            assert_true(w.hands >= (D - 1) * (n - 1) && w.clears >= n - 1);
        gen_lowered_close(&low);
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(1);
    graph *g = fused(&r.config, 2, 16);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    gen_lowered *low = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 1000, 2);
    for (plan->devices = 0; plan->devices < 12; plan->devices++) {
        bool can = plan->devices == 1 || plan->devices == 2;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), can ? ATOM_OK : ATOM_E_USAGE);
        gen_lowered_close(&low);
    }
    plan->devices = 2;
    plan->in_place = true;
    assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_E_USAGE);
    plan->in_place = false;
    plan->update_on_device = true;
    assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_E_USAGE);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

static void a_file_says_how_many(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(1);
    graph *g = fused(&r.config, 2, 16);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 2, 4);
    scratch s;
    scratch_open(&s);
    for (plan->devices = 1; plan->devices < 4; plan->devices++) {
        char *text = NULL;
        part_plan *read = NULL;
        assert_int_equal(part_plan_json(plan, &text), ATOM_OK);
        assert_true((strstr(text, "\"devices\"") != NULL) == (plan->devices > 1));
        const char *path = scratch_write(&s, "plan.json", text, strlen(text));
        assert_int_equal(part_plan_read(path, &read), ATOM_OK);
        assert_int_equal(read->devices, plan->devices);
        part_plan_close(&read);
        atom_free(text);
    }
    scratch_close(&s);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_share_a_step),
        cmocka_unit_test(sums_go_through_all_devices),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(a_file_says_how_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
