/*
 * A bounded knapsack of few kinds of things and two limits, solved exactly. Internal to partition.
 *
 * Source: Martello and Toth, Knapsack Problems (1990), 3.6: branch and bound, with the bound of the
 * continuous relaxation.
 */
#ifndef PARTITION_KNAPSACK_H
#define PARTITION_KNAPSACK_H

#include <stdint.h>

enum { PART_SACK_LIMITS = 2, PART_SACK_STATES_MAX = 200000 };

/* Things that are alike. */
typedef struct part_thing {
    int64_t cost[PART_SACK_LIMITS]; /* of one; 0 and up */
    int64_t gain;                   /* of one; 1 and up */
    uint32_t n;                     /* how many there are */
    uint32_t taken;                 /* out: how many of them to take */
} part_thing;

/*
 * The choice of greatest gain whose costs stay within both limits. Things must be sorted, best ratio
 * of gain to cost first, by both costs at once; part_sack_sort() does that where the second cost is a
 * rising function of the first and the gain. Returns the gain. After PART_SACK_STATES_MAX states the
 * best choice so far is taken, which is never worse than the greedy one.
 */
int64_t part_sack(part_thing *things, uint32_t n, const int64_t limit[PART_SACK_LIMITS]);
void part_sack_sort(part_thing *things, uint32_t n);

#endif
