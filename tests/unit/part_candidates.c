/* What the search chooses among: every way is in the list or could not win, and all that is in it fits. */
#include "partition/candidates.h"
#include "tests/unit/part_common.h"

static part_search_state begin(const graph *g, const part_profile *profile,
                               const part_request *request)
{
    part_search_state s = {.g = g,
                           .profile = profile,
                           .request = request,
                           .device_bytes = request->device_budget_bytes,
                           .host_bytes = request->host_budget_bytes,
                           .micro_batches = request->micro_batches};
    assert_int_equal(part_model_open(g, profile, &s.model), ATOM_OK);
    return s;
}

static void end(part_search_state *s)
{
    part_candidates_clear(s);
    part_solved_close(s);
    part_table_close(&s->table);
    part_model_close(&s->model);
}

/* Activations are kept on the host unless that is forbidden, and boundaries are in either place. An evaluation
 * keeps nothing, and two of its boundaries are there in passing in any case. */
static void a_way_is_what_the_request_allows(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.micro_batches = 3, .recompute = -1};
    part_setting setting;
    for (int recompute = -1; recompute <= 1; recompute++) {
        request.recompute = recompute;
        request.clip = recompute == 0;
        part_search_state s = begin(g, profile, &request);
        for (int way = 0; way < PART_WAYS; way++) {
            const bool keeps = way == 1 || way == 3;
            assert_int_equal(part_way_setting(&s, way, &setting), !keeps || recompute != 1);
            assert_int_equal(setting.keep, keeps ? PART_KEEP_HOST : PART_RECOMPUTE);
            assert_int_equal(setting.boundaries, way >= 2 ? PART_ON_HOST : PART_ON_DEVICE);
            assert_int_equal(setting.micro_batches, 3);
            assert_int_equal(setting.clip, request.clip);
            assert_false(setting.forward);
        }
        end(&s);
    }
    graph_set_forward(g);
    for (uint32_t C = 1; C <= 4; C++) {
        request.micro_batches = C;
        part_search_state s = begin(g, profile, &request);
        assert_true(part_way_setting(&s, 0, &setting) && setting.forward);
        assert_false(part_way_setting(&s, 1, &setting));
        assert_int_equal(part_way_setting(&s, 2, &setting), C > 2);
        assert_false(part_way_setting(&s, 3, &setting));
        end(&s);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

static bool same_cuts(const part_plan *a, const part_plan *b)
{
    bool same = a->n_sub_models == b->n_sub_models;
    for (uint32_t k = 0; same && k < a->n_sub_models; k++)
        same = a->sub_models[k].last_node == b->sub_models[k].last_node;
    return same;
}

static bool same_kept(const part_plan *a, const part_plan *b)
{
    bool same = true;
    for (uint32_t k = 0; same && k < a->n_sub_models; k++)
        same = a->sub_models[k].keep == b->sub_models[k].keep;
    return same;
}

static bool same_resident(const part_plan *a, const part_plan *b)
{
    bool same = true;
    for (uint32_t k = 0; same && k < a->n_sub_models; k++)
        same = a->sub_models[k].resident == b->sub_models[k].resident;
    return same;
}

static bool same_holds(const part_plan *a, const part_plan *b, uint32_t n)
{
    return (!a->holds && !b->holds) || (a->holds && b->holds && !memcmp(a->holds, b->holds, n));
}

/* In how many pairs of candidates one thing alone differs. */
typedef struct apart {
    uint32_t boundaries, cuts, kept, resident, holds, nothing;
} apart;

static void count_apart(const part_search_state *s, apart *n)
{
    for (uint32_t i = 0; i < s->n_candidates; i++)
        for (uint32_t j = 0; j < i; j++) {
            const part_plan *a = s->candidates[i].plan, *b = s->candidates[j].plan;
            if (a->n_sub_models != b->n_sub_models || a->update_on_device != b->update_on_device)
                continue;
            const bool place = a->boundaries == b->boundaries, cuts = same_cuts(a, b);
            const bool kept = same_kept(a, b), resident = same_resident(a, b);
            const bool holds = same_holds(a, b, s->g->n_nodes);
            n->nothing += place && cuts && kept && resident && holds;
            n->boundaries += !place && cuts && kept && resident && holds;
            n->cuts += place && !cuts && kept && resident && holds;
            n->resident += place && cuts && kept && !resident && holds;
            n->kept += place && cuts && !kept && resident && holds;
            n->holds += place && cuts && kept && resident && !holds;
        }
}

static bool all_hidden(const part_search_state *s, const part_candidate *c)
{
    bool hidden = true;
    for (uint32_t k = 0; k + 1 < c->plan->n_sub_models; k++) {
        const part_sub_model *a = &c->plan->sub_models[k], *b = a + 1;
        part_range cur = part_range_make(s->model, a->first_node, a->last_node);
        part_range next = part_range_make(s->model, b->first_node, b->last_node);
        part_times x = part_range_times(s->model, &c->setting, &cur);
        part_times y = part_range_times(s->model, &c->setting, &next);
        hidden = hidden && part_pair_hides(&x, &y, k + 2 == c->plan->n_sub_models);
    }
    return hidden;
}

/* Where the fastest cuts for all of the memory hide all that moves, nothing else is looked for that does; where
 * they do not, the list has what does, if there is any. *n grows by what was found: [hidden][listed]. */
static void count_hidden(part_search_state *s, uint32_t n[2][2])
{
    for (uint32_t i = 0; i < s->n_candidates; i++) {
        const part_candidate *c = &s->candidates[i];
        bool listed = false;
        if (c->goal != PART_GOAL_TIME || c->beside > 0 || c->capacity_bytes != s->device_bytes)
            continue;
        for (uint32_t j = 0; j < s->n_candidates; j++) {
            const part_candidate *other = &s->candidates[j];
            if (!other->capacity_bytes || other->goal != PART_GOAL_HIDDEN ||
                other->setting.keep != c->setting.keep ||
                other->setting.boundaries != c->setting.boundaries)
                continue;
            listed = true;
            assert_true(all_hidden(s, other));
        }
        n[all_hidden(s, c)][listed]++;
        if (listed || all_hidden(s, c))
            continue;
        part_plan *plan = NULL;
        assert_int_equal(part_make_plan(s, &c->setting, PART_GOAL_HIDDEN, s->device_bytes,
                                        s->device_bytes, 0, &plan),
                         ATOM_OK);
        for (uint32_t j = 0; plan && !listed && j < s->n_candidates; j++)
            listed = s->candidates[j].plan->boundaries == plan->boundaries &&
                     same_cuts(s->candidates[j].plan, plan);
        assert_true(!plan || listed);
        part_plan_close(&plan);
    }
}

/* No way is left out that is as fast as the best: its cuts for all memory are tried again here. */
static void nothing_faster_is_left_out(part_search_state *s)
{
    double best = 1e9;
    for (uint32_t i = 0; i < s->n_candidates; i++)
        if (part_plan_seconds(s->candidates[i].plan) < best)
            best = part_plan_seconds(s->candidates[i].plan);
    for (int way = 0; way < PART_WAYS; way++) {
        part_setting setting;
        part_plan *plan = NULL;
        if (!part_way_setting(s, way, &setting))
            continue;
        assert_int_equal(part_make_plan(s, &setting, PART_GOAL_TIME, part_device_limit(s),
                                        part_device_limit(s), 0, &plan),
                         ATOM_OK);
        if (plan && part_plan_seconds(plan) < best)
            fail_msg("way %d with %llu MiB: %g s, the best of the list is %g s", way,
                     (unsigned long long)(s->device_bytes >> 20), part_plan_seconds(plan), best);
        part_plan_close(&plan);
    }
}

/* Exact cuts are never slower than the quick ones, and sometimes faster. Returns how often. */
static uint32_t refine_all(part_search_state *s)
{
    uint32_t better = 0;
    for (uint32_t i = 0; i < s->n_candidates; i++) {
        part_candidate *c = &s->candidates[i];
        const double before = part_plan_seconds(c->plan);
        assert_int_equal(part_candidate_refine(s, c), ATOM_OK);
        assert_true(part_plan_seconds(c->plan) <= before);
        better += part_plan_seconds(c->plan) < before;
    }
    return better;
}

/* What is said from few plans is near the best of the list. */
static void is_quick_to_say(part_search_state *s)
{
    double best = 0, quick = -1;
    for (uint32_t i = 0; i < s->n_candidates; i++)
        if (i == 0 || part_plan_seconds(s->candidates[i].plan) < best)
            best = part_plan_seconds(s->candidates[i].plan);
    assert_int_equal(part_quick_seconds(s, false, &quick), ATOM_OK);
    assert_int_equal(s->n_candidates, 0);
    if (quick < 0.99 * best || quick > 1.13 * best)
        fail_msg("with %llu MiB: %g s, the best of the list is %g s",
                 (unsigned long long)(s->device_bytes >> 20), quick, best);
}

static void quicken_link(part_device *d, int times)
{
    d->h2d_bytes_per_second *= times;
    d->d2h_bytes_per_second *= times;
    d->h2d_both_bytes_per_second *= times;
    d->d2h_both_bytes_per_second *= times;
}

static void all_that_is_listed_fits_and_differs(void **state)
{
    (void)state;
    static const struct {
        int64_t B, T;
        uint32_t C;
        int recompute, link; /* the link is so many times as quick */
    } cases[] = {{4, 512, 6, -1, 1}, {4, 512, 64, -1, 1}, {2, 256, 16, 0, 1},
                 {1, 128, 2, -1, 1}, {4, 512, 16, 1, 1},  {4, 512, 8, -1, 6}};
    apart n = {0};
    uint32_t hidden[2][2] = {{0}}, whole = 0, kept = 0, most = 0, better = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        graph *g = fused_preset("gpt2-124m", ATOM_BF16, cases[i].B, cases[i].T);
        part_profile *profile = modelled(g, "rtx-4090");
        quicken_link(&profile->device, cases[i].link);
        for (uint64_t mib = 600; mib < 3500; mib = mib * 3 / 2) {
            part_request request = {.device_budget_bytes = mib << 20,
                                    .micro_batches = cases[i].C,
                                    .clip = true,
                                    .recompute = cases[i].recompute,
                                    .update_on_device = true};
            part_search_state s = begin(g, profile, &request);
            assert_int_equal(part_candidates_make(&s), ATOM_OK);
            for (uint32_t k = 0; k < s.n_candidates; k++) {
                const part_candidate *c = &s.candidates[k];
                part_verdict v;
                part_estimate(s.model, c->plan, &v);
                assert_true(v.device_peak_bytes <= request.device_budget_bytes);
                assert_true(request.recompute < 0 || !c->plan->holds);
                whole += c->plan->n_sub_models == 1;
                kept += request.recompute < 0 && c->setting.keep == PART_KEEP_HOST;
            }
            most = s.n_candidates > most ? s.n_candidates : most;
            count_apart(&s, &n);
            count_hidden(&s, hidden);
            nothing_faster_is_left_out(&s);
            better += refine_all(&s);
            part_candidates_clear(&s);
            assert_int_equal(part_candidates_make(&s), ATOM_OK);
            is_quick_to_say(&s);
            end(&s);
        }
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_int_equal(n.nothing, 0);
    assert_true(n.boundaries > 0 && n.cuts > 0 && whole > 0 && kept > 0 && most > 12 && better > 9);
    assert_int_equal(hidden[true][true], 0); /* it would be the same again */
    assert_true(hidden[true][false] > 0 && hidden[false][true] > 0);
}

static uint32_t count_whole(const part_search_state *s, bool update_on_device)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_candidates; i++)
        n += s->candidates[i].plan->n_sub_models == 1 &&
             s->candidates[i].plan->update_on_device == update_on_device;
    return n;
}

