/* The search beside an exact evaluation that differs from its model: of memory, of time, of what a step does once. */
#include "partition/model.h"
#include "tests/lib/sanitized.h"
#include "tests/unit/part_common.h"

#include <math.h>

enum { PERCENT = SANITIZED ? 3 : 1 }; /* from one limit of memory to the next */

/* An exact evaluation that needs more than the model thinks, and a slower step. */
typedef struct exact {
    part_model *m;
    uint64_t more_bytes;
    uint32_t calls, whole; /* whole: weighed plans that update on the device */
} exact;

static atom_status evaluate(void *ctx, const part_plan *plan, part_verdict *verdict)
{
    exact *e = ctx;
    e->calls++;
    part_estimate(e->m, plan, verdict);
    verdict->device_peak_bytes += e->more_bytes;
    verdict->step_seconds *= 1.25;
    return ATOM_OK;
}

static void lets_the_exact_evaluation_decide(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 2, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    exact e = {.more_bytes = 100 << 20};
    part_search_stats stats;
    assert_int_equal(part_model_open(g, profile, &e.m), ATOM_OK);
    for (uint64_t mib = 700; mib < 3000; mib += 350) {
        part_request request = {.device_budget_bytes = mib << 20,
                                .micro_batches = 4,
                                .clip = true,
                                .recompute = -1,
                                .evaluate = evaluate,
                                .evaluate_ctx = &e};
        e.calls = 0;
        part_plan *plan = search_plan(g, profile, &request, &stats);
        part_verdict v;
        assert_int_equal(evaluate(&e, plan, &v), ATOM_OK);
        assert_true(v.device_peak_bytes <= mib << 20);
        assert_true(plan->device_peak_bytes == v.device_peak_bytes);
        assert_true(plan->predicted_step_seconds == v.step_seconds);
        assert_in_range(stats.evaluated, 1, 32);
        part_plan_close(&plan);
    }
    part_model_close(&e.m);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Evaluations, around what one sub-model needs: more memory is never slower, whether the model thinks that
 * it needs more than it does, or less. */
static void evaluates_with_what_it_is_given(void **state)
{
    (void)state;
    static const int64_t more_mib[] = {-10, 0, 10};
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 1, 256);
    graph_set_forward(g);
    part_profile *profile = modelled(g, "rtx-4090");
    exact e = {0};
    part_request request = {
        .micro_batches = 1, .recompute = -1, .evaluate = evaluate, .evaluate_ctx = &e};
    assert_int_equal(part_model_open(g, profile, &e.m), ATOM_OK);
    for (size_t i = 0; i < sizeof more_mib / sizeof *more_mib; i++) {
        double before = 1e9;
        e.more_bytes = (uint64_t)more_mib[i] * (1 << 20);
        request.device_budget_bytes = (uint64_t)16 << 30;
        part_plan *whole = search_plan(g, profile, &request, NULL);
        const uint64_t need = whole->device_peak_bytes;
        assert_int_equal(whole->n_sub_models, 1);
        for (uint64_t limit = need / 100 * 85; limit < need / 100 * 108;
             limit += need / 100 * PERCENT) {
            request.device_budget_bytes = limit;
            part_plan *plan = search_plan(g, profile, &request, NULL);
            if (plan->predicted_step_seconds > before * 1.005)
                fail_msg("with %llu of %llu bytes, %lld MiB off: %g s after %g",
                         (unsigned long long)limit, (unsigned long long)need,
                         (long long)more_mib[i], plan->predicted_step_seconds, before);
            assert_true((plan->n_sub_models == 1) == (limit >= need));
            before = plan->predicted_step_seconds;
            part_plan_close(&plan);
        }
        part_plan_close(&whole);
    }
    part_model_close(&e.m);
    part_profile_close(&profile);
    graph_close(&g);
}

static atom_status weigh(void *ctx, const part_plan *plan, part_verdict *verdict)
{
    exact *e = ctx;
    e->whole += plan->update_on_device;
    part_estimate(e->m, plan, verdict);
    verdict->device_peak_bytes += e->more_bytes;
    return ATOM_OK;
}

