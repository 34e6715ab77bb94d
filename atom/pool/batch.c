/*
 * Owns what a batch of gradients mode is made of. One idea: leases follow from the agreed state and
 * the roster, which every member has, so nobody hands them out, a dead member's are somebody else's
 * in the next version, and certificates alone show whose lease was too large. Refuses a version
 * whose parts are sums over different members: each sample counts once or not at all. Where sums are
 * clipped, parts are means of their own, and it refuses those of too few members instead.
 */
#include "atom/pool/batch.h"

#include "atom/pool/ranges.h"
#include "gossip/agree/round.h"
#include "gossip/agree/signed.h"

#include <string.h>

enum {
    HEAD_WORDS = 8,
    KEY_WORDS = GSP_KEY_BYTES / 4,
    SHARE_WORDS = KEY_WORDS + 3,
    PLAN_WORDS = 2,
    TURN_VERSIONS = 3,
    GROWN_SHIFT = 17, /* beside n_open in one word */
    GROWN_MAX = 15,
    EMPTY_SHIFT = 21,
    EMPTY_MAX = 1 << (32 - EMPTY_SHIFT),
    MAGIC = 0x33736d67,        /* gms3 */
    MAGIC_DELAYED = 0x31646d67 /* gmd1 */
};

static bool is_open(const pool_batch *b, uint32_t i)
{
    return b->open[i / 32] >> i % 32 & 1;
}

void pool_batch_begin(pool_batch *b)
{
    memset(b->open, 0, sizeof b->open);
    for (uint32_t i = 0; i < b->n; i++)
        b->open[i / 32] |= 1u << i % 32;
    b->n_open = b->n;
    b->empty = b->grown = 0;
    b->tokens = 0;
    for (uint32_t i = 0; i < b->n_shares; i++)
        b->share[i].brought = 0;
}

uint64_t pool_batch_samples(const pool_batch *b)
{
    return (b->steps * b->n + (b->n - b->n_open)) * b->micro_batch;
}

/* ---- in the agreed state ---- */

static uint64_t open_words(uint32_t n)
{
    return (n + 31) / 32;
}

uint64_t pool_batch_words(uint32_t n, bool delayed)
{
    return HEAD_WORDS + POOL_SHARES_MAX * SHARE_WORDS + open_words(n) +
           (delayed ? POOL_SHARES_MAX * PLAN_WORDS : 0);
}

static uint32_t magic_of(const pool_batch *b)
{
    return b->delayed ? MAGIC_DELAYED : MAGIC;
}

static void write_plan(const pool_batch *b, float *words)
{
    memset(words, 0, POOL_SHARES_MAX * PLAN_WORDS * sizeof *words);
    for (uint32_t i = 0; i < b->n_shares; i++) {
        const uint32_t plan[PLAN_WORDS] = {b->share[i].first, b->share[i].planned};
        memcpy(words + i * PLAN_WORDS, plan, sizeof plan);
    }
}

/* Of a plan nothing belongs to two. */
static bool read_plan(pool_batch *b, const float *words)
{
    for (uint32_t i = 0; i < b->n_shares; i++) {
        pool_share *s = &b->share[i];
        uint32_t plan[PLAN_WORDS];
        memcpy(plan, words + i * PLAN_WORDS, sizeof plan);
        if (plan[0] > b->n || plan[1] > b->n - plan[0])
            return false;
        s->first = plan[0];
        s->planned = plan[1];
        for (uint32_t k = 0; k < i; k++)
            if (s->first < b->share[k].first + b->share[k].planned &&
                b->share[k].first < s->first + s->planned)
                return false;
    }
    return true;
}

