/*
 * What placement is told about a model and a host: layers cover the graph once, their bytes and
 * seconds are those of graph and profile, and a whole copy costs what its plan says, swapped or not.
 */
#include "atom/plan/place_costs.h"

#include "tests/unit/part_common.h"

#include <math.h>

enum { C = 4 };
static const uint64_t MIB = 1 << 20, GIB = 1 << 30;

typedef struct fixture {
    graph *g;
    part_profile *profile;
    plan_layers *l;
} fixture;

static fixture arrange(const char *preset)
{
    fixture f = {0};
    graph_config config;
    graph *plain = NULL;
    assert_int_equal(graph_preset_get(preset, &config), ATOM_OK);
    assert_int_equal(graph_model_build(&config, ATOM_BF16, 1, 512, &plain), ATOM_OK);
    assert_int_equal(graph_fuse(plain, &f.g), ATOM_OK);
    graph_close(&plain);
    f.profile = modelled(f.g, "rtx-4090");
    assert_int_equal(plan_layers_open(f.g, &f.l), ATOM_OK);
    return f;
}

static void leave(fixture *f)
{
    plan_layers_close(&f->l);
    part_profile_close(&f->profile);
    graph_close(&f->g);
}

static void layers_cover_the_model(void **state)
{
    (void)state;
    fixture f = arrange("gpt2-124m");
    uint64_t sum = 0, tied = 0;
    int32_t ids[8];
    assert_true(f.l->n >= 13); /* a dozen blocks, and what is around them */
    assert_int_equal(f.l->first_node[0], 0);
    assert_int_equal(f.l->first_node[f.l->n], f.g->n_nodes);
    for (uint32_t i = 0; i < f.l->n; i++) {
        assert_true(f.l->first_node[i] < f.l->first_node[i + 1]);
        assert_true(f.l->layers[i].elements > 0);
        sum += f.l->layers[i].elements;
        if (i) {
            assert_int_equal(graph_boundary(f.g, f.l->first_node[i], ids, 8), 1);
            assert_int_equal(f.l->layers[i].boundary_bytes,
                             graph_boundary_bytes(f.g, f.l->first_node[i]));
        }
    }
    for (uint32_t i = 0; i < f.g->n_params; i++) /* wte is in the first layer and in the last */
        tied += f.g->params[i].shared ? f.g->params[i].elements : 0;
    assert_true(f.l->tied && tied > 0);
    assert_int_equal(sum, f.g->param_elements + tied);
    leave(&f);
    f = arrange("llama-3.1-8b");
    sum = 0;
    for (uint32_t i = 0; i < f.l->n; i++)
        sum += f.l->layers[i].elements;
    assert_false(f.l->tied);
    assert_int_equal(sum, f.g->param_elements);
    leave(&f);
}

static void seconds_are_those_of_the_profile(void **state)
{
    (void)state;
    fixture f = arrange("gpt2-124m");
    const plan_host_limits limits = {.host_memory = 64 * GIB, .micro_batches = C};
    plan_host_costs costs;
    double sum = 0, nodes = 0;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &costs), ATOM_OK);
    for (uint32_t i = 0; i < f.l->n; i++)
        sum += costs.kind.layer_seconds[i];
    for (uint32_t i = 0; i < f.g->n_nodes; i++) {
        const part_node_cost *c = &f.profile->nodes[i];
        nodes += c->bwd_seconds + (i + 1 < f.g->n_nodes ? 2 * c->fwd_seconds : 0);
    }
    assert_true(fabs(sum - nodes) < 1e-9 * nodes);
    assert_string_equal(costs.kind.name, "box");
    assert_true(costs.kind.update_elements_per_second > 0);
    assert_true(costs.kind.load_bytes_per_second == f.profile->device.h2d_bytes_per_second);
    assert_int_equal(costs.kind.device_bytes, f.profile->device.device_bytes);
    assert_int_equal(costs.kind.host_bytes, 64 * GIB);
    assert_true(costs.kind.disk_bytes_per_second == 0);
    plan_host_free(&costs);
    leave(&f);
}

/* A step of the copy, as its plan says it. */
static double planned(const fixture *f, const plan_host_limits *limits, uint32_t *sub_models)
{
    part_plan *plan = NULL;
    const plan_request request = {.devices = limits->devices,
                                  .device_memory = limits->device_memory,
                                  .host_memory = limits->host_memory,
                                  .micro_batches = C,
                                  .clip = true,
                                  .recompute = -1,
                                  .ahead = true};
    assert_int_equal(plan_search(f->g, f->profile, NULL, &request, &plan, NULL), ATOM_OK);
    double seconds = part_plan_seconds(plan);
    *sub_models = plan->n_sub_models;
    part_plan_close(&plan);
    return seconds;
}

