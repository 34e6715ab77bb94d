/*
 * Owns the list of candidates. One idea: cuts are exact for the memory they are given, so the outer
 * choices reduce to how much memory that is; what the cuts leave keeps activations (less to repeat)
 * and then parameters (less to load) on the device. Refuses to judge: the estimate ranks, choose.c
 * decides.
 */
#include "partition/candidates.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

/* Stashing activations is given up where it is slower than the best by this factor, given all
 * memory. */
static const double HOPELESS = 1.1;

bool part_way_setting(const part_search_state *s, int way, part_setting *setting)
{
    *setting = (part_setting){.micro_batches = s->micro_batches,
                              .keep = way & 1 ? PART_KEEP_HOST : PART_RECOMPUTE,
                              .boundaries = way & 2 ? PART_ON_HOST : PART_ON_DEVICE,
                              .clip = s->request->clip,
                              .forward = !graph_trains(s->g)};
    if (setting->forward) /* there is nothing to keep; two are there in passing in any case */
        return way == 0 || (way == 2 && s->micro_batches > 2);
    return !(setting->keep == PART_KEEP_HOST && s->request->recompute == 1);
}

/* --- one sub-model --- */

static atom_status make_single(const part_search_state *s, part_plan **out)
{
    part_setting setting;
    int32_t end = (int32_t)s->g->n_nodes;
    part_way_setting(s, 0, &setting);
    return part_plan_from_cuts(s, &setting, &end, 1, out);
}

/* --- candidates --- */

static bool same_plan(const part_plan *a, const part_plan *b, uint32_t n_nodes)
{
    if (a->n_sub_models != b->n_sub_models || a->boundaries != b->boundaries ||
        a->update_on_device != b->update_on_device || a->ortho_on_device != b->ortho_on_device ||
        a->over_boundaries != b->over_boundaries)
        return false;
    for (uint32_t k = 0; k < a->n_sub_models; k++) {
        const part_sub_model *x = &a->sub_models[k], *y = &b->sub_models[k];
        if (x->last_node != y->last_node || x->keep != y->keep || x->resident != y->resident)
            return false;
    }
    return !a->holds || !b->holds || memcmp(a->holds, b->holds, n_nodes) == 0;
}

/* Takes the plan over; throws it away when there is one like it. */
static void add(part_search_state *s, part_candidate candidate)
{
    bool room = s->n_candidates < PART_CANDIDATES_MAX;
    for (uint32_t i = 0; i < s->n_candidates; i++)
        room = room && !same_plan(s->candidates[i].plan, candidate.plan, s->g->n_nodes);
    if (room)
        s->candidates[s->n_candidates++] = candidate;
    else
        part_plan_close(&candidate.plan);
}

/* One sub-model is mostly far quicker than several, so it must not be believed in where it does not fit: the
 * model is asked first, and what is laid out where that is not sure. Where nothing is trained no other plan
 * is made beside it, and it is always laid out. */
ATOM_MUST static atom_status weigh_single(part_search_state *s, part_plan *plan, part_verdict *v)
{
    part_plan_estimate(s, plan, v);
    const uint64_t limit = part_device_limit(s), bytes = v->device_peak_bytes;
    const bool near = bytes / 20 * 19 <= limit && bytes / 20 * 21 >= limit;
    if (!s->device_bytes || (!near && graph_trains(s->g)))
        return ATOM_OK;
    ATOM_TRY(part_weigh(s, plan, v));
    plan->device_peak_bytes = v->device_peak_bytes;
    plan->host_peak_bytes = v->host_peak_bytes;
    return ATOM_OK;
}

/* One sub-model with its optimizer's state beside it. */
ATOM_MUST static atom_status add_updating(part_search_state *s)
{
    part_candidate c = {0};
    part_verdict v;
    if (s->g->optimizer == GRAPH_MUON || !s->request->update_on_device || !s->request->clip ||
        s->in_place || s->model->disk)
        return ATOM_OK;
    ATOM_TRY(make_single(s, &c.plan));
    c.plan->update_on_device = true;
    atom_status st = weigh_single(s, c.plan, &v);
    if (st == ATOM_OK && v.device_peak_bytes <= part_device_limit(s) && part_host_holds(s, &v))
        add(s, c);
    else
        part_plan_close(&c.plan);
    return st;
}

