/*
 * Owns hostile members that break the rules of proposals: who comes and goes, who contributes, what
 * a part is the sum of, how much anybody brings, and one proposal in a ballot. Its one idea: such a
 * liar makes everything else about its lie right, so that the one check is all that stands against
 * it. It refuses to sign for anybody but itself and the members that it invented.
 */
#include "tests/sim/sim.h"

#include "gossip/agree/agree_inner.h"

#include <string.h>

/* ---- admissions ---- */

/* What the owner would have signed for a key. */
static void admission(const gsp_key *key, gsp_shown *out)
{
    gsp_hash hash;
    uint8_t text[8 + GSP_KEY_BYTES] = "admitted";
    memcpy(text + 8, key->byte, sizeof key->byte);
    sim_hash(NULL, text, sizeof text, &hash);
    memset(out, 0, sizeof *out);
    out->bytes = sizeof hash.byte;
    memcpy(out->data, hash.byte, sizeof hash.byte);
}

bool sim_admits(void *context, const gsp_key *key, const gsp_shown *shown, uint64_t now_ns)
{
    gsp_shown right;
    (void)context, (void)now_ns;
    admission(key, &right);
    return !shown || memcmp(&right, shown, sizeof right) == 0;
}

void sim_shows(void *context, gsp_shown *out)
{
    admission(&((const sim_host *)context)->self.key, out);
}

/* ---- who comes and goes ---- */

static void add_next(gsp_proposal *p, const gsp_member *who)
{
    uint32_t at = p->next.n++;
    for (; at > 0 && gsp_key_compare(&p->next.member[at - 1].key, &who->key) > 0; at--) {
        p->next.member[at] = p->next.member[at - 1];
        p->missed[at] = p->missed[at - 1];
        p->against[at] = p->against[at - 1];
    }
    p->next.member[at] = *who;
    p->missed[at] = p->against[at] = 0;
}

/* An entry where it belongs: ascending by key. */
static void add_entry(gsp_changes *c, const gsp_entry *entry)
{
    uint32_t at = c->n_entries++;
    for (;
         at > 0 && gsp_key_compare(&c->entry[at - 1].wish.signer.key, &entry->wish.signer.key) > 0;
         at--)
        c->entry[at] = c->entry[at - 1];
    c->entry[at] = *entry;
}

/* Signed by the liar with a key that it made up; of somebody else's key it is a forgery. */
static gsp_entry wish_of(sim_host *h, const gsp_member *who, bool own_key)
{
    sim_host as = {.self = *who};
    gsp_seals seals = sim_seals(own_key ? &as : h);
    gsp_entry entry = {.wish = {.kind = GSP_SAYS_JOIN,
                                .lineage = h->agree.lineage,
                                .version = h->agree.certified,
                                .subject = h->agree.previous,
                                .signer = *who}};
    gsp_statement_seal(&seals, &entry.wish);
    sim_shows(h, &entry.shown); /* the liar's own admission is all that it has */
    return entry;
}