/* The model with its optimizer's state on the device is one of the candidates where that is AdamW in memory, and
 * there is room. What nearly fitted is remembered for a refusal. */
static void the_whole_model_is_tried_where_it_may_be(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = 1 << 30,
                            .micro_batches = 4,
                            .clip = true,
                            .recompute = -1,
                            .update_on_device = true};
    part_search_state s = begin(g, profile, &request);
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    assert_int_equal(count_whole(&s, true), 1);
    assert_int_equal(count_whole(&s, false), 1);
    assert_int_equal(s.device_need_bytes, 0);
    assert_int_equal(s.host_need_bytes, 0);
    const uint64_t there = s.candidates[1].plan->device_peak_bytes;
    const uint64_t bare = s.candidates[0].plan->device_peak_bytes;
    const uint64_t host =
        part_larger(s.candidates[0].plan->host_peak_bytes, s.candidates[1].plan->host_peak_bytes);
    assert_true(s.candidates[1].plan->update_on_device && there > bare);
    end(&s);
    request.device_budget_bytes = there - 1;
    s = begin(g, profile, &request);
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    assert_int_equal(count_whole(&s, true), 0);
    assert_int_equal(count_whole(&s, false), 1);
    end(&s);
    request.device_budget_bytes = bare - 1;
    s = begin(g, profile, &request);
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    assert_int_equal(count_whole(&s, false), 0);
    assert_in_range(s.device_need_bytes, bare - 1, bare);
    end(&s);
    request.device_budget_bytes = 1 << 30;
    request.host_budget_bytes = host - 1;
    s = begin(g, profile, &request);
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    for (uint32_t i = 0; i < s.n_candidates; i++)
        assert_true(s.candidates[i].plan->host_peak_bytes < host);
    assert_int_equal(s.host_need_bytes, host);
    end(&s);
    request.host_budget_bytes = 0;
    s = begin(g, profile, &request);
    part_model_use_disk(s.model);
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    assert_int_equal(count_whole(&s, true), 0);
    assert_int_equal(count_whole(&s, false), 1);
    end(&s);
    graph_set_optimizer(g, GRAPH_MUON);
    part_profile *muon = modelled(g, "rtx-4090");
    s = begin(g, muon, &request);
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    assert_int_equal(count_whole(&s, true), 0);
    assert_int_equal(count_whole(&s, false), 1);
    end(&s);
    part_profile_close(&muon);
    part_profile_close(&profile);
    graph_close(&g);
}

