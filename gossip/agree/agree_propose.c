/*
 * Owns a proposer's side of its ballot: it gathers promises, says who sums what, watches over
 * parts, proposes, and asks again. Its one idea: every heartbeat it repeats itself to each member
 * that has not answered, so that loss needs no case of its own. Once it is told of a vote, it
 * refuses to propose anything but the highest one.
 */
#include "gossip/agree/agree_inner.h"

enum { ATTEMPTS_MAX = 4 };

static void phase_set(gsp_agree *a, gsp_phase phase, uint64_t within_ns)
{
    a->phase = phase;
    a->phase_ns = a->said_ns = a->now_ns;
    a->phase_until_ns = a->now_ns + within_ns;
    a->most_ns = 0;
}

static uint64_t share_ns(const gsp_agree *a, uint64_t percent)
{
    return gsp_view_timeout_ns(a, a->ballot) / 100 * percent;
}

static uint64_t lesser(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

void gsp_propose_give_up(gsp_agree *a)
{
    a->phase = GSP_IDLE;
}

static void say_prepare(gsp_agree *a, const gsp_key *to)
{
    gsp_message *m = gsp_agree_compose(a, GSP_PREPARE, a->ballot);
    m->as.prepare.previous = a->previous;
    if (to)
        gsp_agree_send(a, to, m);
    else
        gsp_agree_say(a, GSP_TO_ROSTER, m);
}

void gsp_propose_start(gsp_agree *a)
{
    a->ballot = a->view;
    a->promised = a->refused = 0;
    a->best_voted = 0;
    memset(a->promise, 0, sizeof a->promise);
    memset(a->brought, 0, sizeof a->brought);
    a->stats.ballots++;
    phase_set(a, GSP_GATHER, share_ns(a, 20));
    gsp_hash previous = a->previous;
    uint32_t ballot = a->ballot;
    say_prepare(a, NULL);
    gsp_vote_prepare(a, a->self_i, ballot, &previous);
}

/* ---- promises in, BEGIN out ---- */

static void assign(gsp_agree *a, const bool *able, uint32_t n, uint8_t *owner)
{
    gsp_rates rates[GSP_MEMBERS_MAX];
    uint64_t share[GSP_MEMBERS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        rates[i] = a->brought[i].rates;
        uint64_t rate = lesser(rates[i].up_bytes_per_s, rates[i].down_bytes_per_s);
        share[i] = !able[i] ? 0 : rate ? rate : 1;
    }
    if (a->rules.assign)
        a->rules.assign(a->rules.context, rates, able, n, a->rules.n_parts, owner);
    else
        gsp_assign(share, n, a->rules.n_parts, owner);
}

/* Which members may own parts: those that answer now, promised in this ballot and accept
 * connections; if none accepts connections, those that answer and promised. False: there are
 * none. */
static bool able_owners(const gsp_agree *a, bool *able)
{
    uint32_t n = gsp_agree_roster(a)->n, reachable = 0, any = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool there = (a->promised >> i & 1) && gsp_people_alive(a, i);
        any |= there ? 1u << i : 0;
        reachable |= there && a->brought[i].rates.accepts ? 1u << i : 0;
    }
    for (uint32_t i = 0; i < n; i++)
        able[i] = (reachable ? reachable : any) >> i & 1;
    return any != 0;
}

static void propose(gsp_agree *a);

static void choose(gsp_agree *a)
{
    if (a->best_voted) {
        a->pending.as.propose.proposal = a->best;
        a->pending.as.propose.proof = a->best_proof;
        propose(a);
        return;
    }
    bool able[GSP_MEMBERS_MAX] = {0};
    uint32_t n = gsp_agree_roster(a)->n;
    gsp_message *m = gsp_agree_compose(a, GSP_BEGIN, a->ballot);
    gsp_begin *begin = &m->as.begin;
    uint64_t travel = gsp_view_travel_ns(a), within = share_ns(a, 50);
    within = travel ? lesser(within, gsp_view_patience_ns(a, travel)) : within;
    begin->previous = a->previous;
    begin->collect_ns = within / 2;
    begin->finish_ns = within;
    begin->n_parts = a->rules.n_parts;
    for (uint32_t i = 0; i < n; i++) {
        const gsp_contribution *c = &a->brought[i];
        if (!(a->promised >> i & 1) || gsp_hash_none(&c->root))
            continue;
        begin->contributor[begin->n_contributors++] = (gsp_contributor){
            .member = (uint8_t)i, .root = c->root, .tokens = c->tokens, .samples = c->samples};
    }
    gsp_proposal_weigh(&a->rules, &a->certificate.proposal, begin->contributor,
                       begin->n_contributors);
    memset(begin->owner, GSP_NOBODY, sizeof begin->owner);
    if (begin->n_contributors && able_owners(a, able))
        assign(a, able, n, begin->owner);
    memset(begin->owner + begin->n_parts, 0, sizeof begin->owner - begin->n_parts);
    phase_set(a, GSP_AVERAGE, within);
    gsp_begin mine = *begin;
    gsp_agree_say(a, GSP_TO_ROSTER, m);
    gsp_vote_begin(a, a->self_i, a->ballot, &mine);
    gsp_propose_part_known(a);
}