ATOM_MUST static atom_status add_single(part_search_state *s)
{
    part_candidate c = {0};
    part_verdict v;
    ATOM_TRY(make_single(s, &c.plan));
    atom_status st = weigh_single(s, c.plan, &v);
    if (st == ATOM_OK && v.device_peak_bytes <= part_device_limit(s) && part_host_holds(s, &v)) {
        add(s, c);
        return ATOM_OK;
    }
    if (st == ATOM_OK)
        part_note_need(s, &v, part_device_limit(s));
    part_plan_close(&c.plan);
    return st;
}

/* Does every pair of the plan hide what moves? */
static bool hides(const part_search_state *s, const part_setting *setting, const part_plan *plan)
{
    for (uint32_t k = 0; k + 1 < plan->n_sub_models; k++) {
        const part_sub_model *a = &plan->sub_models[k], *b = a + 1;
        part_range cur = part_range_make(s->model, a->first_node, a->last_node);
        part_range next = part_range_make(s->model, b->first_node, b->last_node);
        part_times ta = part_range_times(s->model, setting, &cur);
        part_times tb = part_range_times(s->model, setting, &next);
        if (!part_pair_hides(&ta, &tb, k + 2 == plan->n_sub_models))
            return false;
    }
    return true;
}

ATOM_MUST static atom_status add_one(part_search_state *s, const part_setting *setting,
                                     part_goal goal, uint64_t capacity, bool *hidden)
{
    part_candidate c = {.setting = *setting, .goal = goal, .capacity_bytes = capacity};
    ATOM_TRY(part_make_plan(s, setting, goal, capacity, part_device_limit(s), 0, &c.plan));
    if (!c.plan)
        return ATOM_OK;
    *hidden = hides(s, setting, c.plan);
    add(s, c);
    if (setting->keep != PART_RECOMPUTE || s->request->recompute >= 0 || setting->forward)
        return ATOM_OK;
    c.beside = PART_BESIDE;
    c.plan = NULL;
    ATOM_TRY(part_make_plan(s, setting, goal, capacity, part_device_limit(s), c.beside, &c.plan));
    if (c.plan)
        add(s, c);
    return ATOM_OK;
}

/* Seconds that a way takes at least: nothing repeated, everything else hidden. */
static double least_seconds(const part_search_state *s, const part_setting *setting)
{
    const part_device *d = &s->profile->device;
    part_range all = part_range_make(s->model, 0, (int32_t)s->g->n_nodes);
    double compute =
        (double)(part_range_least(s->model, setting, &all).turn - all.ortho_ps) * 1e-12;
    double kept = (double)all.kept_bytes * setting->micro_batches;
    if (setting->keep != PART_KEEP_HOST || s->device_bytes == 0)
        return compute;
    /* What fits the device need not go to the host. */
    kept = kept > (double)s->device_bytes ? kept - (double)s->device_bytes : 0;
    double link = kept / fmin(d->d2h_bytes_per_second, d->h2d_bytes_per_second);
    return link > compute ? link : compute;
}

static double best_seconds(const part_search_state *s)
{
    double best = INFINITY;
    for (uint32_t i = 0; i < s->n_candidates; i++)
        if (s->candidates[i].plan)
            best = fmin(best, part_plan_seconds(s->candidates[i].plan));
    return best;
}

/* Is the way's best plan, as far as cuts go, far behind what there is already? */
ATOM_MUST static atom_status too_slow(part_search_state *s, const part_setting *setting, bool *slow)
{
    part_cuts cuts = {0};
    part_setting priced = *setting;
    uint64_t *states = &s->stats.states;
    atom_status st = part_open_table(s);
    priced.cut_price = part_noise_price(s, setting);
    if (st == ATOM_OK)
        st = part_dp(s->table, &priced, PART_GOAL_TIME, part_device_limit(s), true, &cuts, states);
    *slow = !cuts.n || (double)cuts.score.key * 1e-12 > HOPELESS * best_seconds(s);
    part_cuts_close(&cuts);
    return st;
}

/* An evaluation has nothing to keep but parameters, so with the same cuts more memory is never slower. The
 * memory that cuts are made for is therefore the same in front of any limit: fourth roots of 2. */