/* What is laid out needs so many percent of what the model thinks, on the device and on the host. */
typedef struct scale {
    const part_model *m;
    uint64_t percent;
} scale;

static atom_status weigh(void *ctx, const part_plan *plan, part_verdict *v)
{
    const scale *x = ctx;
    part_estimate(x->m, plan, v);
    v->device_peak_bytes = v->device_peak_bytes * x->percent / 100;
    v->host_peak_bytes = v->host_peak_bytes * x->percent / 100;
    return ATOM_OK;
}

/* An evaluation of the whole model is always laid out before it is believed in, and the plan says what it needs then. */
static void the_whole_model_is_weighed_where_nothing_is_trained(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    graph_set_forward(g);
    part_profile *profile = modelled(g, "rtx-4090");
    scale x = {.percent = 100};
    part_request request = {.device_budget_bytes = 1 << 30,
                            .micro_batches = 4,
                            .recompute = -1,
                            .weigh = weigh,
                            .evaluate = weigh,
                            .evaluate_ctx = &x};
    part_search_state s = begin(g, profile, &request);
    x.m = s.model;
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    assert_int_equal(count_whole(&s, false), 1);
    const uint64_t need = s.candidates[0].plan->device_peak_bytes;
    const uint64_t host = s.candidates[0].plan->host_peak_bytes;
    end(&s);
    for (x.percent = 140; x.percent <= 160; x.percent += 20) {
        request.device_budget_bytes = need * 150 / 100;
        s = begin(g, profile, &request);
        x.m = s.model;
        assert_int_equal(part_candidates_make(&s), ATOM_OK);
        assert_int_equal(count_whole(&s, false), x.percent < 150);
        if (x.percent < 150) {
            assert_int_equal(s.candidates[0].plan->device_peak_bytes, need * 140 / 100);
            assert_int_equal(s.candidates[0].plan->host_peak_bytes, host * 140 / 100);
        }
        end(&s);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

/* What is made again for a device that has less fits what is left of it. One sub-model cannot be made smaller. */
static void is_made_again_for_less(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 1, 128);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = (uint64_t)1500 << 20,
                            .micro_batches = 2,
                            .clip = true,
                            .recompute = -1};
    part_search_state s = begin(g, profile, &request);
    uint32_t n = 0;
    assert_int_equal(part_candidates_make(&s), ATOM_OK);
    for (uint32_t i = 0; i < s.n_candidates; i++) {
        part_candidate *c = &s.candidates[i];
        const bool whole = c->plan->n_sub_models == 1;
        const uint64_t bias = request.device_budget_bytes - c->plan->device_peak_bytes + (1 << 20);
        assert_int_equal(part_candidate_again(&s, c, bias), ATOM_OK);
        assert_true(!whole || !c->plan);
        n += c->plan != NULL;
        assert_true(!c->plan || c->plan->device_peak_bytes <= request.device_budget_bytes - bias);
    }
    assert_true(n > 0);
    end(&s);
    part_profile_close(&profile);
    graph_close(&g);
}

