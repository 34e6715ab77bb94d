/*
 * Owns what a proposal stands on: promises of a quorum, and where it was voted for before, the
 * ballots that led there. Its one idea: a member's word that it voted is worth what it can show,
 * since somebody else must have proposed it, on promises that others signed. It refuses votes of
 * ballots whose proposer never spoke, and proposals whose first ballot does not bear them out.
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
    if (!gsp_quorum(roster->n, bits))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!gsp_statement_verify(&a->seals, &promise[i]))
            return 0;
    return bits;
}

/* Each contributor signed for what the proposal says that it brought. */
static bool backed(const gsp_agree *a, const gsp_proposal *p, const gsp_statement *promise,
                   uint32_t n)
{
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

/* The proposer of the statement's ballot said it. */
static bool proposed(const gsp_agree *a, const gsp_statement *s, const gsp_hash *subject)
{
    uint32_t proposer = gsp_view_proposer(a, s->ballot);
    return proposer < gsp_agree_roster(a)->n && s->kind == GSP_SAYS_PROPOSE &&
           s->version == a->certified + 1 && s->ballot != 0 &&
           gsp_hash_equal(&s->lineage, &a->lineage) && gsp_hash_equal(&s->subject, subject) &&
           gsp_member_equal(&s->signer, &gsp_agree_roster(a)->member[proposer]) &&
           gsp_statement_verify(&a->seals, s);
}

const char *gsp_proof_wrong(const gsp_agree *a, const gsp_proposal *proposal,
                            const gsp_hash *subject, uint32_t voted, const gsp_proof *proof)
{
    uint32_t ballot = voted, promised = 0;
    if (proof->n == 0 || proof->n > GSP_GROUNDS_MAX)
        return "a vote without a proof";
    for (uint32_t k = 0; k < proof->n; k++) {
        const gsp_ground *g = &proof->ground[k];
        bool gap = k > 0 && k + 1 == GSP_GROUNDS_MAX; /* what lay between is left out */
        if (gap ? g->statement.ballot > ballot : g->statement.ballot != ballot)
            return "a proof of another ballot";
        if (!proposed(a, &g->statement, subject))
            return "a vote for what nobody proposed";
        promised =
            gsp_proof_promises(a, g->promise, g->n_promises, g->statement.ballot, subject, &ballot);
        if (promised == 0)
            return "a proposal without promises";
        if ((ballot == 0) != (k + 1 == proof->n))
            return "a proof that does not end where it was proposed first";
    }
    const gsp_ground *first = &proof->ground[proof->n - 1];
    const char *wrong = gsp_proposal_wrong(a, proposal, promised, true);
    if (wrong)
        return wrong;
    return backed(a, proposal, first->promise, first->n_promises)
               ? NULL
               : "a contribution that nobody signed for";
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
    const char *wrong = gsp_proposal_wrong(a, &p->proposal, promised, false);
    if (wrong)
        return wrong;
    return backed(a, &p->proposal, p->promise, p->n_promises)
               ? NULL
               : "a contribution that nobody signed for";
}

void gsp_proof_look(gsp_agree *a, const gsp_proof *proof)
{
    for (uint32_t k = 0; a->has_pending && k < proof->n && k < GSP_GROUNDS_MAX; k++)
        if (proof->ground[k].statement.ballot == a->pending.ballot)
            gsp_people_accuse(a, &a->pending.as.propose.statement, &proof->ground[k].statement);
}

void gsp_proof_of(const gsp_propose *p, gsp_proof *out)
{
    uint32_t kept = p->proof.n < GSP_GROUNDS_MAX ? p->proof.n : GSP_GROUNDS_MAX - 1;
    memset(out, 0, sizeof *out);
    out->ground[0].statement = p->statement;
    out->ground[0].n_promises = p->n_promises;
    memcpy(out->ground[0].promise, p->promise, sizeof p->promise);
    for (uint32_t k = 0; k < kept; k++) /* the newest ones, and the first of all */
        out->ground[k + 1] = p->proof.ground[k + 1 < kept ? k : p->proof.n - 1];
    out->n = kept + 1;
}
