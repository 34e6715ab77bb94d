/*
 * Owns the list of candidates. One idea: cuts are exact for the memory they are given, so the outer
 * choices reduce to how much memory that is; what the cuts leave keeps activations (less to repeat)
 * and then parameters (less to load) on the device. Refuses to judge: the estimate ranks, search.c
 * decides.
 */
#include "partition/candidates.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

enum { SHRINK_ROUNDS_MAX = 6 };

static const uint64_t NO_LIMIT = (uint64_t)1 << 61;

static uint64_t device_limit(const part_search_state *s)
{
    return s->device_bytes ? s->device_bytes : NO_LIMIT;
}

static bool host_holds(const part_search_state *s, const part_verdict *v)
{
    return !s->host_bytes || v->host_peak_bytes <= s->host_bytes;
}

bool part_way_setting(const part_search_state *s, int way, part_setting *setting)
{
    *setting = (part_setting){.micro_batches = s->micro_batches,
                              .keep = way & 1 ? PART_KEEP_HOST : PART_RECOMPUTE,
                              .boundaries = way & 2 ? PART_ON_HOST : PART_ON_DEVICE,
                              .clip = s->request->clip};
    return !(setting->keep == PART_KEEP_HOST && s->request->recompute == 1);
}

static void note_estimate(const part_search_state *s, part_plan *plan, part_verdict *v)
{
    part_estimate(s->model, plan, v);
    plan->predicted_step_seconds = v->step_seconds;
    plan->predicted_compute_seconds = v->compute_seconds;
    plan->device_peak_bytes = v->device_peak_bytes;
    plan->host_peak_bytes = v->host_peak_bytes;
    plan->bound = v->bound;
}

/* --- plans from cuts --- */

atom_status part_plan_from_cuts(const part_search_state *s, const part_setting *setting,
                                const int32_t *ends, uint32_t n, part_plan **out)
{
    part_plan *plan = NULL;
    atom_status st = part_plan_open(s->g, s->profile, n, &plan);
    if (st != ATOM_OK)
        return st;
    plan->micro_batches = setting->micro_batches;
    plan->clip = setting->clip;
    plan->boundaries = setting->boundaries;
    plan->in_place = s->in_place;
    for (uint32_t k = 0; k < n; k++) {
        int32_t first = k ? ends[k - 1] : 0;
        part_range r = part_range_make(s->model, first, ends[k]);
        plan->sub_models[k] = (part_sub_model){.first_node = first,
                                               .last_node = ends[k],
                                               .param_bytes = r.slot_bytes,
                                               .keep = k + 1 < n ? setting->keep : PART_RECOMPUTE};
        plan->cut_bytes += r.x_bytes;
    }
    *out = plan;
    return ATOM_OK;
}

static atom_status make_single(const part_search_state *s, part_plan **out)
{
    part_setting setting;
    int32_t end = (int32_t)s->g->n_nodes;
    part_way_setting(s, 0, &setting);
    return part_plan_from_cuts(s, &setting, &end, 1, out);
}

bool part_single_fits(const part_search_state *s)
{
    part_plan *plan = NULL;
    part_verdict v;
    if (make_single(s, &plan) != ATOM_OK)
        return false;
    note_estimate(s, plan, &v);
    part_plan_close(&plan);
    return v.device_peak_bytes <= device_limit(s) && host_holds(s, &v);
}

/* --- what is left of the device's memory --- */

/* Keeps activations on the device, latest visits first: theirs are kept for the shortest time. */
static void fill_kept(const part_search_state *s, part_plan *plan, uint64_t limit)
{
    part_verdict v;
    note_estimate(s, plan, &v);
    uint64_t left = v.device_peak_bytes < limit ? limit - v.device_peak_bytes : 0;
    for (uint32_t k = plan->n_sub_models - 1; k-- > 0;) {
        part_sub_model *sub = &plan->sub_models[k];
        part_range r = part_range_make(s->model, sub->first_node, sub->last_node);
        uint64_t bytes = r.kept_bytes * plan->micro_batches;
        if (bytes > left)
            continue;
        left -= bytes;
        sub->keep = PART_KEEP_DEVICE;
    }
}

/* Keeps parameters on the device where that saves time. */
static void fill_resident(const part_search_state *s, part_plan *plan, uint64_t limit)
{
    part_verdict before, after;
    note_estimate(s, plan, &before);
    uint64_t left = before.device_peak_bytes < limit ? limit - before.device_peak_bytes : 0;
    bool any = false;
    for (uint32_t k = plan->n_sub_models - 1; k-- > 0;) {
        if (plan->sub_models[k].param_bytes > left)
            continue;
        left -= plan->sub_models[k].param_bytes;
        plan->sub_models[k].resident = any = true;
    }
    note_estimate(s, plan, &after);
    if (any &&
        (after.step_seconds > 0.999 * before.step_seconds || after.device_peak_bytes > limit))
        for (uint32_t k = 0; k < plan->n_sub_models; k++)
            plan->sub_models[k].resident = false;
}

