/*
 * Owns what hostile members say. Its one idea: a hostile member is an honest one whose mouth is
 * somebody else's; it can sign only as itself. It refuses nothing.
 */
#include "tests/sim/sim.h"

#include "gossip/agree_inner.h"

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
    gsp_rules_weigh(&h->agree, p->contributor, p->n_contributors);
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
    if (!old)
        it->tokens += it->tokens / 2 + 1;
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
    switch (sim_below(r, 8)) {
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
    if (!sim_chance(&w->random, 0.3))
        return false;
    if (m->kind == GSP_PROMISE || m->kind == GSP_PREPARE) {
        overreach(w, h, m);
        return true;
    }
    if (m->kind == GSP_BEGIN && m->as.begin.n_contributors) {
        m->as.begin.contributor[0].weight *= 3;
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
        changed = equivocate(w, h, to, m);
    if (changed) {
        w->out->injected[h->hostility == SIM_LIES ? SIM_LIED : SIM_EQUIVOCATED]++;
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

void sim_hostile_tick(sim_world *w, sim_host *h)
{
    if (h->hostility == SIM_FLOODS && sim_chance(&w->random, 0.2))
        flood(w, h);
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
