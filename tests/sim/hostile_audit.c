/*
 * Owns what hostile members do to those who check, and through them: they withhold what would show
 * a lie, claim what cannot be, and complain of anybody. Its one idea: whoever lies can sign as many
 * keys as it likes, but nobody knows those. It refuses to collude beyond what a pool is made to
 * survive, for nothing is promised then.
 */
#include "tests/sim/sim.h"

#include "gossip/agree/agree_inner.h"

#include <string.h>

bool sim_hostile_withholds(const sim_host *h, const sim_host *from)
{
    bool alone = h->index % 2; /* gives to nobody, or to liars */
    return h->hostility == SIM_WITHHOLDS && (alone || from->hostility == SIM_HONEST);
}

static uint32_t liars(const sim_world *w, const gsp_roster *roster)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < roster->n; i++)
        n += w->host[sim_host_of(w, &roster->member[i].key)]->hostility != SIM_HONEST;
    return n;
}

/* Its promises count honest members as withholding: the same ones as those of its accomplices do,
 * and not so many that nobody could believe it. */
bool sim_hostile_defame(sim_world *w, sim_host *h, gsp_message *m)
{
    const gsp_roster *roster = gsp_agree_roster(&h->agree);
    gsp_seals seals = sim_seals(h);
    if (m->kind != GSP_PROMISE || liars(w, roster) > gsp_liars_max(h->agree.rules.trust, roster->n))
        return false;
    for (uint32_t i = 0; i < roster->n; i++)
        if ((i + m->version) % 3 == 0 &&
            w->host[sim_host_of(w, &roster->member[i].key)]->hostility == SIM_HONEST)
            m->as.promise.statement.item |= 1u << i;
    gsp_statement_seal(&seals, &m->as.promise.statement);
    return true;
}

static void to_all(sim_world *w, sim_host *h, const gsp_message *m)
{
    for (uint32_t to = 0; to < w->n_hosts; to++)
        if (to != h->index)
            sim_message(w, h->index, to, m);
}

/* A key that nobody knows, with the means to sign as it. */
static gsp_seals invent(sim_world *w, sim_host *as)
{
    uint64_t key = sim_random(&w->random);
    memset(&as->self, 0, sizeof as->self);
    memcpy(as->self.key.byte, &key, sizeof key);
    memset(as->self.key.byte + 8, 0xff, 4); /* no host's */
    as->self.incarnation = 1;
    return sim_seals(as);
}

static void sign_claim(const gsp_seals *seals, const gsp_hash *lineage, gsp_claim *c)
{
    gsp_hash contributors;
    gsp_statement said;
    gsp_contributors_hash(seals, c->contributor, c->n_contributors, &contributors);
    gsp_reduced_statement(seals, lineage, c->version, c->number, &c->part, &contributors, &c->owner,
                          &said);
    gsp_statement_seal(seals, &said);
    memcpy(c->part.seal, said.seal, sizeof said.seal);
}

/* Its own word or that of a key that nobody knows, about a sum that wraps, or one that is false. */
static void wrap(sim_world *w, sim_host *h)
{
    static sim_host other;
    gsp_message m = {.kind = GSP_ACCUSE, .from = h->self, .lineage = h->agree.lineage};
    gsp_claim *c = &m.as.accuse.claim;
    bool invented = sim_chance(&w->random, 0.6);
    if (h->agree.certified == 0)
        return;
    *c = (gsp_claim){.version = h->agree.certified, .n_contributors = 2, .owner = h->self};
    for (uint8_t i = 0; i < 2; i++)
        c->contributor[i] =
            (gsp_contributor){.member = i, .root = {{1, i}}, .tokens = 3, .weight = 3};
    gsp_seals seals = invented ? invent(w, &other) : sim_seals(h);
    if (invented)
        c->owner = other.self;
    if (!invented || sim_chance(&w->random, 0.5)) {
        c->contributor[0].weight = UINT64_MAX;
        c->contributor[1].weight = sim_chance(&w->random, 0.5) ? 3 : 1;
    }
    c->part = (gsp_part){.hash = {{5}}, .included = 3};
    c->part.weight = c->contributor[0].weight + c->contributor[1].weight;
    sign_claim(&seals, &m.lineage, c);
    w->out->injected[SIM_WRAPPED]++;
    to_all(w, h, &m);
}

/* Two votes of a key that nobody knows, or one vote twice of somebody honest. */
static void false_evidence(sim_world *w, sim_host *h)
{
    static sim_host other;
    gsp_seals seals = invent(w, &other);
    gsp_message m = {.kind = GSP_EVIDENCE, .from = h->self, .lineage = h->agree.lineage};
    gsp_evidence *e = &m.as.evidence;
    e->first = (gsp_statement){.kind = GSP_SAYS_VOTE,
                               .lineage = m.lineage,
                               .version = h->agree.certified + 1,
                               .ballot = 1,
                               .subject = {{1}},
                               .signer = other.self};
    if (sim_chance(&w->random, 0.3))
        e->first.signer = w->host[sim_below(&w->random, w->n_hosts)]->self;
    e->second = e->first;
    e->second.subject.byte[0] = 2;
    gsp_statement_seal(&seals, &e->first);
    gsp_statement_seal(&seals, &e->second);
    to_all(w, h, &m);
}

static void complain(sim_world *w, sim_host *h)
{
    gsp_message m = {.kind = GSP_WITHHELD, .from = h->self, .lineage = h->agree.lineage};
    uint64_t back = sim_below(&w->random, GSP_REPLAY_MAX + 2);
    m.as.withheld = (gsp_missing){
        .version = h->agree.certified > back ? h->agree.certified - back : h->agree.certified + 1,
        .part = (uint32_t)sim_below(&w->random, w->rules.n_parts + 1),
        .missing =
            sim_chance(&w->random, 0.8) ? (uint32_t)sim_random(&w->random) & 0xf : UINT32_MAX};
    to_all(w, h, &m);
}

void sim_hostile_audit_tick(sim_world *w, sim_host *h)
{
    if (gsp_hash_none(&h->agree.lineage))
        return;
    if (h->hostility == SIM_WRAPS && sim_chance(&w->random, 0.3))
        wrap(w, h);
    for (uint32_t k = 0; h->hostility == SIM_DEFAMES && k < 3; k++) {
        w->out->injected[SIM_DEFAMED]++;
        if (sim_chance(&w->random, 0.5))
            complain(w, h);
        else
            false_evidence(w, h);
    }
}
