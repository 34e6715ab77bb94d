/*
 * Owns who may stand for whom. One idea: two hosts of one kind that see every other host alike, and
 * each other alike, are interchangeable, so a price asks for types and numbers instead of hosts.
 * Refuses nothing; where all hosts differ every host is a type.
 */
#include "partition/place/inner.h"

#include <string.h>

static bool alike(const double *matrix, uint32_t n, uint32_t a, uint32_t b)
{
    const double *from_a = &matrix[(size_t)a * n], *from_b = &matrix[(size_t)b * n];
    if (from_a[b] != from_b[a])
        return false;
    for (uint32_t k = 0; k < n; k++)
        if (k != a && k != b &&
            (from_a[k] != from_b[k] || matrix[(size_t)k * n + a] != matrix[(size_t)k * n + b]))
            return false;
    return true;
}

static bool twins(const place_problem *p, uint32_t a, uint32_t b)
{
    return p->hosts[a].kind == p->hosts[b].kind &&
           (!p->up || (p->up[a] == p->up[b] && p->down[a] == p->down[b])) &&
           alike(p->rate, p->n_hosts, a, b) && alike(p->delay, p->n_hosts, a, b);
}

void place_types_find(const place_problem *p, place_types *out)
{
    uint16_t first[PLACE_HOSTS_MAX];
    out->n = 0;
    for (uint32_t i = 0; i < p->n_hosts; i++) {
        uint32_t t = 0;
        while (t < out->n && !twins(p, first[t], i))
            t++;
        if (t == out->n)
            first[out->n++] = (uint16_t)i;
        out->of[i] = (uint16_t)t;
    }
}

void place_members_of(const place_types *types, const uint16_t *hosts, uint32_t n,
                      place_members *out)
{
    uint16_t slot[PLACE_HOSTS_MAX];
    memset(slot, 0xff, types->n * sizeof *slot);
    out->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t type = types->of[hosts[i]], s = slot[type];
        if (s != PLACE_UNUSED) {
            out->other[s] = out->count[s] == 1 ? (uint16_t)i : out->other[s];
            out->count[s]++;
            continue;
        }
        s = slot[type] = (uint16_t)out->n++;
        out->type[s] = (uint16_t)type;
        out->at[s] = (uint16_t)i;
        out->other[s] = PLACE_UNUSED;
        out->count[s] = 1;
    }
}
