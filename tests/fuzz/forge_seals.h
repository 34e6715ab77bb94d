/*
 * Hashes and seals that cost nothing and that the fuzzer makes for every key, and what makes a
 * changed message whole again: its hashes, then the seals of those that are said to have signed it.
 * Nobody is asked whether the signer would have said it.
 */
#ifndef TESTS_FUZZ_FORGE_SEALS_H
#define TESTS_FUZZ_FORGE_SEALS_H

#include "gossip/agree/round.h"

#include <string.h>

/* Whose keys the fuzzer has: bit k for the key whose first byte is k + 1. */
typedef struct forge_keys {
    uint64_t owned;
} forge_keys;

static inline uint64_t forge_mix(uint64_t x, uint64_t y)
{
    x = (x ^ y) * 0x9fb21c651e98df25u;
    return x ^ x >> 29;
}

static inline void forge_hash_of(void *context, const void *data, size_t bytes, gsp_hash *out)
{
    (void)context;
    uint64_t a = 0x243f6a8885a308d3u ^ bytes, b = 0x13198a2e03707344u, x;
    const uint8_t *at = data;
    for (; bytes; at += bytes < 8 ? bytes : 8, bytes -= bytes < 8 ? bytes : 8) {
        x = 0;
        memcpy(&x, at, bytes < 8 ? bytes : 8);
        a = forge_mix(a, x);
        b = forge_mix(b, x + a);
    }
    for (uint32_t k = 0; k < 4; k++) {
        a = forge_mix(a, b + k);
        memcpy(out->byte + 8 * k, &a, 8);
    }
}

static inline void forge_seal_as(const gsp_key *key, const void *data, size_t bytes, uint8_t *out)
{
    gsp_hash h[2];
    forge_hash_of(NULL, data, bytes, &h[0]);
    for (uint32_t k = 0; k < GSP_KEY_BYTES; k++)
        h[0].byte[k] ^= key->byte[k];
    forge_hash_of(NULL, &h[0], sizeof h[0], &h[1]);
    memcpy(out, h[1].byte, 32);
    memcpy(out + 32, h[1].byte, 32);
}

static inline void forge_seal(void *context, const void *data, size_t bytes,
                              uint8_t out[GSP_SEAL_BYTES])
{
    forge_seal_as(context, data, bytes, out);
}

static inline bool forge_verify(void *context, const gsp_key *key, const void *data, size_t bytes,
                                const uint8_t given[GSP_SEAL_BYTES])
{
    (void)context;
    uint8_t right[GSP_SEAL_BYTES];
    forge_seal_as(key, data, bytes, right);
    return memcmp(right, given, sizeof right) == 0;
}

/* Seals as the member with this key, which must outlive what is returned. */
static inline gsp_seals forge_seals(const gsp_key *key)
{
    return (gsp_seals){.context = (void *)(uintptr_t)key,
                       .hash = forge_hash_of,
                       .seal = forge_seal,
                       .verify = forge_verify};
}

static inline bool forge_owns(const forge_keys *keys, const gsp_key *key)
{
    return key->byte[0] >= 1 && key->byte[0] <= 64 && (keys->owned >> (key->byte[0] - 1) & 1);
}

static inline void forge_sign(const forge_keys *keys, gsp_statement *s)
{
    gsp_seals seals = forge_seals(&s->signer.key);
    if (forge_owns(keys, &s->signer.key))
        gsp_statement_seal(&seals, s);
}

static inline void forge_sign_part(const forge_keys *keys, const gsp_hash *lineage,
                                   uint64_t version, uint32_t number, const gsp_member *owner,
                                   const gsp_contributor *contributor, uint32_t n, gsp_part *part)
{
    gsp_seals seals = forge_seals(&owner->key);
    gsp_hash contributors;
    gsp_statement said;
    if (n > GSP_MEMBERS_MAX)
        return;
    gsp_contributors_hash(&seals, contributor, n, &contributors);
    gsp_reduced_statement(&seals, lineage, version, number, part, &contributors, owner, &said);
    forge_sign(keys, &said);
    memcpy(part->seal, said.seal, sizeof part->seal);
}

