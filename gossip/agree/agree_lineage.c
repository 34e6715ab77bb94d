/*
 * Owns which lineage this member follows, and when it begins one. Its one idea: it moves by chains
 * that were checked step by step (certificate_chain.h), and never by what a heartbeat claims; heartbeats only
 * say whose chain to ask for. It refuses to begin a fork with so few of its roster that all of them
 * could be hostile, as long as there is hope that others come back.
 */
#include "gossip/agree/agree_inner.h"

enum { ALONE = 4 /* T_fork: after so many a member goes on with anybody, or alone */ };

/* ---- how long without a quorum ---- */

static uint64_t quiet_ns(const gsp_agree *a)
{
    uint64_t since = a->quorum_ns > a->certified_ns ? a->quorum_ns : a->certified_ns;
    return a->now_ns - since;
}

/* In a roster of two, the member with the lower key is a quorum alone and goes on. The other one
 * has no majority to wait for, and waiting preserves little: what it trains meanwhile weighs at
 * most twice the median when they meet again. So it waits as long as a restart or a short break of
 * the network takes, not for T_fork. */
static uint64_t patience_of_pair(const gsp_agree *a)
{
    enum { PART = 30, SILENCES = 6 };
    uint64_t shorter = a->rules.fork_ns / PART, least = SILENCES * a->rules.dead_ns;
    shorter = shorter > least ? shorter : least;
    return shorter < a->rules.fork_ns ? shorter : a->rules.fork_ns;
}

/* How long a version has been due. Some of those who answer may hold it up. */
static uint64_t overdue_ns(const gsp_agree *a)
{
    return a->due_ns ? a->now_ns - a->due_ns : 0;
}

static bool on_roster(const gsp_agree *a)
{
    return gsp_roster_find_key(gsp_agree_roster(a), &a->self.key) != GSP_NOBODY;
}

static uint64_t patience(const gsp_agree *a)
{
    return on_roster(a) && gsp_agree_roster(a)->n == 2 ? patience_of_pair(a) : a->rules.fork_ns;
}

static gsp_plight plight(const gsp_agree *a)
{
    uint64_t quiet = quiet_ns(a), overdue = overdue_ns(a), long_ns = ALONE * a->rules.fork_ns;
    /* Whoever went on alone had given up before, and still has nobody. */
    bool alone = gsp_agree_roster(a)->n == 1 && a->genesis.generation && on_roster(a) &&
                 a->genesis.roster.n == 0;
    /* Nobody tells a joiner why nothing is certified any more. */
    bool forgotten = !gsp_agree_is_member(a) &&
                     a->now_ns - a->certified_ns >= long_ns + ALONE * a->rules.time_due_ns;
    return (gsp_plight){.newcomer = gsp_hash_none(&a->lineage),
                        .waits = quiet >= patience(a) / 2 || overdue >= long_ns / 2,
                        .gave_up = alone || forgotten || quiet >= long_ns || overdue >= long_ns};
}

/* ---- chains of others ---- */

/* Its chain may lead me somewhere: it claims so, or sent what is far ahead of me. */
static bool leads(const gsp_agree *a, const gsp_peer *p)
{
    bool same = gsp_hash_equal(&p->lineage, &a->lineage);
    bool heard = p->known && p->up && a->now_ns - p->heard_ns <= a->rules.dead_ns;
    return heard && (p->chain_far || (!gsp_hash_none(&p->lineage) &&
                                      (!same || p->certified > a->certified + GSP_REPLAY_MAX)));
}

/* In my own lineage versions may be short. */
static uint64_t least_wait(const gsp_agree *a, const gsp_peer *p)
{
    bool same = gsp_hash_equal(&p->lineage, &a->lineage);
    return same ? a->rules.heartbeat_ns : a->rules.dead_ns;
}

