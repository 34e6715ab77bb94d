/*
 * Owns the machine's events. Its one idea: every event is handled against the state as it is,
 * actions leave in order through one sink, and what must survive a crash passes one barrier. It
 * refuses messages of other lineages and versions at the door, so that the other files see only
 * what concerns the version in progress.
 */
#include "gossip/agree/agree_inner.h"

#include "gossip/agree/kept_out.h"

#include <stdio.h>

void gsp_agree_defaults(gsp_rules *rules)
{
    const uint64_t second = 1000000000u;
    *rules = (gsp_rules){
        .samples_due = 512,
        .time_due_ns = 600 * second,
        .heartbeat_ns = second,
        .dead_ns = 4 * second,
        .round_ns = 120 * second,
        .round_min_ns = 4 * second,
        .round_max_ns = 3600 * second,
        .fork_ns = 3600 * second,
        .withheld_ns = 3600 * second,
        .silent_rounds = 3,
        .against_rounds = 8,
        .audit_percent = 25,
        .n_parts = 64,
        .samples_max = GSP_TOKENS_MAX,
        .tokens_per_sample = GSP_TOKENS_MAX,
    };
}

void gsp_agree_act(gsp_agree *a, gsp_action action)
{
    a->sink(a->sink_context, &action);
}

gsp_message *gsp_agree_compose(gsp_agree *a, gsp_message_kind kind, uint32_t ballot)
{
    gsp_message *m = &a->scratch;
    memset(m, 0, gsp_message_bytes(kind));
    m->kind = kind;
    m->from = a->self;
    m->lineage = a->lineage;
    m->version = ballot ? a->certified + 1 : a->certified;
    m->ballot = ballot;
    return m;
}

void gsp_agree_say(gsp_agree *a, gsp_to to, const gsp_message *message)
{
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_SEND, .to = to, .message = message});
}

void gsp_agree_send(gsp_agree *a, const gsp_key *peer, const gsp_message *message)
{
    gsp_agree_act(
        a, (gsp_action){.kind = GSP_DO_SEND, .to = GSP_TO_ONE, .peer = *peer, .message = message});
}

void gsp_agree_persist(gsp_agree *a)
{
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_PERSIST, .record = &a->record});
}

const gsp_roster *gsp_agree_roster(const gsp_agree *a)
{
    return &a->certificate.proposal.next;
}

bool gsp_agree_is_member(const gsp_agree *a)
{
    return a->self_i != GSP_NOBODY;
}

void gsp_agree_begin_version(gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    a->self_i = gsp_roster_find(roster, &a->self);
    a->record.self = a->self;
    a->record.lineage = a->lineage;
    a->record.version = a->certified + 1;
    a->record.promised = a->record.echoed = a->record.voted = 0;
    a->view = a->promise_owed = 0;
    a->due_ns = a->half_ns = a->doubt_ns = 0;
    if (a->n_leased && a->certificate.proposal.n_contributors) /* else nobody was waited for */
        a->patience =
            gsp_view_late_learn(a->patience, a->n_leased > a->certificate.proposal.n_contributors);
    a->n_leased = 0;
    a->claimed = 0;
    a->frozen = GSP_UNFROZEN;
    memset(&a->contribution, 0, sizeof a->contribution);
    a->has_pending = a->lends = false;
    memset(a->echo, 0, sizeof a->echo);
    memset(a->vote, 0, sizeof a->vote);
    a->phase = GSP_IDLE;
    a->left = 0;
    memset(a->gone, 0, sizeof a->gone);
    for (uint32_t i = 0; i < roster->n; i++)
        if (gsp_people_banned(a, &roster->member[i].key))
            a->left |= 1u << i;
    if (a->rules.summed)
        a->samples = 0; /* they were of the version before */
    gsp_round_open(&a->round, a->rules.trust, a->certified + 1, a->self_i);
}

