/*
 * Owns which members, joiners and peers are there: heartbeats, joins and goodbyes. Its one idea: all
 * of them are rows of tables of fixed size, and rows age. It refuses to let anybody's messages grow
 * anything, and to take back news for older news.
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

const gsp_peer *gsp_people_look(const gsp_agree *a, const gsp_key *key)
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
    const gsp_peer *p = gsp_people_look(a, &who->key);
    return p && p->who.incarnation == who->incarnation && gsp_agree_hears(a, &who->key);
}

bool gsp_people_alive(const gsp_agree *a, uint32_t i)
{
    return i < gsp_agree_roster(a)->n && !(a->left >> i & 1) &&
           gsp_people_answers(a, &gsp_agree_roster(a)->member[i]);
}

uint32_t gsp_agree_here(const gsp_agree *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < gsp_agree_roster(a)->n; i++)
        n += i == a->self_i || gsp_people_alive(a, i);
    return n;
}

bool gsp_agree_hears(const gsp_agree *a, const gsp_key *key)
{
    const gsp_peer *p = gsp_people_look(a, key);
    return p && p->up && gsp_hash_equal(&p->lineage, &a->lineage) &&
           a->now_ns - p->heard_ns <= a->rules.dead_ns;
}

bool gsp_people_votes(const gsp_agree *a, uint32_t i)
{
    return i < gsp_agree_roster(a)->n && gsp_people_answers(a, &gsp_agree_roster(a)->member[i]);
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

/* A peer that goes forward asks for each version once, so what it costs grows with the pool and no
 * faster. Everything else is a repetition, and of those there are so many in a minute. */
void gsp_people_show(gsp_agree *a, const gsp_key *key, uint64_t version)
{
    const uint64_t minute = a->now_ns / (60 * 1000000000ull);
    gsp_peer *p = gsp_people_find(a, key);
    if (!p)
        return;
    if (p->minute != minute)
        p->repeated = 0;
    p->minute = minute;
    uint64_t given = version + GSP_REPLAY_MAX > a->certified ? version : a->certified;
    bool repeated = given <= p->shown;
    if ((repeated && p->repeated >= GSP_REPEATS_MAX) || !gsp_people_may_answer(a, key)) {
        a->stats.unanswered++;
        return;
    }
    if (repeated)
        p->repeated++;
    else
        p->shown = given;
    gsp_agree_act(
        a, (gsp_action){
               .kind = GSP_DO_CERTIFICATE, .to = GSP_TO_ONE, .peer = *key, .version = version});
}

/* ---- joins and leaves ---- */

static void forget_waiting(gsp_agree *a, uint32_t k)
{
    a->n_waiting--;
    memmove(&a->waiting[k], &a->waiting[k + 1], (a->n_waiting - k) * sizeof *a->waiting);
}

/* Where the joiner stands in the queue; n_waiting: it does not. */
static uint32_t place_of(const gsp_agree *a, const gsp_key *key)
{
    uint32_t k = 0;
    while (k < a->n_waiting && gsp_key_compare(&a->waiting[k].who.key, key) != 0)
        k++;
    return k;
}

static bool newer(const gsp_waiting *w, const gsp_message *m)
{
    const gsp_statement *wish = &m->as.join.entry.wish;
    if (w->who.incarnation != m->from.incarnation)
        return w->who.incarnation < m->from.incarnation;
    return w->entry.wish.version <= wish->version;
}

/* At most once a second: it asks after every version, and what is answered here would be missing where it
 * asks for the certificates that it lacks. */
static void tell_place(gsp_agree *a, const gsp_key *to, uint32_t k)
{
    const gsp_peer *p = gsp_people_look(a, to);
    uint32_t room = GSP_MEMBERS_MAX - gsp_agree_roster(a)->n;
    if (!p || p->answered > 0 || !gsp_people_may_answer(a, to))
        return;
    gsp_message *answer = gsp_agree_compose(a, GSP_WAIT, 0);
    answer->as.wait = (gsp_wait){.place = k < room ? 0 : k - room + 1,
                                 .n_waiting = a->n_waiting,
                                 .n_members = gsp_agree_roster(a)->n};
    gsp_agree_send(a, to, answer);
}

