/*
 * Owns the choice of a plan. One idea: the cuts come from exact dynamic programming; what is
 * decided around them (keep or repeat activations, where boundaries live, how much memory goes to
 * sub-models and how much to kept activations, where to stop swapping) is a short list of
 * candidates, and the exact evaluation, where there is one, has the last word. Refuses plans that
 * do not fit.
 */
#include "partition/search.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "partition/candidates.h"

#include <math.h>
#include <string.h>

enum { TRIES_MAX = 4, FINALISTS_MAX = 3 };

/* Times within this factor of each other are a tie: fewer sub-models win. */
static const double TIE = 1.005;

/* --- judging --- */

static bool fits(const part_search_state *s, const part_verdict *v)
{
    return (!s->device_bytes || v->device_peak_bytes <= s->device_bytes) &&
           (!s->host_bytes || v->host_peak_bytes <= s->host_bytes);
}

bool part_beats(const part_plan *a, const part_plan *b)
{
    double left = part_plan_seconds(a) * b->micro_batches;
    double right = part_plan_seconds(b) * a->micro_batches;
    if (left * TIE < right)
        return true;
    if (right * TIE < left)
        return false;
    if (a->n_sub_models != b->n_sub_models)
        return a->n_sub_models < b->n_sub_models;
    return left < right;
}

/*
 * Judges a candidate exactly. When it needs more memory than the model thought, it is made again
 * with that much less; *plan is NULL when that does not help.
 */
ATOM_MUST static atom_status settle(part_search_state *s, part_candidate *c)
{
    atom_status st = ATOM_OK;
    uint64_t bias = 0;
    ATOM_TRY_CLEAN(part_candidate_refine(s, c));
    for (int tries = 0; c->plan && tries < TRIES_MAX; tries++) {
        part_verdict v, modelled;
        ATOM_TRY_CLEAN(part_judge(s, c->plan, &v));
        part_plan_note(s, c->plan, &v);
        if (fits(s, &v))
            return ATOM_OK;
        part_estimate(s->model, c->plan, &modelled);
        part_note_need(s, &v, part_device_limit(s));
        if (!s->device_bytes || v.device_peak_bytes <= s->device_bytes)
            break; /* the host's memory is short: smaller sub-models do not help */
        if (v.device_peak_bytes <= modelled.device_peak_bytes + bias)
            break; /* as predicted, and still too much */
        bias = v.device_peak_bytes - modelled.device_peak_bytes;
        ATOM_TRY_CLEAN(part_candidate_again(s, c, bias));
    }
    part_plan_close(&c->plan);
    return ATOM_OK;
cleanup:
    part_plan_close(&c->plan);
    return st;
}

/* Blocks of a state on disk that memory is left for stay in it. Given back until the plan fits. */
ATOM_MUST static atom_status hold_blocks(part_search_state *s, part_plan *plan)
{
    const uint64_t limit = s->request->host_hold_bytes;
    const uint64_t bytes = s->model->block_bytes, blocks = s->model->n_blocks;
    const uint32_t least = plan->ring_blocks;
    const part_plan had = *plan;
    part_verdict v;
    if (!plan->disk || plan->host_peak_bytes >= limit)
        return ATOM_OK;
    uint64_t ring = least + (limit - plan->host_peak_bytes) / bytes;
    for (ring = ring < blocks ? ring : blocks; ring >= least; ring--) {
        plan->ring_blocks = (uint32_t)ring;
        ATOM_TRY(part_weigh(s, plan, &v));
        if (v.host_peak_bytes <= limit)
            break;
    }
    const bool more = plan->ring_blocks > least;
    if (more)
        ATOM_TRY(part_judge(s, plan, &v));
    if (more)
        part_plan_note(s, plan, &v);
    if (!more || part_plan_seconds(plan) > part_plan_seconds(&had))
        *plan = had; /* updates of blocks that are held do not always run ahead as far */
    return ATOM_OK;
}

/* --- choosing --- */

