/*
 * Owns the invariants of docs/design/pool.md#agreement. Its one idea: it sees every host, every
 * certificate and every word from outside, and computes again by its own code what must hold. It
 * refuses to trust what a machine says about itself.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum {
    SPANS_MAX = 1 << 14,
    CERTIFICATES_MAX = 1 << 12,
    SAID_MAX = 16,
    VOTES_MAX = 64,
    PROPOSED_MAX = 512,
    SEALED_MAX = 24,
    LIARS_CERTIFIED = 128,
    WAIT_VERSIONS = 80
};

typedef struct known {
    gsp_hash lineage;
    uint64_t version, hash, anchor;
    bool has_anchor;
    gsp_certificate *certificate;
} known;

/* What one incarnation has said in one version. */
typedef struct said {
    uint64_t lineage, version, incarnation, hash[VOTES_MAX];
    uint32_t promised, n_votes, ballot[VOTES_MAX], echoed;
    uint64_t echo;
} said;

typedef struct sim_check {
    sim_span *span; /* open addressing by root */
    known *known;
    uint32_t n_known;
    said said[SIM_HOSTS_MAX][SAID_MAX];
    uint32_t n_said[SIM_HOSTS_MAX];
    gsp_statement sealed[SIM_HOSTS_MAX][SEALED_MAX]; /* the newest, of every kind */
    uint32_t n_sealed[SIM_HOSTS_MAX];
    uint64_t proposed[PROPOSED_MAX]; /* the newest, for the first time and on no vote */
    bool whole[PROPOSED_MAX];        /* by promises that somebody was shown, nobody is left out */
    uint64_t n_proposed;
    known liars[LIARS_CERTIFIED]; /* the newest certificates at liars */
    uint32_t n_liars;
} sim_check;

void sim_check_open(sim_world *w)
{
    w->check = calloc(1, sizeof *w->check);
    if (!w->check)
        abort();
    w->check->span = calloc(SPANS_MAX, sizeof *w->check->span);
    w->check->known = calloc(CERTIFICATES_MAX, sizeof *w->check->known);
    if (!w->check->span || !w->check->known)
        abort();
}

void sim_check_close(sim_world *w)
{
    for (uint32_t k = 0; k < w->check->n_known; k++)
        free(w->check->known[k].certificate);
    free(w->check->span);
    free(w->check->known);
    free(w->check);
}

void sim_check_frozen(sim_world *w, uint32_t host, const gsp_contribution *c, uint64_t from,
                      uint64_t to)
{
    uint64_t root = sim_short(&c->root);
    uint32_t at = (uint32_t)(root % SPANS_MAX);
    for (uint32_t k = 0; k < SPANS_MAX && w->check->span[at].root; k++)
        at = (at + 1) % SPANS_MAX;
    w->check->span[at] =
        (sim_span){.root = root, .host = host, .from = from, .to = to, .at_ns = w->now_ns};
}

const sim_span *sim_check_span(const sim_world *w, const gsp_hash *hash)
{
    uint64_t root = sim_short(hash);
    uint32_t at = (uint32_t)(root % SPANS_MAX);
    for (uint32_t k = 0; k < SPANS_MAX && w->check->span[at].root; k++) {
        if (w->check->span[at].root == root)
            return &w->check->span[at];
        at = (at + 1) % SPANS_MAX;
    }
    return NULL;
}

static known *find(const sim_world *w, const gsp_hash *lineage, uint64_t version)
{
    for (uint32_t k = w->check->n_known; k-- > 0;)
        if (w->check->known[k].version == version &&
            gsp_hash_equal(&w->check->known[k].lineage, lineage))
            return &w->check->known[k];
    return NULL;
}

const gsp_certificate *sim_check_certificate(const sim_world *w, const gsp_hash *lineage,
                                             uint64_t version)
{
    const known *k = find(w, lineage, version);
    return k ? k->certificate : NULL;
}

