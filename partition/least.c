/*
 * Owns the plans that take little memory. One idea: how little that can be follows from few partitions: the finest, whose
 * regions are the smallest, and, for each limit of two neighbours, the one that cuts least. Of those that fit the quickest
 * is taken. Refuses to look at times where none fits: what is asked for then must not depend on rates, which are measured
 * anew.
 */
#include "partition/candidates.h"

#include "atom/base/mem.h"

#include <stdlib.h>

enum { ROUNDS_MAX = 8 };

static const uint64_t MIB = 1 << 20, ALL = (uint64_t)1 << 60;

/* The setting of a way that needs least: stashing activations takes more memory than repeating them, which may be
 * forbidden. */
static bool least_setting(const part_search_state *s, int way, part_setting *setting)
{
    return part_way_setting(s, way, setting) &&
           (setting->keep == PART_KEEP_HOST) == (s->request->recompute == 0);
}

/* What needs less is better; of two that fit, unless there is no time for it, what is quicker. */
static bool better(const part_search_state *s, const part_verdict *a, const part_verdict *b)
{
    const uint64_t limit = part_device_limit(s);
    if (s->hasty || a->device_peak_bytes > limit || b->device_peak_bytes > limit)
        return a->device_peak_bytes < b->device_peak_bytes;
    return a->step_seconds < b->step_seconds;
}

/* So much a plan may need to be better than the one that is known. */
static uint64_t worth(const part_search_state *s, const part_verdict *known)
{
    const uint64_t limit = part_device_limit(s), peak = known->device_peak_bytes;
    return s->hasty || peak > limit ? peak - 1 : limit;
}

/* Weighs *plan, and keeps it if it is better than the one there is and the host holds it. host: does it? NULL: nobody
 * asks. */
ATOM_MUST static atom_status keep_better(part_search_state *s, part_plan **plan, part_plan **least,
                                         part_verdict *needs, bool *host)
{
    part_verdict v;
    ATOM_TRY(part_weigh(s, *plan, &v));
    part_note_need(s, &v, part_device_limit(s));
    const bool holds = part_host_holds(s, &v);
    if (host)
        *host = holds;
    if (!holds || !better(s, &v, needs))
        return ATOM_OK;
    part_plan_close(least);
    *least = *plan;
    *needs = v;
    *plan = NULL;
    return ATOM_OK;
}

/* --- cut everywhere --- */

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The sizes of all boundaries there are, ascending, each once; the caller frees them. */
ATOM_MUST static atom_status boundary_sizes(const part_model *m, uint64_t **sizes, uint32_t *n)
{
    uint64_t *all = atom_alloc(m->n_points, sizeof *all);
    uint32_t count = 0;
    *n = 0;
    if (!all)
        return atom_fail_memory("the sizes of boundaries", m->n_points * sizeof *all);
    for (uint32_t p = 1; p + 1 < m->n_points; p++)
        all[count++] = m->boundary_bytes[m->points[p]];
    qsort(all, count, sizeof *all, by_size);
    for (uint32_t i = 0; i < count; i++)
        if (*n == 0 || all[*n - 1] != all[i])
            all[(*n)++] = all[i];
    *sizes = all;
    return ATOM_OK;
}

/* The plan that cuts wherever no more than `widest` bytes cross. ends: room for n_points. */
ATOM_MUST static atom_status cut_everywhere(const part_search_state *s, const part_setting *setting,
                                            uint64_t widest, int32_t *ends, part_plan **plan)
{
    const part_model *m = s->model;
    uint32_t n = 0;
    for (uint32_t p = 1; p < m->n_points; p++)
        if (p + 1 == m->n_points || m->boundary_bytes[m->points[p]] <= widest)
            ends[n++] = m->points[p];
    return part_plan_from_cuts(s, setting, ends, n, plan);
}

/* How large each region of a plan is, and so may be for as much memory. */
typedef struct regions {
    uint64_t slots, grads, spill, scratch, kept, boundaries;
} regions;

static uint64_t kept_bytes(const part_search_state *s, const part_setting *setting,
                           const part_range *r)
{
    const bool last = r->last == (int32_t)s->g->n_nodes;
    return r->kept_bytes * (setting->keep == PART_KEEP_HOST && !last ? 2 : 1);
}