static bool invent(sim_world *w, sim_host *h, uint64_t *r, gsp_propose *p)
{
    const gsp_roster *now = gsp_agree_roster(&h->agree);
    gsp_proposal *q = &p->proposal;
    gsp_changes *c = &p->proof.changes;
    gsp_member who = {.incarnation = 1};
    uint32_t i = (uint32_t)sim_below(r, q->next.n);
    if (q->next.n == 0 || q->next.n >= GSP_MEMBERS_MAX || c->n_entries >= GSP_MEMBERS_MAX)
        return false;
    switch (sim_below(r, 4)) {
    case 0: /* a member that nobody admitted */
        sim_hash(NULL, r, sizeof *r, (gsp_hash *)&who.key);
        memset(who.key.byte + 8, 0xff, 4);
        gsp_entry invented = wish_of(h, &who, true);
        add_next(q, &who);
        add_entry(c, &invented);
        return true;
    case 1: /* a host that has not asked */
        who = w->host[sim_below(r, w->n_hosts)]->self;
        if (gsp_roster_find_key(&q->next, &who.key) != GSP_NOBODY ||
            gsp_roster_find_key(now, &who.key) != GSP_NOBODY)
            return false;
        gsp_entry forged = wish_of(h, &who, false);
        admission(&who.key, &forged.shown);
        add_next(q, &who);
        add_entry(c, &forged);
        return true;
    case 2: /* an incarnation that does not exist, in the place of a member */
        if (gsp_roster_find(now, &q->next.member[i]) == GSP_NOBODY)
            return false;
        q->next.member[i].incarnation += 3;
        q->missed[i] = 0;
        gsp_entry bumped = wish_of(h, &q->next.member[i], false);
        if (sim_chance(r, 0.5))
            add_entry(c, &bumped);
        return true;
    default: /* a goodbye that nobody said */
        if (q->next.n < 2 || c->n_exits >= GSP_MEMBERS_MAX ||
            gsp_roster_find(now, &q->next.member[i]) == GSP_NOBODY)
            return false;
        gsp_seals seals = sim_seals(h);
        gsp_exit *exit = &c->exit[c->n_exits++];
        memset(exit, 0, sizeof *exit);
        exit->first = (gsp_statement){
            .kind = GSP_SAYS_LEAVE, .lineage = h->agree.lineage, .signer = q->next.member[i]};
        gsp_statement_seal(&seals, &exit->first);
        for (uint32_t k = i; k + 1 < q->next.n; k++) {
            q->next.member[k] = q->next.member[k + 1];
            q->missed[k] = q->missed[k + 1];
            q->against[k] = q->against[k + 1];
        }
        q->next.n--;
        memset(&q->next.member[q->next.n], 0, sizeof q->next.member[0]);
        q->missed[q->next.n] = q->against[q->next.n] = 0;
        return true;
    }
}

/* ---- contributors and parts ---- */

static void reseal(sim_host *h, gsp_propose *p)
{
    gsp_seals seals = sim_seals(h);
    gsp_proposal_hash(&seals, &p->proposal, &p->statement.subject);
    gsp_statement_seal(&seals, &p->statement);
}

static void total(const sim_host *h, gsp_proposal *p)
{
    const gsp_proposal *before = &h->agree.certificate.proposal;
    gsp_proposal_totals(&h->agree.rules, before, p, &p->tokens, &p->samples);
    for (uint32_t i = 0; i < p->next.n; i++)
        p->against[i] = gsp_proposal_against(&h->agree.rules, before, p, &p->next.member[i].key);
}

/* Leaves somebody out of BEGIN; what follows is made of the others, and adds up. */
static bool omit(sim_world *w, sim_host *h, gsp_message *m)
{
    gsp_begin *b = &m->as.begin;
    uint64_t r = w->fault_random ^ m->version << 20 ^ (uint64_t)m->ballot << 8 ^ h->index;
    if (b->attempt != 0 || b->n_contributors < 2 || !sim_chance(&r, 0.6) ||
        (h->begun_ballot == m->ballot && h->begun_version == m->version))
        return false;
    uint32_t who = (uint32_t)sim_below(&r, b->n_contributors);
    if (b->contributor[who].member == h->agree.self_i)
        return false;
    b->n_contributors--;
    memmove(&b->contributor[who], &b->contributor[who + 1],
            (b->n_contributors - who) * sizeof b->contributor[0]);
    memset(&b->contributor[b->n_contributors], 0, sizeof b->contributor[0]);
    gsp_proposal_weigh(&h->agree.rules, &h->agree.certificate.proposal, b->contributor,
                       b->n_contributors);
    h->begun = *b;
    h->begun_ballot = m->ballot;
    h->begun_version = m->version;
    return true;
}

uint32_t sim_rules_included(sim_world *w, const sim_host *h, uint32_t included)
{
    if (h->hostility != SIM_PARTIAL || !sim_chance(&w->random, 0.5))
        return included;
    return included & -included;
}

/* The parts that the proposer owns are sums of one contribution, and it has signed that. */
static bool partial(sim_host *h, gsp_propose *p)
{
    gsp_proposal *q = &p->proposal;
    gsp_seals seals = sim_seals(h);
    gsp_hash contributors;
    bool any = false;
    gsp_contributors_hash(&seals, q->contributor, q->n_contributors, &contributors);
    for (uint32_t k = 0; k < q->n_parts; k++) {
        gsp_part *part = &q->part[k];
        gsp_statement said;
        if (!part->included || part->owner != h->agree.self_i || q->n_contributors < 2)
            continue;
        sim_made(&q->lineage, q->version, k, q->contributor, q->n_contributors,
                 part->included & -part->included, part);
        if (part->weight == 0) { /* muted; nothing is left */
            memset(part, 0, sizeof *part);
            continue;
        }
        part->owner = (uint8_t)h->agree.self_i;
        gsp_reduced_statement(&seals, &q->lineage, q->version, k, part, &contributors, &h->self,
                              &said);
        gsp_statement_seal(&seals, &said);
        memcpy(part->seal, said.seal, sizeof said.seal);
        sim_host_hold(h, sim_short(&part->hash), q->version);
        any = true;
    }
    total(h, q);
    return any;
}

