/*
 * Owns what a member's driver does for each action of its machine: sends, freezes, reduces
 * and applies, with numbers that stand for the bytes. Its one idea: every answer comes later, as an
 * event. It refuses to wait for the disk: host.c holds back what must come after a write.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

void sim_later(sim_world *w, uint32_t to, uint64_t delay, const gsp_event *event)
{
    sim_push(w, SIM_EVENT, to, w->now_ns + delay)->event = *event;
}

static void transmit(sim_world *w, sim_host *h, uint32_t to, const gsp_message *m)
{
    if (h->hostility == SIM_HONEST || !sim_hostile_send(w, h, to, m))
        sim_message(w, h->index, to, m);
}

static void send_to(sim_world *w, sim_host *h, const gsp_action *action, const gsp_message *m)
{
    sim_check_heard(w, m); /* a liar may show later what it signed and did not say */
    if (h->hostility == SIM_HONEST)
        sim_check_said(w, h->index, m);
    if (action->to == GSP_TO_ONE) {
        transmit(w, h, sim_host_of(w, &action->peer), m);
        return;
    }
    const gsp_roster *roster = gsp_agree_roster(&h->agree);
    for (uint32_t i = 0; action->to == GSP_TO_ROSTER && i < roster->n; i++) {
        uint32_t to = sim_host_of(w, &roster->member[i].key);
        if (to != h->index)
            transmit(w, h, to, m);
    }
    for (uint32_t to = 0; action->to == GSP_TO_ALL && to < w->n_hosts; to++)
        if (to != h->index && w->linked[h->index][to])
            transmit(w, h, to, m);
}

static void send_result(sim_world *w, sim_host *h, const gsp_action *action, const gsp_message *m)
{
    const gsp_roster *roster = gsp_agree_roster(&h->agree);
    send_to(w, h, action, m);
    for (uint32_t i = 0; i < roster->n; i++) {
        uint32_t to = sim_host_of(w, &roster->member[i].key);
        if (to == h->index || !sim_reaches(w, h->index, to) || sim_chance(&w->random, w->loss))
            continue;
        gsp_event held = {.kind = GSP_ON_HELD,
                          .version = action->version,
                          .part = action->part,
                          .hash = action->hash};
        sim_later(w, to, sim_delay(w) + h->slow_ns, &held);
    }
}

static void freeze(sim_world *w, sim_host *h, uint64_t version)
{
    uint32_t f = version % SIM_FRAGMENTS;
    uint64_t to = sim_host_tokens(w, h);
    uint64_t from = h->mark[f] > h->base ? h->mark[f] : h->base;
    gsp_event event = {.kind = GSP_ON_FROZEN, .version = version};
    if (w->rules.robust && w->rules.summed && to > from)
        to -= (to - from) % w->rules.tokens_per_sample; /* whole samples alone */
    if (to > from && !h->follower) {
        uint64_t id[6] = {h->index, h->self.incarnation, version, from, to, h->boot};
        event.contribution.tokens = to - from;
        event.contribution.samples = (to - from + 7) / 8;
        sim_hash(NULL, id, sizeof id, &event.contribution.root);
        sim_check_frozen(w, h->index, &event.contribution, from, to);
    }
    sim_later(w, h->index, 5 * SIM_MS + sim_below(&w->random, 50 * SIM_MS), &event);
}

void sim_made(const gsp_hash *lineage, uint64_t version, uint32_t number,
              const gsp_contributor *contributor, uint32_t n_contributors, uint32_t included,
              gsp_part *out)
{
    uint64_t id[3] = {version, number, sim_short(lineage)};
    gsp_hash roots[GSP_MEMBERS_MAX + 1];
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < n_contributors; i++) {
        if (!(included >> i & 1))
            continue;
        roots[n++] = contributor[i].root;
        /* One in four of the members leans backwards: by its place, so that owners agree. */
        out->lean[i] = contributor[i].member % 4 == 1 ? -20 : 30;
    }
    memset(&roots[n], 0, sizeof roots[n]);
    memcpy(roots[n].byte, id, sizeof id);
    out->included = included;
    out->weight = gsp_included_weight(contributor, n_contributors, included);
    out->norm = (float)(n + number);
    sim_hash(NULL, roots, (n + 1) * sizeof roots[0], &out->hash);
}

static void reduce(sim_world *w, sim_host *h, const gsp_action *action, const gsp_begin *begin)
{
    gsp_part made;
    uint32_t included = sim_rules_included(w, h, action->included);
    sim_made(&h->agree.lineage, action->version, action->part, begin->contributor,
             begin->n_contributors, included, &made);
    if (h->hostility == SIM_FALSIFIES || h->hostility == SIM_WITHHOLDS)
        w->out->injected[SIM_FALSIFIED] += sim_hostile_part(w, h, begin, action->part, &made);
    gsp_event event = {.kind = GSP_ON_REDUCED,
                       .version = action->version,
                       .ballot = action->ballot,
                       .part = action->part,
                       .included = included,
                       .hash = made.hash,
                       .norm = made.norm};
    memcpy(event.lean, made.lean, sizeof event.lean);
    sim_later(w, h->index, 5 * SIM_MS + sim_below(&w->random, 30 * SIM_MS), &event);
}