void gsp_agree_settle(gsp_agree *a, const gsp_saved *saved)
{
    a->genesis = saved->genesis;
    gsp_genesis_hash(&a->seals, &a->genesis, &a->lineage);
    a->applying = false;
    a->ahead_version = 0;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        a->peer[i].shown = 0; /* versions of another lineage may have smaller numbers */
    a->draft.generation = 0;
    memset(a->missing, 0, sizeof a->missing);
    memset(&a->audits, 0, sizeof a->audits);
    memset(a->withholding.named, 0, sizeof a->withholding.named);
    if (saved->has_certificate) {
        a->certificate = saved->certificate;
        gsp_proposal_hash(&a->seals, &a->certificate.proposal, &a->previous);
    } else {
        memset(&a->certificate, 0, sizeof a->certificate);
        a->certificate.proposal.lineage = a->lineage;
        a->certificate.proposal.version = a->genesis.version;
        a->certificate.proposal.tokens = a->genesis.tokens;
        a->certificate.proposal.samples = a->genesis.samples;
        a->certificate.proposal.since = a->certificate.proposal.made = a->genesis.version;
        gsp_genesis_roster(&a->genesis, &a->certificate.proposal.next);
        a->certificate.proposal.n_barred = a->genesis.n_barred;
        memcpy(a->certificate.proposal.barred, a->genesis.barred, sizeof a->genesis.barred);
        a->previous = a->lineage;
    }
    a->certified = a->applied = a->certificate.proposal.version;
    a->certified_ns = a->quorum_ns = a->now_ns;
    gsp_agree_begin_version(a);
}

void gsp_agree_open(gsp_agree *a, const gsp_rules *rules, const gsp_seals *seals,
                    const gsp_member *self, const gsp_rates *rates, const gsp_saved *saved,
                    uint64_t now_ns)
{
    memset(a, 0, sizeof *a);
    a->rules = *rules;
    a->seals = *seals;
    a->self = *self;
    a->rates = *rates;
    a->now_ns = now_ns;
    a->beat_ns = now_ns;
    a->sequence = now_ns; /* above every heartbeat of an earlier run */
    a->self_i = GSP_NOBODY;
    if (!saved)
        return;
    gsp_agree_settle(a, saved);
    if (saved->record.version == a->certified + 1 &&
        gsp_hash_equal(&saved->record.lineage, &a->lineage) &&
        gsp_member_equal(&saved->record.self, self))
        a->record = saved->record;
}

void gsp_agree_round_sink(void *context, gsp_round_do what, uint32_t part, uint32_t member,
                          uint32_t included)
{
    gsp_agree *a = context;
    gsp_action action = {.version = a->certified + 1,
                         .ballot = a->round.ballot,
                         .part = part,
                         .included = included,
                         .begin = &a->round.begin,
                         .hash = a->round.root};
    if (what == GSP_ROUND_REDUCE) {
        action.kind = GSP_DO_REDUCE;
        gsp_agree_act(a, action);
    } else if (member == a->self_i) {
        gsp_round_arrived(&a->round, part, member, &a->round.root, gsp_agree_round_sink, a);
    } else {
        action.kind = GSP_DO_PART;
        action.peer = gsp_agree_roster(a)->member[member].key;
        gsp_agree_act(a, action);
    }
}

static void gone_tick(gsp_agree *a)
{
    const gsp_round *r = &a->round;
    for (uint32_t i = 0; r->ballot && i < r->begin.n_contributors; i++) {
        uint32_t member = r->begin.contributor[i].member;
        if (!(r->gone >> member & 1) && !gsp_people_alive(a, member))
            gsp_round_gone(&a->round, member, gsp_agree_round_sink, a);
    }
}

static void tick(gsp_agree *a)
{
    if (a->now_ns >= a->beat_ns)
        gsp_people_beat(a);
    if (gsp_hash_none(&a->lineage))
        return;
    gsp_view_tick(a);
    gone_tick(a);
    gsp_round_tick(&a->round, a->now_ns, gsp_agree_round_sink, a);
    gsp_propose_tick(a);
    gsp_vote_tick(a);
    gsp_vote_pull(a);
    gsp_people_tick(a);
    gsp_follow_tick(a);
    gsp_audit_tick(a);
}