/* ---- how much ---- */

static bool inflate(sim_world *w, sim_host *h, gsp_message *m)
{
    gsp_promise *p = &m->as.promise;
    gsp_seals seals = sim_seals(h);
    if (gsp_hash_none(&p->contribution.root))
        return false;
    /* The same in every ballot: it is frozen. */
    uint64_t r = w->fault_random ^ m->version << 20 ^ h->index;
    switch (sim_below(&r, 3)) {
    case 0:
        p->contribution.tokens = p->contribution.samples * w->rules.tokens_per_sample + 1;
        break;
    case 1:
        p->contribution.samples = w->rules.samples_max + 1;
        break;
    default: /* within bounds, so it counts; as two of the others do */
        p->contribution.samples = w->rules.samples_max;
        p->contribution.tokens = w->rules.samples_max * w->rules.tokens_per_sample;
    }
    gsp_contribution_hash(&seals, &p->contribution, &p->statement.root);
    gsp_statement_seal(&seals, &p->statement);
    return true;
}

/* ---- one proposal in a ballot ---- */

static bool of_twin(const sim_world *w, const gsp_statement *s)
{
    return w->twin.version == s->version && w->twin.ballot == s->ballot &&
           gsp_hash_equal(&w->twin.lineage, &s->lineage) &&
           (gsp_hash_equal(&w->twin.one, &s->subject) ||
            gsp_hash_equal(&w->twin.other, &s->subject));
}

/* Which of the two a host gets: after a restart the other one. */
static bool gets_other(const sim_world *w, uint32_t to)
{
    return (to ^ w->host[to]->boot) & 1;
}

bool sim_rules_equivocate(sim_world *w, sim_host *h, uint32_t to, gsp_message *m)
{
    gsp_seals seals = sim_seals(h);
    if (m->kind == GSP_ECHO || m->kind == GSP_VOTE) {
        gsp_statement *s = &m->as.vote.statement;
        if (!of_twin(w, s))
            return false;
        s->subject = gets_other(w, to) ? w->twin.other : w->twin.one;
        gsp_statement_seal(&seals, s);
        return true;
    }
    if (m->kind != GSP_PROPOSE || m->as.propose.proof.n)
        return false;
    gsp_propose *p = &m->as.propose;
    uint32_t k = 0;
    while (k < p->proposal.n_parts && gsp_hash_none(&p->proposal.part[k].hash))
        k++;
    if (k == p->proposal.n_parts)
        return false;
    gsp_hash one = p->statement.subject;
    memset(&p->proposal.part[k], 0, sizeof p->proposal.part[k]); /* unchanged: as right as before */
    total(h, &p->proposal);
    reseal(h, p);
    w->twin.version = m->version;
    w->twin.ballot = m->ballot;
    w->twin.lineage = m->lineage;
    w->twin.one = one;
    w->twin.other = p->statement.subject;
    sim_check_heard(w, m);
    return gets_other(w, to);
}

bool sim_rules_send(sim_world *w, sim_host *h, uint32_t to, gsp_message *m)
{
    (void)to;
    uint64_t r = w->fault_random ^ m->version << 20 ^ (uint64_t)m->ballot << 8 ^ h->index;
    bool fresh = m->kind == GSP_PROPOSE && m->as.propose.proof.n == 0;
    bool lies = false;
    if (h->hostility == SIM_INVENTS && fresh && sim_chance(&r, 0.7))
        lies = invent(w, h, &r, &m->as.propose);
    else if (h->hostility == SIM_PARTIAL && fresh && sim_chance(&r, 0.7))
        lies = partial(h, &m->as.propose);
    else if (h->hostility == SIM_OMITS && m->kind == GSP_BEGIN)
        return omit(w, h, m);
    else if (h->hostility == SIM_INFLATES && m->kind == GSP_PROMISE)
        return inflate(w, h, m);
    if (lies)
        reseal(h, &m->as.propose);
    return lies;
}
