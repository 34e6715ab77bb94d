/*
 * Chains for tests (gossip/agree/certificate_chain.h): twelve people with real keys, of whom 11 owns the pool,
 * and what makes the steps that they sign. `begin` first; the rest is of one thread.
 */
#ifndef TESTS_LIB_GOSSIP_CHAIN_H
#define TESTS_LIB_GOSSIP_CHAIN_H

#include "gossip/member/trail.h"
#include "gossip/trust/seals.h"
#include "tests/lib/gossip_pool.h"

#include <string.h>

enum { PEOPLE = 12 };

static test_pool pool;
static gsp_seals seals[PEOPLE];
static gsp_chain_terms terms;
static gsp_genesis genesis;

static inline gsp_member member(unsigned i, uint64_t incarnation)
{
    gsp_member m = {.incarnation = incarnation};
    memcpy(m.key.byte, pool.member[i].public_key, sizeof m.key.byte);
    return m;
}

static inline unsigned who(const gsp_key *key)
{
    unsigned i = 0;
    while (memcmp(pool.member[i].public_key, key->byte, sizeof key->byte) != 0)
        i++;
    return i;
}

static inline void put(gsp_roster *r, gsp_member m)
{
    uint32_t at = r->n++;
    for (; at > 0 && gsp_key_compare(&r->member[at - 1].key, &m.key) > 0; at--)
        r->member[at] = r->member[at - 1];
    r->member[at] = m;
}

static inline gsp_roster roster_of(unsigned first, unsigned n)
{
    gsp_roster r = {.n = 0};
    for (unsigned i = first; i < first + n; i++)
        put(&r, member(i, 1));
    return r;
}

static inline void begin(void)
{
    test_must(gsp_crypto_start());
    test_pool_make(&pool, 9);
    for (unsigned i = 0; i < PEOPLE; i++)
        seals[i] = gsp_seals_real(&pool.member[i]);
    genesis = (gsp_genesis){.pool = {{7}}, .founder = member(0, 1)};
    terms = (gsp_chain_terms){.seals = &seals[0], .owner = member(11, 1).key};
    gsp_genesis_hash(&seals[0], &genesis, &terms.first);
}

/* ---- making chains ---- */

static inline void vote(gsp_chain_link *link, const gsp_roster *voters, uint32_t bits)
{
    gsp_statement s = {.kind = GSP_SAYS_VOTE,
                       .lineage = link->head.lineage,
                       .version = link->head.version,
                       .ballot = link->ballot};
    gsp_head_hash(&seals[0], &link->head, &s.subject);
    link->n_votes = 0;
    for (uint32_t i = 0; i < voters->n; i++) {
        if (!(bits >> i & 1))
            continue;
        s.signer = voters->member[i];
        gsp_statement_seal(&seals[who(&s.signer.key)], &s);
        link->vote[link->n_votes].member = (uint8_t)i;
        memcpy(link->vote[link->n_votes++].seal, s.seal, sizeof s.seal);
    }
}

/* A certificate of `version` by those bits of the roster. */
static inline gsp_step link_to(const gsp_trail *t, uint64_t version, const gsp_roster *next,
                               uint64_t tokens, uint32_t bits)
{
    gsp_step step = {.is_genesis = false};
    gsp_head *h = &step.as.link.head;
    bool same = gsp_roster_equal(next, &t->end.roster);
    *h = (gsp_head){.lineage = t->end.lineage,
                    .version = version,
                    .tokens = tokens,
                    .samples = tokens,
                    .contents = {{(uint8_t)version}},
                    .next = *next,
                    .since = t->end.made,
                    .made = same ? t->end.made : version};
    step.as.link.ballot = 1;
    vote(&step.as.link, &t->end.roster, bits);
    return step;
}

static inline gsp_step fork_of(const gsp_trail *t, const gsp_roster *roster, unsigned founder)
{
    gsp_step step = {.is_genesis = true};
    gsp_genesis *g = &step.as.genesis;
    gsp_hash id;
    *g = (gsp_genesis){.pool = genesis.pool,
                       .reset = t->end.reset,
                       .order = t->end.order,
                       .generation = t->end.generation + 1,
                       .parent = t->end.lineage,
                       .version = t->end.version,
                       .previous = t->end.newest,
                       .tokens = t->end.tokens,
                       .samples = t->end.samples,
                       .founder = member(founder, 2)};
    for (uint32_t i = 0; roster && i < roster->n; i++) {
        gsp_member m = roster->member[i];
        m.incarnation++;
        put(&g->roster, m);
        if (who(&m.key) == founder)
            g->founder = m;
    }
    gsp_genesis_hash(&seals[0], g, &id);
    seals[founder].seal(seals[founder].context, id.byte, sizeof id.byte, g->seal);
    for (uint32_t i = 0; i < g->roster.n; i++) {
        unsigned k = who(&g->roster.member[i].key);
        if (k != founder)
            seals[k].seal(seals[k].context, id.byte, sizeof id.byte, g->consent[i]);
    }
    return step;
}

static inline void add(gsp_trail *t, gsp_step step)
{
    test_must(gsp_trail_add(t, &step, false));
}

static inline bool refused(const gsp_trail *t, gsp_step step)
{
    gsp_chain chain = t->end;
    return gsp_chain_take(&terms, &chain, &step, false) != NULL;
}

/* The pool: 0 alone until version 2, then 0, 1, 2, and from version 10 on n members. */
static inline void history(gsp_trail *t, unsigned n)
{
    gsp_roster three = roster_of(0, 3), six = roster_of(0, 6), all = roster_of(0, n);
    gsp_step first = {.is_genesis = true, .as.genesis = genesis};
    gsp_trail_open(t, &terms);
    add(t, first);
    add(t, link_to(t, 2, &three, 5, 1));
    if (n > 6)
        add(t, link_to(t, 8, &six, 40, 7));
    if (n > 3)
        add(t, link_to(t, 10, &all, 50, n > 6 ? 15 : 7));
}

/* The owner's reset after where the trail is. */
static inline gsp_step reset_of(const gsp_trail *t, uint32_t number)
{
    gsp_step step = fork_of(t, NULL, 11);
    gsp_genesis *g = &step.as.genesis;
    gsp_hash id;
    g->reset = number;
    gsp_order_seal(&seals[11], g);
    gsp_genesis_hash(&seals[0], g, &id);
    seals[11].seal(seals[11].context, id.byte, sizeof id.byte, g->seal);
    return step;
}

#endif
