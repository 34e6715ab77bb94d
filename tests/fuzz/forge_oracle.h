/*
 * What an honest machine may take on, said a second time: by reading what it holds after a step and
 * what it held before, and by nothing of the agreement's own checks but the hash of a proposal.
 */
#ifndef TESTS_FUZZ_FORGE_ORACLE_H
#define TESTS_FUZZ_FORGE_ORACLE_H

#include "atom/base/assert.h"
#include "gossip/agree/agree.h"
#include "tests/fuzz/forge_fields.h"
#include "tests/fuzz/forge_seals.h"

typedef struct forge_before {
    gsp_hash lineage, previous;
    gsp_roster roster;
    uint64_t certified, tokens, samples, forks;
    uint32_t n_parts;
} forge_before;

static inline forge_before forge_look(const gsp_agree *a)
{
    return (forge_before){.lineage = a->lineage,
                          .previous = a->previous,
                          .roster = a->certificate.proposal.next,
                          .certified = a->certified,
                          .tokens = a->certificate.proposal.tokens,
                          .samples = a->certificate.proposal.samples,
                          .forks = a->stats.forks,
                          .n_parts = a->rules.n_parts};
}

static inline bool forge_same(const void *x, const void *y, size_t bytes)
{
    return memcmp(x, y, bytes) == 0;
}

static inline const gsp_member *forge_seat(const gsp_roster *r, const gsp_key *key)
{
    for (uint32_t i = 0; i < r->n && i < GSP_MEMBERS_MAX; i++)
        if (forge_same(&r->member[i].key, key, sizeof *key))
            return &r->member[i];
    return NULL;
}

/* Among friends more than half, or half with the first; among strangers more than two thirds. */
static inline bool forge_quorum(gsp_trust trust, uint32_t n, uint32_t voters)
{
    uint32_t some = (uint32_t)__builtin_popcount(voters);
    return trust == GSP_STRANGERS ? 3 * some > 2 * n
                                  : 2 * some > n || (2 * some == n && (voters & 1));
}

/* Different members of the roster of the version voted for the proposal with this id, and they are
 * a quorum. */
static inline void forge_judge_votes_for(const forge_before *was, gsp_trust trust,
                                         const gsp_certificate *c, const gsp_hash *id)
{
    gsp_seals seals = forge_seals(NULL);
    gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                          .lineage = c->proposal.lineage,
                          .version = c->proposal.version,
                          .ballot = c->ballot,
                          .subject = *id};
    uint32_t voters = 0;
    for (uint32_t i = 0; i < c->n_votes; i++) {
        uint32_t m = c->vote[i].member;
        ATOM_ASSERT(m < was->roster.n && !(voters >> m & 1));
        voters |= 1u << m;
        vote.signer = was->roster.member[m];
        memcpy(vote.seal, c->vote[i].seal, sizeof vote.seal);
        ATOM_ASSERT(gsp_statement_verify(&seals, &vote));
    }
    ATOM_ASSERT(forge_quorum(trust, was->roster.n, voters));
}

static inline void forge_judge_votes(const forge_before *was, gsp_trust trust,
                                     const gsp_certificate *c)
{
    gsp_seals seals = forge_seals(NULL);
    gsp_hash id;
    gsp_proposal_hash(&seals, &c->proposal, &id);
    forge_judge_votes_for(was, trust, c, &id);
}

/* The next roster holds members of the one before, and joiners. admitted: these have an admission;
 * NULL: a quorum that the fuzzer signs for says so. */
static inline void forge_judge_roster(const forge_before *was, const gsp_roster *now,
                                      bool (*admitted)(const gsp_key *))
{
    uint32_t joined = 0;
    ATOM_ASSERT(now->n >= 1 && now->n <= GSP_MEMBERS_MAX);
    for (uint32_t i = 0; i < now->n; i++) {
        const gsp_member *who = &now->member[i];
        ATOM_ASSERT(i == 0 || memcmp(&now->member[i - 1].key, &who->key, sizeof who->key) < 0);
        joined += !forge_seat(&was->roster, &who->key);
        ATOM_ASSERT(!admitted || forge_seat(&was->roster, &who->key) || admitted(&who->key));
    }
    ATOM_ASSERT(joined <= (was->roster.n > 3 ? was->roster.n : 3));
}

/* Weights are what was brought, at most; no sum of them wraps; and the pool's counts grow by no more
 * than what was certified as brought. */
static inline void forge_judge_numbers(const forge_before *was, const gsp_proposal *p)
{
    const uint64_t most = (uint64_t)1 << 48;
    uint64_t sum = 0;
    ATOM_ASSERT(p->n_contributors <= was->roster.n && p->n_parts == was->n_parts);
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const gsp_contributor *c = &p->contributor[i];
        ATOM_ASSERT(c->member < was->roster.n && c->tokens <= most && c->weight <= c->tokens);
        ATOM_ASSERT(i == 0 || p->contributor[i - 1].member < c->member);
        sum += c->weight;
    }
    ATOM_ASSERT(p->tokens >= was->tokens && p->tokens - was->tokens <= sum);
    ATOM_ASSERT(p->samples >= was->samples && p->samples - was->samples <= sum);
    for (uint32_t k = 0; k < p->n_parts; k++) {
        uint64_t weight = 0;
        for (uint32_t i = 0; i < p->n_contributors; i++)
            weight += p->part[k].included >> i & 1 ? p->contributor[i].weight : 0;
        ATOM_ASSERT(p->part[k].weight == weight);
        ATOM_ASSERT(isfinite(p->part[k].norm) && p->part[k].norm >= 0);
        ATOM_ASSERT(p->n_contributors == 32 || p->part[k].included >> p->n_contributors == 0);
    }
}

/*
 * many_keys: the fuzzer signs for a quorum, and so may certify what it likes within these rules.
 * Else a machine's lineage must not change, unless it went on by itself.
 */
static inline void forge_judge(const gsp_agree *a, const forge_before *was,
                               bool (*admitted)(const gsp_key *), bool many_keys)
{
    const gsp_certificate *c = &a->certificate;
    if (!forge_same(&a->lineage, &was->lineage, sizeof a->lineage)) {
        ATOM_ASSERT(many_keys || a->stats.forks > was->forks);
        return;
    }
    if (a->certified == was->certified)
        return;
    ATOM_ASSERT(a->certified == was->certified + 1);
    ATOM_ASSERT(c->proposal.version == a->certified);
    ATOM_ASSERT(forge_same(&c->proposal.previous, &was->previous, sizeof was->previous));
    forge_judge_votes(was, a->rules.trust, c);
    forge_judge_roster(was, &c->proposal.next, many_keys ? NULL : admitted);
    forge_judge_numbers(was, &c->proposal);
}

#endif
