/*
 * What one change would buy: every outcome is that of a plan made with that change alone; what was
 * asked stays as it was; a refusal says what would fit.
 */
#include "atom/plan/what_if.h"

#include "tests/unit/part_common.h"

enum { C = 4 };
static const uint64_t GIB = 1 << 30;

static const plan_request ROOMY = {
    .device_memory = 700 << 20,
    .host_memory = 64 * (1ull << 30),
    .micro_batches = C,
    .clip = true,
    .recompute = -1,
    .disk = -1,
    .ahead = true,
};

typedef struct place {
    graph *g;
    part_profile *profile;
    plan_request request;
    part_plan *plan;
    plan_what_if w;
} place;

/* GPT-2 124M on a card of which 700 MiB may be used, and what changes give. */
static place ask(uint64_t host_bytes, int disk, bool fits)
{
    place p = {.g = fused_preset("gpt2-124m", ATOM_BF16, 1, 512), .request = ROOMY};
    p.profile = modelled(p.g, "rtx-4090");
    p.request.host_memory = host_bytes;
    p.request.disk = disk;
    atom_status st = plan_search(p.g, p.profile, NULL, &p.request, &p.plan, NULL);
    assert_int_equal(st, fits ? ATOM_OK : ATOM_E_RESOURCE);
    if (plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(p.g->moments, ATOM_F32);
    return p;
}

static void leave(place *p)
{
    part_plan_close(&p->plan);
    part_profile_close(&p->profile);
    graph_close(&p->g);
}

/* The change whose words begin like this; NULL: it was not tried. */
static const plan_outcome *find(const place *p, const char *words)
{
    for (uint32_t i = 0; i < p->w.n; i++)
        if (strstr(p->w.changes[i].change, words))
            return &p->w.changes[i];
    return NULL;
}

/* The outcome is what planning that gives; with `least`, that plan where it is faster. */
static void is_planned(const plan_outcome *o, const graph *g, const part_profile *profile,
                       const plan_request *request, const part_plan *least)
{
    part_plan *plan = NULL;
    assert_non_null(o);
    assert_true(o->fits);
    assert_int_equal(plan_search(g, profile, NULL, request, &plan, NULL), ATOM_OK);
    plan_outcome alone = plan_outcome_of(plan);
    if (least && plan_outcome_of(least).tokens_per_second > alone.tokens_per_second)
        alone = plan_outcome_of(least);
    assert_true(o->step_seconds == alone.step_seconds);
    assert_true(o->tokens_per_second == alone.tokens_per_second);
    assert_int_equal(o->micro_batches, alone.micro_batches);
    assert_int_equal(o->bound, alone.bound);
    assert_int_equal(o->disk, alone.disk);
    assert_true(o->host_bytes == alone.host_bytes && o->device_bytes == alone.device_bytes);
    part_plan_close(&plan);
}

static void prices_by_planning(void **state)
{
    (void)state;
    place p = ask(GIB, -1, true);
    assert_true(p.plan->disk);
    plan_request request = p.request;

    request.micro_batches = p.plan->recommended_micro_batches;
    if (request.micro_batches == C)
        request.micro_batches = 2 * C;
    is_planned(find(&p, "micro-batches instead of 4"), p.g, p.profile, &request, NULL);

    request = p.request;
    request.device_memory = 0;
    is_planned(find(&p, "all of the device"), p.g, p.profile, &request, p.plan);

    request = p.request;
    const plan_outcome *memory = find(&p, "of host memory");
    for (request.host_memory = 2 * GIB; request.host_memory < memory->host_bytes;)
        request.host_memory *= 2;
    request.disk = 0;
    is_planned(memory, p.g, p.profile, &request, p.plan);
    assert_false(memory->disk);

    graph *narrow = fused_preset("gpt2-124m", ATOM_BF16, 1, 512);
    graph_set_moments(narrow, ATOM_BF16);
    part_profile *profile = modelled(narrow, "rtx-4090");
    is_planned(find(&p, "bf16 moments"), narrow, profile, &p.request, NULL);
    part_profile_close(&profile);
    graph_close(&narrow);

    const plan_outcome *disk = find(&p, "a disk of twice the speed");
    assert_non_null(disk);
    assert_string_equal(disk->option, "");
    part_profile twice = *p.profile;
    twice.device.disk_read_bytes_per_second = 6e9; /* part_device_disk()'s, twice */
    twice.device.disk_write_bytes_per_second = 4e9;
    twice.device.disk_read_both_bytes_per_second = 4e9;
    twice.device.disk_write_both_bytes_per_second = 3e9;
    twice.device.disk_sync_seconds = 5e-3;
    is_planned(disk, p.g, &twice, &p.request, p.plan);
    assert_true(disk->step_seconds < p.plan->predicted_step_seconds);
    leave(&p);
}

static void tries_only_what_could_help(void **state)
{
    (void)state;
    place p = ask(64 * GIB, -1, true);
    assert_false(p.plan->disk);
    assert_null(find(&p, "disk"));
    leave(&p);
    p = ask(64 * GIB, 0, true); /* in memory, as was asked for: a disk is no gain */
    assert_null(find(&p, "disk"));
    leave(&p);
    /* A device that was measured: the rate of AdamW is that of its moments. */
    p = ask(GIB, -1, true);
    p.profile->device.modelled = false;
    assert_int_equal(plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w), ATOM_OK);
    assert_null(find(&p, "bf16 moments"));
    leave(&p);
}