void pool_batch_write(const pool_batch *b, float *words)
{
    uint32_t head[HEAD_WORDS] = {
        magic_of(b),         b->n,
        (uint32_t)b->steps,  (uint32_t)(b->steps >> 32),
        (uint32_t)b->tokens, (uint32_t)(b->tokens >> 32),
        b->n_shares,         b->n_open | b->grown << GROWN_SHIFT | b->empty << EMPTY_SHIFT};
    memcpy(words, head, sizeof head);
    memset(words + HEAD_WORDS, 0, POOL_SHARES_MAX * SHARE_WORDS * sizeof *words);
    for (uint32_t i = 0; i < b->n_shares; i++) {
        const pool_share *s = &b->share[i];
        float *at = words + HEAD_WORDS + i * SHARE_WORDS;
        uint32_t facts[SHARE_WORDS - KEY_WORDS] = {s->share, s->hold,
                                                   s->brought | s->muted << 1 |
                                                       (uint32_t)s->phase << 2 | s->proven << 4};
        memcpy(at, s->key.byte, GSP_KEY_BYTES);
        memcpy(at + KEY_WORDS, facts, sizeof facts);
    }
    memcpy(words + HEAD_WORDS + POOL_SHARES_MAX * SHARE_WORDS, b->open,
           open_words(b->n) * sizeof *b->open);
    if (b->delayed)
        write_plan(b, words + pool_batch_words(b->n, false));
}

static bool read_shares(pool_batch *b, uint32_t n, const float *words)
{
    if (n > POOL_SHARES_MAX)
        return false;
    b->n_shares = n;
    for (uint32_t i = 0; i < n; i++) {
        pool_share *s = &b->share[i];
        uint32_t facts[SHARE_WORDS - KEY_WORDS];
        *s = (pool_share){0};
        memcpy(s->key.byte, words + i * SHARE_WORDS, GSP_KEY_BYTES);
        memcpy(facts, words + i * SHARE_WORDS + KEY_WORDS, sizeof facts);
        s->share = facts[0];
        s->hold = facts[1];
        s->brought = facts[2] & 1;
        s->muted = facts[2] >> 1 & 1;
        s->phase = (pool_share_phase)(facts[2] >> 2 & 3);
        s->proven = facts[2] >> 4;
        if (!pool_share_valid(s, b->returns) || s->muted > b->robust)
            return false;
    }
    return true;
}

bool pool_batch_read(pool_batch *b, const float *words)
{
    uint32_t head[HEAD_WORDS];
    memcpy(head, words, sizeof head);
    if (head[0] != magic_of(b) || head[1] != b->n)
        return false;
    b->steps = head[2] | (uint64_t)head[3] << 32;
    b->tokens = head[4] | (uint64_t)head[5] << 32;
    if (!read_shares(b, head[6], words + HEAD_WORDS))
        return false;
    memcpy(b->open, words + HEAD_WORDS + POOL_SHARES_MAX * SHARE_WORDS,
           open_words(b->n) * sizeof *b->open);
    b->n_open = 0;
    for (uint32_t i = 0; i < b->n; i++)
        b->n_open += is_open(b, i);
    b->empty = b->passes_on ? head[7] >> EMPTY_SHIFT : 0;
    b->grown = b->passes_on ? head[7] >> GROWN_SHIFT & GROWN_MAX : 0;
    return !b->delayed || read_plan(b, words + pool_batch_words(b->n, false));
}

/* ---- leases ---- */

static pool_share share_of(const pool_batch *b, const gsp_key *key)
{
    for (uint32_t i = 0; i < b->n_shares; i++)
        if (gsp_key_compare(&b->share[i].key, key) == 0)
            return b->share[i];
    return pool_share_first(key, b->returns);
}

/* A roster with what is known of its members. May: bits of those that may compute for the next
 * version: whoever brought something to this one, else all. Robust: who share what is more than one
 * micro-batch each. */
typedef struct table {
    uint32_t n, may;
    pool_share share[GSP_MEMBERS_MAX];
} table;

static uint32_t everybody(uint32_t n)
{
    return n == 32 ? UINT32_MAX : (1u << n) - 1;
}

static void look_up(const pool_batch *b, const gsp_roster *roster, table *t)
{
    t->n = roster->n < GSP_MEMBERS_MAX ? roster->n : GSP_MEMBERS_MAX;
    t->may = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        t->share[i] = share_of(b, &roster->member[i].key);
        t->may |= (b->robust ? !t->share[i].muted : t->share[i].brought) << i;
    }
    t->may = t->may ? t->may : everybody(t->n);
}

