/*
 * Owns what own steps are expected to cost. One idea: one power law for each optimizer, in parameters,
 * members and H, and a factor that holds all points it was fitted to. Refuses to speak of what lies
 * beyond those points.
 */
#include "atom/pool/learns.h"

#include <math.h>
#include <stddef.h>

/* docs/measurements/2026-11-24-own-steps.md, 2026-11-27-own-steps.md and 2026-11-28-own-steps.md have the
 * points. */
typedef struct law {
    double floats_min, floats_max; /* of the points, and a third more on either side */
    double behind;                 /* of a million parameters, two members, H = 20 */
    double floats, members, steps; /* exponents of N, M - 1 and H */
    double spread;                 /* the points are at most this factor away */
    double dense;                  /* what is left of it after a tenth of dense steps */
} law;

static const law ADAMW = {.floats_min = 0.3e6,
                          .floats_max = 3.2e9,
                          .behind = 0.0178,
                          .floats = -0.297,
                          .members = 0.867,
                          .steps = 0.14,
                          .spread = 1.7,
                          .dense = 0.66};
static const law MUON = {.floats_min = 0.3e6,
                         .floats_max = 3.9e6,
                         .behind = 0.122,
                         .floats = 0.44, /* the larger model had larger batches, too */
                         .members = 0.22,
                         .steps = 0.3,
                         .spread = 1.7,
                         .dense = 0.63};

enum { MEMBERS_MIN = 2, MEMBERS_MAX = 8, STEPS_MIN = 5, STEPS_MAX = 50 };
/* With Muon and dense steps. */
enum { MUON_DENSE_MEMBERS_MAX = 16, MUON_DENSE_STEPS_MAX = 100 };
/* With a smaller H an outer momentum makes a difference, to all but many members. */
enum { MOMENTUM_STEPS_MIN = 20, MOMENTUM_MEMBERS_MIN = 8 };
/* The plain mean of members that step by Muon behind dense steps was measured with these and MUON_SWEPT; two
 * members lose less than the law says. */
enum { PLAIN_MEMBERS_MIN = 4, PLAIN_MEMBERS_MAX = 8, PLAIN_STEPS_MAX = 20 };
static const double MUON_SWEPT = 0.6e6; /* parameters; beyond, few things were varied */
enum { MUON_STEPS_MAX = 20 };
static const double DENSE_MIN = 0.05,
                    DENSE_MAX = 0.2; /* shares that one measurement may speak for */

static bool is_wide(const pool_learns_facts *f)
{
    return f->muon && f->dense > 0;
}

static const char *unknown(const pool_learns_facts *f, const law *of)
{
    const bool wide = is_wide(f);
    if ((double)f->floats < of->floats_min || (double)f->floats > of->floats_max)
        return f->muon ? "averaged weights with Muon were measured only with 0.45M to 2.9M "
                         "parameters"
                       : "averaged weights were measured only with 0.45M to 2.4B parameters";
    if (f->members < MEMBERS_MIN || f->members > (wide ? MUON_DENSE_MEMBERS_MAX : MEMBERS_MAX))
        return wide ? "averaged weights were measured only with 2 to 16 members"
                    : "averaged weights were measured only with 2 to 8 members, and with up to 16 "
                      "only where they step by Muon behind dense steps";
    if (f->sync_steps < STEPS_MIN || f->sync_steps > (wide ? MUON_DENSE_STEPS_MAX : STEPS_MAX))
        return wide ? "averaged weights were measured only with H from 5 to 100"
                    : "averaged weights were measured only with H from 5 to 50, and up to 100 only "
                      "where members step by Muon behind dense steps";
    if (f->muon && (double)f->floats > MUON_SWEPT &&
        (f->members != MEMBERS_MAX || f->dense == 0 || f->sync_steps > MUON_STEPS_MAX))
        return "averaged weights with Muon and more than 0.6M parameters were measured only with 8 "
               "members, H from 5 to 20 and dense steps";
    if (f->sync_steps < MOMENTUM_STEPS_MIN && f->momentum &&
        (!wide || f->members < MOMENTUM_MEMBERS_MIN))
        return "an outer momentum with H below 20 loses more than can be estimated (with H = 5 and "
               "Muon four members lost 8.5 % with it and 2.9 % without, two 10 and 1.3 %)";
    if (wide && !f->momentum && f->members < PLAIN_MEMBERS_MIN)
        return "fewer than four members that step by Muon behind dense steps lose less with the "
               "plain mean than can be estimated (two lost 1.3 % with H = 5, 2.4 % with H = 20)";
    if (wide && !f->momentum &&
        (f->members > PLAIN_MEMBERS_MAX || f->sync_steps > PLAIN_STEPS_MAX ||
         (double)f->floats > MUON_SWEPT))
        return "the plain mean of members that step by Muon behind dense steps was measured only "
               "with 0.45M parameters, 4 to 8 members and H from 5 to 20";
    if (f->dense > 0 && (f->dense < DENSE_MIN || f->dense > DENSE_MAX))
        return "dense steps were measured only as a tenth of all steps";
    return NULL;
}

pool_learns pool_learns_expect(const pool_learns_facts *f)
{
    const law *of = f->muon ? &MUON : &ADAMW;
    const char *why = unknown(f, of);
    if (why)
        return (pool_learns){.why = why};
    double behind = of->behind * pow((double)f->floats * 1e-6, of->floats) *
                    pow((double)f->members - 1, of->members) *
                    pow((double)f->sync_steps / 20, of->steps) * (f->dense > 0 ? of->dense : 1);
    return (pool_learns){.known = true,
                         .behind = behind,
                         .low = behind / of->spread,
                         .high = behind * of->spread,
                         .members = is_wide(f) ? MUON_DENSE_MEMBERS_MAX : MEMBERS_MAX};
}