/* The owners' seals, then the hash. `roster` is that of the proposal's version. */
static inline void forge_sign_proposal(const forge_keys *keys, const gsp_roster *roster,
                                       gsp_proposal *p, gsp_hash *out)
{
    gsp_seals seals = forge_seals(NULL);
    if (!gsp_proposal_fits(p))
        return;
    for (uint32_t k = 0; k < p->n_parts; k++)
        if (p->part[k].included && p->part[k].owner < roster->n)
            forge_sign_part(keys, &p->lineage, p->version, k, &roster->member[p->part[k].owner],
                            p->contributor, p->n_contributors, &p->part[k]);
    gsp_proposal_hash(&seals, p, out);
}

/* Each contributor's promise is for what the proposal says that it brought. */
static inline void forge_sign_promises(const forge_keys *keys, const gsp_roster *roster,
                                       const gsp_proposal *p, const gsp_hash *subject,
                                       gsp_statement *promise, uint32_t n)
{
    gsp_seals seals = forge_seals(NULL);
    for (uint32_t k = 0; k < n && k < GSP_MEMBERS_MAX; k++) {
        gsp_statement *s = &promise[k];
        for (uint32_t i = 0; p && i < p->n_contributors && i < GSP_MEMBERS_MAX; i++) {
            const gsp_contributor *c = &p->contributor[i];
            gsp_contribution brought = {
                .root = c->root, .tokens = c->tokens, .samples = c->samples};
            if (c->member < roster->n && gsp_member_equal(&roster->member[c->member], &s->signer) &&
                forge_owns(keys, &s->signer.key))
                gsp_contribution_hash(&seals, &brought, &s->root);
        }
        if (s->voted && forge_owns(keys, &s->signer.key))
            s->subject = *subject;
        forge_sign(keys, s);
    }
}

static inline void forge_sign_proof(const forge_keys *keys, const gsp_hash *subject,
                                    gsp_proof *proof)
{
    gsp_changes *c = &proof->changes;
    for (uint32_t k = 0; k < proof->n && k < GSP_MEMBERS_MAX; k++) {
        if (forge_owns(keys, &proof->echo[k].signer.key))
            proof->echo[k].subject = *subject;
        forge_sign(keys, &proof->echo[k]);
    }
    for (uint32_t k = 0; k < c->n_entries && k < GSP_MEMBERS_MAX; k++)
        forge_sign(keys, &c->entry[k].wish);
    for (uint32_t k = 0; k < c->n_exits && k < GSP_MEMBERS_MAX; k++) {
        forge_sign(keys, &c->exit[k].first);
        forge_sign(keys, &c->exit[k].second);
    }
}

static inline void forge_sign_certificate(const forge_keys *keys, const gsp_roster *roster,
                                          gsp_certificate *c)
{
    gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                          .lineage = c->proposal.lineage,
                          .version = c->proposal.version,
                          .ballot = c->ballot};
    forge_sign_proposal(keys, roster, &c->proposal, &vote.subject);
    for (uint32_t i = 0; i < c->n_votes && i < GSP_MEMBERS_MAX; i++) {
        if (c->vote[i].member >= roster->n)
            continue;
        vote.signer = roster->member[c->vote[i].member];
        memcpy(vote.seal, c->vote[i].seal, sizeof vote.seal);
        forge_sign(keys, &vote);
        memcpy(c->vote[i].seal, vote.seal, sizeof vote.seal);
    }
}

