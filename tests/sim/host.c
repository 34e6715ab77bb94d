/*
 * Owns one member: its clock, its disk, its bytes, and what reaches it. Its one idea: the disk is a barrier in
 * time; what the machine orders behind it is kept until the write is done, and is lost when the
 * host stops or the disk fails. It refuses to help the machine beyond what agree.h asks of a
 * driver.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

uint64_t sim_host_tokens(const sim_world *w, const sim_host *h)
{
    return (uint64_t)((double)(w->now_ns - h->born_ns) * h->tokens_per_ns);
}

/* ---- results ---- */

bool sim_host_holds(const sim_host *h, uint64_t hash)
{
    for (uint32_t k = 0; k < SIM_RESULTS_MAX && k < h->n_results; k++)
        if (h->result[k].hash == hash)
            return true;
    return false;
}

void sim_host_hold(sim_host *h, uint64_t hash, uint64_t version)
{
    if (sim_host_holds(h, hash))
        return;
    uint32_t at = h->n_results++ % SIM_RESULTS_MAX;
    h->result[at].hash = hash;
    h->result[at].version = version;
    h->result[at].durable = false;
}

void sim_host_keep(sim_host *h, const gsp_proposal *p)
{
    for (uint32_t i = 0; i < p->n_parts; i++)
        for (uint32_t k = 0; k < SIM_RESULTS_MAX && k < h->n_results; k++)
            if (h->result[k].hash == sim_short(&p->part[i].hash))
                h->result[k].durable = true;
}

static void forget_memory(sim_host *h)
{
    uint32_t n = h->n_results < SIM_RESULTS_MAX ? h->n_results : SIM_RESULTS_MAX, kept = 0;
    for (uint32_t k = 0; k < n; k++)
        if (h->result[k].durable)
            h->result[kept++] = h->result[k];
    h->n_results = kept;
}

/* ---- start and stop ---- */

void sim_host_stop(sim_world *w, uint32_t i)
{
    sim_host *h = w->host[i];
    h->running = false;
    h->boot++;
    h->barrier_ns = 0;
    forget_memory(h);
    sim_trail_stop(h);
}

void sim_host_boot(sim_world *w, uint32_t i, bool lost)
{
    sim_host *h = w->host[i];
    if (h->running || h->gone)
        return;
    if (lost && h->started)
        h->self.incarnation++;
    if (!h->started)
        h->born_ns = w->now_ns;
    h->started = h->running = true;
    h->boot++;
    h->base = sim_host_tokens(w, h);
    h->tick_ns = 0;
    for (uint32_t k = 0; k < SIM_REPLAYS;
         k++) { /* a new link's nonces forbid what the old one carried */
        free(h->old[k]);
        h->old[k] = NULL;
    }
    gsp_seals seals = sim_seals(h);
    h->seals = seals;
    sim_trail_boot(w, h, lost);
    uint64_t local = (uint64_t)((double)w->now_ns * h->drift) + h->offset_ns;
    gsp_rules rules = w->rules;
    rules.context = h;
    gsp_agree_open(&h->agree, &rules, &seals, &h->self, &h->rates, lost ? NULL : &h->disk, local);
    sim_trace(w, "host %u starts as incarnation %llu%s", i, (unsigned long long)h->self.incarnation,
              lost ? " with nothing" : "");
    for (uint32_t k = 0; k < w->n_hosts; k++) {
        if (k == i || !w->linked[i][k] || !w->host[k]->running || w->cut[i][k] || w->cut[k][i])
            continue;
        for (int side = 0; side < 2; side++) {
            sim_item *item = sim_push(w, SIM_EVENT, side ? i : k, w->now_ns + sim_delay(w));
            item->event.kind = GSP_ON_UP;
            item->event.peer = w->host[side ? k : i]->self.key;
        }
    }
    gsp_event tick = {.kind = GSP_ON_TICK};
    sim_host_step(w, i, &tick);
}

