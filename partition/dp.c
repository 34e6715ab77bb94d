/*
 * Owns the dynamic programming over pairs of neighbouring ranges. One idea: solve backwards from
 * the end of the graph, so that the value of a range is the best completion behind it and the first
 * of equal completions is the lexicographically first. Refuses approximations: cuts are exact for
 * the model it is given.
 */
#include "partition/search.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <stdlib.h>

/* Best completion behind a range. */
typedef struct value {
    part_score score;
    uint32_t
        next; /* index of the next range; NOWHERE: no completion; END: the range ends the graph */
} value;

enum { NOWHERE = UINT32_MAX, END = UINT32_MAX - 1 };

typedef struct solver {
    const part_table *table;
    const part_setting *setting;
    part_goal goal;
    uint64_t room_bytes; /* capacity without what is fixed */
    part_times *times;
    value *values;
    uint32_t *order;       /* per row, its ranges by value */
    uint32_t *ordered;     /* per row, how many of them have a value */
    struct ranked *ranked; /* one row, while it is sorted */
    uint64_t states;
} solver;

/* --- ranges --- */

/* The part of a range's memory that grows with it. */
static uint64_t alone_bytes(const part_range *r)
{
    return r->slot_bytes + r->grad_bytes + r->own_bytes + r->kept_bytes;
}

static atom_status fill_row(const part_model *m, part_table *t, uint32_t i, size_t *room)
{
    part_range r = part_range_begin(m, m->points[i]);
    for (uint32_t j = i + 1; j < m->n_points; j++) {
        while (r.last < m->points[j])
            part_range_extend(m, &r);
        if (alone_bytes(&r) > t->capacity_bytes)
            break;
        ATOM_TRY(atom_grow(&t->ranges, t->n_ranges, room, sizeof *t->ranges));
        part_range_finish(m, &r);
        t->ranges[t->n_ranges++] = r;
    }
    return ATOM_OK;
}

atom_status part_table_open(const part_model *m, uint64_t capacity_bytes, part_table **out)
{
    atom_status st = ATOM_OK;
    size_t room = 0;
    part_table *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("the table of ranges", sizeof *t);
    t->m = m;
    t->capacity_bytes = capacity_bytes;
    t->row = atom_alloc((size_t)m->n_points + 1, sizeof *t->row);
    if (!t->row)
        ATOM_TRY_CLEAN(atom_fail_memory("the table of ranges", m->n_points * sizeof *t->row));
    for (uint32_t i = 0; i < m->n_points; i++) {
        t->row[i] = t->n_ranges;
        ATOM_TRY_CLEAN(fill_row(m, t, i, &room));
    }
    t->row[m->n_points] = t->n_ranges;
    *out = t;
    return ATOM_OK;
cleanup:
    part_table_close(&t);
    return st;
}

void part_table_close(part_table **table)
{
    if (!*table)
        return;
    atom_free((*table)->row);
    atom_free((*table)->ranges);
    atom_free(*table);
    *table = NULL;
}

/* --- values --- */

/* <0, 0, >0: a is better, equal, worse. */
static int compare(const part_score *a, const part_score *b)
{
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->cut_bytes == b->cut_bytes ? 0 : a->cut_bytes < b->cut_bytes ? -1 : 1;
}

/* What going on from `cur` costs at least, whatever comes next. */
static int64_t least(const solver *s, uint32_t cur, uint64_t boundary_bytes, bool first)
{
    switch (s->goal) {
    case PART_GOAL_HIDDEN:
    case PART_GOAL_TIME:
        return part_range_least_ps(s->setting, &s->times[cur], first) +
               s->setting->cut_price * (int64_t)(boundary_bytes / 1024);
    case PART_GOAL_CUT:
        return (int64_t)boundary_bytes;
    case PART_GOAL_MICRO_BATCHES:
    case PART_GOAL_MEMORY:
        return 0;
    }
    return 0;
}

