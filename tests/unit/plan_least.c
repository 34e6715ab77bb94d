/*
 * The least memory that a model can be planned in: what a refusal asks for is close to it, there is advice for it,
 * and a free number of micro-batches fits where some number does.
 */
#include "atom/plan/workbench.h"

#include "tests/unit/part_common.h"

static const uint64_t MIB = 1 << 20, PLENTY = (uint64_t)1 << 44;

typedef struct place {
    graph *g;
    part_profile *profile;
    plan_request request;
} place;

static place begin_on(int64_t width, int64_t layers, int64_t vocab, int64_t micro_batch,
                      graph_optimizer optimizer, const part_device *device)
{
    const graph_config config = {.name = "small",
                                 .vocab_size = vocab,
                                 .positions = 128,
                                 .width = width,
                                 .layers = layers,
                                 .heads = width / 64,
                                 .inner = 4 * width,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
    place p = {.g = fused_gpt2(&config, ATOM_BF16, micro_batch, 128)};
    graph_set_optimizer(p.g, optimizer);
    assert_int_equal(part_profile_model(p.g, device, &p.profile), ATOM_OK);
    p.request = (plan_request){.host_memory = PLENTY,
                               .micro_batches = 2,
                               .update_on_device = true,
                               .recompute = PLAN_RECOMPUTE_FREE,
                               .disk = PLAN_STATE_FREE,
                               .ahead = true};
    return p;
}

/* A small GPT-2 on a card with a quick link. */
static place begin(int64_t width, int64_t layers, int64_t vocab)
{
    const part_device device = spec("rtx-pro-6000");
    return begin_on(width, layers, vocab, 4, GRAPH_ADAMW, &device);
}

static void end(place *p)
{
    part_profile_close(&p->profile);
    graph_close(&p->g);
}

static part_plan *planned(const place *p)
{
    part_plan *plan = NULL;
    atom_status st = plan_search(p->g, p->profile, NULL, &p->request, &plan, NULL);
    assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
    assert_true(!plan || part_plan_check(plan, p->g) == ATOM_OK);
    return plan;
}

static bool fits(place *p, uint64_t device, uint64_t host)
{
    p->request.device_memory = device;
    p->request.host_memory = host;
    part_plan *plan = planned(p);
    const bool fit = plan != NULL;
    part_plan_close(&plan);
    return fit;
}

/* The bytes that the last refusal said are needed: "needs at least 12 MiB (12345678 bytes)". */
static uint64_t needed(const char *of)
{
    const char *at = strstr(atom_fail_message(), of);
    at = at ? strstr(at, "needs at least") : NULL;
    at = at ? strchr(at, '(') : NULL;
    if (!at)
        fail_msg("no bytes in: %s", atom_fail_message());
    return strtoull(at + 1, NULL, 10);
}

/* What is asked for is enough, and hardly more than the least that is; with that there is a number to recommend. It
 * was up to a quarter more, since only a disk's refusal was heard; and with the least of all nothing was recommended. */
static void asks_for_little_more_than_the_least(void **state)
{
    (void)state;
    static const struct {
        int64_t width, layers, vocab;
        uint32_t C;
    } cases[] = {{128, 3, 32000, 2}, {512, 4, 50257, 16}, {256, 4, 2048, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        place p = begin(cases[i].width, cases[i].layers, cases[i].vocab);
        p.request.micro_batches = cases[i].C;
        assert_false(fits(&p, MIB, PLENTY));
        const uint64_t need = needed("device memory");
        uint64_t low = need / 2, least = need;
        assert_true(fits(&p, need, PLENTY));
        while (least - low > least / 1000) {
            const uint64_t middle = low + (least - low) / 2;
            if (fits(&p, middle, PLENTY))
                least = middle;
            else
                low = middle;
        }
        if (need > least + least / 32)
            fail_msg("%llu bytes are asked for, and %llu are enough", (unsigned long long)need,
                     (unsigned long long)least);
        p.request.device_memory = least;
        part_plan *plan = planned(&p);
        assert_in_range(plan->recommended_micro_batches, 1, 65536);
        assert_true(plan->most_tokens_per_second >= part_plan_tokens_per_second(plan));
        part_plan_close(&plan);
        end(&p);
    }
}

/* With a free number of micro-batches there is a plan wherever there is one with few. Where devices share them, more
 * were recommended than the host had room for, and that was refused. */
static void a_free_number_fits_where_few_do(void **state)
{
    (void)state;
    place p = begin(512, 4, 2048);
    p.request.devices = 2;
    assert_false(fits(&p, MIB, PLENTY));
    const uint64_t device = needed("device memory") / 10 * 11;
    assert_false(fits(&p, device, 16 * MIB));
    const uint64_t host = needed("host memory");
    for (uint64_t parts = 10; parts <= 13; parts++) {
        p.request.micro_batches = 2;
        assert_true(fits(&p, device, host / 10 * parts + 10));
        p.request.micro_batches = 0;
        p.request.device_memory = device;
        part_plan *plan = planned(&p);
        if (!plan)
            fail_msg("%llu parts: %s", (unsigned long long)parts, atom_fail_message());
        assert_int_equal(plan->recommended_micro_batches, plan->micro_batches);
        part_plan_close(&plan);
    }
    end(&p);
}

/* Numbers that fit are not overlooked between powers of two: where 1024 fitted and 2048 did not, a number far from the
 * best was recommended. */
static void looks_for_more_that_fit(void **state)
{
    (void)state;
    place p = begin(512, 4, 2048);
    p.profile->device.adamw_params_per_second /= 2000; /* what a step does once takes long */
    p.request.disk = PLAN_STATE_IN_MEMORY;
    p.request.no_advice = true;
    p.request.micro_batches = 1900;
    assert_false(fits(&p, 64 * MIB, 16 * MIB));
    const uint64_t host = needed("host memory");
    assert_true(fits(&p, 64 * MIB, host));
    part_plan *most = planned(&p), *plan;
    p.request.micro_batches = 0;
    p.request.no_advice = false;
    plan = planned(&p);
    assert_true(part_plan_tokens_per_second(plan) > 0.88 * part_plan_tokens_per_second(most));
    part_plan_close(&most);
    part_plan_close(&plan);
    end(&p);
}

/* Where Muon's products may be made on the device, which is tried first, and the host alone is better beside a disk, a
 * step of more micro-batches takes longer, but not each of them: a plan of a fifth less speed was taken. */
static void a_free_number_is_not_judged_by_the_step(void **state)
{
    (void)state;
    part_device d = spec("rtx-4090");
    double rates[2];
    d.flops_fp32 /= 10; /* Muon's products are slow there */
    d.flops_bf16 /= 2;
    d.host_bytes_per_second *= 8;
    d.adamw_params_per_second = 0; /* follows from that */
    place p = begin_on(256, 4, 2048, 8, GRAPH_MUON, &d);
    p.request.clip = true;
    p.request.disk = PLAN_STATE_ON_DISK;
    p.request.micro_batches = 0;
    p.request.device_memory = 34816742;
    for (int device = 0; device < 2; device++) {
        p.request.ortho_on_device = device;
        part_plan *plan = planned(&p);
        assert_non_null(plan);
        rates[device] = part_plan_tokens_per_second(plan);
        part_plan_close(&plan);
    }
    if (rates[1] < PART_NEARLY_ALL * rates[0])
        fail_msg("%.0f tokens/s, and %.0f where the host makes all", rates[1], rates[0]);
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_for_little_more_than_the_least),
        cmocka_unit_test(a_free_number_fits_where_few_do),
        cmocka_unit_test(looks_for_more_that_fit),
        cmocka_unit_test(a_free_number_is_not_judged_by_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