ATOM_MUST static atom_status add_forward(part_search_state *s, const part_setting *setting)
{
    static const double roots[] = {1, 1.189207, 1.414214, 1.681793};
    const uint64_t limit = part_device_limit(s);
    bool hidden;
    ATOM_TRY(add_one(s, setting, PART_GOAL_TIME, limit, &hidden));
    for (int i = 4 * 61; s->device_bytes && i-- > 0;) {
        uint64_t capacity = (uint64_t)(roots[i % 4] * (double)((uint64_t)1 << i / 4));
        if (capacity < s->cuts_bytes && capacity < limit && capacity > limit / 16)
            ATOM_TRY(add_one(s, setting, PART_GOAL_TIME, capacity, &hidden));
    }
    return ATOM_OK;
}

/* Cuts for parts of the memory: what they leave keeps activations and parameters. Whatever there is from
 * same_bytes on makes the same cuts as all of it. */
ATOM_MUST static atom_status add_parts(part_search_state *s, const part_setting *setting,
                                       const uint32_t *parts, uint32_t n, uint64_t same_bytes)
{
    enum { ALL = 32 };
    bool hidden;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t capacity = part_device_limit(s) / ALL * parts[i];
        if (capacity >= same_bytes)
            continue;
        ATOM_TRY(add_one(s, setting, PART_GOAL_TIME, capacity, &hidden));
        same_bytes = s->cuts_bytes;
    }
    return ATOM_OK;
}

/* The same for parts in between. A few of all candidates are judged, so none of these may take the place of another
 * that is estimated to be about as quick. */
ATOM_MUST static atom_status add_fine(part_search_state *s, const part_setting *setting,
                                      const uint32_t *parts, uint32_t n, uint64_t same_bytes)
{
    static const double CLEARLY = 0.995;
    const uint32_t had = s->n_candidates;
    const double best = best_seconds(s);
    ATOM_TRY(add_parts(s, setting, parts, n, same_bytes));
    for (uint32_t i = s->n_candidates; i-- > had;) {
        part_candidate *c = &s->candidates[i];
        if (part_plan_seconds(c->plan) <= CLEARLY * best)
            continue;
        part_plan_close(&c->plan);
        *c = s->candidates[--s->n_candidates];
    }
    return ATOM_OK;
}

ATOM_MUST static atom_status add_way(part_search_state *s, const part_setting *setting)
{
    static const uint32_t most[] = {24, 16, 12, 8, 4};
    static const uint32_t rest[] = {30, 28, 26, 22, 20, 18, 14};
    bool dear = false, hidden = false;
    if (least_seconds(s, setting) >= best_seconds(s))
        return ATOM_OK;
    if (setting->keep == PART_KEEP_HOST) {
        ATOM_TRY(too_slow(s, setting, &dear));
        if (dear)
            return ATOM_OK;
    }
    if (setting->forward)
        return add_forward(s, setting);
    ATOM_TRY(add_one(s, setting, PART_GOAL_TIME, part_device_limit(s), &hidden));
    const bool squeezed = s->squeezed;
    const uint64_t same_bytes = s->cuts_bytes;
    if (!hidden)
        ATOM_TRY(add_one(s, setting, PART_GOAL_HIDDEN, part_device_limit(s), &hidden));
    if (!s->device_bytes)
        return ATOM_OK; /* without a limit there is nothing to divide */
    ATOM_TRY(add_parts(s, setting, most, sizeof most / sizeof *most, same_bytes));
    /* With the state on disk plans are ranked before what they leave holds blocks of it: more of them would crowd out
     * those that leave much. */
    if (s->model->disk)
        return ATOM_OK;
    /* Of each region the largest pair decides, and all of these together were too much: what that leaves of
     * the parts in between is far from what there is room for. */
    return squeezed ? add_parts(s, setting, rest, sizeof rest / sizeof *rest, UINT64_MAX)
                    : add_fine(s, setting, rest, sizeof rest / sizeof *rest, same_bytes);
}

static void begin(part_search_state *s)
{
    part_candidates_clear(s);
    s->device_need_bytes = s->host_need_bytes = s->host_alone_bytes = 0;
    s->quick = true;
}

atom_status part_candidates_make(part_search_state *s)
{
    begin(s);
    ATOM_TRY(add_single(s));
    ATOM_TRY(add_updating(s));
    for (int i = 0; i < PART_WAYS && !s->in_place; i++) {
        static const int order[PART_WAYS] = {0, 2, 1, 3}; /* stashing activations comes last */
        part_setting setting;
        if (!part_way_setting(s, order[i], &setting))
            continue;
        ATOM_TRY(add_way(s, &setting));
    }
    return ATOM_OK;
}

