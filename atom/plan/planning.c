/*
 * Owns the search for a plan on one device or several. One idea: whatever is asked for, the null device is
 * the judge of it. Refuses numbers of devices and micro-batches that do not go together.
 */
#include "atom/plan/workbench.h"

#include "codegen/lower.h"

/* What several devices cannot do. */
static atom_status check_devices(const part_profile *profile, const plan_request *request)
{
    const uint32_t n = request->devices, C = request->micro_batches;
    if (n > PART_DEVICES_MAX)
        return atom_fail(ATOM_E_USAGE, "devices: at most %d can train together, not %u",
                         PART_DEVICES_MAX, n);
    if (n > 1 && C > 0 && C < n)
        return atom_fail(ATOM_E_USAGE,
                         "devices: %u devices share the micro-batches of a step, but there %s "
                         "only %u; raise gradient_accumulation_steps to %u or more",
                         n, C == 1 ? "is" : "are", C, n);
    if (n > 1 && profile->device.unified && !request->device_memory)
        return atom_fail(ATOM_E_USAGE,
                         "devices: without device_memory the CPU uses the weights in place and "
                         "is one device; set device_memory, or leave devices out");
    return ATOM_OK;
}

/* Where the step of all devices was too long to be run: each device begins backward one visit after
 * the one before it. */
static double late_seconds(const part_profile *profile, const part_plan *share, uint32_t devices)
{
    const part_sub_model *last = &share->sub_models[share->n_sub_models - 1];
    double turn = 0;
    for (int32_t i = last->first_node; i < last->last_node; i++)
        turn += profile->nodes[i].fwd_seconds + profile->nodes[i].bwd_seconds;
    return share->simulated ? 0 : turn * share->micro_batches * (devices - 1);
}

/* The plan for a share becomes that of all devices. */
static void widen(const gen_judge *judge, part_plan *plan)
{
    double late = late_seconds(judge->profile, plan, judge->devices);
    *plan = gen_judge_whole(judge, plan);
    plan->predicted_step_seconds += late;
    plan->predicted_ahead_seconds += plan->predicted_ahead_seconds > 0 ? late : 0;
    plan->recommended_micro_batches *= judge->devices;
    plan->recommended_tokens_per_second = plan->most_tokens_per_second = 0;
}

/*
 * For several devices smaller sub-models may be better than those that one alone likes best, since
 * all devices but the first wait for a visit: plans that use a half, a quarter and an eighth of the
 * memory are judged, too. Where one alone takes less than half, these are powers of two, the same however much
 * memory there is, so that more of it does not make it slower.
 */
static atom_status search_devices(const gen_judge *judge, const part_request *request,
                                  part_plan **out, part_search_stats *stats)
{
    enum { HALVES = 3 };
    const uint64_t asked = request->device_budget_bytes;
    uint64_t all = asked ? asked : judge->profile->device.device_bytes;
    part_request some = *request;
    ATOM_TRY(part_search(judge->g, judge->profile, request, out, stats));
    widen(judge, *out);
    const bool roomy = all / 2 >= (*out)->device_peak_bytes;
    if (roomy)
        for (all = 1; all < (*out)->device_peak_bytes;)
            all *= 2;
    if (!some.micro_batches)
        some.micro_batches = (*out)->micro_batches / judge->devices;
    some.no_advice = some.no_needs = true;
    for (int i = roomy ? 0 : 1; i <= HALVES && all >> i; i++) {
        part_plan *other = NULL;
        part_search_stats more = {0};
        some.device_budget_bytes = all >> i;
        atom_status st = part_search(judge->g, judge->profile, &some, &other, &more);
        stats->states += more.states;
        stats->evaluated += more.evaluated;
        stats->seconds += more.seconds;
        if (st == ATOM_E_RESOURCE)
            break; /* nor will less be enough */
        if (st != ATOM_OK)
            part_plan_close(out);
        ATOM_TRY(st);
        widen(judge, other);
        other->device_budget_bytes = asked;
        other->recommended_micro_batches = (*out)->recommended_micro_batches;
        if (part_plan_seconds(other) < part_plan_seconds(*out)) {
            part_plan *worse = *out;
            *out = other;
            other = worse;
        }
        part_plan_close(&other);
    }
    return ATOM_OK;
}

atom_status plan_search(const graph *g, const part_profile *profile, const krn_table *table,
                        const plan_request *request, part_plan **out, part_search_stats *stats)
{
    const uint32_t C = request->micro_batches, n = request->devices > 1 ? request->devices : 1;
    gen_judge judge = {
        .g = g, .profile = profile, .table = table, .devices = n, .micro_batches = C};
    part_search_stats ignored = {0};
    part_request search = {.device_budget_bytes = request->device_memory,
                           .host_budget_bytes = request->host_memory,
                           .host_hold_bytes = request->host_hold,
                           .micro_batches = C / n + (C % n != 0),
                           .no_advice = request->no_advice,
                           .no_needs = request->no_needs,
                           .clip = request->clip,
                           .update_on_device = request->update_on_device && n == 1,
                           .ortho_on_device = request->ortho_on_device && (!table || table->ortho),
                           .recompute = request->recompute,
                           .disk = request->disk,
                           .ahead = request->ahead,
                           .evaluate = gen_judge_plan,
                           .weigh = gen_weigh_plan,
                           .evaluate_ctx = &judge};
    stats = stats ? stats : &ignored;
    ATOM_TRY(check_devices(profile, request));
    if (n > 1)
        return search_devices(&judge, &search, out, stats);
    return part_search(g, profile, &search, out, stats);
}

atom_status plan_judge_in_memory(const graph *g, const part_profile *profile, const part_plan *plan,
                                 part_verdict *verdict)
{
    gen_judge judge = {
        .g = g, .profile = profile, .devices = 1}; /* the plan is of all devices already */
    part_plan roomy = *plan;
    roomy.disk = roomy.over_boundaries = false;
    roomy.ring_blocks = 0;
    roomy.block_elements = 0;
    return gen_judge_plan(&judge, &roomy, verdict);
}
