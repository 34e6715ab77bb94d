/*
 * Owns which members, joiners and peers are there: heartbeats, joins, goodbyes, convictions, and
 * which lineage to follow. Its one idea: all of them are rows of tables of fixed size, and rows
 * age. It refuses to let anybody's messages grow anything, to take back news for older news, and to
 * ban without a proof.
 */
#include "gossip/agree/agree_inner.h"

gsp_peer *gsp_people_find(gsp_agree *a, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (a->peer[i].known && gsp_key_compare(&a->peer[i].who.key, key) == 0)
            return &a->peer[i];
    return NULL;
}

/* Takes a free place, or that of a peer without a link; NULL: all have links. */
gsp_peer *gsp_people_add(gsp_agree *a, const gsp_key *key)
{
    gsp_peer *place = gsp_people_find(a, key);
    if (place)
        return place;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        gsp_peer *p = &a->peer[i];
        if (!p->known) {
            place = p;
            break;
        }
        if (!p->up && (!place || p->heard_ns < place->heard_ns))
            place = p;
    }
    if (place) {
        memset(place, 0, sizeof *place);
        place->known = place->up = true;
        place->who.key = *key;
        place->heard_ns = a->now_ns;
    }
    return place;
}

static const gsp_peer *find(const gsp_agree *a, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (a->peer[i].known && gsp_key_compare(&a->peer[i].who.key, key) == 0)
            return &a->peer[i];
    return NULL;
}

bool gsp_people_answers(const gsp_agree *a, const gsp_member *who)
{
    if (gsp_member_equal(who, &a->self))
        return true;
    const gsp_peer *p = find(a, &who->key);
    return p && p->up && p->who.incarnation == who->incarnation &&
           gsp_hash_equal(&p->lineage, &a->lineage) && a->now_ns - p->heard_ns <= a->rules.dead_ns;
}

bool gsp_people_alive(const gsp_agree *a, uint32_t i)
{
    return i < gsp_agree_roster(a)->n && !(a->left >> i & 1) &&
           gsp_people_answers(a, &gsp_agree_roster(a)->member[i]);
}

uint32_t gsp_people_alive_bits(const gsp_agree *a)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        bits |= gsp_people_alive(a, i) ? 1u << i : 0;
    return bits;
}

bool gsp_people_may_answer(gsp_agree *a, const gsp_key *key)
{
    gsp_peer *p = gsp_people_find(a, key);
    if (!p || p->answered >= GSP_ANSWERS_PER_S)
        return false;
    p->answered++;
    return true;
}

/* ---- bans ---- */

bool gsp_people_banned(const gsp_agree *a, const gsp_key *key)
{
    uint32_t n = a->n_banned < GSP_BANNED_MAX ? a->n_banned : GSP_BANNED_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (gsp_key_compare(&a->banned[i], key) == 0)
            return true;
    return false;
}

void gsp_people_ban(gsp_agree *a, const gsp_key *key)
{
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), key);
    if (gsp_people_banned(a, key) || gsp_key_compare(key, &a->self.key) == 0)
        return;
    a->banned[a->n_banned++ % GSP_BANNED_MAX] = *key;
    if (i != GSP_NOBODY)
        a->left |= 1u << i;
}

void gsp_people_accuse(gsp_agree *a, const gsp_statement *first, const gsp_statement *second)
{
    const gsp_key *key = &first->signer.key;
    if (gsp_people_banned(a, key) || gsp_key_compare(key, &a->self.key) == 0 ||
        !gsp_statements_convict(&a->seals, first, second))
        return;
    gsp_evidence evidence = {.first = *first, .second = *second};
    gsp_people_ban(a, &evidence.first.signer.key);
    a->stats.evidence++;
    gsp_message *m = gsp_agree_compose(a, GSP_EVIDENCE, 0);
    m->version = 0;
    m->as.evidence = evidence;
    gsp_agree_say(a, GSP_TO_ALL, m);
}

/* ---- joins and leaves ---- */

static void forget_waiting(gsp_agree *a, uint32_t k)
{
    a->n_waiting--;
    memmove(&a->waiting[k], &a->waiting[k + 1], (a->n_waiting - k) * sizeof *a->waiting);
}

