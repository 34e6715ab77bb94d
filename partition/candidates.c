/*
 * Owns the list of candidates. One idea: cuts are exact for the memory they are given, so the outer
 * choices reduce to how much memory that is; what the cuts leave keeps activations (less to repeat)
 * and then parameters (less to load) on the device. Refuses to judge: the estimate ranks, search.c
 * decides.
 */
#include "partition/candidates.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

enum { CUT_ROUNDS_MAX = 10 };

/* A cut must save this part of the compute time, or it is not made: less than predictions are good
 * for. */
static const double NOISE = 1.0 / 1024;

/* Stashing activations is given up where it is slower than the best by this factor, given all
 * memory. */
static const double HOPELESS = 1.1;

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

/* Fills what is left: activations first and then parameters, or the other way round if that is
 * faster. */
ATOM_MUST static atom_status fill(const part_search_state *s, part_plan **plan, uint64_t limit)
{
    part_plan *other = NULL;
    part_verdict first, second;
    atom_status st = part_plan_copy(*plan, &other);
    if (st != ATOM_OK)
        return st;
    fill_resident(s, other, limit);
    for (int p = 0; p < 2; p++) {
        part_plan *one = p ? other : *plan;
        if (s->request->recompute != 1)
            fill_kept(s, one, limit);
        if (p == 0)
            fill_resident(s, one, limit);
        note_estimate(s, one, p ? &second : &first);
    }
    if (second.step_seconds < 0.999 * first.step_seconds) {
        part_plan *swapped = *plan;
        *plan = other;
        other = swapped;
    }
    part_plan_close(&other);
    return ATOM_OK;
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

/* Compute alone, and how many KiB an average cut crosses: what cuts are priced by. */
static int64_t noise_price(const part_search_state *s, const part_setting *setting)
{
    const part_model *m = s->model;
    uint64_t kib = 1, cuts = m->n_points > 2 ? m->n_points - 2 : 1;
    double compute_ps = 0;
    for (uint32_t p = 1; p + 1 < m->n_points; p++)
        kib += m->boundary_bytes[m->points[p]] / 1024;
    for (uint32_t i = 0; i < s->g->n_nodes; i++)
        compute_ps += (s->profile->nodes[i].fwd_seconds + s->profile->nodes[i].bwd_seconds) * 1e12;
    double price = compute_ps * setting->micro_batches * NOISE / ((double)kib / (double)cuts);
    return price < 1 ? 1 : (int64_t)price;
}

/* One partition and its estimate; *plan is NULL if no partition satisfies the predicate. */
ATOM_MUST static atom_status cut_once(part_search_state *s, const part_setting *setting,
                                      part_goal goal, uint64_t capacity, part_plan **plan,
                                      part_verdict *v)
{
    part_cuts cuts = {0};
    *plan = NULL;
    atom_status st = part_dp(s->table, setting, goal, capacity, &cuts, &s->stats.states);
    if (st == ATOM_OK && cuts.n) {
        st = part_plan_from_cuts(s, setting, cuts.ends, cuts.n, plan);
        if (st == ATOM_OK)
            note_estimate(s, *plan, v);
    }
    part_cuts_close(&cuts);
    return st;
}

/* Remembers by how little a plan did not fit, for the refusal. */
static void note_need(part_search_state *s, const part_verdict *v, uint64_t limit)
{
    uint64_t device = v->device_peak_bytes, host = v->host_peak_bytes;
    if (device > limit && (!s->device_need_bytes || device < s->device_need_bytes))
        s->device_need_bytes = device;
    if (!host_holds(s, v) && (!s->host_need_bytes || host < s->host_need_bytes))
        s->host_need_bytes = host;
}

/*
 * Cuts for at most `capacity`, in a plan that fits `limit` and the host. The predicate looks at
 * pairs; what it does not see is corrected from outside: where the sum of all boundaries is too
 * much, cuts are made dearer until it is not, then cheaper again as far as possible; anything else
 * is taken off the capacity.
 */
ATOM_MUST static atom_status make_cuts(part_search_state *s, part_setting setting, part_goal goal,
                                       uint64_t capacity, uint64_t limit, part_plan **out)
{
    atom_status st = ATOM_OK;
    part_plan *plan = NULL, *best = NULL;
    part_verdict v;
    int64_t too_cheap = 0, dear_enough = INT64_MAX;
    setting.cut_price = noise_price(s, &setting);
    const int64_t highest = setting.cut_price << 14;
    for (int round = 0; round < CUT_ROUNDS_MAX; round++) {
        ATOM_TRY(cut_once(s, &setting, goal, capacity, &plan, &v));
        if (!plan)
            break;
        if (v.device_peak_bytes <= limit && host_holds(s, &v)) {
            part_plan_close(&best);
            best = plan;
            plan = NULL;
            dear_enough = setting.cut_price;
            if (!too_cheap || dear_enough / 3 < too_cheap)
                break;
            setting.cut_price = (int64_t)sqrt((double)too_cheap * (double)dear_enough);
            continue;
        }
        note_need(s, &v, limit);
        part_plan_close(&plan);
        if (!host_holds(s, &v) || setting.boundaries == PART_ON_DEVICE) {
            too_cheap = setting.cut_price;
            if (too_cheap >= highest || (best && dear_enough / 3 < too_cheap))
                break;
            setting.cut_price =
                best ? (int64_t)sqrt((double)too_cheap * (double)dear_enough) : highest;
            continue;
        }
        uint64_t over = v.device_peak_bytes - limit;
        if (over >= capacity)
            break;
        capacity -= over;
    }
    *out = best;
    return ATOM_OK;
fail:
    part_plan_close(&plan);
    part_plan_close(&best);
    return st;
}

/* Cuts for at most `capacity`; what they leave of `limit` is filled. *out is NULL if there is none.
 */
ATOM_MUST static atom_status make_plan(part_search_state *s, const part_setting *setting,
                                       part_goal goal, uint64_t capacity, uint64_t limit,
                                       part_plan **out)
{
    *out = NULL;
    atom_status st = open_table(s);
    if (st == ATOM_OK)
        st = make_cuts(s, *setting, goal, capacity < limit ? capacity : limit, limit, out);
    if (st != ATOM_OK || !*out)
        return st;
    st = fill(s, out, limit);
    if (st != ATOM_OK || repeats(s, *out))
        part_plan_close(out);
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
    note_need(s, &v, device_limit(s));
    part_plan_close(&c.plan);
    return ATOM_OK;
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
    atom_status st = make_plan(s, setting, goal, capacity, device_limit(s), &c.plan);
    if (st != ATOM_OK || !c.plan)
        return st;
    *hidden = hides(s, setting, c.plan);
    add(s, c);
    return ATOM_OK;
}

/* Seconds that a way takes at least: nothing repeated, everything else hidden. */
static double least_seconds(const part_search_state *s, const part_setting *setting)
{
    const part_device *d = &s->profile->device;
    part_range all = part_range_make(s->model, 0, (int32_t)s->g->n_nodes);
    double compute = (double)(all.again_ps + all.bwd_ps) * 1e-12 * setting->micro_batches;
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
            best = fmin(best, s->candidates[i].plan->predicted_step_seconds);
    return best;
}

/* Is the way's best plan, as far as cuts go, far behind what there is already? */
ATOM_MUST static atom_status too_slow(part_search_state *s, const part_setting *setting, bool *slow)
{
    part_cuts cuts = {0};
    part_setting priced = *setting;
    uint64_t *states = &s->stats.states;
    atom_status st = open_table(s);
    priced.cut_price = noise_price(s, setting);
    if (st == ATOM_OK)
        st = part_dp(s->table, &priced, PART_GOAL_TIME, device_limit(s), &cuts, states);
    *slow = !cuts.n || (double)cuts.score.key * 1e-12 > HOPELESS * best_seconds(s);
    part_cuts_close(&cuts);
    return st;
}

ATOM_MUST static atom_status add_way(part_search_state *s, const part_setting *setting)
{
    static const uint32_t eighths[] = {8, 6, 4, 3, 2, 1};
    bool dear = false;
    if (least_seconds(s, setting) >= best_seconds(s))
        return ATOM_OK;
    if (setting->keep == PART_KEEP_HOST) {
        atom_status st = too_slow(s, setting, &dear);
        if (st != ATOM_OK || dear)
            return st;
    }
    for (size_t f = 0; f < sizeof eighths / sizeof *eighths; f++) {
        uint64_t capacity = device_limit(s) / 8 * eighths[f];
        bool hidden = false;
        atom_status st = add_one(s, setting, PART_GOAL_TIME, capacity, &hidden);
        if (st == ATOM_OK && f == 0 && !hidden)
            st = add_one(s, setting, PART_GOAL_HIDDEN, capacity, &hidden);
        if (st != ATOM_OK)
            return st;
        if (!s->device_bytes)
            break; /* without a limit there is nothing to divide */
    }
    return ATOM_OK;
}

atom_status part_candidates_make(part_search_state *s)
{
    atom_status st = ATOM_OK;
    part_candidates_clear(s);
    s->device_need_bytes = s->host_need_bytes = 0;
    ATOM_TRY(add_single(s));
    for (int i = 0; i < PART_WAYS && !s->in_place; i++) {
        static const int order[PART_WAYS] = {0, 2, 1, 3}; /* stashing activations comes last */
        part_setting setting;
        if (!part_way_setting(s, order[i], &setting))
            continue;
        ATOM_TRY(add_way(s, &setting));
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

void part_candidates_note_need(part_search_state *s, const part_verdict *v)
{
    note_need(s, v, device_limit(s));
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

atom_status part_way_micro_batches(part_search_state *s, int way, uint32_t *need, bool *whole)
{
    part_setting setting;
    part_cuts cuts = {0};
    part_plan *plan = NULL;
    *need = 0;
    *whole = false;
    if (s->in_place || !part_way_setting(s, way, &setting))
        return ATOM_OK;
    atom_status st = open_table(s);
    if (st == ATOM_OK)
        st = part_dp(s->table, &setting, PART_GOAL_MICRO_BATCHES, device_limit(s), &cuts,
                     &s->stats.states);
    *need = st == ATOM_OK && cuts.n ? (uint32_t)cuts.score.key : 0;
    if (*need && *need <= s->micro_batches) {
        /* The pairs agree; does this plan as a whole, or another one? */
        part_verdict v;
        st = part_plan_from_cuts(s, &setting, cuts.ends, cuts.n, &plan);
        if (st == ATOM_OK)
            note_estimate(s, plan, &v);
        if (st == ATOM_OK && (v.device_peak_bytes > device_limit(s) || !host_holds(s, &v))) {
            part_plan_close(&plan);
            st = make_plan(s, &setting, PART_GOAL_HIDDEN, device_limit(s), device_limit(s), &plan);
        }
        *whole = plan != NULL;
        part_plan_close(&plan);
    }
    part_cuts_close(&cuts);
    return st;
}

atom_status part_nearly_hides(part_search_state *s, bool *hides)
{
    atom_status st = open_table(s);
    *hides = false;
    for (int way = 0; way < PART_WAYS && st == ATOM_OK && !*hides; way += 2) {
        part_setting setting;
        part_plan *plan = NULL;
        part_way_setting(s, way, &setting);
        uint64_t limit = device_limit(s);
        st = make_cuts(s, setting, PART_GOAL_TIME, limit, limit, &plan);
        if (st == ATOM_OK && plan)
            *hides = plan->predicted_compute_seconds >= 0.98 * plan->predicted_step_seconds;
        part_plan_close(&plan);
    }
    return st;
}