static void apply(sim_world *w, sim_host *h, const gsp_certificate *c)
{
    const gsp_proposal *p = &c->proposal;
    uint64_t anchor = h->anchor;
    sim_check_certified(w, h->index, c);
    for (uint32_t k = 0; k < p->n_parts; k++) {
        if (gsp_hash_none(&p->part[k].hash))
            continue;
        if (!sim_host_holds(h, sim_short(&p->part[k].hash)))
            sim_violate(w, "I2", "host %u applies version %llu without part %u", h->index,
                        (unsigned long long)p->version, k);
        anchor = sim_mix(anchor, sim_short(&p->part[k].hash));
    }
    uint32_t anywhere = 0;
    for (uint32_t k = 0; k < p->n_parts; k++)
        anywhere |= p->part[k].included;
    for (uint32_t i = 0; i < p->n_contributors; i++) {
        const sim_span *span = sim_check_span(w, &p->contributor[i].root);
        if (span && span->host == h->index && (anywhere >> i & 1))
            h->mark[p->version % SIM_FRAGMENTS] = span->to;
    }
    h->anchor = anchor;
    sim_host_keep(h, p);
    sim_trail_certify(h, c);
    h->disk.has_certificate = true;
    h->disk.certificate = *c;
    sim_check_applied(w, h->index, c, anchor);
    gsp_event event = {.kind = GSP_ON_APPLIED, .version = p->version};
    sim_later(w, h->index, w->disk_ns, &event);
}

static void send_certificate(sim_world *w, sim_host *h, const gsp_action *action)
{
    uint64_t version = action->version;
    if (version + GSP_REPLAY_MAX <= h->agree.applied)
        version = h->agree.certified;
    const gsp_certificate *c = sim_check_certificate(w, &h->agree.lineage, version);
    if (!c)
        return;
    gsp_message *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    m->kind = GSP_CERTIFY;
    m->from = h->self;
    m->lineage = h->agree.lineage;
    m->version = version;
    m->ballot = c->ballot;
    m->as.certify.certificate = *c;
    transmit(w, h, sim_host_of(w, &action->peer), m);
    free(m);
}

void sim_host_fresh_marks(const sim_world *w, sim_host *h)
{
    for (uint32_t f = 0; f < SIM_FRAGMENTS; f++)
        h->mark[f] = sim_host_tokens(w, h);
}

void sim_act(sim_world *w, sim_host *h, const gsp_action *a)
{
    uint32_t peer = sim_host_of(w, &a->peer);
    gsp_event event = {.version = a->version,
                       .part = a->part,
                       .hash = a->hash,
                       .root = a->hash,
                       .peer = h->self.key};
    switch (a->kind) {
    case GSP_DO_SEND:
        if (a->message->kind == GSP_CONSENT)
            sim_check_consents(w, h->index, &a->message->as.consent.lineage);
        send_to(w, h, a, a->message);
        break;
    case GSP_DO_CERTIFICATE:
        send_certificate(w, h, a);
        break;
    case GSP_DO_FREEZE:
        freeze(w, h, a->version);
        break;
    case GSP_DO_PART:
        event.kind = GSP_ON_ARRIVED;
        if (sim_reaches(w, h->index, peer))
            sim_later(w, peer, 2 * sim_delay(w) + h->slow_ns, &event);
        break;
    case GSP_DO_REDUCE:
        reduce(w, h, a, a->begin);
        break;
    case GSP_DO_RESULT:
        send_result(w, h, a, a->message);
        break;
    case GSP_DO_CHAIN:
        sim_trail_ask(w, h, peer);
        break;
    case GSP_DO_PULL:
    case GSP_DO_STATE: {
        if (a->kind == GSP_DO_STATE)
            sim_trail_hope(h);
        bool mine = a->kind == GSP_DO_PULL && sim_host_holds(h, sim_short(&a->hash));
        sim_item *item = sim_push(w, a->kind == GSP_DO_PULL ? SIM_PULLED : SIM_ASKED,
                                  mine ? h->index : peer, w->now_ns + sim_delay(w));
        item->from = h->index;
        item->event = event;
        break;
    }
    case GSP_DO_APPLY:
        apply(w, h, a->certificate);
        break;
    case GSP_DO_AUDIT:
        sim_audit(w, h, a);
        break;
    case GSP_DO_INPUTS:
        sim_inputs(w, h, a);
        break;
    case GSP_DO_FOUND:
        sim_trace(w, "host %u founds a lineage after version %llu", h->index,
                  (unsigned long long)a->version);
        if (a->genesis->reset > w->ordered && h->index == 0)
            w->ordered = a->genesis->reset;
        sim_check_begun(w, h->index, a->genesis);
        sim_trail_begin(h, a->genesis);
        h->disk.genesis = *a->genesis;
        h->disk.has_certificate = false;
        memset(&h->disk.record, 0, sizeof h->disk.record);
        h->self.incarnation++; /* as its roster lists it */
        sim_host_fresh_marks(w, h);
        sim_check_applied(w, h->index, NULL, h->anchor);
        break;
    case GSP_DO_PERSIST:
        break;
    }
}
