/*
 * Owns the choice of nodes that sub-models hold, where not everything can be kept. One idea: groups
 * of nodes (hold.c) have a size and a time that they save, so what to send through the link beside a
 * visit, and what to leave on the device, are knapsacks, solved exactly one after the other. Refuses
 * to touch cuts.
 *
 * Source: Korthikanti et al. (2022), 5, for what is worth keeping; Jain et al., Checkmate (2020), for
 * solving instead of picking; docs/design/engine.md#the-search.
 */
#include "partition/candidates.h"

#include "atom/base/mem.h"
#include "partition/knapsack.h"

enum { KINDS_MAX = 64 };

/* A group that may be held. */
typedef struct group {
    int32_t root;
    uint32_t k; /* its sub-model */
    uint64_t bytes;
    int64_t ps; /* both of one micro-batch */
    part_hold hold;
} group;

typedef struct chooser {
    const part_search_state *s;
    part_plan *plan;
    double beside; /* how much of a forward visit may be filled with what goes out beside it */
    group *groups; /* by sub-model, first to last */
    uint32_t n_groups;
    part_thing things[KINDS_MAX];
    uint32_t n_things;
} chooser;

/* --- groups --- */

ATOM_MUST static atom_status find_groups(chooser *c)
{
    const part_model *m = c->s->model;
    c->groups = atom_alloc(c->s->g->n_nodes, sizeof *c->groups);
    if (!c->groups)
        return atom_fail_memory("groups of nodes", c->s->g->n_nodes * sizeof *c->groups);
    for (uint32_t k = 0; k + 1 < c->plan->n_sub_models; k++) {
        const part_sub_model *sub = &c->plan->sub_models[k];
        if (sub->keep != PART_RECOMPUTE)
            continue;
        part_groups(m, sub->first_node, sub->last_node);
        for (int32_t i = sub->first_node; i < sub->last_node; i++) {
            const part_mark *mark = &m->marks[i];
            if (mark->group == i && mark->bytes && mark->ps > 0)
                c->groups[c->n_groups++] =
                    (group){.root = i, .k = k, .bytes = mark->bytes, .ps = mark->ps};
        }
    }
    return ATOM_OK;
}

/* Makes a thing of each kind of group in [first, last) that is not held yet. h2d_ps: what bringing
 * back a byte takes of the second limit; without it where that is negative. */
static void sort_out(chooser *c, uint32_t first, uint32_t last, double h2d_ps)
{
    const int64_t C = c->plan->micro_batches;
    c->n_things = 0;
    for (uint32_t i = first; i < last; i++) {
        group *g = &c->groups[i];
        part_thing t = {.cost = {(int64_t)g->bytes * C}, .gain = g->ps * C, .n = 1};
        uint32_t kind = 0;
        if (g->hold != PART_AGAIN)
            continue;
        if (h2d_ps >= 0)
            t.cost[1] = (int64_t)(h2d_ps * (double)(g->bytes * (uint64_t)C)) + t.gain;
        while (kind < c->n_things &&
               (c->things[kind].cost[0] != t.cost[0] || c->things[kind].gain != t.gain))
            kind++;
        if (kind == KINDS_MAX)
            continue; /* a model of so many kinds of groups holds the first ones */
        if (kind == c->n_things)
            c->things[c->n_things++] = t;
        else
            c->things[kind].n++;
    }
    part_sack_sort(c->things, c->n_things);
}

/* Holds what was taken, from the last group to the first: theirs are held for the shortest time. */
static void hold(chooser *c, uint32_t first, uint32_t last, part_hold how)
{
    const int64_t C = c->plan->micro_batches;
    for (uint32_t i = last; i-- > first;) {
        group *g = &c->groups[i];
        for (uint32_t t = 0; t < c->n_things && g->hold == PART_AGAIN; t++) {
            part_thing *thing = &c->things[t];
            if (thing->taken == 0 || thing->cost[0] != (int64_t)g->bytes * C ||
                thing->gain != g->ps * C)
                continue;
            thing->taken--;
            g->hold = how;
        }
    }
}

/* Writes the choice into the plan. */
static void write_down(chooser *c)
{
    const part_model *m = c->s->model;
    part_plan *plan = c->plan;
    for (uint32_t at = 0; at < c->n_groups;) {
        const uint32_t k = c->groups[at].k;
        part_sub_model *sub = &plan->sub_models[k];
        bool any = false;
        part_groups(m, sub->first_node, sub->last_node);
        for (int32_t i = sub->first_node; i < sub->last_node; i++)
            plan->holds[i] = PART_AGAIN;
        for (; at < c->n_groups && c->groups[at].k == k; at++) {
            any |= c->groups[at].hold != PART_AGAIN;
            m->marks[c->groups[at].root].hold = (uint8_t)c->groups[at].hold;
        }
        for (int32_t i = sub->first_node; i < sub->last_node; i++)
            if (m->marks[i].any_kept && m->marks[i].group >= 0)
                plan->holds[i] = m->marks[part_group_root(m, i)].hold;
        sub->keep = any ? PART_KEEP_SOME : PART_RECOMPUTE;
    }
}

