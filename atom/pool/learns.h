/*
 * How much higher the loss of a pool is when each member makes its own steps, compared with one trainer
 * that has the same tokens and the same optimizer. It is a fit to what was measured and published, with
 * the distance of those points from it (docs/measurements/2026-11-24-own-steps.md, 2026-11-27-own-steps.md,
 * 2026-11-28-own-steps.md). Where nothing was measured, it says so.
 *
 * Pure. Thread: any. Errors: none.
 */
#ifndef ATOM_POOL_LEARNS_H
#define ATOM_POOL_LEARNS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pool_learns_facts {
    uint64_t floats;    /* that are trained */
    uint32_t members;   /* 2 and more */
    int64_t sync_steps; /* H */
    bool muon;          /* the members' steps; else AdamW */
    bool momentum;      /* of the outer step */
    double dense;       /* share of the steps that comes first with summed gradients, 0 .. 1 */
} pool_learns_facts;

typedef struct pool_learns {
    bool known;
    double behind, low,
        high;         /* of the loss: 0.03 is 3 % behind; all points lie between the last two */
    uint32_t members; /* up to so many were measured */
    const char *why;  /* not known: what was not measured */
} pool_learns;

pool_learns pool_learns_expect(const pool_learns_facts *facts);

#endif
