/*
 * Owns the choice among plans for one number of micro-batches. One idea: the cuts come from exact dynamic programming; what
 * is decided around them (keep or repeat activations, where boundaries live, how much memory goes to sub-models and how
 * much to kept activations, where to stop swapping) is a short list of candidates, and the exact evaluation, where there is
 * one, has the last word. Where none of them fits, plans that need little are left. Refuses to explain a refusal.
 */
#include "partition/candidates.h"

#include <string.h>

enum { TRIES_MAX = 4, FINALISTS_MAX = 3 };

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
    if (left * PART_TIE < right)
        return true;
    if (right * PART_TIE < left)
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

atom_status part_hold_blocks(part_search_state *s, part_plan *plan)
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
    ATOM_TRY(part_hold_blocks(s, next->plan));
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
            part_plan_seconds(best->plan) <= PART_TIE * part_least_seconds(s, best->plan))
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
            part_plan_seconds(next->plan) * PART_TIE > part_plan_seconds(best.plan))
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

/* --- where hardly anything fits --- */

atom_status part_any_within(part_search_state *s, uint64_t device, uint64_t host, part_plan **out)
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
    for (int i = 0; i < PART_PROBES_MAX && !s->model->disk && !s->vain; i++) {
        const uint64_t peak = (*least)->device_peak_bytes;
        part_plan *next = NULL;
        if (peak <= s->device_bytes || (has && peak > has))
            break;
        st = part_any_within(s, peak - 1, s->host_bytes, &next);
        if (st != ATOM_OK || !next)
            break;
        part_plan_close(least);
        *least = next;
    }
    s->host_alone_bytes = alone;
    return st;
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

atom_status part_find_little(part_search_state *s, part_plan **least)
{
    part_verdict v;
    ATOM_TRY(part_least_plan(s, true, least, &v));
    if (*least)
        ATOM_TRY(lower_device(s, least));
    return *least && (*least)->device_peak_bytes <= part_device_limit(s) ? judge_little(s, least)
                                                                         : ATOM_OK;
}

atom_status part_choose_or_little(part_search_state *s, part_plan **out)
{
    part_plan *plan = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_choose(s, out));
    if (*out || s->in_place)
        return ATOM_OK;
    ATOM_TRY_CLEAN(part_find_little(s, &plan));
    if (plan && plan->device_peak_bytes <= part_device_limit(s)) {
        ATOM_TRY_CLEAN(part_hold_blocks(s, plan));
        *out = plan;
        return ATOM_OK;
    }
cleanup:
    part_plan_close(&plan);
    return st;
}
