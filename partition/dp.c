/*
 * Owns the dynamic programming over pairs of neighbouring ranges. One idea: solve backwards from
 * the end of the graph, so that the value of a range is the best completion behind it and the first
 * of equal completions is the lexicographically first. Refuses approximations: cuts are exact for
 * the model it is given.
 */
#include "partition/search.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

/* Best completion behind a range. */
typedef struct value {
    part_score score;
    uint32_t next; /* index of the next range; NOWHERE: no completion; END: it ends the graph */
} value;

enum { NOWHERE = UINT32_MAX, END = UINT32_MAX - 1 };

/*
 * Some ranges that are neighbours in their row, and what going on with one of them costs at least.
 * A pair waits in three places: in forward for what comes to the second range, in backward for what
 * leaves it, and for the first range to come back. Each wait is at least 0, and at least what the
 * second range takes there less what the first one gives; so for every set of places there is a
 * sum over the second range alone whose minimum bounds all of a block at once.
 */
enum { BLOCK = 16, FORWARD = 1, LEAVING = 2, COMING = 4, SETS = 8 };

typedef struct block {
    part_score behind;   /* the least of them; n is 0 where none has a completion */
    int64_t least[SETS]; /* by set of places, with what is behind */
} block;

typedef struct solver {
    const part_table *table;
    const part_setting *setting;
    part_goal goal;
    uint64_t room_bytes; /* capacity without what is fixed */
    const part_times *times;
    value *values;
    uint32_t *row_blocks; /* per row, its first block */
    block *blocks;
    uint32_t *hints; /* per row, the range that was chosen from it last, or NOWHERE */
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
    atom_free((*table)->times);
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
    case PART_GOAL_MEMORY:
        return (int64_t)alone_bytes(&s->table->ranges[cur]);
    }
    return 0;
}

/* The score of `cur` with a pair that costs `key`, in front of the completion `behind`. */
static part_score with(const solver *s, int64_t key, uint64_t boundary_bytes,
                       const part_score *behind)
{
    bool largest = s->goal == PART_GOAL_MEMORY;
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
    case PART_GOAL_MEMORY:
        *key = (int64_t)bytes;
        return true;
    case PART_GOAL_CUT:
        *key = (int64_t)b->x_bytes;
        return true;
    }
    return false;
}

/* Behind the last range of row j that can follow `cur`: memory rises along a row, but for the range
 * that ends the graph, which need not stash. */
