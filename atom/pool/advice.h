/*
 * How members of a pool should average, chosen from the model's size and the link, with the reason
 * (docs/design/pool.md#what-the-user-sees: H = 20 for small models and 100 from 1B, F = 8, T = 10
 * min). A setting that was given is kept; the rest follows from
 *
 *   a sync    moves V = encoded bytes of all weights, V (1 + (n - 2) / n) per member and direction
 *             (shares.h), at the lesser of its two rates
 *   H steps   take H x tokens of a step / tokens per second of one member
 *
 * A sync is hidden where it takes no longer than the H steps beside which it runs: members train
 * on meanwhile. Where it is not, weights are averaged less often than asked (with gradients: the
 * trainer waits). So H is raised to the next of a few that hides it; beyond 500 steps nobody has
 * shown that averaging still keeps up (DiLoCo, Figure 4), so that is where raising ends, and the
 * text says which H it would take.
 *
 * A run of fewer than fifty averages is warned of.
 *
 * Steps of a member's own learn less from the same tokens than one trainer's (the study in
 * docs/measurements), summed gradients do not: so for the former the text says from what global
 * batch on the link carries the latter.
 *
 * Pure: no clock, no files. Thread: any. Errors: none.
 */
#ifndef ATOM_POOL_ADVICE_H
#define ATOM_POOL_ADVICE_H

#include "atom/pool/learns.h"
#include "atom/pool/settings.h"
#include "atom/pool/ways.h"

enum { POOL_CASES_MAX = 16, POOL_WHY_BYTES = 320, POOL_WHYS = 12 };

typedef struct pool_facts {
    uint64_t floats;      /* that are averaged */
    uint64_t step_tokens; /* of one member's step; with gradients of all members' together */
    double tokens_per_s;  /* of one member; 0: unknown */
    uint64_t up_bytes_per_s, down_bytes_per_s; /* of its link; 0: unknown, see assumed */
    uint32_t members;                          /* that are reckoned with; below 2: 8 */
} pool_facts;

/* What was said; the rest may be chosen. */
typedef struct pool_said {
    bool sync_steps, codec, due_seconds, global_batch_size;
} pool_said;

typedef struct pool_case {
    int32_t codec; /* gsp_codec */
    int64_t sync_steps;
    double sync_seconds;  /* moving all weights once */
    double steps_seconds; /* H steps, 0: unknown */
    double waits;         /* share of the time in which a sync that is due waits for the link (with
                             gradients:         in which the trainer does), 0 .. 1 */
    bool chosen;
} pool_case;

typedef struct pool_advice {
    int64_t sync_steps;
    int32_t codec;
    double due_seconds;
    bool assumed; /* the link is not known: POOL_ASSUMED_MBIT up and down */
    bool hidden;
    pool_case chosen;
    uint32_t n_cases; /* alternatives, the chosen one among them */
    pool_case cases[POOL_CASES_MAX];
    uint32_t n_why; /* sentences for people */
    char why[POOL_WHYS][POOL_WHY_BYTES];
    pool_ways ways;      /* filled by pool_advise_ways */
    pool_learns expects; /* filled by pool_advise_loss */
} pool_advice;

#define POOL_ASSUMED_MBIT 20.0

/* "1.5 s", "12 min"; "124M", "1.1B". Return buf. */
enum { POOL_FIGURE_BYTES = 32 };
const char *pool_seconds_text(double seconds, char buf[POOL_FIGURE_BYTES]);
const char *pool_count_text(double count, char buf[POOL_FIGURE_BYTES]);

/* settings: as they are with what was said and plain defaults. */
void pool_advise(const pool_settings *settings, const pool_said *said, const pool_facts *facts,
                 pool_advice *out);
/* Prices both ways of training together for members as `advice` was given for, and says which is the
 * quicker; the pool's own way travels as it was chosen, the other as int8. pace: of this host; where
 * it is not known nothing is said. ATOM_E_RESOURCE */
typedef struct pool_pace {
    double micro_tokens, micro_seconds, update_seconds, apart_seconds; /* ways.h */
} pool_pace;
ATOM_MUST atom_status pool_advise_ways(const pool_settings *settings, const pool_facts *facts,
                                       const pool_pace *pace, pool_advice *advice);
/* Says what loss to expect beside one trainer that has as many tokens, or that nobody measured it. */
typedef struct pool_learner {
    bool muon, adapters;
} pool_learner;
void pool_advise_loss(const pool_settings *settings, const pool_facts *facts,
                      const pool_learner *learner, pool_advice *advice);
/* Takes what was chosen over. */
void pool_advice_follow(const pool_advice *advice, pool_settings *settings);

#endif
