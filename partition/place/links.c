/*
 * Owns what links cost. One idea: both all-reduces, the paper's and gossip's, are one sum over a
 * group's members, so a search can price either. Refuses nothing: place_check has looked at every
 * rate before.
 */
#include "partition/place/inner.h"

#include <math.h>

double place_pair_seconds(const place_problem *p, uint32_t a, uint32_t b, double bytes)
{
    size_t there = (size_t)a * p->n_hosts + b, back = (size_t)b * p->n_hosts + a;
    return p->delay[there] + p->delay[back] + bytes / p->rate[there] + bytes / p->rate[back];
}

/* The slower direction of a pair. */
static double pair_rate(const place_problem *p, uint32_t a, uint32_t b)
{
    return fmin(p->rate[(size_t)a * p->n_hosts + b], p->rate[(size_t)b * p->n_hosts + a]);
}

static double pair_delay(const place_problem *p, uint32_t a, uint32_t b)
{
    return (p->delay[(size_t)a * p->n_hosts + b] + p->delay[(size_t)b * p->n_hosts + a]) / 2;
}

/* Whose links a sum is over: hosts by type. */
typedef struct crowd {
    const place_problem *p;
    const uint16_t *hosts;
    uint32_t n;
    place_members m;
} crowd;

/* A host of type i, and one of type j that is not the same host; PLACE_UNUSED where there is none. */
static uint32_t first_of(const crowd *c, uint32_t i)
{
    return c->hosts[c->m.at[i]];
}

static uint32_t partner_of(const crowd *c, uint32_t i, uint32_t j)
{
    if (i != j)
        return first_of(c, j);
    return c->m.other[i] == PLACE_UNUSED ? PLACE_UNUSED : c->hosts[c->m.other[i]];
}

/* How fast a host exchanges with the others: the lesser direction of its line, or the harmonic mean
 * over its pairs. */
static double host_rate(const crowd *c, uint32_t i)
{
    const place_problem *p = c->p;
    uint32_t host = first_of(c, i);
    double sum = 0;
    if (p->up)
        return fmin(p->up[host], p->down[host]);
    for (uint32_t j = 0; j < c->m.n; j++) {
        uint32_t other = partner_of(c, i, j);
        if (other != PLACE_UNUSED)
            sum += (c->m.count[j] - (i == j)) / pair_rate(p, host, other);
    }
    return sum > 0 ? (c->n - 1) / sum : INFINITY;
}

/* Eq. 2. */
static double paper_seconds(const crowd *c, double bytes, uint32_t *slowest)
{
    double longest = -1;
    for (uint32_t i = 0; i < c->m.n; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < c->m.n; j++) {
            uint32_t host = first_of(c, i), other = partner_of(c, i, j);
            if (other != PLACE_UNUSED)
                sum +=
                    2 * (c->m.count[j] - (i == j)) *
                    (pair_delay(c->p, host, other) + bytes / c->n / pair_rate(c->p, host, other));
        }
        if (sum > longest) {
            longest = sum;
            *slowest = first_of(c, i);
        }
    }
    return longest;
}

/* What a pool's all-reduce is measured to make of lines, and how often a word or a part passes from
 * one member to another, one way, before a step is certified: that a member is done, PREPARE, a
 * promise, BEGIN, contributions, results, PROPOSE, an echo, a vote, the certificate. */
static const double LINES = 0.92;
enum { PASSES = 10 };

/* Everybody moves at least all bytes once; what is owned beyond that fills lines evenly
 * (gossip/member/shares.h). */
static double shared_seconds(const crowd *c, double bytes, uint32_t *slowest)
{
    double rate[PLACE_HOSTS_MAX], delay = 0, sum, count, t = 0, least = INFINITY;
    for (uint32_t i = 0; i < c->m.n; i++) {
        rate[i] = host_rate(c, i);
        if (rate[i] < least) {
            least = rate[i];
            *slowest = first_of(c, i);
        }
        for (uint32_t j = 0; j <= i; j++) {
            uint32_t other = partner_of(c, i, j);
            if (other != PLACE_UNUSED)
                delay = fmax(delay, pair_delay(c->p, first_of(c, i), other));
        }
    }
    for (double before = -1; c->n > 2 && t != before;) { /* the slowest drop out as owners */
        before = t;
        sum = count = 0;
        for (uint32_t i = 0; i < c->m.n; i++)
            if (t * rate[i] >= 1 || t == 0) {
                sum += rate[i] * c->m.count[i];
                count += c->m.count[i];
            }
        t = (count + c->n - 2) / sum;
    }
    return PASSES * delay + bytes * fmax(t, 1 / least) / LINES;
}

double place_sync_seconds(const place_problem *p, const place_types *types, const uint16_t *hosts,
                          uint32_t n, double bytes, uint32_t *slowest)
{
    crowd c = {.p = p, .hosts = hosts, .n = n};
    uint32_t nobody;
    slowest = slowest ? slowest : &nobody;
    *slowest = PLACE_UNUSED;
    if (n < 2)
        return 0;
    place_members_of(types, hosts, n, &c.m);
    return p->paper ? paper_seconds(&c, bytes, slowest) : shared_seconds(&c, bytes, slowest);
}