void gsp_people_join(gsp_agree *a, const gsp_message *m)
{
    const gsp_entry *entry = &m->as.join.entry;
    uint32_t k = place_of(a, &m->from.key);
    if (!gsp_agree_is_member(a) || k == GSP_WAITING_MAX ||
        (k < a->n_waiting && !newer(&a->waiting[k], m)))
        return;
    bool again = k < a->n_waiting && memcmp(&a->waiting[k].entry, entry, sizeof *entry) == 0;
    if (!again && gsp_entry_wrong(a, &m->from, entry))
        return;
    if (k == a->n_waiting)
        a->n_waiting++;
    a->waiting[k] = (gsp_waiting){.who = m->from, .heard_ns = a->now_ns, .entry = *entry};
    tell_place(a, &m->from.key, k);
}

void gsp_people_leave(gsp_agree *a, const gsp_statement *s)
{
    uint32_t i = gsp_roster_find(gsp_agree_roster(a), &s->signer);
    if (i == GSP_NOBODY || i == a->self_i || (a->left >> i & 1) || s->kind != GSP_SAYS_LEAVE ||
        !gsp_hash_equal(&s->lineage, &a->lineage) || !gsp_statement_verify(&a->seals, s))
        return;
    a->left |= 1u << i;
    a->gone[i] = (gsp_exit){.first = *s};
    gsp_message *m = gsp_agree_compose(a, GSP_LEAVE, 0);
    m->version = 0;
    m->as.leave.statement = a->gone[i].first;
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
    if (gsp_agree_roster(a)->n > 1) {
        a->left |= 1u << a->self_i;
        a->gone[a->self_i] = (gsp_exit){.first = *s};
    }
}

static bool asks_for_a_place(const gsp_agree *a)
{
    return !a->leaving && !gsp_agree_is_member(a) && a->applied == a->certified &&
           !gsp_hash_none(&a->lineage);
}

static void say_join(gsp_agree *a, uint32_t member)
{
    const gsp_key *key = &gsp_agree_roster(a)->member[member].key;
    const gsp_peer *p = gsp_people_look(a, key);
    if (!p || !p->up)
        return;
    gsp_message *m = gsp_agree_compose(a, GSP_JOIN, 0);
    gsp_entry *entry = &m->as.join.entry;
    entry->wish = (gsp_statement){.kind = GSP_SAYS_JOIN,
                                  .lineage = a->lineage,
                                  .version = a->certified,
                                  .subject = a->previous,
                                  .signer = a->self};
    gsp_statement_seal(&a->seals, &entry->wish);
    if (a->rules.shows)
        a->rules.shows(a->rules.context, &entry->shown);
    m->as.join.rates = a->rates;
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
    p->rates = h->rates;
    p->rests = h->health == GSP_HEALTH_RESTING;
    if (h->health == GSP_HEALTH_LEAVING) /* a joiner that leaves again: do not let it in */
        for (uint32_t k = a->n_waiting; k-- > 0;)
            if (gsp_key_compare(&a->waiting[k].who.key, &m->from.key) == 0)
                forget_waiting(a, k);
    gsp_follow_heard(a, p);
    if (gsp_hash_equal(&m->lineage, &a->lineage) && m->version > a->certified)
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
                                      .samples = a->samples,
                                      .tokens_live = a->tokens_live,
                                      .rates = a->rates,
                                      .health = a->leaving ? GSP_HEALTH_LEAVING
                                                : a->rests ? GSP_HEALTH_RESTING
                                                           : 0};
    gsp_agree_say(a, GSP_TO_ALL, m);
    if (gsp_hash_none(&a->lineage))
        return;
    if (a->leaving && gsp_agree_is_member(a))
        say_leave(a);
    else if (asks_for_a_place(a))
        say_join_in_turn(a);
}

void gsp_people_tick(gsp_agree *a)
{
    for (uint32_t k = a->n_waiting; k-- > 0;)
        if (a->now_ns - a->waiting[k].heard_ns > 2 * a->rules.dead_ns ||
            gsp_roster_find(gsp_agree_roster(a), &a->waiting[k].who) != GSP_NOBODY)
            forget_waiting(a, k);
}