/* The score of `cur` with a pair that costs `key`, in front of the completion `behind`. */
static part_score with(const solver *s, int64_t key, uint64_t boundary_bytes,
                       const part_score *behind)
{
    bool largest = s->goal == PART_GOAL_MICRO_BATCHES || s->goal == PART_GOAL_MEMORY;
    int64_t larger = key > behind->key ? key : behind->key;
    return (part_score){.key = largest ? larger : key + behind->key,
                        .n = behind->n + 1,
                        .cut_bytes = behind->cut_bytes + boundary_bytes};
}

/* What the pair costs; false if the predicate says no. */
static bool pair_cost(const solver *s, uint32_t cur, uint32_t next, bool first, int64_t *key)
{
    const part_range *a = &s->table->ranges[cur], *b = &s->table->ranges[next];
    const part_times *ta = &s->times[cur], *tb = &s->times[next];
    bool last = s->values[next].next == END;
    uint64_t bytes = part_pair_bytes(s->setting, a, b, last);
    if (bytes > s->room_bytes || (s->goal == PART_GOAL_HIDDEN && !part_pair_hides(ta, tb, last)))
        return false;
    switch (s->goal) {
    case PART_GOAL_HIDDEN:
    case PART_GOAL_TIME:
        *key = part_pair_ps(s->setting, ta, tb, first, last) +
               s->setting->cut_price * (int64_t)(b->x_bytes / 1024);
        return true;
    case PART_GOAL_MICRO_BATCHES:
        *key = part_pair_micro_batches(ta, tb, last);
        return *key > 0;
    case PART_GOAL_MEMORY:
        *key = (int64_t)bytes;
        return true;
    case PART_GOAL_CUT:
        *key = (int64_t)b->x_bytes;
        return true;
    }
    return false;
}

/* The last range of row j that can follow `cur`: memory rises along a row. */
static uint32_t row_limit(const solver *s, uint32_t cur, uint32_t j)
{
    const part_table *t = s->table;
    uint32_t low = t->row[j], high = t->row[j + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part_pair_rising_bytes(&t->ranges[cur], &t->ranges[middle]) > s->room_bytes)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/*
 * Fills in the value of range `cur`, which ends at point j. The ranges that may follow are looked
 * at in the order of what is behind them; as soon as even a pair without stalls could not win any
 * more, the rest cannot either.
 */
static void solve_range(solver *s, uint32_t cur, uint32_t j, bool first)
{
    const part_table *t = s->table;
    const uint64_t boundary_bytes = s->table->m->boundary_bytes[t->ranges[cur].last];
    const int64_t floor_key = least(s, cur, boundary_bytes, first);
    const uint32_t limit = row_limit(s, cur, j);
    value best = {.next = NOWHERE};
    for (uint32_t o = t->row[j]; o < t->row[j] + s->ordered[j]; o++) {
        uint32_t next = s->order[o];
        const part_score *behind = &s->values[next].score;
        int64_t key;
        if (next >= limit)
            continue;
        if (best.next != NOWHERE) {
            part_score bound = with(s, floor_key, boundary_bytes, behind);
            int against = compare(&best.score, &bound);
            if (against < 0)
                break;
            if (against == 0 && best.next < next)
                continue;
        }
        s->states++;
        if (!pair_cost(s, cur, next, first, &key))
            continue;
        part_score score = with(s, key, boundary_bytes, behind);
        int against = best.next == NOWHERE ? -1 : compare(&score, &best.score);
        if (against < 0 || (against == 0 && next < best.next))
            best = (value){score, next};
    }
    s->values[cur] = best;
}

/* An END range completes the graph; its own visit is what is left to pay. */
static part_score end_score(const solver *s, uint32_t cur)
{
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    return (part_score){.key = time ? part_turn_ps(&s->times[cur]) : 0, .n = 1};
}

typedef struct ranked {
    part_score score;
    uint32_t range;
} ranked;

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    int against = compare(&x->score, &y->score);
    if (against)
        return against;
    return x->range < y->range ? -1 : 1;
}