static void *copy(const void *data, size_t bytes)
{
    if (!data)
        return NULL;
    void *to = malloc(bytes);
    if (!to)
        abort();
    return memcpy(to, data, bytes);
}

static void defer(sim_world *w, sim_host *h, const gsp_action *a)
{
    sim_deferred *d = calloc(1, sizeof *d);
    if (!d)
        abort();
    d->action = *a;
    d->message = copy(a->message, a->message ? gsp_message_bytes(a->message->kind) : 0);
    d->begin = copy(a->begin, sizeof *a->begin);
    d->certificate = copy(a->certificate, sizeof *a->certificate);
    if (a->genesis)
        d->genesis = *a->genesis;
    if (a->claim)
        d->claim = *a->claim;
    d->action.message = d->message;
    d->action.begin = d->begin;
    d->action.certificate = d->certificate;
    d->action.genesis = &d->genesis;
    d->action.claim = &d->claim;
    sim_push(w, SIM_DEFERRED, h->index, h->barrier_ns)->payload = d;
}

typedef struct sink_of {
    sim_world *world;
    sim_host *host;
} sink_of;

static void sink(void *context, const gsp_action *a)
{
    sim_world *w = ((sink_of *)context)->world;
    sim_host *h = ((sink_of *)context)->host;
    h->actions++;
    if (a->kind == GSP_DO_PERSIST) {
        uint64_t from = h->barrier_ns > w->now_ns ? h->barrier_ns : w->now_ns;
        h->barrier_ns = from + 1 + sim_below(&w->random, w->disk_ns + 1);
        sim_item *item = sim_push(w, SIM_WRITTEN, h->index, h->barrier_ns);
        item->payload = copy(a->record, sizeof *a->record);
    } else if (h->barrier_ns >= w->now_ns && h->barrier_ns != 0) {
        defer(w, h, a);
    } else {
        sim_act(w, h, a);
    }
}

void sim_host_step(sim_world *w, uint32_t i, gsp_event *event)
{
    sim_host *h = w->host[i];
    if (!h->running)
        return;
    event->now_ns = (uint64_t)((double)w->now_ns * h->drift) + h->offset_ns;
    event->tokens = sim_host_tokens(w, h);
    sink_of context = {w, h};
    if (h->hostility == SIM_LIES || h->hostility == SIM_OMITS)
        sim_hostile_mind(h);
    h->actions = 0;
    uint64_t before = h->agree.certified;
    gsp_hash lineage = h->agree.lineage;
    gsp_agree_step(&h->agree, event, sink, &context);
    if (!gsp_hash_equal(&lineage, &h->agree.lineage) || before != h->agree.certified) {
        sim_trace(w, "host %u knows version %llu, a roster of %u", i,
                  (unsigned long long)h->agree.certified, gsp_agree_roster(&h->agree)->n);
        if (h->barrier_ns >= w->now_ns && h->barrier_ns != 0)
            sim_push(w, SIM_KNOWN, i, h->barrier_ns)->payload =
                copy(&h->agree.certificate, sizeof h->agree.certificate);
        else
            sim_check_certified(w, i, &h->agree.certificate);
    }
    sim_check_step(w, i);
    uint64_t wait = gsp_agree_deadline(&h->agree) - event->now_ns;
    uint64_t at = w->now_ns + (uint64_t)((double)wait / h->drift) + 1;
    if (h->tick_ns <= w->now_ns || at < h->tick_ns) {
        h->tick_ns = at;
        sim_push(w, SIM_TICK, i, at);
    }
}

/* ---- items ---- */

/* What may change something when it comes again, and rightly: who waits says so again; and where I
 * have come back from another lineage to an older version of this one, who said goodbye is on the
 * roster, and a certificate is the next. */
