/*
 * What state of another a machine may take over, said a second time: each step of the chain that led
 * to it is walked here with the seals of those who must have signed it, and what the machine holds
 * afterwards is compared with where that leads. Of the agreement's own code it uses hashes alone.
 */
#ifndef TESTS_FUZZ_FORGE_ORACLE_STATE_H
#define TESTS_FUZZ_FORGE_ORACLE_STATE_H

#include "gossip/member/trail.h"
#include "tests/fuzz/forge_oracle.h"

/* Where a chain has led so far. */
typedef struct forge_place {
    gsp_hash pool, lineage, newest;
    uint32_t reset, generation;
    gsp_order order;
    uint64_t version, tokens, samples, made;
    gsp_roster voters, roster; /* of the newest certificate; of what follows */
    /* After what both have: how far the common lineage went, and the first fork of it. */
    uint64_t reach;
    bool forked;
    gsp_roster left;
    uint32_t behind; /* bits of `left`: who signed the newest step after the fork */
} forge_place;

static inline uint32_t forge_bit(const gsp_roster *r, const gsp_key *key)
{
    const gsp_member *seat = forge_seat(r, key);
    return seat ? 1u << (seat - r->member) : 0;
}

static inline bool forge_sealed(const gsp_key *key, const gsp_hash *id, const uint8_t *seal)
{
    return forge_verify(NULL, key, id->byte, sizeof id->byte, seal);
}

/* A certificate's head, by the votes of a quorum of the roster before it. */
static inline void forge_walk_link(forge_place *at, gsp_trust trust, const gsp_chain_link *link,
                                   bool judged)
{
    static gsp_certificate c; /* its votes, as the oracle of certificates looks at them */
    static forge_before was;
    const gsp_head *h = &link->head;
    gsp_seals seals = forge_seals(NULL);
    bool same = forge_same(&h->next, &at->roster, sizeof at->roster);
    uint32_t behind = 0;
    gsp_hash id;
    gsp_head_hash(&seals, h, &id);
    was.roster = at->roster;
    if (judged) {
        c.proposal.lineage = h->lineage;
        c.proposal.version = h->version;
        c.ballot = link->ballot;
        c.n_votes = link->n_votes;
        memcpy(c.vote, link->vote, sizeof c.vote);
        forge_judge_votes_for(&was, trust, &c, &id);
        forge_judge_roster(&was, &h->next, NULL);
        ATOM_ASSERT(forge_same(&h->lineage, &at->lineage, sizeof h->lineage));
        ATOM_ASSERT(h->version > at->version && h->tokens >= at->tokens &&
                    h->samples >= at->samples);
        ATOM_ASSERT(h->since == at->made && h->made == (same ? at->made : h->version));
    }
    for (uint32_t i = 0; i < link->n_votes; i++)
        behind |= forge_bit(&at->left, &at->roster.member[link->vote[i].member].key);
    at->behind = at->forked ? behind : 0;
    at->reach = at->forked ? at->reach : h->version;
    at->version = h->version;
    at->tokens = h->tokens;
    at->samples = h->samples;
    at->made = h->made;
    at->newest = id;
    at->voters = at->roster;
    at->roster = h->next;
}

/* The seals of all who begin it, which its id says nothing of. */
static inline void forge_judge_founders(const gsp_genesis *g, const gsp_hash *id)
{
    bool founder = g->roster.n == 0;
    ATOM_ASSERT(g->roster.n <= GSP_MEMBERS_MAX && forge_sealed(&g->founder.key, id, g->seal));
    for (uint32_t i = 0; i < g->roster.n; i++) {
        const gsp_member *who = &g->roster.member[i];
        bool founds = gsp_member_equal(who, &g->founder);
        ATOM_ASSERT(founds || forge_sealed(&who->key, id, g->consent[i]));
        founder = founder || founds;
    }
    ATOM_ASSERT(founder);
}

