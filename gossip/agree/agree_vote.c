/*
 * Owns a voter's side of a ballot: promises, echoes, votes, certificates, and getting the bytes that a vote
 * vouches for. Its one idea: say nothing that is not on disk. It refuses ballots below its promise,
 * proposals without a quorum of promises behind them, and to vote for bytes that it does not hold.
 */
#include "gossip/agree/agree_inner.h"

static void refuse(gsp_agree *a, uint32_t from, uint32_t ballot)
{
    const gsp_key *key = &gsp_agree_roster(a)->member[from].key;
    if (from == a->self_i || !gsp_people_may_answer(a, key))
        return;
    gsp_message *m = gsp_agree_compose(a, GSP_REFUSE, ballot);
    m->as.refuse.promised = a->record.promised;
    gsp_agree_send(a, key, m);
}

void gsp_vote_pay_promise(gsp_agree *a)
{
    uint32_t ballot = a->promise_owed;
    if (ballot == 0 || ballot != a->record.promised)
        return;
    a->promise_owed = 0;
    uint32_t proposer = gsp_view_proposer(a, ballot);
    gsp_message *m = gsp_agree_compose(a, GSP_PROMISE, ballot);
    gsp_promise *promise = &m->as.promise;
    gsp_statement *s = &promise->statement;
    *s = (gsp_statement){.kind = GSP_SAYS_PROMISE,
                         .lineage = a->lineage,
                         .version = a->record.version,
                         .ballot = ballot,
                         .item = gsp_withheld_bits(a),
                         .voted = a->record.voted,
                         .signer = a->self};
    if (a->record.voted) {
        promise->has_proposal = true;
        promise->proposal = a->record.proposal;
        promise->proof = a->record.proof;
        gsp_proposal_hash(&a->seals, &promise->proposal, &s->subject);
    }
    promise->contribution = a->contribution;
    if (!gsp_hash_none(&a->contribution.root))
        gsp_contribution_hash(&a->seals, &a->contribution, &s->root);
    else
        promise->contribution.rates = a->rates;
    gsp_statement_seal(&a->seals, s);
    if (proposer == a->self_i)
        gsp_propose_promise(a, proposer, promise);
    else
        gsp_agree_send(a, &gsp_agree_roster(a)->member[proposer].key, m);
}

/* Nobody goes before others: while a ballot has time and its proposer answers, only the next one may
 * end it. A proposer that is early repeats itself. */
static bool out_of_turn(const gsp_agree *a, uint32_t from, uint32_t ballot)
{
    return from != a->self_i && a->view && ballot > a->view + 1 && a->now_ns < a->view_until_ns &&
           gsp_people_alive(a, gsp_view_proposer(a, a->view));
}

void gsp_vote_prepare(gsp_agree *a, uint32_t from, uint32_t ballot, const gsp_hash *previous)
{
    if (from != gsp_view_proposer(a, ballot) || !gsp_hash_equal(previous, &a->previous)) {
        a->stats.refused++;
        return;
    }
    /* If the version before this one were lost, a record of this one would be lost with it. So that
     * version must be durable first; the proposer will ask again. */
    if (a->applied < a->certified)
        return;
    if (out_of_turn(a, from, ballot)) {
        if (from == gsp_view_proposer(a, a->view))
            a->view_until_ns = a->now_ns; /* it has given up its own ballot */
        return;
    }
    if (ballot > a->record.promised &&
        (ballot - a->record.promised > GSP_BALLOT_STEP_MAX ||
         (from != a->self_i &&
          !gsp_people_may_answer(a, &gsp_agree_roster(a)->member[from].key)))) {
        a->stats.refused++;
        return;
    }
    if (ballot < a->record.promised) {
        refuse(a, from, ballot);
        return;
    }
    if (ballot == a->record.promised && from != a->self_i &&
        !gsp_people_may_answer(a, &gsp_agree_roster(a)->member[from].key))
        return;
    if (ballot > a->record.promised) {
        a->record.promised = ballot;
        gsp_agree_persist(a);
        if (from != a->self_i)
            gsp_propose_give_up(a);
        a->view = ballot;
        a->view_until_ns = a->now_ns + gsp_view_timeout_ns(a, ballot);
        a->due_ns = a->due_ns ? a->due_ns : a->now_ns;
    }
    a->promise_owed = ballot;
    if (a->frozen == GSP_UNFROZEN) {
        a->frozen = GSP_FREEZING;
        gsp_agree_act(a, (gsp_action){.kind = GSP_DO_FREEZE, .version = a->certified + 1});
    } else if (a->frozen == GSP_FROZEN) {
        gsp_vote_pay_promise(a);
    }
}

