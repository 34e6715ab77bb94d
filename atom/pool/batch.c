/*
 * Owns what a batch of gradients mode is made of. One idea: leases follow from the agreed state and
 * the roster, which every member has, so nobody hands them out, a dead member's are somebody else's
 * in the next version, and certificates alone show whose lease was too large. Refuses a version
 * whose parts are sums over different members: each sample counts once or not at all.
 */
#include "atom/pool/batch.h"

#include "atom/pool/ranges.h"
#include "gossip/agree/signed.h"

#include <string.h>

enum {
    HEAD_WORDS = 8,
    MAGIC = 0x32736d67, /* gms2 */
    GROWTH = 32         /* a share grows by so much of itself */
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
    b->tokens = 0;
    b->brought = 0;
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

uint64_t pool_batch_words(uint32_t n)
{
    return HEAD_WORDS + GSP_MEMBERS_MAX + open_words(n);
}

void pool_batch_write(const pool_batch *b, float *words)
{
    uint32_t head[HEAD_WORDS] = {MAGIC,
                                 b->n,
                                 (uint32_t)b->steps,
                                 (uint32_t)(b->steps >> 32),
                                 (uint32_t)b->tokens,
                                 (uint32_t)(b->tokens >> 32),
                                 b->brought,
                                 b->n_open};
    memcpy(words, head, sizeof head);
    memcpy(words + HEAD_WORDS, b->share, sizeof b->share);
    memcpy(words + HEAD_WORDS + GSP_MEMBERS_MAX, b->open, open_words(b->n) * sizeof *b->open);
}

bool pool_batch_read(pool_batch *b, const float *words)
{
    uint32_t head[HEAD_WORDS];
    memcpy(head, words, sizeof head);
    if (head[0] != MAGIC || head[1] != b->n)
        return false;
    b->steps = head[2] | (uint64_t)head[3] << 32;
    b->tokens = head[4] | (uint64_t)head[5] << 32;
    b->brought = head[6];
    memcpy(b->share, words + HEAD_WORDS, sizeof b->share);
    memcpy(b->open, words + HEAD_WORDS + GSP_MEMBERS_MAX, open_words(b->n) * sizeof *b->open);
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (b->share[i] > POOL_SHARE_MAX)
            return false;
    b->n_open = 0;
    for (uint32_t i = 0; i < b->n; i++)
        b->n_open += is_open(b, i);
    return true;
}

/* ---- leases ---- */

/* Those that may compute for the next version: whoever brought something to this one, else all. */
static uint32_t asked(const pool_batch *b, uint32_t n_members)
{
    uint32_t all = n_members >= 32 ? UINT32_MAX : (1u << n_members) - 1;
    return b->brought & all ? b->brought & all : all;
}

static uint32_t share_of(const pool_batch *b, uint32_t i)
{
    return b->share[i] ? b->share[i] : POOL_SHARE_FIRST;
}

/* What is open, by shares; what rounding leaves over goes to the largest remainders. */
static void divide(const pool_batch *b, uint32_t n_members, uint32_t *count)
{
    uint32_t may = asked(b, n_members), left = b->n_open;
    uint64_t total = 0, rest[GSP_MEMBERS_MAX] = {0};
    bool over = b->max_samples && b->steps * b->n * b->micro_batch >= b->max_samples;
    memset(count, 0, GSP_MEMBERS_MAX * sizeof *count);
    for (uint32_t i = 0; i < n_members && i < GSP_MEMBERS_MAX; i++)
        total += may >> i & 1 ? share_of(b, i) : 0;
    if (over || total == 0)
        return;
    for (uint32_t i = 0; i < n_members && i < GSP_MEMBERS_MAX; i++) {
        uint64_t all = may >> i & 1 ? (uint64_t)b->n_open * share_of(b, i) : 0;
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
}

uint32_t pool_batch_leased(const pool_batch *b, uint32_t n_members, uint32_t index)
{
    uint32_t count[GSP_MEMBERS_MAX];
    divide(b, n_members, count);
    return index < n_members && index < GSP_MEMBERS_MAX ? count[index] : 0;
}

uint32_t pool_batch_lease(const pool_batch *b, uint32_t n_members, uint32_t index, uint32_t *list)
{
    uint32_t count[GSP_MEMBERS_MAX], from = 0, at = 0, found = 0;
    divide(b, n_members, count);
    if (index >= n_members || index >= GSP_MEMBERS_MAX)
        return 0;
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

static void look_parts(const gsp_proposal *c, uint64_t n, uint64_t came, pool_verdict *v)
{
    uint64_t stride = pool_part_stride(c, n);
    v->everywhere = UINT32_MAX;
    for (uint32_t k = 0; k < c->n_parts && k * stride < n; k++) {
        v->everywhere &= c->part[k].included;
        v->anywhere |= c->part[k].included;
    }
    v->everywhere &= v->anywhere;
    v->tokens = c->part[0].weight;
    v->whole = v->anywhere != 0 && v->everywhere == v->anywhere && came == n;
}

/* A member that did not bring its whole lease has brought nothing. What they brought is marked. */
static void look_people(const pool_batch *b, const gsp_proposal *c, uint32_t *list, pool_verdict *v)
{
    for (uint32_t i = 0; i < c->n_contributors; i++) {
        if (!(v->anywhere >> i & 1))
            continue;
        uint32_t n = pool_batch_lease(b, v->n_members, c->contributor[i].member, list);
        if (n == 0 || c->contributor[i].samples != n * b->micro_batch) {
            v->everywhere &= ~(1u << i);
            v->whole = false;
        }
        for (uint32_t k = 0; k < n; k++)
            v->done[list[k] / 32] |= 1u << list[k] % 32;
        v->n_done += n;
    }
}

void pool_batch_judge(const pool_batch *b, const gsp_proposal *c, uint32_t n_members,
                      uint64_t n_floats, uint64_t came, uint32_t *list, pool_verdict *v)
{
    *v = (pool_verdict){.n_members = n_members};
    look_parts(c, n_floats, came, v);
    look_people(b, c, list, v);
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

/* Shares that are in time grow slowly, for what is late costs a second version. */
static uint32_t next_share(uint32_t share, bool late)
{
    uint32_t next = late ? share / 2 : share + share / GROWTH;
    next = next < POOL_SHARE_MIN ? POOL_SHARE_MIN : next;
    return next > POOL_SHARE_MAX ? POOL_SHARE_MAX : next;
}

void pool_batch_shares(pool_batch *b, const gsp_roster *roster, const gsp_proposal *c,
                       const pool_verdict *v)
{
    uint32_t count[GSP_MEMBERS_MAX], share[GSP_MEMBERS_MAX] = {0};
    uint32_t in_time = on_time(c, v), leased = 0, came = 0;
    divide(b, v->n_members, count);
    for (uint32_t i = 0; i < v->n_members; i++) {
        leased += count[i];
        came += in_time >> i & 1 ? count[i] : 0;
    }
    bool tells = v->whole && came > 0 && 2 * came >= leased && v->n_members == roster->n;
    for (uint32_t i = 0; i < roster->n; i++) {
        uint32_t now = share_of(b, i);
        if (tells && (asked(b, roster->n) >> i & 1))
            now = next_share(now, count[i] > 0 && !(in_time >> i & 1));
        for (uint32_t k = 0; k < c->next.n; k++)
            if (gsp_key_compare(&c->next.member[k].key, &roster->member[i].key) == 0)
                share[k] = now;
    }
    memcpy(b->share, share, sizeof share);
}

uint32_t pool_batch_brought(const gsp_roster *roster, const gsp_proposal *c, const pool_verdict *v)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < c->n_contributors && v->n_members == roster->n; i++) {
        if (!(v->everywhere >> i & 1))
            continue;
        const gsp_key *key = &roster->member[c->contributor[i].member].key;
        for (uint32_t k = 0; k < c->next.n; k++)
            if (gsp_key_compare(&c->next.member[k].key, key) == 0)
                bits |= 1u << k;
    }
    return bits;
}