/* Sorts row i by what is behind its ranges; those without a completion are left out. */
static void order_row(solver *s, uint32_t i)
{
    const part_table *t = s->table;
    uint32_t n = 0;
    for (uint32_t cur = t->row[i]; cur < t->row[i + 1]; cur++)
        if (s->values[cur].next != NOWHERE)
            s->ranked[n++] = (ranked){s->values[cur].score, cur};
    qsort(s->ranked, n, sizeof *s->ranked, by_score);
    for (uint32_t o = 0; o < n; o++)
        s->order[t->row[i] + o] = s->ranked[o].range;
    s->ordered[i] = n;
}

static void solve(solver *s)
{
    const part_table *t = s->table;
    uint32_t last_point = t->m->n_points - 1;
    for (uint32_t i = last_point; i-- > 0;) {
        for (uint32_t cur = t->row[i]; cur < t->row[i + 1]; cur++) {
            uint32_t j = i + 1 + (cur - t->row[i]);
            if (j == last_point)
                s->values[cur] = (value){.score = end_score(s, cur), .next = END};
            else
                solve_range(s, cur, j, i == 0);
        }
        order_row(s, i);
    }
}

/* The best first range, and the chain behind it. */
static atom_status collect(const solver *s, part_cuts *out)
{
    const part_table *t = s->table;
    uint32_t best = NOWHERE;
    for (uint32_t cur = t->row[0]; cur < t->row[1]; cur++) {
        const value *v = &s->values[cur];
        if (v->next == NOWHERE || v->next == END)
            continue;
        if (best == NOWHERE || compare(&v->score, &s->values[best].score) < 0)
            best = cur;
    }
    *out = (part_cuts){0};
    if (best == NOWHERE)
        return ATOM_OK;
    uint32_t n = s->values[best].score.n;
    out->ends = atom_alloc(n, sizeof *out->ends);
    if (!out->ends)
        return atom_fail_memory("a partition", n * sizeof *out->ends);
    out->score = s->values[best].score;
    for (uint32_t cur = best; out->n < n; cur = s->values[cur].next)
        out->ends[out->n++] = t->ranges[cur].last;
    return ATOM_OK;
}

void part_cuts_close(part_cuts *cuts)
{
    atom_free(cuts->ends);
    *cuts = (part_cuts){0};
}

atom_status part_dp(const part_table *table, const part_setting *setting, part_goal goal,
                    uint64_t capacity_bytes, part_cuts *out, uint64_t *states)
{
    uint64_t fixed = part_fixed_bytes(table->m, setting);
    solver s = {.table = table, .setting = setting, .goal = goal};
    part_setting one = *setting;
    atom_status st = ATOM_OK;
    *out = (part_cuts){0};
    if (fixed >= capacity_bytes || table->n_ranges == 0)
        return ATOM_OK;
    s.room_bytes = capacity_bytes - fixed;
    s.times = atom_alloc(table->n_ranges, sizeof *s.times);
    s.values = atom_alloc(table->n_ranges, sizeof *s.values);
    s.order = atom_alloc(table->n_ranges, sizeof *s.order);
    s.ordered = atom_alloc(table->m->n_points, sizeof *s.ordered);
    s.ranked = atom_alloc(table->m->n_points, sizeof *s.ranked);
    if (!s.times || !s.values || !s.order || !s.ordered || !s.ranked)
        ATOM_TRY_CLEAN(
            atom_fail_memory("the partition search", table->n_ranges * sizeof *s.values));
    if (goal == PART_GOAL_MICRO_BATCHES)
        one.micro_batches = 1;
    for (uint32_t i = 0; i < table->n_ranges; i++)
        s.times[i] = part_range_times(table->m, &one, &table->ranges[i]);
    solve(&s);
    st = collect(&s, out);
    if (states)
        *states += s.states;
cleanup:
    atom_free(s.times);
    atom_free(s.values);
    atom_free(s.order);
    atom_free(s.ordered);
    atom_free(s.ranked);
    return st;
}
