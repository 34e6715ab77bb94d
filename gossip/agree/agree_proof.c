/*
 * Owns what a proposal stands on: promises of a quorum, and where it was voted for before, a
 * quorum's echoes of it. Its one idea: a member's word that it voted is worth what it can show, and
 * what a quorum echoed was found right by somebody honest. It refuses votes for what nobody can have
 * voted for, and proposals that leave out what a promise tells of.
 */
#include "gossip/agree/agree_inner.h"

uint32_t gsp_proof_promises(const gsp_agree *a, const gsp_statement *promise, uint32_t n,
                            uint32_t ballot, const gsp_hash *subject, uint32_t *highest)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    uint32_t bits = 0;
    *highest = 0;
    if (n > roster->n)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        const gsp_statement *s = &promise[i];
        uint32_t who = gsp_roster_find(roster, &s->signer);
        if (who == GSP_NOBODY || (bits >> who) != 0 || s->kind != GSP_SAYS_PROMISE ||
            s->version != a->certified + 1 || s->ballot != ballot || s->voted >= ballot ||
            !gsp_hash_equal(&s->lineage, &a->lineage))
            return 0;
        bits |= 1u << who;
        *highest = s->voted > *highest ? s->voted : *highest;
    }
    for (uint32_t i = 0; *highest && i < n; i++)
        if (promise[i].voted == *highest && !gsp_hash_equal(&promise[i].subject, subject))
            return 0;
    if (!gsp_quorum(a->rules.trust, roster->n, bits))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!gsp_statement_verify(&a->seals, &promise[i]))
            return 0;
    return bits;
}

/* Each contributor signed for what the proposal says that it brought, and nobody who promised to
 * bring something was left out. */
static bool backed(const gsp_agree *a, const gsp_proposal *p, const gsp_statement *promise,
                   uint32_t n)
{
    uint32_t bring = 0;
    for (uint32_t k = 0; k < n; k++)
        bring += !gsp_hash_none(&promise[k].root);
    if (bring != p->n_contributors)
        return false;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const gsp_contributor *c = &p->contributor[i];
        const gsp_member *who = &gsp_agree_roster(a)->member[c->member];
        gsp_contribution brought = {.root = c->root, .tokens = c->tokens, .samples = c->samples};
        gsp_hash hash;
        uint32_t k = 0;
        while (k < n && !gsp_member_equal(&promise[k].signer, who))
            k++;
        gsp_contribution_hash(&a->seals, &brought, &hash);
        if (k == n || !gsp_hash_equal(&hash, &promise[k].root))
            return false;
    }
    return true;
}

const char *gsp_proof_wrong(const gsp_agree *a, const gsp_proposal *proposal,
                            const gsp_hash *subject, uint32_t voted, const gsp_proof *proof)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    uint32_t bits = 0;
    if (proof->n == 0 || proof->n > roster->n)
        return "a vote without a proof";
    for (uint32_t i = 0; i < proof->n; i++) {
        const gsp_statement *s = &proof->echo[i];
        uint32_t who = gsp_roster_find(roster, &s->signer);
        if (who == GSP_NOBODY || (bits >> who) != 0 || s->kind != GSP_SAYS_ECHO ||
            s->version != a->certified + 1 || s->ballot != voted ||
            !gsp_hash_equal(&s->lineage, &a->lineage) || !gsp_hash_equal(&s->subject, subject))
            return "a proof of something else";
        bits |= 1u << who;
    }
    if (!gsp_quorum(a->rules.trust, roster->n, bits))
        return "a vote for what no quorum was proposed";
    for (uint32_t i = 0; i < proof->n; i++)
        if (!gsp_statement_verify(&a->seals, &proof->echo[i]))
            return "an echo that nobody signed";
    if (!gsp_hash_equal(&proposal->previous, &a->previous))
        return "it follows another certificate";
    return gsp_proposal_invalid(&a->rules, &a->seals, &a->certificate.proposal, proposal,
                                &a->round);
}

const char *gsp_proof_ballot_wrong(const gsp_agree *a, const gsp_propose *p, uint32_t ballot)
{
    uint32_t highest;
    uint32_t promised =
        gsp_proof_promises(a, p->promise, p->n_promises, ballot, &p->statement.subject, &highest);
    if (promised == 0)
        return "a proposal without promises";
    if (highest)
        return gsp_proof_wrong(a, &p->proposal, &p->statement.subject, highest, &p->proof);
    if (p->proof.n)
        return "a proof of no vote";
    const char *wrong = gsp_proposal_wrong(a, &p->proposal, &p->proof.changes, promised,
                                           gsp_withheld_out(a, p->promise, p->n_promises));
    if (wrong)
        return wrong;
    return backed(a, &p->proposal, p->promise, p->n_promises)
               ? NULL
               : "contributors that are not those who promised";
}

uint32_t gsp_proof_make(const gsp_agree *a, uint32_t ballot, const gsp_hash *subject,
                        gsp_proof *out)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++) {
        const gsp_statement *s = &a->echo[i];
        if (!s->kind || s->ballot != ballot || !gsp_hash_equal(&s->subject, subject))
            continue;
        if (out)
            out->echo[out->n++] = *s;
        bits |= 1u << i;
    }
    return bits;
}