/* A reset is the owner's order for the place that it names, and the owner's alone. */
static inline void forge_judge_reset(const forge_place *at, const gsp_key *owner,
                                     const gsp_genesis *g)
{
    gsp_seals seals = forge_seals(owner);
    gsp_genesis ordered = *g;
    gsp_order_seal(&seals, &ordered);
    ATOM_ASSERT(g->generation > at->generation);
    ATOM_ASSERT(forge_same(&g->order, &ordered.order, sizeof g->order));
    ATOM_ASSERT(forge_same(&g->founder.key, owner, sizeof *owner) && g->roster.n == 0);
}

/* A fork continues exactly from there, under the same order, and is of those who were there. */
static inline void forge_judge_fork(const forge_place *at, const gsp_genesis *g)
{
    ATOM_ASSERT(g->reset == at->reset && forge_same(&g->order, &at->order, sizeof g->order));
    ATOM_ASSERT(g->generation == at->generation + 1 && g->version == at->version);
    ATOM_ASSERT(g->tokens == at->tokens && g->samples == at->samples);
    ATOM_ASSERT(forge_same(&g->parent, &at->lineage, sizeof g->parent));
    ATOM_ASSERT(forge_same(&g->previous, &at->newest, sizeof g->previous));
    for (uint32_t i = 0; i < g->roster.n; i++) {
        const gsp_member *who = &g->roster.member[i], *seat = forge_seat(&at->roster, &who->key);
        ATOM_ASSERT(seat && who->incarnation > seat->incarnation);
        ATOM_ASSERT(i == 0 || memcmp(&who[-1].key, &who->key, sizeof who->key) < 0);
    }
}

static inline void forge_judge_genesis(const forge_place *at, const gsp_key *owner,
                                       const gsp_genesis *g, const gsp_hash *id)
{
    forge_judge_founders(g, id);
    ATOM_ASSERT(g->cell == 0 && forge_same(&g->pool, &at->pool, sizeof g->pool));
    if (g->reset > at->reset)
        forge_judge_reset(at, owner, g);
    else
        forge_judge_fork(at, g);
}

static inline void forge_walk_genesis(forge_place *at, const gsp_key *owner, const gsp_genesis *g,
                                      bool judged)
{
    gsp_seals seals = forge_seals(NULL);
    gsp_hash id;
    gsp_genesis_hash(&seals, g, &id);
    if (judged)
        forge_judge_genesis(at, owner, g, &id);
    if (g->reset > at->reset) { /* from the owner's word on everything begins anew */
        at->forked = false;
        at->reach = g->version;
    } else if (!at->forked) {
        at->forked = true;
        at->left = at->roster;
    }
    at->pool = g->pool;
    at->lineage = at->newest = id;
    at->reset = g->reset;
    at->generation = g->generation;
    at->order = g->order;
    at->version = at->made = g->version;
    at->tokens = g->tokens;
    at->samples = g->samples;
    memset(&at->roster, 0, sizeof at->roster);
    at->roster.n = 1;
    at->roster.member[0] = g->founder;
    if (g->roster.n)
        at->roster = g->roster;
    at->behind = 0;
    for (uint32_t i = 0; at->forked && i < at->roster.n; i++)
        at->behind |= forge_bit(&at->left, &at->roster.member[i].key);
}

/* Walks the steps from `from` on, which are judged if they are not my own. */
static inline void forge_walk(forge_place *at, gsp_trust trust, const gsp_key *owner,
                              const gsp_trail *trail, uint32_t from, uint32_t to, bool judged)
{
    static gsp_step step;
    for (uint32_t i = from; i < to; i++) {
        gsp_trail_read(trail, i, &step);
        if (step.is_genesis)
            forge_walk_genesis(at, owner, &step.as.genesis, judged);
        else
            forge_walk_link(at, trust, &step.as.link, judged);
    }
}