/* All samples of the run are in the batches before that one. */
static bool is_over(const pool_batch *b, uint64_t steps)
{
    return b->max_samples && steps * b->n * b->micro_batch >= b->max_samples;
}

/* So many of batch number `steps`, by shares; what rounding leaves over goes to the largest remainders.
 * Robust: everybody has one first, since each is a voice by head. */
static void divide(const pool_batch *b, const table *t, uint64_t steps, uint32_t open,
                   uint32_t count[GSP_MEMBERS_MAX])
{
    uint32_t least = b->robust && open >= t->n, left = open - least * t->n;
    uint64_t total = 0, rest[GSP_MEMBERS_MAX] = {0};
    memset(count, 0, GSP_MEMBERS_MAX * sizeof *count);
    for (uint32_t i = 0; i < t->n; i++)
        total += t->may >> i & 1 ? t->share[i].share : 0;
    if (is_over(b, steps) || total == 0)
        return;
    uint64_t shared = left;
    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t all = t->may >> i & 1 ? shared * t->share[i].share : 0;
        count[i] = (uint32_t)(all / total);
        rest[i] = all % total;
        left -= count[i];
    }
    for (; left > 0; left--) {
        uint32_t most = 0;
        for (uint32_t i = 1; i < GSP_MEMBERS_MAX; i++)
            most = rest[i] > rest[most] ? i : most;
        count[most]++;
        rest[most] = 0;
    }
    for (uint32_t i = 0; i < t->n; i++)
        count[i] += least;
}

/* ---- where all who were leased something rest ---- */

static bool in_turns(const pool_batch *b)
{
    return b->empty >= TURN_VERSIONS;
}

/* The number of the turn. since: versions since it began. When each of n members was the first of a
 * turn, turns become twice as long, for those who need longer. */
static uint32_t turn_now(const pool_batch *b, uint32_t n, uint32_t *since)
{
    uint32_t versions = b->empty - TURN_VERSIONS, length = TURN_VERSIONS, turn = 0;
    for (; n > 0 && versions >= n * length; length *= 2) {
        versions -= n * length;
        turn += n;
    }
    *since = versions % length;
    return turn + versions / length;
}

/* The same for all, whatever their shares; little at first, so that nobody waits long for a slow one. */
static void divide_alike(const pool_batch *b, const table *t, uint32_t count[GSP_MEMBERS_MAX])
{
    uint32_t since, first = turn_now(b, t->n, &since) % t->n;
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t place = (i + t->n - first) % t->n, all = b->n_open / t->n;
        all += place < b->n_open % t->n;
        count[i] = all < 1u << b->grown ? all : 1u << b->grown;
    }
}

/* Nothing of it is summed, and nobody has tried: it is as it was planned, if anybody who is here has
 * some of that plan. Robust: if enough have for a step. */
static bool is_planned(const pool_batch *b, const table *t)
{
    uint32_t planned = 0, brought = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        planned |= t->share[i].planned > 0 ? 1u << i : 0;
        brought |= t->share[i].brought;
    }
    bool enough = b->robust ? gsp_included_enough(GSP_STRANGERS, t->n, planned) : planned;
    return b->delayed && b->n_open == b->n && enough && !brought && !in_turns(b);
}

static void counts_now(const pool_batch *b, const table *t, uint32_t count[GSP_MEMBERS_MAX])
{
    divide(b, t, b->steps, b->n_open, count);
    if (in_turns(b) && t->n > 0 && !is_over(b, b->steps))
        divide_alike(b, t, count);
    for (uint32_t i = 0; is_planned(b, t) && i < t->n; i++)
        count[i] = t->share[i].planned;
}

/* What each has of the batch after this one: first[i] of count[i]. */
static void plan_ahead(const pool_batch *b, const table *t, uint32_t first[GSP_MEMBERS_MAX],
                       uint32_t count[GSP_MEMBERS_MAX])
{
    uint32_t at = 0;
    divide(b, t, b->steps + 1, b->n, count);
    for (uint32_t i = 0; i < t->n; i++) {
        first[i] = at;
        at += count[i];
    }
    for (uint32_t i = 0; b->n_open < b->n && i < t->n; i++) {
        first[i] = t->share[i].first;
        count[i] = t->share[i].planned;
    }
}