/* The longest depends on my need: without a quorum, or without a state, I ask everybody often. */
static uint64_t most_wait(const gsp_agree *a, const gsp_peer *p)
{
    enum { NO_QUORUM = 2, NO_STATE = 16 };
    gsp_plight need = plight(a);
    uint64_t least = least_wait(a, p), most = a->rules.fork_ns / 2;
    bool elsewhere = gsp_hash_none(&a->lineage) || a->reset > a->genesis.reset;
    if (need.waits || need.gave_up)
        most = NO_QUORUM * least;
    else if (elsewhere && most > NO_STATE * least)
        most = NO_STATE * least;
    return most > least ? most : least;
}

/* A peer that moved is worth asking sooner; one that claims to move all the time is not. */
static bool moved(const gsp_agree *a, const gsp_peer *p)
{
    return !gsp_hash_equal(&p->chain_lineage, &p->lineage) &&
           (p->chain_news_ns == 0 || a->now_ns - p->chain_news_ns >= a->rules.fork_ns / 2);
}

static bool is_due(const gsp_agree *a, const gsp_peer *p)
{
    uint64_t least = least_wait(a, p), most = most_wait(a, p);
    uint64_t wait = moved(a, p) || p->chain_wait_ns < least ? least : p->chain_wait_ns;
    return leads(a, p) &&
           (p->chain_asked_ns == 0 || a->now_ns - p->chain_asked_ns >= (wait < most ? wait : most));
}

/* One at a time, and of those that are due the one that waits longest: so nobody's claims take the
 * turn of others. */
static void ask_chain(gsp_agree *a)
{
    gsp_peer *next = NULL;
    if (a->now_ns < a->chain_until_ns || a->applying)
        return;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (is_due(a, &a->peer[i]) && (!next || a->peer[i].chain_asked_ns < next->chain_asked_ns))
            next = &a->peer[i];
    if (!next)
        return;
    uint64_t least = least_wait(a, next), most = a->rules.fork_ns / 2;
    bool anew = moved(a, next) || next->chain_wait_ns == 0;
    uint64_t wait = anew ? least : 2 * next->chain_wait_ns;
    if (anew && next->chain_wait_ns)
        next->chain_news_ns = a->now_ns;
    next->chain_wait_ns = wait < most || most < least ? wait : most;
    next->chain_asked_ns = a->now_ns;
    next->chain_lineage = next->lineage;
    next->chain_far = false;
    a->chain_until_ns = a->now_ns + a->rules.dead_ns;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_CHAIN,
                                  .to = GSP_TO_ONE,
                                  .peer = next->who.key,
                                  .lineage = next->lineage});
}

/* One that signed my fork and has not heard that all did is told. */
static void tell_begun(gsp_agree *a, const gsp_peer *p)
{
    if (gsp_hash_equal(&p->lineage, &a->lineage) ||
        !gsp_hash_equal(&p->lineage, &a->genesis.parent) || a->certified != a->genesis.version ||
        gsp_roster_find_key(&a->genesis.roster, &p->who.key) == GSP_NOBODY ||
        !gsp_people_may_answer(a, &p->who.key))
        return;
    gsp_message *m = gsp_agree_compose(a, GSP_LINEAGE, 0);
    m->version = 0;
    m->as.announce.genesis = a->genesis;
    gsp_agree_send(a, &p->who.key, m);
}

void gsp_follow_heard(gsp_agree *a, const gsp_peer *p)
{
    ask_chain(a);
    tell_begun(a, p);
}

void gsp_follow_far(gsp_agree *a, const gsp_key *peer)
{
    gsp_peer *p = gsp_people_find(a, peer);
    if (p)
        p->chain_far = true;
    ask_chain(a);
}

void gsp_follow_chain(gsp_agree *a, const gsp_key *peer, const gsp_match *match)
{
    gsp_peer *p = gsp_people_find(a, peer);
    a->chain_until_ns = 0;
    if (!match || a->applying)
        return;
    gsp_choice choice = gsp_match_judge(match, a->rules.trust, plight(a));
    a->stats.divided += choice == GSP_DIVIDED;
    const gsp_chain *theirs = &match->theirs.chain;
    bool near = gsp_hash_equal(&theirs->lineage, &a->lineage) &&
                theirs->version <= a->certified + GSP_REPLAY_MAX;
    if (choice == GSP_GO && p)
        p->chain_wait_ns = 0;
    if (choice == GSP_GO && near)
        gsp_people_ask(a, peer);
    if (choice != GSP_GO || near)
        return;
    a->state_from = *peer;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_STATE,
                                  .to = GSP_TO_ONE,
                                  .peer = *peer,
                                  .lineage = theirs->lineage,
                                  .version = a->certified});
}

