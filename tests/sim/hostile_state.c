/*
 * Owns members that want to be followed: lineages that they make up, from now or from long ago, with
 * accomplices or with signatures that nobody gave, and certificates of the pool's own lineage far
 * ahead. Its one idea: whatever is claimed is claimed consistently, in heartbeats, chain and state.
 * It refuses nothing.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void must(atom_status st)
{
    if (st != ATOM_OK)
        abort();
}

/* Itself, those that lie with it, and sometimes somebody honest who never signed. */
static void accomplices(sim_world *w, const sim_host *h, bool honest_too, gsp_roster *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < w->n_hosts && out->n < GSP_MEMBERS_MAX; i++) {
        const sim_host *o = w->host[i];
        gsp_member who = o->self;
        bool with =
            o == h || o->hostility == SIM_TAKES_OVER || (honest_too && sim_chance(&w->random, 0.5));
        uint32_t at = out->n;
        if (!with)
            continue;
        who.incarnation++;
        for (; at > 0 && gsp_key_compare(&out->member[at - 1].key, &who.key) > 0; at--)
            out->member[at] = out->member[at - 1];
        out->member[at] = who;
        out->n++;
    }
}

/* Signs as those that lie with it, and makes up the rest. */
static void sign(sim_world *w, const gsp_member *as, const gsp_hash *id, uint8_t *seal)
{
    sim_host *o = w->host[sim_host_of(w, &as->key)];
    gsp_seals seals = sim_seals(o);
    memset(seal, 0x5a, GSP_SEAL_BYTES);
    if (o->hostility == SIM_TAKES_OVER)
        seals.seal(seals.context, id->byte, sizeof id->byte, seal);
}

/* Others than were on the roster are refused by every chain: it lists those that were, as somebody
 * new, or begins alone. */
static void of_those(const gsp_roster *left, gsp_genesis *g)
{
    gsp_roster all = g->roster;
    bool me = false;
    memset(&g->roster, 0, sizeof g->roster);
    for (uint32_t i = 0; i < all.n; i++) {
        uint32_t at = gsp_roster_find_key(left, &all.member[i].key);
        if (at == GSP_NOBODY)
            continue;
        gsp_member who = left->member[at];
        who.incarnation++;
        if (gsp_key_compare(&who.key, &g->founder.key) == 0) {
            g->founder = who;
            me = true;
        }
        g->roster.member[g->roster.n++] = who;
    }
    if (!me || g->roster.n < 2)
        memset(&g->roster, 0, sizeof g->roster);
}

static void make_fork(sim_world *w, sim_host *h, gsp_genesis *g)
{
    const gsp_chain *end = &h->lie.end;
    gsp_hash id;
    *g = (gsp_genesis){.pool = end->pool,
                       .reset = end->reset,
                       .order = end->order,
                       .generation = end->generation + 1,
                       .parent = end->lineage,
                       .version = end->version,
                       .previous = end->newest,
                       .tokens = end->tokens,
                       .samples = end->samples,
                       .founder = h->self};
    g->founder.incarnation++;
    if (sim_chance(&w->random, 0.7))
        accomplices(w, h, sim_chance(&w->random, 0.5), &g->roster);
    of_those(&h->lie.end.roster, g);
    gsp_genesis_hash(&h->seals, g, &id);
    sign(w, &g->founder, &id, g->seal);
    for (uint32_t i = 0; i < g->roster.n; i++)
        if (!gsp_member_equal(&g->roster.member[i], &g->founder))
            sign(w, &g->roster.member[i], &id, g->consent[i]);
}

/* More tokens than anybody has, by votes that are made up where nobody gave them. */
static void certify(sim_world *w, sim_host *h, gsp_certificate *c)
{
    const gsp_chain *end = &h->lie.end;
    gsp_proposal *p = &c->proposal;
    memset(c, 0, sizeof *c);
    *p = (gsp_proposal){.lineage = end->lineage,
                        .version = end->version + 1 + sim_below(&w->random, 40),
                        .previous = end->newest,
                        .tokens = 1ull << 60,
                        .samples = end->samples,
                        .n_parts = w->rules.n_parts,
                        .since = end->made,
                        .next = end->roster};
    if (sim_chance(&w->random, 0.5))
        accomplices(w, h, false, &p->next);
    p->made = gsp_roster_equal(&p->next, &end->roster) ? end->made : p->version;
    gsp_statement s = {
        .kind = GSP_SAYS_VOTE, .lineage = p->lineage, .version = p->version, .ballot = 1};
    gsp_proposal_hash(&h->seals, p, &s.subject);
    c->ballot = 1;
    for (uint32_t i = 0; i < end->roster.n; i++) {
        sim_host *o = w->host[sim_host_of(w, &end->roster.member[i].key)];
        gsp_seals seals = sim_seals(o);
        s.signer = end->roster.member[i];
        memset(s.seal, 0x77, sizeof s.seal);
        if (o->hostility == SIM_TAKES_OVER)
            gsp_statement_seal(&seals, &s);
        c->vote[i].member = (uint8_t)i;
        memcpy(c->vote[i].seal, s.seal, sizeof s.seal);
        c->n_votes++;
    }
}