static void a_whole_copy_costs_what_its_plan_says(void **state)
{
    (void)state;
    fixture f = arrange("gpt2-124m");
    plan_host_limits limits = {.host_memory = 64 * GIB, .micro_batches = C};
    double before = 0;
    for (int way = 0; way < 3; way++) {
        plan_host_costs costs;
        uint32_t sub_models = 0;
        bool swapped = way > 0, two = way > 1;
        limits.devices = two ? 2 : 0;
        limits.device_memory = swapped ? 700 * MIB : 0;
        assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &costs), ATOM_OK);
        assert_true(costs.kind.whole);
        double step = C * costs.kind.whole_micro_seconds + costs.kind.whole_update_seconds;
        assert_true(fabs(step - planned(&f, &limits, &sub_models)) < 1e-9 * step);
        assert_true(costs.kind.whole_update_seconds >= 0 && costs.kind.whole_micro_seconds > 0);
        assert_true(!swapped || sub_models > 1);
        assert_true(way == 0 || (two ? step != before : step > before));
        before = step;
        plan_host_free(&costs);
    }
    leave(&f);
}

static void says_why_a_host_cannot_hold_it(void **state)
{
    (void)state;
    fixture f = arrange("gpt2-124m");
    plan_host_limits limits = {.host_memory = GIB, .micro_batches = C};
    plan_host_costs costs;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &costs), ATOM_OK);
    assert_false(costs.kind.whole);
    assert_true(strlen(costs.kind.whole_why) > 10);
    plan_host_free(&costs);
    limits.host_beside = GIB;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &costs), ATOM_OK);
    assert_false(costs.kind.whole);
    assert_non_null(strstr(costs.kind.whole_why, "the pool alone"));
    plan_host_free(&costs);
    limits.host_beside = 0;
    for (uint64_t gib = 1; gib <= 4; gib++) { /* a state of 1.4 GiB, three times (swap/disk.h) */
        limits.disk = gib * GIB;
        assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &costs), ATOM_OK);
        assert_false(costs.kind.whole);
        assert_non_null(strstr(costs.kind.whole_why, "needs 4.5 GB of disk"));
        plan_host_free(&costs);
    }
    limits.disk = 100 * GIB;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &costs), ATOM_OK);
    assert_true(costs.kind.whole && costs.kind.disk_bytes_per_second > 0);
    plan_host_free(&costs);
    leave(&f);
}

/* What a pool takes goes to disk before the optimizer's state does, and costs no time. */
static void the_pools_share_goes_to_disk_first(void **state)
{
    (void)state;
    fixture f = arrange("gpt2-124m");
    plan_host_limits limits = {.host_memory = 64 * GIB, .host_beside = 2 * GIB, .micro_batches = C};
    plan_host_costs roomy, tight;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &roomy), ATOM_OK);
    limits.host_memory = 3 * GIB;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &tight), ATOM_OK);
    assert_false(tight.kind.whole);
    plan_host_free(&tight);
    limits.least_beside = 200 * MIB;
    assert_int_equal(plan_host_price(f.g, f.profile, f.l, &limits, "box", &tight), ATOM_OK);
    assert_true(tight.kind.whole && tight.kind.whole_why[0] == 0);
    assert_true(tight.kind.whole_bytes + 2 * GIB - 200 * MIB == roomy.kind.whole_bytes);
    assert_true(tight.kind.whole_micro_seconds == roomy.kind.whole_micro_seconds);
    plan_host_free(&tight);
    plan_host_free(&roomy);
    leave(&f);
}

static void refuses_a_profile_of_another_model(void **state)
{
    (void)state;
    fixture f = arrange("gpt2-124m"), other = arrange("gpt2-1558m");
    const plan_host_limits limits = {.micro_batches = C};
    plan_host_costs costs;
    assert_int_equal(plan_host_price(f.g, other.profile, f.l, &limits, "box", &costs),
                     ATOM_E_USAGE);
    leave(&f);
    leave(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_cover_the_model),
        cmocka_unit_test(seconds_are_those_of_the_profile),
        cmocka_unit_test(a_whole_copy_costs_what_its_plan_says),
        cmocka_unit_test(says_why_a_host_cannot_hold_it),
        cmocka_unit_test(the_pools_share_goes_to_disk_first),
        cmocka_unit_test(refuses_a_profile_of_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