/* What two neighbours ask of each region; a: NULL in front of the first. */
static regions ask(const part_search_state *s, const part_setting *setting, const part_range *a,
                   const part_range *b)
{
    const uint64_t *crosses = s->model->boundary_bytes;
    return (regions){.slots = b->slot_bytes + (a ? a->slot_bytes : 0),
                     .grads = b->grad_bytes,
                     .spill = b->own_bytes + (a ? a->own_bytes : 0),
                     .scratch = b->scratch_bytes,
                     .kept = kept_bytes(s, setting, b),
                     .boundaries = crosses[b->first] + crosses[b->last]};
}

static regions regions_of(const part_search_state *s, const part_setting *setting,
                          const part_plan *plan)
{
    regions all = {0};
    part_range before = {0};
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        const part_sub_model *sub = &plan->sub_models[k];
        const part_range r = part_range_make(s->model, sub->first_node, sub->last_node);
        const regions one = ask(s, setting, k ? &before : NULL, &r);
        all.slots = part_larger(all.slots, one.slots);
        all.grads = part_larger(all.grads, one.grads);
        all.spill = part_larger(all.spill, one.spill);
        all.scratch = part_larger(all.scratch, one.scratch);
        all.kept = part_larger(all.kept, one.kept);
        all.boundaries = part_larger(all.boundaries, one.boundaries);
        before = r;
    }
    return all;
}

static bool within(const regions *a, const regions *all)
{
    return a->slots <= all->slots && a->grads <= all->grads && a->spill <= all->spill &&
           a->scratch <= all->scratch && a->kept <= all->kept && a->boundaries <= all->boundaries;
}

/* Joins sub-models of a plan from the front, as long as no region grows. ends: room for all of them. */
ATOM_MUST static atom_status join(const part_search_state *s, const part_setting *setting,
                                  const part_plan *plan, int32_t *ends, part_plan **out)
{
    const regions all = regions_of(s, setting, plan);
    part_range before = {0};
    uint32_t n = 0;
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        const part_sub_model *sub = &plan->sub_models[k], *behind = sub + 1;
        if (k + 1 < plan->n_sub_models) {
            const int32_t first = n ? ends[n - 1] : 0;
            const part_range longer = part_range_make(s->model, first, behind->last_node);
            const regions one = ask(s, setting, n ? &before : NULL, &longer);
            bool joins = within(&one, &all);
            if (joins && k + 2 < plan->n_sub_models) { /* what comes then has to go beside it */
                const part_range next =
                    part_range_make(s->model, behind->last_node, behind[1].last_node);
                const regions two = ask(s, setting, &longer, &next);
                joins = within(&two, &all);
            }
            if (joins)
                continue;
            before = part_range_make(s->model, first, sub->last_node);
        }
        ends[n++] = sub->last_node;
    }
    return part_plan_from_cuts(s, setting, ends, n, out);
}

/*
 * Of two partitions of which one cuts wherever the other does, and more, the one needs no more of any region but those
 * of what crosses its cuts. With boundaries on the host those are as large as what crosses two neighbouring cuts, however
 * many there are. So little is needed where one cuts wherever no more than so much crosses, for some so much.
 */
ATOM_MUST static atom_status finest(part_search_state *s, int way, part_plan **out,
                                    part_verdict *least)
{
    part_setting setting;
    uint64_t *sizes = NULL;
    uint32_t n = 0;
    part_plan *fine = NULL, *plan = NULL;
    part_verdict v;
    if (!least_setting(s, way, &setting) ||
        (setting.boundaries == PART_ON_DEVICE && !setting.forward))
        return ATOM_OK;
    int32_t *ends = atom_alloc(s->model->n_points, sizeof *ends);
    atom_status st = ends ? boundary_sizes(s->model, &sizes, &n)
                          : atom_fail_memory("a partition", s->model->n_points * sizeof *ends);
    for (uint32_t i = 0; i < n && st == ATOM_OK; i++) {
        ATOM_TRY_CLEAN(cut_everywhere(s, &setting, sizes[i], ends, &fine));
        part_estimate(s->model, fine, &v);
        if (v.device_peak_bytes <= worth(s, least)) {
            ATOM_TRY_CLEAN(join(s, &setting, fine, ends, &plan));
            ATOM_TRY_CLEAN(keep_better(s, &plan, out, least, NULL));
        }
        part_plan_close(&fine);
        part_plan_close(&plan);
    }
cleanup:
    part_plan_close(&fine);
    part_plan_close(&plan);
    atom_free(sizes);
    atom_free(ends);
    return st;
}

