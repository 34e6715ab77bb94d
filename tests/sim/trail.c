/*
 * Owns a host's chain of steps (certificate_chain.h): what it keeps, gives to others and hears from them, by
 * messages like any other. Its one idea: it is the driver's own code over the simulator's network.
 * It refuses to help the machine to judge.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

static void must(atom_status st)
{
    if (st != ATOM_OK)
        abort();
}

void sim_trail_boot(sim_world *w, sim_host *h, bool lost)
{
    gsp_genesis_hash(&h->seals, &w->first, &h->terms.first);
    h->terms.seals = &h->seals;
    h->terms.trust = w->rules.trust;
    h->terms.owner = w->rules.owner;
    if (!h->trail.terms)
        gsp_trail_open(&h->trail, &h->terms);
    if (lost)
        gsp_trail_cut(&h->trail, 0);
    if (!lost && h->trail.n == 0) /* the creator's */
        sim_trail_begin(h, &w->first);
}

void sim_trail_stop(sim_host *h)
{
    gsp_inquiry_close(&h->inquiry);
    gsp_trail_close(&h->hope);
    gsp_trail_open(&h->hope, &h->terms);
}

static void send(sim_world *w, sim_host *h, uint32_t to, gsp_message *m)
{
    m->from = h->self;
    m->lineage = h->agree.lineage;
    if (h->hostility == SIM_HONEST || !sim_hostile_send(w, h, to, m))
        sim_message(w, h->index, to, m);
}

static void ask(sim_world *w, sim_host *h, uint32_t to)
{
    gsp_message *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    m->kind = GSP_CHAIN_ASK;
    gsp_inquiry_ask(&h->inquiry, &h->trail, &m->as.chain_ask);
    send(w, h, to, m);
    free(m);
}

void sim_trail_ask(sim_world *w, sim_host *h, uint32_t peer)
{
    gsp_inquiry_begin(&h->inquiry, &h->terms, &w->host[peer]->self.key, w->now_ns);
    ask(w, h, peer);
}

static void answer(sim_world *w, sim_host *h, uint32_t to, const gsp_chain_ask *what)
{
    gsp_message *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    m->kind = GSP_CHAIN;
    bool lies = h->hostility == SIM_TAKES_OVER && h->lie.n && w->host[to]->has_disk;
    w->out->injected[SIM_TAKEN] += lies;
    gsp_trail_answer(lies ? &h->lie : &h->trail, lies ? &h->lie_end : &h->disk, what, &m->as.chain);
    send(w, h, to, m);
    free(m);
}

void sim_trail_heard(sim_world *w, sim_host *h, uint32_t from, const gsp_message *m)
{
    gsp_inquiry *q = &h->inquiry;
    gsp_event event = {.kind = GSP_ON_CHAIN, .peer = q->of};
    gsp_match match;
    if (m->kind == GSP_CHAIN_ASK) {
        if (h->has_disk && h->trail.n)
            answer(w, h, from, &m->as.chain_ask);
        return;
    }
    if (!q->on || from != sim_host_of(w, &q->of))
        return;
    gsp_inquiry_news news = gsp_inquiry_heard(q, &h->trail, &m->as.chain, w->now_ns);
    if (news == GSP_INQUIRY_GOES) {
        ask(w, h, from);
        return;
    }
    if (news == GSP_INQUIRY_WHOLE) {
        gsp_trail_match(&h->trail, h->has_disk ? &h->disk : NULL, &q->theirs, &match);
        event.match = &match;
    }
    sim_host_step(w, h->index, &event);
}

void sim_trail_hope(sim_host *h)
{
    must(gsp_trail_copy(&h->hope, &h->inquiry.theirs));
}

void sim_trail_match(const sim_host *h, gsp_match *out)
{
    gsp_trail_match(&h->trail, h->has_disk ? &h->disk : NULL, &h->hope, out);
}

void sim_trail_certify(sim_host *h, const gsp_certificate *c)
{
    must(gsp_trail_certify(&h->trail, c));
}

void sim_trail_begin(sim_host *h, const gsp_genesis *genesis)
{
    must(
        gsp_trail_begin(&h->trail, h->disk.has_certificate ? &h->disk.certificate : NULL, genesis));
}

void sim_trail_adopt(sim_host *h)
{
    must(gsp_trail_copy(&h->trail, &h->hope));
    must(gsp_trail_settle(&h->trail, &h->disk));
}
