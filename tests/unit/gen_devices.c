/*
 * Plans for several devices, in virtual time: what two of them take beside one, what they wait for,
 * what they need; and where their sums go.
 */
#include "atom/base/mem.h"
#include "codegen/lower.h"
#include "tests/lib/random_gpt2.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static graph *fused(const graph_config *config, int64_t B, int64_t T)
{
    graph *plain = NULL, *g = NULL;
    assert_int_equal(graph_gpt2_build(config, ATOM_BF16, B, T, &plain), ATOM_OK);
    assert_int_equal(graph_fuse(plain, &g), ATOM_OK);
    graph_close(&plain);
    return g;
}

static uint64_t wire_bytes_of(const graph *g, int32_t first, int32_t last)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        bool used = false;
        for (int32_t i = first; i < last; i++) {
            for (int j = 0; j < g->nodes[i].n_params; j++)
                used |= g->nodes[i].params[j] == (int32_t)p;
        }
        uint64_t room = (g->params[p].elements + GRAPH_PARAM_ALIGN - 1) / GRAPH_PARAM_ALIGN;
        bytes += used ? room * GRAPH_PARAM_ALIGN * atom_dtype_bytes(g->dtype) : 0;
    }
    return bytes;
}

/* Cuts in front of every `stride`-th node that may be cut at. */
static part_plan *strided_plan(const graph *g, const part_profile *profile, int stride, uint32_t C)
{
    int32_t cuts[256];
    uint32_t n = 0;
    int seen = 0;
    for (int32_t c = 1; c < (int32_t)g->n_nodes && n < 256; c++) {
        if (graph_can_cut(g, c) && ++seen % stride == 0)
            cuts[n++] = c;
    }
    part_plan *plan = NULL;
    assert_int_equal(part_plan_open(g, profile, n + 1, &plan), ATOM_OK);
    plan->micro_batches = C;
    plan->clip = true;
    plan->cut_bytes = 0;
    for (uint32_t k = 0; k <= n; k++) {
        part_sub_model *s = &plan->sub_models[k];
        s->first_node = k ? cuts[k - 1] : 0;
        s->last_node = k < n ? cuts[k] : (int32_t)g->n_nodes;
        s->param_bytes = wire_bytes_of(g, s->first_node, s->last_node);
        plan->cut_bytes += k ? graph_boundary_bytes(g, s->first_node) : 0;
    }
    return plan;
}

static part_device card(double flops, double link)
{
    return (part_device){.name = "a card",
                         .isa = "none",
                         .modelled = true,
                         .cores = 8,
                         .device_bytes = 1ull << 34,
                         .host_bytes = 1ull << 40,
                         .flops_fp32 = flops,
                         .flops_bf16 = flops,
                         .device_bytes_per_second = 1e12,
                         .h2d_bytes_per_second = link,
                         .d2h_bytes_per_second = link,
                         .h2d_both_bytes_per_second = link,
                         .d2h_both_bytes_per_second = link,
                         .host_bytes_per_second = 1e12,
                         .adamw_params_per_second = 1e11};
}

static part_verdict judge(const graph *g, const part_profile *profile, part_plan *plan,
                          uint32_t devices)
{
    gen_judge j = {.g = g, .profile = profile};
    part_verdict v;
    plan->devices = devices;
    assert_int_equal(gen_judge_plan(&j, plan, &v), ATOM_OK);
    return v;
}

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
