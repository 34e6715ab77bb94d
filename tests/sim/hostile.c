/*
 * Owns what hostile members say. Its one idea: a hostile member is an honest one whose mouth is
 * somebody else's; it can sign only as itself. It refuses nothing.
 */
#include "tests/sim/sim.h"

#include "gossip/agree/agree_inner.h"

#include <stdlib.h>
#include <string.h>

static void reseal(sim_host *h, gsp_message *m)
{
    gsp_seals seals = sim_seals(h);
    gsp_propose *p = &m->as.propose;
    gsp_proposal_hash(&seals, &p->proposal, &p->statement.subject);
    gsp_statement_seal(&seals, &p->statement);
}

/* Weights and totals as the rules want them: a lie that adds up. */
static void add_up(const sim_host *h, gsp_proposal *p)
{
    uint32_t anywhere = 0;
    gsp_proposal_weigh(&h->agree.rules, &h->agree.certificate.proposal, p->contributor,
                       p->n_contributors);
    p->tokens = h->agree.certificate.proposal.tokens;
    p->samples = h->agree.certificate.proposal.samples;
    for (uint32_t k = 0; k < p->n_parts; k++) {
        p->part[k].weight =
            gsp_included_weight(p->contributor, p->n_contributors, p->part[k].included);
        anywhere |= p->part[k].included;
    }
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const gsp_contributor *c = &p->contributor[i];
        p->tokens += anywhere >> i & 1 ? c->weight : 0;
        p->samples += !(anywhere >> i & 1) ? 0 : c->samples < c->weight ? c->samples : c->weight;
    }
}

/* What somebody brought to an earlier version of this fragment, or more than it brought. */
static void lie_contribution(sim_world *w, sim_host *h, uint64_t *r, gsp_proposal *p)
{
    const gsp_certificate *c = NULL;
    gsp_contributor *it = &p->contributor[sim_below(r, p->n_contributors)];
    bool old = sim_chance(r, 0.5);
    if (p->n_contributors == 0)
        return;
    if (p->version > SIM_FRAGMENTS)
        c = sim_check_certificate(w, &p->lineage, p->version - SIM_FRAGMENTS);
    if (!old) {
        it->tokens += it->tokens / 2 + 1;
        it->samples += it->samples / 2 + 1;
    }
    for (uint32_t j = 0; old && c && j < c->proposal.n_contributors; j++) {
        const gsp_contributor *before = &c->proposal.contributor[j];
        const sim_span *a = sim_check_span(w, &it->root), *b = sim_check_span(w, &before->root);
        if (a && b && a->host == b->host) {
            it->root = before->root;
            it->tokens = before->tokens;
            it->samples = before->samples;
            break;
        }
    }
    add_up(h, p);
}

static void lie_proposal(sim_world *w, sim_host *h, uint64_t *r, gsp_proposal *p)
{
    switch (sim_below(r, 9)) {
    case 8: /* what its owner never said */
        p->part[0].norm += gsp_hash_none(&p->part[0].hash) ? 0 : 1;
        break;
    case 0:
        p->tokens += 1000000;
        break;
    case 1:
        if (p->n_contributors)
            p->contributor[0].weight += 5;
        break;
    case 2:
        if (p->next.n > 1)
            p->next.n--;
        break;
    case 3:
        p->part[0].weight++;
        break;
    case 4:
        if (p->version % 2)
            p->missed[0] = 3;
        else
            p->against[0]++;
        break;
    case 5:
    case 6:
        lie_contribution(w, h, r, p);
        break;
    default:
        for (uint32_t i = 0; i < p->n_contributors; i++)
            if (p->contributor[i].member == h->agree.self_i)
                p->contributor[i].tokens *= 2;
    }
}

/* A refusal without a reason, a ballot that leaves no room for others. */
static void overreach(sim_world *w, const sim_host *h, gsp_message *m)
{
    if (m->kind == GSP_PREPARE) {
        uint32_t n = gsp_agree_roster(&h->agree)->n; /* its turn, all the same */
        m->ballot = UINT32_MAX - (UINT32_MAX - m->ballot) % (n ? n : 1);
        return;
    }
    m->kind = GSP_REFUSE;
    m->as.refuse.promised = m->ballot + 1 + (uint32_t)sim_below(&w->random, 20);
}

/* Somebody brings more than it said, with weights by the rule: only the promises tell. Or with a
 * weight that is not by the rule. The same to all. */