uint32_t pool_batch_leased(const pool_batch *b, const gsp_roster *roster, uint32_t index)
{
    table t;
    uint32_t count[GSP_MEMBERS_MAX];
    look_up(b, roster, &t);
    counts_now(b, &t, count);
    return index < t.n ? count[index] : 0;
}

static uint32_t list_run(uint32_t first, uint32_t n, uint32_t *list)
{
    for (uint32_t i = 0; i < n; i++)
        list[i] = first + i;
    return n;
}

uint32_t pool_batch_ahead(const pool_batch *b, const gsp_roster *roster, uint32_t index,
                          uint32_t *list)
{
    table t;
    uint32_t first[GSP_MEMBERS_MAX], count[GSP_MEMBERS_MAX];
    look_up(b, roster, &t);
    if (!b->delayed || index >= t.n)
        return 0;
    plan_ahead(b, &t, first, count);
    return list_run(first[index], count[index], list);
}

uint32_t pool_batch_lease(const pool_batch *b, const gsp_roster *roster, uint32_t index,
                          uint32_t *list)
{
    table t;
    uint32_t count[GSP_MEMBERS_MAX], from = 0, at = 0, found = 0;
    look_up(b, roster, &t);
    counts_now(b, &t, count);
    if (index >= t.n)
        return 0;
    if (is_planned(b, &t))
        return list_run(t.share[index].first, count[index], list);
    for (uint32_t i = 0; i < index; i++)
        from += count[i];
    for (uint32_t i = 0; i < b->n && found < count[index]; i++) {
        if (!is_open(b, i))
            continue;
        if (at >= from)
            list[found++] = i;
        at++;
    }
    return found;
}

/* ---- certificates ---- */

/* A clipped sum of fewer members than `enough` could be one of more liars than honest ones. */
static void look_parts(const pool_batch *b, const gsp_proposal *c, const gsp_roster *roster,
                       uint64_t n, uint64_t came, pool_verdict *v)
{
    uint64_t stride = pool_part_stride(c, n);
    bool enough = true;
    v->everywhere = UINT32_MAX;
    for (uint32_t k = 0; k < c->n_parts && k * stride < n; k++) {
        v->everywhere &= c->part[k].included;
        v->anywhere |= c->part[k].included;
        enough &= gsp_included_enough(GSP_STRANGERS, roster->n, c->part[k].included);
    }
    v->everywhere &= v->anywhere;
    v->tokens = c->part[0].weight;
    v->whole = v->anywhere != 0 && came == n && (b->robust ? enough : v->everywhere == v->anywhere);
}

/* A member that did not bring its whole lease has brought nothing. What they brought is marked. */
static void look_people(const pool_batch *b, const gsp_proposal *c, const gsp_roster *roster,
                        uint32_t *list, pool_verdict *v)
{
    for (uint32_t i = 0; i < c->n_contributors; i++) {
        if (!(v->anywhere >> i & 1))
            continue;
        uint32_t n = pool_batch_lease(b, roster, c->contributor[i].member, list);
        if (n == 0 || c->contributor[i].samples != n * b->micro_batch) {
            v->everywhere &= ~(1u << i);
            v->whole = false;
        }
        for (uint32_t k = 0; k < n; k++)
            v->done[list[k] / 32] |= 1u << list[k] % 32;
        v->n_done += n;
    }
}

void pool_batch_judge(const pool_batch *b, const gsp_proposal *c, const gsp_roster *roster,
                      uint64_t n_floats, uint64_t came, uint32_t *list, pool_verdict *v)
{
    memset(v, 0, sizeof *v);
    look_parts(b, c, roster, n_floats, came, v);
    look_people(b, c, roster, list, v);
    if (b->robust) {
        v->n_done = b->n_open;
        memcpy(v->done, b->open, sizeof v->done);
    }
}