void gsp_people_join(gsp_agree *a, const gsp_message *m)
{
    const gsp_join *join = &m->as.join;
    if (!gsp_agree_is_member(a) || gsp_roster_find(gsp_agree_roster(a), &m->from) != GSP_NOBODY ||
        m->from.incarnation == 0 ||
        (a->rules.admitted && !a->rules.admitted(a->rules.context, &m->from.key)))
        return;
    uint32_t k = 0;
    while (k < a->n_waiting && gsp_key_compare(&a->waiting[k].who.key, &m->from.key) != 0)
        k++;
    if (k == a->n_waiting) {
        if (a->n_waiting == GSP_WAITING_MAX)
            return;
        a->n_waiting++;
    } else if (a->waiting[k].who.incarnation > m->from.incarnation ||
               (a->waiting[k].who.incarnation == m->from.incarnation &&
                a->waiting[k].applied > join->applied)) {
        return;
    }
    a->waiting[k] = (gsp_waiting){
        .who = m->from, .applied = join->applied, .heard_ns = a->now_ns, .rates = join->rates};
    if (!gsp_people_may_answer(a, &m->from.key))
        return;
    gsp_message *answer = gsp_agree_compose(a, GSP_WAIT, 0);
    uint32_t room = GSP_MEMBERS_MAX - gsp_agree_roster(a)->n;
    answer->as.wait = (gsp_wait){.place = k < room ? 0 : k - room + 1,
                                 .n_waiting = a->n_waiting,
                                 .n_members = gsp_agree_roster(a)->n};
    gsp_agree_send(a, &m->from.key, answer);
}

void gsp_people_leave(gsp_agree *a, const gsp_statement *s)
{
    uint32_t i = gsp_roster_find(gsp_agree_roster(a), &s->signer);
    if (i == GSP_NOBODY || i == a->self_i || (a->left >> i & 1) || s->kind != GSP_SAYS_LEAVE ||
        !gsp_hash_equal(&s->lineage, &a->lineage) || !gsp_statement_verify(&a->seals, s))
        return;
    a->left |= 1u << i;
    gsp_message *m = gsp_agree_compose(a, GSP_LEAVE, 0);
    m->version = 0;
    m->as.leave.statement = *s;
    gsp_agree_say(a, GSP_TO_ROSTER, m);
    gsp_round_gone(&a->round, i, gsp_agree_round_sink, a);
}

static void say_leave(gsp_agree *a)
{
    gsp_message *m = gsp_agree_compose(a, GSP_LEAVE, 0);
    gsp_statement *s = &m->as.leave.statement;
    m->version = 0;
    *s = (gsp_statement){.kind = GSP_SAYS_LEAVE, .lineage = a->lineage, .signer = a->self};
    gsp_statement_seal(&a->seals, s);
    gsp_agree_say(a, GSP_TO_ROSTER, m);
    if (gsp_agree_roster(a)->n > 1)
        a->left |= 1u << a->self_i;
}

static bool asks_for_a_place(const gsp_agree *a)
{
    return !a->leaving && !gsp_agree_is_member(a) && a->applied == a->certified &&
           !gsp_hash_none(&a->lineage);
}

static void say_join(gsp_agree *a, uint32_t member)
{
    const gsp_key *key = &gsp_agree_roster(a)->member[member].key;
    const gsp_peer *p = find(a, key);
    if (!p || !p->up)
        return;
    gsp_message *m = gsp_agree_compose(a, GSP_JOIN, 0);
    m->as.join = (gsp_join){.applied = a->applied, .rates = a->rates};
    gsp_agree_send(a, key, m);
}

/* Tells all members in turn, each of them once in three heartbeats: whichever proposes next must
 * have heard from me since the newest certificate. */
static void say_join_in_turn(gsp_agree *a)
{
    enum { BEATS = 3, LEAST = 3 };
    uint32_t n = gsp_agree_roster(a)->n, some = (n + BEATS - 1) / BEATS;
    some = some > LEAST ? some : n < LEAST ? n : LEAST;
    for (uint32_t k = 0; k < some; k++)
        say_join(a, (uint32_t)((a->sequence * some + k) % n));
}

/* If rounds are shorter than a heartbeat, no heartbeat falls between a certificate and the proposal
 * that follows it. So the two members that propose next are told at once. */
void gsp_people_applied(gsp_agree *a)
{
    enum { PROPOSERS = 2 };
    uint32_t n = gsp_agree_roster(a)->n;
    if (!asks_for_a_place(a) || n == GSP_MEMBERS_MAX)
        return;
    for (uint32_t ballot = 1; ballot <= PROPOSERS && ballot <= n; ballot++)
        say_join(a, gsp_view_proposer(a, ballot));
}