uint64_t gsp_agree_deadline(const gsp_agree *a)
{
    uint64_t at = a->beat_ns;
    if (gsp_agree_is_member(a)) {
        uint64_t due = a->certified_ns + a->rules.time_due_ns;
        if (a->view != 0 && a->view_until_ns < at)
            at = a->view_until_ns;
        if (a->view == 0 && due < at)
            at = due;
        if (a->phase != GSP_IDLE && a->phase_until_ns < at)
            at = a->phase_until_ns;
        uint64_t collect = a->round.began_ns + a->round.begin.collect_ns;
        if (a->round.ballot != 0 && collect > a->now_ns && collect < at)
            at = collect;
        if (a->has_pending && a->record.voted < a->pending.ballot && a->pull_ns < at)
            at = a->pull_ns;
    }
    return at > a->now_ns ? at : a->now_ns + a->rules.heartbeat_ns / 8 + 1;
}

/* ---- messages ---- */

/* Lets in only what concerns the version in progress and comes from a member of its roster: returns
 * that member's index, else GSP_NOBODY. A sender that is behind gets the certificate it lacks; one
 * that is ahead is asked for its own. */
static uint32_t door(gsp_agree *a, const gsp_message *m)
{
    if (!gsp_hash_equal(&m->lineage, &a->lineage))
        return GSP_NOBODY;
    if (m->version > a->certified + 1) {
        gsp_people_ask(a, &m->from.key);
        return GSP_NOBODY;
    }
    if (m->version <= a->certified) {
        a->stats.stale++;
        if (m->kind == GSP_PREPARE || m->kind == GSP_PROPOSE)
            gsp_people_show(a, &m->from.key, m->version);
        return GSP_NOBODY;
    }
    if (!gsp_agree_is_member(a) || m->ballot == 0)
        return GSP_NOBODY;
    return gsp_roster_find(gsp_agree_roster(a), &m->from);
}

static void on_reduced(gsp_agree *a, uint32_t from, const gsp_message *m)
{
    const gsp_statement *s = &m->as.reduced.statement;
    gsp_hash hash;
    gsp_part_hash(&a->seals, s->item, &m->as.reduced.part, &hash);
    gsp_part part = m->as.reduced.part;
    part.owner = (uint8_t)from;
    memcpy(part.seal, s->seal, sizeof part.seal);
    if (m->ballot != a->round.ballot || s->kind != GSP_SAYS_REDUCED || s->ballot != 0 ||
        s->version != m->version || !gsp_hash_equal(&s->lineage, &a->lineage) ||
        !gsp_member_equal(&s->signer, &m->from) || !gsp_hash_equal(&s->subject, &hash) ||
        !gsp_hash_equal(&s->root, &a->round.contributors) || !gsp_statement_verify(&a->seals, s) ||
        !gsp_round_known(&a->round, from, s->item, &part)) {
        a->stats.refused++;
        return;
    }
    gsp_propose_part_known(a);
}

/* A single refusal is not believed, for it may be a lie: a ballot is given up only when no quorum
 * is left without those who refused. */
static void on_refuse(gsp_agree *a, uint32_t from, const gsp_message *m)
{
    uint32_t promised = m->as.refuse.promised;
    if (m->ballot != a->ballot || a->phase == GSP_IDLE || promised <= a->ballot ||
        promised - a->ballot > GSP_BALLOT_STEP_MAX)
        return;
    a->refused |= 1u << from;
    if (gsp_quorum(a->rules.trust, gsp_agree_roster(a)->n, gsp_people_alive_bits(a) & ~a->refused))
        return;
    gsp_propose_give_up(a);
    gsp_view_set(a, promised);
}