void gsp_vote_begin(gsp_agree *a, uint32_t from, uint32_t ballot, const gsp_begin *begin)
{
    if (from != gsp_view_proposer(a, ballot) || gsp_rules_begin_wrong(a, begin)) {
        a->stats.refused++;
        return;
    }
    if (ballot != a->record.promised) { /* I take part only in a ballot that I promised */
        if (ballot < a->record.promised)
            refuse(a, from, ballot);
        return;
    }
    bool same = ballot == a->round.ballot;
    bool again = same && begin->attempt <= a->round.begin.attempt;
    gsp_hash contributors;
    gsp_contributors_hash(&a->seals, begin->contributor, begin->n_contributors, &contributors);
    if (same && (begin->n_parts != a->round.begin.n_parts ||
                 !gsp_hash_equal(&contributors, &a->round.contributors))) {
        a->stats.refused++; /* another attempt may change owners and nothing else */
        return;
    }
    if (!again) {
        if (ballot >= a->round.ballot)
            a->round.contributors = contributors;
        gsp_round_begin(&a->round, ballot, begin, a->now_ns, gsp_agree_round_sink, a);
        return;
    }
    /* The proposer asks again: it may have missed what I said of my parts. */
    if (from == a->self_i || !gsp_people_may_answer(a, &gsp_agree_roster(a)->member[from].key))
        return;
    for (uint32_t p = 0; p < begin->n_parts; p++) {
        if (a->round.begin.owner[p] != a->self_i || gsp_hash_none(&a->round.known[p].hash))
            continue;
        gsp_message *m = gsp_agree_compose(a, GSP_REDUCED, ballot);
        gsp_statement *s = &m->as.reduced.statement;
        m->as.reduced.part = a->round.known[p];
        gsp_reduced_statement(&a->seals, &a->lineage, a->record.version, p, &m->as.reduced.part,
                              &a->round.contributors, &a->self, s);
        gsp_agree_send(a, &gsp_agree_roster(a)->member[from].key, m);
    }
}

static bool proposal_right(const gsp_agree *a, const gsp_message *m)
{
    gsp_hash hash;
    gsp_proposal_hash(&a->seals, &m->as.propose.proposal, &hash);
    return gsp_hash_equal(&hash, &m->as.propose.statement.subject) &&
           !gsp_proof_ballot_wrong(a, &m->as.propose, m->ballot);
}

/* A member whose promise denies a vote of its own that I have is convicted by the two. */
static void look_at_promises(gsp_agree *a, const gsp_propose *p)
{
    for (uint32_t i = 0; i < p->n_promises; i++) {
        uint32_t who = gsp_roster_find(gsp_agree_roster(a), &p->promise[i].signer);
        if (who != GSP_NOBODY && a->vote[who].kind)
            gsp_people_accuse(a, &p->promise[i], &a->vote[who]);
    }
}