/* The chain leads to this state. */
static bool shown(const gsp_agree *a, const gsp_saved *saved, const gsp_chain *chain)
{
    gsp_chain_terms terms = {.seals = &a->seals, .trust = a->rules.trust, .owner = a->rules.owner};
    gsp_hash lineage;
    if (saved->genesis.roster.n > GSP_MEMBERS_MAX)
        return false;
    gsp_genesis_hash(&a->seals, &saved->genesis, &lineage);
    if (!gsp_hash_equal(&lineage, &chain->lineage) ||
        memcmp(&saved->genesis.order, &chain->order, sizeof chain->order) != 0 ||
        gsp_genesis_wrong(&a->seals, &a->rules.owner, &saved->genesis)) /* an id is without seals */
        return false;
    return saved->has_certificate ? gsp_chain_shows(&terms, chain, &saved->certificate)
                                  : gsp_hash_equal(&lineage, &chain->newest);
}

/* A newer state of my lineage, or the state of a lineage that wins. A member that changes lineage
 * is somebody new there: what it promised in the old one binds an incarnation that is over. */
void gsp_follow_state(gsp_agree *a, const gsp_saved *saved, const gsp_match *match)
{
    if (!saved || a->applying)
        return;
    if (!match || !shown(a, saved, &match->theirs.chain)) {
        a->stats.refused++;
        return;
    }
    uint64_t version =
        saved->has_certificate ? saved->certificate.proposal.version : saved->genesis.version;
    bool same = gsp_hash_equal(&match->theirs.chain.lineage, &a->lineage);
    if ((same && version <= a->applied) ||
        gsp_match_judge(match, a->rules.trust, plight(a)) != GSP_GO)
        return;
    if (!same && !gsp_hash_none(&a->lineage)) {
        a->self.incarnation++;
        a->stats.moves++;
        a->n_waiting = 0;
    }
    gsp_agree_settle(a, saved);
    a->reset = a->genesis.reset > a->reset ? a->genesis.reset : a->reset;
    gsp_peer *from = gsp_people_find(a, &a->state_from);
    if (from)
        from->chain_asked_ns =
            0; /* it did answer: where versions are short I may soon need it again */
    gsp_agree_persist(a);
}

/* ---- a lineage of one's own ---- */

static void announce(gsp_agree *a, gsp_to to, const gsp_genesis *genesis)
{
    gsp_message *m = gsp_agree_compose(a, GSP_LINEAGE, 0);
    m->version = 0;
    m->as.announce.genesis = *genesis;
    gsp_agree_say(a, to, m);
}

/* It is signed by all: everything starts anew from the anchor that is here. */
static void begin(gsp_agree *a, const gsp_genesis *genesis)
{
    gsp_saved saved = {.genesis = *genesis};
    a->self.incarnation++;
    a->stats.forks++;
    a->n_waiting = 0;
    gsp_agree_settle(a, &saved);
    a->reset = genesis->reset > a->reset ? genesis->reset : a->reset;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_FOUND,
                                  .version = a->applied,
                                  .lineage = a->lineage,
                                  .genesis = &a->genesis});
}