/* All who begin it. */
static inline void forge_sign_founders(const forge_keys *keys, gsp_genesis *g)
{
    gsp_seals founder = forge_seals(&g->founder.key);
    gsp_hash id;
    gsp_genesis_hash(&founder, g, &id);
    if (forge_owns(keys, &g->founder.key))
        founder.seal(founder.context, id.byte, sizeof id.byte, g->seal);
    for (uint32_t i = 0; i < g->roster.n; i++) {
        gsp_seals other = forge_seals(&g->roster.member[i].key);
        if (gsp_member_equal(&g->roster.member[i], &g->founder))
            memset(g->consent[i], 0, sizeof g->consent[i]);
        else if (forge_owns(keys, &g->roster.member[i].key))
            other.seal(other.context, id.byte, sizeof id.byte, g->consent[i]);
    }
}

static inline void forge_sign_genesis(const forge_keys *keys, const gsp_key *owner, gsp_genesis *g)
{
    gsp_seals seals = forge_seals(owner);
    if (g->reset && forge_owns(keys, owner))
        gsp_order_seal(&seals, g);
    if (!g->reset)
        memset(&g->order, 0, sizeof g->order);
    forge_sign_founders(keys, g);
}

static inline void forge_sign_promise(const forge_keys *keys, const gsp_roster *roster,
                                      gsp_promise *p)
{
    gsp_seals seals = forge_seals(NULL);
    if (!forge_owns(keys, &p->statement.signer.key))
        return;
    if (p->has_proposal) {
        forge_sign_proposal(keys, roster, &p->proposal, &p->statement.subject);
        forge_sign_proof(keys, &p->statement.subject, &p->proof);
    }
    if (!gsp_hash_none(&p->contribution.root))
        gsp_contribution_hash(&seals, &p->contribution, &p->statement.root);
    forge_sign(keys, &p->statement);
}

static inline void forge_sign_propose(const forge_keys *keys, const gsp_roster *roster,
                                      gsp_propose *p)
{
    gsp_hash *subject = &p->statement.subject;
    forge_sign_proposal(keys, roster, &p->proposal, subject);
    forge_sign_promises(keys, roster, &p->proposal, subject, p->promise, p->n_promises);
    forge_sign_proof(keys, subject, &p->proof);
    forge_sign(keys, &p->statement);
}

/* `contributors` are those of the round that is under way at the receiver. */
static inline void forge_sign_message(const forge_keys *keys, const gsp_roster *roster,
                                      const gsp_key *owner, const gsp_hash *contributors,
                                      gsp_message *m)
{
    gsp_seals seals = forge_seals(NULL);
    gsp_claim *claim = &m->as.accuse.claim;
    switch (m->kind) {
    case GSP_PROMISE:
        forge_sign_promise(keys, roster, &m->as.promise);
        break;
    case GSP_REDUCED:
        gsp_part_hash(&seals, m->as.reduced.statement.item, &m->as.reduced.part,
                      &m->as.reduced.statement.subject);
        m->as.reduced.statement.root = *contributors;
        forge_sign(keys, &m->as.reduced.statement);
        break;
    case GSP_PROPOSE:
        forge_sign_propose(keys, roster, &m->as.propose);
        break;
    case GSP_ECHO:
    case GSP_VOTE:
        forge_sign(keys, &m->as.vote.statement);
        break;
    case GSP_CERTIFY:
        forge_sign_certificate(keys, roster, &m->as.certify.certificate);
        break;
    case GSP_JOIN:
        forge_sign(keys, &m->as.join.entry.wish);
        break;
    case GSP_LEAVE:
        forge_sign(keys, &m->as.leave.statement);
        break;
    case GSP_EVIDENCE:
        forge_sign(keys, &m->as.evidence.first);
        forge_sign(keys, &m->as.evidence.second);
        break;
    case GSP_ACCUSE:
        forge_sign_part(keys, &m->lineage, claim->version, claim->number, &claim->owner,
                        claim->contributor, claim->n_contributors, &claim->part);
        break;
    case GSP_LINEAGE:
        forge_sign_genesis(keys, owner, &m->as.announce.genesis);
        break;
    default:
        break; /* known by the link alone */
    }
}

#endif
