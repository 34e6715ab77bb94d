/*
 * Owns the dynamic programming over pairs of neighbouring ranges. One idea: solve backwards from
 * the end of the graph, so that the value of a range is the best completion behind it and the first
 * of equal completions is the lexicographically first. Refuses approximations: cuts are exact for
 * the model it is given.
 */
#include "partition/search.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <string.h>

/* Best completion behind a range. */
typedef struct value {
    part_score score;
    uint32_t next; /* index of the next range; NOWHERE: no completion; END: it ends the graph */
} value;

enum { NOWHERE = UINT32_MAX, END = UINT32_MAX - 1 };

/* No partition goes on from a point. */
static const int64_t NOTHING = -1;

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
    part_table *table; /* timed for the setting */
    const part_setting *setting;
    part_goal goal;
    uint64_t room_bytes; /* capacity without what is fixed */
    value *values;
    uint32_t *row_blocks; /* per row, its first block */
    uint32_t n_blocks;
    block *blocks;
    block *rows; /* the same of whole rows */
    /* Per row, from t->row[i]: its ranges that are worth going on with, ascending. */
    uint32_t *front;
    uint32_t *n_front; /* per row */
    uint32_t *hints;   /* per row, the range that was chosen from it last, or NOWHERE */
    uint32_t *limits;  /* per row, the last row_limit() */
    int64_t *behind;   /* per point, least_behind() */
    int64_t *cut;      /* per point, what a cut there costs at least */
    int64_t *cuts;     /* per point, what cuts up to there cost at least; see part_bounds_cuts() */
    int64_t enough;    /* a partition that takes this long is known; INT64_MAX: none is */
    uint64_t widest;   /* bytes: only cuts that no more crosses are looked at */
    uint64_t states;
} solver;

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
        return part_range_least_ps(part_times_at(s->table, cur), first) +
               s->setting->cut_price * (int64_t)(boundary_bytes / 1024);
    case PART_GOAL_CUT:
        return (int64_t)boundary_bytes;
    case PART_GOAL_MEMORY:
        return (int64_t)part_alone_bytes(&s->table->ranges[cur]);
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
    bool last = s->values[next].next == END;
    uint64_t bytes = part_pair_bytes(s->setting, a, b, last);
    const part_times *ta, *tb;
    if (bytes > s->room_bytes)
        return false;
    switch (s->goal) {
    case PART_GOAL_HIDDEN:
    case PART_GOAL_TIME:
        ta = part_times_at(s->table, cur);
        tb = part_times_at(s->table, next);
        if (s->goal == PART_GOAL_HIDDEN && !part_pair_hides(ta, tb, last))
            return false;
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

/* Looks at the pair (cur, next); *best becomes the better one. With no range in it yet, its key is the
 * most that is worth having. */
static void try_pair(solver *s, uint32_t cur, uint32_t next, bool first, value *best)
{
    int64_t key;
    s->states++;
    if (!pair_cost(s, cur, next, first, &key))
        return;
    uint64_t boundary_bytes = s->table->ranges[next].x_bytes;
    part_score score = with(s, key, boundary_bytes, &s->values[next].score);
    if (best->next == NOWHERE && score.key > best->score.key)
        return;
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
    b->boundary_bytes = s->table->m->boundary_bytes[s->table->ranges[cur].last];
    b->floor = least(s, cur, b->boundary_bytes, first);
    if (s->goal != PART_GOAL_HIDDEN && s->goal != PART_GOAL_TIME)
        return;
    const part_times *t = part_times_at(s->table, cur);
    /* What crosses to the ranges of row j is the same for all of them, and where the range waits for
     * its own stashes, it does so whatever comes next. */
    b->floor += part_times_at(s->table, s->table->row[j])->crossing;
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
    part_score score = with(s, b->floor, b->boundary_bytes, behind);
    if (best->next == NOWHERE)
        return score.key > best->score.key;
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
    for (int i = 1; i < CHOICES && time; i++)
        if (k->least[i] + b->given[i] > best->score.key)
            return true;
    return false;
}

/* An END range completes the graph; its own visit is what is left to pay. */
static part_score end_score(const solver *s, uint32_t cur)
{
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    return (part_score){.key = time ? part_turn_ps(part_times_at(s->table, cur)) : 0, .n = 1};
}

/* What a pair with this range behind waits for in each place, when the range in front gives
 * nothing: never more than in part_pair_ps(). */
static void add_to_block(const solver *s, block *k, uint32_t range)
{
    const value *v = &s->values[range];
    int64_t sums[CHOICES] = {0};
    if (s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME) {
        const part_times *t = part_times_at(s->table, range);
        const waits w = {
            .load = t->load, .spill = t->spill, .update = t->update, .back = t->back_in - t->bwd};
        choose(s, v->score.key, &w, sums);
    }
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
        const part_times *tx = part_times_at(s->table, a), *ty = part_times_at(s->table, b);
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

/* What the value of `cur`, which ends at point j, is at least; there is something behind it. `end`:
 * the range from j to the end of the graph, or NULL. */
static part_score least_score(const solver *s, const bound *b, uint32_t j, const value *end)
{
    const block *all = &s->rows[j];
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    part_score last = {0}, score = {0};
    if (end)
        last = with(s, b->floor, b->boundary_bytes, &end->score);
    if (s->n_front[j] == 0)
        return last;
    score = with(s, b->floor, b->boundary_bytes, &all->behind);
    for (int i = 1; i < CHOICES && time; i++)
        if (all->least[i] + b->given[i] > score.key)
            score = (part_score){.key = all->least[i] + b->given[i]};
    return end && compare(&last, &score) < 0 ? last : score;
}

/* What a range of row i may take at most, with all behind it, in a partition that is as good as the
 * one known. */
static int64_t ceiling(const solver *s, uint32_t i)
{
    const part_table *t = s->table;
    if (s->enough == INT64_MAX)
        return INT64_MAX;
    return s->cuts[i] < s->enough ? s->enough - t->before[i] - s->cuts[i] : NOTHING;
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
 * Fills in the value of range `cur` of row i, which ends at point j, if it is `most` at most. What
 * followed the range before it that ended there is mostly good, so it is tried first; then blocks
 * that cannot beat it are passed by.
 */
static void solve_range(solver *s, uint32_t i, uint32_t cur, uint32_t j, int64_t most)
{
    const bool first = i == 0;
    const part_table *t = s->table;
    const uint32_t *front = s->front + t->row[j];
    value best = {.score = {.key = most}, .next = NOWHERE};
    bound b;
    bound_of(s, cur, j, first, &b);
    const uint32_t longest = t->row[j + 1] - 1;
    bool ends = s->values[longest].next == END;
    part_score score = least_score(s, &b, j, ends ? &s->values[longest] : NULL);
    if (score.key > most || dominated(s, i, cur, &score))
        return;
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

/* What a range that ends at point i has to add at least, by all that was found behind the point. */
static int64_t least_behind(const solver *s, uint32_t i)
{
    const part_table *t = s->table;
    const value *longest = &s->values[t->row[i + 1] - 1];
    bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    int64_t least = NOTHING;
    if (longest->next == END)
        least = longest->score.key;
    if (s->n_front[i] && (least == NOTHING || s->rows[i].behind.key < least))
        least = s->rows[i].behind.key;
    return least == NOTHING || !time ? least : least + s->cut[i];
}

/* Values of all ranges of row i. Those that cannot be worth it are passed by unseen: there are many
 * of them, and reading what is known of each is what takes the time. */
static void solve_row(solver *s, uint32_t i)
{
    const part_table *t = s->table;
    const uint32_t last_point = t->m->n_points - 1;
    const bool time = s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME;
    const int64_t most = ceiling(s, i);
    /* What is asked later about ranges that nobody lists: does the longest end the graph, and which
     * of the first row have a completion? */
    for (uint32_t cur = i ? t->row[i + 1] - 1 : 0; cur < t->row[i + 1]; cur++)
        s->values[cur].next = NOWHERE;
    for (uint32_t cur = t->row[i]; cur < t->row[i + 1]; cur++) {
        const uint32_t j = i + 1 + (cur - t->row[i]);
        if (j < last_point && s->behind[j] == NOTHING)
            continue;
        if (j < last_point && time && s->behind[j] > most - (t->compute[j] - t->compute[i]))
            continue;
        if (part_alone_bytes(&t->ranges[cur]) > s->room_bytes)
            break; /* longer ones need more */
        s->values[cur].next = NOWHERE;
        if (j == last_point)
            s->values[cur] = (value){.score = end_score(s, cur), .next = END};
        else
            solve_range(s, i, cur, j, most);
    }
    s->limits[i] = s->n_front[i];
    s->behind[i] = least_behind(s, i);
}

/* The best partition, of cuts that no more than `widest` crosses. */
static void solve(solver *s, uint64_t widest)
{
    const part_table *t = s->table;
    const uint32_t n = t->m->n_points;
    memset(s->blocks, 0, s->n_blocks * sizeof *s->blocks);
    memset(s->rows, 0, n * sizeof *s->rows);
    memset(s->n_front, 0, n * sizeof *s->n_front);
    memset(s->limits, 0, n * sizeof *s->limits);
    memset(s->hints, 0xff, n * sizeof *s->hints); /* NOWHERE */
    s->widest = widest;
    for (uint32_t i = t->m->n_points - 1; i-- > 0;) {
        bool narrow = t->m->boundary_bytes[t->m->points[i]] <= s->widest;
        if (t->row[i] == t->row[i + 1] || !narrow)
            s->behind[i] = NOTHING;
        else
            solve_row(s, i);
    }
}

/* The best first range; NOWHERE: there is none. */
static uint32_t best_first(const solver *s)
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
    return best;
}

/* The best first range, and the chain behind it. */
static atom_status collect(solver *s, part_cuts *out)
{
    uint32_t best = best_first(s);
    *out = (part_cuts){0};
    if (best == NOWHERE)
        return ATOM_OK;
    uint32_t n = s->values[best].score.n;
    out->ends = atom_alloc(n, sizeof *out->ends);
    if (!out->ends)
        return atom_fail_memory("a partition", n * sizeof *out->ends);
    out->score = s->values[best].score;
    for (uint32_t cur = best; out->n < n; cur = s->values[cur].next)
        out->ends[out->n++] = s->table->ranges[cur].last;
    return ATOM_OK;
}

/* Cuts that the least crosses are few and mostly good: what the best of them takes is known before all
 * are looked at. */
ATOM_MUST static atom_status solve_all(solver *s, bool quick)
{
    const uint64_t least = part_narrowest_bytes(s->table->m);
    s->enough = INT64_MAX;
    if (s->goal == PART_GOAL_HIDDEN || s->goal == PART_GOAL_TIME) {
        ATOM_TRY(part_bounds_cuts(s->table, s->setting, s->room_bytes, s->cut, s->cuts));
        s->enough = part_known_least(s->table, s->setting, s->goal, s->room_bytes);
        solve(s, least);
        uint32_t best = best_first(s);
        if (quick && best == NOWHERE && s->enough < INT64_MAX) {
            s->enough = INT64_MAX; /* one with other cuts is known and better */
            solve(s, least);
            best = best_first(s);
        }
        if (quick && best != NOWHERE)
            return ATOM_OK;
        if (best != NOWHERE && s->values[best].score.key < s->enough)
            s->enough = s->values[best].score.key;
    }
    if (quick && s->goal == PART_GOAL_CUT) {
        solve(s, least);
        if (best_first(s) != NOWHERE)
            return ATOM_OK;
    }
    solve(s, UINT64_MAX);
    return ATOM_OK;
}

void part_cuts_close(part_cuts *cuts)
{
    atom_free(cuts->ends);
    *cuts = (part_cuts){0};
}

/* Takes `count` things of `size` bytes from what is left of the table's memory; with no memory yet,
 * only counts. */
static void *carve(uint8_t *base, size_t *at, size_t count, size_t size)
{
    void *here = base ? base + *at : NULL;
    *at += (count * size + 63) / 64 * 64;
    return here;
}

static size_t carve_all(solver *s, uint8_t *base, uint32_t n_blocks)
{
    const size_t n = s->table->m->n_points, ranges = s->table->n_ranges;
    size_t at = 0;
    s->values = carve(base, &at, ranges, sizeof *s->values);
    s->front = carve(base, &at, ranges, sizeof *s->front);
    s->blocks = carve(base, &at, n_blocks, sizeof *s->blocks);
    s->rows = carve(base, &at, n, sizeof *s->rows);
    s->behind = carve(base, &at, n, sizeof *s->behind);
    s->row_blocks = carve(base, &at, n + 1, sizeof *s->row_blocks);
    s->cut = carve(base, &at, n, sizeof *s->cut);
    s->cuts = carve(base, &at, n, sizeof *s->cuts);
    s->hints = carve(base, &at, n, sizeof *s->hints);
    s->limits = carve(base, &at, n, sizeof *s->limits);
    s->n_front = carve(base, &at, n, sizeof *s->n_front);
    return at;
}

/* What the solver computes with. It is the same for all searches of a table, and costs more to ask
 * the system for than to use again. */
ATOM_MUST static atom_status open_work(solver *s, part_table *t)
{
    const uint32_t n = t->m->n_points;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < n; i++)
        blocks += (t->row[i + 1] - t->row[i] + BLOCK - 1) / BLOCK;
    const size_t bytes = carve_all(s, NULL, blocks);
    if (!t->work)
        t->work = atom_alloc(bytes, 1);
    if (!t->work)
        return atom_fail_memory("the partition search", bytes);
    carve_all(s, t->work, blocks);
    for (uint32_t i = 0, at = 0; i < n; i++) {
        s->row_blocks[i] = at;
        at += (t->row[i + 1] - t->row[i] + BLOCK - 1) / BLOCK;
    }
    s->n_blocks = blocks;
    return ATOM_OK;
}

atom_status part_dp(part_table *table, const part_setting *setting, part_goal goal,
                    uint64_t capacity_bytes, bool quick, part_cuts *out, uint64_t *states)
{
    uint64_t fixed = part_fixed_bytes(table->m, setting);
    solver s = {.table = table, .setting = setting, .goal = goal};
    *out = (part_cuts){0};
    if (fixed >= capacity_bytes || table->n_ranges == 0)
        return ATOM_OK;
    s.room_bytes = capacity_bytes - fixed;
    if (goal == PART_GOAL_HIDDEN || goal == PART_GOAL_TIME)
        ATOM_TRY(part_table_time(table, setting));
    ATOM_TRY(open_work(&s, table));
    ATOM_TRY(solve_all(&s, quick));
    ATOM_TRY(collect(&s, out));
    if (states)
        *states += s.states;
    atom_status st = out->n ? part_table_know(table, out) : ATOM_OK;
    if (st != ATOM_OK)
        part_cuts_close(out);
    return st;
}