void gsp_vote_propose(gsp_agree *a, uint32_t from, const gsp_message *m)
{
    const gsp_statement *s = &m->as.propose.statement;
    if (m->ballot < a->record.promised) {
        refuse(a, from, m->ballot);
        return;
    }
    if (from != gsp_view_proposer(a, m->ballot) || s->kind != GSP_SAYS_PROPOSE ||
        s->ballot != m->ballot || s->version != m->version ||
        !gsp_hash_equal(&s->lineage, &a->lineage) || !gsp_member_equal(&s->signer, &m->from) ||
        !gsp_proposal_fits(&m->as.propose.proposal) || !gsp_statement_verify(&a->seals, s)) {
        a->stats.refused++;
        return;
    }
    if (a->has_pending && a->pending.ballot > m->ballot)
        return;
    if (a->has_pending && a->pending.ballot == m->ballot &&
        !gsp_hash_equal(&a->pending.as.propose.statement.subject, &s->subject)) {
        gsp_people_accuse(a, &a->pending.as.propose.statement, s);
        return;
    }
    bool repeated = a->has_pending && a->pending.ballot == m->ballot; /* found right before */
    if (!repeated && !proposal_right(a, m)) {
        a->stats.refused++;
        return;
    }
    if (!repeated)
        look_at_promises(a, &m->as.propose);
    if (!repeated && m != &a->pending)
        memcpy(&a->pending, m, gsp_message_bytes(GSP_PROPOSE));
    a->has_pending = true;
    if (!repeated)
        gsp_changes_learn(a, &a->pending.as.propose.proof.changes);
    if (repeated && a->record.voted == m->ballot && from != a->self_i &&
        gsp_people_may_answer(a, &m->from.key) && a->vote[a->self_i].ballot == m->ballot) {
        gsp_message *vote = gsp_agree_compose(a, GSP_VOTE, m->ballot);
        vote->as.vote.statement = a->vote[a->self_i];
        gsp_agree_send(a, &gsp_agree_roster(a)->member[from].key, vote);
    }
    gsp_vote_try(a);
    gsp_vote_certify(a);
}

static bool holds_all(const gsp_agree *a, const gsp_proposal *p)
{
    for (uint32_t k = 0; k < p->n_parts; k++)
        if (!gsp_hash_none(&p->part[k].hash) && !gsp_round_holds(&a->round, k, &p->part[k].hash))
            return false;
    return true;
}

static gsp_statement word(const gsp_agree *a, gsp_statement_kind kind)
{
    return (gsp_statement){.kind = (uint8_t)kind,
                           .lineage = a->lineage,
                           .version = a->record.version,
                           .ballot = a->pending.ballot,
                           .subject = a->pending.as.propose.statement.subject,
                           .signer = a->self};
}

/* What I was proposed and find right. In each ballot I echo one proposal and no other, whatever
 * happens in between. False: I may not. */
static bool echo(gsp_agree *a)
{
    const gsp_message *m = &a->pending;
    const gsp_hash *subject = &m->as.propose.statement.subject;
    if (m->ballot < a->record.promised || m->ballot < a->record.echoed)
        return false;
    if (m->ballot == a->record.echoed && !gsp_hash_equal(&a->record.echo, subject))
        return false;
    if (m->ballot == a->record.echoed && a->echo[a->self_i].ballot == m->ballot)
        return true;
    if (m->ballot > a->record.echoed) {
        a->record.promised = a->record.echoed = m->ballot;
        a->record.echo = *subject;
        gsp_agree_persist(a);
    }
    gsp_message *out = gsp_agree_compose(a, GSP_ECHO, m->ballot);
    gsp_statement *s = &out->as.vote.statement;
    *s = word(a, GSP_SAYS_ECHO);
    gsp_statement_seal(&a->seals, s);
    a->echo[a->self_i] = *s;
    a->echo_ns = a->now_ns;
    gsp_agree_say(a, GSP_TO_ROSTER, out);
    return true;
}

