/*
 * Owns the division of a fragment among its reducers. Its one idea: drop the slowest until every
 * share that is left is positive; the owners that are left then end together. It refuses to guess:
 * an unknown rate counts as the lowest known one.
 */
#include "gossip/member/shares.h"

#include "atom/base/assert.h"
#include "gossip/net/net.h"

#include <string.h>

/* The lesser direction of each peer, > 0. */
static void rates_of(const gsp_rates *rates, uint32_t n, double *r)
{
    double least = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t up = rates[i].up_bytes_per_s, down = rates[i].down_bytes_per_s;
        r[i] = (double)(up < down ? up : down);
        if (r[i] > 0.0 && (least <= 0.0 || r[i] < least))
            least = r[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (r[i] <= 0.0)
            r[i] = least > 0.0 ? least : 1.0;
    }
}

/* t with all of `in` owning: sum (t r - 1) / (n - 2) = 1. */
static double level(const double *r, const bool *in, uint32_t n)
{
    double sum = 0.0, count = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += in[i] ? r[i] : 0.0;
        count += in[i] ? 1.0 : 0.0;
    }
    return (count + (double)n - 2.0) / sum;
}

/* Takes out the peers that would own less than nothing; true: there was one. */
static bool drop(const double *r, bool *in, uint32_t n, double t)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (in[i] && t * r[i] < 1.0) {
            in[i] = false;
            any = true;
        }
    }
    return any;
}

bool gsp_shares_fill(const gsp_rates *rates, const bool *able, uint32_t n, double *share)
{
    double r[GSP_MEMBERS_MAX], owners = 0.0;
    bool in[GSP_MEMBERS_MAX];
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX);
    rates_of(rates, n, r);
    for (uint32_t i = 0; i < n; i++) {
        in[i] = able[i];
        owners += able[i] ? 1.0 : 0.0;
    }
    if (owners < 1.0)
        return false;
    if (n <= 2) { /* each moves V whatever it owns */
        for (uint32_t i = 0; i < n; i++)
            share[i] = in[i] ? 1.0 / owners : 0.0;
        return true;
    }
    double t = level(r, in, n);
    while (drop(r, in, n, t))
        t = level(r, in, n);
    for (uint32_t i = 0; i < n; i++)
        share[i] = in[i] ? (t * r[i] - 1.0) / ((double)n - 2.0) : 0.0;
    return true;
}

double gsp_shares_seconds(const gsp_rates *rates, uint32_t n, const double *share, double bytes)
{
    double r[GSP_MEMBERS_MAX], longest = 0.0;
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX);
    rates_of(rates, n, r);
    for (uint32_t i = 0; i < n && n > 1; i++) {
        double seconds = bytes * (1.0 + share[i] * ((double)n - 2.0)) / r[i];
        longest = seconds > longest ? seconds : longest;
    }
    return longest;
}

/* Whole parts by largest remainder. */
static void round_shares(const double *share, uint32_t n, uint32_t n_parts, uint32_t *count)
{
    double left[GSP_MEMBERS_MAX];
    uint32_t given = 0;
    for (uint32_t i = 0; i < n; i++) {
        double exact = share[i] * (double)n_parts;
        count[i] = (uint32_t)exact;
        left[i] = share[i] > 0.0 ? exact - (double)count[i] : -1.0;
        given += count[i];
    }
    while (given < n_parts) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < n; i++)
            most = left[i] > left[most] ? i : most;
        count[most]++;
        left[most] -= 1.0;
        if (left[most] < 0.0)
            left[most] = 0.0; /* still before the peers that own nothing */
        given++;
    }
}

void gsp_shares_assign(void *context, const gsp_rates *rates, const bool *able, uint32_t n,
                       uint32_t n_parts, uint8_t *owner)
{
    (void)context;
    double share[GSP_MEMBERS_MAX];
    uint32_t count[GSP_MEMBERS_MAX] = {0}, given[GSP_MEMBERS_MAX] = {0};
    memset(owner, GSP_NOBODY, n_parts);
    if (!gsp_shares_fill(rates, able, n, share))
        return;
    round_shares(share, n, n_parts, count);
    for (uint32_t part = 0; part < n_parts; part++) {
        /* whoever is most behind its share of the parts so far */
        uint32_t best = GSP_NOBODY;
        double behind = -1e300;
        for (uint32_t i = 0; i < n; i++) {
            double due = (double)count[i] * (part + 1.0) / (double)n_parts - (double)given[i];
            if (given[i] < count[i] && due > behind) {
                behind = due;
                best = i;
            }
        }
        given[best]++;
        owner[part] = (uint8_t)best;
    }
}

void gsp_shares_pace(const double *left, const double *most, uint32_t n, double rate, double *pace)
{
    bool full[GSP_NET_PEERS_MAX] = {false};
    ATOM_ASSERT(n <= GSP_NET_PEERS_MAX);
    for (bool again = true; again;) {
        double bytes = 0.0, rest = rate;
        again = false;
        for (uint32_t i = 0; i < n; i++) {
            bytes += full[i] ? 0.0 : left[i];
            rest -= full[i] ? most[i] : 0.0;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (full[i])
                continue;
            pace[i] = rest * left[i] / bytes;
            full[i] = most[i] > 0.0 && pace[i] >= most[i];
            again |= full[i];
        }
        for (uint32_t i = 0; i < n; i++)
            pace[i] = full[i] ? most[i] : pace[i];
    }
}
