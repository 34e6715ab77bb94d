/* The search's model against what codegen makes, for random graphs and random plans: host bytes
 * exactly, device bytes within 5 % (first fit wastes a little scratch), times where they are long. */
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
        g = fused_gpt2(&c, dtype, 1 + roll(seed, 4), 16 + roll(seed, 40));
    else
        assert_int_equal(graph_gpt2_build(&c, dtype, 2, 24, &g), ATOM_OK);
    graph_set_optimizer(g, *seed >> 40 & 1 ? GRAPH_MUON : GRAPH_ADAMW);
    return g;
}

static void hold_some(part_plan *plan, const graph *g, uint64_t *seed)
{
    assert_int_equal(part_plan_open_holds(plan), ATOM_OK);
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        part_sub_model *s = &plan->sub_models[k];
        bool any = false;
        for (int32_t i = s->first_node; s->keep == PART_KEEP_SOME && i < s->last_node; i++) {
            plan->holds[i] = part_can_hold(g, s, i) ? (uint8_t)roll(seed, 3) : PART_AGAIN;
            any |= plan->holds[i] != PART_AGAIN;
        }
        if (s->keep == PART_KEEP_SOME && !any)
            s->keep = PART_RECOMPUTE;
    }
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
                                               .keep = (part_keep)roll(seed, k + 1 < n ? 4 : 3),
                                               .resident = roll(seed, 4) == 0};
        plan->cut_bytes += r.x_bytes;
    }
    hold_some(plan, m->g, seed);
    return plan;
}

/* Warm micro-batches take three quarters of the time. The seed stays as it is, so that models and plans are
 * those that there would be without. */
static void add_gains(part_profile *p, uint64_t cache_bytes)
{
    p->device.cache_bytes = cache_bytes;
    for (uint32_t n = 0; n < p->n_nodes; n++) {
        p->nodes[n].fwd_gain_seconds = 0.25 * p->nodes[n].fwd_seconds;
        p->nodes[n].bwd_gain_seconds = 0.25 * p->nodes[n].bwd_seconds;
    }
}

/* Where kernels and copies take long, the tape's small change (clearing, rounding, latency) does not
 * matter: the model must count the same kernels as the tape runs, and wait for the same copies. The
 * last sub-model's visit is the one that differs most: a turn, forward and backward in one, whatever
 * its `keep` says. */