/* I3: no token of a host counts twice for one fragment of one lineage. */
static void check_counted_once(sim_world *w, const gsp_proposal *p)
{
    uint32_t anywhere = 0;
    for (uint32_t k = 0; k < p->n_parts; k++)
        anywhere |= p->part[k].included;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const sim_span *mine = sim_check_span(w, &p->contributor[i].root);
        if (!mine || !(anywhere >> i & 1) || w->host[mine->host]->hostility != SIM_HONEST)
            continue;
        if (mine->to - mine->from != p->contributor[i].tokens)
            sim_violate(w, "I3", "version %llu counts other tokens than host %u froze",
                        (unsigned long long)p->version, mine->host);
        for (uint32_t j = 0; j < i; j++)
            if (gsp_hash_equal(&p->contributor[j].root, &p->contributor[i].root) ||
                p->contributor[j].member == p->contributor[i].member)
                sim_violate(w, "I3", "host %u twice in version %llu", mine->host,
                            (unsigned long long)p->version);
        for (uint32_t k = 0; k < w->check->n_known; k++) {
            const gsp_certificate *c = w->check->known[k].certificate;
            if (!c || c->proposal.version == p->version ||
                c->proposal.version % SIM_FRAGMENTS != p->version % SIM_FRAGMENTS ||
                !gsp_hash_equal(&c->proposal.lineage, &p->lineage))
                continue;
            uint32_t there = 0;
            for (uint32_t q = 0; q < c->proposal.n_parts; q++)
                there |= c->proposal.part[q].included;
            for (uint32_t j = 0; j < c->proposal.n_contributors; j++) {
                const sim_span *other = sim_check_span(w, &c->proposal.contributor[j].root);
                if (other && (there >> j & 1) && other->host == mine->host &&
                    other->from < mine->to && mine->from < other->to)
                    sim_violate(w, "I3", "versions %llu and %llu count the same tokens of host %u",
                                (unsigned long long)c->proposal.version,
                                (unsigned long long)p->version, mine->host);
            }
        }
    }
}

/* The pool is made to survive as many hostile members as are on this roster. */
static bool survivable(const sim_world *w, const gsp_roster *roster)
{
    uint32_t hostile = 0;
    for (uint32_t i = 0; roster && i < roster->n; i++)
        hostile += w->host[sim_host_of(w, &roster->member[i].key)]->hostility != SIM_HONEST;
    return roster && hostile <= gsp_liars_max(w->rules.trust, roster->n);
}

static void check_owners(sim_world *w, const gsp_proposal *p)
{
    const known *last = find(w, &p->lineage, p->version - 1);
    const gsp_roster *roster = last && last->certificate ? &last->certificate->proposal.next : NULL;
    uint64_t liars[(SIM_HOSTS_MAX + 63) / 64] = {0};
    for (uint32_t k = 0; roster && k < p->n_parts; k++) {
        gsp_part made;
        const gsp_part *part = &p->part[k];
        if (gsp_hash_none(&part->hash))
            continue;
        uint32_t i = sim_host_of(w, &roster->member[part->owner].key);
        sim_made(&p->lineage, p->version, k, p->contributor, p->n_contributors, part->included,
                 &made);
        bool same = gsp_hash_equal(&made.hash, &part->hash) && made.norm == part->norm &&
                    memcmp(made.lean, part->lean, sizeof made.lean) == 0;
        if (!same && w->host[i]->hostility == SIM_HONEST)
            sim_violate(w, "I9", "part %u of version %llu is false, and of honest host %u", k,
                        (unsigned long long)p->version, i);
        if (!same)
            liars[i / 64] |= 1ull << (i % 64);
    }
    for (uint32_t i = 0; i < w->n_hosts && survivable(w, roster); i++)
        if ((liars[i / 64] >> (i % 64) & 1) &&
            (w->calm || w->host[i]->hostility != SIM_WITHHOLDS) && ++w->host[i]->n_falsified > 10)
            sim_violate(w, "I10", "host %u lies about its parts in %u versions", i,
                        w->host[i]->n_falsified);
}

/* I9: nobody honest is off the roster as withholding, unless it lost its disk again and again. */
static void check_barred(sim_world *w, const gsp_proposal *p)
{
    enum { EXCUSES = 2 };
    for (uint32_t k = 0; k < p->n_barred; k++) {
        const sim_host *h = w->host[sim_host_of(w, &p->barred[k].key)];
        if (h->hostility == SIM_HONEST && h->n_lost <= EXCUSES)
            sim_violate(w, "I9", "version %llu keeps honest host %u out as withholding",
                        (unsigned long long)p->version, h->index);
    }
}

/* Its place in `proposed`, or PROPOSED_MAX. */
static uint64_t place_of(const sim_check *c, uint64_t hash)
{
    for (uint64_t k = 0; k < PROPOSED_MAX && k < c->n_proposed; k++)
        if (c->proposed[(c->n_proposed - 1 - k) % PROPOSED_MAX] == hash)
            return (c->n_proposed - 1 - k) % PROPOSED_MAX;
    return PROPOSED_MAX;
}