/* ---- heartbeats ---- */

static gsp_standing my_standing(const gsp_agree *a)
{
    return (gsp_standing){.lineage = a->lineage,
                          .reset = a->genesis.reset,
                          .generation = a->genesis.generation,
                          .tokens = a->certificate.proposal.tokens,
                          .n_votes = a->certificate.n_votes,
                          .live = a->now_ns - a->certified_ns < a->rules.fork_ns};
}

static gsp_standing standing_of(const gsp_agree *a, const gsp_peer *p)
{
    return (gsp_standing){.lineage = p->lineage,
                          .reset = p->reset,
                          .generation = p->generation,
                          .tokens = p->tokens,
                          .n_votes = p->n_votes,
                          .live = p->grown_ns && a->now_ns - p->grown_ns < a->rules.fork_ns};
}

/* Some peer follows this lineage, and it has certified something lately. */
static bool lives(const gsp_agree *a, const gsp_hash *lineage)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &a->peer[i];
        if (p->known && gsp_hash_equal(&p->lineage, lineage) && standing_of(a, p).live)
            return true;
    }
    return false;
}

static bool wants_lineage(const gsp_agree *a, const gsp_peer *p)
{
    if (gsp_hash_none(&p->lineage) || gsp_hash_equal(&p->lineage, &a->lineage) ||
        (p->asked_ns && a->now_ns - p->asked_ns < 4 * a->rules.dead_ns))
        return false;
    if (gsp_hash_none(&a->lineage))
        return true;
    gsp_standing theirs = standing_of(a, p), mine = my_standing(a);
    return gsp_lineage_beats(&theirs, &mine);
}

void gsp_people_want_state(gsp_agree *a, const gsp_key *peer, const gsp_hash *lineage)
{
    gsp_peer *p = gsp_people_find(a, peer);
    if (a->now_ns < a->state_until_ns || a->applying ||
        (p && p->asked_ns && a->now_ns - p->asked_ns < 4 * a->rules.dead_ns))
        return;
    a->state_until_ns = a->now_ns + a->rules.dead_ns;
    a->state_from = *peer;
    if (p)
        p->asked_ns = a->now_ns;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_STATE,
                                  .to = GSP_TO_ONE,
                                  .peer = *peer,
                                  .lineage = *lineage,
                                  .version = a->certified});
}

void gsp_people_ask(gsp_agree *a, const gsp_key *peer)
{
    gsp_peer *p = gsp_people_find(a, peer);
    if (a->now_ns < a->ask_ns || a->applied < a->certified || gsp_hash_none(&a->lineage) ||
        (p && p->wanted_version == a->certified + 1 &&
         a->now_ns - p->wanted_ns < 2 * a->rules.heartbeat_ns))
        return;
    if (p) {
        p->wanted_version = a->certified + 1;
        p->wanted_ns = a->now_ns;
    }
    a->ask_ns = a->now_ns + a->rules.heartbeat_ns / 2;
    gsp_message *m = gsp_agree_compose(a, GSP_ASK, 0);
    m->version = a->certified;
    m->as.ask.version = a->certified + 1;
    gsp_agree_send(a, peer, m);
}

void gsp_people_heartbeat(gsp_agree *a, const gsp_message *m)
{
    const gsp_heartbeat *h = &m->as.heartbeat;
    gsp_peer *p = gsp_people_find(a, &m->from.key);
    if (!p || m->from.incarnation < p->who.incarnation ||
        (m->from.incarnation == p->who.incarnation && h->sequence <= p->sequence)) {
        a->stats.stale++;
        return;
    }
    bool same = gsp_hash_equal(&m->lineage, &p->lineage);
    if (same && p->certified && m->version > p->certified)
        p->grown_ns = a->now_ns;
    else if (!same)
        p->grown_ns = 0;
    p->who.incarnation = m->from.incarnation;
    p->sequence = h->sequence;
    p->up = true;
    p->heard_ns = a->now_ns;
    p->lineage = m->lineage;
    p->certified = m->version;
    p->applied = h->applied;
    p->tokens = h->tokens;
    p->tokens_live = h->tokens_live;
    p->samples = h->samples;
    p->n_votes = h->n_votes;
    p->reset = h->reset;
    p->generation = h->generation;
    p->rates = h->rates;
    if (h->health == GSP_HEALTH_LEAVING) /* a joiner that leaves again: do not let it in */
        for (uint32_t k = a->n_waiting; k-- > 0;)
            if (gsp_key_compare(&a->waiting[k].who.key, &m->from.key) == 0)
                forget_waiting(a, k);
    if (wants_lineage(a, p))
        gsp_people_want_state(a, &p->who.key, &p->lineage);
    else if (gsp_hash_equal(&m->lineage, &a->lineage) && m->version > a->certified)
        gsp_people_ask(a, &p->who.key);
}