/* The optimizer that was not asked for, where it would train anything else, and where its rates are known. */
static void tries_the_other_optimizer(void **state)
{
    (void)state;
    static const graph_optimizer all[] = {GRAPH_ADAMW, GRAPH_MUON};
    static const char *const changes[] = {"adamw instead of muon", "muon instead of adamw"};
    for (int other = 0; other < 2; other++) {
        place p = {.g = fused_preset("gpt2-124m", ATOM_BF16, 1, 512), .request = ROOMY};
        graph *g = fused_preset("gpt2-124m", ATOM_BF16, 1, 512);
        graph_set_optimizer(p.g, all[!other]);
        graph_set_optimizer(g, all[other]);
        p.profile = modelled(p.g, "rtx-4090");
        p.request.ortho_on_device = p.request.update_on_device = true;
        part_profile *profile = modelled(g, "rtx-4090");
        assert_int_equal(plan_search(p.g, p.profile, NULL, &p.request, &p.plan, NULL), ATOM_OK);
        assert_int_equal(plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w), ATOM_OK);
        is_planned(find(&p, changes[other]), g, profile, &p.request, NULL);
        assert_string_equal(find(&p, changes[other])->option,
                            other ? "--optimizer muon" : "--optimizer adamw");
        assert_null(find(&p, changes[!other]));
        assert_int_equal(p.g->optimizer, all[!other]);
        p.profile->device.modelled = false;
        assert_int_equal(plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w), ATOM_OK);
        assert_null(find(&p, changes[other]));
        part_profile_close(&profile);
        graph_close(&g);
        leave(&p);
    }
}

/* What a plan with a disk would take without one is enough for a plan without one. */
static void says_what_memory_would_take(void **state)
{
    (void)state;
    for (uint32_t devices = 1; devices <= 2; devices++) {
        place p = {.g = fused_preset("gpt2-124m", ATOM_BF16, 1, 512), .request = ROOMY};
        part_plan *roomy = NULL;
        part_verdict v;
        p.profile = modelled(p.g, "rtx-4090");
        p.request.host_memory = GIB;
        p.request.devices = devices;
        assert_int_equal(plan_search(p.g, p.profile, NULL, &p.request, &p.plan, NULL), ATOM_OK);
        assert_true(p.plan->disk);
        assert_int_equal(plan_judge_in_memory(p.g, p.profile, p.plan, &v), ATOM_OK);
        assert_true(p.plan->disk);
        assert_true(v.host_peak_bytes > GIB && v.step_seconds > 0);
        assert_true(v.step_seconds < part_plan_seconds(p.plan));
        p.request.disk = 0;
        p.request.host_memory = v.host_peak_bytes;
        assert_int_equal(plan_search(p.g, p.profile, NULL, &p.request, &roomy, NULL), ATOM_OK);
        if (part_plan_seconds(roomy) > 1.05 * v.step_seconds)
            fail_msg("%g s are planned where %g s were said", part_plan_seconds(roomy),
                     v.step_seconds);
        part_plan_close(&roomy);
        leave(&p);
    }
}

/* More memory may lead the search to a slower plan; the one there is fits still, and is the outcome. */
static void more_is_never_slower(void **state)
{
    (void)state;
    place p = ask(64 * GIB, -1, true);
    part_plan *found = p.plan;
    assert_int_equal(part_plan_copy(found, &p.plan), ATOM_OK);
    p.plan->predicted_step_seconds /= 100; /* better than what any search finds */
    assert_int_equal(plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w), ATOM_OK);
    const plan_outcome now = plan_outcome_of(p.plan);
    assert_true(find(&p, "of host memory")->tokens_per_second == now.tokens_per_second);
    assert_true(find(&p, "all of the device")->tokens_per_second == now.tokens_per_second);
    assert_true(find(&p, "bf16 moments")->tokens_per_second < now.tokens_per_second);
    part_plan_close(&found);
    leave(&p);
}