static atom_status twice_as_long(void *ctx, const part_plan *plan, part_verdict *v)
{
    part_estimate(ctx, plan, v);
    v->step_seconds *= 2;
    return ATOM_OK;
}

/* Seconds of a step from few plans: the best of them, exactly if asked for; 0 where none fits. */
static void says_the_best_of_few(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = 1 << 30,
                            .micro_batches = 4,
                            .clip = true,
                            .recompute = -1,
                            .update_on_device = true,
                            .evaluate = twice_as_long};
    const double host = profile->device.adamw_params_per_second;
    const double device = profile->device.device_bytes_per_second;
    double seconds = -1, exact = -1;
    for (int slow = 0; slow < 2; slow++) { /* updates on the host, then those on the device */
        profile->device.adamw_params_per_second = slow ? host : host / 1e4;
        profile->device.device_bytes_per_second = slow ? device / 1e4 : device;
        part_search_state s = begin(g, profile, &request);
        request.evaluate_ctx = s.model;
        assert_int_equal(part_candidates_make(&s), ATOM_OK);
        const double first = part_plan_seconds(s.candidates[0].plan);
        const double second = part_plan_seconds(s.candidates[1].plan);
        assert_true(slow ? first < second : first > second);
        assert_int_equal(part_quick_seconds(&s, false, &seconds), ATOM_OK);
        assert_true(seconds <= first && seconds <= second);
        assert_int_equal(part_quick_seconds(&s, true, &exact), ATOM_OK);
        assert_true(exact > 1.999 * seconds && exact < 2.001 * seconds);
        s.device_bytes = 1000;
        assert_int_equal(part_quick_seconds(&s, true, &seconds), ATOM_OK);
        assert_true(seconds == 0);
        end(&s);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

/* The quickest that was not taken yet is taken, each once; of those that hold no single nodes if asked for. */
static void takes_the_quickest_first(void **state)
{
    (void)state;
    graph *g = fused_preset("gpt2-124m", ATOM_BF16, 4, 512);
    part_profile *profile = modelled(g, "rtx-4090");
    part_request request = {.device_budget_bytes = (uint64_t)2133 << 20,
                            .micro_batches = 64,
                            .clip = true,
                            .recompute = -1};
    for (int plain = 0; plain < 2; plain++) {
        part_search_state s = begin(g, profile, &request);
        uint32_t n = 0, all = 0;
        double before = 0;
        assert_int_equal(part_candidates_make(&s), ATOM_OK);
        for (uint32_t i = 0; i < s.n_candidates; i++)
            all += !plain || !s.candidates[i].plan->holds;
        for (part_candidate *c; (c = part_candidates_take(&s, plain)) != NULL; n++) {
            assert_true(part_plan_seconds(c->plan) >= before);
            assert_true(!plain || !c->plan->holds);
            before = part_plan_seconds(c->plan);
        }
        assert_int_equal(n, all);
        assert_true(plain ? all < s.n_candidates : all > 4);
        end(&s);
    }
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_way_is_what_the_request_allows),
        cmocka_unit_test(all_that_is_listed_fits_and_differs),
        cmocka_unit_test(the_whole_model_is_tried_where_it_may_be),
        cmocka_unit_test(the_whole_model_is_weighed_where_nothing_is_trained),
        cmocka_unit_test(is_made_again_for_less),
        cmocka_unit_test(says_the_best_of_few),
        cmocka_unit_test(takes_the_quickest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
