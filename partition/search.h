/*
 * The search's engine: dynamic programming over (current range, next range). Internal to partition.
 *
 * A state is a range [a, b); its value is the best way to go on from b, given that [a, b) came
 * before. Going on means to choose the next range [b, c): the predicate (memory fits, copies are
 * hidden) and the price look at the two ranges only, so each pair is looked at once. That explores
 * exactly the partitions which Algorithm 1 enumerates one by one.
 *
 * Source: ATOM III-D, Algorithm 1; docs/design/engine.md#the-search.
 */
#ifndef PARTITION_SEARCH_H
#define PARTITION_SEARCH_H

#include "partition/model.h"

/* Where the sub-models of a partition end; owned by the table. */
enum { PART_KNOWN_MAX = 8 };
typedef struct part_known {
    int32_t *ends;
    uint32_t n;
} part_known;

/* All ranges between points that could fit into capacity_bytes, row by row (one row per first
 * point). */
typedef struct part_table {
    const part_model *m;
    uint64_t capacity_bytes;
    uint32_t *row; /* n_points + 1: ranges row[i] .. row[i+1] start at point i and end at points
                      i + 1, i + 2, ... */
    part_range *ranges;
    uint32_t n_ranges;
    part_times *times; /* of the ranges under `timed`, those whose stamp is `stamp` */
    uint32_t *stamps, stamp;
    int64_t *before;  /* n_points: what any partition takes at least in front of a point */
    int64_t *compute; /* n_points: of that, what computing takes, and no more than that */
    part_setting timed;
    uint32_t n_known; /* partitions that searches found; the newest PART_KNOWN_MAX are kept */
    part_known known[PART_KNOWN_MAX];
    void *work; /* what part_dp() computes with, kept for its next call; owned, as all here */
} part_table;
ATOM_MUST atom_status part_table_open(const part_model *m, uint64_t capacity_bytes,
                                      part_table **out);
void part_table_close(part_table **table);
/* The part of a range's memory that grows with it. */
static inline uint64_t part_alone_bytes(const part_range *r)
{
    return r->slot_bytes + r->grad_bytes + r->own_bytes + r->kept_bytes;
}

typedef enum part_goal {
    PART_GOAL_HIDDEN, /* least time among plans that hide everything */
    PART_GOAL_TIME,   /* least time, stalls priced in */
    PART_GOAL_MEMORY, /* least memory of the largest pair */
    PART_GOAL_CUT     /* least bytes cut */
} part_goal;

/* Better plans compare lower: by time (or what the goal is about), then by sub-models, then by
 * bytes cut. What is still equal is decided by the first cut that differs: the smaller wins. */
typedef struct part_score {
    int64_t key; /* ps or bytes, by goal */
    uint32_t n;  /* sub-models */
    uint64_t cut_bytes;
} part_score;

typedef struct part_cuts {
    uint32_t n;    /* sub-models; 0: nothing satisfies the predicate */
    int32_t *ends; /* n node indices: where each ends; owned, freed by part_cuts_close */
    part_score score;
} part_cuts;
void part_cuts_close(part_cuts *cuts);
/* Makes ready for times under the setting: fills in before and compute. */
ATOM_MUST atom_status part_table_time(part_table *table, const part_setting *setting);
/* Times of a range under that setting. Most ranges are never looked at, so it is worked out here. */
static inline const part_times *part_times_at(part_table *t, uint32_t range)
{
    if (t->stamps[range] != t->stamp) {
        t->times[range] = part_range_times(t->m, &t->timed, &t->ranges[range]);
        t->stamps[range] = t->stamp;
    }
    return &t->times[range];
}

/* bounds.c: fills in before and compute, from the times. */
void part_bounds_fill(part_table *table, const part_setting *setting);
/* The least bytes that any cut crosses; and what that takes of the device, whatever two neighbours. */
uint64_t part_narrowest_bytes(const part_model *m);
uint64_t part_crossing_bytes(const part_model *m, const part_setting *setting);
/* What cuts cost at least, beside what t->before says: cut[i], one at point i, by what crosses it;
 * cuts[i], that and all those in front of it that memory asks for (INT64_MAX: no partition has a cut
 * there). n_points each. */
ATOM_MUST atom_status part_bounds_cuts(const part_table *t, const part_setting *setting,
                                       uint64_t room_bytes, int64_t *cut, int64_t *cuts);

/* known.c: keeps a copy of the cuts, by which later searches know what is too slow. */
ATOM_MUST atom_status part_table_know(part_table *table, const part_cuts *cuts);
/* The least that one of those takes under this setting, which the table is timed for; INT64_MAX: none
 * satisfies the predicate. */
int64_t part_known_least(part_table *table, const part_setting *setting, part_goal goal,
                         uint64_t room_bytes);

/*
 * Best partition into two or more sub-models with fixed + pair <= capacity for every pair. Ties in
 * the score go to the smaller first cut. For the goal MEMORY only score.key is optimal. quick, for the
 * goals of time and CUT: the best of those that cut only where the least crosses, where there is one: mostly
 * the best of all, and found in a tenth of the time. states, if not NULL, grows by the pairs looked at.
 */
ATOM_MUST atom_status part_dp(part_table *table, const part_setting *setting, part_goal goal,
                              uint64_t capacity_bytes, bool quick, part_cuts *out,
                              uint64_t *states);

#endif