/* Goes on once everybody who is alive has promised, or once a quorum has and the time is over: that
 * of the phase, or that which the last few have when all others are there. */
static void gathered(gsp_agree *a)
{
    uint32_t n = gsp_agree_roster(a)->n;
    uint32_t late = gsp_people_alive_bits(a) & ~a->promised;
    if (a->phase != GSP_GATHER || !gsp_quorum(a->rules.trust, n, a->promised))
        return;
    bool few = (uint32_t)__builtin_popcount(late) <= gsp_liars_max(a->rules.trust, n);
    if (few && a->most_ns == 0)
        a->most_ns = a->now_ns;
    bool over = few && a->now_ns - a->phase_ns >= gsp_view_patience_ns(a, a->most_ns - a->phase_ns);
    if (late == 0 || over || a->now_ns >= a->phase_until_ns)
        choose(a);
}

static bool contribution_wrong(const gsp_agree *a, uint32_t from, const gsp_promise *p)
{
    const gsp_contribution *c = &p->contribution;
    gsp_hash hash;
    if (gsp_hash_none(&c->root))
        return !gsp_hash_none(&p->statement.root);
    gsp_contribution_hash(&a->seals, c, &hash);
    return !gsp_hash_equal(&hash, &p->statement.root) ||
           gsp_rules_brought_wrong(a, from, c->tokens, c->samples);
}

void gsp_propose_promise(gsp_agree *a, uint32_t from, const gsp_promise *p)
{
    const gsp_statement *s = &p->statement;
    const gsp_member *who = &gsp_agree_roster(a)->member[from];
    gsp_hash hash;
    if (a->phase != GSP_GATHER || s->ballot != a->ballot || (a->promised >> from & 1))
        return;
    if (s->kind != GSP_SAYS_PROMISE || s->version != a->certified + 1 ||
        !gsp_hash_equal(&s->lineage, &a->lineage) || !gsp_member_equal(&s->signer, who) ||
        (from != a->self_i && !gsp_statement_verify(&a->seals, s)) || s->voted >= s->ballot ||
        (s->voted != 0) != p->has_proposal) {
        a->stats.refused++;
        return;
    }
    if (contribution_wrong(a, from,
                           p)) { /* whoever brings what nobody believes has promised nothing */
        a->stats.refused++;
        return;
    }
    if (p->has_proposal) {
        if (!gsp_proposal_fits(&p->proposal))
            return;
        gsp_proposal_hash(&a->seals, &p->proposal, &hash);
        if (!gsp_hash_equal(&hash, &s->subject) ||
            gsp_proof_wrong(a, &p->proposal, &hash, s->voted, &p->proof)) {
            a->stats.refused++;
            return;
        }
        if (s->voted > a->best_voted) {
            a->best_voted = s->voted;
            a->best = p->proposal;
            a->best_proof = p->proof;
        }
    }
    if (a->vote[from].kind)
        gsp_people_accuse(a, s, &a->vote[from]);
    a->promise[from] = *s;
    a->brought[from] = p->contribution;
    a->promised |= 1u << from;
    gathered(a);
}

/* ---- parts in, PROPOSE out ---- */

static void propose(gsp_agree *a)
{
    gsp_message *m = &a->pending;
    gsp_propose *p = &m->as.propose;
    m->kind = GSP_PROPOSE;
    m->from = a->self;
    m->lineage = a->lineage;
    m->version = a->certified + 1;
    m->ballot = a->ballot;
    p->n_promises = 0;
    memset(p->promise, 0, sizeof p->promise);
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        if (a->promised >> i & 1)
            p->promise[p->n_promises++] = a->promise[i];
    p->statement = (gsp_statement){.kind = GSP_SAYS_PROPOSE,
                                   .lineage = a->lineage,
                                   .version = m->version,
                                   .ballot = a->ballot,
                                   .signer = a->self};
    gsp_proposal_hash(&a->seals, &p->proposal, &p->statement.subject);
    gsp_statement_seal(&a->seals, &p->statement);
    a->has_pending = false;
    phase_set(a, GSP_DECIDE, share_ns(a, 100));
    gsp_agree_say(a, GSP_TO_ROSTER, m);
    gsp_vote_propose(a, a->self_i, m);
}