/* I12: what is proposed as new, by whomever; what is proposed again must have been that once. */
void sim_check_heard(sim_world *w, const gsp_message *m)
{
    sim_check *c = w->check;
    if (m->kind != GSP_PROPOSE || m->as.propose.proof.n)
        return;
    uint64_t hash = sim_short(&m->as.propose.statement.subject), at = place_of(c, hash);
    if (at == PROPOSED_MAX) {
        at = c->n_proposed++ % PROPOSED_MAX;
        c->proposed[at] = hash;
        c->whole[at] = false;
    }
    c->whole[at] = c->whole[at] || sim_check_whole(w, &m->as.propose);
}

/* I1: of those that are signed by as many as a certificate needs, wherever they are seen. More liars
 * on a roster than a pool survives make two: that ends the world, and no promise is broken. */
static void two_certificates(sim_world *w, const gsp_proposal *p, uint64_t one, uint64_t other,
                             uint32_t host)
{
    if (!sim_check_promised(w, p))
        w->out->beyond = true;
    else
        sim_violate(w, "I1", "two certificates of version %llu: %016llx and %016llx at host %u",
                    (unsigned long long)p->version, (unsigned long long)one,
                    (unsigned long long)other, host);
}

/* What a liar's own machine has certified is a certificate as well. */
static void liar_certified(sim_world *w, const gsp_proposal *p, uint64_t hash)
{
    const known *k = find(w, &p->lineage, p->version);
    if (k && k->hash != hash)
        two_certificates(w, p, k->hash, hash, 0);
    w->check->liars[w->check->n_liars++ % LIARS_CERTIFIED] =
        (known){.lineage = p->lineage, .version = p->version, .hash = hash};
}

/* I12, I16. Where liars alone are a quorum they certify without asking anybody (the lower key of two,
 * a member that went on alone), and no promise is broken. */
static void check_proposed(sim_world *w, const gsp_proposal *p, uint64_t hash, uint32_t host)
{
    uint64_t at = place_of(w->check, hash);
    if (at == PROPOSED_MAX && !sim_check_promised(w, p))
        w->out->beyond = true;
    else if (at == PROPOSED_MAX)
        sim_violate(w, "I12", "version %llu at host %u is what nobody proposed",
                    (unsigned long long)p->version, host);
    else if (!w->check->whole[at])
        sim_violate(w, "I16", "version %llu leaves out somebody who promised in time",
                    (unsigned long long)p->version);
}

/* Only of certificates whose votes are on disk: before that a crash unmakes them, and nobody has
 * seen them. */
void sim_check_certified(sim_world *w, uint32_t host, const gsp_certificate *c)
{
    const gsp_proposal *p = &c->proposal;
    gsp_hash id;
    if (c->n_votes == 0 || sim_check_is_lost(w, &p->lineage))
        return;
    gsp_seals seals = sim_seals(w->host[host]);
    gsp_proposal_hash(&seals, p, &id);
    uint64_t hash = sim_short(&id);
    if (w->host[host]->hostility != SIM_HONEST) {
        liar_certified(w, p, hash);
        return;
    }
    for (uint32_t k = 0; k < LIARS_CERTIFIED && k < w->check->n_liars; k++)
        if (w->check->liars[k].version == p->version && w->check->liars[k].hash != hash &&
            gsp_hash_equal(&w->check->liars[k].lineage, &p->lineage))
            two_certificates(w, p, w->check->liars[k].hash, hash, host);
    known *k = find(w, &p->lineage, p->version);
    if (k) {
        if (k->hash != hash)
            two_certificates(w, p, k->hash, hash, host);
        return;
    }
    sim_trace(w, "host %u has version %llu (%016llx) first, by %u votes of ballot %u, %u members",
              host, (unsigned long long)p->version, (unsigned long long)hash, c->n_votes, c->ballot,
              p->next.n);
    if (w->check->n_known == CERTIFICATES_MAX)
        return;
    w->out->versions++;
    sim_check_contents(w, p);
    check_counted_once(w, p);
    check_proposed(w, p, hash, host);
    check_owners(w, p);
    check_barred(w, p);
    k = &w->check->known[w->check->n_known++];
    *k = (known){.lineage = p->lineage, .version = p->version, .hash = hash};
    k->certificate = malloc(sizeof *k->certificate);
    if (!k->certificate)
        abort();
    *k->certificate = *c;
}

