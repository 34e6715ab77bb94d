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

double place_host_rate(const place_problem *p, const uint16_t *hosts, uint32_t n, uint32_t of)
{
    double sum = 0;
    if (p->up)
        return fmin(p->up[hosts[of]], p->down[hosts[of]]);
    for (uint32_t i = 0; i < n; i++)
        sum += i == of ? 0 : 1 / pair_rate(p, hosts[of], hosts[i]);
    return sum > 0 ? (n - 1) / sum : INFINITY;
}

/* Eq. 2. */
static double paper_seconds(const place_problem *p, const uint16_t *hosts, uint32_t n, double bytes,
                            uint32_t *slowest)
{
    double longest = -1;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++)
            if (j != i)
                sum += 2 * (pair_delay(p, hosts[i], hosts[j]) +
                            bytes / n / pair_rate(p, hosts[i], hosts[j]));
        if (sum > longest) {
            longest = sum;
            *slowest = hosts[i];
        }
    }
    return longest;
}

/* Everybody moves at least all bytes once; what is owned beyond that fills lines evenly
 * (gossip/member/shares.h). */
static double shared_seconds(const place_problem *p, const uint16_t *hosts, uint32_t n,
                             double bytes, uint32_t *slowest)
{
    double rate[PLACE_HOSTS_MAX], delay = 0, sum, count, t = 0, least = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        rate[i] = place_host_rate(p, hosts, n, i);
        if (rate[i] < least) {
            least = rate[i];
            *slowest = hosts[i];
        }
        for (uint32_t j = 0; j < i; j++)
            delay = fmax(delay, pair_delay(p, hosts[i], hosts[j]));
    }
    for (double before = -1; n > 2 && t != before;) { /* the slowest drop out as owners */
        before = t;
        sum = count = 0;
        for (uint32_t i = 0; i < n; i++)
            if (t * rate[i] >= 1 || t == 0) {
                sum += rate[i];
                count++;
            }
        t = (count + n - 2) / sum;
    }
    return 2 * delay + bytes * fmax(t, 1 / least);
}

double place_sync_seconds(const place_problem *p, const uint16_t *hosts, uint32_t n, double bytes,
                          uint32_t *slowest)
{
    uint32_t nobody;
    slowest = slowest ? slowest : &nobody;
    *slowest = PLACE_UNUSED;
    if (n < 2)
        return 0;
    return p->paper ? paper_seconds(p, hosts, n, bytes, slowest)
                    : shared_seconds(p, hosts, n, bytes, slowest);
}