/* Members that the promises of my ballot name. */
static uint32_t withheld_out(const gsp_agree *a)
{
    gsp_statement promise[GSP_MEMBERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        if (a->promised >> i & 1)
            promise[n++] = a->promise[i];
    return gsp_withheld_out(a, promise, n);
}

void gsp_propose_part_known(gsp_agree *a)
{
    const gsp_round *r = &a->round;
    if (a->phase != GSP_AVERAGE || r->ballot != a->ballot || !gsp_round_complete(r))
        return;
    gsp_proposal *p = &a->pending.as.propose.proposal;
    a->has_pending = false;
    memset(p, 0, sizeof *p);
    p->lineage = a->lineage;
    p->version = a->certified + 1;
    p->previous = a->previous;
    p->n_contributors = r->begin.n_contributors;
    p->n_parts = r->begin.n_parts;
    memcpy(p->contributor, r->begin.contributor, sizeof p->contributor);
    for (uint32_t k = 0; k < p->n_parts; k++)
        if (r->begin.owner[k] != GSP_NOBODY)
            p->part[k] = r->known[k];
    gsp_proposal_totals(&a->rules, &a->certificate.proposal, p, &p->tokens, &p->samples);
    gsp_rules_next(a, a->promised, withheld_out(a), p);
    a->pending.as.propose.proof.n = 0;
    gsp_changes_make(a, p, &a->pending.as.propose.proof.changes);
    propose(a);
}

/* Parts whose owner is gone get another one. When the time is over, or after too many attempts,
 * they stay unchanged in this version. */
static void reassign(gsp_agree *a)
{
    gsp_round *r = &a->round;
    bool over = a->now_ns >= a->phase_until_ns || r->begin.attempt >= ATTEMPTS_MAX;
    bool able[GSP_MEMBERS_MAX] = {0};
    uint8_t owner[GSP_PARTS_MAX];
    bool changed = false;
    if (r->ballot != a->ballot)
        return;
    able_owners(a, able);
    assign(a, able, gsp_agree_roster(a)->n, owner);
    gsp_message *m = gsp_agree_compose(a, GSP_BEGIN, a->ballot);
    m->as.begin = r->begin;
    for (uint32_t k = 0; k < r->begin.n_parts; k++) {
        uint8_t now = r->begin.owner[k];
        if (now == GSP_NOBODY || !gsp_hash_none(&r->known[k].hash))
            continue;
        if (!over && gsp_people_alive(a, now))
            continue;
        m->as.begin.owner[k] = over ? GSP_NOBODY : owner[k];
        changed = true;
    }
    if (!changed)
        return;
    m->as.begin.attempt++;
    gsp_begin mine = m->as.begin;
    gsp_agree_say(a, GSP_TO_ROSTER, m);
    gsp_vote_begin(a, a->self_i, a->ballot, &mine);
    gsp_propose_part_known(a);
}

/* ---- again ---- */

static void say_again(gsp_agree *a)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    a->said_ns = a->now_ns;
    for (uint32_t i = 0; i < roster->n; i++) {
        const gsp_key *key = &roster->member[i].key;
        if (i == a->self_i || !gsp_people_votes(a, i))
            continue;
        if (a->phase == GSP_GATHER && !(a->promised >> i & 1)) {
            say_prepare(a, key);
        } else if (a->phase == GSP_AVERAGE) {
            gsp_message *m = gsp_agree_compose(a, GSP_BEGIN, a->ballot);
            m->as.begin = a->round.begin;
            gsp_agree_send(a, key, m);
        } else if (a->phase == GSP_DECIDE && a->has_pending &&
                   a->vote[i].ballot < a->pending.ballot) {
            gsp_agree_send(a, key, &a->pending);
        }
    }
}

void gsp_propose_tick(gsp_agree *a)
{
    if (a->phase == GSP_IDLE)
        return;
    if (a->phase == GSP_GATHER)
        gathered(a);
    if (a->phase == GSP_AVERAGE)
        reassign(a);
    if (a->phase != GSP_IDLE && a->now_ns - a->said_ns >= a->rules.heartbeat_ns)
        say_again(a);
}