/* I2. c NULL: a lineage was founded, nothing to compare. */
void sim_check_applied(sim_world *w, uint32_t host, const gsp_certificate *c, uint64_t anchor)
{
    if (!c || w->host[host]->hostility != SIM_HONEST)
        return;
    known *k = find(w, &c->proposal.lineage, c->proposal.version);
    if (!k)
        return;
    if (k->has_anchor && k->anchor != anchor && !sim_check_promised(w, &c->proposal))
        w->out->beyond = true;
    else if (k->has_anchor && k->anchor != anchor)
        sim_violate(w, "I2", "host %u has another anchor of version %llu", host,
                    (unsigned long long)c->proposal.version);
    k->anchor = anchor;
    k->has_anchor = true;
}

static const gsp_statement *statement_of(const gsp_message *m)
{
    switch (m->kind) {
    case GSP_PROMISE:
        return &m->as.promise.statement;
    case GSP_REDUCED:
        return &m->as.reduced.statement;
    case GSP_PROPOSE:
        return &m->as.propose.statement;
    case GSP_ECHO:
    case GSP_VOTE:
        return &m->as.vote.statement;
    case GSP_JOIN:
        return &m->as.join.entry.wish;
    default:
        return NULL;
    }
}

/* I9: nothing that an honest member ever signed can be held against it. I11: nor does it send what
 * it did not sign: its words would be refused, and it would seem silent. */
static void check_sealed(sim_world *w, uint32_t host, const gsp_message *m)
{
    const gsp_statement *s = statement_of(m);
    sim_check *c = w->check;
    if (!s)
        return;
    gsp_seals seals = sim_seals(w->host[host]);
    if (!gsp_statement_verify(&seals, s))
        sim_violate(w, "I11", "host %u says what it did not seal: kind %u, version %llu, item %u",
                    host, s->kind, (unsigned long long)s->version, s->item);
    for (uint32_t k = 0; k < SEALED_MAX && k < c->n_sealed[host]; k++) {
        const gsp_statement *t = &c->sealed[host][k];
        if (memcmp(t, s, sizeof *s) == 0)
            return;
        if (gsp_statements_convict(&seals, s, t))
            sim_violate(w, "I9", "host %u signs what convicts it: kinds %u and %u, version %llu",
                        host, t->kind, s->kind, (unsigned long long)s->version);
    }
    c->sealed[host][c->n_sealed[host]++ % SEALED_MAX] = *s;
}

/* One echo in a ballot, and none below what was promised. */
static void check_echo(sim_world *w, uint32_t host, const gsp_statement *s, said *t)
{
    uint64_t subject = sim_short(&s->subject);
    if (s->ballot < t->promised && s->ballot > t->echoed)
        sim_violate(w, "I8", "host %u echoes in ballot %u, promised was %u", host, s->ballot,
                    t->promised);
    if (s->ballot == t->echoed && subject != t->echo)
        sim_violate(w, "I8", "host %u echoes twice in ballot %u of version %llu", host, s->ballot,
                    (unsigned long long)s->version);
    if (s->ballot > t->echoed) {
        t->echoed = s->ballot;
        t->echo = subject;
    }
}

/* I8: what one incarnation says must fit together, across restarts. */
static void check_said(sim_world *w, uint32_t host, const gsp_message *m)
{
    if (m->kind != GSP_ECHO && m->kind != GSP_VOTE && m->kind != GSP_PROMISE)
        return;
    const gsp_statement *s =
        m->kind == GSP_PROMISE ? &m->as.promise.statement : &m->as.vote.statement;
    uint64_t lineage = sim_short(&s->lineage), subject = sim_short(&s->subject);
    said *t = NULL;
    for (uint32_t k = 0; k < SAID_MAX && !t; k++) {
        said *x = &w->check->said[host][k];
        if (x->lineage == lineage && x->version == s->version &&
            x->incarnation == s->signer.incarnation)
            t = x;
    }
    if (!t) {
        t = &w->check->said[host][w->check->n_said[host]++ % SAID_MAX];
        *t =
            (said){.lineage = lineage, .version = s->version, .incarnation = s->signer.incarnation};
    }
    if (m->kind == GSP_ECHO) {
        check_echo(w, host, s, t);
        return;
    }
    for (uint32_t k = 0; k < t->n_votes; k++) {
        if (m->kind == GSP_VOTE && t->ballot[k] == s->ballot && t->hash[k] != subject)
            sim_violate(w, "I8", "host %u votes twice in ballot %u of version %llu", host,
                        s->ballot, (unsigned long long)s->version);
        if (m->kind == GSP_PROMISE && t->ballot[k] < s->ballot &&
            (s->voted < t->ballot[k] || (s->voted == t->ballot[k] && subject != t->hash[k])))
            sim_violate(w, "I8", "host %u denies its vote of ballot %u, version %llu", host,
                        t->ballot[k], (unsigned long long)s->version);
    }
    if (m->kind == GSP_PROMISE) {
        t->promised = s->ballot > t->promised ? s->ballot : t->promised;
    } else {
        bool again = false;
        for (uint32_t k = 0; k < t->n_votes; k++)
            again = again || t->ballot[k] == s->ballot;
        if (!again && s->ballot < t->promised)
            sim_violate(w, "I8", "host %u votes in ballot %u, promised was %u", host, s->ballot,
                        t->promised);
        if (!again && t->n_votes < VOTES_MAX) {
            t->ballot[t->n_votes] = s->ballot;
            t->hash[t->n_votes++] = subject;
        }
    }
}