/* Does the plan repeat activations although the request forbids it? */
static bool repeats(const part_search_state *s, const part_plan *plan)
{
    if (s->request->recompute != 0)
        return false;
    for (uint32_t k = 0; k + 1 < plan->n_sub_models; k++)
        if (plan->sub_models[k].keep == PART_RECOMPUTE)
            return true;
    return false;
}

/* --- candidates --- */

ATOM_MUST static atom_status open_table(part_search_state *s)
{
    return s->table ? ATOM_OK : part_table_open(s->model, device_limit(s), &s->table);
}

/*
 * A plan of two or more sub-models whose cuts use at most `capacity` and which fits `limit` in all;
 * NULL if there is none. The pairs' predicate does not see everything (other boundaries, maxima of
 * different pairs), so what a plan needs too much is taken off the capacity.
 */
ATOM_MUST static atom_status make_plan(part_search_state *s, const part_setting *setting,
                                       part_goal goal, uint64_t capacity, uint64_t limit,
                                       part_plan **out)
{
    atom_status st = open_table(s);
    part_plan *plan = NULL;
    part_cuts cuts = {0};
    part_verdict v;
    capacity = capacity < limit ? capacity : limit;
    *out = NULL;
    for (int round = 0; st == ATOM_OK && round < SHRINK_ROUNDS_MAX; round++) {
        ATOM_TRY(part_dp(s->table, setting, goal, capacity, &cuts, &s->stats.states));
        if (cuts.n == 0)
            return ATOM_OK;
        ATOM_TRY(part_plan_from_cuts(s, setting, cuts.ends, cuts.n, &plan));
        part_cuts_close(&cuts);
        note_estimate(s, plan, &v);
        if (v.device_peak_bytes <= limit)
            break;
        uint64_t over = v.device_peak_bytes - limit;
        if (!s->device_need_bytes || v.device_peak_bytes < s->device_need_bytes)
            s->device_need_bytes = v.device_peak_bytes;
        part_plan_close(&plan);
        if (over >= capacity)
            return ATOM_OK;
        capacity -= over;
    }
    if (plan && s->request->recompute != 1)
        fill_kept(s, plan, limit);
    if (plan)
        fill_resident(s, plan, limit);
    if (plan)
        note_estimate(s, plan, &v);
    if (plan && (repeats(s, plan) || !host_holds(s, &v))) {
        if (!repeats(s, plan) && (!s->host_need_bytes || v.host_peak_bytes < s->host_need_bytes))
            s->host_need_bytes = v.host_peak_bytes;
        part_plan_close(&plan);
    }
    *out = plan;
    return ATOM_OK;
fail:
    part_cuts_close(&cuts);
    part_plan_close(&plan);
    return st;
}

static bool same_plan(const part_plan *a, const part_plan *b)
{
    if (a->n_sub_models != b->n_sub_models || a->boundaries != b->boundaries)
        return false;
    for (uint32_t k = 0; k < a->n_sub_models; k++) {
        const part_sub_model *x = &a->sub_models[k], *y = &b->sub_models[k];
        if (x->last_node != y->last_node || x->keep != y->keep || x->resident != y->resident)
            return false;
    }
    return true;
}

/* Takes the plan over; throws it away when there is one like it. */
static void add(part_search_state *s, part_candidate candidate)
{
    bool room = s->n_candidates < PART_CANDIDATES_MAX;
    for (uint32_t i = 0; i < s->n_candidates; i++)
        room = room && !same_plan(s->candidates[i].plan, candidate.plan);
    if (room)
        s->candidates[s->n_candidates++] = candidate;
    else
        part_plan_close(&candidate.plan);
}

ATOM_MUST static atom_status add_single(part_search_state *s)
{
    part_candidate c = {0};
    part_verdict v;
    atom_status st = make_single(s, &c.plan);
    if (st != ATOM_OK)
        return st;
    note_estimate(s, c.plan, &v);
    /* The model may be a little high: let the exact evaluation say no. */
    if (v.device_peak_bytes / 20 * 19 <= device_limit(s) && host_holds(s, &v)) {
        add(s, c);
        return ATOM_OK;
    }
    part_candidates_note_need(s, &c, &v);
    part_plan_close(&c.plan);
    return ATOM_OK;
}