static void continue_from_here(const gsp_agree *a, uint32_t reset, gsp_genesis *out)
{
    *out = (gsp_genesis){.pool = a->genesis.pool,
                         .cell = a->genesis.cell,
                         .reset = reset,
                         .generation = a->genesis.generation + 1,
                         .parent = a->lineage,
                         .version = a->applied,
                         .previous = a->applied == a->certified ? a->previous
                                                                : a->certificate.proposal.previous,
                         .tokens = a->certificate.proposal.tokens,
                         .samples = a->certificate.proposal.samples,
                         .founder = a->self};
    if (a->applied < a->certified) {
        const gsp_proposal *newest = &a->certificate.proposal;
        uint64_t tokens, samples;
        gsp_proposal_adds(true, newest, &tokens, &samples);
        if (!gsp_rules_sums(&a->rules, newest->samples - samples))
            gsp_proposal_adds(false, newest, &tokens, &samples);
        out->tokens -= tokens < out->tokens ? tokens : out->tokens;
        out->samples -= samples < out->samples ? samples : out->samples;
    }
    out->founder.incarnation++;
    out->order = a->genesis.order;
    for (uint32_t k = 0; k < a->certificate.proposal.n_barred; k++)
        if (gsp_key_compare(&a->certificate.proposal.barred[k].key, &a->self.key) != 0)
            out->barred[out->n_barred++] = a->certificate.proposal.barred[k];
}

static void sign(const gsp_agree *a, const gsp_genesis *genesis, uint8_t seal[GSP_SEAL_BYTES])
{
    gsp_hash id;
    gsp_genesis_hash(&a->seals, genesis, &id);
    a->seals.seal(a->seals.context, id.byte, sizeof id.byte, seal);
}

static void found_alone(gsp_agree *a, uint32_t reset)
{
    gsp_genesis genesis;
    continue_from_here(a, reset, &genesis);
    if (reset != a->genesis.reset)
        gsp_order_seal(&a->seals, &genesis);
    sign(a, &genesis, genesis.seal);
    begin(a, &genesis);
    announce(a, GSP_TO_ALL, &a->genesis);
}

void gsp_follow_reset(gsp_agree *a)
{
    if (gsp_key_compare(&a->self.key, &a->rules.owner) == 0 && !gsp_hash_none(&a->lineage) &&
        !a->applying)
        found_alone(a, (a->reset > a->genesis.reset ? a->reset : a->genesis.reset) + 1);
}

/* ---- a fork of several ---- */

/* Those of my roster that answer and hold what I hold, as a fork lists them. */
static void founders(const gsp_agree *a, gsp_roster *out)
{
    const gsp_roster *now = gsp_agree_roster(a);
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < now->n; i++) {
        gsp_member who = now->member[i];
        bool there = i == a->self_i;
        for (uint32_t k = 0; k < GSP_PEERS_KNOWN_MAX && !there; k++) {
            const gsp_peer *p = &a->peer[k];
            there = p->known && gsp_key_compare(&p->who.key, &who.key) == 0 &&
                    p->certified == a->certified && p->applied == a->certified &&
                    gsp_people_alive(a, i);
        }
        who.incarnation++;
        if (there && (i == a->self_i || !(a->left >> i & 1)))
            out->member[out->n++] = who;
    }
}

static uint32_t needed(const gsp_agree *a)
{
    return gsp_liars_max(a->rules.trust, gsp_agree_roster(a)->n) + 1;
}

static bool enough(const gsp_agree *a)
{
    gsp_roster roster;
    founders(a, &roster);
    return gsp_agree_is_member(a) && a->applied == a->certified && roster.n >= needed(a);
}

static void draft_say(gsp_agree *a)
{
    a->draft_said_ns = a->now_ns;
    announce(a, GSP_TO_ROSTER, &a->draft);
}

static void draft_begin(gsp_agree *a, const gsp_roster *roster)
{
    continue_from_here(a, a->genesis.reset, &a->draft);
    a->draft_ns = a->now_ns;
    if (roster->n == 1) {
        a->draft.generation = 0;
        found_alone(a, a->genesis.reset);
        return;
    }
    a->draft.roster = *roster;
    sign(a, &a->draft, a->draft.seal);
    draft_say(a);
}

static bool signed_by(const gsp_genesis *g, uint32_t i)
{
    static const uint8_t none[GSP_SEAL_BYTES];
    return gsp_member_equal(&g->roster.member[i], &g->founder) ||
           memcmp(g->consent[i], none, sizeof none) != 0;
}