void sim_check_said(sim_world *w, uint32_t host, const gsp_message *m)
{
    check_said(w, host, m);
    check_sealed(w, host, m);
}

/* I6, and nobody honest is banned. */
void sim_check_step(sim_world *w, uint32_t host)
{
    const sim_host *h = w->host[host];
    const gsp_agree *a = &h->agree;
    uint32_t peers = w->n_hosts;
    if (h->hostility != SIM_HONEST)
        return;
    if (host != 0 && a->genesis.reset > w->ordered) /* the owner's own is not durable yet */
        sim_violate(w, "I7", "host %u follows reset %u, and the owner's latest is %u", host,
                    a->genesis.reset, w->ordered);
    if (h->actions > 16 + 4 * peers + w->rules.n_parts * (peers + 4))
        sim_violate(w, "I6", "host %u does %u things at once", host, h->actions);
    if (a->n_waiting > GSP_WAITING_MAX)
        sim_violate(w, "I6", "the queue of host %u has %u", host, a->n_waiting);
    for (uint32_t k = 0; k < w->n_hosts && k < 12; k++)
        if (w->in_flight[host][k] > 250)
            sim_violate(w, "I6", "host %u has %u messages on their way to host %u", host,
                        w->in_flight[host][k], k);
    for (uint32_t k = 0; k < a->n_banned && k < GSP_BANNED_MAX; k++)
        if (w->host[sim_host_of(w, &a->banned[k])]->hostility == SIM_HONEST)
            sim_violate(w, "I9", "host %u bans honest host %u", host,
                        sim_host_of(w, &a->banned[k]));
}

static uint64_t fold(uint64_t x, uint64_t y)
{
    x = (x ^ y) * 0x9fb21c651e98df25u;
    return x ^ x >> 29;
}

/* What must not change when an old message comes again. Times and budgets are not in it. */
uint64_t sim_check_digest(const gsp_agree *a)
{
    uint64_t d = fold(sim_short(&a->lineage), a->certified);
    d = fold(fold(d, a->applied), sim_short(&a->previous));
    d = fold(fold(d, a->record.promised), a->record.voted);
    d = fold(fold(d, a->view), (uint64_t)a->phase);
    d = fold(fold(d, a->ballot), a->promised);
    d = fold(fold(d, a->left), a->n_banned);
    d = fold(fold(d, a->round.ballot), a->round.begin.attempt);
    d = fold(d, a->has_pending ? sim_short(&a->pending.as.propose.statement.subject) : 0);
    for (uint32_t k = 0; k < a->rules.n_parts; k++)
        d = fold(fold(d, a->round.arrived[k]), sim_short(&a->round.known[k].hash));
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
        d = fold(fold(d, a->vote[k].ballot), sim_short(&a->vote[k].subject));
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
        d = fold(fold(d, a->echo[k].ballot), sim_short(&a->echo[k].subject));
    for (uint32_t k = 0; k < a->n_waiting; k++)
        d = fold(fold(d, a->waiting[k].who.incarnation), a->waiting[k].entry.wish.version);
    for (uint32_t k = 0; k < GSP_PEERS_KNOWN_MAX; k++)
        d = fold(fold(d, a->peer[k].sequence), a->peer[k].certified);
    return d;
}

