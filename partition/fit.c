/*
 * Owns the making of whole plans that fit. One idea: cuts are exact for pairs of ranges; what a
 * pair does not see (the sum of all boundaries, what is left of the memory) is corrected from
 * outside, by a price on cuts, by less room, and by keeping more on the device. Refuses to choose
 * between plans.
 */
#include "partition/candidates.h"

#include "atom/base/mem.h"

#include <math.h>

enum { CUT_ROUNDS_MAX = 10 };

/* A cut must save this part of the compute time, or it is not made: less than predictions are good
 * for. */
static const double NOISE = 1.0 / 1024;

/* --- plans from cuts --- */

atom_status part_plan_from_cuts(const part_search_state *s, const part_setting *setting,
                                const int32_t *ends, uint32_t n, part_plan **out)
{
    part_plan *plan = NULL;
    ATOM_TRY(part_plan_open(s->g, s->profile, n, &plan));
    plan->micro_batches = setting->micro_batches;
    plan->clip = setting->clip;
    plan->boundaries = setting->boundaries;
    plan->in_place = s->in_place;
    plan->ortho_on_device = s->model->ortho;
    plan->muon_seconds = s->model->ortho ? s->model->ortho_seconds : s->model->muon_seconds;
    plan->disk = s->model->disk;
    plan->over_boundaries = s->model->over;
    plan->ring_blocks = s->model->disk ? s->model->ring_blocks : 0;
    plan->block_elements = s->model->disk ? s->model->block_elements : 0;
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

void part_plan_note(const part_search_state *s, part_plan *plan, const part_verdict *v)
{
    plan->predicted_step_seconds = v->step_seconds;
    plan->predicted_ahead_seconds = s->request->ahead ? v->ahead_seconds : 0;
    plan->predicted_compute_seconds = v->compute_seconds;
    plan->device_peak_bytes = v->device_peak_bytes;
    plan->host_peak_bytes = v->host_peak_bytes;
    plan->bound = v->bound;
}

void part_plan_estimate(const part_search_state *s, part_plan *plan, part_verdict *v)
{
    part_estimate(s->model, plan, v);
    part_plan_note(s, plan, v);
}

static atom_status ask(part_search_state *s, part_evaluate_fn exact, part_plan *plan,
                       part_verdict *v)
{
    part_verdict modelled;
    part_estimate(s->model, plan, &modelled);
    *v = modelled;
    plan->simulated = false;
    if (!exact)
        return ATOM_OK;
    ATOM_TRY(exact(s->request->evaluate_ctx, plan, v));
    plan->simulated = v->step_seconds > 0;
    if (plan->simulated)
        return ATOM_OK;
    modelled.device_peak_bytes = v->device_peak_bytes;
    modelled.host_peak_bytes = v->host_peak_bytes;
    *v = modelled;
    return ATOM_OK;
}

atom_status part_judge(part_search_state *s, part_plan *plan, part_verdict *v)
{
    s->stats.evaluated += s->request->evaluate != NULL;
    return ask(s, s->request->evaluate, plan, v);
}

atom_status part_weigh(part_search_state *s, part_plan *plan, part_verdict *v)
{
    return ask(s, s->request->weigh ? s->request->weigh : s->request->evaluate, plan, v);
}

double part_least_seconds(const part_search_state *s, const part_plan *plan)
{
    const part_device *d = &s->profile->device;
    part_range all = part_range_make(s->model, 0, (int32_t)s->g->n_nodes);
    const part_setting setting = {.micro_batches = plan->micro_batches};
    double compute = (double)part_range_least(s->model, &setting, &all).turn * 1e-12;
    double elements = (double)(all.own_elements - all.muon_elements), own = (double)all.own_bytes;
    if (s->in_place || plan->update_on_device)
        return compute;
    double update = elements / d->adamw_params_per_second + (double)all.muon_ps * 1e-12;
    double in = own / d->h2d_bytes_per_second, out = own / d->d2h_bytes_per_second;
    return fmax(fmax(compute, update), fmax(in, out));
}

atom_status part_open_table(part_search_state *s)
{
    return s->table ? ATOM_OK : part_table_open(s->model, part_device_limit(s), &s->table);
}

/* --- what is left of the device's memory --- */

/* Keeps activations on the device, latest visits first: theirs are kept for the shortest time. */
static void fill_kept(const part_search_state *s, part_plan *plan, uint64_t limit)
{
    part_verdict v;
    part_plan_estimate(s, plan, &v);
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
    part_plan_estimate(s, plan, &before);
    uint64_t left = before.device_peak_bytes < limit ? limit - before.device_peak_bytes : 0;
    bool any = false;
    for (uint32_t k = plan->n_sub_models - 1; k-- > 0;) {
        if (plan->sub_models[k].param_bytes > left)
            continue;
        left -= plan->sub_models[k].param_bytes;
        plan->sub_models[k].resident = any = true;
    }
    part_plan_estimate(s, plan, &after);
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
    ATOM_TRY(part_plan_copy(*plan, &other));
    fill_resident(s, other, limit);
    for (int p = 0; p < 2; p++) {
        part_plan *one = p ? other : *plan;
        if (s->request->recompute != 1 && graph_trains(s->g))
            fill_kept(s, one, limit);
        if (p == 0)
            fill_resident(s, one, limit);
        part_plan_estimate(s, one, p ? &second : &first);
    }
    if (second.step_seconds < 0.999 * first.step_seconds) {
        part_plan *swapped = *plan;
        *plan = other;
        other = swapped;
    }
    part_plan_close(&other);
    return ATOM_OK;
}

/*
 * What is left holds single nodes instead, on the device and then also on the host, if that is
 * faster by more than a hundredth: a plan that keeps all or nothing is simpler. bare: the plan before
 * it was filled.
 */
ATOM_MUST static atom_status fill_holds(const part_search_state *s, const part_plan *bare,
                                        part_plan **plan, uint64_t limit, double beside)
{
    static const double WORTH = 0.99;
    part_plan *other = NULL;
    part_verdict best, v;
    part_plan_estimate(s, *plan, &best);
    for (int way = 0; way < 4; way++) {
        bool send = way & 1, filled = way & 2;
        double worth = (*plan)->holds ? 1 : WORTH;
        ATOM_TRY(part_plan_copy(filled ? *plan : bare, &other));
        if (filled && other->holds) {
            part_plan_close(&other);
            break;
        }
        atom_status st = part_hold_some(s, other, limit, send ? beside : 0);
        if (st == ATOM_OK && !filled)
            fill_resident(s, other, limit);
        part_plan_estimate(s, other, &v);
        if (st == ATOM_OK && v.step_seconds < worth * best.step_seconds &&
            v.device_peak_bytes <= limit && part_host_holds(s, &v)) {
            part_plan *swapped = *plan;
            *plan = other;
            other = swapped;
            best = v;
        }
        part_plan_close(&other);
        ATOM_TRY(st);
    }
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

/* --- cuts --- */

/* Compute alone, and how many KiB an average cut crosses: what cuts are priced by. */
int64_t part_noise_price(const part_search_state *s, const part_setting *setting)
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

/* Far above what any cut could save, and such that the sum over all cuts stays a number. */
static int64_t dearest(const part_search_state *s, int64_t price)
{
    const part_model *m = s->model;
    int64_t kib = 1, top;
    for (uint32_t p = 1; p + 1 < m->n_points; p++)
        kib += (int64_t)(m->boundary_bytes[m->points[p]] / 1024);
    top = ((int64_t)1 << 61) / kib;
    return price > top >> 14 ? top : price << 14;
}

void part_solved_close(part_search_state *s)
{
    for (uint32_t i = 0; i < PART_SOLVED_MAX; i++)
        part_cuts_close(&s->solved[i].cuts);
    s->n_solved = 0;
}

/* What a pair takes of the device, and what crosses the cuts, is the same for all numbers of micro-batches where
 * boundaries are on the host. */
static bool same_problem(const part_solved *had, const part_setting *b, part_goal goal)
{
    const part_setting *a = &had->setting;
    const bool timed = goal == PART_GOAL_TIME || goal == PART_GOAL_HIDDEN;
    return had->goal == goal && a->keep == b->keep && a->boundaries == b->boundaries &&
           a->forward == b->forward && a->clip == b->clip && a->cut_price == b->cut_price &&
           (a->micro_batches == b->micro_batches || (!timed && b->boundaries == PART_ON_HOST));
}

atom_status part_solve(part_search_state *s, const part_setting *setting, part_goal goal,
                       uint64_t capacity, bool quick, const part_cuts **out)
{
    uint32_t kept = s->n_solved < PART_SOLVED_MAX ? s->n_solved : PART_SOLVED_MAX;
    for (uint32_t i = 0; i < kept; i++) {
        const part_solved *had = &s->solved[i];
        *out = &had->cuts;
        if (had->capacity_bytes == capacity && had->quick == quick &&
            same_problem(had, setting, goal))
            return ATOM_OK;
    }
    part_solved *next = &s->solved[s->n_solved++ % PART_SOLVED_MAX];
    part_cuts_close(&next->cuts);
    *next = (part_solved){
        .setting = *setting, .goal = goal, .quick = quick, .capacity_bytes = capacity};
    *out = &next->cuts;
    return part_dp(s->table, setting, goal, capacity, quick, &next->cuts, &s->stats.states);
}

/* One partition and its estimate; *plan is NULL if no partition satisfies the predicate. */
ATOM_MUST static atom_status cut_once(part_search_state *s, const part_setting *setting,
                                      part_goal goal, uint64_t capacity, part_plan **plan,
                                      part_verdict *v)
{
    const part_cuts *cuts;
    *plan = NULL;
    ATOM_TRY(part_solve(s, setting, goal, capacity, s->quick, &cuts));
    if (cuts->n == 0)
        return ATOM_OK;
    ATOM_TRY(part_plan_from_cuts(s, setting, cuts->ends, cuts->n, plan));
    part_plan_estimate(s, *plan, v);
    return ATOM_OK;
}

/* Remembers by how little a plan did not fit, for the refusal. */
void part_note_need(part_search_state *s, const part_verdict *v, uint64_t limit)
{
    uint64_t device = v->device_peak_bytes, host = v->host_peak_bytes;
    if (device > limit && (!s->device_need_bytes || device < s->device_need_bytes))
        s->device_need_bytes = device;
    if (!part_host_holds(s, v) && (!s->host_need_bytes || host < s->host_need_bytes))
        s->host_need_bytes = host;
    if (device <= limit && !part_host_holds(s, v) &&
        (!s->host_alone_bytes || host < s->host_alone_bytes))
        s->host_alone_bytes = host;
}

/* Bytes of the largest pair, with what is fixed. */
static uint64_t pairs_bytes(const part_search_state *s, const part_setting *setting,
                            const part_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k + 1 < plan->n_sub_models; k++) {
        const part_sub_model *a = &plan->sub_models[k], *b = a + 1;
        part_range cur = part_range_make(s->model, a->first_node, a->last_node);
        part_range next = part_range_make(s->model, b->first_node, b->last_node);
        bool last = k + 2 == plan->n_sub_models;
        most = part_larger(most, part_pair_bytes(setting, &cur, &next, last));
    }
    return most + part_fixed_bytes(s->model, setting);
}

/* The middle of what is enough and what is too much; false: they are close. */
static bool between(uint64_t enough, uint64_t too_much, uint64_t *middle)
{
    if (too_much <= enough + enough / 64)
        return false;
    *middle = enough + (too_much - enough) / 2;
    return true;
}

/*
 * Cuts for at most `capacity`, in a plan that fits `limit` and the host. The predicate looks at
 * pairs; what it does not see is corrected from outside: where the sum of all boundaries is too
 * much, cuts are made dearer until it is not, then cheaper again as far as possible; anything else
 * is taken off the capacity, and then given back as far as possible.
 */
atom_status part_make_cuts(part_search_state *s, part_setting setting, part_goal goal,
                           uint64_t capacity, uint64_t limit, part_plan **out)
{
    atom_status st = ATOM_OK;
    part_plan *plan = NULL, *best = NULL;
    part_verdict v;
    double seconds = INFINITY;
    uint64_t too_much = 0, enough = 0;
    int64_t too_cheap = 0, dear_enough = INT64_MAX;
    setting.cut_price = part_noise_price(s, &setting);
    const int64_t highest = dearest(s, setting.cut_price);
    s->cuts_bytes = 0;
    s->squeezed = false;
    for (int round = 0; round < CUT_ROUNDS_MAX; round++) {
        ATOM_TRY_CLEAN(cut_once(s, &setting, goal, capacity, &plan, &v));
        const uint64_t pairs = plan ? pairs_bytes(s, &setting, plan) : capacity;
        s->cuts_bytes = part_larger(s->cuts_bytes, pairs);
        if (!plan) { /* nothing fits at all: where it is not too much, it is too little */
            enough = capacity;
            if (too_much && between(enough, too_much, &capacity))
                continue;
            break;
        }
        if (v.device_peak_bytes <= limit && part_host_holds(s, &v)) {
            if (!too_much || v.step_seconds < seconds) {
                part_plan *worse = best;
                best = plan;
                plan = worse;
                seconds = v.step_seconds;
            }
            part_plan_close(&plan);
            enough = capacity;
            if (too_much && between(enough, too_much, &capacity))
                continue;
            if (too_much)
                break;
            dear_enough = setting.cut_price;
            if (!too_cheap || dear_enough / 3 < too_cheap)
                break;
            setting.cut_price = (int64_t)sqrt((double)too_cheap * (double)dear_enough);
            continue;
        }
        part_note_need(s, &v, limit);
        part_plan_close(&plan);
        const bool stay = setting.boundaries == PART_ON_DEVICE && !setting.forward;
        if (!part_host_holds(s, &v) || stay) {
            too_cheap = setting.cut_price;
            if (too_cheap >= highest || (best && dear_enough / 3 < too_cheap))
                break;
            setting.cut_price =
                best ? (int64_t)sqrt((double)too_cheap * (double)dear_enough) : highest;
            continue;
        }
        const uint64_t over = v.device_peak_bytes - limit;
        too_much = part_larger(capacity < pairs ? capacity : pairs, 1);
        s->cuts_bytes = UINT64_MAX;
        s->squeezed = true;
        if (enough ? !between(enough, too_much, &capacity) : over >= capacity)
            break;
        capacity -= enough ? 0 : over;
    }
    *out = best;
    return ATOM_OK;
cleanup:
    part_plan_close(&plan);
    part_plan_close(&best);
    return st;
}

/* Cuts for at most `capacity`; what they leave of `limit` is filled.
 * *out is NULL if there is none, and with `beside` > 0 if it would hold nothing. */
atom_status part_make_plan(part_search_state *s, const part_setting *setting, part_goal goal,
                           uint64_t capacity, uint64_t limit, double beside, part_plan **out)
{
    *out = NULL;
    atom_status st = part_open_table(s);
    if (st == ATOM_OK)
        st = part_make_cuts(s, *setting, goal, capacity < limit ? capacity : limit, limit, out);
    if (st != ATOM_OK || !*out)
        return st;
    part_plan *bare = NULL;
    if (beside > 0)
        st = part_plan_copy(*out, &bare);
    if (st == ATOM_OK)
        st = fill(s, out, limit);
    if (st == ATOM_OK && beside > 0)
        st = fill_holds(s, bare, out, limit, beside);
    part_plan_close(&bare);
    if (st != ATOM_OK || repeats(s, *out) || (beside > 0 && !(*out)->holds))
        part_plan_close(out);
    return st;
}