static void newest_genesis(const gsp_trail *trail, gsp_genesis *out)
{
    gsp_step step;
    for (uint32_t i = trail->n; i-- > 0;) {
        gsp_trail_read(trail, i, &step);
        if (step.is_genesis)
            break;
    }
    *out = step.as.genesis;
}

/* A chain that is made up from some place on, and a state where it ends. */
static void ahead(sim_world *w, sim_host *h)
{
    gsp_saved *saved = &h->lie_saved;
    gsp_step step;
    must(gsp_trail_copy(&h->lie, &h->trail));
    gsp_trail_cut(&h->lie, 1 + (uint32_t)sim_below(&w->random, h->lie.n));
    memset(saved, 0, sizeof *saved);
    if (sim_chance(&w->random, 0.7)) {
        memset(&step, 0, sizeof step);
        step.is_genesis = true;
        make_fork(w, h, &step.as.genesis);
        must(gsp_trail_add(&h->lie, &step, true));
    }
    newest_genesis(&h->lie, &saved->genesis);
    certify(w, h, &saved->certificate);
    saved->has_certificate = true;
    h->lie_end = *saved;
    h->lie_anchor = h->anchor;
}

/* The state that is offered is not the one where the chain ends: without a certificate, one that it
 * had before, or put together from lineages of now and then. */
static void beside(sim_world *w, sim_host *h)
{
    gsp_saved *saved = &h->lie_saved, *then = &h->was;
    switch (sim_below(&w->random, then->has_certificate ? 4 : 1)) {
    case 0:
        saved->has_certificate = false;
        memset(&saved->certificate, 0, sizeof saved->certificate);
        break;
    case 1:
        *saved = *then;
        h->lie_anchor = h->was_anchor;
        break;
    case 2:
        saved->certificate = then->certificate;
        saved->has_certificate = true;
        break;
    default:
        saved->genesis = then->genesis;
    }
}

/* What it has now, to be offered long after: the anchor of such a state is what its members signed. */
static void remember(sim_host *h)
{
    h->was = h->disk;
    memset(&h->was.record, 0, sizeof h->was.record);
    h->was_anchor = h->anchor;
}

/* Made up once, and told for a while. */
static void make_up(sim_world *w, sim_host *h)
{
    if (sim_chance(&w->random, 0.6)) {
        ahead(w, h);
    } else { /* its own chain, which is right */
        must(gsp_trail_copy(&h->lie, &h->trail));
        h->lie_saved = h->disk;
        memset(&h->lie_saved.record, 0, sizeof h->lie_saved.record);
        h->lie_end = h->lie_saved;
        h->lie_anchor = h->anchor;
    }
    if (sim_chance(&w->random, 0.5))
        beside(w, h);
    if (sim_chance(&w->random, 0.3))
        remember(h);
}

bool sim_state_send(sim_world *w, sim_host *h, gsp_message *m)
{
    if (m->kind != GSP_HEARTBEAT || h->trail.n == 0 || !h->has_disk || !sim_chance(&w->random, 0.5))
        return false;
    if (h->lie.n == 0 || w->now_ns - h->lie_ns > 20 * SIM_SECOND) {
        h->lie_ns = w->now_ns;
        make_up(w, h);
    }
    m->lineage = h->lie.end.lineage;
    m->version = h->lie_end.has_certificate ? h->lie_end.certificate.proposal.version
                                            : h->lie_end.genesis.version;
    m->version += sim_chance(&w->random, 0.5) ? sim_below(&w->random, 40) : 0;
    m->as.heartbeat.applied = m->version;
    m->as.heartbeat.tokens = 1ull << 60;
    return true;
}