static bool lie_begin(sim_world *w, sim_host *h, gsp_message *m)
{
    uint64_t r = w->fault_random ^ m->version << 20 ^ (uint64_t)m->ballot << 8 ^ h->index;
    gsp_begin *b = &m->as.begin;
    if (b->n_contributors == 0 || !sim_chance(&r, 0.3) ||
        (h->begun_ballot == m->ballot &&
         h->begun_version == m->version)) /* it believes it by now */
        return false;
    gsp_contributor *it = &b->contributor[sim_below(&r, b->n_contributors)];
    if (sim_chance(&r, 0.3)) {
        it->weight *= 3;
        return true;
    }
    it->tokens += it->tokens / 2 + 1;
    it->samples += it->samples / 2 + 1;
    gsp_proposal_weigh(&h->agree.rules, &h->agree.certificate.proposal, b->contributor,
                       b->n_contributors);
    h->begun = *b;
    h->begun_ballot = m->ballot;
    h->begun_version = m->version;
    return true;
}

void sim_hostile_mind(sim_host *h)
{
    gsp_round *round = &h->agree.round;
    gsp_seals seals = sim_seals(h);
    if (h->begun_ballot == 0 || round->ballot != h->begun_ballot ||
        round->version != h->begun_version)
        return;
    memcpy(round->begin.contributor, h->begun.contributor, sizeof h->begun.contributor);
    round->begin.n_contributors = h->begun.n_contributors;
    gsp_contributors_hash(&seals, h->begun.contributor, h->begun.n_contributors,
                          &round->contributors);
}

static bool lie(sim_world *w, sim_host *h, gsp_message *m)
{
    gsp_seals seals = sim_seals(h);
    if (m->kind == GSP_PROPOSE || m->kind == GSP_VOTE) { /* the same lie to all */
        uint64_t r = w->fault_random ^ m->version << 20 ^ (uint64_t)m->ballot << 8 ^ h->index;
        if (!sim_chance(&r, 0.5))
            return false;
        if (m->kind == GSP_PROPOSE) {
            lie_proposal(w, h, &r, &m->as.propose.proposal);
            reseal(h, m);
        } else {
            m->as.vote.statement.seal[0] ^= 1; /* a vote for two things is more than is promised */
        }
        return true;
    }
    if (m->kind == GSP_BEGIN)
        return m->as.begin.attempt == 0 && lie_begin(w, h, m);
    if (!sim_chance(&w->random, 0.3))
        return false;
    if (m->kind == GSP_PROMISE || m->kind == GSP_PREPARE) {
        overreach(w, h, m);
        return true;
    }
    if (m->kind == GSP_REDUCED) {
        m->as.reduced.part.weight += 7;
        gsp_part_hash(&seals, m->as.reduced.statement.item, &m->as.reduced.part,
                      &m->as.reduced.statement.subject);
        gsp_statement_seal(&seals, &m->as.reduced.statement);
        return true;
    }
    if (m->kind == GSP_HEARTBEAT) {
        m->as.heartbeat.tokens = UINT64_MAX / 3;
        m->as.heartbeat.applied += 100;
        m->as.heartbeat.samples = UINT64_MAX / 3;
        return true;
    }
    return false;
}

static bool equivocate(sim_world *w, sim_host *h, uint32_t to, gsp_message *m)
{
    gsp_seals seals = sim_seals(h);
    if (m->kind == GSP_VOTE && sim_chance(&w->random, 0.3)) {
        sim_message(w, h->index, to, m);
        m->as.vote.statement.subject.byte[3] ^= 1;
        gsp_statement_seal(&seals, &m->as.vote.statement);
        return true;
    }
    if (m->kind == GSP_PROPOSE && (to & 1)) {
        m->as.propose.proposal.part[0].norm += 1;
        if (gsp_hash_none(&m->as.propose.proposal.part[0].hash))
            return false;
        reseal(h, m);
        return true;
    }
    return false;
}

/* A vote for what nobody proposed, in a ballot of somebody else: nothing happens in it, so that
 * every other rule holds. The echoes that show it are its own alone, or signed by it for
 * everybody. */
