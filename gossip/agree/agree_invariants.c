/*
 * Owns what is always true of the machine between two events, and what no event may undo. Its one
 * idea: a member that is wrong about itself must stop before it goes on signing: a wrong
 * word convicts it for ever, while a crash costs the pool one round. It refuses to judge
 * what others claim: an assertion here is about our own state, and no message can make one fail.
 *
 * Everything here is compared, nothing is hashed, so it can run at both ends of every step: the
 * simulator, whose hashes are cheap, is 5 % slower with it.
 */
#include "gossip/agree/agree_inner.h"

#include "atom/base/assert.h"

static uint32_t everybody(const gsp_agree *a)
{
    uint32_t n = gsp_agree_roster(a)->n;
    return n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

/* A newcomer without a lineage has nothing to agree on, so it has said and promised nothing. */
static void check_newcomer(const gsp_agree *a)
{
    ATOM_ASSERT(a->certified == 0 && a->applied == 0 && !a->applying);
    ATOM_ASSERT(gsp_agree_roster(a)->n == 0 && a->self_i == GSP_NOBODY);
    ATOM_ASSERT(a->view == 0 && a->phase == GSP_IDLE);
    ATOM_ASSERT(a->record.promised == 0 && a->record.voted == 0 && !a->has_pending);
}

static void check_versions(const gsp_agree *a)
{
    const gsp_proposal *newest = &a->certificate.proposal;
    const gsp_roster *roster = gsp_agree_roster(a);
    bool missing = false;
    for (uint32_t k = 0; k < GSP_PARTS_MAX / 64; k++)
        missing = missing || a->missing[k];

    /* The newest certificate is that of the newest version, in this lineage. */
    ATOM_ASSERT(newest->version == a->certified && gsp_hash_equal(&newest->lineage, &a->lineage));
    ATOM_ASSERT(gsp_proposal_fits(newest) && a->certificate.n_votes <= GSP_MEMBERS_MAX);
    /* At most one certified version is not applied yet: the next one waits for it. */
    ATOM_ASSERT(a->certified - a->applied <= 1);
    /* It is being applied as soon as its results are all here, and not before. */
    ATOM_ASSERT(a->applying == (a->applied < a->certified && !missing));
    /* My place follows from the roster, and only members of it have said goodbye. */
    if (gsp_agree_is_member(a))
        ATOM_ASSERT(a->self_i < roster->n &&
                    gsp_member_equal(&roster->member[a->self_i], &a->self));
    else
        ATOM_ASSERT(gsp_roster_find(roster, &a->self) == GSP_NOBODY);
    ATOM_ASSERT((a->left & ~everybody(a)) == 0);
}

/* The record is what survives a crash: whatever I have said must be covered by it. */
static void check_record(const gsp_agree *a)
{
    const gsp_record *r = &a->record;

    /* It is mine, and of the version in progress. */
    ATOM_ASSERT(r->version == a->certified + 1 && gsp_hash_equal(&r->lineage, &a->lineage));
    ATOM_ASSERT(gsp_member_equal(&r->self, &a->self));
    /* A vote follows an echo in its ballot, and either is a promise for it too. */
    ATOM_ASSERT(r->voted <= r->echoed && r->echoed <= r->promised);
    /* A vote is for a proposal of this very version, which is kept with it. */
    ATOM_ASSERT(r->voted == 0 ||
                (r->proposal.version == r->version && gsp_proposal_fits(&r->proposal) &&
                 gsp_hash_equal(&r->proposal.lineage, &a->lineage) && r->proof.n > 0));
    /* The echo and the vote that I sent are the recorded ones. */
    ATOM_ASSERT(!gsp_agree_is_member(a) || a->echo[a->self_i].kind == 0 ||
                (a->echo[a->self_i].ballot == r->echoed &&
                 gsp_hash_equal(&a->echo[a->self_i].subject, &r->echo)));
    ATOM_ASSERT(!gsp_agree_is_member(a) || a->vote[a->self_i].kind == 0 ||
                a->vote[a->self_i].ballot == r->voted);
    /* A promise is owed only for what was promised, while the contribution is being frozen. */
    ATOM_ASSERT(a->promise_owed <= r->promised);
    ATOM_ASSERT(a->promise_owed == 0 || a->frozen != GSP_UNFROZEN);
}

/* What others said of the version in progress, once it has been checked and kept. */
static void check_ballot(const gsp_agree *a)
{
    const gsp_message *m = &a->pending;

    /* A proposal that waits, or was voted for, is of this version, and not below my vote. */
    ATOM_ASSERT(!a->has_pending ||
                (m->kind == GSP_PROPOSE && m->version == a->certified + 1 && m->ballot > 0 &&
                 m->ballot >= a->record.voted && gsp_proposal_fits(&m->as.propose.proposal)));
    /* The round moves bytes of this version, in a ballot that I promised. */
    ATOM_ASSERT(a->round.version == a->certified + 1 && a->round.self == a->self_i);
    ATOM_ASSERT(a->round.ballot <= a->record.promised);
    /* It sends what was frozen, and before that nothing. */
    ATOM_ASSERT(a->frozen == GSP_FROZEN
                    ? gsp_hash_equal(&a->round.root, &a->contribution.root)
                    : gsp_hash_none(&a->round.root) && gsp_hash_none(&a->contribution.root));
}

static void check_proposer(const gsp_agree *a)
{
    if (a->phase == GSP_IDLE)
        return;
    /* Only the member whose turn it is proposes, in a version that follows what it has applied. */
    ATOM_ASSERT(gsp_agree_is_member(a) && a->ballot > 0 && a->view > 0);
    ATOM_ASSERT(gsp_view_proposer(a, a->ballot) == a->self_i);
    ATOM_ASSERT(a->applied == a->certified);
    ATOM_ASSERT((a->promised & ~everybody(a)) == 0);
    /* Nothing is averaged or proposed without a quorum's promises. */
    ATOM_ASSERT(a->phase == GSP_GATHER ||
                gsp_quorum(a->rules.trust, gsp_agree_roster(a)->n, a->promised));
    /* The vote that must be proposed again is older than this ballot, and comes with its proof. */
    ATOM_ASSERT(a->best_voted < a->ballot);
    ATOM_ASSERT(a->best_voted == 0 || a->best_proof.n > 0);
}

/* What others signed is counted by place in the roster: each statement is of that member's kind and
 * of this version. Walked once a step, since a step is the only one that adds to it. */
static void check_counted(const gsp_agree *a)
{
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++) {
        const gsp_statement *vote = &a->vote[i], *promise = &a->promise[i];
        ATOM_ASSERT(vote->kind == 0 || (vote->kind == GSP_SAYS_VOTE && vote->ballot > 0 &&
                                        vote->version == a->certified + 1));
        ATOM_ASSERT(a->phase == GSP_IDLE || !(a->promised >> i & 1) ||
                    (promise->kind == GSP_SAYS_PROMISE && promise->ballot == a->ballot &&
                     promise->version == a->certified + 1));
    }
}

