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
 * leaves it, and for the first range to come back. In one of the first two it may wait for an update
 * instead. Each wait is at least 0, and at least what the second range takes there less what the
 * first one gives; so for every choice among these there is a sum over the second range alone whose
 * minimum bounds all of a block at once.
 */
enum { BLOCK = 16, CHOICES = 12, LOOK_BACK = 16 };

/* What one of the two ranges adds to each wait. */
typedef struct waits {
    int64_t no_load, load, no_spill, spill, update, no_return, back;
} waits;

typedef struct block {
    part_score behind;      /* the least of them; n is 0 where none has a completion */
    int64_t least[CHOICES]; /* with what is behind */
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
    block *rows; /* the same of whole rows */
    uint32_t
        *front; /* per row, from t->row[i]: its ranges that are worth going on with, ascending */
    uint32_t *n_front; /* per row */
    uint32_t *hints;   /* per row, the range that was chosen from it last, or NOWHERE */
    uint32_t *limits;  /* per row, the last row_limit() */
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
        return part_range_least_ps(&s->times[cur], first) +
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
 * that ends the graph, which need not stash. Mostly that is close to what it was for the range before
 * that ended there, so the search begins at that with steps that double. */
static uint32_t row_limit(solver *s, uint32_t cur, uint32_t j, uint64_t room_bytes)
{
    const part_range *ranges = s->table->ranges, *a = &ranges[cur];
    const uint32_t *front = s->front + s->table->row[j];
    uint32_t low = 0, high = s->n_front[j], at = s->limits[j];
    for (uint32_t step = 1; low < high; step *= 2) {
        uint32_t middle = at > low ? at - 1 : low;
        bool fits = part_pair_rising_bytes(s->setting, a, &ranges[front[middle]]) <= room_bytes;
        if (fits)
            low = middle + 1;
        else
            high = middle;
        if (low >= high)
            break;
        if (fits)
            at = high - low > step ? low + step : low + (high - low + 1) / 2;
        else
            at = high - low > step ? high - step + 1 : low + (high - low + 1) / 2;
    }
    s->limits[j] = low;
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
    int64_t given[CHOICES];
} bound;

/* `base` and one sum for each choice. */
static void choose(const solver *s, int64_t base, const waits *w, int64_t out[CHOICES])
{
    const bool clip = s->setting->clip; /* updates are waited for in forward, else in backward */
    const int64_t sums[] = {w->no_load + w->no_spill,
                            w->load + w->no_spill,
                            w->no_load + w->spill,
                            w->load + w->spill,
                            w->update + (clip ? w->no_spill : w->no_load),
                            w->update + (clip ? w->spill : w->load)};
    for (int i = 0; i < CHOICES / 2; i++) {
        out[2 * i] = base + sums[i] + w->no_return;
        out[2 * i + 1] = base + sums[i] + w->back;
    }
}

static void bound_of(const solver *s, uint32_t cur, uint32_t j, bool first, bound *b)
{
    const part_times *t = &s->times[cur];
    b->boundary_bytes = s->table->m->boundary_bytes[s->table->ranges[cur].last];
    b->floor = least(s, cur, b->boundary_bytes, first);
    if (s->goal != PART_GOAL_HIDDEN && s->goal != PART_GOAL_TIME)
        return;
    /* What crosses to the ranges of row j is the same for all of them, and where the range waits for
     * its own stashes, it does so whatever comes next. */
    b->floor += s->times[s->table->row[j]].crossing;
    const waits w = {.no_load = t->y_out > t->fwd ? t->y_out - t->fwd : 0,
                     .load = t->x_in - t->fwd,
                     .no_spill = t->x_out > t->bwd ? t->x_out - t->bwd : 0,
                     .spill = t->x_out - t->bwd,
                     .update = s->setting->clip ? -t->fwd : -t->bwd,
                     .back = t->load_both};
    choose(s, b->floor, &w, b->given);
    b->floor = b->given[0];
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
    if (hopeless(s, b, &k->behind, at, best))
        return true;
    for (int i = 1; i < CHOICES && time && best->next != NOWHERE; i++)
        if (k->least[i] + b->given[i] > best->score.key)
            return true;
    return false;
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
    const waits w = {
        .load = t->load, .spill = t->spill, .update = t->update, .back = t->back_in - t->bwd};
    int64_t sums[CHOICES];
    choose(s, v->score.key, &w, sums);
    for (int i = 0; i < CHOICES; i++)
        if (k->behind.n == 0 || sums[i] < k->least[i])
            k->least[i] = sums[i];
    if (k->behind.n == 0 || compare(&v->score, &k->behind) < 0)
        k->behind = v->score;
}

/*
 * Is going on with range `a` at least as good as with the longer range b of the same row, whatever
 * came before? It takes no more memory and no longer to load, spill or update; the one thing that it
 * may take longer for is to come back while it computes.
 */
static bool dominates(const solver *s, uint32_t a, uint32_t b, const part_score *score)
{
    const part_range *x = &s->table->ranges[a], *y = &s->table->ranges[b];
    part_score shorter = s->values[a].score;
    uint64_t more = x->scratch_bytes > y->scratch_bytes ? x->scratch_bytes - y->scratch_bytes : 0;
    if (x->slot_bytes + x->own_bytes + more > y->slot_bytes + y->own_bytes)
        return false;
    if (s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME) {
        const part_times *tx = &s->times[a], *ty = &s->times[b];
        int64_t later = tx->back_in - tx->bwd - (ty->back_in - ty->bwd);
        if (later > 0 && s->goal == PART_GOAL_HIDDEN)
            return false;
        shorter.key += later > 0 ? later : 0;
    }
    return compare(&shorter, score) <= 0;
}

/* Does a range of row i that is listed already dominate `cur`, whose score is no less than `score`? */
static bool dominated(const solver *s, uint32_t i, uint32_t cur, const part_score *score)
{
    const uint32_t *front = s->front + s->table->row[i];
    uint32_t n = s->n_front[i], least = n > LOOK_BACK ? n - LOOK_BACK : 0;
    while (n-- > least)
        if (dominates(s, front[n], cur, score))
            return true;
    return false;
}

/* What the value of `cur`, which ends at point j, is at least. */
static part_score least_score(const solver *s, const bound *b, uint32_t j)
{
    const block *all = &s->rows[j];
    part_score score = with(s, b->floor, b->boundary_bytes, &all->behind);
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    for (int i = 1; i < CHOICES && time; i++)
        if (all->least[i] + b->given[i] > score.key)
            score = (part_score){.key = all->least[i] + b->given[i]};
    return score;
}

/* Lists a range of row i that is worth going on with. */
static void list(solver *s, uint32_t i, uint32_t cur)
{
    const uint32_t n = s->n_front[i]++;
    s->front[s->table->row[i] + n] = cur;
    add_to_block(s, &s->blocks[s->row_blocks[i] + n / BLOCK], cur);
    add_to_block(s, &s->rows[i], cur);
}

/*
 * Fills in the value of range `cur`, which ends at point j. What followed the range before it that
 * ended there is mostly good, so it is tried first; then blocks that cannot beat it are passed by.
 */
static void solve_range(solver *s, uint32_t i, uint32_t cur, uint32_t j)
{
    const bool first = i == 0;
    const part_table *t = s->table;
    const uint32_t *front = s->front + t->row[j];
    value best = {.next = NOWHERE};
    if (t->row[j] == t->row[j + 1])
        return;
    bound b;
    bound_of(s, cur, j, first, &b);
    const uint32_t longest = t->row[j + 1] - 1;
    bool ends = s->values[longest].next == END;
    if (!ends) {
        part_score score = least_score(s, &b, j);
        if (s->n_front[j] == 0 || dominated(s, i, cur, &score))
            return;
    }
    uint32_t limit = row_limit(s, cur, j, s->room_bytes);
    if (ends)
        try_pair(s, cur, longest, first, &best);
    if (s->hints[j] < limit)
        try_pair(s, cur, front[s->hints[j]], first, &best);
    else if (limit > 0)
        try_pair(s, cur, front[limit - 1], first, &best);
    if (s->goal == PART_GOAL_MEMORY && best.next != NOWHERE)
        limit = row_limit(s, cur, j, (uint64_t)best.score.key - 1);
    for (uint32_t at = 0; at < limit; at += BLOCK) {
        const block *k = &s->blocks[s->row_blocks[j] + at / BLOCK];
        if (hopeless_block(s, &b, k, front[at], &best))
            continue;
        for (uint32_t f = at; f < at + BLOCK && f < limit; f++) {
            if (hopeless(s, &b, &s->values[front[f]].score, front[f], &best))
                continue;
            try_pair(s, cur, front[f], first, &best);
            if (best.next == front[f])
                s->hints[j] = f;
        }
    }
    s->values[cur] = best;
    if (best.next != NOWHERE && !dominated(s, i, cur, &best.score))
        list(s, i, cur);
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
                solve_range(s, i, cur, j);
        }
        s->limits[i] = s->n_front[i];
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
    s->limits = atom_alloc(n, sizeof *s->limits);
    s->n_front = atom_alloc(n, sizeof *s->n_front);
    s->front = atom_alloc(t->n_ranges, sizeof *s->front);
    if (!s->row_blocks || !s->hints || !s->limits || !s->n_front || !s->front)
        return atom_fail_memory("the partition search", n * sizeof *s->hints);
    for (uint32_t i = 0; i < n; i++) {
        s->row_blocks[i] = blocks;
        s->hints[i] = NOWHERE;
        blocks += (t->row[i + 1] - t->row[i] + BLOCK - 1) / BLOCK;
    }
    s->rows = atom_alloc(n, sizeof *s->rows);
    if (!s->rows)
        return atom_fail_memory("the partition search", n * sizeof *s->rows);
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
    atom_free(s.limits);
    atom_free(s.rows);
    atom_free(s.n_front);
    atom_free(s.front);
    return st;
}