/* The time for signing is over: it is tried again with those that signed. */
static void draft_over(gsp_agree *a)
{
    gsp_roster some = {0};
    const gsp_roster *all = &a->draft.roster;
    for (uint32_t i = 0; i < all->n; i++)
        if (signed_by(&a->draft, i))
            some.member[some.n++] = all->member[i];
    bool fewer = some.n < all->n;
    a->draft.generation = 0;
    if (fewer && some.n >= needed(a))
        draft_begin(a, &some);
}

/* I would go on without a quorum myself. */
static bool willing(const gsp_agree *a)
{
    bool stuck = overdue_ns(a) >= ALONE * a->rules.fork_ns / 2;
    return !a->leaving && !a->applying && gsp_agree_is_member(a) && a->applied == a->certified &&
           (stuck || quiet_ns(a) >= patience(a) / 2);
}

/* All who begin it are of my roster, have not left, and could not all be hostile. */
static bool of_mine(const gsp_agree *a, const gsp_genesis *g)
{
    for (uint32_t i = 0; i < g->roster.n; i++) {
        const gsp_member *who = &g->roster.member[i];
        uint32_t at = gsp_roster_find_key(gsp_agree_roster(a), &who->key);
        if (at == GSP_NOBODY || (a->left >> at & 1) ||
            who->incarnation != gsp_agree_roster(a)->member[at].incarnation + 1)
            return false;
    }
    return g->roster.n >= needed(a);
}

/* It continues exactly from where I am, and lists me. */
static bool from_here(const gsp_agree *a, const gsp_genesis *g, uint32_t *me)
{
    gsp_genesis mine;
    gsp_member next = a->self;
    next.incarnation++;
    if (g->roster.n > GSP_MEMBERS_MAX || !of_mine(a, g))
        return false;
    *me = gsp_roster_find(&g->roster, &next);
    continue_from_here(a, a->genesis.reset, &mine);
    return *me != GSP_NOBODY && gsp_hash_equal(&g->pool, &mine.pool) && g->cell == mine.cell &&
           g->reset == mine.reset && memcmp(&g->order, &mine.order, sizeof mine.order) == 0 &&
           g->generation == mine.generation && gsp_hash_equal(&g->parent, &mine.parent) &&
           g->version == mine.version && gsp_hash_equal(&g->previous, &mine.previous) &&
           gsp_hash_equal(&g->anchor, &mine.anchor) && g->tokens == mine.tokens &&
           g->samples == mine.samples && g->n_barred == mine.n_barred &&
           memcmp(g->barred, mine.barred, sizeof g->barred) == 0;
}

static void fork_announced(gsp_agree *a, const gsp_message *m)
{
    const gsp_genesis *g = &m->as.announce.genesis;
    uint32_t me;
    if (!willing(a) || !from_here(a, g, &me))
        return;
    if (!gsp_genesis_wrong(&a->seals, &a->rules.owner, g)) {
        gsp_genesis whole = *g;
        begin(a, &whole);
        return;
    }
    if (gsp_key_compare(&m->from.key, &g->founder.key) != 0 ||
        !gsp_people_may_answer(a, &m->from.key))
        return;
    gsp_hash id;
    gsp_genesis_hash(&a->seals, g, &id);
    gsp_message *answer = gsp_agree_compose(a, GSP_CONSENT, 0);
    answer->version = 0;
    answer->as.consent.lineage = id;
    a->seals.seal(a->seals.context, id.byte, sizeof id.byte, answer->as.consent.seal);
    gsp_agree_send(a, &m->from.key, answer);
}

/* The owner's resets count as soon as they are announced, before anybody of that lineage is met:
 * the next reset must have a larger number. They are passed on. */
void gsp_follow_announced(gsp_agree *a, const gsp_message *m)
{
    const gsp_genesis *genesis = &m->as.announce.genesis;
    uint32_t newest = a->reset > a->genesis.reset ? a->reset : a->genesis.reset;
    if (gsp_hash_none(&a->lineage) || !gsp_hash_equal(&genesis->pool, &a->genesis.pool))
        return;
    if (genesis->reset <= newest) {
        fork_announced(a, m);
        return;
    }
    if (gsp_key_compare(&genesis->founder.key, &a->rules.owner) != 0 ||
        gsp_genesis_wrong(&a->seals, &a->rules.owner, genesis))
        return;
    a->reset = genesis->reset;
    gsp_genesis known = *genesis;
    announce(a, GSP_TO_ALL, &known);
}

