/*
 * Owns the bookkeeping of one version's parts at one member. Its one idea: bits, one per member or
 * contributor, and a part is reduced once per ballot, when all are there or when its time is over.
 * It refuses to touch bytes, sockets or the clock, and to count a contributor twice.
 */
#include "gossip/agree/round.h"

#include "atom/base/assert.h"

#include <math.h>
#include <string.h>

void gsp_round_open(gsp_round *round, gsp_trust trust, uint64_t version, uint32_t self)
{
    memset(round, 0, sizeof *round);
    round->trust = trust;
    round->version = version;
    round->self = self;
}

static void send_parts(gsp_round *r, gsp_round_sink *sink, void *context)
{
    if (gsp_hash_none(&r->root) || r->self == GSP_NOBODY)
        return;
    bool mine = false;
    for (uint32_t i = 0; i < r->begin.n_contributors; i++)
        mine = mine || (r->begin.contributor[i].member == r->self &&
                        gsp_hash_equal(&r->begin.contributor[i].root, &r->root));
    for (uint32_t p = 0; mine && p < r->begin.n_parts; p++) {
        uint32_t owner = r->begin.owner[p];
        if (owner == GSP_NOBODY || (r->sent[p] >> owner & 1))
            continue;
        r->sent[p] |= 1u << owner;
        sink(context, GSP_ROUND_SEND, p, owner, 0);
    }
}

/* Which contributors of this ballot have a part here. */
static uint32_t present(const gsp_round *r, uint32_t part)
{
    uint32_t included = 0;
    for (uint32_t i = 0; i < r->begin.n_contributors; i++) {
        const gsp_contributor *c = &r->begin.contributor[i];
        if ((r->arrived[part] >> c->member & 1) &&
            gsp_hash_equal(&r->arrived_root[c->member], &c->root))
            included |= 1u << i;
    }
    return included;
}

static uint32_t all_contributors(const gsp_round *r)
{
    uint32_t n = r->begin.n_contributors;
    return n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

/* Those of them that are worth waiting for. */
static uint32_t awaited(const gsp_round *r)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < r->begin.n_contributors; i++)
        bits |= r->gone >> r->begin.contributor[i].member & 1 ? 0 : 1u << i;
    return bits;
}

/* After a restart: what was promised of mine is not what I have. */
static bool lost_mine(const gsp_round *r)
{
    for (uint32_t i = 0; i < r->begin.n_contributors; i++)
        if (r->begin.contributor[i].member == r->self)
            return !gsp_hash_equal(&r->begin.contributor[i].root, &r->root);
    return false;
}

static void reduce_ready(gsp_round *r, uint32_t part, uint32_t wanted, gsp_round_sink *sink,
                         void *context)
{
    if (r->ballot == 0 || r->begin.owner[part] != r->self || r->asked[part])
        return;
    uint32_t included = present(r, part);
    if (!gsp_included_enough(r->trust, r->begin.n_contributors, included) ||
        (included & wanted) != wanted)
        return;
    r->asked[part] = 1;
    sink(context, GSP_ROUND_REDUCE, part, r->self, included);
}

void gsp_round_begin(gsp_round *r, uint32_t ballot, const gsp_begin *begin, uint64_t now_ns,
                     gsp_round_sink *sink, void *context)
{
    if (ballot < r->ballot || (ballot == r->ballot && begin->attempt <= r->begin.attempt))
        return;
    if (ballot > r->ballot) {
        memset(r->known, 0, sizeof r->known);
        memset(r->asked, 0, sizeof r->asked);
        r->gone = 0;
    } else {
        for (uint32_t p = 0; p < begin->n_parts; p++)
            if (begin->owner[p] != r->begin.owner[p]) {
                r->asked[p] = 0;
                memset(&r->known[p], 0, sizeof r->known[p]); /* the word of who owned it */
            }
    }
    r->ballot = ballot;
    r->begin = *begin;
    r->began_ns = now_ns;
    if (lost_mine(r))
        r->gone |= 1u << r->self;
    send_parts(r, sink, context);
    for (uint32_t p = 0; p < begin->n_parts; p++)
        reduce_ready(r, p, awaited(r), sink, context);
}

void gsp_round_frozen(gsp_round *r, const gsp_hash *root, gsp_round_sink *sink, void *context)
{
    r->root = *root;
    if (r->ballot != 0)
        send_parts(r, sink, context);
}

void gsp_round_arrived(gsp_round *r, uint32_t part, uint32_t member, const gsp_hash *root,
                       gsp_round_sink *sink, void *context)
{
    if (part >= GSP_PARTS_MAX || member >= GSP_MEMBERS_MAX || gsp_hash_none(root))
        return;
    if (!gsp_hash_equal(&r->arrived_root[member], root)) {
        for (uint32_t p = 0; p < GSP_PARTS_MAX; p++)
            r->arrived[p] &= ~(1u << member);
        r->arrived_root[member] = *root;
    }
    r->arrived[part] |= 1u << member;
    r->gone &= ~(1u << member);
    if (r->ballot != 0 && part < r->begin.n_parts)
        reduce_ready(r, part, awaited(r), sink, context);
}