void gsp_vote_try(gsp_agree *a)
{
    const gsp_message *m = &a->pending;
    if (!a->has_pending || m->ballot < a->record.voted || !gsp_agree_is_member(a) ||
        a->applied < a->certified || !echo(a))
        return;
    if (m->ballot == a->record.voted && a->vote[a->self_i].ballot == m->ballot)
        return;
    const gsp_hash *subject = &m->as.propose.statement.subject;
    if (!holds_all(a, &m->as.propose.proposal)) {
        gsp_vote_pull(a);
        return;
    }
    if (!gsp_quorum(a->rules.trust, gsp_agree_roster(a)->n,
                    gsp_proof_make(a, m->ballot, subject, NULL)))
        return;
    if (m->ballot > a->record.voted) { /* else it was voted for before a restart */
        a->record.voted = m->ballot;
        a->record.proposal = m->as.propose.proposal;
        memset(&a->record.proof, 0, sizeof a->record.proof);
        a->record.proof.changes = m->as.propose.proof.changes;
        gsp_proof_make(a, m->ballot, subject, &a->record.proof);
        gsp_agree_persist(a);
    }
    gsp_message *vote = gsp_agree_compose(a, GSP_VOTE, m->ballot);
    gsp_statement *s = &vote->as.vote.statement;
    *s = word(a, GSP_SAYS_VOTE);
    gsp_statement_seal(&a->seals, s);
    gsp_agree_say(a, GSP_TO_ROSTER, vote);
    gsp_statement mine = *s;
    gsp_vote_count(a, &mine);
}

void gsp_vote_tick(gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    if (!a->has_pending || !gsp_agree_is_member(a) || a->pending.ballot != a->record.echoed ||
        a->echo[a->self_i].ballot != a->record.echoed ||
        a->now_ns - a->echo_ns < a->rules.heartbeat_ns)
        return;
    a->echo_ns = a->now_ns;
    gsp_message *m = gsp_agree_compose(a, GSP_ECHO, a->record.echoed);
    m->as.vote.statement = a->echo[a->self_i];
    for (uint32_t i = 0; i < roster->n; i++)
        if (i != a->self_i && a->vote[i].ballot < a->record.echoed && gsp_people_votes(a, i))
            gsp_agree_send(a, &roster->member[i].key, m);
}

void gsp_vote_count(gsp_agree *a, const gsp_statement *s)
{
    uint32_t i = gsp_roster_find(gsp_agree_roster(a), &s->signer);
    bool echoes = s->kind == GSP_SAYS_ECHO;
    if (i == GSP_NOBODY || (s->kind != GSP_SAYS_VOTE && !echoes) ||
        s->version != a->certified + 1 || s->ballot == 0 ||
        !gsp_hash_equal(&s->lineage, &a->lineage)) {
        a->stats.refused++;
        return;
    }
    gsp_statement *known = echoes ? &a->echo[i] : &a->vote[i];
    bool same = known->kind && known->ballot == s->ballot;
    if (same && gsp_hash_equal(&known->subject, &s->subject))
        return;
    if (i != a->self_i && !gsp_statement_verify(&a->seals, s)) {
        a->stats.refused++;
        return;
    }
    if (same) {
        gsp_people_accuse(a, known, s);
        return;
    }
    if (!echoes && a->promise[i].kind && a->promise[i].version == s->version)
        gsp_people_accuse(a, &a->promise[i], s);
    if (known->kind && known->ballot > s->ballot)
        return;
    *known = *s;
    if (echoes)
        gsp_vote_try(a);
    else
        gsp_vote_certify(a);
}

static void duration_learned(gsp_agree *a)
{
    if (a->due_ns && a->now_ns > a->due_ns)
        a->duration_ns[a->n_durations++ % GSP_DURATIONS_MAX] = a->now_ns - a->due_ns;
}

