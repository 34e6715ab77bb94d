/*
 * Owns the search of a plan. One idea: the best plan for a number of micro-batches is chosen (choose.c), for the number
 * that was asked for or is recommended (recommend.c); what a forced choice would have got must not be better. Refuses plans
 * that do not fit, and says what would.
 */
#include "partition/search.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "partition/candidates.h"

#include <math.h>
#include <string.h>

ATOM_MUST static atom_status open_state(part_search_state *s, const graph *g,
                                        const part_profile *profile, const part_request *request,
                                        part_where where)
{
    const part_device *d = &profile->device;
    ATOM_TRY(part_profile_matches(profile, g));
    s->g = g;
    s->profile = profile;
    s->request = request;
    s->in_place = d->unified && !request->device_budget_bytes;
    s->device_bytes = request->device_budget_bytes ? request->device_budget_bytes : d->device_bytes;
    if (s->in_place)
        s->device_bytes = 0;
    s->host_bytes = request->host_budget_bytes ? request->host_budget_bytes : d->host_bytes;
    s->micro_batches = request->micro_batches;
    ATOM_TRY(part_model_open(g, profile, &s->model));
    if (where.disk)
        part_model_use_disk(s->model);
    s->model->over = where.over;
    s->last = where.last;
    s->vain = request->no_needs;
    if (where.ortho && part_ortho_pays(s->model, s->micro_batches))
        part_model_use_ortho(s->model);
    s->model->ahead = where.disk && !s->model->ortho && request->ahead && request->clip;
    return ATOM_OK;
}

/* --- where nothing fits --- */

/* What the host needs, where that much is not enough or not even needed. */
ATOM_MUST static atom_status settle_host(part_search_state *s, uint64_t *need)
{
    const uint64_t alone = s->host_alone_bytes;
    bool enough = false;
    atom_status st = ATOM_OK;
    for (int i = 0; i < PART_PROBES_MAX; i++) {
        part_plan *plan = NULL;
        st = part_any_within(s, s->device_bytes, *need - enough, &plan);
        if (st != ATOM_OK || (!plan && (enough || s->host_alone_bytes <= *need)))
            break;
        enough = plan != NULL;
        *need = plan ? plan->host_peak_bytes : s->host_alone_bytes;
        part_plan_close(&plan);
    }
    s->host_alone_bytes = alone;
    return st;
}

/* The host has less than any plan takes. */
ATOM_MUST static atom_status refuse_host(part_search_state *s)
{
    uint64_t need = part_host_base_bytes(s->model, s->micro_batches ? s->micro_batches : 1);
    if (!s->host_bytes || need <= s->host_bytes)
        return ATOM_OK;
    if (!s->micro_batches)
        s->micro_batches = 1;
    if (s->last && !s->vain)
        ATOM_TRY(settle_host(s, &need));
    return part_refuse_host(s, need);
}

/* No candidate fits: a partition that needs little may, or the news is bad. */
ATOM_MUST static atom_status last_resort(part_search_state *s, part_plan **out)
{
    part_plan *least = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(s->in_place ? ATOM_OK : part_find_little(s, &least));
    if (least && least->device_peak_bytes <= part_device_limit(s)) {
        *out = least;
        return ATOM_OK;
    }
    uint64_t host = s->host_alone_bytes;
    s->stats.host_holds = !s->host_need_bytes;
    if (s->last && host && !s->vain)
        ATOM_TRY_CLEAN(settle_host(s, &host));
    s->host_alone_bytes = host;
    s->stats.needs_bytes = least && !host ? least->device_peak_bytes : 0;
    st = part_refuse_device(s, least);
cleanup:
    part_plan_close(&least);
    return st;
}

/* *plan becomes the other one if that is better. */
static void keep_beating(part_plan **plan, part_plan *other)
{
    if (other && part_beats(other, *plan)) {
        part_plan *worse = *plan;
        *plan = other;
        other = worse;
    }
    part_plan_close(&other);
}

/* What `recompute` 0 or 1 would have got, if it is better. */
ATOM_MUST static atom_status try_forced(part_search_state *s, int recompute, part_plan **best)
{
    const part_request *asked = s->request;
    part_request forced = *asked;
    part_plan *other = NULL;
    forced.recompute = recompute;
    s->request = &forced;
    atom_status st = part_choose_or_little(s, &other);
    s->request = asked;
    if (st == ATOM_OK)
        keep_beating(best, other);
    return st;
}

/* Is a plan about as quick as it was estimated to be? */
static bool as_estimated(const part_search_state *s, const part_plan *plan)
{
    static const double NEAR = 1.1;
    part_verdict v;
    part_estimate(s->model, plan, &v);
    double seconds = part_plan_seconds(plan);
    return v.step_seconds < NEAR * seconds && seconds < NEAR * v.step_seconds;
}

/*
 * With a free choice candidates are ranked by estimates, and few of them are judged exactly. Plans that
 * hold single nodes crowd out those that repeat everything; where memory is short and nodes are small the
 * estimates can be so far off that no good way is among those few; and where nothing fits but the
 * smallest plan, no other was looked at, or what is possible is far. A free choice must not be worse than a forced one.
 */