void pool_batch_add(pool_batch *b, const pool_verdict *v)
{
    b->tokens += v->tokens;
    b->n_open -= v->n_done;
    for (uint32_t i = 0; i < sizeof b->open / sizeof *b->open; i++)
        b->open[i] &= ~v->done[i];
}

/* Bits of R(version): who brought all of its lease. */
static uint32_t on_time(const gsp_proposal *c, const pool_verdict *v)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < c->n_contributors; i++)
        if (v->everywhere >> i & 1)
            bits |= 1u << c->contributor[i].member;
    return bits;
}

/* Those of the next roster, in its order, then whoever has left, the last first. */
static void keep(pool_batch *b, const table *t, const gsp_roster *next)
{
    pool_share kept[POOL_SHARES_MAX];
    uint32_t n = 0;
    for (uint32_t k = 0; k < next->n && k < GSP_MEMBERS_MAX; k++) {
        kept[n] = share_of(b, &next->member[k].key);
        kept[n].brought = 0;
        for (uint32_t i = 0; i < t->n; i++)
            if (gsp_key_compare(&t->share[i].key, &next->member[k].key) == 0)
                kept[n] = t->share[i];
        n++;
    }
    for (uint32_t from = 0; from < t->n + b->n_shares && n < POOL_SHARES_MAX; from++) {
        const pool_share *s = from < t->n ? &t->share[from] : &b->share[from - t->n];
        bool known = false;
        for (uint32_t k = 0; k < n; k++)
            known |= gsp_key_compare(&kept[k].key, &s->key) == 0;
        if (known)
            continue;
        kept[n] = *s;
        kept[n++].brought = 0;
    }
    memcpy(b->share, kept, n * sizeof *kept);
    b->n_shares = n;
}

/* The first sum of a batch: what was computed of the next one meanwhile is what will count. */
static void plan(pool_batch *b, table *t)
{
    uint32_t first[GSP_MEMBERS_MAX], count[GSP_MEMBERS_MAX];
    plan_ahead(b, t, first, count);
    for (uint32_t i = 0; i < b->n_shares; i++)
        b->share[i].first = b->share[i].planned = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        t->share[i].first = first[i];
        t->share[i].planned = count[i];
    }
}

/* A version that somebody contributed to, or not. */
static void count_empty(pool_batch *b, const table *t, bool empty)
{
    uint32_t since = 0;
    if (empty) {
        b->empty = (b->empty + 1) % EMPTY_MAX;
    } else if (in_turns(b)) { /* whoever contributed goes on, with more */
        turn_now(b, t->n, &since);
        b->empty -= since;
        b->grown += b->grown < GROWN_MAX;
    } else {
        b->empty = 0;
    }
}

void pool_batch_shares(pool_batch *b, const gsp_roster *roster, const gsp_proposal *c,
                       const pool_verdict *v)
{
    table t;
    uint32_t count[GSP_MEMBERS_MAX], in_time = on_time(c, v), leased = 0, came = 0;
    look_up(b, roster, &t);
    counts_now(b, &t, count);
    if (b->delayed && v->whole && b->n_open == b->n)
        plan(b, &t);
    for (uint32_t i = 0; i < t.n; i++) {
        leased += count[i];
        came += in_time >> i & 1 ? count[i] : 0;
    }
    bool tells = v->whole && came > 0 && 2 * came >= leased;
    bool empty = b->passes_on && !b->robust && c->n_contributors == 0;
    for (uint32_t i = 0; i < t.n; i++) {
        if (tells && (t.may >> i & 1))
            pool_share_learn(&t.share[i],
                             &(pool_share_news){.leased = count[i],
                                                .late = count[i] > 0 && !(in_time >> i & 1),
                                                .delayed = b->delayed,
                                                .returns = b->returns});
        if (!empty)
            t.share[i].brought = !b->robust && (in_time >> i & 1); /* nobody is asked for a rest */
    }
    for (uint32_t k = 0; b->robust && v->whole && k < c->n_contributors; k++)
        if (c->contributor[k].member < t.n)
            t.share[c->contributor[k].member].muted = c->contributor[k].weight == 0;
    count_empty(b, &t, empty);
    keep(b, &t, &c->next);
}
