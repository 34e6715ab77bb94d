/*
 * Owns the choice of things that fit. One idea: with the best ratio first, what the rest can still
 * gain is at most what it gains in fractions, so most choices need not be looked at. Refuses to know
 * what the things are.
 */
#include "partition/knapsack.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS_MAX = 64 };

typedef struct sack {
    part_thing *things;
    uint32_t n, states;
    uint32_t count[KINDS_MAX];
    int64_t best;
} sack;

static int by_ratio(const void *left, const void *right)
{
    const part_thing *a = left, *b = right;
    double x = (double)a->gain * (double)b->cost[0], y = (double)b->gain * (double)a->cost[0];
    if (x != y)
        return x > y ? -1 : 1;
    return a->cost[0] == b->cost[0] ? 0 : a->cost[0] > b->cost[0] ? -1 : 1;
}

void part_sack_sort(part_thing *things, uint32_t n)
{
    qsort(things, n, sizeof *things, by_ratio);
}

/* What things from `at` on gain at most in fractions under one limit, rounded up. */
static int64_t bound(const sack *s, uint32_t at, int limit, int64_t room)
{
    double gain = 0, left = (double)room;
    for (uint32_t i = at; i < s->n; i++) {
        const part_thing *t = &s->things[i];
        double all = (double)t->cost[limit] * t->n;
        if (all > left)
            return (int64_t)(gain + (double)t->gain * left / (double)t->cost[limit]) + 1;
        left -= all;
        gain += (double)t->gain * t->n;
    }
    return (int64_t)gain + 1;
}

static uint32_t most(const part_thing *t, const int64_t room[PART_SACK_LIMITS])
{
    int64_t n = t->n;
    for (int l = 0; l < PART_SACK_LIMITS; l++)
        if (t->cost[l] > 0 && room[l] / t->cost[l] < n)
            n = room[l] / t->cost[l];
    return (uint32_t)n;
}

static void look(sack *s, uint32_t at, const int64_t room[PART_SACK_LIMITS], int64_t gain)
{
    if (at == s->n) {
        if (gain <= s->best)
            return;
        s->best = gain;
        for (uint32_t i = 0; i < s->n; i++)
            s->things[i].taken = s->count[i];
        return;
    }
    const part_thing *t = &s->things[at];
    for (uint32_t c = most(t, room) + 1; c-- > 0;) {
        int64_t left[PART_SACK_LIMITS], here = gain + t->gain * c, least = INT64_MAX;
        for (int l = 0; l < PART_SACK_LIMITS; l++) {
            left[l] = room[l] - t->cost[l] * c;
            int64_t more = bound(s, at + 1, l, left[l]);
            least = more < least ? more : least;
        }
        /* fewer of this kind and more of the worse ones behind it only bound lower */
        if (here + least <= s->best + 1 || ++s->states > PART_SACK_STATES_MAX)
            return;
        s->count[at] = c;
        look(s, at + 1, left, here);
    }
}

int64_t part_sack(part_thing *things, uint32_t n, const int64_t limit[PART_SACK_LIMITS])
{
    sack s = {.things = things, .n = n < KINDS_MAX ? n : KINDS_MAX};
    for (uint32_t i = 0; i < n; i++)
        things[i].taken = 0;
    for (int l = 0; l < PART_SACK_LIMITS; l++)
        if (limit[l] < 0)
            return 0;
    look(&s, 0, limit, 0);
    return s.best;
}