/* --- what there is room for --- */

static part_range range_of(const chooser *c, uint32_t k)
{
    const part_sub_model *sub = &c->plan->sub_models[k];
    return part_range_make(c->s->model, sub->first_node, sub->last_node);
}

static part_times times_of(const chooser *c, uint32_t k)
{
    const part_setting setting = {.micro_batches = c->plan->micro_batches,
                                  .keep = c->plan->sub_models[k].keep,
                                  .boundaries = c->plan->boundaries,
                                  .clip = c->plan->clip};
    part_range r = range_of(c, k);
    return part_range_times(c->s->model, &setting, &r);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* How long the link is idle while sub-model k computes: to the host in forward, to the device in
 * backward. */
static void idle_link(const chooser *c, uint32_t k, int64_t *out_ps, int64_t *back_ps)
{
    const part_times t = times_of(c, k), next = times_of(c, k + 1);
    const bool resident = k > 0 && c->plan->sub_models[k - 1].resident;
    const int64_t load = k > 0 && !resident ? times_of(c, k - 1).load_both : 0;
    const int64_t update = next.update;
    int64_t forward = larger(t.fwd, next.load + t.x_in), leaving = next.spill + t.x_out;
    if (c->plan->clip)
        forward = larger(forward, update);
    else
        leaving = larger(leaving, update);
    *out_ps = (int64_t)((double)forward * c->beside) - t.y_out;
    *back_ps = larger(t.bwd, leaving) - load - t.back_in;
}

/* Sends to the host what the link has time for beside each visit. left: bytes of the device. */
static void choose_sent(chooser *c, uint64_t left)
{
    const part_device *d = &c->s->profile->device;
    const double back_ps = 1e12 / c->s->model->in_both;
    const uint64_t C = c->plan->micro_batches;
    part_verdict v;
    part_estimate(c->s->model, c->plan, &v);
    uint64_t host = c->s->host_bytes ? c->s->host_bytes : UINT64_MAX / 2;
    /* snapshots want as much as they take without a limit, of a half that is left to them
     * (part_spare_bytes) */
    uint64_t spare = c->s->model->trained_elements * atom_state_bytes(c->plan->moments) / 4;
    host = host > v.host_peak_bytes + spare ? host - v.host_peak_bytes - spare : 0;
    for (uint32_t last = c->n_groups, first; last > 0; last = first) {
        const uint32_t k = c->groups[last - 1].k;
        int64_t out_ps, limit[PART_SACK_LIMITS];
        for (first = last; first > 0 && c->groups[first - 1].k == k; first--) {
        }
        idle_link(c, k, &out_ps, &limit[1]);
        double beside = (double)out_ps * 1e-12 * d->d2h_bytes_per_second;
        /* two places of staging take the place of one that is repeated */
        uint64_t most = left < host / C ? left * C : host;
        limit[0] = beside < (double)most ? (int64_t)beside : (int64_t)most;
        sort_out(c, first, last, back_ps);
        if (part_sack(c->things, c->n_things, limit) <= 0)
            continue;
        for (uint32_t t = 0; t < c->n_things; t++)
            host -= (uint64_t)c->things[t].cost[0] * c->things[t].taken;
        hold(c, first, last, PART_HOLD_HOST);
    }
}

static void choose_held(chooser *c, uint64_t left)
{
    const int64_t limit[PART_SACK_LIMITS] = {(int64_t)left, INT64_MAX};
    sort_out(c, 0, c->n_groups, -1);
    if (part_sack(c->things, c->n_things, limit) > 0)
        hold(c, 0, c->n_groups, PART_HOLD_DEVICE);
}

static uint64_t left_of(const chooser *c, uint64_t limit)
{
    part_verdict v;
    part_estimate(c->s->model, c->plan, &v);
    return v.device_peak_bytes < limit ? limit - v.device_peak_bytes : 0;
}

atom_status part_hold_some(const part_search_state *s, part_plan *plan, uint64_t limit,
                           double beside)
{
    chooser c = {.s = s, .plan = plan, .beside = beside};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(find_groups(&c));
    if (c.n_groups == 0)
        goto cleanup;
    if (!plan->holds)
        ATOM_TRY_CLEAN(part_plan_open_holds(plan));
    if (beside > 0) {
        choose_sent(&c, left_of(&c, limit));
        write_down(&c);
    }
    choose_held(&c, left_of(&c, limit));
    write_down(&c);
cleanup:
    atom_free(c.groups);
    return st;
}