void gsp_people_beat(gsp_agree *a)
{
    a->beat_ns = a->now_ns + a->rules.heartbeat_ns;
    a->sequence++;
    gsp_message *m = gsp_agree_compose(a, GSP_HEARTBEAT, 0);
    m->as.heartbeat = (gsp_heartbeat){.sequence = a->sequence,
                                      .applied = a->applied,
                                      .anchor = a->previous,
                                      .tokens = a->certificate.proposal.tokens,
                                      .n_votes = a->certificate.n_votes,
                                      .reset = a->genesis.reset,
                                      .generation = a->genesis.generation,
                                      .samples = a->samples,
                                      .tokens_live = a->tokens_live,
                                      .rates = a->rates,
                                      .health = a->leaving ? GSP_HEALTH_LEAVING : 0};
    gsp_agree_say(a, GSP_TO_ALL, m);
    if (gsp_hash_none(&a->lineage))
        return;
    if (a->leaving && gsp_agree_is_member(a))
        say_leave(a);
    else if (asks_for_a_place(a))
        say_join_in_turn(a);
}

/* ---- lineages ---- */

/* A newer state of my lineage, or the state of a lineage that wins. A member that changes lineage
 * is somebody new there: what it promised in the old one binds an incarnation that is over. */
void gsp_people_state(gsp_agree *a, const gsp_saved *saved)
{
    a->state_until_ns = 0;
    if (!saved || a->applying)
        return;
    gsp_hash lineage;
    gsp_genesis_hash(&a->seals, &saved->genesis, &lineage);
    const gsp_certificate *c = &saved->certificate;
    if (gsp_genesis_wrong(&a->seals, &a->rules.owner, &saved->genesis)) {
        a->stats.refused++;
        return;
    }
    if (saved->has_certificate &&
        (!gsp_proposal_fits(&c->proposal) || c->n_votes > GSP_MEMBERS_MAX ||
         c->proposal.next.n == 0 || !gsp_hash_equal(&c->proposal.lineage, &lineage))) {
        a->stats.refused++;
        return;
    }
    bool same = gsp_hash_equal(&lineage, &a->lineage);
    uint64_t version =
        saved->has_certificate ? saved->certificate.proposal.version : saved->genesis.version;
    if (same && version <= a->applied)
        return;
    if (!same && !gsp_hash_none(&a->lineage)) {
        gsp_standing mine = my_standing(a);
        gsp_standing theirs = {.lineage = lineage,
                               .reset = saved->genesis.reset,
                               .generation = saved->genesis.generation,
                               .tokens = saved->has_certificate ? saved->certificate.proposal.tokens
                                                                : saved->genesis.tokens,
                               .n_votes = saved->certificate.n_votes,
                               .live = lives(a, &lineage)};
        if (!gsp_lineage_beats(&theirs, &mine))
            return;
        a->self.incarnation++;
        a->stats.moves++;
        a->n_waiting = 0;
    }
    gsp_agree_settle(a, saved);
    a->reset = a->genesis.reset;
    gsp_peer *from = gsp_people_find(a, &a->state_from);
    if (from)
        from->asked_ns = 0; /* it did answer: where versions are short I may soon need it again */
    gsp_agree_persist(a);
}