static void agrees_with_the_tape(void **state)
{
    (void)state;
    uint64_t seed = 23;
    for (int i = 0; i < 60; i++) {
        graph *g = random_model(&seed);
        part_device device = spec("rtx-4090");
        part_profile *profile = NULL;
        part_model *m = NULL;
        part_verdict model, exact;
        device.copy_latency_seconds = 0;
        device.h2d_bytes_per_second = device.d2h_bytes_per_second = 1e7;
        device.h2d_both_bytes_per_second = device.d2h_both_bytes_per_second = 1e7;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        for (uint32_t n = 0; n < profile->n_nodes; n++) {
            profile->nodes[n].fwd_seconds *= 1e4;
            profile->nodes[n].bwd_seconds *= 1e4 * (1 + roll(&seed, 3));
        }
        const bool fits = i % 4 == 1, about = i % 4 == 3; /* sub-models the cache */
        if (fits || about)
            add_gains(profile, fits ? (uint64_t)1 << 30 : (uint64_t)(1 + i) << 15);
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        part_plan *plan = random_plan(m, &seed);
        gen_judge judge = {.g = g, .profile = profile};
        assert_int_equal(gen_judge_plan(&judge, plan, &exact), ATOM_OK);
        part_estimate(m, plan, &model);
        const double most = about ? 0.005 : 1e-4; /* scratch is estimated, and with it the share */
        if (fabs(model.compute_seconds / exact.compute_seconds - 1) > most)
            fail_msg("plan %d computes for %g s, the model says %g s", i, exact.compute_seconds,
                     model.compute_seconds);
        if (fabs(model.step_seconds / exact.step_seconds - 1) > 0.04)
            fail_msg("plan %d takes %g s, the model says %g s", i, exact.step_seconds,
                     model.step_seconds);
        part_plan_close(&plan);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
}

/* On a real card copies of small models take mostly their latency, kernels their launch, and both directions
 * share the link and the host's memory: the model need not be exact, but it must not promise much more. */
static void agrees_about_what_is_small(void **state)
{
    (void)state;
    uint64_t seed = 41;
    double least = 1, low = 0;
    for (int i = 0; i < 60; i++) {
        graph *g = random_model(&seed);
        part_device device = spec("rtx-4090");
        part_profile *profile;
        part_model *m;
        part_verdict model, exact;
        device.host_bytes_per_second /= i % 2 ? 4 : 1;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        part_plan *plan = random_plan(m, &seed);
        plan->micro_batches *= 8;
        gen_judge judge = {.g = g, .profile = profile};
        assert_int_equal(gen_judge_plan(&judge, plan, &exact), ATOM_OK);
        part_estimate(m, plan, &model);
        const double share = model.step_seconds / exact.step_seconds;
        least = share < least ? share : least;
        low += share < 0.9;
        assert_true(share < 1.1);
        part_plan_close(&plan);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    if (least < 0.65 || low > 8)
        fail_msg("the model says %.3f of what a step takes, and of %g less than 0.9", least, low);
}

static void agrees_with_the_layout(void **state)
{
    (void)state;
    uint64_t seed = 11, products = 0;
    for (int i = 0; i < 60; i++) {
        graph *g = random_model(&seed);
        part_profile *profile = modelled(g, "rtx-4090");
        part_model *m = NULL;
        part_verdict model, exact;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        part_plan *plan = random_plan(m, &seed);
        gen_judge judge = {.g = g, .profile = profile};
        if (g->optimizer == GRAPH_MUON && i % 2) {
            part_model_use_ortho(m);
            plan->ortho_on_device = plan->clip = true;
            products++;
        }
        if (gen_judge_plan(&judge, plan, &exact) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        part_estimate(m, plan, &model);
        assert_int_equal(model.host_peak_bytes, exact.host_peak_bytes);
        if (plan->ortho_on_device && fabs(model.compute_seconds / exact.compute_seconds - 1) > 0.06)
            fail_msg("plan %d computes for %g s, products included, the model says %g s", i,
                     exact.compute_seconds, model.compute_seconds);
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
    assert_true(products > 5);
}

/* What the updates of a step take, each running alone. */
static double update_seconds(const graph *g, const part_plan *plan, const part_profile *profile)
{
    gen_lowered *low = NULL;
    double seconds = 0;
    if (gen_lower(g, plan, profile, NULL, &low) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    const swap_tape *tape = low->tapes[SWAP_TAPE_DRAIN];
    for (uint32_t i = 0; i < tape->n; i++)
        seconds += tape->instrs[i].code == SWAP_UPDATE ? tape->instrs[i].cost.seconds : 0;
    gen_lowered_close(&low);
    return seconds;
}

/* The state on disk: its ring, and the same updates as in memory, block by block. */
static void agrees_about_the_disk(void **state)
{
    (void)state;
    uint64_t seed = 31, several = 0;
    for (int i = 0; i < 60; i++) {
        graph *g = random_model(&seed);
        if (i % 3 == 0)
            graph_set_moments(g, ATOM_BF16);
        part_profile *profile = modelled(g, "rtx-4090");
        part_model *m = NULL;
        part_verdict model, exact;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        part_plan *plan = random_plan(m, &seed);
        gen_judge judge = {.g = g, .profile = profile};
        plan->moments = g->moments;
        plan->clip = true;
        double memory = update_seconds(g, plan, profile);
        part_model_use_disk(m);
        plan->disk = true;
        plan->ring_blocks = m->ring_blocks;
        plan->block_elements = m->block_elements;
        if (gen_judge_plan(&judge, plan, &exact) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        part_estimate(m, plan, &model);
        assert_int_equal(model.host_peak_bytes, exact.host_peak_bytes);
        double disk = update_seconds(g, plan, profile);
        if (fabs(disk / memory - 1) > 1e-9)
            fail_msg("plan %d updates for %g s, in memory for %g s", i, disk, memory);
        several += m->n_blocks > 4 && g->optimizer == GRAPH_MUON;
        part_plan_close(&plan);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(several > 10);
}

/* Every copy of two sub-models with boundaries on the host, counted by hand: the parameters of both
 * come once, as the first is still there when backward returns to it; the boundary goes out and
 * comes back, and so does its gradient; both spill. The last one keeps nothing, whatever it says. */
static void counts_the_copies_of_a_turn(void **state)
{
    (void)state;
    const double rate = 1e6;
    const uint32_t C = 3;
    graph *g = tiny_gpt2(2);
    part_device device = spec("rtx-4090");
    part_profile *profile = NULL;
    part_model *m = NULL;
    part_plan *plan = NULL;
    part_verdict v;
    device.copy_latency_seconds = 0;
    device.h2d_bytes_per_second = device.d2h_bytes_per_second = rate;
    device.h2d_both_bytes_per_second = device.d2h_both_bytes_per_second = rate;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
    assert_int_equal(part_plan_open(g, profile, 2, &plan), ATOM_OK);
    int32_t cut = m->points[m->n_points / 2], end = (int32_t)g->n_nodes;
    part_range a = part_range_make(m, 0, cut), b = part_range_make(m, cut, end);
    plan->micro_batches = C;
    plan->boundaries = PART_ON_HOST;
    plan->sub_models[0] = (part_sub_model){.last_node = cut, .param_bytes = a.slot_bytes};
    plan->sub_models[1] = (part_sub_model){
        .first_node = cut, .last_node = end, .param_bytes = b.slot_bytes, .keep = PART_KEEP_HOST};
    part_estimate(m, plan, &v);
    double in = (double)(a.slot_bytes + b.slot_bytes + 2 * C * b.x_bytes) / rate;
    double out = (double)(a.own_bytes + b.own_bytes + 2 * C * b.x_bytes) / rate;
    assert_true(b.x_bytes > 0 && b.kept_bytes > 0);
    assert_true(fabs(v.h2d_seconds - in) < 1e-9);
    assert_true(fabs(v.d2h_seconds - out) < 1e-9);
    part_plan_close(&plan);
    part_model_close(&m);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Of one micro-batch: what crosses from one sub-model to the next goes, on the host, where what came
 * before it was. */
static uint64_t passing_bytes(const part_plan *plan, const part_model *m)
{
    uint64_t most = 0;
    for (uint32_t k = 1; plan->boundaries == PART_ON_HOST && k < plan->n_sub_models; k++) {
        uint64_t bytes = m->boundary_bytes[plan->sub_models[k].first_node];
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* An evaluation alone: its memory and its time, of random plans. */
static void agrees_where_nothing_is_trained(void **state)
{
    (void)state;
    uint64_t seed = 41;
    for (int i = 0; i < 40; i++) {
        graph *g = random_model(&seed);
        part_device device = spec("rtx-4090");
        part_profile *profile = NULL;
        part_model *m = NULL;
        part_verdict model, exact;
        graph_set_forward(g);
        device.copy_latency_seconds = 0;
        device.h2d_bytes_per_second = device.h2d_both_bytes_per_second = 1e7;
        device.d2h_bytes_per_second = device.d2h_both_bytes_per_second = 1e7;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        for (uint32_t n = 0; n < profile->n_nodes; n++) {
            assert_true(profile->nodes[n].bwd_seconds <= 0);
            profile->nodes[n].fwd_seconds *= 1e4;
        }
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        part_plan *plan = random_plan(m, &seed);
        const bool host = i % 2;
        plan->boundaries = host ? PART_ON_HOST : PART_ON_DEVICE;
        gen_judge judge = {.g = g, .profile = profile};
        if (gen_judge_plan(&judge, plan, &exact) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        part_estimate(m, plan, &model);
        assert_int_equal(model.host_peak_bytes, exact.host_peak_bytes);
        assert_int_equal(exact.host_peak_bytes,
                         g->param_extent * atom_dtype_bytes(g->dtype) +
                             plan->micro_batches * (m->micro_batch_bytes + passing_bytes(plan, m)));
        double off = (double)model.device_peak_bytes / (double)exact.device_peak_bytes - 1;
        if (fabs(off) > 0.05)
            fail_msg("plan %d: %llu bytes on the device, the model says %llu", i,
                     (unsigned long long)exact.device_peak_bytes,
                     (unsigned long long)model.device_peak_bytes);
        if (fabs(model.step_seconds / exact.step_seconds - 1) > (host ? 0.04 : 0.01))
            fail_msg("plan %d takes %g s, the model says %g s", i, exact.step_seconds,
                     model.step_seconds);
        part_plan_close(&plan);
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
}

/* n sub-models of about as many nodes each. */
static part_plan *even_plan(const part_model *m, uint32_t n)
{
    part_plan *plan = NULL;
    int32_t first = 0;
    assert_int_equal(part_plan_open(m->g, m->profile, n, &plan), ATOM_OK);
    for (uint32_t k = 0; k < n; k++) {
        int32_t last = m->points[(k + 1) * (m->n_points - 1) / n];
        part_range r = part_range_make(m, first, last);
        plan->sub_models[k] =
            (part_sub_model){.first_node = first, .last_node = last, .param_bytes = r.slot_bytes};
        plan->cut_bytes += r.x_bytes;
        first = last;
    }
    return plan;
}

/* What the tape of an evaluation after another one fetches, with any of the sub-models resident. */
static void knows_what_is_still_there(void **state)
{
    (void)state;
    uint64_t seed = 61, nothing = 0, several = 0;
    for (int i = 0; i < 6; i++) {
        graph *g = random_model(&seed);
        graph_set_forward(g);
        part_profile *profile = modelled(g, "rtx-4090");
        part_model *m = NULL;
        assert_int_equal(part_model_open(g, profile, &m), ATOM_OK);
        for (uint32_t n = 1; n <= 5; n++) {
            part_plan *plan = even_plan(m, n);
            for (uint32_t mask = 0; mask < 1u << n; mask++) {
                gen_lowered *low = NULL;
                part_verdict v;
                uint64_t fetched = 0;
                for (uint32_t k = 0; k < n; k++)
                    plan->sub_models[k].resident = mask >> k & 1;
                const uint64_t want = part_plan_fetched_bytes(plan);
                if (gen_lower(g, plan, profile, NULL, &low) != ATOM_OK)
                    fail_msg("%s", atom_fail_message());
                const swap_tape *tape = low->tapes[SWAP_TAPE_EVAL_NEXT];
                for (uint32_t t = 0; t < tape->n; t++)
                    fetched += tape->instrs[t].code == SWAP_FETCH ? tape->instrs[t].dst.bytes : 0;
                /* Of what the last one borrows of others the end is not rounded up. */
                if ((fetched == 0) != (want == 0) || want < fetched || want - fetched >= 256)
                    fail_msg(
                        "model %d, %u sub-models, resident %x: %llu bytes are fetched, not %llu", i,
                        n, mask, (unsigned long long)fetched, (unsigned long long)want);
                part_estimate(m, plan, &v);
                assert_true((v.h2d_seconds > 0) == (want > 0));
                nothing += n > 2 && want == 0;
                several += want > 0;
                gen_lowered_close(&low);
            }
            part_plan_close(&plan);
        }
        part_model_close(&m);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(nothing > 40 && several > 40);
}

static double seconds_of(const graph *g, const part_profile *profile, part_request request)
{
    gen_judge judge = {.g = g, .profile = profile};
    part_plan *plan = NULL;
    request.clip = true;
    request.evaluate = gen_judge_plan;
    request.evaluate_ctx = &judge;
    if (part_search(g, profile, &request, &plan, NULL) != ATOM_OK)
        return INFINITY;
    double seconds = plan->predicted_step_seconds;
    part_plan_close(&plan);
    return seconds;
}

/* A search for an evaluation's plan: with more memory it is not slower, and what it plans fits. */
static void finds_plans_where_nothing_is_trained(void **state)
{
    (void)state;
    const graph_config config = {.name = "narrow",
                                 .vocab_size = 257,
                                 .positions = 256,
                                 .width = 64,
                                 .layers = 16,
                                 .heads = 1,
                                 .inner = 256,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
    graph *g = fused_gpt2(&config, ATOM_F32, 1, 64);
    part_profile *profile = NULL;
    const part_device device = spec("rtx-4090");
    uint32_t fit = 0;
    double last = INFINITY;
    graph_set_forward(g);
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    for (uint64_t kib = 256; kib <= 8192; kib += kib / 4) {
        gen_judge judge = {.g = g, .profile = profile};
        part_plan *plan = NULL;
        const part_request r = {.device_budget_bytes = kib << 10,
                                .micro_batches = 1,
                                .no_advice = true,
                                .recompute = -1,
                                .evaluate = gen_judge_plan,
                                .evaluate_ctx = &judge};
        atom_status st = part_search(g, profile, &r, &plan, NULL);
        assert_true(st == ATOM_OK || (st == ATOM_E_RESOURCE && fit == 0));
        if (st != ATOM_OK)
            continue;
        fit++;
        assert_true(plan->device_peak_bytes <= kib << 10);
        assert_true(plan->predicted_step_seconds <= 1.01 * last);
        last = plan->predicted_step_seconds;
        part_plan_close(&plan);
    }
    /* two blocks of 200 KiB, the embedding of 66 KiB twice, and some activations */
    assert_true(fit > 10);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Nodes that take less than a copy's latency, and little memory: estimates are far off there, so
 * that what is judged exactly may be the wrong few. */
static void a_free_choice_is_no_worse_than_a_forced_one(void **state)
{
    (void)state;
    const graph_config config = {.name = "small nodes",
                                 .vocab_size = 257,
                                 .positions = 256,
                                 .width = 64,
                                 .layers = 16,
                                 .heads = 1,
                                 .inner = 256,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
    graph *g = fused_gpt2(&config, ATOM_F32, 1, 16);
    part_device device = spec("rtx-4090");
    static const struct {
        double flops;
        uint64_t kib;
        uint32_t micro_batches;
    } cases[] = {{1e11, 1643, 4}, {1e11, 1652, 4}, {1e11, 1012, 16}, {1e11, 3795, 8},
                 {1e9, 1557, 8},  {1e11, 1844, 8}, {1e9, 3696, 2}};
    device.unified = true;
    device.copy_latency_seconds = 4.5e-5;
    device.host_bytes_per_second = device.device_bytes_per_second = 59e9;
    device.adamw_params_per_second = 2.4e9;
    device.h2d_bytes_per_second = device.d2h_bytes_per_second = 14e9;
    device.h2d_both_bytes_per_second = device.d2h_both_bytes_per_second = 11e9;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        part_profile *profile = NULL;
        device.flops_fp32 = cases[i].flops;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_request r = {.device_budget_bytes = cases[i].kib << 10,
                          .micro_batches = cases[i].micro_batches,
                          .recompute = -1};
        double choice = seconds_of(g, profile, r);
        assert_true(isfinite(choice));
        for (r.recompute = 0; r.recompute <= 1; r.recompute++) {
            double forced = seconds_of(g, profile, r);
            if (choice > 1.0051 * forced)
                fail_msg("%llu KiB, %u micro-batches: %g s by choice, %g with recompute %d",
                         (unsigned long long)cases[i].kib, cases[i].micro_batches, choice, forced,
                         r.recompute);
        }
        part_profile_close(&profile);
    }
    graph_close(&g);
}

/* Times of a model of 6 x 512 on two cores, in ms. */
static void take_times(part_profile *profile, uint32_t n_nodes)
{
    static const struct {
        const char *end;
        double fwd, bwd;
    } times[] = {{"embed", 0.157, 0.196}, {".drop", 0.139, 0.174}, {".ln_1", 0.13, 0.317},
                 {"c_attn", 3.578, 7.01}, {".attn", 2.818, 4.9},   {"c_proj", 2.881, 6.063},
                 {".add_1", 0.21, 0.201}, {".ln_2", 0.13, 0.317},  {".c_fc", 5.025, 9.862},
                 {".add_2", 0.21, 0.201}, {"ln_f", 0.144, 0.313},  {"lm_head", 9.197, 29.29}};
    for (uint32_t n = 0; n < n_nodes; n++) {
        const char *name = profile->nodes[n].name;
        for (size_t i = 0; i < sizeof times / sizeof *times; i++)
            if (strlen(name) >= strlen(times[i].end) &&
                strcmp(name + strlen(name) - strlen(times[i].end), times[i].end) == 0) {
                profile->nodes[n].fwd_seconds = times[i].fwd * 1e-3;
                profile->nodes[n].bwd_seconds = times[i].bwd * 1e-3;
            }
    }
}

/* The model ranks what fills the link first, but lumps of it wait for each other. So plans that send
 * less beside each visit are judged, too, or nothing better is found than to repeat all. */
static void sends_less_where_that_is_faster(void **state)
{
    (void)state;
    const graph_config config = {.name = "six layers",
                                 .vocab_size = 4096,
                                 .positions = 512,
                                 .width = 512,
                                 .layers = 6,
                                 .heads = 8,
                                 .inner = 2048,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
    graph *g = fused_gpt2(&config, ATOM_F32, 2, 512);
    part_device device = spec("rtx-4090");
    device.unified = true;
    device.cores = 2;
    device.flops_fp32 = 4.5e11;
    device.copy_latency_seconds = 2e-5;
    device.host_bytes_per_second = device.device_bytes_per_second = 65e9;
    device.adamw_params_per_second = 2.5e9;
    for (double link = 0.8e9; link < 1e9; link += 0.1e9) {
        part_request r = {.device_budget_bytes = 260 << 20, .micro_batches = 8, .recompute = -1};
        part_profile *profile = NULL;
        device.h2d_bytes_per_second = device.d2h_bytes_per_second = link;
        device.h2d_both_bytes_per_second = device.d2h_both_bytes_per_second = link;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        take_times(profile, g->n_nodes);
        double choice = seconds_of(g, profile, r);
        r.recompute = 1;
        double always = seconds_of(g, profile, r);
        if (choice > 0.985 * always)
            fail_msg("%g s by choice, %g where all is repeated", choice, always);
        part_profile_close(&profile);
    }
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_about_what_is_small),
        cmocka_unit_test(agrees_with_the_layout),
        cmocka_unit_test(agrees_with_the_tape),
        cmocka_unit_test(agrees_about_the_disk),
        cmocka_unit_test(counts_the_copies_of_a_turn),
        cmocka_unit_test(agrees_where_nothing_is_trained),
        cmocka_unit_test(knows_what_is_still_there),
        cmocka_unit_test(finds_plans_where_nothing_is_trained),
        cmocka_unit_test(a_free_choice_is_no_worse_than_a_forced_one),
        cmocka_unit_test(sends_less_where_that_is_faster)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