/* Everybody who is there follows one lineage, and it has moved on since calm came. */
bool sim_converged(const sim_world *w)
{
    const gsp_hash *lineage = NULL;
    uint64_t least = UINT64_MAX;
    uint32_t members = 0, there = 0, seats = GSP_MEMBERS_MAX;
    for (uint32_t i = 0; i < w->n_hosts; i++) {
        const sim_host *h = w->host[i];
        seats -= h->hostility != SIM_HONEST; /* it may hold one as long as it is not convicted */
        if (h->gone || h->hostility != SIM_HONEST)
            continue;
        if (!h->running)
            return false;
        if (!lineage)
            lineage = &h->agree.lineage;
        if (gsp_hash_none(&h->agree.lineage) || !gsp_hash_equal(lineage, &h->agree.lineage))
            return false;
        least = h->agree.applied < least ? h->agree.applied : least;
        members += gsp_agree_is_member(&h->agree);
        there++;
    }
    uint32_t wanted = there < seats ? there : seats;
    return there == 0 || (least >= w->goal_version && members >= wanted);
}

/* The newest version that is certified in the lineage. */
static uint64_t newest(const sim_world *w, const gsp_hash *lineage)
{
    uint64_t version = 0;
    for (uint32_t k = 0; k < w->check->n_known; k++)
        if (w->check->known[k].version > version &&
            gsp_hash_equal(&w->check->known[k].lineage, lineage))
            version = w->check->known[k].version;
    return version;
}

/* I13: who waits, answers and keeps up is let in within WAIT_VERSIONS certificates, where there is
 * a place, and by a roster with no more liars than a pool survives: others let in whom they like. In
 * calm; whom a fault left asking somebody who stopped has a while to ask again. */
void sim_check_waits(sim_world *w)
{
    uint64_t settled_ns = w->calm_ns + 5 * w->rules.dead_ns;
    for (uint32_t i = 0; i < w->n_hosts; i++) {
        sim_host *h = w->host[i];
        const gsp_agree *a = &h->agree;
        bool waits = h->running && h->hostility == SIM_HONEST && !gsp_agree_is_member(a) &&
                     !gsp_hash_none(&a->lineage) && gsp_agree_roster(a)->n < GSP_MEMBERS_MAX &&
                     survivable(w, gsp_agree_roster(a)) &&
                     (h->born_ns >= w->calm_ns || w->now_ns >= settled_ns);
        uint64_t now = waits ? newest(w, &a->lineage) : 0;
        now = waits && now < a->genesis.version ? a->genesis.version : now;
        if (!waits || h->waits_lineage != sim_short(&a->lineage)) {
            h->waits_lineage = waits ? sim_short(&a->lineage) : 0;
            h->waits_from = now;
        } else if (now - h->waits_from > WAIT_VERSIONS) {
            sim_violate(w, "I13", "host %u waits since version %llu, and now it is %llu", i,
                        (unsigned long long)h->waits_from, (unsigned long long)now);
        }
    }
}

/* The honest of this roster are no quorum: liars came first, and it moves only as they like. */
static bool blocked(const sim_world *w, const gsp_roster *roster)
{
    uint32_t honest = 0;
    for (uint32_t i = 0; i < roster->n; i++)
        if (w->host[sim_host_of(w, &roster->member[i].key)]->hostility == SIM_HONEST)
            honest |= 1u << i;
    return roster->n && !gsp_quorum(w->rules.trust, roster->n, honest);
}

void sim_check_end(sim_world *w)
{
    if (w->out->violated || w->out->beyond || sim_converged(w))
        return;
    for (uint32_t i = 0; i < w->n_hosts; i++) /* nobody promises to get out of there */
        if (sim_check_is_lost(w, &w->host[i]->agree.lineage) ||
            blocked(w, gsp_agree_roster(&w->host[i]->agree)))
            return;
    char state[160] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < w->n_hosts && n < sizeof state - 24; i++) {
        const gsp_agree *a = &w->host[i]->agree;
        if (w->host[i]->running && w->host[i]->hostility == SIM_HONEST)
            n += (size_t)snprintf(state + n, sizeof state - n, " %u:%llu%s%02x", i,
                                  (unsigned long long)a->applied,
                                  gsp_agree_is_member(a) ? "m" : "o", a->lineage.byte[0]);
    }
    sim_violate(w, "I5", "no agreement on version %llu in calm:%s",
                (unsigned long long)w->goal_version, state);
}