static void check_people(const gsp_agree *a)
{
    /* Tables have fixed sizes, whatever strangers send. */
    ATOM_ASSERT(a->n_waiting <= GSP_WAITING_MAX && a->audits.n_heard <= GSP_ACCUSED_MAX);
    /* I am never banned here, by anybody's evidence. */
    ATOM_ASSERT(!gsp_people_banned(a, &a->self.key));
    /* Nobody is audited for a version that is not certified yet, and I do not audit myself. */
    ATOM_ASSERT(!a->audits.on || (a->audits.claim.version <= a->certified &&
                                  gsp_key_compare(&a->audits.claim.owner.key, &a->self.key) != 0));
}

static void check(const gsp_agree *a)
{
    check_people(a);
    if (gsp_hash_none(&a->lineage)) {
        check_newcomer(a);
        return;
    }
    check_versions(a);
    check_record(a);
    check_ballot(a);
    check_proposer(a);
}

gsp_before gsp_invariants_enter(const gsp_agree *a)
{
    /* A driver keeps its answers for later: a step is never taken inside another one's actions. */
    ATOM_ASSERT(!a->sink);
    check(a);
    return (gsp_before){.lineage = a->lineage,
                        .incarnation = a->self.incarnation,
                        .now_ns = a->now_ns,
                        .certified = a->certified,
                        .applied = a->applied,
                        .promised = a->record.promised,
                        .echoed = a->record.echoed,
                        .voted = a->record.voted,
                        .frozen = a->frozen,
                        .root = a->contribution.root};
}

void gsp_invariants_leave(const gsp_agree *a, const gsp_before *before)
{
    check(a);
    check_counted(a);
    ATOM_ASSERT(a->now_ns >= before->now_ns);
    if (!gsp_hash_equal(&a->lineage, &before->lineage)) {
        /* What was promised in one lineage binds the incarnation that promised it: whoever changes
         * to another one is somebody new there. */
        ATOM_ASSERT(gsp_hash_none(&before->lineage) || a->self.incarnation > before->incarnation);
        return;
    }
    /* Within a lineage nothing that was certified or applied is undone. */
    ATOM_ASSERT(a->self.incarnation == before->incarnation);
    ATOM_ASSERT(a->certified >= before->certified && a->applied >= before->applied);
    if (a->certified > before->certified)
        return;
    /* Within a version promises and votes only grow, and a contribution is frozen once. */
    ATOM_ASSERT(a->record.promised >= before->promised && a->record.voted >= before->voted);
    ATOM_ASSERT(a->record.echoed >= before->echoed);
    ATOM_ASSERT(a->frozen >= before->frozen);
    ATOM_ASSERT(before->frozen != GSP_FROZEN ||
                gsp_hash_equal(&a->contribution.root, &before->root));
}