/* --- cut as little as memory allows --- */

/* The state's table gets all ranges that take that much. */
ATOM_MUST static atom_status make_room(part_search_state *s, uint64_t bytes)
{
    if (s->table && s->table->capacity_bytes >= bytes)
        return ATOM_OK;
    part_table_close(&s->table);
    return part_table_open(s->model, bytes + bytes / 4, &s->table);
}

/* The least that the pairs of some partition need beside what is fixed and what any cut crosses; 0: none of those that
 * need less than `most` in all fits the table. */
ATOM_MUST static atom_status least_room(part_search_state *s, const part_setting *setting,
                                        uint64_t most, uint64_t *room)
{
    const part_model *m = s->model;
    const uint64_t crosses = part_crossing_bytes(m, setting);
    const uint64_t beside = part_fixed_bytes(m, setting) + crosses;
    *room = 0;
    /* Room grows until something fits: the table of all ranges would be far larger. */
    for (uint64_t ranges = 64 * MIB; beside < most && ranges < ALL; ranges *= 2) {
        const uint64_t left = most - beside, bytes = ranges < left ? ranges : left;
        const part_cuts *cuts;
        ATOM_TRY(make_room(s, bytes));
        ATOM_TRY(part_solve(s, setting, PART_GOAL_MEMORY, beside + bytes, false, &cuts));
        if (cuts->n)
            *room = (uint64_t)cuts->score.key - crosses;
        if (cuts->n || bytes == left) /* that was all of it */
            break;
    }
    return ATOM_OK;
}

/* The plan that cuts least where the pairs have so much room. */
ATOM_MUST static atom_status cut_least(part_search_state *s, const part_setting *setting,
                                       uint64_t room, part_plan **plan)
{
    const uint64_t beside =
        part_fixed_bytes(s->model, setting) + part_crossing_bytes(s->model, setting);
    const part_cuts *cuts;
    ATOM_TRY(make_room(s, room));
    ATOM_TRY(part_solve(s, setting, PART_GOAL_CUT, beside + room, true, &cuts));
    return part_plan_from_cuts(s, setting, cuts->ends, cuts->n, plan);
}

/* Cuts that far, and keeps the plan if it is better. once: it has one cut, where the least crosses; more room changes
 * nothing then. */
ATOM_MUST static atom_status try_room(part_search_state *s, const part_setting *setting,
                                      uint64_t room, part_plan **least, part_verdict *needs,
                                      bool *host, bool *once)
{
    part_plan *plan = NULL;
    ATOM_TRY(cut_least(s, setting, room, &plan));
    *once = plan->cut_bytes <= part_narrowest_bytes(s->model);
    atom_status st = keep_better(s, &plan, least, needs, host);
    part_plan_close(&plan);
    return st;
}

/* The plan of one way whose pairs need least device memory: of those, the one that cuts least. Where its
 * stashes are too much for the host, a little more room makes fewer cuts. */
ATOM_MUST static atom_status smallest(part_search_state *s, int way, uint64_t most, part_plan **out,
                                      part_verdict *least)
{
    part_setting setting;
    uint64_t room = 0;
    bool host = false, once;
    if (!least_setting(s, way, &setting))
        return ATOM_OK;
    const uint64_t beside =
        part_fixed_bytes(s->model, &setting) + part_crossing_bytes(s->model, &setting);
    ATOM_TRY(least_room(s, &setting, most, &room));
    for (int round = 0; room && !host && round < ROUNDS_MAX; round++, room += (beside + room) / 4) {
        if (beside + room >= most || beside + room > worth(s, least))
            break;
        ATOM_TRY(try_room(s, &setting, room, out, least, &host, &once));
    }
    return ATOM_OK;
}