/* What it holds is where the chain leads, or what the same roster certified after that. */
static inline void forge_judge_arrival(const gsp_agree *a, const forge_place *there)
{
    const gsp_certificate *c = &a->certificate;
    gsp_seals seals = forge_seals(NULL);
    gsp_hash id = there->lineage;
    ATOM_ASSERT(forge_same(&a->lineage, &there->lineage, sizeof a->lineage));
    ATOM_ASSERT(a->applied == a->certified);
    if (a->genesis.generation) /* the first one is known by its id */
        forge_judge_founders(&a->genesis, &a->lineage);
    if (c->proposal.version > a->genesis.version) {
        ATOM_ASSERT(forge_same(&c->proposal.lineage, &a->lineage, sizeof a->lineage));
        ATOM_ASSERT(c->proposal.version == a->certified);
        gsp_proposal_hash(&seals, &c->proposal, &id);
    }
    ATOM_ASSERT(forge_same(&a->previous, &id, sizeof id));
    if (forge_same(&id, &there->newest, sizeof id)) {
        forge_before was = {.roster = there->voters};
        if (c->proposal.version > a->genesis.version)
            forge_judge_votes_for(&was, a->rules.trust, c, &id);
        return;
    }
    forge_place further = *there;
    gsp_chain_link link;
    gsp_chain_link_of(&seals, c, &link);
    forge_walk_link(&further, a->rules.trust, &link, true);
}

/* A machine that has a lineage leaves it for the owner's later reset; for what more of its roster
 * stand behind than may be hostile; or, where it had given up, for anybody. No fork makes it forget
 * what a quorum certified after the place where that fork began. */
static inline void forge_judge_choice(const forge_place *mine, const forge_place *theirs,
                                      gsp_trust trust, bool gave_up, bool many_keys)
{
    uint32_t liars = trust == GSP_STRANGERS ? (theirs->left.n - 1) / 3 : theirs->left.n >= 3;
    bool trusted = !theirs->forked || (uint32_t)__builtin_popcount(theirs->behind) > liars;
    ATOM_ASSERT(theirs->reset >= mine->reset);
    ATOM_ASSERT(trusted || gave_up);
    if (theirs->reset > mine->reset)
        return;
    ATOM_ASSERT(gave_up || theirs->reach >= mine->reach);
    if (!many_keys) /* nobody waits for so long that fewer would do */
        ATOM_ASSERT(!theirs->forked || forge_quorum(trust, theirs->left.n, theirs->behind));
}

/*
 * After a state was offered. mine, theirs: the chains; gave_up: it had been without a quorum for so
 * long before. many_keys: time may pass until machines go on without a quorum.
 */
static inline void forge_judge_state(const gsp_agree *a, const forge_before *was,
                                     const gsp_trail *mine, const gsp_saved *disk,
                                     const gsp_trail *theirs, bool gave_up, bool many_keys)
{
    static forge_place common, here, there;
    static gsp_step tail;
    bool same = forge_same(&a->lineage, &was->lineage, sizeof a->lineage);
    uint32_t k = 0;
    if (same && a->certified == was->certified)
        return;
    while (k < mine->n && k < theirs->n &&
           forge_same(&mine->step[k].id, &theirs->step[k].id, sizeof(gsp_hash)))
        k++;
    ATOM_ASSERT(k > 0); /* the pool's first lineage */
    memset(&common, 0, sizeof common);
    forge_walk(&common, a->rules.trust, &a->rules.owner, mine, 0, k, false);
    common.forked = false;
    common.reach = common.version;
    here = there = common;
    forge_walk(&here, a->rules.trust, &a->rules.owner, mine, k, mine->n, false);
    if (gsp_trail_tail(mine, disk, &tail))
        forge_walk_link(&here, a->rules.trust, &tail.as.link, false);
    forge_walk(&there, a->rules.trust, &a->rules.owner, theirs, k, theirs->n, true);
    forge_judge_arrival(a, &there);
    if (same)
        ATOM_ASSERT(a->certified > was->certified);
    else
        forge_judge_choice(&here, &there, a->rules.trust, gave_up, many_keys);
}

#endif