part_candidate *part_candidates_take(part_search_state *s, bool plain)
{
    part_candidate *best = NULL;
    for (uint32_t i = 0; i < s->n_candidates; i++) {
        part_candidate *c = &s->candidates[i];
        if (c->taken || !c->plan || (plain && c->beside > 0))
            continue;
        if (!best || part_plan_seconds(c->plan) < part_plan_seconds(best->plan))
            best = c;
    }
    if (best)
        best->taken = true;
    return best;
}

/* c->plan becomes one with exact cuts, if that is better or there is none. */
ATOM_MUST static atom_status refine(part_search_state *s, part_candidate *c, uint64_t limit)
{
    part_plan *exact = NULL;
    s->quick = s->hasty || s->stats.states > PART_STATES_ENOUGH;
    if (s->quick && c->plan)
        return ATOM_OK;
    ATOM_TRY(part_make_plan(s, &c->setting, c->goal, c->capacity_bytes, limit, c->beside, &exact));
    if (!exact || (c->plan && part_plan_seconds(c->plan) < part_plan_seconds(exact))) {
        part_plan_close(&exact);
        return ATOM_OK;
    }
    part_plan_close(&c->plan);
    c->plan = exact;
    return ATOM_OK;
}

atom_status part_candidate_refine(part_search_state *s, part_candidate *c)
{
    return c->capacity_bytes && !s->hasty ? refine(s, c, part_device_limit(s)) : ATOM_OK;
}

atom_status part_candidate_again(part_search_state *s, part_candidate *c, uint64_t bias)
{
    part_plan_close(&c->plan);
    if (c->capacity_bytes == 0 || bias >= part_device_limit(s))
        return ATOM_OK;
    const uint64_t limit = part_device_limit(s) - bias;
    ATOM_TRY(refine(s, c, limit));
    if (c->plan || c->beside <= 0)
        return ATOM_OK;
    /* What these cuts leave of it is too little to hold nodes in; smaller ones leave more. */
    const uint64_t had = c->capacity_bytes < limit ? c->capacity_bytes : limit;
    c->capacity_bytes = had - had / 16;
    s->quick = true;
    ATOM_TRY(
        part_make_plan(s, &c->setting, c->goal, c->capacity_bytes, limit, c->beside, &c->plan));
    return refine(s, c, limit);
}

void part_candidates_clear(part_search_state *s)
{
    for (uint32_t i = 0; i < s->n_candidates; i++)
        part_plan_close(&s->candidates[i].plan);
    memset(s->candidates, 0, sizeof s->candidates);
    s->n_candidates = 0;
}

atom_status part_quick_seconds(part_search_state *s, bool exact, double *seconds)
{
    static const uint32_t parts[] = {20, 12};
    atom_status st = ATOM_OK;
    begin(s);
    ATOM_TRY_CLEAN(add_single(s));
    ATOM_TRY_CLEAN(add_updating(s));
    for (int way = 0; way < PART_WAYS; way++) {
        part_setting setting;
        bool hidden;
        if (!part_way_setting(s, way, &setting) || least_seconds(s, &setting) >= best_seconds(s))
            continue;
        bool stashes = setting.keep == PART_KEEP_HOST;
        if (stashes && s->request->recompute < 0 && s->n_candidates)
            continue; /* dear to try, and mostly slower */
        ATOM_TRY_CLEAN(add_one(s, &setting, PART_GOAL_TIME, part_device_limit(s), &hidden));
        /* What keeps activations wants some of the memory for them. */
        if (!stashes && s->request->recompute < 0 && s->device_bytes && !s->squeezed)
            ATOM_TRY_CLEAN(
                add_parts(s, &setting, parts, sizeof parts / sizeof *parts, s->cuts_bytes));
    }
    *seconds = s->n_candidates ? best_seconds(s) : 0;
    part_candidate *best = exact ? part_candidates_take(s, false) : NULL;
    if (best && !part_dear(s, best->plan)) {
        part_verdict v;
        ATOM_TRY_CLEAN(part_judge(s, best->plan, &v));
        part_plan_note(s, best->plan, &v);
        const bool fits = v.device_peak_bytes <= part_device_limit(s) && part_host_holds(s, &v);
        *seconds = fits ? part_plan_seconds(best->plan) : 0; /* the model saw too little */
    }
cleanup:
    part_candidates_clear(s);
    return st;
}