static bool claim(sim_world *w, sim_host *h, gsp_message *m)
{
    gsp_seals seals = sim_seals(h);
    gsp_promise *p = &m->as.promise;
    const gsp_agree *a = &h->agree;
    if (m->kind != GSP_PROMISE || m->ballot < 2 || a->record.version != a->certified + 1 ||
        !sim_chance(&w->random, 0.7))
        return false;
    bool seen = a->has_pending && a->pending.ballot < m->ballot;
    const gsp_propose *old = &a->pending.as.propose;
    p->statement.voted = seen ? a->pending.ballot : m->ballot - 1;
    uint32_t proposer = gsp_view_proposer(a, p->statement.voted);
    if (proposer >= gsp_agree_roster(a)->n || proposer == a->self_i)
        return false; /* it may propose what it likes, and then that was proposed */
    p->has_proposal = true;
    p->proposal = (gsp_proposal){.lineage = a->lineage,
                                 .version = a->certified + 1,
                                 .previous = a->previous,
                                 .tokens = a->certificate.proposal.tokens,
                                 .samples = a->certificate.proposal.samples,
                                 .n_parts = a->rules.n_parts};
    uint32_t promised = 0;
    for (uint32_t i = 0; seen && i < old->n_promises; i++)
        promised |= 1u << gsp_roster_find(gsp_agree_roster(a), &old->promise[i].signer);
    gsp_rules_next(a, seen ? promised : UINT32_MAX, 0, &p->proposal);
    gsp_proposal_hash(&seals, &p->proposal, &p->statement.subject);
    memset(&p->proof, 0, sizeof p->proof);
    bool alone = sim_chance(&w->random, 0.5);
    p->proof.n = alone ? 1 : sim_chance(&w->random, 0.9) ? gsp_agree_roster(a)->n : 0;
    for (uint32_t i = 0; i < p->proof.n; i++) {
        p->proof.echo[i] =
            (gsp_statement){.kind = GSP_SAYS_ECHO,
                            .lineage = a->lineage,
                            .version = m->version,
                            .ballot = p->statement.voted,
                            .subject = p->statement.subject,
                            .signer = alone ? h->self : gsp_agree_roster(a)->member[i]};
        gsp_statement_seal(&seals, &p->proof.echo[i]);
    }
    gsp_statement_seal(&seals, &p->statement);
    return true;
}

/* A reset of its own: with the owner's order for an earlier one where there was one, else with an
 * order that it signs itself. */
static void forge_reset(sim_host *h)
{
    const gsp_agree *a = &h->agree;
    gsp_seals seals = sim_seals(h);
    gsp_hash id;
    gsp_genesis *g = &h->forged;
    if (g->generation || gsp_hash_none(&a->lineage) || a->applied < a->certified)
        return;
    *g = (gsp_genesis){.pool = a->genesis.pool,
                       .reset = a->genesis.reset + 1,
                       .generation = a->genesis.generation + 1,
                       .parent = a->lineage,
                       .version = a->applied,
                       .previous = a->previous,
                       .tokens = a->certificate.proposal.tokens,
                       .samples = a->certificate.proposal.samples,
                       .founder = h->self,
                       .order = a->genesis.order};
    if (a->genesis.reset == 0)
        gsp_order_seal(&seals, g);
    gsp_genesis_hash(&seals, g, &id);
    seals.seal(seals.context, id.byte, sizeof id.byte, g->seal);
}

bool sim_hostile_state(sim_world *w, sim_host *h, gsp_saved *saved)
{
    (void)w;
    if (h->hostility == SIM_TAKES_OVER && h->lie.n) {
        *saved = h->lie_saved;
        return true;
    }
    if (h->hostility != SIM_ORDERS || h->forged.generation == 0)
        return false;
    saved->genesis = h->forged;
    saved->has_certificate = false;
    memset(&saved->certificate, 0, sizeof saved->certificate);
    return true;
}

/* Its heartbeats are those of the lineage that it made up. */
static bool order_reset(sim_world *w, sim_host *h, gsp_message *m)
{
    gsp_seals seals = sim_seals(h);
    if (m->kind != GSP_HEARTBEAT || !sim_chance(&w->random, 0.2))
        return false;
    forge_reset(h);
    if (h->forged.generation == 0)
        return false;
    gsp_genesis_hash(&seals, &h->forged, &m->lineage);
    m->version = m->as.heartbeat.applied = h->forged.version;
    return true;
}

bool sim_hostile_send(sim_world *w, sim_host *h, uint32_t to, const gsp_message *message)
{
    gsp_message *m = malloc(sizeof *m);
    if (!m)
        abort();
    memcpy(m, message, gsp_message_bytes(message->kind));
    bool changed = false;
    if (h->hostility == SIM_LIES)
        changed = lie(w, h, m);
    else if (h->hostility == SIM_EQUIVOCATES)
        changed = w->rules.trust == GSP_STRANGERS ? sim_rules_equivocate(w, h, to, m)
                                                  : equivocate(w, h, to, m);
    else if (h->hostility == SIM_CLAIMS)
        changed = claim(w, h, m);
    else if (h->hostility == SIM_DEFAMES)
        changed = sim_hostile_defame(w, h, m);
    else if (h->hostility >= SIM_INVENTS && h->hostility <= SIM_INFLATES)
        changed = sim_rules_send(w, h, to, m);
    else if (h->hostility == SIM_TAKES_OVER)
        changed = w->host[to]->has_disk && sim_state_send(w, h, m);
    else if (h->hostility == SIM_ORDERS && order_reset(w, h, m)) {
        sim_message(w, h->index, to, m); /* counted where somebody asks for that state */
        free(m);
        return true;
    }
    if (changed) {
        static const sim_injected what[SIM_HOSTILITY_N] = {
            [SIM_LIES] = SIM_LIED,           [SIM_EQUIVOCATES] = SIM_EQUIVOCATED,
            [SIM_TAKES_OVER] = SIM_TAKEN,    [SIM_CLAIMS] = SIM_CLAIMED,
            [SIM_INVENTS] = SIM_INVENTED,    [SIM_OMITS] = SIM_OMITTED,
            [SIM_PARTIAL] = SIM_PARTIAL_SUM, [SIM_INFLATES] = SIM_INFLATED,
            [SIM_DEFAMES] = SIM_DEFAMED};
        w->out->injected[what[h->hostility]]++;
        sim_message(w, h->index, to, m);
    }
    free(m);
    return changed;
}