/* Settles a candidate; *best becomes the better one, with the plan. */
ATOM_MUST static atom_status compare(part_search_state *s, part_candidate *next,
                                     part_candidate *best, uint32_t *settled)
{
    ATOM_TRY(settle(s, next));
    if (!next->plan)
        return ATOM_OK;
    ATOM_TRY(hold_blocks(s, next->plan));
    ++*settled;
    if (best->plan && !part_beats(next->plan, best->plan))
        return ATOM_OK;
    part_plan_close(&best->plan);
    *best = *next;
    next->plan = NULL;
    return ATOM_OK;
}

/*
 * The same cuts, with less going out beside each visit: the model does not see how lumps of it wait for each
 * other, so it ranks what fills the link first.
 */
ATOM_MUST static atom_status try_beside(part_search_state *s, part_candidate *best,
                                        uint32_t *settled)
{
    static const double shares[] = {PART_BESIDE, PART_BESIDE * 2 / 3, PART_BESIDE / 3};
    const part_candidate like = *best;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        part_candidate c = {.setting = like.setting,
                            .goal = like.goal,
                            .capacity_bytes = like.capacity_bytes,
                            .beside = shares[i]};
        if (like.beside == shares[i] ||
            part_plan_seconds(best->plan) <= TIE * part_least_seconds(s, best->plan))
            continue;
        c.setting.keep = PART_RECOMPUTE;
        atom_status st = compare(s, &c, best, settled);
        part_plan_close(&c.plan);
        ATOM_TRY(st);
    }
    return ATOM_OK;
}

atom_status part_choose(part_search_state *s, part_plan **out)
{
    atom_status st = ATOM_OK;
    part_candidate best = {0};
    uint32_t settled = 0;
    ATOM_TRY_CLEAN(part_candidates_make(s));
    while (settled < FINALISTS_MAX || !best.plan) {
        part_candidate *next = part_candidates_take(s, false);
        if (!next)
            break;
        /* The model ranks them; what it puts far behind is not worth a simulation. */
        if (best.plan && part_plan_seconds(next->plan) > 1.5 * part_plan_seconds(best.plan))
            break;
        if (best.plan && part_dear(s, next->plan) &&
            part_plan_seconds(next->plan) * TIE > part_plan_seconds(best.plan))
            break;
        ATOM_TRY_CLEAN(compare(s, next, &best, &settled));
    }
    /* The model sees less of what is held than the simulation: it must not be slower for it. */
    part_candidate *plain = best.plan && best.plan->holds ? part_candidates_take(s, true) : NULL;
    if (plain && !part_dear(s, plain->plan))
        ATOM_TRY_CLEAN(compare(s, plain, &best, &settled));
    if (s->request->recompute < 0 && best.plan && best.capacity_bytes && !part_dear(s, best.plan))
        ATOM_TRY_CLEAN(try_beside(s, &best, &settled));
    part_candidates_clear(s);
    *out = best.plan;
    return ATOM_OK;
cleanup:
    part_candidates_clear(s);
    part_plan_close(&best.plan);
    return st;
}

/* --- the search --- */

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

enum { PROBES_MAX = 16 };

/* A plan within these limits, by its memory alone; *out is NULL if there is none. */
ATOM_MUST static atom_status any_within(part_search_state *s, uint64_t device, uint64_t host,
                                        part_plan **out)
{
    part_search_state t = *s; /* what nothing fitted for stays as it was */
    part_request memory = *s->request;
    part_verdict v;
    memory.evaluate = memory.weigh ? memory.weigh : memory.evaluate;
    if (t.table && t.table->capacity_bytes < device)
        part_table_close(&t.table);
    t.request = &memory;
    t.hasty = true;
    t.device_bytes = device;
    t.host_bytes = host;
    *out = NULL;
    atom_status st = part_choose(&t, out);
    if (st == ATOM_OK && !*out && !t.in_place) {
        st = part_least_plan(&t, false, out, &v);
        if (st == ATOM_OK && *out && !fits(&t, &v))
            part_plan_close(out);
    }
    s->table = t.table;
    s->stats = t.stats;
    s->n_solved = t.n_solved;
    memcpy(s->solved, t.solved, sizeof s->solved);
    s->host_alone_bytes = t.host_alone_bytes;
    return st;
}