ATOM_MUST static atom_status add_way(part_search_state *s, const part_setting *setting)
{
    static const uint32_t eighths[] = {8, 6, 4, 3, 2, 1};
    for (size_t f = 0; f < sizeof eighths / sizeof *eighths; f++) {
        for (int hidden = 0; hidden < 2; hidden++) {
            part_candidate c = {.setting = *setting,
                                .goal = hidden ? PART_GOAL_HIDDEN : PART_GOAL_TIME,
                                .capacity_bytes = device_limit(s) / 8 * eighths[f]};
            if (hidden && f > 0)
                continue; /* what hides everything is also among the plans of least time */
            atom_status st =
                make_plan(s, setting, c.goal, c.capacity_bytes, device_limit(s), &c.plan);
            if (st != ATOM_OK)
                return st;
            if (c.plan)
                add(s, c);
        }
        if (!s->device_bytes)
            break; /* without a limit there is nothing to divide */
    }
    return ATOM_OK;
}

/* The partition that needs the least memory: it is there when nothing else is. */
ATOM_MUST static atom_status add_smallest(part_search_state *s, const part_setting *setting)
{
    part_candidate c = {
        .setting = *setting, .goal = PART_GOAL_MEMORY, .capacity_bytes = device_limit(s)};
    atom_status st = make_plan(s, setting, c.goal, c.capacity_bytes, device_limit(s), &c.plan);
    if (st == ATOM_OK && c.plan)
        add(s, c);
    return st;
}

atom_status part_candidates_make(part_search_state *s)
{
    atom_status st = ATOM_OK;
    part_candidates_clear(s);
    s->device_need_bytes = s->host_need_bytes = 0;
    ATOM_TRY(add_single(s));
    for (int way = 0; way < PART_WAYS && !s->in_place; way++) {
        part_setting setting;
        if (!part_way_setting(s, way, &setting))
            continue;
        uint32_t before = s->n_candidates;
        ATOM_TRY(add_way(s, &setting));
        if (s->n_candidates == before)
            ATOM_TRY(add_smallest(s, &setting));
    }
fail:
    return st;
}

part_candidate *part_candidates_take(part_search_state *s)
{
    part_candidate *best = NULL;
    for (uint32_t i = 0; i < s->n_candidates; i++) {
        part_candidate *c = &s->candidates[i];
        if (c->taken || !c->plan)
            continue;
        if (!best || c->plan->predicted_step_seconds < best->plan->predicted_step_seconds)
            best = c;
    }
    if (best)
        best->taken = true;
    return best;
}

atom_status part_candidate_again(part_search_state *s, part_candidate *c, uint64_t bias)
{
    part_plan_close(&c->plan);
    if (c->capacity_bytes == 0 || bias >= device_limit(s))
        return ATOM_OK;
    uint64_t limit = device_limit(s) - bias;
    return make_plan(s, &c->setting, c->goal, c->capacity_bytes, limit, &c->plan);
}

void part_candidates_note_need(part_search_state *s, const part_candidate *c, const part_verdict *v)
{
    uint64_t device = v->device_peak_bytes, host = v->host_peak_bytes;
    (void)c;
    if (device > device_limit(s) && (!s->device_need_bytes || device < s->device_need_bytes))
        s->device_need_bytes = device;
    if (s->host_bytes && host > s->host_bytes && (!s->host_need_bytes || host < s->host_need_bytes))
        s->host_need_bytes = host;
}

void part_candidates_clear(part_search_state *s)
{
    for (uint32_t i = 0; i < s->n_candidates; i++)
        part_plan_close(&s->candidates[i].plan);
    memset(s->candidates, 0, sizeof s->candidates);
    s->n_candidates = 0;
}

atom_status part_candidates_best_seconds(part_search_state *s, double *seconds)
{
    atom_status st = part_candidates_make(s);
    *seconds = 0;
    if (st == ATOM_OK) {
        const part_candidate *best = part_candidates_take(s);
        *seconds = best ? best->plan->predicted_step_seconds : 0;
    }
    part_candidates_clear(s);
    return st;
}

atom_status part_way_micro_batches(part_search_state *s, int way, uint32_t *out)
{
    part_setting setting;
    part_cuts cuts = {0};
    part_plan *plan = NULL;
    *out = 0;
    if (s->in_place || !part_way_setting(s, way, &setting))
        return ATOM_OK;
    atom_status st = open_table(s);
    if (st == ATOM_OK)
        st = part_dp(s->table, &setting, PART_GOAL_MICRO_BATCHES, device_limit(s), &cuts,
                     &s->stats.states);
    uint32_t need = cuts.n ? (uint32_t)cuts.score.key : 0;
    part_cuts_close(&cuts);
    if (st != ATOM_OK || need == 0 || need > s->micro_batches) {
        *out = need;
        return st;
    }
    /* The pairs agree; does a whole plan? */
    st = make_plan(s, &setting, PART_GOAL_HIDDEN, device_limit(s), device_limit(s), &plan);
    *out = plan ? need : 0;
    part_plan_close(&plan);
    return st;
}
