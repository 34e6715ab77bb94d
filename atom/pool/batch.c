/*
 * Owns what a batch of gradients mode is made of. One idea: leases follow from the agreed state and
 * the roster, which every member has, so nobody hands them out and a dead member's are somebody
 * else's in the next version. Refuses a version whose parts are sums over different members: each
 * sample counts once or not at all.
 */
#include "atom/pool/batch.h"

#include "atom/pool/ranges.h"
#include "gossip/agree/signed.h"

#include <string.h>

enum { HEAD_WORDS = 8, MAGIC = 0x31736d67 /* gms1 */ };

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
    return HEAD_WORDS + open_words(n);
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
    memcpy(words + HEAD_WORDS, b->open, open_words(b->n) * sizeof *b->open);
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
    memcpy(b->open, words + HEAD_WORDS, open_words(b->n) * sizeof *b->open);
    b->n_open = 0;
    for (uint32_t i = 0; i < b->n; i++)
        b->n_open += is_open(b, i);
    return true;
}

/* ---- leases ---- */

uint32_t pool_batch_lease(const pool_batch *b, uint32_t n_members, uint32_t index, uint32_t *list)
{
    uint32_t all = n_members >= 32 ? UINT32_MAX : (1u << n_members) - 1;
    uint32_t may = b->brought & all ? b->brought & all : all;
    uint32_t k = (uint32_t)__builtin_popcount(may), at = 0, found = 0;
    bool over = b->max_samples && b->steps * b->n * b->micro_batch >= b->max_samples;
    if (over || index >= n_members || !(may >> index & 1))
        return 0;
    uint64_t rank = (uint64_t)__builtin_popcount(may & ((1u << index) - 1));
    uint64_t from = b->n_open * rank / k, to = b->n_open * (rank + 1) / k;
    for (uint32_t i = 0; i < b->n; i++) {
        if (!is_open(b, i))
            continue;
        if (at >= from && at < to)
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