void gsp_round_tick(gsp_round *r, uint64_t now_ns, gsp_round_sink *sink, void *context)
{
    if (r->ballot == 0 || now_ns - r->began_ns < r->begin.collect_ns)
        return;
    for (uint32_t p = 0; p < r->begin.n_parts; p++)
        reduce_ready(r, p, 0, sink, context);
}

void gsp_round_gone(gsp_round *r, uint32_t member, gsp_round_sink *sink, void *context)
{
    if (r->ballot == 0 || member >= GSP_MEMBERS_MAX)
        return;
    r->gone |= 1u << member;
    for (uint32_t p = 0; p < r->begin.n_parts; p++)
        reduce_ready(r, p, awaited(r), sink, context);
}

bool gsp_round_known(gsp_round *r, uint32_t owner, uint32_t part, const gsp_part *result)
{
    if (r->ballot == 0 || part >= r->begin.n_parts || r->begin.owner[part] != owner)
        return false;
    if (gsp_hash_none(&result->hash) || result->included == 0 ||
        (result->included & ~all_contributors(r)) ||
        !gsp_included_enough(r->trust, r->begin.n_contributors, result->included) ||
        !isfinite(result->norm) || result->norm < 0)
        return false;
    if (result->weight == 0 ||
        result->weight !=
            gsp_included_weight(r->begin.contributor, r->begin.n_contributors, result->included))
        return false;
    if (gsp_hash_none(&r->known[part].hash))
        r->known[part] = *result;
    return true;
}

bool gsp_round_complete(const gsp_round *r)
{
    if (r->ballot == 0)
        return false;
    for (uint32_t p = 0; p < r->begin.n_parts; p++)
        if (r->begin.owner[p] != GSP_NOBODY && gsp_hash_none(&r->known[p].hash))
            return false;
    return true;
}

void gsp_round_hold(gsp_round *r, uint32_t part, const gsp_hash *hash)
{
    if (part >= GSP_PARTS_MAX || gsp_round_holds(r, part, hash))
        return;
    memmove(&r->held[part][1], &r->held[part][0], sizeof r->held[part] - sizeof r->held[part][0]);
    r->held[part][0] = *hash;
}

bool gsp_round_holds(const gsp_round *r, uint32_t part, const gsp_hash *hash)
{
    for (uint32_t k = 0; part < GSP_PARTS_MAX && k < GSP_HELD_MAX; k++)
        if (gsp_hash_equal(&r->held[part][k], hash))
            return true;
    return false;
}

uint64_t gsp_included_weight(const gsp_contributor *contributor, uint32_t n, uint32_t included)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (included >> i & 1)
            sum += contributor[i].weight;
    return sum;
}

bool gsp_included_enough(gsp_trust trust, uint32_t n, uint32_t included)
{
    uint32_t count = (uint32_t)__builtin_popcount(included);
    return trust == GSP_STRANGERS ? 3 * count > 2 * n : 2 * count > n;
}

uint64_t gsp_lower_median(const uint64_t *x, uint32_t n)
{
    uint64_t sorted[GSP_MEMBERS_MAX];
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > x[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = x[i];
    }
    return n ? sorted[(n - 1) / 2] : 0;
}

void gsp_weigh(gsp_contributor *contributor, uint32_t n)
{
    uint64_t tokens[GSP_MEMBERS_MAX] = {0};
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = contributor[i].tokens;
    uint64_t limit = 2 * gsp_lower_median(tokens, n);
    for (uint32_t i = 0; i < n; i++)
        contributor[i].weight = contributor[i].tokens < limit ? contributor[i].tokens : limit;
}

void gsp_assign(const uint64_t *share, uint32_t n, uint32_t n_parts, uint8_t *owner)
{
    double total = 0, rest[GSP_MEMBERS_MAX];
    uint32_t count[GSP_MEMBERS_MAX] = {0}, given = 0, p = 0;
    ATOM_ASSERT(n <= GSP_MEMBERS_MAX && n_parts <= GSP_PARTS_MAX);
    memset(owner, GSP_NOBODY, n_parts);
    for (uint32_t i = 0; i < n; i++)
        total += (double)share[i];
    if (!(total > 0))
        return;
    for (uint32_t i = 0; i < n; i++) {
        double exact = (double)share[i] / total * n_parts;
        count[i] = (uint32_t)exact;
        rest[i] = share[i] ? exact - count[i] : -1;
        given += count[i];
    }
    while (given < n_parts) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            if (rest[i] > rest[best])
                best = i;
        rest[best] = rest[best] >= 0 ? 0 : rest[best];
        count[best]++;
        given++;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < count[i] && p < n_parts; k++)
            owner[p++] = (uint8_t)i;
}