static uint32_t row_limit(const solver *s, uint32_t cur, uint32_t j, uint64_t room_bytes)
{
    const part_table *t = s->table;
    uint32_t low = t->row[j], high = t->row[j + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const part_range *next = &t->ranges[middle];
        if (part_pair_rising_bytes(s->setting, &t->ranges[cur], next) > room_bytes)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Looks at the pair (cur, next); *best becomes the better one. */
static void try_pair(solver *s, uint32_t cur, uint32_t next, bool first, value *best)
{
    int64_t key;
    s->states++;
    if (!pair_cost(s, cur, next, first, &key))
        return;
    uint64_t boundary_bytes = s->table->ranges[next].x_bytes;
    part_score score = with(s, key, boundary_bytes, &s->values[next].score);
    int against = best->next == NOWHERE ? -1 : compare(&score, &best->score);
    if (against < 0 || (against == 0 && next < best->next))
        *best = (value){score, next};
}

/* What going on from `cur` costs, and what it gives in each place where a pair waits. */
typedef struct bound {
    uint64_t boundary_bytes;
    int64_t floor; /* see least() */
    int64_t given[SETS];
} bound;

static bound bound_of(const solver *s, uint32_t cur, uint32_t j, bool first)
{
    const part_times *t = &s->times[cur];
    const uint64_t bytes = s->table->m->boundary_bytes[s->table->ranges[cur].last];
    bound b = {.boundary_bytes = bytes, .floor = least(s, cur, bytes, first)};
    /* What crosses to the ranges of row j is the same for all of them, and where the range waits for
     * its own stashes, it does so whatever comes next. */
    const part_times *any = &s->times[s->table->row[j]];
    int64_t forward = t->y_out > t->fwd ? t->y_out - t->fwd : 0;
    int64_t leaving = t->x_out > t->bwd ? t->x_out - t->bwd : 0;
    int64_t rest = b.floor;
    if (s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME) {
        rest += part_crossing_ps(s->setting, any);
        b.floor = rest + forward + leaving;
    }
    for (int set = 0; set < SETS; set++) {
        b.given[set] = rest;
        b.given[set] += set & FORWARD ? -t->fwd : forward;
        b.given[set] += set & LEAVING ? -t->bwd : leaving;
        b.given[set] += set & COMING ? t->load_both : 0;
    }
    return b;
}

/* Can none of a block, or of what starts at range `at`, beat what there is? */
static bool hopeless(const solver *s, const bound *b, const part_score *behind, uint32_t at,
                     const value *best)
{
    if (best->next == NOWHERE)
        return false;
    part_score score = with(s, b->floor, b->boundary_bytes, behind);
    if (s->goal == PART_GOAL_MEMORY)
        return score.key >= best->score.key; /* nothing else is asked for */
    int against = compare(&best->score, &score);
    return against < 0 || (against == 0 && best->next <= at);
}

static bool hopeless_block(const solver *s, const bound *b, const block *k, uint32_t at,
                           const value *best)
{
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    if (k->behind.n == 0 || hopeless(s, b, &k->behind, at, best))
        return true;
    for (int set = 1; set < SETS && time && best->next != NOWHERE; set++)
        if (k->least[set] + b->given[set] > best->score.key)
            return true;
    return false;
}

/*
 * Fills in the value of range `cur`, which ends at point j. What followed the range before it that
 * ended there is mostly good, so it is tried first; then blocks that cannot beat it are passed by.
 */
static void solve_range(solver *s, uint32_t cur, uint32_t j, bool first)
{
    const part_table *t = s->table;
    const uint32_t begin = t->row[j];
    if (begin == t->row[j + 1]) {
        s->values[cur] = (value){.next = NOWHERE};
        return;
    }
    const bound b = bound_of(s, cur, j, first);
    uint32_t limit = row_limit(s, cur, j, s->room_bytes);
    value best = {.next = NOWHERE};
    const uint32_t longest = t->row[j + 1] - 1;
    if (longest >= limit && s->values[longest].next == END)
        try_pair(s, cur, longest, first, &best);
    if (s->hints[j] < limit)
        try_pair(s, cur, s->hints[j], first, &best);
    if (s->goal == PART_GOAL_MEMORY && best.next != NOWHERE)
        limit = row_limit(s, cur, j, (uint64_t)best.score.key - 1);
    for (uint32_t at = begin; at < limit; at += BLOCK) {
        const block *k = &s->blocks[s->row_blocks[j] + (at - begin) / BLOCK];
        if (hopeless_block(s, &b, k, at, &best))
            continue;
        for (uint32_t next = at; next < at + BLOCK && next < limit; next++) {
            const value *v = &s->values[next];
            if (v->next != NOWHERE && !hopeless(s, &b, &v->score, next, &best))
                try_pair(s, cur, next, first, &best);
        }
    }
    s->values[cur] = best;
    if (best.next != NOWHERE)
        s->hints[j] = best.next;
}

/* An END range completes the graph; its own visit is what is left to pay. */
static part_score end_score(const solver *s, uint32_t cur)
{
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    return (part_score){.key = time ? part_turn_ps(&s->times[cur]) : 0, .n = 1};
}

/* What a pair with this range behind waits for in each place, when the range in front gives
 * nothing: never more than in part_pair_ps(). */
static void add_to_block(const solver *s, block *k, uint32_t range)
{
    const part_times *t = &s->times[range];
    const value *v = &s->values[range];
    int64_t forward = t->load, leaving = t->spill;
    int64_t coming = v->next == END ? INT64_MIN / 4 : t->back_in - t->bwd;
    int64_t *with_update = s->setting->clip ? &forward : &leaving;
    *with_update = t->update > *with_update ? t->update : *with_update;
    for (int set = 0; set < SETS; set++) {
        int64_t sum = v->score.key;
        sum += set & FORWARD ? forward : 0;
        sum += set & LEAVING ? leaving : 0;
        sum += set & COMING ? coming : 0;
        if (k->behind.n == 0 || sum < k->least[set])
            k->least[set] = sum;
    }
    if (k->behind.n == 0 || compare(&v->score, &k->behind) < 0)
        k->behind = v->score;
}

/* Fills the blocks of row i, whose ranges have their values. */
static void fill_blocks(solver *s, uint32_t i)
{
    const part_table *t = s->table;
    for (uint32_t cur = t->row[i]; cur < t->row[i + 1]; cur++)
        if (s->values[cur].next != NOWHERE)
            add_to_block(s, &s->blocks[s->row_blocks[i] + (cur - t->row[i]) / BLOCK], cur);
}

static void solve(solver *s)
{
    const part_table *t = s->table;
    uint32_t last_point = t->m->n_points - 1;
    for (uint32_t i = last_point; i-- > 0;) {
        for (uint32_t cur = t->row[i]; cur < t->row[i + 1]; cur++) {
            uint32_t j = i + 1 + (cur - t->row[i]);
            s->values[cur] = (value){.next = NOWHERE};
            if (alone_bytes(&t->ranges[cur]) > s->room_bytes)
                continue;
            if (j == last_point)
                s->values[cur] = (value){.score = end_score(s, cur), .next = END};
            else
                solve_range(s, cur, j, i == 0);
        }
        fill_blocks(s, i);
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

/* Times of all ranges, which are kept for as long as the setting has the same. */
ATOM_MUST static atom_status time_ranges(part_table *t, const part_setting *setting)
{
    const part_setting *had = &t->timed;
    if (t->times && had->micro_batches == setting->micro_batches && had->keep == setting->keep &&
        had->boundaries == setting->boundaries)
        return ATOM_OK;
    if (!t->times)
        t->times = atom_alloc(t->n_ranges, sizeof *t->times);
    if (!t->times)
        return atom_fail_memory("the partition search", t->n_ranges * sizeof *t->times);
    for (uint32_t i = 0; i < t->n_ranges; i++)
        t->times[i] = part_range_times(t->m, setting, &t->ranges[i]);
    t->timed = *setting;
    return ATOM_OK;
}

ATOM_MUST static atom_status open_blocks(solver *s)
{
    const part_table *t = s->table;
    const uint32_t n = t->m->n_points;
    uint32_t blocks = 0;
    s->row_blocks = atom_alloc(n, sizeof *s->row_blocks);
    s->hints = atom_alloc(n, sizeof *s->hints);
    if (!s->row_blocks || !s->hints)
        return atom_fail_memory("the partition search", n * sizeof *s->hints);
    for (uint32_t i = 0; i < n; i++) {
        s->row_blocks[i] = blocks;
        s->hints[i] = NOWHERE;
        blocks += (t->row[i + 1] - t->row[i] + BLOCK - 1) / BLOCK;
    }
    s->blocks = atom_alloc(blocks, sizeof *s->blocks);
    return s->blocks ? ATOM_OK
                     : atom_fail_memory("the partition search", blocks * sizeof *s->blocks);
}

atom_status part_dp(part_table *table, const part_setting *setting, part_goal goal,
                    uint64_t capacity_bytes, part_cuts *out, uint64_t *states)
{
    uint64_t fixed = part_fixed_bytes(table->m, setting);
    solver s = {.table = table, .setting = setting, .goal = goal};
    atom_status st = ATOM_OK;
    *out = (part_cuts){0};
    if (fixed >= capacity_bytes || table->n_ranges == 0)
        return ATOM_OK;
    s.room_bytes = capacity_bytes - fixed;
    ATOM_TRY_CLEAN(time_ranges(table, setting));
    s.times = table->times;
    s.values = atom_alloc(table->n_ranges, sizeof *s.values);
    if (!s.values)
        ATOM_TRY_CLEAN(
            atom_fail_memory("the partition search", table->n_ranges * sizeof *s.values));
    ATOM_TRY_CLEAN(open_blocks(&s));
    solve(&s);
    st = collect(&s, out);
    if (states)
        *states += s.states;
cleanup:
    atom_free(s.values);
    atom_free(s.row_blocks);
    atom_free(s.blocks);
    atom_free(s.hints);
    return st;
}