/* A certificate that was checked becomes the newest one, and the next version begins. */
static void adopt(gsp_agree *a, const gsp_certificate *certificate, bool mine)
{
    const gsp_proposal *p = &certificate->proposal;
    memset(a->missing, 0, sizeof a->missing);
    for (uint32_t k = 0; k < p->n_parts && k < GSP_PARTS_MAX; k++)
        if (!gsp_hash_none(&p->part[k].hash) && !gsp_round_holds(&a->round, k, &p->part[k].hash))
            a->missing[k / 64] |= 1ull << (k % 64);
    duration_learned(a);
    gsp_view_doubt(a, p);
    const gsp_roster before = *gsp_agree_roster(a);
    const uint32_t left = a->left;
    gsp_exit gone[GSP_MEMBERS_MAX];
    memcpy(gone, a->gone, sizeof gone);
    memset(a->audits.todo, 0, sizeof a->audits.todo);
    a->audits.roster = *gsp_agree_roster(a);
    a->audits.version = p->version;
    a->certificate = *certificate;
    gsp_withheld_note(a, &a->audits.roster);
    gsp_proposal_hash(&a->seals, p, &a->previous);
    a->certified++;
    a->certified_ns = a->now_ns;
    a->samples = 0;
    a->pull_turn = 0;
    a->pull_ns = a->ask_ns = 0;
    a->stats.certified++;
    gsp_agree_begin_version(a);
    for (uint32_t k = 0; k < before.n; k++) {
        uint32_t i = gsp_roster_find(gsp_agree_roster(a), &before.member[k]);
        if (!(left >> k & 1) || i == GSP_NOBODY)
            continue;
        a->left |= 1u << i;
        a->gone[i] = gone[k];
    }
    if (mine) {
        gsp_message *m = gsp_agree_compose(a, GSP_CERTIFY, 0);
        m->ballot = a->certificate.ballot;
        m->as.certify.certificate = a->certificate;
        gsp_agree_say(a, GSP_TO_ALL, m);
    }
    gsp_vote_apply(a);
    gsp_vote_pull(a);
}

void gsp_vote_certify(gsp_agree *a)
{
    if (!a->has_pending || a->applied < a->certified)
        return;
    const gsp_statement *s = &a->pending.as.propose.statement;
    gsp_certificate certificate = {.ballot = s->ballot};
    uint32_t voters = 0, n = gsp_agree_roster(a)->n;
    for (uint32_t i = 0; i < n; i++) {
        if (!a->vote[i].kind || a->vote[i].ballot != s->ballot ||
            !gsp_hash_equal(&a->vote[i].subject, &s->subject))
            continue;
        voters |= 1u << i;
        certificate.vote[certificate.n_votes].member = (uint8_t)i;
        memcpy(certificate.vote[certificate.n_votes++].seal, a->vote[i].seal, GSP_SEAL_BYTES);
    }
    if (!gsp_quorum(a->rules.trust, n, voters))
        return;
    certificate.proposal = a->pending.as.propose.proposal;
    adopt(a, &certificate, gsp_view_proposer(a, s->ballot) == a->self_i);
}

void gsp_vote_certificate(gsp_agree *a, const gsp_message *m)
{
    const gsp_certificate *c = &m->as.certify.certificate;
    uint64_t version = c->proposal.version;
    if (version <= a->certified || m->version != version)
        return;
    if (version > a->certified + 1 || a->applied < a->certified) {
        a->ahead_version = version;
        a->ahead = m->from.key;
    }
    if (version > a->certified + GSP_REPLAY_MAX) {
        gsp_follow_far(a, &m->from.key);
        return;
    }
    if (version > a->certified + 1) {
        gsp_people_ask(a, &m->from.key);
        return;
    }
    if (a->applied < a->certified)
        return;
    if (!gsp_hash_equal(&c->proposal.lineage, &a->lineage) ||
        !gsp_certificate_check(&a->seals, a->rules.trust, gsp_agree_roster(a), &a->previous, c) ||
        gsp_proposal_invalid(&a->rules, &a->seals, &a->certificate.proposal, &c->proposal,
                             &a->round)) {
        a->stats.refused++;
        return;
    }
    adopt(a, c, false);
}

void gsp_vote_apply(gsp_agree *a)
{
    if (a->applied >= a->certified || a->applying)
        return;
    for (uint32_t k = 0; k < GSP_PARTS_MAX / 64; k++)
        if (a->missing[k])
            return;
    a->applying = true;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_APPLY,
                                  .version = a->certified,
                                  .certificate = &a->certificate});
}