/* Messages of the version in progress. */
static void on_ballot(gsp_agree *a, const gsp_message *m)
{
    uint32_t from = door(a, m);
    if (from == GSP_NOBODY)
        return;
    switch (m->kind) {
    case GSP_PREPARE:
        gsp_vote_prepare(a, from, m->ballot, &m->as.prepare.previous);
        break;
    case GSP_PROMISE:
        if (m->ballot == a->ballot)
            gsp_propose_promise(a, from, &m->as.promise);
        break;
    case GSP_REFUSE:
        on_refuse(a, from, m);
        break;
    case GSP_BEGIN:
        gsp_vote_begin(a, from, m->ballot, &m->as.begin);
        break;
    case GSP_REDUCED:
        on_reduced(a, from, m);
        break;
    case GSP_PROPOSE:
        gsp_vote_propose(a, from, m);
        break;
    default:
        if (gsp_member_equal(&m->as.vote.statement.signer, &m->from) &&
            (m->kind == GSP_ECHO) == (m->as.vote.statement.kind == GSP_SAYS_ECHO))
            gsp_vote_count(a, &m->as.vote.statement);
        break;
    }
    bool leads = m->kind == GSP_PREPARE || m->kind == GSP_BEGIN || m->kind == GSP_PROPOSE;
    if (leads && m->ballot == a->view && from == gsp_view_proposer(a, a->view))
        a->doubt_ns = 0;
}

static void on_message(gsp_agree *a, const gsp_message *m)
{
    if (gsp_people_banned(a, &m->from.key) || gsp_key_compare(&m->from.key, &a->self.key) == 0)
        return;
    gsp_peer *peer = gsp_people_add(a, &m->from.key);
    if (!peer)
        return;
    if (peer->second != a->now_ns / 1000000000u) {
        peer->second = a->now_ns / 1000000000u;
        peer->looked = peer->answered = 0;
    }
    if (++peer->looked > GSP_BUDGET_PER_S) {
        a->stats.flooded++;
        return;
    }
    bool mine = gsp_hash_equal(&m->lineage, &a->lineage) && !gsp_hash_none(&a->lineage);
    if (m->kind >= GSP_PREPARE && m->kind <= GSP_VOTE) {
        on_ballot(a, m);
    } else if (m->kind == GSP_HEARTBEAT) {
        gsp_people_heartbeat(a, m);
    } else if (m->kind == GSP_CERTIFY && mine) {
        gsp_vote_certificate(a, m);
    } else if (m->kind == GSP_ASK && mine && m->as.ask.version <= a->certified) {
        gsp_people_show(a, &m->from.key, m->as.ask.version);
    } else if (m->kind == GSP_JOIN && mine) {
        gsp_people_join(a, m);
    } else if (m->kind == GSP_LEAVE && mine) {
        gsp_people_leave(a, &m->as.leave.statement);
    } else if (m->kind == GSP_EVIDENCE) {
        gsp_people_evidence(a, m);
    } else if (m->kind == GSP_ACCUSE && mine) {
        gsp_audit_accused(a, m);
    } else if (m->kind == GSP_WITHHELD && mine) {
        gsp_withheld_heard(a, m);
    } else if (m->kind == GSP_LINEAGE) {
        gsp_follow_announced(a, m);
    } else if (m->kind == GSP_CONSENT) {
        gsp_follow_consent(a, m);
    }
}

/* ---- answers of the driver ---- */

static void on_frozen(gsp_agree *a, const gsp_event *e)
{
    if (a->frozen != GSP_FREEZING || e->version != a->certified + 1)
        return;
    a->frozen = GSP_FROZEN;
    a->contribution = e->contribution;
    gsp_contribution_clip(&a->rules, &a->certificate.proposal, &a->contribution);
    if (!gsp_hash_none(&a->contribution.root) &&
        gsp_rules_brought_wrong(a, a->self_i, a->contribution.tokens, a->contribution.samples))
        memset(&a->contribution, 0, sizeof a->contribution);
    a->contribution.rates = a->rates;
    gsp_round_frozen(&a->round, &a->contribution.root, gsp_agree_round_sink, a);
    gsp_vote_pay_promise(a);
}

