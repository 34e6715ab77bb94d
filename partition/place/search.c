/*
 * Owns the search for an arrangement in stages. One idea: few hosts are tried in every order, many
 * are evolved from partitions as DT-FM does it (section 3.4), and both ask the same price. Refuses
 * fewer than two stages, and more than there are hosts or layers.
 */
#include "partition/place/inner.h"

#include "atom/base/mem.h"
#include "atom/base/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POPULATION = 16, TRIES_DEFAULT = 12000, BRIEF = 8 };

typedef struct individual {
    uint16_t order[PLACE_HOSTS_MAX]; /* hosts by group, then those that are left over */
    double cost;
} individual;

typedef struct search {
    place_work *w;
    const place_search *how;
    uint32_t n, used, stages, d;
    uint64_t drawn;
    uint32_t tried, most;
    place_layout best;
    double best_cost;
    place_swaps swaps;
    individual *population, child, trial;
} search;

static uint32_t draw(search *x, uint32_t below)
{
    return atom_rng_u32((atom_rng_key){.seed = x->how->seed, .step = x->stages}, x->drawn++) %
           below;
}

static double price(search *x, const place_layout *l)
{
    place_cost c;
    x->tried++;
    place_work_price(x->w, l, &c);
    double cost = x->how->communication ? c.communication : c.step;
    if (cost < x->best_cost) {
        x->best_cost = cost;
        x->best = *l;
    }
    return cost;
}

/* --- every arrangement --- */

/* Places host after host, stage after stage; within a stage hosts ascend. */
static void place_next(search *x, place_layout *l, uint32_t at, uint32_t taken)
{
    if (at == x->used) {
        (void)price(x, l);
        return;
    }
    uint32_t from = at % x->d ? l->host[at - 1] + 1u : 0;
    for (uint32_t h = from; h < x->n; h++) {
        if (taken >> h & 1)
            continue;
        l->host[at] = (uint16_t)h;
        place_next(x, l, at + 1, taken | 1u << h);
    }
}

/* --- evolution --- */

/* A partition costs what its groups cost in the order of the shortest open path, either way. */
static double judge(search *x, individual *one)
{
    const place_problem *p = x->w->p;
    uint32_t order[PLACE_STAGES_MAX], s = x->stages, d = x->d;
    place_layout l = {.n_stages = s, .n_groups = d};
    for (uint32_t i = 0; i < s; i++)
        for (uint32_t j = 0; j < i; j++)
            x->w->edges[i * s + j] = x->w->edges[j * s + i] =
                place_match(p, &x->w->types, &one->order[i * d], &one->order[j * d], d,
                            x->w->inner_bytes, &x->w->s);
    (void)place_path(x->w->edges, s, order, &x->w->s);
    for (uint32_t i = 0; i < s; i++)
        memcpy(&l.host[i * d], &one->order[order[i] * d], d * sizeof *l.host);
    one->cost = price(x, &l);
    for (uint32_t i = 0; i < s; i++)
        memcpy(&l.host[i * d], &one->order[order[s - 1 - i] * d], d * sizeof *l.host);
    one->cost = fmin(one->cost, price(x, &l));
    return one->cost;
}