static void found(gsp_agree *a, uint32_t reset)
{
    gsp_genesis genesis = {
        .pool = a->genesis.pool,
        .cell = a->genesis.cell,
        .reset = reset,
        .generation = a->genesis.generation + 1,
        .parent = a->lineage,
        .version = a->applied,
        .previous = a->applied == a->certified ? a->previous : a->certificate.proposal.previous,
        .tokens = a->certificate.proposal.tokens,
        .founder = a->self};
    if (a->applied < a->certified) {
        uint64_t added = 0;
        uint32_t anywhere = 0;
        for (uint32_t k = 0; k < a->certificate.proposal.n_parts; k++)
            anywhere |= a->certificate.proposal.part[k].included;
        for (uint32_t i = 0; i < a->certificate.proposal.n_contributors; i++)
            added += anywhere >> i & 1 ? a->certificate.proposal.contributor[i].weight : 0;
        genesis.tokens -= added < genesis.tokens ? added : genesis.tokens;
    }
    genesis.founder.incarnation++;
    genesis.order = a->genesis.order;
    if (reset != a->genesis.reset)
        gsp_order_seal(&a->seals, &genesis);
    gsp_hash id;
    gsp_genesis_hash(&a->seals, &genesis, &id);
    a->seals.seal(a->seals.context, id.byte, sizeof id.byte, genesis.seal);
    a->self.incarnation++;
    a->stats.forks++;
    a->n_waiting = 0;
    gsp_saved saved = {.genesis = genesis};
    gsp_agree_settle(a, &saved);
    a->reset = reset;
    gsp_agree_act(a, (gsp_action){.kind = GSP_DO_FOUND,
                                  .version = a->applied,
                                  .lineage = a->lineage,
                                  .genesis = &a->genesis});
    gsp_message *m = gsp_agree_compose(a, GSP_LINEAGE, 0);
    m->version = 0;
    m->as.announce.genesis = genesis;
    gsp_agree_say(a, GSP_TO_ALL, m);
}

void gsp_people_reset(gsp_agree *a)
{
    if (gsp_key_compare(&a->self.key, &a->rules.owner) == 0 && !gsp_hash_none(&a->lineage) &&
        !a->applying)
        found(a, (a->reset > a->genesis.reset ? a->reset : a->genesis.reset) + 1);
}

/* The owner's resets count as soon as they are announced, before anybody of that lineage is met:
 * the next reset must have a larger number. They are passed on. */
void gsp_people_announce(gsp_agree *a, const gsp_genesis *genesis)
{
    uint32_t newest = a->reset > a->genesis.reset ? a->reset : a->genesis.reset;
    if (genesis->reset <= newest || !gsp_hash_equal(&genesis->pool, &a->genesis.pool) ||
        gsp_key_compare(&genesis->founder.key, &a->rules.owner) != 0 ||
        gsp_genesis_wrong(&a->seals, &a->rules.owner, genesis))
        return;
    a->reset = genesis->reset;
    gsp_genesis known = *genesis;
    gsp_message *m = gsp_agree_compose(a, GSP_LINEAGE, 0);
    m->version = 0;
    m->as.announce.genesis = known;
    gsp_agree_say(a, GSP_TO_ALL, m);
}

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

/* How long there has been neither a quorum nor a certificate; *patience: how long that may last. */
static uint64_t quiet_ns(const gsp_agree *a, uint64_t *patience)
{
    const gsp_roster *roster = gsp_agree_roster(a);
    bool mine = gsp_roster_find_key(roster, &a->self.key) != GSP_NOBODY;
    uint64_t since = a->quorum_ns > a->certified_ns ? a->quorum_ns : a->certified_ns;
    *patience = (a->rules.fork_ns + a->rules.fork_ns / 4 * fork_rank(a)) * (mine ? 1 : 4);
    if (mine && roster->n == 2)
        *patience = patience_of_pair(a);
    return a->now_ns - since;
}

uint64_t gsp_people_fork_in_ns(const gsp_agree *a)
{
    uint64_t patience, quiet = quiet_ns(a, &patience);
    return quiet < patience ? patience - quiet : 0;
}

void gsp_people_tick(gsp_agree *a)
{
    for (uint32_t k = a->n_waiting; k-- > 0;)
        if (a->now_ns - a->waiting[k].heard_ns > 2 * a->rules.dead_ns ||
            gsp_roster_find(gsp_agree_roster(a), &a->waiting[k].who) != GSP_NOBODY)
            forget_waiting(a, k);
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &a->peer[i];
        if (p->known && p->up && a->now_ns - p->heard_ns <= a->rules.dead_ns && wants_lineage(a, p))
            gsp_people_want_state(a, &p->who.key, &p->lineage);
    }
    if (a->applying || a->leaving)
        return;
    uint64_t patience, quiet = quiet_ns(a, &patience);
    uint64_t turn = a->rules.fork_ns + a->rules.fork_ns / 4 * fork_rank(a);
    bool stuck = a->due_ns && a->now_ns - a->due_ns > 4 * turn;
    if (stuck || quiet > patience)
        found(a, a->genesis.reset);
}