ATOM_MUST static atom_status try_what_is_forced(part_search_state *s, bool last, part_plan **plan)
{
    static const double FAR = 1.15;
    const double least = part_least_seconds(s, *plan), seconds = part_plan_seconds(*plan);
    if (s->request->recompute >= 0 || s->in_place || !graph_trains(s->g) ||
        seconds <= PART_TIE * least)
        return ATOM_OK;
    const bool far =
        seconds > FAR * least && !s->model->disk && s->stats.states < PART_STATES_ENOUGH;
    if (last || far || !as_estimated(s, *plan))
        ATOM_TRY(try_forced(s, 0, plan));
    return try_forced(s, 1, plan);
}

/* What the plan itself reaches is known better than what was promised of that many micro-batches; and no
 * number may be said to reach nearly all that is far from what the plan reaches, or if nothing was found to fit
 * where this plan does. own: the plan has the number that is recommended. */
static void note_advice(part_plan *plan, part_advice advice, bool own)
{
    static const double FAR = 0.9;
    const double rate = part_plan_tokens_per_second(plan);
    if (!advice.micro_batches || advice.most_tokens_per_second > 0) {
        if (own || plan->micro_batches == advice.micro_batches ||
            advice.tokens_per_second < FAR * rate) {
            advice.micro_batches = plan->micro_batches;
            advice.tokens_per_second = rate;
        }
        advice.most_tokens_per_second = fmax(advice.most_tokens_per_second, rate);
    }
    plan->recommended_micro_batches = advice.micro_batches;
    plan->recommended_tokens_per_second = advice.tokens_per_second;
    plan->most_tokens_per_second = advice.most_tokens_per_second;
}

/* The best plan, or the only one, or a refusal. */
ATOM_MUST static atom_status choose_or_refuse(part_search_state *s, part_plan **plan, bool *last)
{
    ATOM_TRY(part_choose(s, plan));
    *last = !*plan;
    if (!*last)
        return ATOM_OK;
    ATOM_TRY(last_resort(s, plan));
    return part_hold_blocks(s, *plan);
}

ATOM_MUST static atom_status find(part_search_state *s, part_plan **out)
{
    atom_status st = ATOM_OK;
    part_advice advice = {0};
    part_plan *plan = NULL;
    const bool free = !s->micro_batches, advised = free || !s->request->no_advice;
    ATOM_TRY_CLEAN(refuse_host(s));
    if (free) {
        ATOM_TRY_CLEAN(part_recommend(s, &advice));
        s->micro_batches = advice.micro_batches ? advice.micro_batches : 1;
    }
    bool last = false;
    /* What was recommended was estimated, and may not fit after all; on disk there may be another way. */
    const bool fewer = free && (s->last || !s->model->disk);
    s->vain = s->request->no_needs || (fewer && s->micro_batches > 1);
    st = choose_or_refuse(s, &plan, &last);
    for (uint32_t part = 8; st == ATOM_E_RESOURCE && fewer && s->micro_batches > 1;
         part = 1 + part / 2) {
        part_plan_close(&plan);
        advice = (part_advice){0};
        s->micro_batches -= 1 + (s->micro_batches - 1) / part;
        s->vain = s->request->no_needs || s->micro_batches > 1;
        st = choose_or_refuse(s, &plan, &last);
    }
    if (st != ATOM_OK)
        goto cleanup;
    if (free && !s->in_place && graph_trains(s->g))
        ATOM_TRY_CLEAN(part_try_more(s, last, &plan, &advice));
    ATOM_TRY_CLEAN(try_what_is_forced(s, last, &plan));
    if (!free && advised) /* last: a refusal needs no advice */
        ATOM_TRY_CLEAN(part_recommend(s, &advice));
    if (advised)
        note_advice(plan, advice, free);
    plan->least_step_seconds = part_least_seconds(s, plan);
    plan->device_budget_bytes = s->request->device_budget_bytes;
    plan->host_budget_bytes = s->request->host_budget_bytes;
    st = part_plan_check(plan, s->g);
    ATOM_ASSERT(st != ATOM_E_USAGE); /* the search and the check disagree: our bug */
    *out = plan;
    return st;
cleanup:
    part_plan_close(&plan);
    return st;
}

atom_status part_search_once(const graph *g, const part_profile *profile,
                             const part_request *request, part_where where, part_plan **out,
                             part_search_stats *stats)
{
    part_search_state s = {0};
    atom_status st = open_state(&s, g, profile, request, where);
    if (st == ATOM_OK)
        st = find(&s, out);
    stats->states += s.stats.states;
    stats->evaluated += s.stats.evaluated;
    stats->needs_bytes = s.stats.needs_bytes;
    stats->host_holds = s.stats.host_holds;
    part_solved_close(&s);
    part_table_close(&s.table);
    part_model_close(&s.model);
    return st;
}