static void shuffle(search *x, uint16_t *order)
{
    for (uint32_t i = 0; i < x->n; i++)
        order[i] = (uint16_t)i;
    for (uint32_t i = x->n; i > 1; i--) {
        uint32_t j = draw(x, i);
        uint16_t t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}

/* Some groups of one parent; everybody else in the order of the other. */
static void cross(search *x, const individual *a, const individual *b, individual *out)
{
    bool used[PLACE_HOSTS_MAX] = {false};
    uint32_t at = 0, d = x->d;
    for (uint32_t g = 0; g < x->stages; g++) {
        if (draw(x, 2))
            continue;
        memcpy(&out->order[at], &a->order[g * d], d * sizeof *out->order);
        for (uint32_t i = 0; i < d; i++)
            used[a->order[g * d + i]] = true;
        at += d;
    }
    for (uint32_t i = 0; i < x->n; i++)
        if (!used[b->order[i]])
            out->order[at++] = b->order[i];
    for (uint32_t k = draw(x, 3); k > 0; k--) {
        uint32_t i = draw(x, x->n), j = draw(x, x->n);
        uint16_t t = out->order[i];
        out->order[i] = out->order[j];
        out->order[j] = t;
    }
}

static void exchange(individual *one, uint32_t a, uint32_t b)
{
    uint16_t t = one->order[a];
    one->order[a] = one->order[b];
    one->order[b] = t;
}

/* Follows Kernighan and Lin's gain downhill, whatever it does to the price: the price is a maximum,
 * so that most single swaps towards groups of neighbours do not change it. */
static void gather(search *x, individual *one)
{
    place_swap best[PLACE_SWAPS];
    double least = place_pair_seconds(x->w->p, one->order[0], one->order[1], x->w->inner_bytes);
    for (bool better = x->how->local == PLACE_LOCAL_BOTH; better && x->tried < x->most;
         x->tried++) {
        place_swaps_promising(&x->swaps, one->order, true, best);
        better = best[0].gain > 1e-9 * least;
        if (better)
            exchange(one, best[0].a, best[0].b);
    }
}

/* Keeps the swap of two places if it makes it better. */
static bool try_swap(search *x, individual *one, uint32_t a, uint32_t b)
{
    memcpy(&x->trial, one, sizeof x->trial);
    exchange(&x->trial, a, b);
    if (judge(x, &x->trial) >= one->cost)
        return false;
    memcpy(one, &x->trial, sizeof *one);
    return true;
}

/* Tries the swaps that one of the gains promises most of; true: one was kept. */
static bool try_promising(search *x, individual *one, bool kl)
{
    place_swap best[PLACE_SWAPS];
    bool kept = false;
    place_swaps_promising(&x->swaps, one->order, kl, best);
    for (uint32_t k = 0; k < PLACE_SWAPS && !kept; k++)
        kept = isfinite(best[k].gain) && try_swap(x, one, best[k].a, best[k].b);
    return kept;
}

/*
 * Swaps until nothing that was tried makes it better: what Kernighan and Lin's gain promises,
 * which gathers neighbours into groups, then what section 3.4's does, which spares the pipeline, and
 * one swap that no gain sees, since hosts that are left over are in neither.
 */
static void improve(search *x, individual *one)
{
    bool kl = x->how->local != PLACE_LOCAL_PAPER,
         paper = x->how->local != PLACE_LOCAL_KERNIGHAN_LIN;
    bool better = x->how->local != PLACE_LOCAL_NONE;
    while (better && x->tried < x->most) {
        better = kl && try_promising(x, one, true);
        better = better || (paper && try_promising(x, one, false));
        better = better || try_swap(x, one, draw(x, x->used), draw(x, x->n));
    }
}

/* Hosts in the order they were named, which is often by region. */
static void as_named(const search *x, uint16_t *order)
{
    for (uint32_t i = 0; i < x->n; i++)
        order[i] = (uint16_t)i;
}

static void evolve(search *x)
{
    for (uint32_t i = 0; i < POPULATION; i++) {
        if (i == 0 && x->how->local != PLACE_LOCAL_NONE)
            as_named(x, x->population[i].order);
        else
            shuffle(x, x->population[i].order);
        if (i % 2)
            gather(x, &x->population[i]);
        (void)judge(x, &x->population[i]);
        improve(x, &x->population[i]);
    }
    while (x->how->local != PLACE_LOCAL_NONE && x->tried < x->most) {
        uint32_t a = draw(x, POPULATION), b = draw(x, POPULATION), worst = 0;
        cross(x, &x->population[a], &x->population[b], &x->child);
        if (draw(x, 2))
            gather(x, &x->child);
        (void)judge(x, &x->child);
        improve(x, &x->child);
        bool twin = false;
        for (uint32_t i = 0; i < POPULATION; i++)
            twin = twin || x->population[i].cost == x->child.cost;
        for (uint32_t i = 1; i < POPULATION; i++)
            if (x->population[i].cost > x->population[worst].cost)
                worst = i;
        if (!twin && x->child.cost < x->population[worst].cost)
            memcpy(&x->population[worst], &x->child, sizeof x->child);
    }
}

static uint32_t tries_for(const search *x)
{
    double work = (double)x->stages * x->stages * x->d * x->d;
    double tries = TRIES_DEFAULT * fmin(1, 4096 / work);
    return tries > 300 ? (uint32_t)tries : 300;
}

atom_status place_stages(const place_problem *p, uint32_t n_stages, const place_search *how,
                         place_candidate *out)
{
    search x = {.how = how, .n = p->n_hosts, .stages = n_stages, .best_cost = INFINITY};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(place_check(p));
    if (n_stages < 2 || n_stages > PLACE_STAGES_MAX || n_stages > p->n_hosts ||
        n_stages > p->n_layers)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%u stages; there must be at least 2, and no more than %u hosts, "
                                 "%u layers and %d",
                                 n_stages, p->n_hosts, p->n_layers, PLACE_STAGES_MAX));
    x.d = p->n_hosts / n_stages;
    x.used = x.d * n_stages;
    x.best = (place_layout){.n_stages = n_stages, .n_groups = x.d};
    for (uint32_t i = 0; i < x.used; i++)
        x.best.host[i] = (uint16_t)i;
    ATOM_TRY_CLEAN(place_work_open(p, &x.w));
    if (x.n <= PLACE_EXACT_HOSTS && !how->no_exact) {
        place_layout l = {.n_stages = n_stages, .n_groups = x.d};
        place_next(&x, &l, 0, 0);
    } else {
        x.most = (how->tries ? how->tries : tries_for(&x)) / (how->brief ? BRIEF : 1);
        ATOM_TRY_CLEAN(place_swaps_open(x.w, n_stages, x.d, &x.swaps));
        x.population = atom_alloc(POPULATION, sizeof *x.population);
        if (!x.population)
            ATOM_TRY_CLEAN(atom_fail_memory("a placement", POPULATION * sizeof *x.population));
        evolve(&x);
    }
    place_work_describe(x.w, &x.best, out);
cleanup:
    atom_free(x.population);
    place_swaps_close(&x.swaps);
    place_work_close(&x.w);
    return st;
}