static bool still_news(const sim_host *h, const gsp_message *old)
{
    return old->kind == GSP_JOIN ||
           (old->kind == GSP_CERTIFY && gsp_hash_equal(&old->lineage, &h->agree.lineage) &&
            old->version > h->agree.certified) ||
           (old->kind == GSP_LEAVE && gsp_hash_equal(&old->lineage, &h->agree.lineage) &&
            gsp_roster_find(gsp_agree_roster(&h->agree), &old->as.leave.statement.signer) !=
                GSP_NOBODY);
}

static void deliver(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    gsp_message *m = item->payload;
    w->in_flight[item->from][item->host]--;
    if (!h->running || w->cut[item->from][item->host])
        return;
    uint64_t *newest = &w->arrived[item->from][item->host];
    w->out->injected[SIM_REORDERED] += item->order < *newest;
    *newest = item->order > *newest ? item->order : *newest;
    gsp_event event = {.kind = GSP_ON_MESSAGE, .message = m};
    if (m->kind == GSP_CHAIN_ASK || m->kind == GSP_CHAIN) { /* the driver's business */
        sim_trail_heard(w, h, item->from, m);
        return;
    }
    bool keep = sim_chance(&w->random, 0.3);
    uint64_t digest = keep ? sim_check_digest(&h->agree) : 0;
    sim_host_step(w, item->host, &event);
    if (h->hostility != SIM_HONEST && h->hostility != SIM_REPLAYS_OLD)
        return;
    if (h->hostility == SIM_HONEST && h->old[h->n_old % SIM_REPLAYS] && h->running &&
        sim_chance(&w->random, 0.05)) {
        const gsp_message *old = h->old[sim_below(&w->random, SIM_REPLAYS)];
        if (old && !still_news(h, old)) {
            gsp_event tick = {
                .kind = GSP_ON_TICK, .samples = h->agree.samples, .tokens = h->agree.tokens_live};
            if (w->rules.summed) /* there any heartbeat makes members look whether it is time */
                sim_host_step(w, item->host, &tick);
            uint64_t before = sim_check_digest(&h->agree);
            w->out->injected[SIM_REPLAYED]++;
            gsp_event again = {.kind = GSP_ON_MESSAGE, .message = old};
            sim_host_step(w, item->host, &again);
            if (sim_check_digest(&h->agree) != before)
                sim_violate(w, "I7", "an old message of kind %d changes host %u", old->kind,
                            h->index);
        }
    }
    /* Only what had its effect: what came too early may still have it. */
    if (keep && digest != sim_check_digest(&h->agree)) {
        gsp_message **place = &h->old[h->n_old++ % SIM_REPLAYS];
        free(*place);
        *place = m;
        item->payload = NULL;
    }
}

static void answer_state(sim_world *w, sim_item *item)
{
    sim_host *donor = w->host[item->host], *asker = w->host[item->from];
    if (!donor->has_disk || !sim_reaches(w, item->host, item->from))
        return;
    gsp_saved *saved = copy(&donor->disk, sizeof donor->disk);
    memset(&saved->record, 0, sizeof saved->record);
    bool lies = donor->hostility != SIM_HONEST && (asker->has_disk || donor->lie.n == 0) &&
                sim_hostile_state(w, donor, saved);
    w->out->injected[SIM_ORDERED] += lies;
    sim_item *back = sim_push(w, SIM_EVENT, asker->index, w->now_ns + 3 * sim_delay(w));
    back->payload = saved;
    back->version = lies && donor->lie.n ? donor->lie_anchor : donor->anchor;
    back->event.kind = GSP_ON_STATE;
}