static void flood(sim_world *w, sim_host *h)
{
    uint32_t to = (uint32_t)sim_below(&w->random, w->n_hosts);
    gsp_message m = {.kind = sim_chance(&w->random, 0.7) ? GSP_ASK : GSP_JOIN,
                     .from = h->self,
                     .lineage = h->agree.lineage,
                     .version = h->agree.certified};
    m.as.ask.version = h->agree.certified;
    if (to == h->index || w->calm)
        return;
    if (m.kind == GSP_JOIN)
        m.from.incarnation += 1000;
    w->out->injected[SIM_FLOODED]++;
    for (uint32_t k = 0; k < 500; k++)
        sim_message(w, h->index, to, &m);
}

/* Every version anew, each part alone, the same in every ballot: one value off, another part's
 * result, that of an earlier version, or a word against somebody. */
bool sim_hostile_part(sim_world *w, sim_host *h, const gsp_begin *begin, uint32_t number,
                      gsp_part *part)
{
    uint64_t r = w->fault_random ^ (h->agree.certified << 24 | number << 8 | h->index);
    uint32_t included = part->included;
    if (!sim_chance(&r, 0.7))
        return false;
    switch (sim_below(&r, 4)) {
    case 0:
        part->hash.byte[7] ^= 1;
        break;
    case 1:
    case 2: {
        uint64_t version = h->agree.certified + 1, back = sim_below(&r, 2);
        sim_made(&h->agree.lineage, version - (version > back ? back : 0),
                 back ? number : number + 1, begin->contributor, begin->n_contributors, included,
                 part);
        part->norm = (float)sim_below(&r, 9);
        break;
    }
    default:
        for (uint32_t i = 0; i < begin->n_contributors; i++)
            part->lean[i] = included >> i & 1 ? -100 : 0;
    }
    return true;
}

/* Of somebody honest: what it said, what it did not say, or what it said and never signed. */
static void accuse(sim_world *w, sim_host *h)
{
    gsp_message m = {.kind = GSP_ACCUSE, .from = h->self, .lineage = h->agree.lineage};
    const gsp_agree *a = &h->agree;
    gsp_claim *c = &m.as.accuse.claim;
    if (a->certificate.proposal.n_parts == 0 || a->audits.version != a->certified ||
        !gsp_claim_of(&a->certificate, &a->audits.roster,
                      (uint32_t)sim_below(&w->random, a->certificate.proposal.n_parts), c))
        return;
    switch (sim_below(&w->random, 4)) {
    case 0:
        break;
    case 1:
        c->part.hash.byte[3] ^= 1;
        break;
    case 2:
        c->contributor[0].root.byte[5] ^= 1;
        break;
    default:
        c->owner = w->host[sim_below(&w->random, w->n_hosts)]->self;
    }
    w->out->injected[SIM_ACCUSED]++;
    for (uint32_t to = 0; to < w->n_hosts; to++)
        if (to != h->index)
            sim_message(w, h->index, to, &m);
}

void sim_hostile_tick(sim_world *w, sim_host *h)
{
    sim_hostile_audit_tick(w, h);
    if (h->hostility == SIM_FLOODS && sim_chance(&w->random, 0.2))
        flood(w, h);
    if (h->hostility == SIM_ACCUSES && sim_chance(&w->random, 0.3))
        accuse(w, h);
    for (uint32_t k = 0; h->hostility == SIM_REPLAYS_OLD && k < 4; k++) {
        const gsp_message *old = h->old[sim_below(&w->random, SIM_REPLAYS)];
        uint32_t to = (uint32_t)sim_below(&w->random, w->n_hosts);
        if (!old || to == h->index)
            continue;
        gsp_message *m = malloc(sizeof *m);
        if (!m)
            abort();
        memcpy(m, old, gsp_message_bytes(old->kind));
        m->from = h->self; /* the link says who it is */
        w->out->injected[SIM_REPLAYED]++;
        sim_message(w, h->index, to, m);
        free(m);
    }
}