/* A part that I own is reduced: say so, with its bytes. */
static void on_reduced_here(gsp_agree *a, const gsp_event *e)
{
    gsp_round *r = &a->round;
    if (e->version != a->certified + 1 || e->ballot != r->ballot || !gsp_agree_is_member(a) ||
        e->part >= r->begin.n_parts)
        return;
    gsp_message *m = gsp_agree_compose(a, GSP_REDUCED, e->ballot);
    m->as.reduced.part = (gsp_part){
        .hash = e->hash,
        .included = e->included,
        .weight = gsp_included_weight(r->begin.contributor, r->begin.n_contributors, e->included),
        .norm = e->norm};
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        m->as.reduced.part.lean[i] = e->included >> i & 1 ? e->lean[i] : 0;
    gsp_statement *s = &m->as.reduced.statement;
    gsp_reduced_statement(&a->seals, &a->lineage, e->version, e->part, &m->as.reduced.part,
                          &r->contributors, &a->self, s);
    gsp_statement_seal(&a->seals, s);
    m->as.reduced.part.owner = (uint8_t)a->self_i;
    memcpy(m->as.reduced.part.seal, s->seal, sizeof s->seal);
    if (!gsp_round_known(r, a->self_i, e->part, &m->as.reduced.part))
        return;
    gsp_round_hold(r, e->part, &e->hash);
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_RESULT,
                                  .to = GSP_TO_ROSTER,
                                  .version = e->version,
                                  .part = e->part,
                                  .hash = e->hash,
                                  .message = m});
    gsp_propose_part_known(a);
    gsp_vote_try(a);
}

static void on_arrived(gsp_agree *a, const gsp_event *e)
{
    uint32_t member = gsp_roster_find_key(gsp_agree_roster(a), &e->peer);
    if (e->version == a->certified + 1 && member != GSP_NOBODY)
        gsp_round_arrived(&a->round, e->part, member, &e->root, gsp_agree_round_sink, a);
}

static void on_held(gsp_agree *a, const gsp_event *e)
{
    if (e->part >= GSP_PARTS_MAX)
        return;
    if (e->version == a->certified + 1) {
        const gsp_hash *wanted = &a->pending.as.propose.proposal.part[e->part].hash;
        bool had = a->has_pending && gsp_round_holds(&a->round, e->part, wanted);
        gsp_round_hold(&a->round, e->part, &e->hash);
        if (had) /* no other result pushes out what is proposed */
            gsp_round_hold(&a->round, e->part, wanted);
        gsp_vote_try(a);
    } else if (e->version == a->certified && a->applied < a->certified &&
               gsp_hash_equal(&e->hash, &a->certificate.proposal.part[e->part].hash)) {
        a->missing[e->part / 64] &= ~(1ull << (e->part % 64));
        gsp_vote_apply(a);
    }
}

static void on_link(gsp_agree *a, const gsp_key *key, bool up)
{
    gsp_peer *peer = up ? gsp_people_add(a, key) : gsp_people_find(a, key);
    if (!peer)
        return;
    peer->up = up;
    peer->heard_ns = a->now_ns;
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), key);
    if (up || i == GSP_NOBODY)
        return;
    if (a->view && i == gsp_view_proposer(a, a->view))
        a->doubt_ns = a->now_ns;
    gsp_round_gone(&a->round, i, gsp_agree_round_sink, a);
}

static void on_applied(gsp_agree *a, const gsp_event *e)
{
    if (!a->applying || e->version != a->certified)
        return;
    a->applying = false;
    a->applied = a->certified;
    a->record.self = a->self;
    gsp_audit_choose(a);
    gsp_vote_try(a);
    gsp_vote_certify(a);
    gsp_people_applied(a);
    if (a->ahead_version > a->certified) {
        a->ask_ns = 0;
        gsp_people_ask(a, &a->ahead);
        return;
    }
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &a->peer[i];
        if (p->known && p->up && p->certified > a->certified &&
            gsp_hash_equal(&p->lineage, &a->lineage)) {
            a->ask_ns = 0;
            gsp_people_ask(a, &p->who.key);
            break;
        }
    }
}