static void take_event(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    gsp_event *e = &item->event;
    if (e->kind == GSP_ON_REDUCED || e->kind == GSP_ON_HELD)
        sim_host_hold(h, sim_short(&e->hash), e->version);
    if (e->kind != GSP_ON_STATE) {
        sim_host_step(w, item->host, e);
        return;
    }
    gsp_hash lineage = h->agree.lineage;
    uint64_t applied = h->agree.applied;
    gsp_match match;
    sim_trail_match(h, &match);
    uint64_t since =
        h->agree.quorum_ns > h->agree.certified_ns ? h->agree.quorum_ns : h->agree.certified_ns;
    uint64_t local = (uint64_t)((double)w->now_ns * h->drift) + h->offset_ns;
    uint64_t long_ns = 4 * w->rules.fork_ns;
    bool forgotten = !gsp_agree_is_member(&h->agree) &&
                     local - h->agree.certified_ns >= long_ns + 4 * w->rules.time_due_ns;
    bool gave_up = gsp_agree_roster(&h->agree)->n < 2 || forgotten || local - since >= long_ns ||
                   (h->agree.due_ns && local - h->agree.due_ns >= long_ns);
    gsp_plight plight = {.waits = true, .gave_up = gave_up};
    if (!gsp_hash_none(&lineage) && match.theirs.forked &&
        gsp_match_judge(&match, w->rules.trust, plight) == GSP_GO)
        sim_check_followed(w, item->host, &match.theirs.before, &match.theirs.chain.lineage,
                           gave_up);
    e->saved = item->payload;
    e->match = &match;
    sim_host_step(w, item->host, e);
    if (gsp_hash_equal(&lineage, &h->agree.lineage) && applied == h->agree.applied)
        return;
    h->disk = *e->saved;
    h->has_disk = true;
    sim_trail_adopt(h);
    h->anchor = item->version;
    h->self = h->agree.self;
    sim_host_fresh_marks(w, h);
    sim_trace(w, "host %u takes over version %llu", h->index, (unsigned long long)h->agree.applied);
}

static void written(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    const gsp_record *record = item->payload;
    if (h->disk_bad) {
        h->disk_bad = false;
        w->out->injected[SIM_DISK_FAILED]++;
        sim_trace(w, "host %u cannot write and stops", h->index);
        sim_host_stop(w, item->host);
        sim_push(w, SIM_START, item->host, w->now_ns + 5 * SIM_SECOND);
        return;
    }
    h->disk.record = *record;
    h->has_disk = true;
    if (record->voted)
        sim_host_keep(h, &record->proposal);
}

void sim_host_take(sim_world *w, sim_item *item)
{
    sim_host *h = w->host[item->host];
    bool stale = item->boot != h->boot;
    switch (item->kind) {
    case SIM_DELIVER:
        deliver(w, item);
        break;
    case SIM_TICK:
        if (!stale && h->running && item->at_ns == h->tick_ns) {
            gsp_event tick = {.kind = GSP_ON_TICK};
            if (h->hostility != SIM_HONEST)
                sim_hostile_tick(w, h);
            sim_host_step(w, item->host, &tick);
        }
        break;
    case SIM_EVENT:
        if (!stale && h->running)
            take_event(w, item);
        break;
    case SIM_DEFERRED:
        if (!stale && h->running)
            sim_act(w, h, &((sim_deferred *)item->payload)->action);
        break;
    case SIM_WRITTEN:
        if (!stale && h->running)
            written(w, item);
        break;
    case SIM_KNOWN:
        if (!stale && h->running)
            sim_check_certified(w, item->host, item->payload);
        break;
    case SIM_PULLED:
        if (h->running && sim_host_holds(h, sim_short(&item->event.hash)) &&
            (item->from == item->host || sim_reaches(w, item->host, item->from))) {
            item->event.kind = GSP_ON_HELD;
            sim_later(w, item->from, sim_delay(w), &item->event);
        }
        break;
    case SIM_ASKED:
        if (h->running)
            answer_state(w, item);
        break;
    case SIM_LOOK:
        if (!stale && h->running)
            sim_look(w, item);
        break;
    case SIM_START:
        sim_host_boot(w, item->host, !h->has_disk);
        break;
    case SIM_FAULT:
        break;
    }
}