void gsp_follow_consent(gsp_agree *a, const gsp_message *m)
{
    const gsp_consent *c = &m->as.consent;
    gsp_genesis *g = &a->draft;
    gsp_hash id;
    uint32_t i = g->generation ? gsp_roster_find_key(&g->roster, &m->from.key) : GSP_NOBODY;
    if (i == GSP_NOBODY || signed_by(g, i) || a->applying)
        return;
    gsp_genesis_hash(&a->seals, g, &id);
    if (!gsp_hash_equal(&id, &c->lineage) ||
        !a->seals.verify(a->seals.context, &m->from.key, id.byte, sizeof id.byte, c->seal)) {
        a->stats.refused++;
        return;
    }
    memcpy(g->consent[i], c->seal, sizeof g->consent[i]);
    for (uint32_t k = 0; k < g->roster.n; k++)
        if (!signed_by(g, k))
            return;
    gsp_hash previous = a->applied == a->certified ? a->previous : (gsp_hash){{0}};
    if (!gsp_hash_equal(&g->parent, &a->lineage) || !gsp_hash_equal(&g->previous, &previous))
        return;
    gsp_genesis whole = *g;
    begin(a, &whole);
    announce(a, GSP_TO_ALL, &a->genesis);
}

/* ---- when ---- */

/* How many go first: those of my lineage that I can see and that hold more, or as much and have a
 * lower key. */
static uint32_t fork_rank(const gsp_agree *a)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &a->peer[i];
        if (!p->known || !p->up || a->now_ns - p->heard_ns > a->rules.dead_ns ||
            !gsp_hash_equal(&p->lineage, &a->lineage))
            continue;
        if (p->applied > a->applied ||
            (p->applied == a->applied && gsp_key_compare(&p->who.key, &a->self.key) < 0))
            rank++;
    }
    return rank;
}

/* With enough others, after T_fork; else long after there is no hope of them. */
static uint64_t fork_patience(const gsp_agree *a, bool with_others)
{
    uint64_t step = a->rules.fork_ns / 4, rank = fork_rank(a);
    if (on_roster(a) && gsp_agree_roster(a)->n == 2)
        return patience_of_pair(a);
    if (with_others)
        return a->rules.fork_ns + step * rank;
    return (ALONE * a->rules.fork_ns + step * (1 + rank)) * (on_roster(a) ? 1 : 2);
}

uint64_t gsp_follow_fork_in_ns(const gsp_agree *a)
{
    uint64_t all = fork_patience(a, enough(a)), quiet = quiet_ns(a);
    return quiet < all ? all - quiet : 0;
}

void gsp_follow_tick(gsp_agree *a)
{
    ask_chain(a);
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (a->peer[i].known && a->peer[i].up)
            tell_begun(a, &a->peer[i]);
    if (a->applying || a->leaving) {
        a->draft.generation = 0;
        return;
    }
    if (a->draft.generation) {
        if (!gsp_hash_equal(&a->draft.previous, &a->previous))
            a->draft.generation = 0;
        else if (a->now_ns - a->draft_ns >= a->rules.dead_ns)
            draft_over(a);
        else if (a->now_ns - a->draft_said_ns >= a->rules.heartbeat_ns)
            draft_say(a);
        return;
    }
    bool with_others = enough(a);
    uint64_t turn = fork_patience(a, with_others);
    bool stuck = overdue_ns(a) > ALONE * (a->rules.fork_ns + a->rules.fork_ns / 4 * fork_rank(a));
    if (!stuck && quiet_ns(a) <= turn)
        return;
    gsp_roster roster;
    founders(a, &roster);
    if (with_others)
        draft_begin(a, &roster);
    else
        found_alone(a, a->genesis.reset);
}
