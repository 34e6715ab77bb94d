/*
 * Owns the swaps that promise most: Kernighan and Lin's gain, and that of DT-FM's section 3.4. One
 * idea: both are sums over links from a host to a group, and those are the same for every host of a
 * type, so they are made once for each type and group. Refuses nothing.
 */
#include "partition/place/inner.h"

#include "atom/base/mem.h"

#include <math.h>

void place_swaps_close(place_swaps *s)
{
    atom_free(s->between);
    atom_free(s->sums);
    atom_free(s->groups);
    *s = (place_swaps){0};
}

/* Seconds between two hosts of each two types, or of the same one. */
static void fill_between(const place_problem *p, const place_types *t, double bytes, double *out)
{
    for (uint32_t i = 0; i < p->n_hosts; i++)
        for (uint32_t j = 0; j < i; j++) {
            double seconds = place_pair_seconds(p, i, j, bytes);
            out[t->of[i] * t->n + t->of[j]] = out[t->of[j] * t->n + t->of[i]] = seconds;
        }
}

atom_status place_swaps_open(const place_work *w, uint32_t stages, uint32_t d, place_swaps *out)
{
    uint32_t n = w->types.n;
    place_swaps s = {.types = &w->types, .stages = stages, .d = d};
    s.between = atom_alloc((size_t)n * n, sizeof *s.between);
    s.sums = atom_alloc((size_t)n * stages, sizeof *s.sums);
    s.groups = atom_alloc(stages, sizeof *s.groups);
    if (!s.between || !s.sums || !s.groups) {
        place_swaps_close(&s);
        return atom_fail_memory("a placement", (size_t)n * n * sizeof(double));
    }
    fill_between(w->p, &w->types, w->inner_bytes, s.between);
    *out = s;
    return ATOM_OK;
}

/* The links of a host of type t to all of group g, itself included if it is there. */
static double *sum_of(const place_swaps *s, uint32_t t, uint32_t g)
{
    return &s->sums[(size_t)t * s->stages + g];
}

static double between(const place_swaps *s, uint32_t t, uint32_t u)
{
    return s->between[(size_t)t * s->types->n + u];
}

static void sum_up(place_swaps *s, const uint16_t *order)
{
    for (uint32_t g = 0; g < s->stages; g++)
        place_members_of(s->types, &order[g * s->d], s->d, &s->groups[g]);
    for (uint32_t t = 0; t < s->types->n; t++)
        for (uint32_t g = 0; g < s->stages; g++) {
            const place_members *m = &s->groups[g];
            double sum = 0;
            for (uint32_t i = 0; i < m->n; i++)
                sum += m->count[i] * between(s, t, m->type[i]);
            *sum_of(s, t, g) = sum;
        }
}

static void keep_best(place_swap *best, place_swap s)
{
    for (uint32_t k = 0; k < PLACE_SWAPS; k++)
        if (s.gain > best[k].gain) {
            place_swap t = best[k];
            best[k] = s;
            s = t;
        }
}

/* One host of each type of a group with one of each other type of another group. */
static void kernighan_lin(const place_swaps *s, uint32_t g, uint32_t h, place_swap *best)
{
    const place_members *a = &s->groups[g], *b = &s->groups[h];
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t j = 0; j < b->n; j++) {
            uint32_t t = a->type[i], u = b->type[j];
            if (t == u)
                continue;
            double inside =
                *sum_of(s, t, g) - between(s, t, t) + *sum_of(s, u, h) - between(s, u, u);
            double gain = inside - *sum_of(s, t, h) - *sum_of(s, u, g) + 2 * between(s, t, u);
            keep_best(best, (place_swap){g * s->d + a->at[i], h * s->d + b->at[j], gain});
        }
}

typedef struct link {
    uint32_t type[2], at[2]; /* of its ends, as places */
} link;

/* The fastest link inside a group; of a single host to itself where there is no other. */
static link fastest(const place_swaps *s, uint32_t g)
{
    const place_members *m = &s->groups[g];
    double best = INFINITY;
    link out = {{m->type[0], m->type[0]}, {g * s->d, g * s->d}};
    for (uint32_t i = 0; i < m->n; i++)
        for (uint32_t j = i; j < m->n; j++) {
            uint32_t other = i == j ? m->other[i] : m->at[j];
            double seconds = between(s, m->type[i], m->type[j]);
            if (other == PLACE_UNUSED || seconds >= best)
                continue;
            best = seconds;
            out = (link){{m->type[i], m->type[j]}, {g * s->d + m->at[i], g * s->d + other}};
        }
    return out;
}

/* The ends of the fastest link of a group with those of another (section 3.4). */
static void papers(const place_swaps *s, uint32_t g, uint32_t h, const link *ends, place_swap *best)
{
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < 2; j++) {
            const link *a = &ends[g], *b = &ends[h];
            double gain = (*sum_of(s, a->type[i], h) + *sum_of(s, b->type[j], g)) / s->d;
            if (a->at[0] != a->at[1])
                gain -= between(s, a->type[0], a->type[1]);
            if (b->at[0] != b->at[1])
                gain -= between(s, b->type[0], b->type[1]);
            keep_best(best, (place_swap){a->at[i], b->at[j], gain});
        }
}

void place_swaps_promising(place_swaps *s, const uint16_t *order, bool kl, place_swap *best)
{
    link ends[PLACE_STAGES_MAX];
    for (uint32_t k = 0; k < PLACE_SWAPS; k++)
        best[k] = (place_swap){.gain = -INFINITY};
    sum_up(s, order);
    for (uint32_t g = 0; g < s->stages && !kl; g++)
        ends[g] = fastest(s, g);
    for (uint32_t g = 0; g < s->stages; g++)
        for (uint32_t h = g + 1; h < s->stages; h++)
            if (kl)
                kernighan_lin(s, g, h, best);
            else
                papers(s, g, h, ends, best);
}