/* Cuts that are made for speed may need less than any of those that are made for little memory: what is found so is
 * taken, until it fits. Where it starts does not depend on what there is, so that with what was asked for it is found
 * again; but for a state on disk, whose rates are measured anew for each run, what takes how long must not matter. What
 * the device does not have in any case is not worth the search. */
ATOM_MUST static atom_status lower_device(part_search_state *s, part_plan **least)
{
    const uint64_t alone = s->host_alone_bytes, has = s->profile->device.device_bytes;
    atom_status st = ATOM_OK;
    for (int i = 0; i < PROBES_MAX && !s->model->disk && !s->vain; i++) {
        const uint64_t peak = (*least)->device_peak_bytes;
        part_plan *next = NULL;
        if (peak <= s->device_bytes || (has && peak > has))
            break;
        st = any_within(s, peak - 1, s->host_bytes, &next);
        if (st != ATOM_OK || !next)
            break;
        part_plan_close(least);
        *least = next;
    }
    s->host_alone_bytes = alone;
    return st;
}

/* What the host needs, where that much is not enough or not even needed. */
ATOM_MUST static atom_status settle_host(part_search_state *s, uint64_t *need)
{
    const uint64_t alone = s->host_alone_bytes;
    bool enough = false;
    atom_status st = ATOM_OK;
    for (int i = 0; i < PROBES_MAX; i++) {
        part_plan *plan = NULL;
        st = any_within(s, s->device_bytes, *need - enough, &plan);
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

/* *plan, which fits, is the quickest of those that need little, for the model, which sees less than the simulation: the
 * one that needs the least may be quicker. */
ATOM_MUST static atom_status judge_little(part_search_state *s, part_plan **plan)
{
    const bool hasty = s->hasty;
    part_plan *other = NULL;
    part_verdict v;
    ATOM_TRY(part_judge(s, *plan, &v));
    part_plan_note(s, *plan, &v);
    if (hasty)
        return ATOM_OK;
    s->hasty = true;
    atom_status st = part_least_plan(s, false, &other, &v);
    s->hasty = hasty;
    if (st == ATOM_OK && other && fits(s, &v)) {
        ATOM_TRY_CLEAN(part_judge(s, other, &v));
        part_plan_note(s, other, &v);
        if (part_beats(other, *plan)) {
            part_plan *worse = *plan;
            *plan = other;
            other = worse;
        }
    }
cleanup:
    part_plan_close(&other);
    return st;
}

/* The best of the plans that need little; where none of them fits, the one that needs the least. */
ATOM_MUST static atom_status find_little(part_search_state *s, part_plan **least)
{
    part_verdict v;
    ATOM_TRY(part_least_plan(s, true, least, &v));
    if (*least)
        ATOM_TRY(lower_device(s, least));
    return *least && (*least)->device_peak_bytes <= part_device_limit(s) ? judge_little(s, least)
                                                                         : ATOM_OK;
}

/* No candidate fits: a partition that needs little may, or the news is bad. */
ATOM_MUST static atom_status last_resort(part_search_state *s, part_plan **out)
{
    part_plan *least = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(s->in_place ? ATOM_OK : find_little(s, &least));
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

atom_status part_choose_or_little(part_search_state *s, part_plan **out)
{
    part_plan *plan = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_choose(s, out));
    if (*out || s->in_place)
        return ATOM_OK;
    ATOM_TRY_CLEAN(find_little(s, &plan));
    if (plan && plan->device_peak_bytes <= part_device_limit(s)) {
        ATOM_TRY_CLEAN(hold_blocks(s, plan));
        *out = plan;
        return ATOM_OK;
    }
cleanup:
    part_plan_close(&plan);
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
    static const double FAR = 1.2;
    const double least = part_least_seconds(s, *plan), seconds = part_plan_seconds(*plan);
    if (s->request->recompute >= 0 || s->in_place || !graph_trains(s->g) || seconds <= TIE * least)
        return ATOM_OK;
    const bool far = seconds > FAR * least && s->stats.states < PART_STATES_ENOUGH;
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
    return hold_blocks(s, *plan);
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