/* The key voted for what is certified, so it has the bytes; that is known before any heartbeat. */
static bool certifies(const gsp_agree *a, const gsp_key *key)
{
    const gsp_certificate *c = &a->certificate;
    const gsp_roster *voters = &a->audits.roster;
    uint32_t i = gsp_roster_find_key(voters, key);
    for (uint32_t k = 0; i != GSP_NOBODY && k < c->n_votes; k++)
        if (c->vote[k].member == i)
            return a->audits.version == c->proposal.version;
    return false;
}

/* The key voted for what is proposed here, so its disk has the bytes. */
static bool vouches(const gsp_agree *a, const gsp_key *key, const gsp_hash *proposal)
{
    const gsp_propose *p = &a->pending.as.propose;
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), key);
    if (i == GSP_NOBODY)
        return false;
    if (a->vote[i].kind && gsp_hash_equal(&a->vote[i].subject, proposal))
        return true;
    for (uint32_t k = 0; k < p->n_promises; k++)
        if (p->promise[k].voted && gsp_hash_equal(&p->promise[k].subject, proposal) &&
            gsp_key_compare(&p->promise[k].signer.key, key) == 0)
            return true;
    return false;
}

/* Peers that have the results of a version: those that say they have applied it, or that voted for
 * it (for `proposal`, or where that is NULL, for the certificate). Every fourth time, and if there
 * are none, all that are as far as I am, since heartbeats may be old news. Silent peers are asked
 * only if nobody else is left. */
static uint32_t holders(const gsp_agree *a, uint64_t version, const gsp_hash *proposal,
                        const gsp_key **key)
{
    uint32_t n = 0;
    for (int wide = a->pull_turn % 4 == 3 ? 1 : 0; n == 0 && wide < 3; wide++) {
        for (uint32_t k = 0; k < GSP_PEERS_KNOWN_MAX; k++) {
            const gsp_peer *p = &a->peer[k];
            bool silent = a->now_ns - p->heard_ns > a->rules.dead_ns / 2;
            if (!p->known || !p->up || !gsp_hash_equal(&p->lineage, &a->lineage) ||
                (silent && wide < 2))
                continue;
            bool voted = proposal ? vouches(a, &p->who.key, proposal) : certifies(a, &p->who.key);
            if (voted || (wide ? p->certified >= a->applied : p->applied >= version))
                key[n++] = &p->who.key;
        }
    }
    return n;
}

/* Each part is asked of another holder, and of yet another one with every turn, so that no part
 * depends on one peer that does not have it or does not give it. The order is scattered rather than
 * one after the other: a driver may skip turns, and one that skipped every second would never ask
 * half of the holders. */
static void pull(gsp_agree *a, const gsp_proposal *p, const gsp_hash *proposal)
{
    const gsp_key *holder[GSP_PEERS_KNOWN_MAX];
    uint32_t n = holders(a, p->version, proposal, holder);
    uint32_t turn = (a->pull_turn * 2654435761u) >> 16;
    for (uint32_t k = 0; n && k < p->n_parts; k++) {
        bool certified = p->version == a->certified;
        if (certified ? !(a->missing[k / 64] >> (k % 64) & 1)
                      : gsp_hash_none(&p->part[k].hash) ||
                            gsp_round_holds(&a->round, k, &p->part[k].hash))
            continue;
        gsp_agree_act(a, (gsp_action){.kind = GSP_DO_PULL,
                                      .to = GSP_TO_ONE,
                                      .peer = *holder[(turn + k) % n],
                                      .version = p->version,
                                      .part = k,
                                      .hash = p->part[k].hash});
    }
}

/* Asks for results that a certificate or a proposal names and that are not here. */
void gsp_vote_pull(gsp_agree *a)
{
    if (a->now_ns < a->pull_ns)
        return;
    bool certified = a->applied < a->certified && !a->applying;
    bool proposed = a->has_pending && a->record.voted < a->pending.ballot;
    if (!certified && !proposed)
        return;
    a->pull_ns = a->now_ns + a->rules.heartbeat_ns / 2;
    if (certified)
        pull(a, &a->certificate.proposal, NULL);
    if (proposed)
        pull(a, &a->pending.as.propose.proposal, &a->pending.as.propose.statement.subject);
    a->pull_turn++;
}
