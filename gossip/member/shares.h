/*
 * Who owns which part of a butterfly all-reduce (docs/design/pool.md#agreement): shares by measured
 * rates.
 *
 * A peer that owns the share s of V bytes sends V (1 - s) to other owners and V s (n - 1) back to
 * the others, V (1 + s (n - 2)) in all, and receives as much. With r the lesser of its two rates,
 * water-filling gives every owner the same end: s = (t r - 1) / (n - 2) where that is positive,
 * with t such that the shares sum to 1. A slow peer owns nothing and still has to move V.
 *
 * Thread: any. Errors: none.
 */
#ifndef GOSSIP_MEMBER_SHARES_H
#define GOSSIP_MEMBER_SHARES_H

#include "gossip/agree/types.h"

/* share[n] of each peer, sum 1; 0 for those that are not `able` (they cannot be reached). Unknown
 * rates count as the lowest known. False when nobody is able. */
bool gsp_shares_fill(const gsp_rates *rates, const bool *able, uint32_t n, double *share);

/* Seconds that moving V bytes takes with these shares, by the formula above. */
double gsp_shares_seconds(const gsp_rates *rates, uint32_t n, const double *share, double bytes);

/* owner[n_parts]: shares rounded to whole parts by largest remainder, ties to the lower index;
 * everybody's parts are spread evenly over the fragment. GSP_NOBODY when nobody is able. Fits
 * gsp_rules.assign (agree.h); context is not used. */
void gsp_shares_assign(void *context, const gsp_rates *rates, const bool *able, uint32_t n,
                       uint32_t n_parts, uint8_t *owner);

/*
 * How fast to send to each of n peers so that all are done together: `rate` shared in proportion to
 * left[] (> 0), none above its most[] (0: no bound); what those leave goes to the others.
 */
void gsp_shares_pace(const double *left, const double *most, uint32_t n, double rate, double *pace);

#endif