/* Where the model and the limit are within a twentieth of each other, one sub-model is weighed exactly before it is
 * believed in or given up; farther away the model is. */
static void weighs_one_where_that_is_not_sure(void **state)
{
    (void)state;
    static const struct {
        int more, limit; /* percent of what the model thinks that it needs */
        bool weighed, one;
    } cases[] = {{-3, 98, true, true},   {-3, 96, true, false},  {3, 102, true, false},
                 {3, 104, true, true},   {-8, 94, false, false}, {0, 106, false, true},
                 {30, 110, false, false}};
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 1, 256);
    part_profile *profile = modelled(g, "rtx-4090");
    exact e = {0};
    part_request request = {.device_budget_bytes = (uint64_t)16 << 30,
                            .micro_batches = 4,
                            .no_advice = true,
                            .clip = true,
                            .recompute = -1,
                            .update_on_device = true,
                            .evaluate = evaluate,
                            .weigh = weigh,
                            .evaluate_ctx = &e};
    assert_int_equal(part_model_open(g, profile, &e.m), ATOM_OK);
    part_plan *plan = search_plan(g, profile, &request, NULL);
    const int64_t percent = (int64_t)plan->device_peak_bytes / 100;
    assert_true(plan->n_sub_models == 1 && plan->update_on_device);
    part_plan_close(&plan);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        e.more_bytes = (uint64_t)(cases[i].more * percent);
        e.whole = 0;
        request.device_budget_bytes = (uint64_t)(cases[i].limit * percent);
        plan = search_plan(g, profile, &request, NULL);
        if ((e.whole > 0) != cases[i].weighed || plan->update_on_device != cases[i].one)
            fail_msg("%d %% more, limit %d %%: %u times weighed, %u sub-models", cases[i].more,
                     cases[i].limit, e.whole, plan->n_sub_models);
        part_plan_close(&plan);
    }
    part_model_close(&e.m);
    part_profile_close(&profile);
    graph_close(&g);
}

/* An exact evaluation in which a step takes longer by a time of its own, and too many micro-batches do not pay. */
typedef struct beside {
    part_model *m;
    double once_seconds;
    uint32_t pays_to; /* micro-batches; 0: all do */
} beside;

static atom_status evaluate_beside(void *ctx, const part_plan *plan, part_verdict *verdict)
{
    const beside *b = ctx;
    part_estimate(b->m, plan, verdict);
    verdict->step_seconds += b->once_seconds;
    if (b->pays_to && plan->micro_batches > b->pays_to)
        verdict->step_seconds *= 10;
    return ATOM_OK;
}

/* Where the exact evaluation sees more that a step does once, more micro-batches share it, as long as that pays. */
static void recommends_by_the_exact_evaluation(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 8, 1024);
    part_profile *profile = modelled(g, "rtx-4090");
    beside b = {0};
    part_request request = {.device_budget_bytes = (uint64_t)3 << 30,
                            .clip = true,
                            .recompute = 1,
                            .evaluate = evaluate_beside,
                            .evaluate_ctx = &b};
    assert_int_equal(part_model_open(g, profile, &b.m), ATOM_OK);
    part_plan *plan = search_plan(g, profile, &request, NULL);
    const uint32_t C = plan->recommended_micro_batches;
    const double rate = plan->recommended_tokens_per_second;
    part_plan_close(&plan);
    b.once_seconds = 0.5 * C * (8 * 1024) / rate;
    plan = search_plan(g, profile, &request, NULL);
    assert_in_range(plan->recommended_micro_batches, 2 * C, 8 * C);
    assert_true(plan->recommended_tokens_per_second > rate / 1.3);
    part_plan_close(&plan);
    b.pays_to = C;
    plan = search_plan(g, profile, &request, NULL);
    assert_int_equal(plan->recommended_micro_batches, C);
    assert_true(fabs(1.5 * plan->recommended_tokens_per_second / rate - 1) < 0.01);
    part_plan_close(&plan);
    part_model_close(&b.m);
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lets_the_exact_evaluation_decide),
        cmocka_unit_test(evaluates_with_what_it_is_given),
        cmocka_unit_test(weighs_one_where_that_is_not_sure),
        cmocka_unit_test(recommends_by_the_exact_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