void gsp_agree_step(gsp_agree *a, const gsp_event *e, gsp_sink *sink, void *context)
{
    gsp_before before = gsp_invariants_enter(a);
    a->sink = sink;
    a->sink_context = context;
    if (e->now_ns > a->now_ns)
        a->now_ns = e->now_ns;
    switch (e->kind) {
    case GSP_ON_TICK:
        if (gsp_agree_sums(a) && e->samples > a->samples)
            a->beat_ns = a->now_ns; /* the others wait for this word */
        a->samples = e->samples;
        a->tokens_live = e->tokens;
        a->rests = e->rests;
        tick(a);
        break;
    case GSP_ON_MESSAGE:
        on_message(a, e->message);
        if ((gsp_agree_sums(a) && e->message->kind == GSP_HEARTBEAT) ||
            (a->lends && e->message->kind == GSP_JOIN))
            tick(a); /* it may have been the last one that was waited for */
        break;
    case GSP_ON_UP:
    case GSP_ON_DOWN:
        on_link(a, &e->peer, e->kind == GSP_ON_UP);
        break;
    case GSP_ON_FROZEN:
        on_frozen(a, e);
        break;
    case GSP_ON_ARRIVED:
        on_arrived(a, e);
        break;
    case GSP_ON_REDUCED:
        on_reduced_here(a, e);
        break;
    case GSP_ON_HELD:
        on_held(a, e);
        break;
    case GSP_ON_APPLIED:
        on_applied(a, e);
        break;
    case GSP_ON_CHAIN:
        gsp_follow_chain(a, &e->peer, e->match);
        break;
    case GSP_ON_STATE:
        gsp_follow_state(a, e->saved, e->match);
        break;
    case GSP_ON_AUDITED:
        gsp_audit_done(a, e);
        break;
    case GSP_ON_INPUTS:
        gsp_audit_inputs(a, e);
        break;
    case GSP_ON_PROVEN:
        gsp_people_ban(a, &e->peer);
        break;
    case GSP_ON_LEAVE:
        a->leaving = true;
        gsp_people_beat(a); /* says so now: it may be the last word */
        break;
    case GSP_ON_RESET:
        gsp_follow_reset(a);
        break;
    }
    a->sink = NULL;
    gsp_invariants_leave(a, &before);
}

bool gsp_agree_waits(const gsp_agree *a, uint64_t least_ns, uint64_t *fork_in_ns)
{
    if (gsp_hash_none(&a->lineage) || !gsp_agree_is_member(a) ||
        gsp_quorum(a->rules.trust, gsp_agree_roster(a)->n, gsp_people_alive_bits(a)) ||
        a->now_ns - a->quorum_ns < least_ns)
        return false;
    *fork_in_ns = gsp_follow_fork_in_ns(a);
    return true;
}

const char *gsp_agree_explain(const gsp_agree *a, char *text, size_t bytes)
{
    uint32_t n = gsp_agree_roster(a)->n;
    uint32_t alive = gsp_people_alive_bits(a), resting, missing;
    unsigned count = (unsigned)__builtin_popcount(alive);
    unsigned long long age = (unsigned long long)((a->now_ns - a->quorum_ns) / 1000000000u);
    if (gsp_hash_none(&a->lineage))
        snprintf(text, bytes, "looking for the pool's state");
    else if (a->applied < a->certified)
        snprintf(text, bytes, "fetching version %llu", (unsigned long long)a->certified);
    else if (gsp_kept_out_left(&a->certificate.proposal, &a->self.key))
        snprintf(text, bytes,
                 "kept out for %u more versions, because members say that it did not show its "
                 "contribution",
                 gsp_kept_out_left(&a->certificate.proposal, &a->self.key));
    else if (!gsp_agree_is_member(a))
        snprintf(text, bytes, "waiting to be taken into the roster of %u member%s", n,
                 n == 1 ? "" : "s");
    else if (!gsp_quorum(a->rules.trust, n, alive))
        snprintf(text, bytes,
                 "no quorum for %llu s: %u of %u members reachable; waiting for more, and going "
                 "on alone in %llu s",
                 age, count, n, (unsigned long long)(gsp_follow_fork_in_ns(a) / 1000000000u));
    else if (gsp_view_too_few_work(a, &resting, &missing))
        snprintf(text, bytes,
                 "member of %u, of which %u rest: among strangers a step needs more than two "
                 "thirds of all, so it waits for %u more",
                 n, resting, missing);
    else
        snprintf(text, bytes, "member of %u, version %llu%s", n, (unsigned long long)a->certified,
                 gsp_agree_mutes(a, a->self_i)
                     ? "; what this host brings counts for nothing, because it leads away from "
                       "what the others bring"
                     : "");
    return text;
}