/* The first of these plans that fits, or NULL. */
ATOM_MUST static atom_status fitting(part_search_state *s, part_plan **out, part_verdict *verdict)
{
    /* The model may see a little more than is laid out. */
    const uint64_t limit = part_device_limit(s), most = limit + limit / 8;
    for (int way = 0; way < PART_WAYS; way++)
        ATOM_TRY(smallest(s, way, most, out, verdict));
    if (*out && verdict->device_peak_bytes > limit)
        part_plan_close(out);
    return ATOM_OK;
}

/* So much is worth looking for: what would be better, and no more than the device has in any case. */
static uint64_t most_worth(const part_search_state *s, const part_verdict *known)
{
    const uint64_t has = s->profile->device.device_bytes, most = worth(s, known);
    return has && has < most ? has + 1 : most + 1;
}

/*
 * Where boundaries stay on the device they add up there, on the host what it has may be too little for them, and a single
 * cut has no neighbour. More room for pairs makes fewer cuts. So the least is looked for from the smallest pair up, in steps
 * of an eighth, or that double where there are many ranges, and then in smaller ones around the best of these.
 */
ATOM_MUST static atom_status climb(part_search_state *s, int way, part_plan **out,
                                   part_verdict *least)
{
    enum { FINEST = 64, FEW = 5000, RANGES_MAX = 50000 };
    part_setting setting;
    uint64_t lowest = 0;
    bool once = false;
    if (!least_setting(s, way, &setting))
        return ATOM_OK;
    const uint64_t beside =
        part_fixed_bytes(s->model, &setting) + part_crossing_bytes(s->model, &setting);
    ATOM_TRY(least_room(s, &setting, most_worth(s, least), &lowest));
    uint64_t best = lowest;
    for (uint64_t room = lowest, more; room && !once && beside + room < most_worth(s, least);
         room += more) {
        const part_plan *had = *out;
        ATOM_TRY(try_room(s, &setting, room, out, least, NULL, &once));
        best = *out != had ? room : best;
        if (2 * s->table->n_ranges > RANGES_MAX)
            break; /* sub-models of hundreds of nodes are not where the least is */
        more = s->table->n_ranges < FEW ? room / 8 + 1 : room;
    }
    for (uint64_t step = best / 4; best && step >= best / FINEST; step /= 2) {
        const uint64_t around[] = {best - step, best + step};
        for (int i = 0; i < 2; i++) {
            const part_plan *had = *out;
            if (around[i] < lowest || beside + around[i] > worth(s, least))
                continue;
            ATOM_TRY(try_room(s, &setting, around[i], out, least, NULL, &once));
            best = *out != had ? around[i] : best;
        }
    }
    return ATOM_OK;
}

/* One sub-model. */
ATOM_MUST static atom_status whole(part_search_state *s, part_plan **out, part_verdict *least)
{
    const int32_t end = (int32_t)s->g->n_nodes;
    part_setting setting;
    part_plan *plan = NULL;
    (void)part_way_setting(s, 0, &setting);
    ATOM_TRY(part_plan_from_cuts(s, &setting, &end, 1, &plan));
    atom_status st = keep_better(s, &plan, out, least, NULL);
    part_plan_close(&plan);
    return st;
}

/* The plan that needs the least device memory, if that is less than *verdict says. */
ATOM_MUST static atom_status find_least(part_search_state *s, part_plan **out,
                                        part_verdict *verdict)
{
    ATOM_TRY(whole(s, out, verdict));
    for (int way = PART_WAYS; way-- > 0;) { /* boundaries on the host first */
        ATOM_TRY(finest(s, way, out, verdict));
        ATOM_TRY(climb(s, way, out, verdict));
    }
    return ATOM_OK;
}

atom_status part_least_plan(part_search_state *s, bool any, part_plan **out, part_verdict *verdict)
{
    *out = NULL;
    *verdict = (part_verdict){.device_peak_bytes = UINT64_MAX};
    atom_status st = fitting(s, out, verdict);
    if (st == ATOM_OK && !*out)
        verdict->device_peak_bytes = any ? UINT64_MAX : part_device_limit(s) + 1;
    if (st == ATOM_OK && (!*out || !s->hasty))
        st = find_least(s, out, verdict);
    if (*out)
        part_plan_note(s, *out, verdict);
    if (st != ATOM_OK)
        part_plan_close(out);
    return st;
}