/* All devices but the first wait for a visit, so in much memory a small model may not become few large sub-models. */
static void several_devices_are_hardly_slower_with_more(void **state)
{
    (void)state;
    const graph_config config = {.name = "small",
                                 .vocab_size = 512,
                                 .positions = 128,
                                 .width = 128,
                                 .layers = 8,
                                 .heads = 2,
                                 .inner = 512,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
    graph *g = fused_gpt2(&config, ATOM_BF16, 1, 128);
    part_profile *profile = modelled(g, "rtx-4090");
    plan_request request = ROOMY;
    double seconds[2];
    request.devices = 2;
    request.micro_batches = 16;
    request.no_advice = true;
    for (int all = 0; all < 2; all++) {
        part_plan *plan = NULL;
        request.device_memory = all ? 0 : 16 << 20;
        assert_int_equal(plan_search(g, profile, NULL, &request, &plan, NULL), ATOM_OK);
        assert_int_equal(plan->devices, 2);
        seconds[all] = plan->predicted_step_seconds;
        part_plan_close(&plan);
    }
    if (seconds[1] > 1.2 * seconds[0])
        fail_msg("%g s with all of the memory, %g s with 16 MiB", seconds[1], seconds[0]);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Tokens/s are by the shorter of both steps: where updates run ahead, by that. */
static void goes_by_steps_that_run_ahead(void **state)
{
    (void)state;
    place p = ask(GIB, -1, true);
    const plan_outcome o = plan_outcome_of(p.plan);
    assert_true(o.ahead_seconds > 0 && o.ahead_seconds < o.step_seconds);
    assert_true(o.tokens_per_second == part_plan_tokens_per_second(p.plan));
    assert_true(o.tokens_per_second * o.step_seconds > C * 512 * 1.001);
    leave(&p);
}

static void says_what_would_fit(void **state)
{
    (void)state;
    place p = ask(GIB, 0, false);
    assert_true(find(&p, "the optimizer's state on disk")->fits);
    assert_true(find(&p, "the optimizer's state on disk")->disk);
    assert_true(find(&p, "of host memory")->fits);
    assert_false(find(&p, "of host memory")->disk);
    leave(&p);
    /* With next to nothing even the disk is no help, but a little more memory and the disk is. */
    p = ask(GIB / 8, -1, false);
    assert_true(find(&p, "of host memory")->fits);
    assert_true(find(&p, "of host memory")->disk);
    assert_false(find(&p, "bf16 moments")->fits);
    leave(&p);
    p = ask(64 * GIB, 1, true);
    assert_true(find(&p, "the optimizer's state in memory")->fits);
    leave(&p);
}

/* A free number is that of the plan in every change; more host memory is tried up to eight times as much, and holds
 * more blocks of a state on disk. */
static void keeps_what_was_planned(void **state)
{
    (void)state;
    place p = ask(64 * GIB, -1, true);
    const uint64_t takes = p.plan->host_peak_bytes;
    p.request.micro_batches = 0;
    assert_int_equal(plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w), ATOM_OK);
    assert_int_equal(find(&p, "bf16 moments")->micro_batches, C);
    leave(&p);
    p = ask(takes / 5, 0, false);
    assert_true(find(&p, "of host memory")->fits);
    leave(&p);
    p = ask(GIB / 8, -1, false);
    p.request.host_hold = p.request.host_memory;
    assert_int_equal(plan_what_if_price(p.g, p.profile, &p.request, p.plan, &p.w), ATOM_OK);
    const plan_outcome held = *find(&p, "of host memory");
    assert_true(held.fits && held.disk);
    leave(&p);
    p = ask(GIB / 8, -1, false);
    assert_true(find(&p, "of host memory")->host_bytes < held.host_bytes);
    leave(&p);
}

/* Sizes are said in the unit that they are whole numbers of. */
static void says_sizes_as_they_are_typed(void **state)
{
    (void)state;
    static const struct {
        uint64_t host_bytes;
        const char *change, *option;
    } said[] = {{3000000000, "6 GB of host memory", "--host-memory 6GB"},
                {3ull << 30, "6 GiB of host memory", "--host-memory 6GiB"},
                {2500ull << 20, "5000 MiB of host memory", "--host-memory 5000MiB"},
                {2500000000, "5 GB of host memory", "--host-memory 5GB"},
                {2500000001, "5000000002 bytes of host memory", "--host-memory 5000000002"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        place p = ask(said[i].host_bytes, 0, true);
        const plan_outcome *more = find(&p, "of host memory");
        assert_non_null(more);
        assert_string_equal(more->change, said[i].change);
        assert_string_equal(more->option, said[i].option);
        leave(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_sizes_as_they_are_typed),
        cmocka_unit_test(prices_by_planning),
        cmocka_unit_test(tries_only_what_could_help),
        cmocka_unit_test(tries_the_other_optimizer),
        cmocka_unit_test(says_what_memory_would_take),
        cmocka_unit_test(more_is_never_slower),
        cmocka_unit_test(several_devices_are_hardly_slower_with_more),
        cmocka_unit_test(goes_by_steps_that_run_ahead),
        cmocka_unit_test(says_what_would_fit),
        cmocka_unit_test(keeps_what_was_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
